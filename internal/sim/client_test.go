//go:build sim

package sim

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
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
	runs    map[string]string // by input
	former  []*command        // answers to approvals
	rewinds []taken           // that were done

	cursor event.Cursor
	of     *life // that cursor is of
	last   uint64
}

// command is a line that a client sent.
type command struct {
	typ     string
	payload map[string]any
	life    *life
	hangUp  context.CancelFunc
	sent    int64
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
		RewindID  string                    `json:"rewind_id"`
		ParentID  string                    `json:"parent_id"`
		LastSeq   int                       `json:"last_seq"`
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
	if above := w.grandparent(); above != "" && w.rng.IntN(8) == 0 {
		c.send("abort", map[string]any{"session_id": above})
		return
	}
	if child := w.answering(); child != "" && w.rng.IntN(10) == 0 {
		w.doomed[child] = true
		c.send("delete_session", map[string]any{"session_id": child})
		return
	}
	in := c.chooses()
	text := func() map[string]any {
		w.texts++
		p := map[string]any{
			"session_id": in, "text": fmt.Sprintf("text %d", w.texts),
			"idempotency_key": fmt.Sprint("key-", w.texts),
		}
		switch w.rng.IntN(4) {
		case 0:
			p["text"] = p["text"].(string) + "\n!t.x\n!t.ask {\"n\":1}"
		case 1:
			p["text"] = p["text"].(string) + "\n!t.ask"
		}
		if w.families && w.rng.IntN(3) == 0 {
			p["text"] = p["text"].(string) + w.delegations(in, 0)
		}
		if w.rng.IntN(8) == 0 {
			image := base64.StdEncoding.AppendEncode(nil, fmt.Append([]byte("\x89PNG\r\n\x1a\n"), w.texts%3))
			p["attachments"] = []map[string]any{{"data": string(image), "media_type": "image/png", "name": "a"}}
		}
		return p
	}
	w.mu.Lock()
	asked := sorted(w.open)
	w.mu.Unlock()
	switch n := w.rng.IntN(36); n {
	case 0, 1, 2, 3, 4, 5:
		p := text()
		p["wait"] = w.rng.IntN(4) == 0
		if kind := w.rng.IntN(3); kind > 0 {
			p["streaming_behavior"] = []string{"", "steer", "follow_up"}[kind]
		} else if w.rng.IntN(2) == 0 {
			p["max_cost"] = float64(20*(1+w.rng.IntN(3))*perToken) / 1e9
		}
		c.send("prompt", p)
	case 6, 7:
		if len(asked) > 0 {
			w.sometimes("a steer while an approval waits")
		}
		c.send("steer", text())
	case 8, 9:
		p := text()
		if w.rng.IntN(2) == 0 {
			p["if_idle"] = "prompt"
		}
		c.send("follow_up", p)
	case 10:
		c.send("abort", map[string]any{"session_id": in})
	case 11, 12:
		if len(c.inputs) > 0 {
			t := c.inputs[w.rng.IntN(len(c.inputs))]
			c.send("withdraw", map[string]any{"session_id": t.session, "input_id": t.input})
		}
	case 13, 14, 15, 29:
		if len(asked) > 0 && !c.answerAgain(asked[w.rng.IntN(len(asked))]) {
			c.approve(asked[w.rng.IntN(len(asked))])
		}
	case 16, 17:
		c.sendOfSessions(in)
	case 18:
		c.send("compact_session", map[string]any{"session_id": in})
	case 19:
		c.send("get_state", map[string]any{"session_id": in})
	case 20:
		c.send("list_sessions", map[string]any{})
	case 21, 22, 23:
		c.sendSetting(in)
	case 24, 25: // a client that lost patience: the same again, while the first may be under way
		if i := slices.IndexFunc(c.pending, keyed); i >= 0 {
			w.sometimes("a text is sent again while the first is under way")
			c.send(c.pending[i].typ, c.pending[i].payload)
		}
	case 27, 28:
		c.sendRewind(in)
	case 26: // its connection breaks: nobody hears the replies
		c.hangUp()
	default:
		c.read()
	}
}

// answerAgain answers another approval of the session that an open one is of, which is open
// no more, perhaps. False: the client has answered none, or does not want to.
func (c *client) answerAgain(open string) bool {
	w := c.w
	for _, again := range c.former {
		if id := again.payload["approval_id"].(string); id != open && sessionAsking(id) == sessionAsking(open) {
			if w.rng.IntN(2) == 0 {
				w.sometimes("an approval is answered again")
				c.send(again.typ, again.payload)
				return true
			}
		}
	}
	return false
}

// sessionAsking is the session that an approval's id names.
func sessionAsking(approvalID string) string { return strings.SplitN(approvalID, "-", 3)[2] }

func keyed(cmd *command) bool { return cmd.payload["idempotency_key"] != nil }

// sendOfSessions makes, branches, chooses or deletes a session.
func (c *client) sendOfSessions(in string) {
	w := c.w
	switch n := w.rng.IntN(8); {
	case n < 2 && len(w.session) > 1:
		p := map[string]any{"session_id": in}
		if w.families {
			if n := w.rng.IntN(4); n == 0 {
				p["session_id"] = w.top(in)
			} else if parent := w.parents[in]; parent != "" && n < 3 {
				p["session_id"] = parent
			}
			p["children"] = w.rng.IntN(3) > 0
		}
		w.doomed[p["session_id"].(string)] = true
		c.send("delete_session", p)
	case n == 2:
		c.send("switch_session", map[string]any{"session_id": in})
	case n < 6 && len(w.session) < 4:
		p := map[string]any{"activate": w.rng.IntN(2) == 0}
		if w.rng.IntN(2) == 0 {
			p["agent"] = makers[w.rng.IntN(len(makers))]
		}
		c.send("new_session", p)
	default:
		c.send("branch_session", map[string]any{"session_id": in})
	}
}

// sendSetting changes something that a session keeps.
func (c *client) sendSetting(in string) {
	w := c.w
	p := map[string]any{"session_id": in}
	mode := []string{"all", "one-at-a-time"}[w.rng.IntN(2)]
	switch w.rng.IntN(6) {
	case 0:
		p["mode"] = mode
		c.send("set_steering_mode", p)
	case 1:
		p["mode"] = mode
		c.send("set_follow_up_mode", p)
	case 2:
		p["mode"] = []string{"ask", "auto", "deny"}[w.rng.IntN(3)]
		w.auto = w.auto || p["mode"] == "auto"
		c.send("set_approval_mode", p)
	case 3:
		w.texts++
		p["title"] = fmt.Sprint("title ", w.texts)
		c.send("set_title", p)
	case 4:
		p["tools"] = [][]string{{"t.x"}, {"t.x", "t.ask"}}[w.rng.IntN(2)]
		if w.families {
			p["tools"] = append(p["tools"].([]string), "agent")
		}
		c.send("set_active_tools", p)
	default:
		if s := w.stories[in]; s != nil && len(s.Texts) > 0 {
			ids := sorted(s.Texts)
			p["leaf_id"] = ids[w.rng.IntN(len(ids))]
			c.send("set_leaf", p)
		}
	}
}

// hangUp ends the client's connection: the daemon may do what was sent, and nobody learns
// of it. What an abort hands back somebody has to hear of.
func (c *client) hangUp() {
	c.w.mu.Lock()
	aborts := slices.ContainsFunc(c.pending, func(cmd *command) bool { return cmd.typ == "abort" })
	if len(c.pending) == 0 || aborts {
		c.w.mu.Unlock()
		return
	}
	c.w.say("%s hangs up", c.name)
	c.w.sometimes("a client hangs up while commands are under way")
	c.w.mu.Unlock()
	for _, cmd := range c.pending {
		cmd.hangUp()
	}
	c.cutOff()
}

func (c *client) approve(id string) {
	c.w.mu.Lock()
	options := c.w.open[id].Options
	c.w.mu.Unlock()
	o, other := options[c.w.rng.IntN(len(options))], options[c.w.rng.IntN(len(options))]
	c.former = append(c.former, &command{typ: "approve", payload: map[string]any{"approval_id": id, "option": other.ID}})
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
	heard, hangUp := context.WithCancel(l.heard)
	w.mu.Lock()
	w.tick++
	cmd := &command{typ, payload, l, hangUp, w.tick}
	w.mu.Unlock()
	c.pending = append(c.pending, cmd)
	if keyed(cmd) {
		w.mu.Lock()
		w.sent[payload["idempotency_key"].(string)]++
		delete(w.refused, payload["text"].(string))
		w.mu.Unlock()
	}
	if cmd.activates() {
		w.mu.Lock()
		w.active = ""
		w.crossed = w.moving > 0 || w.crossed
		w.moving++
		w.mu.Unlock()
	}
	text, err := json.Marshal(payload)
	must(w.t, err)
	id := fmt.Sprintf("%s-%d", strings.ReplaceAll(c.name, " ", ""), c.sent)
	line := fmt.Appendf(nil, `{"v":"1","id":%q,"type":%q,"payload":%s}`, id, typ, text)
	w.mu.Lock()
	w.say("%s: %s %s", c.name, typ, text)
	w.mu.Unlock()
	go func() {
		defer hangUp()
		decoded, bad := protocol.DecodeCommand(line)
		if bad != nil {
			w.t.Errorf("%s: %v", line, bad)
			return
		}
		ctx := protocol.WithCaller(heard, protocol.Caller{PID: 7, Comm: func() string { return "sim" }})
		out := l.mux.Run(ctx, decoded)
		if later := out.Later(); later != nil {
			out = later(ctx)
		}
		if l.stopUntil(heard, "reply to "+id) != nil {
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
	if cmd.activates() {
		if w.moving--; w.moving == 0 {
			defer func() { w.crossed = false }()
		}
	}
	var r reply
	if err := json.Unmarshal(line, &r); err != nil {
		w.fail("%s: no reply: %v: %s", cmd.typ, err, line)
		return
	}
	c.noteReply(cmd, r)
	if !r.OK {
		w.say("%s: %s refused: %s %s", c.name, cmd.typ, r.Error.Code, r.Error.Message)
		if id, ok := cmd.payload["approval_id"].(string); ok && r.Error.Code == "command_rejected" {
			delete(w.open, id) // how it ended was in the journal, and was never announced
		}
		if r.Error.Code == "internal_error" && w.calm {
			w.fail("%s: %s", cmd.typ, r.Error.Message)
		}
		// one that waits for the end of its run may have been accepted before
		first := keyed(cmd) && cmd.payload["wait"] != true && w.sent[cmd.payload["idempotency_key"].(string)] == 1
		if r.Error.Code == "session_error" && first {
			w.sometimes("a text is refused since the disk failed")
			w.refused[cmd.payload["text"].(string)] = w.life.number
		}
		if r.Error.Code == "shutting_down" && cmd.payload["idempotency_key"] != nil {
			c.unsure = append(c.unsure, cmd)
		}
		return
	}
	w.say("%s: %s done", c.name, cmd.typ)
	switch cmd.typ {
	case "switch_session", "delete_session", "set_leaf", "withdraw", "set_title":
		w.ripe = 5
	}
	switch cmd.typ {
	case "switch_session":
		c.activated(cmd, r.Payload.SessionID)
	case "new_session", "branch_session":
		id := r.Payload.SessionID
		w.hosted[id], _ = cmd.payload["agent"].(string)
		c.activated(cmd, id)
		if !slices.Contains(w.session, id) {
			w.session = append(w.session, id)
		}
		cuts := w.counts["power cuts"] // a session that nothing has happened in yet may be gone after one
		if parent := w.stories[r.Payload.ParentID]; parent != nil && len(parent.Texts) > 0 {
			cuts = math.MaxInt
		}
		w.vow(cmd.typ+" made "+id, id, func(all map[string]*sessiontest.Story) bool {
			return all[id] != nil || w.counts["power cuts"] > cuts
		})
	case "delete_session":
		w.sometimes("a session is deleted")
		id := r.Payload.SessionID
		w.session = slices.DeleteFunc(w.session, func(o string) bool { return o == id })
		w.deleted(id)
		w.vow("deleted "+id, "", func(all map[string]*sessiontest.Story) bool { return all[id] == nil })
	case "prompt", "steer", "follow_up":
		a := accepted{r.Payload.SessionID, r.Payload.InputID, r.Payload.RunID}
		if r.Payload.Accepted != nil {
			a = *r.Payload.Accepted
		}
		c.accepted(cmd, a)
	case "approve":
		id := cmd.payload["approval_id"].(string)
		w.vow("answered: "+id, sessionAsking(id), func(all map[string]*sessiontest.Story) bool {
			s := all[sessionAsking(id)]
			return s != nil && s.Decided[id]
		})
	case "rewind", "undo_rewind":
		c.rewound(cmd, r.Payload.RewindID)
	case "set_title":
		in, title := cmd.payload["session_id"].(string), cmd.payload["title"].(string)
		w.vow("called: "+title, in, func(all map[string]*sessiontest.Story) bool {
			return all[in] != nil && all[in].Titles[title]
		})
	case "set_leaf":
		in, leaf := cmd.payload["session_id"].(string), cmd.payload["leaf_id"].(string)
		w.vow("moved to: "+leaf, in, func(all map[string]*sessiontest.Story) bool {
			return all[in] != nil && all[in].Leaves[leaf]
		})
	case "abort":
		in, run := cmd.payload["session_id"].(string), r.Payload.RunID
		w.vow("aborted: "+run, in, func(all map[string]*sessiontest.Story) bool {
			if all[in] == nil {
				return false
			}
			_, ok := all[in].Aborts[run]
			return ok
		})
		for _, d := range r.Payload.Discarded {
			w.tells(d.Text)
		}
		if err := w.checker.HandedBack(r.Payload.Discarded); err != nil && !w.holed(in) {
			w.fail("abort: %v", err)
		}
	case "withdraw":
		id := cmd.payload["input_id"].(string)
		in := cmd.payload["session_id"].(string)
		w.vow("withdrawn "+id, in, func(all map[string]*sessiontest.Story) bool {
			return all[in] != nil && all[in].Withdrawn[id] && all[in].Delivered[id] == 0
		})
	}
}

// activates says that a command chooses another active session, or may.
func (cmd *command) activates() bool {
	switch cmd.typ {
	case "switch_session", "branch_session", "delete_session":
		return true
	}
	return cmd.typ == "new_session" && cmd.payload["activate"] != false
}

func (c *client) activated(cmd *command, id string) {
	if w := c.w; cmd.activates() && w.moving == 0 && !w.crossed {
		w.active = id
	}
}

func (c *client) accepted(cmd *command, a accepted) {
	w := c.w
	if cmd.payload["wait"] == true { // the end of the run says so
		text := cmd.payload["text"].(string)
		w.sometimes("a prompt waits for the end of its run")
		w.vow("delivered: "+text, a.SessionID, func(all map[string]*sessiontest.Story) bool {
			s := all[a.SessionID]
			return s != nil && s.Said[text] == 1 && s.Runs[a.RunID] != ""
		})
		return
	}
	if a.InputID == "" || a.RunID == "" {
		w.fail("%s was accepted without its ids", cmd.typ)
		return
	}
	key, text := cmd.payload["idempotency_key"].(string), cmd.payload["text"].(string)
	if before := w.inputs[a.SessionID+key]; before != "" && before != a.InputID {
		w.fail("%s is input %s, and was %s before", key, a.InputID, before)
	}
	w.inputs[a.SessionID+key] = a.InputID
	c.runs[a.InputID] = a.RunID
	c.inputs = append(c.inputs, taken{a.SessionID, a.InputID})
	if !w.holed(a.SessionID) {
		w.checker.Accepted(a.InputID, a.RunID)
	}
	w.vow("accepted: "+text, a.SessionID, func(all map[string]*sessiontest.Story) bool {
		s := all[a.SessionID]
		if s == nil {
			return false
		}
		in, ok := s.Inputs[a.InputID]
		if most, is := cmd.payload["max_cost"].(float64); is && math.Abs(most*1e9-float64(in.Terms.MaxCost)) > 1 {
			return false
		}
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
		if e.Seq != c.last+1 || protocol.SeqOf(e.Line) != e.Seq {
			w.fail("%s reads event %d, number %d, after %d", c.name, protocol.SeqOf(e.Line), e.Seq, c.last)
		}
		c.last = e.Seq
	}
}
