package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"noused/internal/lock"
	"noused/internal/model"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)

func user(id, parent, input, text string) MessageAdded {
	return MessageAdded{
		ID: id, ParentID: parent, RunID: "run-1", TurnKind: "prompt", InputID: input,
		Message: model.Message{Role: model.User, Text: text},
	}
}

// life is a short life of a session, with a record of every kind.
func life() []Record {
	call := model.ToolCall{ID: "call-1", Name: "t.x", Arguments: []byte(`{"n":1}`)}
	facts := []Fact{
		Created{SessionID: "ses-1", ParentID: "ses-0"},
		Input{InputID: "in-1", Kind: "prompt", Command: "prompt", Text: "hello\nthere", RunID: "run-1", Key: "k"},
		RunStarted{RunID: "run-1"},
		TurnStarted{RunID: "run-1", Turn: 1, Kind: "prompt", InputIDs: []string{"in-1"}},
		user("m1", "", "in-1", "hello\nthere"),
		Input{InputID: "in-2", Kind: "steer", Command: "steer", Text: "wait", RunID: "run-1"},
		MessageAdded{
			ID: "m2", ParentID: "m1", RunID: "run-1", TurnKind: "prompt", StopReason: model.StopToolCalls,
			Usage: &model.Usage{InputTokens: 2, OutputTokens: 1}, Model: "script",
			Message: model.Message{Role: model.Assistant, ToolCalls: []model.ToolCall{call}},
		},
		ToolStarted{RunID: "run-1", CallID: "call-1"},
		Patched{Patch: []byte(`{"flags":{"lit":true,"big":9007199254740993},"gone":1}`)},
		Patched{Patch: []byte(`{"gone":null,"flags":{"list":[1,2]}}`)},
		AssetAdded{Asset: model.Asset{
			ID: "a", Kind: "image", MediaType: "image/png", Path: "/tmp/a.png", Tool: "t",
			Supported: true,
		}},
		MessageAdded{
			ID: "m3", ParentID: "m2", RunID: "run-1", TurnKind: "prompt",
			Message: model.Message{Role: model.Tool, ToolCallID: "call-1", ToolName: "t.x", Text: "ok", OK: true},
			Outputs: map[string]string{"a": "b"},
		},
		TurnEnded{RunID: "run-1", Turn: 1, StopReason: "steered"},
		RunParked{RunID: "run-1"},
		RunResumed{RunID: "run-1"},
		AbortRequested{RunID: "run-1"},
		RunEnded{RunID: "run-1", StopReason: "aborted"},
		user("m4", "m3", "", "again"),
		Compacted{ID: "c1", ParentID: "m4", Summary: "hello", FirstKeptEntryID: "m4", TokensBefore: 9, Trigger: "manual"},
		LeafSet{LeafID: "m3"},
		LeafSet{LeafID: "c1"},
		ModeSet{Kind: "steer", Mode: "all"},
		ModeSet{Kind: "follow_up", Mode: "all"},
		ToolsSet{Tools: []string{"t.x"}},
		ModelSet{Model: model.Choice{Provider: "openai", Name: "m", BaseURL: "http://localhost:1/v1", ContextWindow: 8000}},
		RunStarted{RunID: "run-2"},
		MessageStarted{ID: "m5", RunID: "run-2", Model: "script"},
		RunEnded{RunID: "run-2", StopReason: "error", Code: "crash_loop", Error: "crashed"},
		RequestRepaired{Model: "openai/m http://h/v1", Repair: model.Repair{
			NoImages: true, PlainSchemas: true,
			NoOpaque: true, PlainCalls: true, Bridged: true,
		}},
		EnvironmentTaken{Workdir: "/src", Text: "the branch is main"},
		JobStarted{Job: model.Job{ID: "job-1", Command: "serve", OutputPath: "/tmp/job-1.txt"}},
		Input{InputID: "in-3", Kind: "prompt", Command: "prompt", Text: "more", RunID: "run-3"},
		RunStarted{RunID: "run-3"},
		MessageAdded{
			ID: "m6", ParentID: "c1", RunID: "run-3", TurnKind: "prompt", StopReason: model.StopEnd, Model: "script",
			Message: model.Message{Role: model.Assistant, Text: "It is done:\nall of it.\n"},
		},
		RunEnded{RunID: "run-3", StopReason: "completed", Unread: true},
		MarkedRead{},
		TitleSet{Title: "another"},
		RunStarted{RunID: "run-4"},
		Input{InputID: "in-4", Kind: "steer", Command: "steer", Text: "never mind", RunID: "run-4"},
		Withdrawn{InputID: "in-4"},
		RunEnded{RunID: "run-4", StopReason: "completed", Unread: true},
		ApprovalModeSet{Mode: "deny"},
		ApprovalModeSet{Mode: "ask"},
		Input{InputID: "in-5", Kind: "prompt", Command: "prompt", Text: "push", RunID: "run-5", Approvals: "ask"},
		RunStarted{RunID: "run-5", Approvals: "ask"},
		TurnStarted{RunID: "run-5", Turn: 1, Kind: "prompt", InputIDs: []string{"in-5"}},
		ApprovalAsked{
			ApprovalID: "apr-1-ses-1", RunID: "run-5", Kind: "tool", CallID: "call-2", Reason: "needs the network",
			Rule: "ask: bash outside the sandbox", Workdir: "/src", Diff: "+a\n",
			Options: []ApprovalOption{
				{ID: "once", Decision: "allow"},
				{
					ID: "session", Decision: "allow", Pattern: "bash: git push …",
					Rule: []byte(`{"tool":"bash","decision":"allow","command":[["git"],["push"]]}`),
				},
				{ID: "deny", Decision: "deny"},
			},
		},
		ApprovalDecided{
			ApprovalID: "apr-1-ses-1", RunID: "run-5", Outcome: "allowed", Option: "session", PID: 7, UID: 1000, Comm: "nous",
			Rule: []byte(`{"tool":"bash","decision":"allow","command":[["git"],["push"]]}`),
		},
		ToolStarted{RunID: "run-5", CallID: "call-2"},
		ApprovalAsked{
			ApprovalID: "apr-2-ses-1", RunID: "run-5", Kind: "budget", Reason: "so many tokens",
			Options: []ApprovalOption{{ID: "continue", Decision: "allow"}}, Used: Used{Tokens: 9, Cost: 8, DayCost: 7},
		},
		ApprovalDecided{
			ApprovalID: "apr-2-ses-1", RunID: "run-5", Outcome: "denied", By: "timeout",
			Reason: "nobody answered",
		},
		RuleKept{ApprovalID: "apr-0-ses-1"},
		ApprovalAsked{
			ApprovalID: "apr-3-ses-1", RunID: "run-5", Kind: "budget", Reason: "so many tokens",
			Options: []ApprovalOption{{ID: "continue", Decision: "allow"}}, Used: Used{Tokens: 9, Cost: 8, DayCost: 7},
		},
		EnvironmentTaken{
			Workdir: "/src", Text: "the branch is main",
			Servers: []ServerSaid{{Name: "hub", Text: "Ask before you merge."}},
		},
		ToolsDeferred{Search: "tools.search", Servers: []string{"hub"}, Offered: []string{"hub.merge"}},
		AgentSet{Agent: "codex"},
		AgentSession{ID: "s-1"},
		AgentTook{Texts: 1},
		AgentPrompted{RunID: "run-5", Text: "Go on."},
		AgentChose{Choice: model.AgentChoice{ID: "model", Value: "large"}},
		TurnChanged{RunID: "run-5", Turn: 1, Changes: "45b983be36b73c0788dc9cbcb76cbb80fc7bb057", Files: 2},
		TurnChanged{RunID: "run-5", Turn: 2, Missing: "it was not done within 2s"},
		RunEnded{RunID: "run-5", StopReason: "completed"},
		RewindBegun{
			RewindID: "rew-1", To: "m4", What: "both", Changes: "45b983be36b73c0788dc9cbcb76cbb80fc7bb057", Leaf: "m3",
			Was: "m6", Undoes: "rew-0",
		},
		RewindEnded{RewindID: "rew-1", TakenBack: true},
		Input{
			InputID: "in-6", Kind: "prompt", Command: "agent", Text: "look", RunID: "run-6", Key: "ses-9@run-9",
			Root: "run-0",
		},
		RunStarted{RunID: "run-6"},
		ChildStarted{
			RunID: "run-6", CallID: "call-3", MessageID: "m6", ChildID: "ses-2", ChildRunID: "run-7", Description: "tests",
			New: true,
		},
		ChildEnded{CallID: "call-3", ChildRunID: "run-7", Spent: &model.Usage{InputTokens: 3, OutputTokens: 2}, Children: 1},
		ChildStarted{
			RunID: "run-6", CallID: "call-4", MessageID: "m6", ChildID: "ses-2", ChildRunID: "run-8", Background: true,
		},
		RunEnded{
			RunID: "run-6", StopReason: "completed", Waits: true, Spent: &model.Usage{InputTokens: 3, OutputTokens: 2},
			Children: 3,
		},
		Input{InputID: "in-7", Kind: "prompt", Command: "agent", Text: "It ended.", RunID: "run-9", Key: "ses-2@run-8"},
		RunStarted{RunID: "run-9"},
		TurnStarted{RunID: "run-9", Turn: 1, Kind: "prompt", InputIDs: []string{"in-7"}},
		MessageAdded{
			ID: "m7", ParentID: "m6", RunID: "run-9", TurnKind: "prompt", InputID: "in-7", Child: "ses-2@run-8",
			Message: model.Message{Role: model.User, Text: "It ended."},
		},
		ChildStarted{
			RunID: "run-9", CallID: "call-5", MessageID: "m7", ChildID: "ses-3", ChildRunID: "run-10", New: true, Host: "codex",
		},
		ApprovalAsked{
			ApprovalID: "apr-4-ses-1", RunID: "run-9", Kind: "tool", CallID: "call-6", Rule: "ask: codex is a hosted agent",
			Host: "codex", Options: []ApprovalOption{{ID: "once", Decision: "allow"}},
		},
	}
	var records []Record
	for i, f := range facts {
		records = append(records, Record{t0.Add(time.Duration(i) * time.Second), f})
	}
	return records
}

func foldOf(t *testing.T, records []Record) *State {
	t.Helper()
	s := NewState()
	for _, r := range records {
		if err := s.Apply(r); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func lines(t testing.TB, records []Record) []byte {
	t.Helper()
	var out []byte
	var err error
	for _, r := range records {
		if out, err = appendRecord(out, r); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// The journal of version 1 as it is on the disk: it can be read for ever.
func TestReadsTheFrozenJournal(t *testing.T) {
	path := filepath.Join("testdata", "v1.jsonl")
	if _, err := os.Stat(path); os.IsNotExist(err) {
		t.Fatalf("%s is gone: it is a frozen file, written by the first version", path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := lines(t, life()); !bytes.Equal(got, text) {
		t.Errorf("today's records are written otherwise; the form of version 1 is frozen.\n%s",
			cmp.Diff(string(text), string(got)))
	}
	got := NewState()
	if _, problems, err := fold(bytes.NewReader(text), path, got); err != nil || len(problems) > 0 {
		t.Fatal(err, problems)
	}
	if diff := cmp.Diff(foldOf(t, life()), got, private); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// private lets a comparison see a session's private fields as well.
var private = cmp.Options{
	cmp.AllowUnexported(State{}, path{}, history{}, document{}, value{}), cmpopts.IgnoreFields(State{}, "shared", "held",
		"entries", "found", "endedAt", "foundEnded"), cmpopts.IgnoreFields(path{}, "lent"),
	cmpopts.IgnoreUnexported(Body{}, Ended{}),
	cmp.Transformer("entry", func(e *Entry) (v entryView) {
		if e != nil {
			v = entryView{e.ID, e.RunID, e.Parent(), string(e.Role), e.Snippet, e.n, e.tokens, e.counted, e.Body()}
		}
		return v
	}),
}

// entryView is what two entries are compared by.
type entryView struct {
	ID, RunID, Parent, Role, Snippet string
	N                                int
	Tokens, Counted                  int64
	Body                             *Body
}

func TestEveryRecordTypeIsInTheFrozenJournal(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range life() {
		seen[r.Fact.kind()] = true
	}
	for kind := range decoders[recordVersion] {
		if !seen[kind] {
			t.Errorf("no record of type %s", kind)
		}
	}
}

// A kill in the middle of a write leaves a torn line: at every byte, what was
// whole before it is found again, and the next append is whole too.
func TestTornTailAtEveryByte(t *testing.T) {
	records := life()
	whole := lines(t, records[:len(records)-1])
	last := lines(t, records[len(records)-1:])
	want := foldOf(t, records[:len(records)-1])
	path := filepath.Join(t.TempDir(), "ses-1.jsonl")
	for cut := 1; cut < len(last); cut++ {
		if err := os.WriteFile(path, append(bytes.Clone(whole), last[:cut]...), 0o600); err != nil {
			t.Fatal(err)
		}
		s, j, problems, err := openJournal(context.Background(), OSDisk{}, path)
		if err != nil {
			t.Fatal(err)
		}
		if len(problems) != 1 || !errors.Is(problems[0].Err, errTorn) || problems[0].Offset != int64(len(whole)) {
			t.Fatalf("cut at %d: got problems %v, want the torn line at %d told", cut, problems, len(whole))
		}
		aside, err := os.ReadFile(path + damagedExt)
		if err != nil || !bytes.HasSuffix(aside, append(bytes.Clone(last[:cut]), '\n')) {
			t.Fatalf("cut at %d: what was cut off is not kept aside: %q, %v", cut, aside, err)
		}
		if diff := cmp.Diff(want, s, private); diff != "" {
			t.Fatalf("cut at %d: -want +got:\n%s", cut, diff)
		}
		if err := errors.Join(j.Append(records[len(records)-1:]), j.Close()); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, append(bytes.Clone(whole), last...)) {
			t.Fatalf("cut at %d: the journal is not whole after the next append (%v)", cut, err)
		}
	}
}

// A line that cannot be read costs what it said, not what comes after it.
func TestMessagesAfterACorruptLineAreThere(t *testing.T) {
	state := NewState()
	var text []byte
	parent := ""
	for i, r := range append([]Record{{t0, Created{SessionID: "ses-1"}}}, make([]Record, 6)...) {
		if i > 0 {
			id := fmt.Sprint("msg-", i)
			r = Record{t0, MessageAdded{ID: id, ParentID: parent, RunID: "run-1", Message: model.Message{
				Role: model.User,
				Text: id,
			}}}
			parent = id
		}
		line := lines(t, []Record{r})
		if i == 3 {
			line[10] = 'x'
		}
		text = append(text, line...)
	}
	_, problems, err := fold(bytes.NewReader(text), "j", state)
	if err != nil || len(problems) != 2 {
		t.Errorf("got %v, %v; want the bad line told, and the one that hung from it", problems, err)
	}
	path, _ := state.Path("")
	var got []string
	for _, e := range path {
		got = append(got, e.ID)
	}
	if want := []string{"msg-1", "msg-2", "msg-4", "msg-5", "msg-6"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// unsure is a disk on which names do not become durable.
type unsure struct {
	OSDisk
	ill bool
}

func (d *unsure) SyncDir(dir string) error {
	if d.ill {
		return errors.New("input/output error")
	}
	return d.OSDisk.SyncDir(dir)
}

// What a disk refused to make is not there after the next start, and what it
// refused to delete is.
func TestADiskThatLosesNames(t *testing.T) {
	dir, disk := t.TempDir(), &unsure{}
	store, err := OpenOn(disk, dir)
	if err != nil {
		t.Fatal(err)
	}
	_, j, err := store.Create("ses-1", []Record{{t0, Created{SessionID: "ses-1"}}})
	if err != nil {
		t.Fatal(err)
	}
	disk.ill = true
	if err := j.Append([]Record{{t0, TitleSet{Title: "one"}}}); err == nil {
		t.Error("the first text of a session was taken, which may not last")
	}
	if _, _, err := store.Create("ses-2", []Record{
		{t0, Created{SessionID: "ses-2"}},
		{t0, TitleSet{Title: "two"}},
	}); err == nil {
		t.Error("a session was made with a text, which may not last")
	}
	if err := errors.Join(j.Close(), store.Close()); err != nil {
		t.Fatal(err)
	}
	if store, err = OpenOn(disk, dir); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	if got, err := store.Active(); got != "ses-1" || err != nil {
		t.Errorf("active after a restart: got %q, %v; want the one that was made", got, err)
	}
	if s, err := store.Peek(t.Context(), "ses-1"); err != nil || s.Title != "" {
		t.Errorf("got title %q, %v; want none of what was refused", s.Title, err)
	}
	if err := store.Delete("ses-1", t0); err == nil {
		t.Error("deleting it is told as done")
	}
	if got, err := store.Active(); got != "ses-1" || !store.Exists("ses-1") || err != nil {
		t.Errorf("active: got %q, %v; want the one that could not be deleted", got, err)
	}
}

// The name of a session that was closed before its first text is on the disk before that
// text is accepted.
func TestANameIsDurableWithTheFirstTextAfterAClose(t *testing.T) {
	disk := &unsure{}
	store, err := OpenOn(disk, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	_, j, err := store.Create("ses-1", []Record{{t0, Created{SessionID: "ses-1"}}})
	if err == nil {
		err = j.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	_, j, _, err = store.Load(t.Context(), "ses-1")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.Close() }()
	disk.ill = true
	if err := j.Append([]Record{{t0, TitleSet{Title: "one"}}}); err == nil {
		t.Error("a text was accepted whose session may be gone after a loss of power")
	}
}

// A copy of a journal is not taken for the session whose it was.
func TestACopyIsNotTheSession(t *testing.T) {
	dir := t.TempDir()
	store, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	for _, id := range []string{"ses-1", "ses-1-copy"} {
		if err := os.WriteFile(store.path(id), lines(t, []Record{{t0, Created{SessionID: "ses-1"}}}), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := store.Active(); got != "ses-1" || err != nil {
		t.Errorf("active: got %q, %v", got, err)
	}
	if _, _, _, err := store.Load(context.Background(), "ses-1-copy"); err == nil || errors.Is(err, ErrNotFound) {
		t.Errorf("opened: %v", err)
	}
	if _, err := store.Peek(context.Background(), "ses-1-copy"); err == nil {
		t.Error("read")
	}
}

// What a newer daemon wrote an older one does not touch.
func TestJournalOfANewerVersionIsLeftAlone(t *testing.T) {
	text := append(lines(t, life()[:3]), `{"v":2,"at":"2026-01-01T00:00:00Z","type":"created","data":{}}`+"\n"...)
	path := filepath.Join(t.TempDir(), "ses-1.jsonl")
	if err := os.WriteFile(path, append(text, "torn"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := openJournal(context.Background(), OSDisk{}, path); !errors.Is(err, errNewer) {
		t.Errorf("got %v, want that it is newer", err)
	}
	if got, _ := os.ReadFile(path); !bytes.Equal(got, append(text, "torn"...)) {
		t.Error("the journal was changed")
	}
}

func TestCorruptLineIsSkippedToldAndKept(t *testing.T) {
	records := life()
	text := bytes.SplitAfter(lines(t, records), []byte("\n"))
	text[10] = []byte("\x00\x00 not a record\n") // the asset
	path := filepath.Join(t.TempDir(), "ses-1.jsonl")
	if err := os.WriteFile(path, bytes.Join(text, nil), 0o600); err != nil {
		t.Fatal(err)
	}
	s, j, problems, err := openJournal(context.Background(), OSDisk{}, path)
	if err != nil {
		t.Fatal(err)
	}
	if len(problems) != 1 || !strings.Contains(problems[0].Error(), "line skipped") {
		t.Errorf("got %v, want one line told as skipped", problems)
	}
	if len(s.Assets) != 0 || s.Messages != 6 {
		t.Errorf("got %d assets and %d messages, want everything but the asset", len(s.Assets), s.Messages)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(path); !bytes.Equal(got, bytes.Join(text, nil)) {
		t.Error("the corrupt line was changed on the disk")
	}
}

func TestPatchesFollowRFC7396(t *testing.T) {
	got := string(foldOf(t, life()).Patched())
	if want := `{"flags":{"big":9007199254740993,"list":[1,2],"lit":true}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestHistoryAnswersEveryCall(t *testing.T) {
	records := life()[:7] // up to the assistant's call
	s := foldOf(t, records)
	last := func() model.Message { h := historyOf(s); return h[len(h)-1] }
	if got := last(); got.Role != model.Tool || got.ToolCallID != "call-1" {
		t.Errorf("got %+v, want a result for the dangling call", got)
	}
	if err := s.Apply(life()[11]); err != nil {
		t.Fatal(err)
	}
	if got := last(); got.Text != "ok" || len(historyOf(s)) != 3 {
		t.Errorf("got %+v, want the call's own result and no other", got)
	}
}

// What a context module leaves of a conversation is made whole again.
func TestAnsweredMakesAConversationWhole(t *testing.T) {
	user := model.Message{Role: model.User, Text: "u"}
	calls := func(ids ...string) model.Message {
		m := model.Message{Role: model.Assistant}
		for _, id := range ids {
			m.ToolCalls = append(m.ToolCalls, model.ToolCall{ID: id, Name: "x"})
		}
		return m
	}
	result := func(id, text string) model.Message {
		return model.Message{Role: model.Tool, ToolCallID: id, Text: text}
	}
	for name, c := range map[string]struct {
		in   []model.Message
		want string
	}{
		"in order": {
			[]model.Message{user, calls("p", "q"), result("p", "1"), result("q", "2"), user},
			"user, assistant, tool p 1, tool q 2, user",
		},
		"out of order": {
			[]model.Message{user, calls("p", "q"), result("q", "2"), result("p", "1")},
			"user, assistant, tool p 1, tool q 2",
		},
		"one is missing": {
			[]model.Message{user, calls("p", "q"), result("q", "2"), user},
			"user, assistant, tool p no, tool q 2, user",
		},
		"the last one is": {
			[]model.Message{user, calls("p", "q"), result("p", "1")},
			"user, assistant, tool p 1, tool q no",
		},
		"one too many": {[]model.Message{result("z", "9"), user, result("z", "9")}, "user"},
		"one twice": {
			[]model.Message{calls("p"), result("p", "1"), result("p", "2"), user},
			"assistant, tool p 1, user",
		},
		"the same id again": {
			[]model.Message{calls("p"), result("p", "1"), calls("p"), result("p", "2")},
			"assistant, tool p 1, assistant, tool p 2",
		},
		"one id for two": {
			[]model.Message{calls("p", "p"), result("p", "1"), result("p", "2")},
			"assistant, tool p 1, tool p 2",
		},
		"too late": {[]model.Message{calls("p"), user, result("p", "1")}, "assistant, tool p no, user"},
	} {
		t.Run(name, func(t *testing.T) {
			before := fmt.Sprint(c.in)
			var got []string
			for _, m := range Answered(c.in) {
				line := string(m.Role)
				if m.Role == model.Tool {
					text, _, _ := strings.Cut(m.Text, " ")
					line += " " + m.ToolCallID + " " + strings.TrimSuffix(text, ":")
				}
				got = append(got, line)
			}
			if all := strings.Join(got, ", "); all != c.want {
				t.Errorf("got  %s\nwant %s", all, c.want)
			}
			if after := fmt.Sprint(c.in); after != before {
				t.Errorf("what was handed in was %s and is now %s", before, after)
			}
		})
	}
}

// historyOf is a session as a model is to read it, all of it in memory.
func historyOf(s *State) []model.Message {
	messages, _ := s.Conversation().Held()
	return messages
}

// createJournal makes a journal of records.
func createJournal(disk Disk, path string, records []Record, direct bool) (*Journal, error) {
	j, err := draftJournal(disk, path, nil, direct)
	if err == nil {
		err = errors.Join(j.Append(records), j.make())
	}
	return j, err
}

func TestCompactionStandsForWhatItSummarises(t *testing.T) {
	s := foldOf(t, life())
	path, _ := s.Path("")
	var ids []string
	for _, e := range path {
		ids = append(ids, e.ID)
	}
	if want := []string{"c1", "m4", "m6", "m7"}; !slices.Equal(ids, want) {
		t.Errorf("got %v, want %v", ids, want)
	}
	if chain, _ := s.Chain(""); len(chain) != 7 {
		t.Errorf("got %d entries, want all seven still there", len(chain))
	}
	if older, _ := s.Path("m3"); len(older) != 3 {
		t.Errorf("got %d entries at an older leaf, want what it was then", len(older))
	}
}

func TestStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	store, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	var held *lock.HeldError
	if _, err := Open(dir); !errors.As(err, &held) || held.PID != os.Getpid() {
		t.Errorf("got %v, want that this process has the directory", err)
	}
	for _, id := range []string{"ses-1", "ses-2", "ses-3"} {
		records := []Record{{t0, Created{SessionID: id}}}
		if id == "ses-2" {
			records = append(records, life()[1:4]...)
		}
		_, j, err := store.Create(id, records)
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := store.Create("ses-1", life()[:1]); err == nil {
		t.Error("a session was made over another one")
	}
	for _, id := range []string{"", "ses-9", "../lock", "ses-1/../ses-1", strings.Repeat("x", 200)} {
		if _, _, _, err := store.Load(context.Background(), id); !errors.Is(err, ErrNotFound) {
			t.Errorf("%q: got %v, want not found", id, err)
		}
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	store, err = Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	if got, err := store.Active(); got != "ses-3" || err != nil {
		t.Errorf("active after a restart: got %q, %v; want ses-3", got, err)
	}
	ids, err := store.IDs()
	if err != nil || !slices.Equal(ids, []string{"ses-3", "ses-2", "ses-1"}) {
		t.Errorf("got %v %v, want all three, newest first", ids, err)
	}
	var unfinished []string
	if err := store.Unfinished(context.Background(), func(id string, _ bool) {
		unfinished = append(unfinished, id)
	}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(unfinished, []string{"ses-2"}) {
		t.Errorf("got %v, want the one whose run has not ended", unfinished)
	}
}

// A session that was made aside is not the active one, nor after a restart for
// being the newest; the next one that is made is.
func TestCreateAside(t *testing.T) {
	dir := t.TempDir()
	store := open(t, OSDisk{}, dir)
	for _, made := range []struct {
		create     func(*Store, string, []Record) (*State, *Journal, error)
		id, active string
	}{
		{(*Store).CreateAside, "ses-1", ""},
		{(*Store).Create, "ses-2", "ses-2"},
		{(*Store).CreateAside, "ses-3", "ses-2"},
		{(*Store).Create, "ses-4", "ses-4"},
	} {
		_, j, err := made.create(store, made.id, []Record{{t0, Created{SessionID: made.id}}})
		if err == nil {
			err = j.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, when := range []string{"at once", "after a restart"} {
			if got, err := store.Active(); got != made.active || err != nil {
				t.Errorf("%s made, %s: the active session is %q, %v; want %q", made.id, when, got, err, made.active)
			}
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}
			store = open(t, OSDisk{}, dir)
		}
	}
}

// A crash while a session is made leaves no session behind, whatever of its first
// line is on the disk: it is not listed, does not become the active one, and is
// gone once somebody asks. A journal that does not say whose it is costs only
// itself.
func TestHalfMadeSessions(t *testing.T) {
	line := string(lines(t, []Record{{t0, Created{SessionID: "ses-4"}}}))
	for _, text := range []string{"", line[:1], line[:len(line)-1], strings.Repeat("\x00", len(line))} {
		dir := t.TempDir()
		store := open(t, OSDisk{}, dir)
		for _, id := range []string{"ses-1", "ses-3"} {
			create(t, store, id)
		}
		if err := errors.Join(store.SetActive("ses-1", t0), store.Close()); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{
			"ses-2.jsonl": `{"v":1,"at":"2026`, "ses-2.jsonl.new": `{"v":1`, "ses-4.jsonl": text, "ses-5.jsonl": text,
		} {
			if err := os.WriteFile(filepath.Join(dir, sessionsName, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		store = open(t, OSDisk{}, dir)
		if ids, err := store.IDs(); !slices.Equal(ids, []string{"ses-3", "ses-2", "ses-1"}) || err != nil {
			t.Errorf("%q: listed are %v, %v; want those that were made", text, ids, err)
		}
		if got, err := store.Active(); got != "ses-1" || err != nil {
			t.Errorf("%q: active: got %q, %v; want the one that was chosen", text, got, err)
		}
		if _, err := store.Peek(context.Background(), "ses-2"); !errors.Is(err, ErrNotFound) {
			t.Errorf("a journal without a line: got %v, want that there is no such session", err)
		}
		create(t, store, "ses-4")
		if left, _ := filepath.Glob(filepath.Join(dir, sessionsName, "*")); len(left) != 4 {
			t.Errorf("%q: there are %v", text, left)
		}
	}
}

// A session's journal has its name before it has its record. Where making it was
// refused, at whatever step, nothing is left.
func TestASessionThatCannotBeMadeLeavesNothing(t *testing.T) {
	for records, steps := range map[int]int{1: 2, 2: 4} { // an empty one lasts from its first text on
		for step := range steps {
			disk := &failing{step: 9}
			store := open(t, disk, t.TempDir())
			disk.step = step
			_, _, err := store.Create("ses-1", life()[:records])
			if err == nil {
				t.Errorf("%d records, step %d: it was made", records, step)
			}
			if left, _ := filepath.Glob(filepath.Join(store.dir, sessionsName, "*")); len(left) > 0 {
				t.Errorf("%d records, step %d: %v is left", records, step, left)
			}
			disk.step = 9
			create(t, store, "ses-1")
		}
	}
}

// failing is a disk that refuses one step of making a session.
type failing struct {
	OSDisk
	step int
}

func (d *failing) refuse(step int) error {
	if step == d.step {
		return errors.New("refused")
	}
	return nil
}

func (d *failing) Create(path string) (*os.File, error) {
	if err := d.refuse(0); err != nil {
		return nil, err
	}
	return d.OSDisk.Create(path)
}

func (d *failing) Write(f *os.File, text []byte) (int, error) {
	n, err := d.OSDisk.Write(f, text)
	return n, errors.Join(err, d.refuse(1))
}

func (d *failing) Sync(f *os.File) error { return errors.Join(d.OSDisk.Sync(f), d.refuse(2)) }

func (d *failing) SyncDir(dir string) error { return errors.Join(d.OSDisk.SyncDir(dir), d.refuse(3)) }

// Each step is a daemon of its own: it does one thing to the active session
// and is gone; the next one knows.
func TestActiveSessionSurvives(t *testing.T) {
	dir := t.TempDir()
	create := func(id string) func(*Store) error {
		return func(s *Store) error {
			_, j, err := s.Create(id, []Record{{t0, Created{SessionID: id}}})
			if err != nil {
				return err
			}
			return j.Close()
		}
	}
	choose := func(id string) func(*Store) error {
		return func(s *Store) error { return s.SetActive(id, t0) }
	}
	tear := func(*Store) error {
		f, err := os.OpenFile(filepath.Join(dir, activeName), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = f.WriteString(`{"v":1,"active":"ses`)
		return errors.Join(err, f.Close())
	}
	remove := func(id string) func(*Store) error {
		return func(s *Store) error { return os.Remove(s.path(id)) }
	}
	for i, step := range []struct {
		do   func(*Store) error
		want string
	}{
		{func(*Store) error { return nil }, ""},
		{create("ses-2"), "ses-2"},
		{create("ses-4"), "ses-4"},
		{choose("ses-2"), "ses-2"},
		{tear, "ses-2"},
		{create("ses-6"), "ses-6"},
		{create("ses-5"), "ses-5"}, // the clock was set back
		{choose("ses-4"), "ses-4"},
		{tear, "ses-4"},
		{remove("ses-4"), "ses-6"},
		{create("ses-7"), "ses-7"},
	} {
		store, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(step.do(store), store.Close()); err != nil {
			t.Fatal(err)
		}
		if store, err = Open(dir); err != nil {
			t.Fatal(err)
		}
		if got, err := store.Active(); got != step.want || err != nil {
			t.Errorf("after step %d: got %q, %v; want %q", i, got, err, step.want)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Whatever a journal says, it is read to an end, and what comes of it is a tree.
func FuzzFold(f *testing.F) {
	records := life()
	var text []byte
	for _, r := range records {
		text, _ = appendRecord(text, r)
	}
	f.Add(text)
	kept, err := os.Create(filepath.Join(f.TempDir(), "x"))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = kept.Close() })
	f.Fuzz(func(t *testing.T, text []byte) {
		s := NewState()
		size, problems, err := fold(bytes.NewReader(text), "x", s)
		if err != nil && !errors.Is(err, errNewer) { // which is left alone (docs/journal.md)
			t.Fatal(err)
		}
		if size > int64(len(text)) || err == nil && size < int64(len(text)) && bytes.HasSuffix(text, []byte("\n")) {
			t.Errorf("says %d of %d bytes are whole lines", size, len(text))
		}
		if len(problems) > MaxProblems+2 {
			t.Errorf("%d problems are told", len(problems))
		}
		if _, e := summarise(bytes.NewReader(text)); e != nil && !errors.Is(e, errNewer) {
			t.Errorf("no summary is made of it: %v", e)
		}
		wantTree(t, s)
		if _, err := kept.WriteAt(text, 0); err != nil {
			t.Fatal(err)
		}
		wantBodies(t, s, &bodyReader{ctx: t.Context(), f: kept})
		open := map[string]bool{}
		for _, m := range historyOf(s) {
			if m.Role != model.Tool && len(open) > 0 {
				t.Fatalf("a %s message comes before the results of %v", m.Role, open)
			}
			for _, c := range m.ToolCalls {
				open[c.ID] = true
			}
			delete(open, m.ToolCallID)
		}
	})
}

// wantBodies fails unless each entry says the same once it is read from its journal.
func wantBodies(t *testing.T, s *State, journal *bodyReader) {
	t.Helper()
	for _, e := range s.Entries() {
		got, err := journal.read(e)
		if err != nil {
			t.Fatalf("entry %q cannot be read again: %v", e.ID, err)
		}
		if diff := cmp.Diff(e.Body(), got, cmpopts.IgnoreUnexported(Body{})); diff != "" {
			t.Fatalf("entry %q, read again (-want +got):\n%s", e.ID, diff)
		}
	}
}

// wantTree fails unless every entry has an id of its own and hangs below one that was
// there before it, and the way from each to the root ends.
func wantTree(t *testing.T, s *State) {
	t.Helper()
	seen := map[string]bool{}
	for _, e := range s.Entries() {
		if e.ID == "" || seen[e.ID] || e.Parent() != "" && !seen[e.Parent()] {
			t.Fatalf("entry %q hangs below %q", e.ID, e.Parent())
		}
		seen[e.ID] = true
	}
	for _, leaf := range []string{"", s.Leaf} {
		path, known := s.Path(leaf)
		chain, ok := s.Chain(leaf)
		if !known || !ok || len(path) > len(seen) || len(chain) > len(seen) || len(chain) == 0 != (s.Leaf == "") {
			t.Fatalf("%d entries, and %d (%v) of %d (%v) lead to %q", len(seen), len(path), known, len(chain), ok, leaf)
		}
	}
}

// BenchmarkAppend sets an appended record, with and without its sync, beside
// the same bytes written by hand.
func BenchmarkAppend(b *testing.B) {
	durable, written := life()[1:2], life()[4:5]
	for name, records := range map[string][]Record{"written": written, "durable": durable} {
		line, _ := appendRecord(nil, records[0])
		b.Run(name+"/raw", func(b *testing.B) {
			f, err := os.OpenFile(filepath.Join(b.TempDir(), "raw"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = f.Close() }()
			for b.Loop() {
				if _, err := f.Write(line); err != nil {
					b.Fatal(err)
				}
				if name == "durable" {
					if err := (OSDisk{}).Sync(f); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
		b.Run(name+"/journal", func(b *testing.B) {
			j, err := createJournal(OSDisk{}, filepath.Join(b.TempDir(), "ses-1.jsonl"), life()[:1], true)
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = j.Close() }()
			for b.Loop() {
				if err := j.Append(records); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
