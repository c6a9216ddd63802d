package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"noused/internal/protocol"
)

// Every type of record, as the frozen journal of internal/session has them all,
// has a row in docs/journal.md.
func TestJournalDocTypes(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "journal.md"))
	if err != nil {
		t.Fatal(err)
	}
	frozen, err := os.ReadFile(filepath.Join("..", "..", "internal", "session", "testdata", "v1.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	types := regexp.MustCompile(`(?m)^{"v":1,"at":"[^"]*","type":"([^"]*)"`).FindAllSubmatch(frozen, -1)
	if len(types) < 17 {
		t.Fatalf("got %d records, want one of each type", len(types))
	}
	for _, m := range types {
		if !strings.Contains(string(doc), "\n| `"+string(m[1])+"` | ") {
			t.Errorf("docs/journal.md has no row for the type %s", m[1])
		}
	}
}

// The lines for jq in docs/journal.md do what is said above them, on what a
// daemon has written.
func TestJournalDocLines(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "journal.md"))
	if err != nil {
		t.Fatal(err)
	}
	setup := regexp.MustCompile("(?s)```sh\n(.*?)```").FindSubmatch(doc)
	blocks := regexp.MustCompile("(?s)([^\n]*)\n\n```jq\n(.*?)\n```").FindAllSubmatch(doc, -1)
	wanted := []struct{ about, want string }{
		{"All sessions", "Z\tfirst words\n"},
		{"A session as it was written", "user: !fail.now\n"},
		{"The conversation that the next prompt", "user: first words\nassistant: first words\nuser: !lamp.light"},
		{"Every run", "\tcompleted\t\n"},
		{"Runs that have not ended", "run-"},
		{"Every tool call", `["lamp.light",{"where":"hall"}]` + "\n"},
		{"Calls that failed", "fail.now\t"},
		{"Tokens, by model", " in, "},
		{"The session's state", "{\n  \"lamps\": {\n    \"hall\": \"lit\"\n  }\n}\n"},
		{"Which session was branched", " from ses-"},
		{"How long tools took", "\tlamp\tlight\tok\n"},
		{"Lines that are not JSON", "sessions/ses-0.jsonl: rubbish\n"},
	}
	if len(setup) == 0 || len(blocks) != len(wanted) {
		t.Fatalf("docs/journal.md has %d lines for jq, %d are tested here", len(blocks), len(wanted))
	}
	if _, err := exec.LookPath("jq"); err != nil {
		t.Skip("jq is not installed")
	}

	d := journalOf(t)
	for i, b := range blocks {
		about, line := string(b[1]), string(b[2])
		if !strings.HasPrefix(about, wanted[i].about) {
			t.Errorf("line %d is about %q, want %q", i+1, about, wanted[i].about)
		}
		if wanted[i].want == "sessions/ses-0.jsonl: rubbish\n" {
			d.write("noused/sessions/ses-0.jsonl", "rubbish\n{}\n", 0o600)
		}
		cmd := exec.Command("sh", "-e", "-c", string(setup[1])+line)
		cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+d.Dir)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), wanted[i].want) {
			t.Errorf("%s\n%s\ngot %v, %s\nwant %q in it", about, line, err, out, wanted[i].want)
		}
	}
}

// journalOf returns a daemon that has been killed in the middle of a run, after
// a life with something of everything in it; its state is in noused.
func journalOf(t *testing.T) *daemon {
	t.Helper()
	d := unstarted(t, "noused")
	if err := os.Mkdir(filepath.Join(d.Dir, "noused"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(d.Dir, "noused"), filepath.Join(d.Dir, "state")); err != nil {
		t.Fatal(err)
	}
	d.write("tools/lamp.json",
		`{"name":"lamp","kind":"tool","protocol":"narratoria","capabilities":[],"operations":{"light":{}},
		"transport":{"type":"stdio","command":["./lamp"]}}`, 0o600)
	d.write("tools/lamp", `#!/bin/sh
cat >/dev/null
echo '{"version":"0","type":"state_patch","patch":{"lamps":{"hall":"lit","attic":"dark"},"mood":"low"}}'
echo '{"version":"0","type":"state_patch","patch":{"lamps":{"attic":null},"mood":null}}'
echo '{"version":"0","type":"done","ok":true,"summary":"it is lit"}'
`, 0o700)
	d.write("tools/fail.json",
		`{"name":"fail","kind":"tool","protocol":"narratoria","capabilities":[],"operations":{"now":{}},
		"transport":{"type":"stdio","command":["./fail"]}}`, 0o600)
	d.write("tools/fail", `#!/bin/sh
cat >/dev/null
echo '{"version":"0","type":"error","errorCode":"OUT_OF_OIL","message":"no oil"}'
echo '{"version":"0","type":"done","ok":false}'
`, 0o700)
	d.Start()
	ask := func(line string) response {
		t.Helper()
		r := d.commands().request(line)
		if !r.OK {
			t.Fatalf("%s: %v", line, r.Error)
		}
		return r
	}
	ask(`{"id":"1","type":"prompt","payload":{"text":"first words"}}`)
	first := into[protocol.State](t, ask(`{"id":"2","type":"get_state"}`)).SessionID
	ask(`{"id":"3","type":"branch_session","payload":{"session_id":"` + first + `"}}`)
	ask(`{"id":"4","type":"prompt","payload":{"text":"!lamp.light {\"where\":\"hall\"}"}}`)
	ask(`{"id":"5","type":"prompt","payload":{"text":"!fail.now"}}`)
	d.Stop()
	d.write("config.toml", "[model]\ndelay = \"1h\"\n", 0o600)
	d.Args = []string{"--config", filepath.Join(d.Dir, "config.toml")}
	d.Start()
	ask(`{"id":"6","type":"prompt","payload":{"text":"a b c","wait":false}}`)
	d.Kill()
	return d
}
