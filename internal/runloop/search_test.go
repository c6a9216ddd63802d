package runloop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"noused/internal/model"
	"noused/internal/model/offline"
	"noused/internal/protocol"
	"noused/internal/session"
)

func (f *fixture) find(text string, limit int) protocol.SearchResults {
	f.t.Helper()
	a, err := f.searchSessions(context.Background(), protocol.SearchSessionsParams{Text: text, Limit: &limit})
	if err != nil {
		f.t.Fatal(err)
	}
	r, err := a.Later(context.Background())
	if err != nil {
		f.t.Fatal(err)
	}
	return r
}

// told are the matches without what is new in every run.
func told(r protocol.SearchResults) []string {
	out := []string{}
	for _, m := range r.Matches {
		out = append(out, m.SessionID+" "+m.EntryID+" "+m.Role+": "+m.Snippet)
	}
	return out
}

// put makes a closed session of some entries.
func (f *fixture) put(id string, facts ...session.Fact) {
	f.t.Helper()
	records := []session.Record{{At: time.Unix(1, 0), Fact: session.Created{SessionID: id}}}
	for i, fact := range facts {
		records = append(records, session.Record{At: time.Unix(int64(2+i), 0), Fact: fact})
	}
	_, j, err := f.store.Create(id, records)
	if err != nil {
		f.t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		f.t.Fatal(err)
	}
}

func said(id, parent string, role model.Role, text string) session.MessageAdded {
	return session.MessageAdded{
		ID: id, ParentID: parent, RunID: "run-1", TurnKind: "prompt",
		Message: model.Message{Role: role, Text: text},
	}
}

func TestSearchFindsWhatWasSaidOnEveryBranch(t *testing.T) {
	f := newFixture(t, t.TempDir(), offline.Model{}, echoTool, newRecorder())
	asked := said("m1", "", model.User, "Where is the Lantern?\nsecond")
	asked.InputID = "in-1" // else the hub may find that it owes the session a run
	f.put(
		"ses-1", session.Input{InputID: "in-1", Kind: "prompt", Text: "Where is the Lantern?\nsecond", RunID: "run-1"}, asked,
		said("m2", "m1", model.Assistant, "first line\n  here: a LANTERN, and another lantern \r\nlast line"),
		said("m3", "m1", model.Assistant, `C:\lantern "quoted"`+"\ttab"),
		session.Compacted{ID: "c1", ParentID: "m3", Summary: "of lanterns", FirstKeptEntryID: "m3"},
		session.MessageAdded{
			ID: "m4", ParentID: "c1", RunID: "run-1", TurnKind: "prompt",
			Message: model.Message{
				Role:      model.Assistant,
				ToolCalls: []model.ToolCall{{ID: "call", Name: "lantern", Arguments: []byte(`{"lantern":1}`)}},
			},
		},
	)
	f.put("ses-2", said("m1", "", model.Tool, "ФОНАРЬ и Straße 100\u212a"))
	for _, c := range []struct {
		text string
		want []string
	}{
		{"lantern", []string{
			"ses-1 m1 user: Where is the Lantern?", "ses-1 m2 assistant: here: a LANTERN, and another lantern",
			"ses-1 m3 assistant: C:\\lantern \"quoted\"\ttab", "ses-1 c1 compaction: of lanterns",
		}},
		{"LANTERN?", []string{"ses-1 m1 user: Where is the Lantern?"}},
		{`\LANTERN "Q`, []string{"ses-1 m3 assistant: C:\\lantern \"quoted\"\ttab"}},
		{"\nLAST", []string{"ses-1 m2 assistant: here: a LANTERN, and another lantern"}},
		{"n", []string{
			"ses-1 m1 user: Where is the Lantern?", "ses-1 m2 assistant: first line",
			"ses-1 m3 assistant: C:\\lantern \"quoted\"\ttab", "ses-1 c1 compaction: of lanterns",
		}},
		{"фонарь", []string{"ses-2 m1 tool: ФОНАРЬ и Straße 100\u212a"}},
		{"STRAßE", []string{"ses-2 m1 tool: ФОНАРЬ и Straße 100\u212a"}},
		{"100k", []string{}}, // it is the sign for Kelvin
		{"prompt", []string{}},
		{"run-1", []string{}},
		{`"text":`, []string{}},
		{"lan.ern", []string{}},
	} {
		got := f.find(c.text, 50)
		if diff := cmp.Diff(c.want, told(got)); diff != "" || got.Truncated {
			t.Errorf("%q: truncated %v, (-want +got):\n%s", c.text, got.Truncated, diff)
		}
	}
	first := f.find("lantern", 1).Matches[0]
	want := protocol.SearchMatch{
		SessionID: "ses-1", Title: "Where is the Lantern?", EntryID: "m1", Role: "user", Snippet: "Where is the Lantern?",
		CreatedAt: time.Unix(3, 0).UTC(),
	}
	if diff := cmp.Diff(want, first); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSearchIsNewestFirstAndSaysWhatItLeftOut(t *testing.T) {
	f := newFixture(t, t.TempDir(), offline.Model{}, echoTool, newRecorder())
	var want []string
	for i := range 150 {
		id := fmt.Sprintf("ses-%03d", i)
		f.put(id, said("m1", "", model.User, "needle"), said("m2", "m1", model.Assistant, "needle"))
		want = append([]string{id + " m1 user: needle", id + " m2 assistant: needle"}, want...)
	}
	for _, limit := range []int{1, 2, 3, 50, 299, 300, 1000} {
		got := f.find("needle", limit)
		kept := want[:min(limit, len(want))]
		if diff := cmp.Diff(kept, told(got)); diff != "" || got.Truncated != (limit < len(want)) {
			t.Errorf("limit %d: truncated %v, (-want +got):\n%s", limit, got.Truncated, diff)
		}
	}
	r, err := f.search(context.Background(), protocol.SearchSessionsParams{Text: "needle"})
	if err != nil || len(r.Matches) != 50 || !r.Truncated {
		t.Errorf("without a limit: got %d matches, truncated %v, error %v", len(r.Matches), r.Truncated, err)
	}
}

func TestSearchFindsWhatWasJustAnnounced(t *testing.T) {
	events := newRecorder()
	f := newFixture(t, t.TempDir(), offline.Model{}, echoTool, events)
	id := f.session()
	a, err := f.start(id, "a fresh needle")
	if err != nil {
		t.Fatal(err)
	}
	events.wait(a.RunID)
	got := f.find("Fresh Needle", 50)
	if len(got.Matches) != 2 || got.Matches[0].SessionID != id || got.Matches[0].Role != "user" ||
		got.Matches[1].Role != "assistant" {
		t.Errorf("got %+v, want the prompt and its answer", got.Matches)
	}
}

func TestSearchGetsOverDamage(t *testing.T) {
	f := newFixture(t, t.TempDir(), offline.Model{}, echoTool, newRecorder())
	f.put("ses-1", said("m1", "", model.User, "needle"))
	file := filepath.Join(f.dir, "sessions", "ses-1.jsonl")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	last := text[bytes.LastIndexByte(text[:len(text)-1], '\n')+1:]
	second := bytes.Replace(last, []byte(`"m1"`), []byte(`"m2"`), 1)
	for _, more := range [][]byte{
		[]byte(`{"v":1,"type":"message","data":"needle` + "\xff\n"),
		{'\n'},
		[]byte("needle\n"),
		// too long to be looked into
		[]byte(`{"v":1,"type":"message","data":{"message":{"text":"` + strings.Repeat("needle", 12<<20) + "\n"),
		second, bytes.TrimSuffix(last, []byte{'\n'}),
	} {
		text = append(text, more...)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"ses-0.jsonl": "", "notes.txt": "needle\n",
		"ses-1.jsonl.damaged": string(last),
	} {
		if err := os.WriteFile(filepath.Join(f.dir, "sessions", name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"ses-1 m1 user: needle", "ses-1 m2 user: needle"}, told(f.find("needle", 50))); diff !=
		"" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n := f.faults.Load(); n > 0 {
		t.Errorf("%d faults were reported", n)
	}
}

func TestSearchEndsWithItsClient(t *testing.T) {
	f := newFixture(t, t.TempDir(), offline.Model{}, echoTool, newRecorder())
	f.put("ses-1", said("m1", "", model.User, "needle"))
	left := errors.New("the client left")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(left)
	if _, err := f.search(ctx, protocol.SearchSessionsParams{Text: "needle"}); !errors.Is(err, left) {
		t.Errorf("got error %v, want %v", err, left)
	}
	f.searching <- struct{}{} // somebody else searches
	if _, err := f.search(ctx, protocol.SearchSessionsParams{Text: "needle"}); !errors.Is(err, left) {
		t.Errorf("while another search runs: got error %v, want %v", err, left)
	}
	<-f.searching
}

func TestSnippets(t *testing.T) {
	long := strings.Repeat("ä", 300)
	for _, c := range []struct{ text, find, want string }{
		{"x", "x", "x"},
		{"  a x b\t\r\n", "x", "a x b"},
		{"before\na x b\nafter", "x", "a x b"},
		{strings.Repeat("b", 80) + "x" + strings.Repeat("c", 79), "x", strings.Repeat("b", 80) + "x" +
			strings.Repeat("c", 79)},
		{"x" + long, "x", "x" + strings.Repeat("ä", 158) + "…"},
		{long + "x", "x", "…" + strings.Repeat("ä", 158) + "x"},
		{long + "x" + long, "x", "…" + strings.Repeat("ä", 39) + "x" + strings.Repeat("ä", 118) + "…"},
		{"ab" + strings.Repeat("x", 200), strings.Repeat("x", 200), "ab" + strings.Repeat("x", 157) + "…"},
	} {
		got := around(c.text, strings.Index(c.text, c.find))
		if got != c.want {
			t.Errorf("%.20q…: got %q, want %q", c.text, got, c.want)
		}
		if n := utf8.RuneCountInString(got); n > maxSnippet || !utf8.ValidString(got) {
			t.Errorf("%.20q…: got %d characters, valid %v", c.text, n, utf8.ValidString(got))
		}
	}
}

// BenchmarkSearch reads 10,000 sessions of 20 messages, of which none matches:
// no search takes longer.
func BenchmarkSearch(b *testing.B) {
	dir := b.TempDir()
	store, err := session.Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	records := []session.Record{{At: time.Now(), Fact: session.Created{SessionID: "ses-00000"}}}
	parent := ""
	add := func(fact session.Fact) {
		records = append(records, session.Record{At: time.Now(), Fact: fact})
	}
	for turn := range 10 {
		run := fmt.Sprintf("run-01234567-89ab-cdef-0123-%012d", turn)
		text := strings.Repeat("the torch went out and the cellar was dark again. ", 6)
		add(session.Input{InputID: "in-" + run, Kind: "prompt", Command: "prompt", Text: text, RunID: run})
		add(session.RunStarted{RunID: run})
		add(session.TurnStarted{RunID: run, Turn: 1, Kind: "prompt", InputIDs: []string{"in-" + run}})
		for _, role := range []model.Role{model.User, model.Assistant} {
			id := "msg-" + string(role) + run
			add(session.MessageAdded{
				ID: id, ParentID: parent, RunID: run, TurnKind: "prompt",
				Message: model.Message{Role: role, Text: text},
			})
			parent = id
		}
		add(session.TurnEnded{RunID: run, Turn: 1, StopReason: "end"})
		add(session.RunEnded{RunID: run, StopReason: "completed"})
	}
	_, j, err := store.Create("ses-00000", records)
	if err != nil {
		b.Fatal(err)
	}
	_ = j.Close()
	text, err := os.ReadFile(filepath.Join(dir, "sessions", "ses-00000.jsonl"))
	if err != nil {
		b.Fatal(err)
	}
	for i := 1; i < 10_000; i++ {
		id := fmt.Sprintf("ses-%05d", i)
		if err := os.WriteFile(filepath.Join(dir, "sessions", id+".jsonl"), bytes.Replace(text, []byte("ses-00000"),
			[]byte(id), 1), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	h := NewHub(Options{Store: store, Now: time.Now})
	b.SetBytes(int64(len(text)) * 10_000)
	for b.Loop() {
		r, err := h.search(b.Context(), protocol.SearchSessionsParams{Text: "a lantern"})
		if err != nil || len(r.Matches) > 0 {
			b.Fatal(r, err)
		}
	}
}
