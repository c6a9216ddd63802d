package transcript

import (
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/client/conversation"
	"noused/internal/protocol"
)

// Load replaces everything by what get_messages told, and the message that was being
// streamed then, as conversation.Load does. The place that is looked at stays, and so does
// what is folded.
func (t *Transcript) Load(entries []jsontext.Value, ended []protocol.EndedRun, partial *protocol.Partial) error {
	old, at, follow, focus := t.known, t.top, t.follow, t.focus
	var looked string
	if !follow && at.block < len(t.blocks) {
		looked = t.blocks[at.block].Key
	}
	t.notes = slices.DeleteFunc(t.notes, func(n note) bool { return n.summing })
	err := t.talk.Load(entries, ended, partial)
	for key, b := range t.known {
		if was := old[key]; was != nil {
			b.fold = was.fold
		}
	}
	if focus != nil {
		t.focus = t.known[focus.Key]
	}
	if looked != "" && t.known[looked] != nil {
		for i, b := range t.blocks {
			if b.Key == looked {
				t.top, t.follow = place{i, at.piece, at.line}, false
			}
		}
	}
	t.findAgain()
	return err
}

// SetRunning says of a session that was just loaded whether it has an active run.
func (t *Transcript) SetRunning(active bool) { t.talk.SetRunning(active) }

// SetLastRun says how the latest run of a session that was just loaded ended.
func (t *Transcript) SetLastRun(last protocol.LastRun) { t.talk.SetLastRun(last) }

// Apply takes one live event of this session, in the order of the events; at is
// when it happened.
func (t *Transcript) Apply(ev protocol.Event, at time.Time) {
	switch ev := ev.(type) {
	case protocol.Warning:
		if ev.Code == "provider_retry" {
			t.retries(ev, at)
			return
		}
	case protocol.Status:
		if ev.Code == protocol.StatusCompacting {
			t.Notice("status", ev.Message)
			t.notes[len(t.notes)-1].summing = true
			return
		}
	case protocol.MessageUpdate, protocol.ToolStart, protocol.AgentEnd, protocol.ErrorEvent:
		t.dropRetry()
	}
	t.talk.Apply(ev, at)
}

// folding is a transcript as its conversation's view.
type folding Transcript

func (d *folding) Emptied() { (*Transcript)(d).clear() }

func (d *folding) Inserted(e *conversation.Entry, i int) {
	t := (*Transcript)(d)
	t.changes++
	b := newBlock(e)
	t.known[e.Key] = b
	t.blocks = slices.Insert(t.blocks, i, b)
	if i+1 < len(t.blocks) {
		t.blocks[i+1].dirty() // a blank line may stand before it now
		if t.top.block >= i {
			t.top.block++
		}
	}
}

func (d *folding) Grew(e *conversation.Entry) { d.known[e.Key].grown() }

func (d *folding) Changed(e *conversation.Entry) {
	d.changes++
	d.known[e.Key].dirty()
}

func (d *folding) Dropped(n int) {
	t := (*Transcript)(d)
	t.changes++
	for _, b := range t.blocks[:n] {
		delete(t.known, b.Key)
		if b == t.focus {
			t.focus = nil
		}
	}
	older := newBlock(t.talk.Entries()[0])
	t.known[older.Key] = older
	t.blocks = append([]*block{older}, t.blocks[n:]...)
	t.blocks[1].dirty()
	if t.top.block -= n - 1; t.top.block < 0 {
		t.top = place{}
	}
}

func (d *folding) Noticed(kind, text string) { (*Transcript)(d).Notice(kind, text) }
