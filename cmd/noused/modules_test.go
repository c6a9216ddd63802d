package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
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
