//go:build sim

package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"noused/internal/protocol"
	"noused/internal/session/sessiontest"
)

// What clients were answered about a session has to fit one order of all that happened to
// it: what was announced happened then, and an answer is true at some moment between the
// command and its reply. An answer that nobody got says nothing.

// deed is what happened to a session, or what a client wanted of it.
type deed struct {
	what  string // began, queued, delivered, withdrawn, cleared, decided, cut, goes on; accept, take back, abort, answer
	id    string // of a text, a key or an approval
	ids   []string
	key   string
	state *queueState // of began
}

// queueState is what of a session's queue, keys and approvals answers are about.
type queueState struct {
	pending   []string
	seen      map[string]bool // texts that were ever accepted
	withdrawn map[string]bool
	cleared   []string          // what the latest abort handed back
	keys      map[string]string // the text that a key was accepted for
	decided   map[string]string // by approval, the option, "-" where none was taken, "?" where nobody knows
	cut       bool              // a hosted agent was stopped for a steer, or may have been before: it stays
}

func (s *queueState) clone() *queueState {
	return &queueState{
		slices.Clone(s.pending), maps.Clone(s.seen), maps.Clone(s.withdrawn), slices.Clone(s.cleared),
		maps.Clone(s.keys), maps.Clone(s.decided), s.cut,
	}
}

// happened notes what was announced. w.mu is held.
func (w *world) happened(session string, d deed) {
	w.tick += 2
	w.record(session, porcupine.Operation{ClientId: 0, Input: d, Call: w.tick, Return: w.tick + 1})
}

// answered notes what a client was told. w.mu is held.
func (w *world) answered(c *client, session string, sent int64, d deed, ok bool) {
	w.tick += 2
	n := slices.Index(w.clients, c)
	w.record(session, porcupine.Operation{
		ClientId: 1 + n*100 + c.sent%100, Input: d, Call: sent, Output: ok, Return: w.tick,
	})
}

func (w *world) record(session string, op porcupine.Operation) {
	if w.holed(session) {
		return
	}
	at := fmt.Sprintf("daemon %d %s", w.life.number, session)
	if w.ops[at] == nil { // it goes on from what the journal has
		begins := deed{what: "began", state: stateOf(w.stories[session])}
		begins.state.cut = w.hosted[session] != ""
		w.ops[at] = []porcupine.Operation{{Input: begins, Call: 0, Return: 1}}
	}
	w.ops[at] = append(w.ops[at], op)
}

func stateOf(s *sessiontest.Story) *queueState {
	q := &queueState{
		seen: map[string]bool{}, withdrawn: map[string]bool{}, keys: map[string]string{}, decided: map[string]string{},
	}
	if s == nil {
		return q
	}
	for _, in := range s.Pending {
		if in.Kind != protocol.KindPrompt {
			q.pending = append(q.pending, in.InputID)
		}
	}
	for id, in := range s.Inputs {
		q.seen[id] = true
		if in.Key != "" {
			q.keys[in.Key] = id
		}
	}
	maps.Copy(q.withdrawn, s.Withdrawn)
	for id := range s.Decided {
		q.decided[id] = "?"
	}
	return q
}

// noteEvent has the history know of an event.
func (w *world) noteEvent(ev protocol.Event) {
	in := ev.Where().SessionID
	switch ev := ev.(type) {
	case protocol.TurnEnd:
		if ev.StopReason == protocol.StopSteered && w.hosted[in] != "" {
			w.happened(in, deed{what: "cut"})
		}
	case protocol.TurnStart:
		w.happened(in, deed{what: "goes on"})
		if ev.Kind == protocol.KindPrompt {
			w.happened(in, deed{what: "seen", ids: ev.InputIDs})
		}
	case protocol.MessageStart:
		if ev.InputID != "" {
			w.happened(in, deed{what: "delivered", id: ev.InputID})
		}
	case protocol.AgentEnd:
		w.happened(in, deed{what: "cleared"})
	case protocol.Status:
		switch ev.Code {
		case protocol.StatusSteerQueued, protocol.StatusFollowUpQueued:
			w.happened(in, deed{what: "queued", id: ev.InputID})
		case protocol.StatusInputWithdrawn:
			w.happened(in, deed{what: "withdrawn", id: ev.InputID})
		case protocol.StatusAbortRequested:
			w.happened(in, deed{what: "cleared"})
		case protocol.StatusApprovalResolved:
			option := ev.Option
			if option == "" {
				option = "-"
			}
			w.happened(in, deed{what: "decided", id: ev.ApprovalID, key: option})
		}
	}
}

// noteReply has the history know of an answer.
func (c *client) noteReply(cmd *command, r reply) {
	w := c.w
	in, _ := cmd.payload["session_id"].(string)
	key, _ := cmd.payload["idempotency_key"].(string)
	switch {
	case cmd.typ == "withdraw" && r.OK:
		w.answered(c, in, cmd.sent, deed{what: "take back", id: cmd.payload["input_id"].(string)}, true)
	case cmd.typ == "withdraw" && strings.HasPrefix(r.Error.Message, "not_pending"):
		w.answered(c, in, cmd.sent, deed{what: "take back", id: cmd.payload["input_id"].(string)}, false)
	case cmd.typ == "abort" && r.OK:
		d := deed{what: "abort"}
		for _, text := range r.Payload.Discarded {
			if text.Kind != protocol.KindPrompt { // which waits for its turn, in no queue
				d.ids = append(d.ids, text.InputID)
			}
		}
		w.answered(c, in, cmd.sent, d, true)
	case key != "" && r.OK && r.Payload.InputID != "":
		w.answered(c, in, cmd.sent, deed{what: "accept", id: r.Payload.InputID, key: key}, true)
	case cmd.typ == "approve":
		id := cmd.payload["approval_id"].(string)
		d := deed{what: "answer", id: id, key: cmd.payload["option"].(string)}
		switch {
		case r.OK:
			w.answered(c, sessionAsking(id), cmd.sent, d, true)
		case strings.HasPrefix(r.Error.Message, "approval_resolved"):
			w.answered(c, sessionAsking(id), cmd.sent, d, false)
		}
	}
}

// orders says how a session's queue, keys and approvals may change, and which answers are
// true of them.
var orders = porcupine.Model{
	Init:  func() any { return stateOf(nil) },
	Equal: func(a, b any) bool { return a == b || fmt.Sprint(*a.(*queueState)) == fmt.Sprint(*b.(*queueState)) },
	Step: func(state, input, output any) (bool, any) {
		s, d := state.(*queueState), input.(deed)
		if ok, isAnswer := output.(bool); isAnswer {
			next, fits := s.fits(d, ok)
			return fits, next
		}
		if d.what == "began" {
			return true, d.state
		}
		return true, s.after(d)
	},
}

func (s *queueState) after(d deed) *queueState {
	n := s.clone()
	gone := func(id string) bool { return id == d.id }
	switch d.what {
	case "seen":
		for _, id := range d.ids {
			n.seen[id] = true
		}
	case "cut", "goes on":
		n.cut = d.what == "cut"
	case "queued":
		n.pending, n.seen[d.id] = append(n.pending, d.id), true
	case "delivered":
		n.pending, n.seen[d.id] = slices.DeleteFunc(n.pending, gone), true
	case "withdrawn":
		n.pending, n.withdrawn[d.id] = slices.DeleteFunc(n.pending, gone), true
	case "cleared":
		n.cleared, n.pending = n.pending, nil
	case "decided":
		n.decided[d.id] = d.key
	}
	return n
}

// fits tells whether an answer is true of the state, and what is known then.
func (s *queueState) fits(d deed, ok bool) (*queueState, bool) {
	switch d.what {
	case "accept":
		before, known := s.keys[d.key]
		if !s.seen[d.id] || known && before != d.id {
			return s, false
		}
		if !known {
			s = s.clone()
			s.keys[d.key] = d.id
		}
		return s, true
	case "take back":
		return s, ok && s.withdrawn[d.id] || !ok && (s.cut || !slices.Contains(s.pending, d.id))
	case "abort": // a second one hands nothing back
		return s, len(d.ids) == 0 || slices.Equal(d.ids, s.cleared)
	default: // answer
		option, decided := s.decided[d.id]
		return s, decided && (!ok || option == "?" || option == d.key)
	}
}

// linearizable returns the first part of a history whose answers fit no order.
func linearizable(ops map[string][]porcupine.Operation) string {
	for _, at := range sorted(ops) {
		if porcupine.CheckOperationsTimeout(orders, ops[at], 5*time.Second) == porcupine.Illegal {
			text := at + ": no order of what happened fits the answers:"
			for _, op := range ops[at] {
				text += fmt.Sprintf("\n\t%d to %d, %d: %+v %v", op.Call, op.Return, op.ClientId, op.Input, op.Output)
			}
			return text
		}
	}
	return ""
}
