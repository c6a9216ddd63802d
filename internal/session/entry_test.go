package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"noused/internal/model"
)

// longLife are the records of a session that says more than it has in memory: turns
// with calls, answers that broke off, a branch, and with summarised set a compaction at
// the end.
func longLife(summarised bool) (records []Record) {
	add := func(f Fact) { records = append(records, Record{t0, f}) }
	add(Created{SessionID: "ses-1"})
	parent := ""
	say := func(id string, m model.Message, stop model.StopReason) {
		add(MessageAdded{
			ID: id, ParentID: parent, RunID: "run-" + id[:3], TurnKind: "prompt", Message: m, StopReason: stop,
			Usage: &model.Usage{InputTokens: 3},
		})
		parent = id
	}
	for n := range 14 {
		text := strings.Repeat(fmt.Sprintf("%d \"é\"\n", n), 20_000)
		call := model.ToolCall{ID: fmt.Sprint("c", n), Name: "t.x", Arguments: []byte(`{}`)}
		say(fmt.Sprintf("m%02d-1", n), model.Message{Role: model.User, Text: text}, "")
		say(fmt.Sprintf("m%02d-2", n), model.Message{Role: model.Assistant, Text: "half " + text}, model.StopError)
		say(fmt.Sprintf("m%02d-3", n), model.Message{Role: model.Assistant, Text: text, ToolCalls: []model.ToolCall{
			call,
			{ID: call.ID + "b", Name: "t.y", Arguments: []byte(`{}`)},
		}}, model.StopToolCalls)
		say(fmt.Sprintf("m%02d-4", n), model.Message{Role: model.Tool, Text: text, ToolCallID: call.ID + "b", OK: true}, "")
		if n%5 == 0 {
			parent = fmt.Sprintf("m%02d-3", n) // another way from here
		}
	}
	if summarised {
		add(Compacted{ID: "c1", ParentID: parent, Summary: "they spoke", FirstKeptEntryID: "m03-1", FixedTokens: 7})
	}
	return records
}

// inChunks writes records to a session as a loop does.
func inChunks(t *testing.T, s *State, j *Journal, records []Record) {
	t.Helper()
	for chunk := range slices.Chunk(records, 3) {
		for _, r := range chunk {
			if err := s.Apply(r); err != nil {
				t.Fatal(err)
			}
		}
		if err := j.Append(chunk); err != nil {
			t.Fatal(err)
		}
	}
}

// told is what a session comes to, wherever its texts are.
func told(t *testing.T, store *Store, s *State) (messages []model.Message, bodies []MessageAdded) {
	t.Helper()
	messages, err := store.Messages(context.Background(), "ses-1", s.Conversation(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Bodies(context.Background(), "ses-1", s.Entries(), func(_ *Entry, b *Body) error {
		bodies = append(bodies, b.MessageAdded)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return messages, bodies
}

// A session whose texts are in its journal says the same as one that has them in
// memory: live, opened again, looked at and branched.
func TestTextsThatAreInTheJournal(t *testing.T) {
	for _, summarised := range []bool{false, true} {
		t.Run(fmt.Sprint(summarised), func(t *testing.T) {
			records := longLife(summarised)
			all := foldOf(t, records)
			wantMessages, held := all.Conversation().Held()
			if !held || len(wantMessages) == 0 {
				t.Fatal("what was not written is not in memory")
			}
			store := open(t, OSDisk{}, t.TempDir())
			store.leastIndexed = math.MaxInt64 // with an index another part of it is in memory
			_, wantBodies := told(t, store, all)
			check := func(what string, s *State) {
				t.Helper()
				if s.heldBytes > maxHeld || len(s.held) == len(s.order) {
					t.Errorf("%s: it holds %d bytes of %d entries", what, s.heldBytes, len(s.held))
				}
				if _, held := s.Conversation().Held(); held {
					t.Errorf("%s: the whole conversation is in memory", what)
				}
				messages, bodies := told(t, store, s)
				if !cmp.Equal(messages, wantMessages) {
					t.Errorf("%s: the model reads %d messages that differ from the %d it should", what, len(messages),
						len(wantMessages))
				}
				if !cmp.Equal(bodies, wantBodies) {
					t.Errorf("%s: the entries differ", what)
				}
				if s.Tokens() != all.Tokens() || s.Fixed() != all.Fixed() || s.Conversation().Kinds() != all.Conversation().
					Kinds() || s.Said != all.Said {
					t.Errorf("%s: got %d and %d tokens, %+v, want %d and %d, %+v", what, s.Tokens(), s.Fixed(),
						s.Conversation().Kinds(), all.Tokens(), all.Fixed(), all.Conversation().Kinds())
				}
				first, older, _ := s.Cut(100_000)
				wantFirst, wantOlder, _ := all.Cut(100_000)
				got, err := store.Messages(context.Background(), "ses-1", older, 0)
				if want, _ := wantOlder.Held(); err != nil || first != wantFirst || !cmp.Equal(got, want) {
					t.Errorf("%s: a summary would be of %d messages before %s, %v", what, len(got), first, err)
				}
			}
			s, j, err := store.Create("ses-1", records[:1])
			if err != nil {
				t.Fatal(err)
			}
			inChunks(t, s, j, records[1:])
			check("live", s)
			if n := store.inMemory.Load(); n != int64(s.heldBytes) {
				t.Errorf("%d bytes are counted of %d", n, s.heldBytes)
			}
			if err := j.Close(); err != nil || store.inMemory.Load() != 0 {
				t.Errorf("closed, %d bytes are counted, %v", store.inMemory.Load(), err)
			}
			s, j, _, err = store.Load(context.Background(), "ses-1")
			if err != nil {
				t.Fatal(err)
			}
			check("opened again", s)
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			peeked, err := store.Peek(context.Background(), "ses-1")
			if err != nil {
				t.Fatal(err)
			}
			check("looked at", peeked)

			chain, _ := peeked.Chain("")
			branch := []Record{{t0, Created{SessionID: "ses-2", ParentID: "ses-1"}}}
			for _, e := range chain {
				branch = append(branch, Copy(e))
			}
			b, j, err := store.Create("ses-2", append(branch, Record{t0, TitleSet{Title: "two"}}))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = j.Close() }()
			got, err := store.Messages(context.Background(), "ses-2", b.Conversation(), 0)
			if err != nil || !cmp.Equal(got, wantMessages) || b.Title != "two" || b.heldBytes > maxHeld {
				t.Errorf("the branch reads %d messages, %v, is %q and holds %d bytes", len(got), err, b.Title, b.heldBytes)
			}
		})
	}
}

// Where the journal is not as it was, anyone who wants a text of it is told so, and gets
// no other; what is in memory stays.
func TestTextsOfAJournalThatChanged(t *testing.T) {
	for name, c := range map[string]struct {
		change func(path string) error
		want   error
	}{
		"deleted": {os.Remove, ErrNotFound},
		"shorter": {func(path string) error { return os.Truncate(path, 1000) }, errMoved},
		"another": {func(path string) error {
			return os.WriteFile(path, bytes.Repeat([]byte("x\n"), 1<<22), 0o600)
		}, errMoved},
		"a folder": {func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) }, nil},
		"a link": {func(path string) error {
			return errors.Join(os.Rename(path, path+".kept"), os.Symlink(path+".kept", path))
		}, nil},
		"shifted by another message": {func(path string) error {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return os.WriteFile(path, bytes.ReplaceAll(text, []byte(`"id":"m00-1"`), []byte(`"id":"m00-9"`)), 0o600)
		}, errMoved},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			store := open(t, OSDisk{}, dir)
			records := longLife(false)
			s, j, err := store.Create("ses-1", records[:1])
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = j.Close() }()
			inChunks(t, s, j, records[1:])
			if err := c.change(filepath.Join(dir, "sessions", "ses-1.jsonl")); err != nil {
				t.Fatal(err)
			}
			entries, n := s.Entries(), 0
			count := func(*Entry, *Body) error { n++; return nil }
			if err := store.Bodies(context.Background(), "ses-1", entries[:1], count); err == nil || c.want != nil &&
				!errors.Is(err, c.want) || n != 0 {
				t.Errorf("got %d texts, %v; want %v", n, err, c.want)
			}
			if err := store.Bodies(context.Background(), "ses-1", entries[len(entries)-1:], count); err != nil || n != 1 {
				t.Errorf("of what is in memory: got %d texts, %v", n, err)
			}
			if len(store.bodies) != 0 {
				t.Errorf("%d journals are open", len(store.bodies))
			}
			chain, _ := s.Chain("")
			branch := []Record{{t0, Created{SessionID: "ses-2", ParentID: "ses-1"}}}
			for _, e := range chain {
				branch = append(branch, Copy(e))
			}
			if _, _, err := store.Create("ses-2", branch); err == nil {
				t.Error("it is branched")
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "sessions", "ses-2*")); len(left) > 0 {
				t.Errorf("the branch has left %v", left)
			}
		})
	}
}

// What many open sessions have in memory is bounded together.
func TestManySessionsShareTheirMemory(t *testing.T) {
	store := open(t, OSDisk{}, t.TempDir())
	records := longLife(false)
	for n := range 5 {
		id := fmt.Sprintf("ses-%d", n+1)
		records[0].Fact = Created{SessionID: id}
		s, j, err := store.Create(id, records[:1])
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = j.Close() }()
		inChunks(t, s, j, records[1:])
	}
	if n := store.inMemory.Load(); n > maxAllHeld+maxHeld {
		t.Errorf("5 sessions have %d MiB in memory", n>>20)
	}
}

// What waits for its model is not copied while the session has it in memory anyway,
// and does not keep it there.
func TestAConversationThatWaitsIsNotACopy(t *testing.T) {
	store := open(t, OSDisk{}, t.TempDir())
	s := foldOf(t, life())
	read := func(c Conversation) []model.Message {
		t.Helper()
		messages, err := store.Messages(t.Context(), "ses-1", c, 0)
		if err != nil {
			t.Fatal(err)
		}
		return messages
	}
	all := s.Conversation()
	want, _ := all.Held()
	waits := all.Unread()
	if got := read(waits); len(want) == 0 || &got[0] != &want[0] || len(got) != len(want) {
		t.Error("the messages are a copy")
	}
	want = slices.Clone(want)
	all = Conversation{}
	s.path.forget()
	runtime.GC()
	if waits.lent.Value() != nil {
		t.Error("what waits keeps the messages in memory")
	}
	if got := read(waits); !cmp.Equal(got, want) {
		t.Errorf("got %d other messages", len(got))
	}
}
