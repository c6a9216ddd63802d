package session

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"noused/internal/model"
)

// What the calls of a journal used is what its fold has used, wherever the journal
// ends, and with lines of another form in it.
func TestCallsAreThoseOfTheFold(t *testing.T) {
	store := open(t, OSDisk{}, t.TempDir())
	records := life()
	for n := range records {
		text := lines(t, records[:n+1])
		for name, c := range map[string]struct {
			text   []byte
			unread int
		}{
			"as it is": {text, 0},
			"torn":     {append(bytes.Clone(text), `{"v":1,"at":"2026-01-01T00:00:09Z","type":"mess`...), 0},
			"with other lines": {append([]byte("\n{}\nnoise\n{\"v\":1,\"at\":\"x\",\"type\":\"message\",\"data\":{}}\n"),
				text...), 4},
			"with spaces": {bytes.ReplaceAll(text, []byte(`,"type":"`), []byte(`, "type": "`)), 0},
		} {
			state := NewState()
			if _, _, err := fold(bytes.NewReader(c.text), "j", state); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(store.path("ses-1"), c.text, 0o600); err != nil {
				t.Fatal(err)
			}
			var used model.Usage
			got, err := store.Calls(context.Background(), "ses-1", NewCallReader(), func(c Call) {
				if used = used.Add(c.Usage); c.At.IsZero() || c.Model != "script" {
					t.Errorf("%s: got a call of %q at %v", name, c.Model, c.At)
				}
			})
			if err != nil || used != state.Usage || got.Unread != c.unread || got.Title != state.Title ||
				got.Workdir != state.Workdir {
				t.Fatalf("%s, after %d records: got %+v, %+v, %v\nwant %+v of %q", name, n+1, got, used, err, state.Usage,
					state.Title)
			}
		}
	}
}

// Each call has its own time and model. Those that a branch begins with are not
// its own, and a text that looks like a record is none.
func TestCallsAreToldApart(t *testing.T) {
	at := func(n int) time.Time { return t0.Add(time.Duration(n) * time.Hour) }
	answer := func(id, text, by string, in int64) Fact {
		return MessageAdded{
			ID: id, Message: model.Message{Role: model.Assistant, Text: text}, Model: by,
			Usage: &model.Usage{InputTokens: in},
		}
	}
	records := []Record{
		{at(9), Created{SessionID: "ses-2", ParentID: "ses-1", Workdir: "/src"}},
		{at(1), answer("m1", "copied", "a/one", 1)},
		{at(2), Compacted{ID: "c1", Summary: "copied, too", Usage: &model.Usage{InputTokens: 2}}},
		{at(9), ModeSet{Kind: "steer", Mode: "all"}},
		{at(10), answer("m2", `{"usage":{"input_tokens":99},"model":"x"}`, `a/"two"`, 4)},
		{at(11), MessageAdded{
			ID: "m3", Message: model.Message{Role: model.Tool, Text: `,"usage":{"input_tokens":99}`},
			Outputs: map[string]string{"usage": "99"},
		}},
		{at(12), Compacted{ID: "c2", Summary: "in short", Usage: &model.Usage{InputTokens: 8, Cost: 5}}},
		{at(13), answer("m4", "no price", "", 16)},
		{at(14), TitleSet{Title: "another"}},
	}
	for name, spaced := range map[string]bool{"as it is": false, "with spaces": true} {
		text := lines(t, records)
		if spaced {
			text = bytes.ReplaceAll(text, []byte(`,"type":"`), []byte(`, "type": "`))
		}
		store := open(t, OSDisk{}, t.TempDir())
		if err := os.WriteFile(store.path("ses-2"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		var got []Call
		about, err := store.Calls(context.Background(), "ses-2", NewCallReader(), func(c Call) { got = append(got, c) })
		want := []Call{
			{at(10).UTC(), `a/"two"`, model.Usage{InputTokens: 4}},
			{at(12).UTC(), `a/"two"`, model.Usage{InputTokens: 8, Cost: 5}},
			{at(13).UTC(), `a/"two"`, model.Usage{InputTokens: 16}},
		}
		if diff := cmp.Diff(want, got); diff != "" || err != nil || about != (Calls{Title: "another", Workdir: "/src"}) {
			t.Errorf("%s: %+v, %v (-want +got):\n%s", name, about, err, diff)
		}
	}
}

func TestCallsThatCannotBeRead(t *testing.T) {
	store := open(t, OSDisk{}, t.TempDir())
	r := NewCallReader()
	none := func(c Call) { t.Errorf("got a call, %+v", c) }
	if _, err := store.Calls(context.Background(), "ses-1", r, none); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
	if err := os.WriteFile(store.path("ses-1"), []byte(`{"v":2,"at":"2026-01-01T00:00:00Z","type":"created","data":{}}`+
		"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Calls(context.Background(), "ses-1", r, none); !errors.Is(err, errNewer) {
		t.Errorf("got %v, want errNewer", err)
	}
	if err := os.Symlink(store.path("ses-1"), store.path("ses-2")); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Calls(context.Background(), "ses-2", r, none); err == nil ||
		!strings.Contains(err.Error(), "ses-2") {
		t.Errorf("a link: got %v, want an error that names it", err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	left := errors.New("the client left")
	cancel(left)
	if _, err := store.Calls(ctx, "ses-1", r, none); !errors.Is(err, left) {
		t.Errorf("got %v, want %v", err, left)
	}
}
