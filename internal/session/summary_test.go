package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"noused/internal/model"
)

func summaryOf(s *State) Summary {
	return Summary{
		ID: s.ID, Title: s.Title, ParentID: s.ParentID, CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt,
		Messages: s.Messages, Usage: s.Usage,
		Running: s.Run != nil || len(s.Pending) > 0 || s.Rewind != nil || s.LastRun.Waits,
		Workdir: s.Workdir, Unread: s.Unread, LastStop: s.LastRun.StopReason, Said: s.Said, Model: s.Model,
		Waiting: s.Run != nil && s.Run.Question.Open(), Children: s.Children, Agent: s.Agent,
	}
}

// What a list shows of a closed session is what its fold says, wherever its
// journal ends, and with lines of another form in it.
func TestASummaryIsThatOfTheFold(t *testing.T) {
	records := life()
	for n := range records {
		text := lines(t, records[:n+1])
		for name, text := range map[string][]byte{
			"as it is": text,
			"torn":     append(bytes.Clone(text), `{"v":1,"at":"2026-01-01T00:00:09Z","type":"mess`...),
			"with other lines": append([]byte("\n{}\nnoise\n{\"v\":1,\"at\":\"x\",\"type\":\"message\",\"data\":{}}\n"),
				text...),
			"with spaces": bytes.ReplaceAll(text, []byte(`,"type":"`), []byte(`, "type": "`)),
		} {
			state := NewState()
			if _, _, err := fold(bytes.NewReader(text), "j", state); err != nil {
				t.Fatal(err)
			}
			got, err := summarise(bytes.NewReader(text))
			if want := summaryOf(state); err != nil || !cmp.Equal(got, want, cmpopts.EquateEmpty()) {
				t.Fatalf("%s, after %d records: got %+v, %v\nwant %+v", name, n+1, got, err, want)
			}
		}
	}
	if _, err := summarise(strings.NewReader(`{"v":2,"at":"2026-01-01T00:00:00Z","type":"created","data":{}}` +
		"\n")); !errors.Is(err, errNewer) {
		t.Errorf("got %v for a journal of a newer version", err)
	}
}

func TestASummaryIsReadOnceForEachChange(t *testing.T) {
	store := open(t, OSDisk{}, t.TempDir())
	create(t, store, "ses-1")
	if _, ok := store.Known("ses-1"); ok {
		t.Error("known before it was read")
	}
	ctx := context.Background()
	if _, err := store.Summary(ctx, "ses-1"); err != nil {
		t.Fatal(err)
	}
	if got, ok := store.Known("ses-1"); !ok || got.ID != "ses-1" || got.Messages != 0 {
		t.Errorf("got %+v, %t", got, ok)
	}
	_, j, _, err := store.Load(ctx, "ses-1")
	if err == nil {
		err = j.Append([]Record{{t0.Add(time.Hour), user("m1", "", "", "hello")}})
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = j.Close()
	if got, ok := store.Known("ses-1"); ok {
		t.Errorf("%+v is known of a journal that has changed", got)
	}
	if got, err := store.Summary(ctx, "ses-1"); err != nil || got.Messages != 1 {
		t.Errorf("got %+v, %v", got, err)
	}
	if err := store.Delete("ses-1", t0); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Summary(ctx, "ses-1"); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

// However many sessions there are and however long their titles, what is kept of
// them is bounded.
func TestSummariesAreBounded(t *testing.T) {
	var c summaries
	for i := range 3000 {
		c.put(summarised{Summary: Summary{ID: fmt.Sprint("ses-", i), Title: strings.Repeat("x", 10_000)}})
	}
	c.put(summarised{Summary: Summary{ID: "ses-long", Title: strings.Repeat("x", maxSummaries)}})
	bytes := 0
	for _, s := range c.of {
		bytes += s.bytes()
	}
	if bytes != c.bytes || bytes > maxSummaries || bytes < maxSummaries/2 {
		t.Errorf("%d summaries take %d bytes, %d are counted, %d may be", len(c.of), bytes, c.bytes, maxSummaries)
	}
}

// A branch has messages and no run of its own: no start opens it.
func TestABranchIsNotTakenForUnfinished(t *testing.T) {
	for name, long := range map[string]int{"short": 10, "long": 2 * tailLength} {
		store := open(t, OSDisk{}, t.TempDir())
		create(t, store, "ses-1")
		create(t, store, "ses-2",
			user("m1", "", "", strings.Repeat("x", long)),
			MessageAdded{ID: "m2", ParentID: "m1", RunID: "run-1", Message: model.Message{
				Role: model.Assistant,
				Text: strings.Repeat("y", long),
			}},
			ModeSet{Kind: "steer", Mode: "all"}, Patched{Patch: []byte("{}")})
		err := store.Unfinished(context.Background(), func(id string, sure bool) {
			sum, err := store.Summary(context.Background(), id)
			if sure || err != nil || sum.Running {
				t.Errorf("%s: %s is taken for unfinished: %+v, %v", name, id, sum, err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A journal that takes long to read is given up with the client that asked.
func TestReadingEndsWithItsContext(t *testing.T) {
	store := open(t, OSDisk{}, t.TempDir())
	create(t, store, "ses-1")
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(gone)
	_, err := store.Summary(ctx, "ses-1")
	if !errors.Is(err, gone) {
		t.Errorf("Summary: got %v", err)
	}
	if _, err := store.Peek(ctx, "ses-1"); !errors.Is(err, gone) {
		t.Errorf("Peek: got %v", err)
	}
	if _, _, _, err := store.Load(ctx, "ses-1"); !errors.Is(err, gone) {
		t.Errorf("Load: got %v", err)
	}
	if _, err := os.Stat(store.path("ses-1") + damagedExt); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was not read is taken for torn: %v", err)
	}
}
