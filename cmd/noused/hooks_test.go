package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"noused/internal/client"
	"noused/internal/hookfile"
	"noused/internal/protocol"
)

// shellHook is a table [[hook]] of a line of shell.
func shellHook(on, line string, more ...string) string {
	return fmt.Sprintf("[[hook]]\non = %q\ncommand = [\"sh\", \"-c\", %q]\n%s\n", on, line, strings.Join(more, "\n"))
}

// hooked is a daemon with hooks of the user's.
func hooked(t *testing.T, tables ...string) *daemon {
	t.Helper()
	d := unstarted(t, "noused")
	d.write("noused/config.toml", strings.Join(tables, "\n"), 0o600)
	d.Start()
	return d
}

// says gives the daemon a text, and returns the output of the run and what it was warned of.
func (d *daemon) says(text string) (output string, warned []string) {
	d.t.Helper()
	events := d.sinceStart(d.dial())
	r, err := d.answered(text)
	if err != nil {
		d.t.Fatal(err)
	}
	await(d.t, events, func(ev protocol.Event) bool {
		if w, ok := ev.(protocol.Warning); ok && w.RunID == r.Result.RunID && w.Code == protocol.WarningHookFailed {
			warned = append(warned, w.Message)
		}
		return endOf(r.Result.RunID)(ev)
	})
	return r.Result.Output, warned
}

const echoHi = `!bash {"command":"echo hi"}`

// What a hook says of a call is in the result that the model reads and the journal has; it gets the
// call on its input, and runs in no session's folder.
func TestAHookAddsToAResult(t *testing.T) {
	d := hooked(t, shellHook("after_tool", `cat; echo; pwd; echo added`, `tools = ["edit", "bash"]`),
		shellHook("after_tool", "echo never", `tools = ["read"]`))
	out, warned := d.says(echoHi)
	for _, want := range []string{
		"hi\n\n[hook sh]\n{", `"on":"after_tool"`, `"tool":"bash"`, `"arguments":{"command":"echo hi"}`, `"ok":true`,
		`"result":"hi`, `"workdir":"` + d.Dir + `"`, "\nadded",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in what the model reads:\n%s", want, out)
		}
	}
	if strings.Contains(out, "\n"+d.Dir+"\n") || strings.Contains(out, "never") || len(warned) > 0 {
		t.Errorf("got %s, warned %q", out, warned)
	}
	d.Kill()
	d.Start()
	list, err := client.Call(context.Background(), d.dial(), protocol.GetMessages, protocol.GetMessagesParams{})
	if err != nil || len(list.Messages) < 3 || !strings.Contains(string(list.Messages[2]), `[hook sh]\n{`) {
		t.Errorf("after a crash: %s, %v", list.Messages, err)
	}
}

// One that objects to a result makes a failed one of it; one that objects to a call denies it.
func TestAHookObjects(t *testing.T) {
	d := hooked(t, shellHook("after_tool", "echo not formatted >&2; exit 2"))
	if out, _ := d.says(echoHi); !strings.Contains(out, "hi") || !strings.Contains(out, "[hook sh]\nnot formatted") {
		t.Errorf("got %s", out)
	}
	d = hooked(t, shellHook("before_tool", "grep -q secret && { echo no secrets; exit 2; }; exit 0", `tools = ["bash"]`))
	if out, _ := d.says(echoHi); !strings.Contains(out, "hi") {
		t.Errorf("got %s", out)
	}
	d.write("witness", "", 0o600)
	out, warned := d.says(`!bash {"command":"rm witness # secret"}`)
	if _, err := os.Stat(filepath.Join(d.Dir, "witness")); err != nil || !strings.Contains(out, "denies it: no secrets") ||
		len(warned) > 0 {
		t.Errorf("got %s, warned %q, %v", out, warned, err)
	}
}

// A hook that fails in any way is bounded and told once, by its name. The result stays; what it
// guards does not pass.
func TestAHookThatFails(t *testing.T) {
	hour := `exec sleep 3600`
	for name, c := range map[string]struct{ hook, want string }{
		"hangs":           {shellHook("ON", hour, `timeout = "200ms"`), "it took longer than its timeout of 200ms"},
		"hangs and forks": {shellHook("ON", hour+" & "+hour, `timeout = "200ms"`), "timeout of 200ms"},
		"prints 1 GB":     {shellHook("ON", "head -c 1073741824 /dev/zero"), "it printed more than 64 KiB"},
		"fails":           {shellHook("ON", "echo broken >&2; exit 1"), "exit status 1 broken"},
		"is none":         {"[[hook]]\non = \"ON\"\ncommand = [\"/nowhere/lint\"]\n", "no such file or directory"},
		"may not run":     {"[[hook]]\non = \"ON\"\ncommand = [\"./config.toml\"]\n", "permission denied"},
	} {
		t.Run(name, func(t *testing.T) {
			d := hooked(t, strings.ReplaceAll(c.hook, "ON", "after_tool"))
			out, warned := d.says(echoHi)
			if !strings.Contains(out, "hi") || len(warned) != 1 || !strings.Contains(warned[0], c.want) ||
				!strings.Contains(warned[0], "config.toml:2) of after_tool failed: ") {
				t.Errorf("got %s, warned %q", out, warned)
			}
			d.write("noused/config.toml", strings.ReplaceAll(c.hook, "ON", "before_tool"), 0o600)
			if wrong := d.reload(); len(wrong) > 0 {
				t.Fatal(wrong)
			}
			out, warned = d.says(`!bash {"command":"touch witness"}`)
			if _, err := os.Stat(filepath.Join(d.Dir, "witness")); err == nil || !strings.Contains(out, c.want) ||
				len(warned) != 1 {
				t.Errorf("as a guard: got %s, warned %q", out, warned)
			}
		})
	}
}

// What all hooks add to one result is bounded as what one adds is.
func TestManyHooksSayNoMoreThanOne(t *testing.T) {
	var tables []string
	for range 4 {
		tables = append(tables, shellHook("after_tool", "head -c 30000 /dev/zero | tr '\\0' b"))
	}
	out, warned := hooked(t, tables...).says(echoHi)
	if n := strings.Count(out, "b"); n < 60000 || n > 64<<10 || len(warned) != 2 ||
		!strings.Contains(warned[0], "it printed more than 64 KiB, or those before it did with it") {
		t.Errorf("%d bytes were added, warned %q", strings.Count(out, "b"), warned)
	}
}

// A hook may add to a text before it is accepted, or not let it in.
func TestAHookOfPrompts(t *testing.T) {
	d := hooked(t, shellHook("on_prompt",
		`grep -q password && { echo "no passwords"; exit 2; }; echo "the branch is main"`))
	if out, _ := d.says("hello"); !strings.Contains(out, "hello\n\n[hook sh]\nthe branch is main") {
		t.Errorf("got %q", out)
	}
	if _, err := d.answered("the password is x"); err == nil || !strings.Contains(err.Error(), "no passwords") {
		t.Errorf("got %v", err)
	}
}

// A run that a hook does not let end is sent back once, and ends once, also when the daemon is
// killed while the hook runs.
func TestAHookSendsARunBack(t *testing.T) {
	d := hooked(t, shellHook("on_stop", "echo tests fail; exit 2"))
	if out, _ := d.says("done?"); !strings.Contains(out, "A hook does not let this run end yet") ||
		!strings.Contains(out, "tests fail") {
		t.Errorf("got %q", out)
	}

	dir := t.TempDir()
	d = hooked(t, shellHook("on_stop", fmt.Sprintf(
		"test -e %[1]s/again || { touch %[1]s/began; sleep 3600; }; exit 2", dir)))
	r, err := client.Call(context.Background(), d.dial(), protocol.Prompt, protocol.PromptParams{
		Text: "done?", Wait: new(bool),
	})
	if err != nil {
		t.Fatal(err)
	}
	for ctx := t.Context(); ctx.Err() == nil; {
		if _, err := os.Stat(filepath.Join(dir, "began")); err == nil {
			break
		}
	}
	d.Kill()
	if err := os.WriteFile(filepath.Join(dir, "again"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d.Start()
	end := await(t, d.sinceStart(d.dial()), endOf(r.Accepted.RunID)).(protocol.AgentEnd)
	if end.StopReason != protocol.StopCompleted || end.Turns != 2 {
		t.Errorf("got %+v", end)
	}
}

// The hooks of a project run once the user trusts its file as it is: in its folder, and in the
// sandbox. While a file with guards is another one than was trusted, nothing passes them.
func TestTheHooksOfAProject(t *testing.T) {
	d := unstarted(t, "noused")
	away := t.TempDir()
	file := shellHook("after_tool", fmt.Sprintf("pwd; touch %s/escaped 2>/dev/null || echo confined", away)) +
		shellHook("before_tool", "exit 0")
	d.write(".noused/config.toml", file, 0o600)
	d.Start()
	out, warned := d.says(echoHi)
	if strings.Contains(out, "confined") || len(warned) != 1 || !strings.Contains(warned[0],
		"has hooks that do not run, as you have not trusted them: nous trust shows them, and asks") {
		t.Errorf("untrusted: got %s, warned %q", out, warned)
	}
	trust := func(text string) {
		if err := hookfile.Trust(filepath.Join(d.Dir, "noused"), d.Dir, []byte(text), time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	trust(file)
	out, warned = d.says(echoHi)
	if !strings.Contains(out, "[hook sh]\n"+d.Dir+"\nconfined") || len(warned) > 0 {
		t.Errorf("trusted: got %s, warned %q", out, warned)
	}
	for name, change := range map[string]func(){
		"changed": func() { d.write(".noused/config.toml", file+"# a model was here\n", 0o600) },
		"removed": func() { _ = os.Remove(filepath.Join(d.Dir, ".noused", "config.toml")) },
	} {
		change()
		out, warned = d.says(echoHi)
		if strings.Contains(out, "hi\n") || !strings.Contains(out, "nous trust") {
			t.Errorf("%s: got %s, warned %q", name, out, warned)
		}
		d.write(".noused/config.toml", file, 0o600)
	}
	if out, _ = d.says(echoHi); !strings.Contains(out, "confined") {
		t.Errorf("as it was: got %s", out)
	}
}

// A hook of events is handed each of them.
func TestAHookOfEvents(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	events, err := os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = events.Close() }()
	d := hooked(t, shellHook("on_event", "cat > "+path))
	d.says(echoHi)
	_ = events.SetReadDeadline(time.Now().Add(hangTime))
	for said := bufio.NewScanner(events); ; {
		if !said.Scan() {
			t.Fatalf("no event says that the call was made: %v", said.Err())
		}
		if strings.HasPrefix(said.Text(), `{"on":"on_event","event":{`) &&
			strings.Contains(said.Text(), `"event":"module:invoke"`) {
			return
		}
	}
}

// What is wrong with a hook is told with its place.
func TestAHookThatIsWrittenWrong(t *testing.T) {
	for text, want := range map[string]string{
		"[[hook]]\non = \"after_lunch\"\n":                                  `config.toml:2: hook.on: there is no "after_lunch", only before_tool`,
		"[[hook]]\non = \"on_stop\"\n":                                      "config.toml:2: hook.command is missing",
		"[[hook]]\non = \"on_stop\"\ncommand = [\"x\"]\ntools = [\"y\"]\n":  "hook.tools: on_stop is about no tool",
		"[[hook]]\non = \"on_stop\"\ncommand = [\"x\"]\ntimeout = \"1h\"\n": `hook.timeout: got "1h"`,
		"[[hook]]\non = \"on_stop\"\ncommand = [\"x\"]\nsandbox = \"none\"\n"://
		"config.toml:4: hook.sandbox: there is no such key",
		"[[hook]]\non = \"on_stop\"\ncommand = \"x\"\n": "config.toml:3",
	} {
		d := unstarted(t, "noused")
		d.write("noused/config.toml", text, 0o600)
		if out, status := d.doctor(); status == 0 || !strings.Contains(out, want) {
			t.Errorf("got %d %s, want %q", status, out, want)
		}
	}
}
