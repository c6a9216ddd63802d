//go:build sim

package sim

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"noused/internal/event"
	"noused/internal/protocol"
	"noused/internal/session/sessiontest"
)

// client sends commands, reads events at its own pace and remembers what it was told.
type client struct {
	w       *world
	name    string
	sent    int
	pending []*command // without a reply
	unsure  []*command // the daemon was gone before it replied
	inputs  []taken

	cursor event.Cursor
	of     *life // that cursor is of
	last   uint64
}

// command is a line that a client sent.
type command struct {
	typ     string
	payload map[string]any
	life    *life
}

// taken is a text that was accepted.
type taken struct{ session, input string }

// reply is a response line.
type reply struct {
	OK      bool   `json:"ok"`
	Type    string `json:"type"`
	Payload struct {
		SessionID string                    `json:"session_id"`
		InputID   string                    `json:"input_id"`
		RunID     string                    `json:"run_id"`
		Discarded []protocol.DiscardedInput `json:"discarded"`
		Accepted  *accepted                 `json:"accepted"`
	} `json:"payload"`
	Error *struct{ Code, Message string } `json:"error"`
}

type accepted struct {
	SessionID string `json:"session_id"`
	InputID   string `json:"input_id"`
	RunID     string `json:"run_id"`
}

// act has the client do something, as the seed says.
func (c *client) act() {
	w := c.w
	if len(c.pending) > 4 {
		return
	}
	if len(c.unsure) > 0 && w.rng.IntN(2) == 0 {
		again := c.unsure[0]
		c.unsure = c.unsure[1:]
		w.sometimes("a text is sent again after the daemon was gone")
		c.send(again.typ, again.payload)
		return
	}
	if len(w.session) == 0 {
		c.send("new_session", map[string]any{})
		return
	}
	in := w.session[w.rng.IntN(len(w.session))]
	text := func() map[string]any {
		w.steps++
		p := map[string]any{
			"session_id": in, "text": fmt.Sprintf("text %d", w.steps),
			"idempotency_key": fmt.Sprint("key-", w.steps),
		}
		switch w.rng.IntN(4) {
		case 0:
			p["text"] = p["text"].(string) + "\n!t.x\n!t.ask {\"n\":1}"
		case 1:
			p["text"] = p["text"].(string) + "\n!t.ask"
		}
		return p
	}
	switch w.rng.IntN(24) {
	case 0, 1, 2, 3, 4, 5:
		p := text()
		p["wait"] = false
		if kind := w.rng.IntN(3); kind > 0 {
			p["streaming_behavior"] = []string{"", "steer", "follow_up"}[kind]
		}
		c.send("prompt", p)
	case 6, 7:
		if len(w.open) > 0 {
			w.sometimes("a steer while an approval waits")
		}
		c.send("steer", text())
	case 8, 9:
		c.send("follow_up", text())
	case 10:
		c.send("abort", map[string]any{"session_id": in})
	case 11, 12:
		if len(c.inputs) > 0 {
			t := c.inputs[w.rng.IntN(len(c.inputs))]
			c.send("withdraw", map[string]any{"session_id": t.session, "input_id": t.input})
		}
	case 13, 14, 15:
		if ids := sorted(w.open); len(ids) > 0 {
			c.approve(ids[w.rng.IntN(len(ids))])
		}
	case 16:
		if len(w.session) < 4 {
			c.send("new_session", map[string]any{"activate": w.rng.IntN(2) == 0})
		} else {
			c.send("branch_session", map[string]any{"session_id": in})
		}
	case 17:
		c.send("set_steering_mode", map[string]any{"session_id": in, "mode": []string{"all", "one-at-a-time"}[w.rng.IntN(2)]})
	case 18:
		c.send("compact_session", map[string]any{"session_id": in})
	case 19:
		c.send("get_state", map[string]any{"session_id": in})
	case 20:
		c.send("list_sessions", map[string]any{})
	case 21:
		c.send("set_approval_mode", map[string]any{"session_id": in, "mode": []string{"ask", "auto", "deny"}[w.rng.IntN(3)]})
	default:
		c.read()
	}
}

func (c *client) approve(id string) {
	a := c.w.open[id]
	options := a.Options
	o := options[c.w.rng.IntN(len(options))]
	c.send("approve", map[string]any{"approval_id": id, "option": o.ID})
}

// send gives the daemon a command, and notes what it replies.
func (c *client) send(typ string, payload map[string]any) {
	w := c.w
	l := w.life
	if !l.ready {
		return
	}
	c.sent++
	cmd := &command{typ, payload, l}
	c.pending = append(c.pending, cmd)
	text, err := json.Marshal(payload)
	must(w.t, err)
	id := fmt.Sprintf("%s-%d", strings.ReplaceAll(c.name, " ", ""), c.sent)
	line := fmt.Appendf(nil, `{"v":"1","id":%q,"type":%q,"payload":%s}`, id, typ, text)
	w.mu.Lock()
	w.say("%s: %s %s", c.name, typ, text)
	w.mu.Unlock()
	go func() {
		decoded, bad := protocol.DecodeCommand(line)
		if bad != nil {
			w.t.Errorf("%s: %v", line, bad)
			return
		}
		ctx := protocol.WithCaller(l.heard, protocol.Caller{PID: 7, Comm: func() string { return "sim" }})
		out := l.mux.Run(ctx, decoded)
		if later := out.Later(); later != nil {
			out = later(ctx)
		}
		if l.stopUntil(l.heard, "reply to "+id) != nil {
			return
		}
		c.replied(cmd, out.Append(nil, id))
	}()
}

func (c *client) replied(cmd *command, line []byte) {
	w := c.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if cmd.life.gone() {
		return
	}
	if !slices.Contains(c.pending, cmd) {
		return // it was cut off
	}
	c.pending = slices.DeleteFunc(c.pending, func(o *command) bool { return o == cmd })
	var r reply
	if err := json.Unmarshal(line, &r); err != nil {
		w.fail("%s: no reply: %v: %s", cmd.typ, err, line)
		return
	}
	if !r.OK {
		w.say("%s: %s refused: %s %s", c.name, cmd.typ, r.Error.Code, r.Error.Message)
		if id, ok := cmd.payload["approval_id"].(string); ok && r.Error.Code == "command_rejected" {
			delete(w.open, id) // how it ended was in the journal, and was never announced
		}
		if r.Error.Code == "internal_error" && w.calm {
			w.fail("%s: %s", cmd.typ, r.Error.Message)
		}
		if r.Error.Code == "shutting_down" && cmd.payload["idempotency_key"] != nil {
			c.unsure = append(c.unsure, cmd)
		}
		return
	}
	w.say("%s: %s done", c.name, cmd.typ)
	switch cmd.typ {
	case "new_session", "branch_session":
		if !slices.Contains(w.session, r.Payload.SessionID) {
			w.session = append(w.session, r.Payload.SessionID)
		}
	case "prompt", "steer", "follow_up":
		a := accepted{r.Payload.SessionID, r.Payload.InputID, r.Payload.RunID}
		if r.Payload.Accepted != nil {
			a = *r.Payload.Accepted
		}
		c.accepted(cmd, a)
	case "abort":
		if err := w.checker.HandedBack(r.Payload.Discarded); err != nil {
			w.fail("abort: %v", err)
		}
	case "withdraw":
		id := cmd.payload["input_id"].(string)
		in := cmd.payload["session_id"].(string)
		w.vow("withdrawn "+id, func(all map[string]*sessiontest.Story) bool {
			return all[in] != nil && all[in].Withdrawn[id] && all[in].Delivered[id] == 0
		})
	}
}

func (c *client) accepted(cmd *command, a accepted) {
	w := c.w
	if a.InputID == "" || a.RunID == "" {
		w.fail("%s was accepted without its ids", cmd.typ)
		return
	}
	key, text := cmd.payload["idempotency_key"].(string), cmd.payload["text"].(string)
	if before, ok := cmd.payload["accepted"]; ok && before != a.InputID {
		w.fail("%s is input %s, and was %s before", key, a.InputID, before)
	}
	c.inputs = append(c.inputs, taken{a.SessionID, a.InputID})
	w.checker.Accepted(a.InputID, a.RunID)
	w.vow("accepted: "+text, func(all map[string]*sessiontest.Story) bool {
		s := all[a.SessionID]
		if s == nil {
			return false
		}
		in, ok := s.Inputs[a.InputID]
		return ok && in.Text == text && in.RunID == a.RunID && in.Key == key && s.Keys[key] == 1
	})
}

// cutOff notes that the daemon is gone.
func (c *client) cutOff() {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	for _, cmd := range c.pending {
		if cmd.payload["idempotency_key"] != nil {
			c.unsure = append(c.unsure, cmd)
		}
	}
	c.pending = nil
}

// read takes events as a reader with its own pace does, and connects anew with what it
// knows after the daemon was gone.
func (c *client) read() {
	w := c.w
	l := w.life
	if c.of != l {
		var gap bool
		after := c.last
		epoch := ""
		if c.of != nil {
			epoch = c.of.log.Epoch()
		}
		var next uint64
		c.cursor, next, gap = l.log.Begin(epoch, &after, event.Filter{})
		if c.of != nil && !gap {
			w.fail("%s resumes in another epoch, and learns of no gap", c.name)
		}
		c.of, c.last = l, next-1
	}
	entries, batch := l.log.Entries(&c.cursor, 1+w.rng.IntN(20), nil)
	if batch.From > 0 {
		w.sometimes("a reader misses events")
		if batch.From != c.last+1 {
			w.fail("%s missed events from %d, and was at %d", c.name, batch.From, c.last)
		}
		c.last = batch.To
	}
	for _, e := range entries {
		if e.Seq != c.last+1 {
			w.fail("%s reads event %d after %d", c.name, e.Seq, c.last)
		}
		c.last = e.Seq
	}
}
