package session

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"noused/internal/model"
)

// sameFold compares all that two folds came to, but for where their texts are.
var sameFold = cmp.Options{
	cmp.AllowUnexported(State{}, path{}, document{}, value{}), cmpopts.IgnoreFields(path{}, "lent"),
	cmp.Transformer("ended", func(e *Ended) endedRun { return endedRun{e.RunEnded, e.Turns, e.Usage, e.Took, e.after} }),
	cmpopts.IgnoreFields(State{}, "shared", "held", "heldBytes", "entries", "found", "endedAt", "foundEnded"),
	cmpopts.IgnoreFields(path{}, "shed", "history"),
	cmp.Comparer(func(a, b []byte) bool { // who wrote a journal by hand may have put spaces there, or left arguments out
		v, w := jsontext.Value(a).Clone(), jsontext.Value(b).Clone()
		_, _ = v.Compact(), w.Compact()
		return bytes.Equal(v, w) || string(v)+string(w) == "null"
	}),
	cmp.Transformer("entry", func(e *Entry) (v indexedEntry) {
		if e != nil {
			v = indexedEntry{
				e.ID, e.RunID, e.Parent(), string(e.Role), e.Snippet, "", e.n, e.bytes, e.size, e.tokens, e.counted, e.at,
				[]bool{e.images, e.blocks, e.calls, e.text, e.says, e.broken, e.opens, e.missing},
				"",
			}
			if e.child != nil {
				v.Child = *e.child
			}
			if e.kept != nil {
				v.Kept = e.kept.ID
			}
		}
		return v
	}),
}

type endedRun struct {
	RunEnded
	Turns int
	Usage model.Usage
	Took  time.Duration
	After int
}

type indexedEntry struct {
	ID, RunID, Parent, Role, Snippet, Kept string
	N, Bytes, Size                         int
	Tokens, Counted, At                    int64
	Is                                     []bool
	Child                                  string
}

// indexing is a store that keeps an index of every journal.
func indexing(t testing.TB) *Store {
	t.Helper()
	store, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	store.leastIndexed = 0
	return store
}

// writeJournal gives a session a journal with that text.
func writeJournal(t rapid.TB, store *Store, text []byte) {
	t.Helper()
	if err := os.WriteFile(store.path("ses-1"), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// indexed has a closed session indexed by looking at it, and reports whether it is.
func indexed(t rapid.TB, store *Store) bool {
	t.Helper()
	_ = os.Remove(indexPath(store.path("ses-1")))
	_, _ = store.Peek(context.Background(), "ses-1")
	store.indexing.Wait()
	_, err := os.Stat(indexPath(store.path("ses-1")))
	return err == nil
}

// read folds the session's journal, from its index on where it has one.
func read(t rapid.TB, store *Store, last int, warm bool) (refolded, error) {
	t.Helper()
	f, err := os.Open(store.path("ses-1"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	return refold(context.Background(), f, last, warm)
}

// wantFold fails unless what was read is what the journal alone says.
func wantFold(t rapid.TB, what string, store *Store, got refolded, err error) {
	t.Helper()
	text, e := os.ReadFile(store.path("ses-1"))
	if e != nil {
		t.Fatal(e)
	}
	want := refolded{state: NewState()}
	var failed error
	want.at, want.problems, failed = foldFrom(bytes.NewReader(text), store.path("ses-1"), want.state, place{})
	if fmt.Sprint(err) != fmt.Sprint(failed) || got.at.size != want.at.size || got.at.lines != want.at.lines ||
		fmt.Sprint(got.problems) != fmt.Sprint(want.problems) {
		t.Fatalf("%s: got %+v, %v, %v\nwant %+v, %v, %v", what, got.at, got.problems, err, want.at, want.problems, failed)
	}
	if fmt.Sprint(got.state.ReadOnly) != fmt.Sprint(want.state.ReadOnly) {
		t.Fatalf("%s: got %v, want %v", what, got.state.ReadOnly, want.state.ReadOnly)
	}
	if diff := cmp.Diff(want.state, got.state, sameFold, cmpopts.IgnoreFields(State{}, "ReadOnly")); diff != "" {
		t.Fatalf("%s: -fold +index:\n%s", what, diff)
	}
	if diff := cmp.Diff(historyOfAll(t, store, want.state), historyOfAll(t, store, got.state),
		cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("%s: what models read, -fold +index:\n%s", what, diff)
	}
}

// historyOfAll is what a model reads, from wherever it is.
func historyOfAll(t rapid.TB, store *Store, s *State) []model.Message {
	t.Helper()
	messages, err := store.Messages(context.Background(), "ses-1", s.Conversation(), 0)
	if err != nil {
		t.Fatal(err)
	}
	return messages
}

// damage are ends of journals that are not as they should be.
var damage = map[string]string{
	"whole": "", "torn": `{"v":1,"at":"2026-`, "noise": "noise\n",
	"newer":      `{"v":2,"at":"2026-01-01T00:00:00Z","type":"x","data":{}}` + "\n",
	"unknown":    `{"v":1,"at":"2026-01-01T00:00:00Z","type":"unheard_of","data":{}}` + "\n",
	"no parent":  `{"v":1,"at":"2026-01-01T00:00:00Z","type":"message","data":{"id":"zz","parent_id":"gone","run_id":"","turn_kind":"","message":{"role":"user","text":"x"}}}` + "\n",
	"a copy":     `{"v":1,"at":"2026-01-01T00:00:00Z","type":"message","data":{"id":"m1","run_id":"","turn_kind":"","message":{"role":"user","text":"x"}}}` + "\n",
	"a reopened": `{"v":1,"at":"2026-01-01T00:00:00Z","type":"run_started","data":{"run_id":"run-1"}}` + "\n",
}

// Wherever a journal is cut into what its index is of and what came then, and whatever
// came then, the session is the one that the journal alone reports.
func TestAnIndexAndTheRestAreTheFold(t *testing.T) {
	for name, records := range map[string][]Record{"life": life(), "long": longLife(true)[:6]} {
		store := indexing(t)
		for n := 1; n <= len(records); n++ {
			writeJournal(t, store, lines(t, records[:n]))
			if !indexed(t, store) {
				t.Fatalf("%s: %d records have no index", name, n)
			}
			for _, warm := range []bool{false, true} {
				r, err := read(t, store, 0, warm)
				if !r.indexed || warm && r.state.path.shed {
					t.Fatalf("%s: after %d records: indexed %t, texts left to the journal %t", name, n, r.indexed, r.state.path.shed)
				}
				wantFold(t, fmt.Sprintf("%s: %d records", name, n), store, r, err)
			}
			kinds := slices.Sorted(maps.Keys(damage))
			for _, what := range []string{"whole", kinds[n%len(kinds)]} {
				writeJournal(t, store, append(lines(t, records), damage[what]...))
				r, err := read(t, store, 0, n%2 == 0)
				if r.indexed && what != "whole" {
					t.Fatalf("%s: the index is taken for one of all", what)
				}
				wantFold(t, fmt.Sprintf("%s: %d of %d records, %s", name, n, len(records), what), store, r, err)
			}
		}
	}
}

// randomRecords are those of a session that a daemon could have written, about as many as
// are drawn.
func randomRecords(t *rapid.T, most int) (records []Record) {
	s := NewState()
	at := t0
	add := func(f Fact) {
		at = at.Add(time.Duration(rapid.IntRange(0, 1e9).Draw(t, "ns")))
		if r := (Record{at, f}); s.Apply(r) == nil {
			records = append(records, r)
		}
	}
	text := rapid.SampledFrom([]string{"", "a", "two\nlines", "é \"quoted\"\t", strings.Repeat("long ", 300)})
	pick := func(name string, n int) int { return rapid.IntRange(0, n-1).Draw(t, name) }
	entry := func() string {
		if len(s.order) == 0 || pick("leaf", 4) > 0 {
			return s.Leaf
		}
		return s.order[pick("entry", len(s.order))].ID
	}
	run := func() string {
		if s.Run != nil && pick("run", 8) > 0 {
			return s.Run.ID
		}
		return fmt.Sprint("run-", pick("any run", 8))
	}
	usage := func() *model.Usage {
		if pick("used", 2) == 0 {
			return nil
		}
		return &model.Usage{
			InputTokens: int64(pick("in", 1<<40)), OutputTokens: int64(pick("out", 99)),
			Cost: int64(pick("cost", 9)),
		}
	}
	id := 0
	next := func(prefix string) string { id++; return fmt.Sprint(prefix, id) }
	add(Created{SessionID: "ses-1", Title: text.Draw(t, "title")})
	shown := life()[1:]
	for range rapid.IntRange(0, most).Draw(t, "records") {
		switch pick("fact", 12) {
		case 0:
			add(RunStarted{RunID: run()})
		case 1:
			end := RunEnded{RunID: run(), StopReason: "completed", Error: text.Draw(t, "error"), Unread: pick("unread", 2) == 0}
			if end.Children = pick("children", 3); end.Children > 0 {
				end.Spent = usage()
			}
			add(end)
		case 2:
			add(TurnStarted{RunID: run(), Turn: pick("turn", 9), Kind: "prompt", InputIDs: []string{"x"}})
		case 3:
			add(Compacted{
				ID: next("c"), ParentID: entry(), Summary: text.Draw(t, "summary"), FirstKeptEntryID: entry(),
				FixedTokens: int64(pick("fixed", 99)), RunID: run(), Usage: usage(),
			})
		case 4:
			add(LeafSet{LeafID: entry()})
		case 5:
			add(Input{
				InputID: next("in"), Kind: "steer", Text: text.Draw(t, "text"), RunID: run(),
				Key: fmt.Sprint("k", pick("key", 4)),
			})
		case 6:
			add(shown[pick("shown", len(shown))].Fact)
		case 7:
			add(Patched{Patch: []byte(rapid.SampledFrom([]string{
				`{}`, `{"a":{"b":1}}`, `{"a":null}`, `{"c":[null,{"d":null}]}`,
				`{"a":{"x":{}}}`,
			}).Draw(t, "patch"))})
		default:
			m := model.Message{
				Role: rapid.SampledFrom([]model.Role{model.User, model.Assistant, model.Tool}).Draw(t, "role"),
				Text: text.Draw(t, "said"),
			}
			if m.Role == model.Assistant && pick("calls", 3) == 0 {
				m.ToolCalls = []model.ToolCall{{ID: next("call"), Name: "t.x", Arguments: []byte(`{}`)}}
			}
			if pick("image", 9) == 0 {
				m.Attachments = []model.Attachment{{MediaType: "image/png", File: next("f"), Size: 3}}
			}
			stop := rapid.SampledFrom([]model.StopReason{"", model.StopEnd, model.StopError}).Draw(t, "stop")
			add(MessageAdded{
				ID: next("m"), ParentID: entry(), RunID: run(), InputID: fmt.Sprint("in", pick("of", 20)),
				Message: m, StopReason: stop, Usage: usage(),
			})
		}
	}
	return records
}

// The same for journals of any kind, also where only the end of the path is wanted.
func TestAnIndexOfAnyJournalAndTheRestAreTheFold(t *testing.T) {
	store := indexing(t)
	rapid.Check(t, func(r *rapid.T) {
		records := randomRecords(r, 60)
		n := rapid.IntRange(1, len(records)).Draw(r, "cut")
		writeJournal(r, store, lines(t, records[:n]))
		if !indexed(r, store) {
			r.Fatalf("%d records have no index", n)
		}
		if rapid.Bool().Draw(r, "rest") {
			what := rapid.SampledFrom([]string{"whole", "torn", "noise", "unknown", "no parent", "a copy"}).Draw(r, "damage")
			writeJournal(r, store, append(lines(t, records), damage[what]...))
		}
		got, err := read(r, store, 0, rapid.Bool().Draw(r, "warm"))
		wantFold(r, "random", store, got, err)
		wantEnd(r, store, got.state, rapid.IntRange(1, 10).Draw(r, "last"))
		s := got.state // else no daemon writes such a journal
		rests := s.Run == nil && s.Rewind == nil && len(s.Pending)+len(s.Background) == 0
		if got.indexed && rests {
			wantSummary(r, store, got.state)
		}
	})
}

// wantEnd fails unless the end of a session's path can be read alone.
func wantEnd(t rapid.TB, store *Store, whole *State, last int) {
	t.Helper()
	r, err := read(t, store, last, false)
	if err != nil {
		t.Fatal(err)
	}
	end := func(s *State) (entries []*Entry, runs []*Ended) {
		entries, _ = s.Path("")
		entries = entries[max(0, len(entries)-last):]
		for _, e := range entries {
			if run, ok := s.Ended(e.RunID); ok {
				runs = append(runs, run)
			}
		}
		return entries, runs
	}
	want, wantRuns := end(whole)
	got, gotRuns := end(r.state)
	// it is counted from what is there
	byPlace := cmp.FilterPath(func(p cmp.Path) bool { return p.String() == "N" }, cmp.Ignore())
	if diff := cmp.Diff(want, got, sameFold, byPlace); diff != "" {
		t.Fatalf("the last %d entries, -all +alone:\n%s", last, diff)
	}
	if diff := cmp.Diff(wantRuns, gotRuns, sameFold); diff != "" || r.state.Leaf != whole.Leaf {
		t.Fatalf("the runs of the last %d entries, -all +alone:\n%s", last, diff)
	}
}

// wantSummary fails unless the session is listed as its fold says.
func wantSummary(t rapid.TB, store *Store, s *State) {
	t.Helper()
	store.summaries = summaries{}
	got, err := store.Summary(context.Background(), "ses-1")
	want := summaryOf(s)
	want.ReadOnly = s.ReadOnly != nil
	if err != nil || !cmp.Equal(got, want, cmpopts.EquateEmpty()) {
		t.Fatalf("listed as %+v, %v\nwant %+v", got, err, want)
	}
}

// conversation are the records of a session of so many turns of four entries, of which
// the last are behind a compaction.
func conversation(turns, size int) (records []Record) {
	at := t0
	add := func(f Fact) { at = at.Add(time.Millisecond); records = append(records, Record{at, f}) }
	add(Created{SessionID: "ses-1"})
	parent := ""
	text := strings.Repeat("a line of \"text\"\n", size/17+1)[:size]
	for n := range turns {
		run := fmt.Sprintf("run-01994d1c-7c5e-7a51-8000-%012d", n)
		add(Input{InputID: fmt.Sprint("in-", n), Kind: "prompt", Command: "prompt", Text: "Go on.", RunID: run})
		add(RunStarted{RunID: run})
		add(TurnStarted{RunID: run, Turn: 1, Kind: "prompt", InputIDs: []string{fmt.Sprint("in-", n)}})
		for k, m := range []model.Message{
			{Role: model.User, Text: text},
			{
				Role: model.Assistant, Text: text,
				ToolCalls: []model.ToolCall{{ID: fmt.Sprint("call-", n), Name: "read", Arguments: []byte(`{}`)}},
			},
			{Role: model.Tool, Text: text, ToolCallID: fmt.Sprint("call-", n), OK: true},
			{Role: model.Assistant, Text: text},
		} {
			f := MessageAdded{
				ID: fmt.Sprintf("msg-01994d1c-7c5e-7a51-8000-%08d%04d", n, k), ParentID: parent, RunID: run,
				TurnKind: "prompt", Message: m,
			}
			if k == 0 {
				f.InputID = fmt.Sprint("in-", n)
			}
			add(f)
			parent = f.ID
		}
		add(TurnEnded{RunID: run, Turn: 1, StopReason: "end"})
		add(RunEnded{RunID: run, StopReason: "completed", Unread: true})
	}
	return records
}

// The end of a long session is read without its beginning.
func TestTheEndOfALongSession(t *testing.T) {
	store := indexing(t)
	records := conversation(400, 10)
	s := foldOf(t, records)
	middle := s.order[len(s.order)-600].ID
	late := s.order[len(s.order)-9].ID
	add := func(f Fact) []Record { return append(slices.Clone(records), Record{t0.Add(time.Hour), f}) }
	for name, c := range map[string]struct {
		records []Record
		alone   int // as many entries are read by themselves
	}{
		"as it was":           {records, 200},
		"compacted":           {add(Compacted{ID: "c1", ParentID: s.Leaf, Summary: "all", FirstKeptEntryID: late}), 200},
		"compacted long ago":  {add(Compacted{ID: "c1", ParentID: s.Leaf, Summary: "all", FirstKeptEntryID: middle}), 200},
		"gone back by little": {add(LeafSet{LeafID: late}), 200},
		"gone back by much":   {add(LeafSet{LeafID: middle}), 0},
	} {
		writeJournal(t, store, lines(t, c.records))
		if !indexed(t, store) {
			t.Fatalf("%s: no index", name)
		}
		whole, err := read(t, store, 0, false)
		if err != nil || name == "as it was" || name == "compacted" {
			wantFold(t, name, store, whole, err)
		}
		for _, last := range []int{1, 20, 200, 1700} {
			wantEnd(t, store, whole.state, last)
			r, err := read(t, store, last, false)
			if alone := len(r.state.order) < len(s.order); err != nil || alone != (last <= c.alone) {
				t.Errorf("%s: for the last %d, %d entries are read, %v", name, last, len(r.state.order), err)
			}
		}
		wantSummary(t, store, whole.state)
	}
}
