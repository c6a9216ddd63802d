package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"noused/internal/client"
	"noused/internal/protocol"
)

// called is a text that has the offline model call a tool.
func called(tool string, args map[string]any) string {
	text, err := json.Marshal(args)
	if err != nil {
		panic(err)
	}
	return "!" + tool + " " + string(text)
}

// ends sends a prompt that calls a tool, and waits for the end of that call.
func (d *daemon) ends(c *client.Client, session, text string) protocol.ToolEnd {
	d.t.Helper()
	events := d.events(protocol.SubscribeParams{})
	if _, err := client.Call(context.Background(), c, protocol.Prompt, protocol.PromptParams{
		Scope: protocol.Scope{SessionID: session}, Text: text, Approvals: protocol.ApprovalsDeny,
	}); err != nil {
		d.t.Fatal(err)
	}
	return comes[protocol.ToolEnd](d.t, events)
}

// A refusal by the sandbox says that it is one and what to do, and a file outside the
// folder is changed once the user has said yes.
func TestAFileOutsideTheSandboxAsks(t *testing.T) {
	d := newDaemon(t)
	c := d.dial()
	elsewhere := t.TempDir()
	file := filepath.Join(elsewhere, "notes")
	if err := os.WriteFile(file, []byte("one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	session := d.session(d.Dir)
	if got := d.extension(session, "bash", `{"command":"touch `+file+`2"}`); got.OK {
		t.Skip("no sandbox here")
	} else if !strings.Contains(got.Result, "the sandbox may have refused this") {
		t.Errorf("a command that the sandbox refuses: %q", got.Result)
	}
	if got := d.extension(session, "bash", `{"command":"false"}`); strings.Contains(got.Result, "sandbox") {
		t.Errorf("a command that failed by itself: %q", got.Result)
	}
	edit := map[string]any{"path": file, "old_text": "one", "new_text": "two"}
	write := map[string]any{"path": filepath.Join(elsewhere, "new", "file"), "content": "x"}
	for tool, args := range map[string]map[string]any{"edit": edit, "write": write} {
		text, _ := json.Marshal(args)
		got := d.extension(session, tool, string(text))
		if got.OK || !strings.Contains(got.Result, "the sandbox does not let tools write "+args["path"].(string)) ||
			!strings.Contains(got.Result, "outside_sandbox") {
			t.Errorf("%s outside the folder: %+v", tool, got)
		}
		args["outside_sandbox"] = true
		text, _ = json.Marshal(args)
		if got := d.extension(session, tool, string(text)); got.OK || got.Error.Code != "bad_request" {
			t.Errorf("%s without a reason: %+v", tool, got)
		}
		args["reason"] = "the notes are there"
		asked := d.asks(c, session, called(tool, args))
		if asked.Rule != "ask: "+tool+" outside the sandbox" || asked.Reason != "the notes are there" ||
			len(asked.Options) != 2 {
			t.Errorf("%s asks %+v", tool, asked)
		}
		if end := d.answers(c, asked, "deny"); end.OK {
			t.Errorf("%s: denied, and done", tool)
		}
		if end := d.answers(c, d.asks(c, session, called(tool, args)), "once"); !end.OK {
			t.Errorf("%s: allowed, and failed: %s", tool, end.Result)
		}
	}
	if got, _ := os.ReadFile(file); string(got) != "two\n" {
		t.Errorf("the edited file has %q", got)
	}
	if got, _ := os.ReadFile(write["path"].(string)); string(got) != "x" {
		t.Errorf("the written file has %q", got)
	}
}

// Where a rule asks about edits, one answer is for all changes of files in the folder,
// in this session, over a restart, and for nothing outside of it.
func TestEditsInThisFolderForThisSession(t *testing.T) {
	d := newDaemon(t)
	text := ""
	for _, tool := range []string{"edit", "write"} {
		text += "[[policy.rule]]\ntool = \"" + tool + "\"\ndecision = \"ask\"\npath = [\"**\"]\n"
	}
	text += "[[policy.rule]]\ntool = \"write\"\ndecision = \"deny\"\npath = [\"release/**\"]\n"
	d.write("noused/rules.toml", text, 0o600)
	d.Stop()
	d.Start()
	c := d.dial()
	one, other := d.session(d.Dir), d.session(d.Dir)
	write := func(path string) string { return called("write", map[string]any{"path": path, "content": "x\n"}) }
	asked := d.asks(c, one, write("a"))
	if len(asked.Options) != 3 || asked.Options[1].ID != "session" || asked.Options[1].Pattern != "edits in this folder" {
		t.Fatalf("asks %+v", asked.Options)
	}
	if end := d.answers(c, asked, "session"); !end.OK {
		t.Fatalf("allowed, and failed: %s", end.Result)
	}
	d.Stop()
	d.Start()
	c = d.dial()
	for _, call := range []string{
		write("b/c"), called("edit", map[string]any{"path": "a", "old_text": "x", "new_text": "y"}),
	} {
		if end := d.ends(c, one, call); !end.OK {
			t.Errorf("%s after the answer: %s", call, end.Result)
		}
	}
	if end := d.ends(c, one, write("release/x")); end.OK {
		t.Error("the answer stands over a rule that denies")
	}
	d.answers(c, d.asks(c, other, write("d")), "deny") // another session still asks
	outside := map[string]any{"path": "e", "content": "x", "outside_sandbox": true, "reason": "r"}
	d.answers(c, d.asks(c, one, called("write", outside)), "deny") // outside the sandbox, too
}
