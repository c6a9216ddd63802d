package builtin

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	jsonx "github.com/go-json-experiment/json"

	"noused/internal/tool/registry"
	"noused/internal/tool/tooltest"
)

// runExtension is `noused extension files`.
func runExtension() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	dir, err := os.Getwd()
	if err == nil {
		err = Serve(ctx, os.Stdin, os.Stdout, dir, os.Environ())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func TestBash(t *testing.T) {
	dir := files(t, map[string]string{"a.txt": "hello\n", "sub/b.txt": ""})
	for _, c := range []struct{ name, args, want string }{
		{"output", `{"command":"cat a.txt"}`, "hello"},
		{"nothing said", `{"command":"true"}`, "[no output]"},
		{"both outputs in order", `{"command":"echo 1; echo 2 >&2; echo 3; echo 4 >&2"}`, "1\n2\n3\n4"},
		{"working directory", `{"command":"basename \"$PWD\""}`, filepath.Base(dir)},
		{"status", `{"command":"echo oh; exit 3"}`, "failed: exit status 3\noh"},
		{"status alone", `{"command":"false"}`, "failed: exit status 1"},
		{"no such command", `{"command":"no-such-command 2>/dev/null"}`, "failed: exit status 127"},
		{"signal", `{"command":"echo before; kill -SEGV $$"}`, "failed: ended by signal: segmentation fault\nbefore"},
		{"no input", `{"command":"cat; echo $?"}`, "0"},
		{"no terminal", `{"command":"test -t 0 || test -t 1 || test -t 2 || echo none"}`, "none"},
		{"no waiting for what is left behind", `{"command":"sleep 1000 & echo done"}`, "done"},
		{"nor for what left the group", `{"command":"setsid sleep 1000 & echo done"}`, "done"},
		{"its own group killed", `{"command":"echo before; kill -KILL 0"}`, "failed: ended by signal: killed\nbefore"},
		{"its own group told to end", `{"command":"trap '' TERM; kill -TERM 0; echo still here"}`, "still here"},
		{"not UTF-8", `{"command":"printf 'a\\377b'"}`, "a\uFFFDb"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := do(t, dir, "bash", c.args).text(); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			tooltest.NoChildren(t)
		})
	}
}

// Whatever a command leaves behind ends with it, and nothing else does.
func TestNothingOutlivesItsCommand(t *testing.T) {
	dir := t.TempDir()
	x := start(t, dir)
	for what, command := range map[string]string{
		"in the background":       `SAY >/dev/null 2>&1 &`,
		"in a session":            `setsid SAY &`,
		"an orphan in a session":  `(setsid SAY &)`,
		"without an environment":  `(env -i setsid SAY &)`,
		"minding no signal":       `(trap '' HUP TERM; setsid SAY &)`,
		"one of one of an orphan": `(setsid sh -c 'setsid sh -c "SAY" & wait' &)`,
		"several":                 `for i in 1 2 3; do (setsid sleep 1000 &); done; (setsid SAY &)`,
	} {
		t.Run(what, func(t *testing.T) {
			fifo, held := tooltest.NewFIFO(t)
			script := filepath.Join(dir, "say.sh")
			must(t, os.WriteFile(script, []byte("#!/bin/sh\nexec 9>"+fifo+"\n: >"+fifo+".up\nsleep 1000\n"), 0o700))
			command := strings.ReplaceAll(command, "SAY", script) + "\nwhile ! test -e " + fifo +
				".up; do sleep 0.01; done; echo done"
			args, err := jsonx.Marshal(map[string]string{"command": command})
			must(t, err)
			x.send(execLine(dir, "bash", string(args)))
			released := held()
			if got := x.outcome().text(); got != "done" {
				t.Errorf("got %q, want it done", got)
			}
			released()
		})
	}
	other := exec.Command("cat")
	in, err := other.StdinPipe()
	must(t, err)
	must(t, other.Start())
	do(t, dir, "bash", `{"command":"(setsid sleep 1000 &)"}`)
	must(t, in.Close())
	if err := other.Wait(); err != nil {
		t.Errorf("a process that was there before: %v", err)
	}
}

func TestBashContext(t *testing.T) {
	dir := t.TempDir()
	o := finish(t, serveLines(t, dir,
		`{"jsonrpc":"2.0","id":7,"method":"execute","params":{"operation":"bash","args":{"command":"echo $COLOUR $HOME $PWD"},"context":{"env":{"COLOUR":"blue","HOME":"/h"}}}}`))
	if want := "blue /h " + dir; o.text() != want {
		t.Errorf("got %q, want %q", o.text(), want)
	}
}

// A command has the time it is given, and then a moment to clean up. The time
// is long enough for a busy machine to get it going.
func TestBashTimeout(t *testing.T) {
	for _, c := range []struct{ name, args, want string }{
		{
			"a command that waits", `{"command":"echo begun; sleep 1000","timeout":3}`,
			"failed: stopped after its timeout of 3s\nbegun",
		},
		{
			"and time to clean up", `{"command":"trap 'echo cleaned; exit' TERM; echo begun; sleep 1000 & wait","timeout":3}`,
			"failed: stopped after its timeout of 3s\nbegun\ncleaned",
		},
		{
			"not impressed by SIGTERM", `{"command":"trap '' TERM; echo begun; while :; do sleep 1000; done","timeout":3}`,
			"failed: stopped after its timeout of 3s\nbegun",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			x := start(t, dir)
			x.send(execLine(dir, "bash", c.args))
			if got := x.outcome().text(); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	t.Run("the context's", func(t *testing.T) {
		t.Parallel()
		x := start(t, t.TempDir())
		x.send(
			`{"jsonrpc":"2.0","id":7,"method":"execute","params":{"operation":"bash","args":{"command":"echo begun; sleep 1000"},"context":{"timeout":"5s"}}}`)
		if got, want := x.outcome().text(), "failed: stopped after its timeout of 3.8s\nbegun"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// What is said is told while the command runs, and whole lines of it.
func TestBashLogsWhileItRuns(t *testing.T) {
	dir := t.TempDir()
	x := start(t, dir)
	x.send(execLine(dir, "bash", `{"command":"mkfifo go; echo one; echo two; echo -n thr; cat go; echo ee"}`))
	var heard string
	for heard != "one\ntwo" {
		s := x.next()
		if s.Method != "log" {
			t.Fatalf("got %+v before the logs %q", s, heard)
		}
		heard = strings.TrimPrefix(heard+"\n"+s.Params.Message, "\n")
	}
	must(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0))
	s := x.next()
	if s.Params.Message != "three" {
		t.Errorf("got %q, want the line in one piece", s.Params.Message)
	}
	if s = x.next(); !strings.Contains(string(s.Result), `one\ntwo\nthree`) {
		t.Errorf("got %s", s.Result)
	}
}

// What a result does not show is in a file that it names, where somebody keeps it.
func TestBashKeepsWhatItCuts(t *testing.T) {
	r := newRegistry(t, t.TempDir())
	var want bytes.Buffer
	for i := range 100_000 {
		fmt.Fprintln(&want, i+1)
	}
	for _, c := range []struct {
		command string
		want    []byte
	}{
		{"seq 1 100000", want.Bytes()},
		{"seq 1 12000", want.Bytes()[:bytes.Index(want.Bytes(), []byte("\n12001\n"))+1]},
		{"seq 1 12000; exit 3", want.Bytes()[:bytes.Index(want.Bytes(), []byte("\n12001\n"))+1]},
		{"head -c 17000000 /dev/zero", make([]byte, maxSpill)},
	} {
		args, err := jsonx.Marshal(map[string]any{"command": c.command})
		must(t, err)
		text := invoke(t, r, "bash", string(args), new(tooltest.Log)).Text
		note, _, _ := strings.Cut(text, "]\n")
		_, file, ok := strings.Cut(note, "all of it is in ")
		if !ok {
			_, file, ok = strings.Cut(note, fmt.Sprint("the first ", maxSpill, " bytes are in "))
		}
		if !ok {
			t.Fatalf("%s: got %.200q, want to be told where all of it is", c.command, text)
		}
		if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, c.want) {
			t.Errorf("%s: %s has %d bytes, %v; want %d", c.command, file, len(got), err, len(c.want))
		}
	}
	if text := do(t, t.TempDir(), "bash", map[string]any{"command": "seq 1 100000"}).text(); !strings.HasPrefix(text,
		"[the first 576924 of 588895 bytes are cut, 98005 of 100000 lines]\n") {
		t.Errorf("got %.100q where nothing can be kept", text)
	}
}

// Where the disk has no place for it, the result says so.
func TestBashTellsOfWhatItCannotKeep(t *testing.T) {
	workdir, file := t.TempDir(), filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	r := newRegistry(t, workdir, func(o *registry.Options) { o.OutputDir = filepath.Join(file, "tool-output") })
	for _, command := range []string{"seq 1 100000", "seq 1 100000; exit 1"} {
		if text := invoke(t, r, "bash", `{"command":"`+command+`"}`, new(tooltest.Log)).Text; !strings.Contains(text,
			"[not all that was cut could be kept: ") {
			t.Errorf("%s: got %.200q", command, text)
		}
	}
}

// A flood is neither kept nor told in full; its end is.
func TestBashFlood(t *testing.T) {
	for _, c := range []struct{ name, command string }{
		{"many lines", "seq 1 300000; echo the end"},
		{"one line", "head -c 3000000 /dev/zero | tr '\\0' 'x'; echo the end"},
		{"wide characters", "yes ää | head -n 300000 | tr -d '\\n'; echo the end"},
		{"no text", "head -c 3000000 /dev/urandom; echo; echo the end"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := do(t, t.TempDir(), "bash", map[string]any{"command": c.command})
			text := o.text()
			if !strings.HasPrefix(text, "[the first ") || !strings.HasSuffix(text, "the end") {
				t.Errorf("got %.80q…, want the end, and what was cut", text)
			}
			if c.name != "no text" && (len(text) > maxText+400 || strings.Contains(text, "\uFFFD")) {
				t.Errorf("got %d bytes, want at most %d, cut between characters", len(text), maxText)
			}
			if n := strings.Count(text, "\n"); n > maxLines {
				t.Errorf("got %d lines, want at most %d", n, maxLines)
			}
			if len(o.logs) == 0 {
				t.Error("got no logs")
			}
			for _, l := range o.logs {
				if len(l) > 3*maxNews+100 {
					t.Errorf("got a log of %d bytes", len(l))
				}
			}
		})
	}
}

// extension is the real process.
type extension struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser

	stdout io.ReadCloser
	out    *bufio.Reader
}

func start(t *testing.T, dir string) *extension {
	t.Helper()
	x := &extension{t: t, cmd: exec.Command(tooltest.Self(t), "extension", Name)}
	x.cmd.Dir, x.cmd.Stderr = dir, os.Stderr
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := x.cmd.StdinPipe()
	must(t, err)
	out, err := x.cmd.StdoutPipe()
	must(t, err)
	must(t, x.cmd.Start())
	x.in, x.stdout, x.out = in, out, bufio.NewReader(out)
	t.Cleanup(func() {
		x.in.Close()
		_, _ = io.Copy(io.Discard, x.out)
		_ = x.cmd.Wait()
	})
	return x
}

func (x *extension) send(line string) {
	x.t.Helper()
	_, err := io.WriteString(x.in, line+"\n")
	must(x.t, err)
}

func (x *extension) next() (s said) {
	x.t.Helper()
	line, err := x.out.ReadBytes('\n')
	if err != nil {
		x.t.Fatalf("the extension says no more: %v", err)
	}
	must(x.t, jsonx.Unmarshal(line, &s))
	return s
}

// outcome is the end of the call that it was sent.
func (x *extension) outcome() outcome {
	x.t.Helper()
	var all []said
	for {
		s := x.next()
		if all = append(all, s); s.Method == "" {
			return finish(x.t, all)
		}
	}
}

// However the extension ends, what it runs ends with it.
func TestNothingOutlivesTheExtension(t *testing.T) {
	const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1"}}`
	for _, c := range []struct {
		name string
		end  func(x *extension)
	}{
		{"killed", func(x *extension) { must(t, x.cmd.Process.Kill()) }},
		{"its group told to end", func(x *extension) { must(t, syscall.Kill(-x.cmd.Process.Pid, syscall.SIGTERM)) }},
		{"its group killed", func(x *extension) { must(t, syscall.Kill(-x.cmd.Process.Pid, syscall.SIGKILL)) }},
		{"client gone", func(x *extension) { x.in.Close(); x.stdout.Close() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			fifo, held := tooltest.NewFIFO(t)
			x := start(t, dir)
			x.send(initialize)
			if s := x.next(); s.Error != nil {
				t.Fatal(s.Error)
			}
			// One that minds no signal, and a grandchild in the background.
			x.send(execLine(dir, "bash", fmt.Sprintf(
				`{"command":"trap '' TERM HUP; exec 9>%s; sleep 1000 & while :; do sleep 1000; done"}`, fifo)))
			released := held()
			c.end(x)
			released()
		})
	}
}

// A command ends with its call, in a session too, and the next call is
// answered as if nothing had been.
func TestBashInASession(t *testing.T) {
	dir := t.TempDir()
	fifo, held := tooltest.NewFIFO(t)
	x := start(t, dir)
	x.send(execLine(dir, "bash", fmt.Sprintf(
		`{"command":"(exec 9>%s; trap '' TERM HUP; : >up; sleep 1000) & while ! test -e up; do sleep 0.01; done"}`, fifo)))
	released := held()
	if s := x.next(); !strings.Contains(string(s.Result), "true") {
		t.Errorf("got %s %v", s.Result, s.Error)
	}
	released()
	x.send(execLine(dir, "bash", `{"command":"echo again"}`))
	for {
		if s := x.next(); s.Method == "" {
			if !strings.Contains(string(s.Result), "again") {
				t.Errorf("got %s", s.Result)
			}
			return
		}
	}
}

// A session is answered in full even if it comes all at once, and with a
// shutdown or without one.
func TestPipedSession(t *testing.T) {
	dir := t.TempDir()
	for _, end := range []string{`{"jsonrpc":"2.0","id":3,"method":"shutdown"}`, ""} {
		all := serveLines(t, dir,
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1"}}`,
			execLine(dir, "bash", `{"command":"sleep 0.05; echo a >>a"}`),
			execLine(dir, "bash", `{"command":"sleep 0.05; cat a >b"}`), end)
		if len(all) < 3 || all[2].Error != nil || content(t, filepath.Join(dir, "b")) != content(t, filepath.Join(dir, "a")) {
			t.Errorf("got %+v", all)
		}
	}
}

func FuzzOutput(f *testing.F) {
	f.Add([]byte("one\ntwo\nthree"), 3)
	f.Add([]byte("ä€\xff\n\n"), 1)
	f.Fuzz(func(t *testing.T, data []byte, times int) {
		var o output
		written, rounds := 0, 0
		for ; rounds < min(max(times, 1), 5000) && written < 1<<20; rounds++ {
			o.write(data)
			written += len(data)
			news := o.news()
			if !utf8.ValidString(news) || len(news) > 3*maxNews+100 {
				t.Fatalf("got news %q", news)
			}
		}
		if rest := o.rest(); !utf8.ValidString(rest) {
			t.Fatalf("got rest %q", rest)
		}
		text := o.text()
		if !utf8.ValidString(text) || len(text) > 3*maxText || strings.Count(text, "\n") > maxLines+1 {
			t.Fatalf("got %d bytes, %d lines of text", len(text), strings.Count(text, "\n"))
		}
		if cut := strings.HasPrefix(text, "[the first "); cut && written <= maxText && bytes.Count(data, []byte("\n"))*
			rounds < maxLines {
			t.Fatalf("got %q, want all of it", text)
		}
	})
}
