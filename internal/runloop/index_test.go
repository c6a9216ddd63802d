package runloop

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
)

// Clients see the same of a long session whether there is an index beside its journal or
// not, closed or opened; it is there once the daemon has stopped, and goes with the
// session.
func TestALongSessionIsTheSameWithItsIndex(t *testing.T) {
	dir := t.TempDir()
	index := filepath.Join(dir, "sessions", "ses-1.index")
	start := func(first ...session.Record) (h *Hub, stop func()) {
		store, err := session.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		h = NewHub(Options{
			Store: store, Events: newRecorder(), Now: time.Now, Tools: tools(nil),
			NewID: func(prefix string) string {
				n++
				return fmt.Sprint(prefix, n+1)
			}, Fault: func(_ string, err error) { t.Error(err) },
		})
		if len(first) > 0 {
			if err := h.create(first, true); err != nil {
				t.Fatal(err)
			}
		}
		return h, func() {
			h.Drain(0)
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	records := []session.Record{{At: at, Fact: session.Created{SessionID: "ses-1"}}}
	add := func(f session.Fact) { records = append(records, session.Record{At: at, Fact: f}) }
	parent := ""
	for n := range 400 {
		run := fmt.Sprint("run-", n)
		add(session.RunStarted{RunID: run})
		for k, m := range []model.Message{
			{Role: model.User, Text: "and then?"},
			{Role: model.Assistant, Text: strings.Repeat("a story ", 200)},
		} {
			f := session.MessageAdded{ID: fmt.Sprintf("msg-%d-%d", n, k), ParentID: parent, RunID: run, Message: m}
			add(f)
			parent = f.ID
		}
		add(session.RunEnded{RunID: run, StopReason: "completed", Unread: true})
	}
	_, stop := start(records...)
	stop()
	if _, err := os.Stat(index); err != nil {
		t.Fatalf("there is no index: %v", err)
	}

	look := func(h *Hub) (told []string) {
		add := func(answer any) {
			text, err := json.Marshal(answer)
			if err != nil {
				t.Fatal(err)
			}
			told = append(told, string(text))
		}
		scope := protocol.Scope{SessionID: "ses-1"}
		for _, limit := range []int{1, 3, 500, 5000} {
			m, err := h.getMessages(t.Context(), protocol.GetMessagesParams{Scope: scope, Limit: &limit})
			if err != nil || len(m.Messages) != min(limit, 800) || len(m.Encoded) != (min(limit, 800)+1)/2 {
				t.Fatalf("limit %d: %d messages, %d runs, %v", limit, len(m.Messages), len(m.Encoded), err)
			}
			m.Release()
			m.Release = nil
			add(m)
			add(m.Encoded)
		}
		m, err := h.getMessages(t.Context(), protocol.GetMessagesParams{Scope: scope, LeafID: "msg-7-0"})
		if err != nil {
			t.Fatal(err)
		}
		m.Release = nil
		tree, err := h.getTree(t.Context(), protocol.GetTreeParams{Scope: scope})
		if err != nil {
			t.Fatal(err)
		}
		info, err := h.sessionInfo(t.Context(), "ses-1")
		if err != nil {
			t.Fatal(err)
		}
		add(m)
		add(tree)
		add(info)
		return told
	}
	h, stop := start()
	closed := look(h)
	if _, release, err := h.acquire(t.Context(), "ses-1"); err != nil {
		t.Fatal(err)
	} else {
		defer release()
	}
	opened := look(h)
	stop()
	if err := os.Remove(index); err != nil {
		t.Fatal(err)
	}
	h, stop = start()
	without := look(h)
	for i := range without {
		if without[i] != closed[i] || without[i] != opened[i] {
			t.Errorf("answer %d: without an index\n%.3000s\nclosed, with it\n%.3000s\nopened\n%.3000s", i, without[i], closed[i],
				opened[i])
		}
	}
	if _, err := h.deleteSession(t.Context(), protocol.DeleteSessionParams{SessionID: "ses-1"}); err != nil {
		t.Fatal(err)
	}
	stop()
	if left, _ := filepath.Glob(filepath.Join(dir, "sessions", "ses-1*")); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}
