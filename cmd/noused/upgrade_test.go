package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"noused/internal/client"
	"noused/internal/protocol"
)

// formerJournal is a journal as a former version of this program left it.
type formerJournal struct {
	id, title string
	branch    bool // it is called by the first text that is said in it
	text      []byte
	whole     int // bytes, without a torn end
	messages  int
	branched  bool // entries on other branches, or a summary in the place of some
	user      []string
	owed      string // the run that has not ended
	asks      bool
}

// readFormer reads a journal without this program's own reader.
func readFormer(t *testing.T, path string) (j formerJournal) {
	t.Helper()
	var err error
	if j.text, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	j.whole = bytes.LastIndexByte(j.text, '\n') + 1
	for line := range bytes.Lines(j.text[:j.whole]) {
		rec := decode[struct {
			Type string `json:"type"`
			Data struct {
				ID      string `json:"session_id"`
				Parent  string `json:"parent_id"`
				Title   string `json:"title"`
				RunID   string `json:"run_id"`
				Message struct {
					Role string `json:"role"`
					Text string `json:"text"`
				} `json:"message"`
			} `json:"data"`
		}](t, line)
		switch d := rec.Data; rec.Type {
		case "created":
			j.id, j.title, j.branch = d.ID, d.Title, d.Parent != ""
		case "message":
			j.messages++
			if d.Message.Role == "user" {
				j.user = append(j.user, d.Message.Text)
			}
		case "compacted", "leaf_set":
			j.branched = true
		case "run_started":
			j.owed = d.RunID
		case "run_ended":
			j.owed = ""
		case "approval_asked":
			j.asks = true
		case "approval_decided":
			j.asks = false
		}
	}
	return j
}

// Today's daemon goes on with what former ones have left, each session of it: it is
// listed, shown, its run taken up, and prompted, and nothing that was there is
// changed. scripts/old-journals has made them, from the first release on.
func TestJournalsOfFormerVersions(t *testing.T) {
	versions, err := os.ReadDir("testdata/upgrade")
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range versions {
		if version.IsDir() {
			t.Run(version.Name(), func(t *testing.T) { upgrade(t, filepath.Join("testdata/upgrade", version.Name())) })
		}
	}
}

func upgrade(t *testing.T, from string) {
	d := unstarted(t, "noused")
	if err := os.CopyFS(filepath.Join(d.Dir, "state"), os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	paths, _ := filepath.Glob(filepath.Join(d.Dir, "state", "sessions", "*.jsonl"))
	var former []formerJournal
	for _, path := range paths {
		if err := os.Chmod(path, 0o600); err != nil {
			t.Fatal(err)
		}
		former = append(former, readFormer(t, path))
	}
	if len(former) < 2 {
		t.Fatalf("there are %d journals in %s", len(former), from)
	}
	d.Start()
	c, ctx := d.dial(), context.Background()
	all := d.sinceStart(c)
	owed := map[string]bool{} // runs, which end in any order
	for _, j := range former {
		if j.owed == "" {
			continue
		}
		owed[j.owed] = true
		if j.asks {
			d.denyAll(c, j.id)
		}
	}
	for len(owed) > 0 {
		ended := await(t, all, func(ev protocol.Event) bool { _, ok := ev.(protocol.AgentEnd); return ok })
		delete(owed, ended.Where().RunID)
	}
	limit := 1000
	list, err := client.Call(ctx, c, protocol.ListSessions, protocol.ListSessionsParams{Limit: &limit})
	if err != nil || len(list.Sessions) != len(former) {
		t.Errorf("%d sessions are listed, %v; there are %d journals", len(list.Sessions), err, len(former))
	}
	for i, j := range former {
		t.Run(j.title, func(t *testing.T) {
			if !slices.ContainsFunc(list.Sessions, func(s protocol.SessionInfo) bool {
				return s.SessionID == j.id && (s.Title == j.title || j.branch && s.Title != "")
			}) {
				t.Errorf("%s is not listed", j.id)
			}
			j.shown(t, c)
			r, err := client.Call(ctx, c, protocol.Prompt, protocol.PromptParams{
				Scope: protocol.Scope{SessionID: j.id},
				Text:  "and today",
			})
			if err != nil || !strings.Contains(r.Result.Output, "and today") {
				t.Errorf("a prompt: %+v, %v", r.Result, err)
			}
			now, err := os.ReadFile(paths[i])
			if err != nil || !bytes.HasPrefix(now, j.text[:j.whole]) {
				t.Errorf("what was there is changed: %v", err)
			}
			damaged, err := os.ReadFile(paths[i] + ".damaged")
			if torn := j.text[j.whole:]; (err == nil) != (len(torn) > 0) || !bytes.Contains(damaged, torn) {
				t.Errorf("the torn end %q is kept as %q, %v", torn, damaged, err)
			}
		})
	}
}

// sinceStart are all events that the daemon has announced.
func (d *daemon) sinceStart(c *client.Client) *client.Events {
	d.t.Helper()
	s, err := client.Call(context.Background(), c, protocol.GetState, protocol.GetStateParams{})
	if err != nil {
		d.t.Fatal(err)
	}
	return d.events(protocol.SubscribeParams{Epoch: s.Daemon.Epoch, After: new(uint64)})
}

// denyAll answers the questions of a session.
func (d *daemon) denyAll(c *client.Client, session string) {
	d.t.Helper()
	s, err := client.Call(context.Background(), c, protocol.GetState,
		protocol.GetStateParams{Scope: protocol.Scope{SessionID: session}})
	if err != nil {
		d.t.Fatal(err)
	}
	for _, q := range s.PendingApprovals {
		if q.SessionID != session {
			continue
		}
		if _, err := client.Call(context.Background(), c, protocol.Approve, protocol.ApproveParams{
			ApprovalID: q.ApprovalID,
			Option:     "deny",
		}); err != nil {
			d.t.Error(err)
		}
		return
	}
	d.t.Errorf("the question of %s is forgotten", session)
}

// shown checks that all is shown that the journal has.
func (j formerJournal) shown(t *testing.T, c *client.Client) {
	t.Helper()
	got, err := client.Call(context.Background(), c, protocol.GetMessages,
		protocol.GetMessagesParams{Scope: protocol.Scope{SessionID: j.id}})
	if err != nil {
		t.Fatal(err)
	}
	var user []string
	for _, entry := range got.Messages {
		m := decode[protocol.Message](t, entry)
		if m.Role == "user" {
			user = append(user, m.Text)
		}
		for _, a := range m.Attachments {
			if _, err := os.Stat(a.Path); err != nil {
				t.Errorf("its image: %v", err)
			}
		}
	}
	switch {
	case j.branched && len(user) == 0, !j.branched && !slices.Equal(user, j.user):
		t.Errorf("the user has said %q, and the journal has %q", user, j.user)
	case !j.branched && len(got.Messages) < j.messages:
		t.Errorf("%d messages are shown, and the journal has %d", len(got.Messages), j.messages)
	}
}

// A newer daemon may have written what this one does not know: fields are ignored,
// and a journal with records or of a version that it does not know is not written to.
// Other sessions are not affected.
func TestJournalsOfANewerVersion(t *testing.T) {
	d := unstarted(t, "noused")
	const at = `"v":1,"at":"2026-01-02T03:04:05Z","type":`
	journals := map[string]string{
		"ses-fields": `{` + at +
			`"created","data":{"session_id":"ses-fields","title":"fields","colour":{"is":"red"}},"more":[1]}` + "\n" +
			`{` + at + `"message","data":{"id":"msg-1","message":{"role":"user","text":"hello","mood":7},"later":null}}` + "\n",
		"ses-records": `{` + at + `"created","data":{"session_id":"ses-records","title":"records"}}` + "\n" +
			`{` + at + `"dream","data":{"of":"sheep"}}` + "\n" +
			`{` + at + `"message","data":{"id":"msg-1","message":{"role":"user","text":"hello"}}}` + "\n",
		"ses-version": `{"v":2,"at":"2026-01-02T03:04:05Z","type":"created","data":{"session_id":"ses-version","title":"version"}}` + "\n",
	}
	for id, text := range journals {
		d.write(filepath.Join("state", "sessions", id+".jsonl"), text, 0o600)
	}
	d.Start()
	c := d.dial()
	for id, text := range journals {
		r, err := client.Call(context.Background(), c, protocol.Prompt,
			protocol.PromptParams{Scope: protocol.Scope{SessionID: id}, Text: "and today"})
		now, _ := os.ReadFile(filepath.Join(d.Dir, "state", "sessions", id+".jsonl"))
		if id != "ses-fields" { // whatever the daemon does not know may be what it must not do
			if err == nil || !strings.Contains(err.Error(), "session_error") || string(now) != text {
				t.Errorf("%s: got %v, and the journal %q", id, err, now)
			}
			continue
		}
		if err != nil || !strings.Contains(r.Result.Output, "and today") || !bytes.HasPrefix(now, []byte(text)) {
			t.Errorf("%s: got %+v, %v, and the journal %q", id, r.Result, err, now)
		}
		m, err := client.Call(context.Background(), c, protocol.GetMessages,
			protocol.GetMessagesParams{Scope: protocol.Scope{SessionID: id}})
		if err != nil || len(m.Messages) != 3 || decode[protocol.Message](t, m.Messages[0]).Text != "hello" {
			t.Errorf("%s: %d messages are shown: %v", id, len(m.Messages), err)
		}
	}
}
