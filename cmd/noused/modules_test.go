package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/client"
	"noused/internal/protocol"
)

// One module of each kind takes part in the same daemon.
func TestModulesOfEveryKind(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("the examples need python3")
	}
	modules, err := filepath.Abs("../../examples/modules")
	if err != nil {
		t.Fatal(err)
	}
	d := newDaemon(t, "--tools-dir", modules, "--model", "module/parrot")
	d.write("travel.md", "The harbour of Lisbon.\n", 0o600)
	c, ctx := d.dial(), context.Background()
	say := func(text string) (string, error) {
		r, err := client.Call(ctx, c, protocol.Prompt, protocol.PromptParams{Text: text})
		if err != nil {
			return "", err
		}
		return r.Result.Output, nil
	}
	if got, err := say("hello parrot"); got != "hello parrot" || err != nil {
		t.Errorf("the provider: got %q, %v", got, err)
	}
	if _, err := say("the Swordfish, please"); err == nil || !strings.Contains(err.Error(), "rejected_by_hook: guard: ") {
		t.Errorf("the orchestrator: got %v, want its rejection", err)
	}
	if got, err := say("call scout.run"); !strings.HasPrefix(got, "The tool says: bad_request: ") || err != nil {
		t.Errorf("the agent, called by the provider without a goal: got %q, %v", got, err)
	}
	r, err := client.Call(ctx, c, protocol.ExtensionCommand, protocol.ExtensionCommandParams{
		Name: "scout.run", Payload: jsontext.Value(`{"goal":"find Lisbon"}`),
	})
	if err != nil || !r.OK || !strings.Contains(r.Result, "travel.md") {
		t.Errorf("the agent: got %+v, %v", r, err)
	}
	d.Stop()
	diary, err := os.ReadFile(filepath.Join(d.Dir, "diary.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"session:start", "policy:decision ok", "module:invoke parrot ok",
		"module:invoke guard ok", "context:set forget", "module:invoke scout error", "session:end",
	} {
		if !strings.Contains(string(diary), want) {
			t.Errorf("the hook has not heard of %s; it knows\n%s", want, diary)
		}
	}
	journal, err := os.ReadFile(filepath.Join(d.Dir, "state", "audit.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	for line := range bytes.Lines(journal) {
		var ev struct {
			ID        *string  `json:"id"`
			Ts        *float64 `json:"ts"`
			Event     *string  `json:"event"`
			Component *string  `json:"component"`
			Module    string   `json:"module"`
		}
		if err := json.Unmarshal(line, &ev); err != nil || ev.ID == nil || ev.Ts == nil || ev.Event == nil ||
			ev.Component == nil {
			t.Fatalf("not an Amplifier Event v1: %s (%v)", line, err)
		}
		told[*ev.Event+" "+ev.Module] = true
	}
	for _, want := range []string{"mount:add diary", "hook:register diary", "mount:remove diary", "session:start "} {
		if !told[want] {
			t.Errorf("the audit journal does not have %s", want)
		}
	}
}

// What a tool in the sandbox may not do itself, it must not have the daemon do.
func TestSandboxedToolsCannotCommandTheDaemon(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs python3 for its client")
	}
	d := newDaemon(t)
	d.write("client.py", `
import socket, sys
s = socket.socket(socket.AF_UNIX)
try:
    s.connect(sys.argv[1]) # refused, where sockets of others are covered
    s.sendall(b'{"v":"1","id":"x","type":"ping"}\n')
    print("answer:", s.recv(99).decode() or "none")
except OSError as e:
    print("answer: none,", e)
`, 0o600)
	r, err := client.Call(context.Background(), d.dial(), protocol.ExtensionCommand, protocol.ExtensionCommandParams{
		Name: "bash", Payload: jsontext.Value(`{"command":"python3 client.py ` + d.Socket + `"}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(r.Result, "answer: none") {
		t.Errorf("got %q, want no answer", r.Result)
	}
}

// hookModule is a module of kind hook that takes part in runs: it answers each of its
// operations with the value that answers has for it, and says what it was given.
const hookModule = `#!/usr/bin/env python3
import json, sys
answers = json.loads(%q)
for line in sys.stdin:
    request = json.loads(line)
    if request["method"] == "health":
        reply = {"status": "ok"}
    elif request["method"] == "describe":
        reply = {"name": %[2]q, "version": "1.0.0", "kind": "hook", "inputs": {}, "outputs": {}}
        reply["capabilities"] = list(answers)
    elif request["op"] not in answers:
        reply = {"ok": False, "error": {"code": "unsupported_op", "message": request["op"]}}
    else:
        answer = dict(answers[request["op"]])
        if "text" in answer:
            answer["text"] += json.dumps(request["args"])
        reply = {"ok": True, "result": answer}
        if "fails" in answer:
            reply = {"ok": False, "error": {"code": "internal", "message": answer["fails"]}}
    print(json.dumps(reply), flush=True)
`

// withHookModules starts a daemon with modules: what each answers to its operations.
func withHookModules(t *testing.T, answers map[string]string) *daemon {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("the modules need python3")
	}
	d := unstarted(t, "noused")
	d.Args = []string{"--tools-dir", filepath.Join(d.Dir, "modules")}
	for name, answer := range answers {
		var ops map[string]jsontext.Value
		if err := json.Unmarshal([]byte(answer), &ops); err != nil {
			t.Fatal(err)
		}
		capabilities, err := json.Marshal(slices.Sorted(maps.Keys(ops)))
		if err != nil {
			t.Fatal(err)
		}
		d.write("modules/"+name+".py", fmt.Sprintf(hookModule, answer, name), 0o700)
		d.write("modules/"+name+".json", fmt.Sprintf(`{"name":%q,"kind":"hook","protocol":"module","capabilities":%s,
			"transport":{"type":"stdio","command":["./%s.py"]},"version":"1.0.0",
			"timeout":"10s"}`, name, capabilities, name), 0o600)
	}
	d.Start()
	return d
}

// A module that names after_tool, on_prompt or on_stop takes part in runs as commands of
// config.toml do: it adds to a text and to a result, refuses a text, and sends a run back once.
func TestModulesAsHooks(t *testing.T) {
	d := withHookModules(t, map[string]string{
		"branch": `{"on_prompt":{"text":"the branch is main "}}`,
		"linter": `{"after_tool":{"text":"not formatted "}}`,
	})
	if out, _ := d.says("hello"); !strings.Contains(out,
		"hello\n\n[hook branch]\nthe branch is main {\"prompt\": \"hello\"}") {
		t.Errorf("on_prompt: got %q", out)
	}
	out, warned := d.says(echoHi)
	for _, want := range []string{
		"hi\n\n[hook linter]\nnot formatted {", `"tool": "bash"`, `"arguments": {"command": "echo hi"}`, `"ok": true`,
		`"result": "hi`,
	} {
		if !strings.Contains(out, want) || len(warned) > 0 {
			t.Errorf("after_tool: %q is not in what the model reads, or it is warned %q:\n%s", want, warned, out)
		}
	}

	d = withHookModules(t, map[string]string{"tests": `{"on_stop":{"text":"tests fail "}}`})
	if out, _ := d.says("done?"); !strings.Contains(out, "A hook does not let this run end yet") ||
		!strings.Contains(out, "[hook tests]\ntests fail {\"output\": \"done?\"}") {
		t.Errorf("on_stop: got %q", out)
	}

	d = withHookModules(t, map[string]string{"guard": `{"on_prompt":{"reject":"no passwords"}}`})
	if _, err := d.answered("the password is x"); err == nil ||
		!strings.Contains(err.Error(), "rejected_by_hook: guard: no passwords") {
		t.Errorf("on_prompt that rejects: got %v", err)
	}
}

// A module that fails keeps nothing from a run but a text, which it may be a guard of.
func TestModulesAsHooksThatFail(t *testing.T) {
	d := withHookModules(t, map[string]string{
		"linter": `{"after_tool":{"fails":"no linter here"},"on_stop":{"fails":"no tests here"}}`,
	})
	out, warned := d.says(echoHi)
	if !strings.Contains(out, "hi") || strings.Contains(out, "[hook") || len(warned) != 2 ||
		!strings.Contains(warned[0], "the hook linter of after_tool failed: ") ||
		!strings.Contains(warned[0], "no linter here") ||
		!strings.Contains(warned[1], "the hook linter of on_stop failed: ") {
		t.Errorf("got %q, warned %q", out, warned)
	}
	d = withHookModules(t, map[string]string{"guard": `{"on_prompt":{"fails":"out of order"}}`})
	if _, err := d.answered("hello"); err == nil || !strings.Contains(err.Error(), "rejected_by_hook: guard: ") ||
		!strings.Contains(err.Error(), "out of order") {
		t.Errorf("got %v", err)
	}
}
