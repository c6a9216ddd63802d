package narratoria

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"noused/internal/model"
	"noused/internal/tool"
	"noused/internal/tool/tooltest"
)

const (
	done  = `{"version":"0","type":"done","ok":true,"summary":"fine"}`
	hello = `{"version":"0","type":"log","level":"info","message":"hello"}`
)

func TestMain(m *testing.M) {
	script := func() int {
		io.Copy(io.Discard, os.Stdin)
		fmt.Fprint(os.Stderr, os.Getenv("ERR"))
		fmt.Print(strings.ReplaceAll(os.Getenv("SCRIPT"), "BADBYTE", "\xff"))
		code, _ := strconv.Atoi(os.Getenv("EXIT"))
		return code
	}
	tooltest.Main(m, map[string]func() int{
		"script": script,
		"linger": func() int { script(); return tooltest.Block() },
		"stubborn": func() int {
			signal.Ignore(syscall.SIGTERM)
			script()
			return tooltest.Block()
		},
		"polite": func() int {
			c := make(chan os.Signal, 1)
			signal.Notify(c, syscall.SIGTERM)
			script()
			<-c
			fmt.Println(`{"version":"0","type":"state_patch","patch":{"late":true}}`)
			fmt.Println(done)
			return 0
		},
		"mute": func() int {
			io.Copy(io.Discard, os.Stdin)
			os.Stdout.Close()
			return tooltest.Block()
		},
		"deaf": func() int { fmt.Print(os.Getenv("SCRIPT")); return 0 },
		"repeat": func() int {
			input, _ := io.ReadAll(os.Stdin)
			text, _ := json.Marshal(string(input))
			fmt.Printf(`{"version":"0","type":"log","level":"info","message":%s}`+"\n%s\n", text, done)
			return 0
		},
		"flood": func() int {
			for range 1_000_000 {
				if _, err := fmt.Println(hello); err != nil {
					return 1
				}
			}
			return 0
		},
		"chatterbox": func() int {
			fmt.Println(done)
			for {
				if _, err := fmt.Println(`{"version":"0","type":"state_patch","patch":{"late":true}}`); err != nil {
					return 0
				}
			}
		},
		"endless": func() int {
			chunk := bytes.Repeat([]byte("x"), 1<<20)
			for range 200 {
				os.Stdout.Write(chunk)
			}
			return 0
		},
	})
}

// script is a tool that says these lines.
func script(t *testing.T, lines ...string) tooltest.Descriptor {
	return tooltest.New(t, "t", "narratoria", "script").Env("SCRIPT", strings.Join(append(lines, ""), "\n"))
}

type run struct {
	workdir string
	result  model.ToolResult
	log     tooltest.Log
}

// play calls t.run once, and sees that nothing is left of it.
func play(t *testing.T, d tooltest.Descriptor, prepare ...func(*run, *tool.Registry)) *run {
	t.Helper()
	return playContext(t, t.Context(), d, prepare...)
}

func playContext(t *testing.T, ctx context.Context, d tooltest.Descriptor, prepare ...func(*run, *tool.Registry)) *run {
	t.Helper()
	dir := t.TempDir()
	d.Write(t, dir)
	r := &run{workdir: t.TempDir()}
	reg := tool.New(tool.Options{
		Dirs: []string{dir}, Workdir: r.workdir, OutputDir: t.TempDir(),
		Dialects: map[string]tool.Dialect{tool.Narratoria: Dialect},
	})
	defer tooltest.NoChildren(t)
	defer reg.Close(context.Background())
	if errs := reg.Errors(); len(errs) > 0 {
		t.Fatal(errs)
	}
	for _, p := range prepare {
		p(r, reg)
	}
	r.result = reg.Call(ctx, tooltest.Invocation("t.run", `{}`), r.log.Add)
	return r
}

func (r *run) fails(t *testing.T, code string, texts ...string) {
	t.Helper()
	if r.result.OK || r.result.Error == nil || r.result.Error.Code != code {
		t.Fatalf("got %+v, want %s", r.result, code)
	}
	for _, text := range texts {
		if !strings.Contains(r.result.Text, text) {
			t.Errorf("got text %q, want %q in it", r.result.Text, text)
		}
	}
}

func (r *run) said(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, r.log.Deltas()); diff != "" {
		t.Errorf("progress: %s", diff)
	}
}

func TestEveryEventIsToldInOrder(t *testing.T) {
	asset := `{"version":"0","type":"asset","assetId":"a1","kind":"image","mediaType":"image/png","path":"./map.png","metadata":{"w":3}}`
	odd := `{"version":"0","type":"asset","assetId":"a2","kind":"model","mediaType":"model/gltf-binary","path":"map.png"}`
	patch := `{"version":"0","type":"state_patch","patch":{"lit":true}}`
	known := `{"version":"0","type":"ui_event","event":"notify"}`
	unknown := `{"version":"0","type":"ui_event","event":"sparkle","payload":{"n":1}}`
	failure := `{"version":"0","type":"error","errorCode":"E1","errorMessage":"a scratch"}`
	r := play(t, script(t, hello, "", patch+"\r", asset, odd, known, unknown, failure, done), func(r *run, _ *tool.Registry) {
		if err := os.WriteFile(filepath.Join(r.workdir, "map.png"), []byte("png"), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	path := filepath.Join(r.workdir, "map.png")
	want := []model.ToolUpdate{
		{Delta: "hello", Update: json.RawMessage(hello)},
		{Update: json.RawMessage(patch), Patch: json.RawMessage(`{"lit":true}`)},
		{Delta: "image " + path, Update: json.RawMessage(asset), Asset: &model.Asset{
			ID: "a1", Kind: "image", MediaType: "image/png", Path: path, Tool: "t", Supported: true, Metadata: json.RawMessage(`{"w":3}`),
		}},
		{Delta: "model " + path, Update: json.RawMessage(odd), Asset: &model.Asset{
			ID: "a2", Kind: "model", MediaType: "model/gltf-binary", Path: path, Tool: "t",
		}},
		{Delta: "notify", Update: json.RawMessage(known)},
		{Delta: "unsupported ui_event: sparkle", Update: json.RawMessage(unknown)},
		{Delta: "E1: a scratch", Update: json.RawMessage(failure)},
		{Delta: "fine", Update: json.RawMessage(done)},
	}
	if diff := cmp.Diff(want, r.log.Updates()); diff != "" {
		t.Error(diff)
	}
	if !r.result.OK || string(r.result.Value) != done {
		t.Errorf("got %+v, want it ok with the done event as value", r.result)
	}
	text := "fine\nE1: a scratch\nasset a1 (image/png): " + path + "\nasset a2 (model/gltf-binary): " + path
	if r.result.Text != text {
		t.Errorf("got text %q, want %q", r.result.Text, text)
	}
}

func TestARefusedEventChangesNothingAndTheCallGoesOn(t *testing.T) {
	asset := func(id, path string) string {
		return `{"version":"0","type":"asset","assetId":"` + id + `","kind":"k","mediaType":"text/plain","path":"` + path + `"}`
	}
	r := play(t, script(t,
		`{"version":"0","type":"state_patch","patch":[1]}`,
		asset("a", "none.txt"), asset("a", "dir"), asset("a", "fifo"), asset("a", "there.txt"), asset("a", "there.txt"),
		`{"version":"0","type":"done","ok":1}`, done,
	), func(r *run, _ *tool.Registry) {
		err := errors.Join(
			os.WriteFile(filepath.Join(r.workdir, "there.txt"), nil, 0o600),
			os.Mkdir(filepath.Join(r.workdir, "dir"), 0o700),
			syscall.Mkfifo(filepath.Join(r.workdir, "fifo"), 0o600),
		)
		if err != nil {
			t.Fatal(err)
		}
	})
	const warning = "warning invalid_tool_event: "
	r.said(t,
		warning+"state_patch: patch is [1], want an object",
		warning+"asset: path none.txt: no such file or directory",
		warning+"asset: path dir: not a regular file",
		warning+"asset: path fifo: not a regular file",
		"k "+filepath.Join(r.workdir, "there.txt"),
		warning+`asset: assetId "a" is used twice`,
		warning+"done: ok is 1, want true or false",
		"fine")
	for _, u := range r.log.Updates() {
		if u.Patch != nil || u.Asset != nil && u.Warning != "" {
			t.Errorf("got %+v, want no effect", u)
		}
	}
	if !r.result.OK {
		t.Errorf("got %+v, want ok", r.result)
	}
}

func TestDoneAndExitStatusDecide(t *testing.T) {
	failed := `{"version":"0","type":"done","ok":false,"summary":"no oil"}`
	silent := `{"version":"0","type":"done","ok":false}`
	reason := `{"version":"0","type":"error","errorCode":"E","errorMessage":"wet wood"}`
	for _, c := range []struct {
		lines []string
		exit  string
		code  string
		texts []string
	}{
		{[]string{failed}, "0", tool.ToolFailed, []string{"no oil"}},
		{[]string{reason, silent}, "0", tool.ToolFailed, []string{"E: wet wood"}},
		{[]string{silent}, "0", tool.ToolFailed, []string{"reported a failure"}},
		{[]string{done}, "3", tool.ProtocolError, []string{"exit status 3", "summary: fine", "stderr:\noops"}},
		{[]string{failed}, "3", tool.ProtocolError, []string{"exit status 3", "summary: no oil"}},
		{[]string{hello}, "0", tool.ProtocolError, []string{"without a done event"}},
		{nil, "0", tool.ProtocolError, []string{"without a done event"}},
		{[]string{reason}, "4", tool.ProtocolError, []string{"exit status 4", "E: wet wood"}},
	} {
		r := play(t, script(t, c.lines...).Env("EXIT", c.exit).Env("ERR", "oops"))
		r.fails(t, c.code, c.texts...)
		var details struct{ Exit, Stderr string }
		if err := json.Unmarshal(r.result.Error.Details, &details); err != nil || details.Stderr != "oops" || details.Exit != "exit status "+c.exit {
			t.Errorf("got details %s, want the exit status and stderr", r.result.Error.Details)
		}
	}
}

func TestNothingAfterDoneIsAccepted(t *testing.T) {
	r := play(t, script(t, done, hello, "garbage"))
	if !r.result.OK {
		t.Errorf("got %+v, want ok", r.result)
	}
	r.said(t, "fine")

	r = play(t, tooltest.New(t, "t", "narratoria", "chatterbox"))
	r.fails(t, tool.ProtocolError, "did not exit within 2s of done")
	r.said(t, "fine")
}

func TestABrokenProtocolEndsTheCall(t *testing.T) {
	for line, reason := range map[string]string{
		"Loading...":                                                      "not a JSON object",
		`{"version":"0","type":"dance"}`:                                  "unknown event type",
		`{"version":"2","type":"done"}`:                                   "version",
		`{"version":"0","type":"log","message":"BADBYTE"}`:                "UTF-8",
		`{"version":"0","x":"` + strings.Repeat("x", 5000) + `","type":1`: "line is longer than 4096 bytes",
	} {
		d := script(t, hello, line, hello, done).Set("max_output", 4096)
		d["env"].(map[string]string)[tooltest.Mode] = "linger"
		r := play(t, d)
		r.fails(t, tool.ProtocolError, reason)
		r.said(t, "hello")
	}
}

func TestALineOf200MBIsRefused(t *testing.T) {
	play(t, tooltest.New(t, "t", "narratoria", "endless")).fails(t, tool.ProtocolError, "line is longer than 1048576 bytes")
}

func TestATimeoutIsATimeout(t *testing.T) {
	d := script(t, hello).Set("timeout", "1s")
	d["env"].(map[string]string)[tooltest.Mode] = "stubborn"
	play(t, d).fails(t, tool.Timeout, "no result within 1s")
}

func TestAnAbortEndsTheToolAndWhatItSaysThenIsNotHeard(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	d := script(t, hello)
	d["env"].(map[string]string)[tooltest.Mode] = "polite"
	r := playContext(t, ctx, d, func(r *run, _ *tool.Registry) {
		r.log.On = func(model.ToolUpdate) { cancel() }
	})
	r.fails(t, tool.Aborted)
	r.said(t, "hello")
}

func TestStoppingTheDaemonEndsTheTool(t *testing.T) {
	d := script(t, hello)
	d["env"].(map[string]string)[tooltest.Mode] = "linger"
	closed := make(chan struct{})
	r := play(t, d, func(r *run, reg *tool.Registry) {
		r.log.On = func(model.ToolUpdate) {
			go func() {
				reg.Close(context.Background())
				close(closed)
			}()
		}
	})
	<-closed
	r.fails(t, tool.Aborted, "the daemon is stopping")
}

func TestAToolThatClosesItsOutputAndStaysIsEnded(t *testing.T) {
	play(t, tooltest.New(t, "t", "narratoria", "mute")).fails(t, tool.ProtocolError, "closed its output without a done event")
}

func TestAToolThatNeverReadsItsInputCanSucceed(t *testing.T) {
	d := script(t, done)
	d["env"].(map[string]string)[tooltest.Mode] = "deaf"
	if r := play(t, d); !r.result.OK {
		t.Errorf("got %+v, want ok", r.result)
	}
}

func TestAFloodIsHeardToItsEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	heard := 0
	r := playContext(t, ctx, tooltest.New(t, "t", "narratoria", "flood"), func(r *run, _ *tool.Registry) {
		r.log.On = func(model.ToolUpdate) {
			if heard++; heard == 10_000 {
				cancel()
			}
		}
	})
	r.fails(t, tool.Aborted)
	if heard != 10_000 {
		t.Errorf("heard %d lines, want none after the abort", heard)
	}
}

func TestTheToolGetsItsRequest(t *testing.T) {
	d := tooltest.New(t, "t", "narratoria", "repeat").Set("operations", map[string]any{
		"run": map[string]any{"params": map[string]any{"properties": map[string]any{"size": map[string]any{"default": 3}}}},
	})
	dir := t.TempDir()
	d.Write(t, dir)
	reg := tool.New(tool.Options{Dirs: []string{dir}, Workdir: dir, Dialects: map[string]tool.Dialect{"narratoria": Dialect}})
	defer reg.Close(context.Background())
	var log tooltest.Log
	result := reg.Call(t.Context(), tooltest.Invocation("t.run", "{\"color\":\"red\",\n \"tool\":\"mine\",\"input\":1}"), log.Add)
	if !result.OK {
		t.Fatalf("got %+v", result)
	}
	want := `{"color":"red","input":{"color":"red","input":1,"size":3,"tool":"mine"},"operation":"run","requestId":"call-1","size":3,"tool":"t"}` + "\n"
	if got := log.Updates()[0].Delta; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAToolThatIsNotThereIsUnhealthy(t *testing.T) {
	d := tooltest.New(t, "t", "narratoria", "").Set("transport", map[string]any{"type": "stdio", "command": []string{"./none"}})
	r := play(t, d, func(_ *run, reg *tool.Registry) {
		list := reg.List(t.Context())
		if len(list) != 1 || list[0].Name != "t.run" || list[0].Healthy || !strings.Contains(list[0].Problem, "no such file") {
			t.Errorf("got %+v, want t.run, unhealthy", list)
		}
	})
	r.fails(t, tool.Unreachable, "no such file")
	d = script(t, done).Set("workdir", "nowhere")
	play(t, d).fails(t, tool.Unreachable, "nowhere is not a directory")
}

func TestAPanicOfTheListenerLeavesNoChild(t *testing.T) {
	d := script(t, hello)
	d["env"].(map[string]string)[tooltest.Mode] = "linger"
	play(t, d, func(r *run, _ *tool.Registry) {
		r.log.On = func(model.ToolUpdate) { panic("ouch") }
	}).fails(t, tool.Internal)
}

func TestTheExampleTool(t *testing.T) {
	workdir := t.TempDir()
	reg := tool.New(tool.Options{
		Dirs: []string{"../../../examples/tools"}, Workdir: workdir, OutputDir: t.TempDir(),
		Dialects: map[string]tool.Dialect{"narratoria": Dialect},
	})
	defer reg.Close(context.Background())
	if errs := reg.Errors(); len(errs) > 0 {
		t.Fatal(errs)
	}
	for op, patch := range map[string]string{"light": `{"torches": {"hall": true}}`, "douse": `{"torches": {"hall": null}}`} {
		var log tooltest.Log
		result := reg.Call(t.Context(), tooltest.Invocation("torch."+op, `{}`), log.Add)
		updates := log.Updates()
		if !result.OK || len(updates) != 5 || string(updates[2].Patch) != patch || updates[1].Asset == nil || !updates[1].Asset.Supported {
			t.Errorf("%s: got %+v after %q", op, result, log.Deltas())
		}
	}
}
