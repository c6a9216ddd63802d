package transcript

import (
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/protocol"
)

// entry is an entry of get_messages, whichever it is.
type entry struct {
	protocol.Message
	Summary     string       `json:"summary"`
	Attachments []attachment `json:"attachments"`
}

// attachment is a file that was sent with a text.
type attachment struct {
	MediaType string `json:"media_type"`
	Name      string `json:"name"`
	Size      int64  `json:"size"`
	Path      string `json:"path"`
}

// runTotals is what is known of the run that is shown last.
type runTotals struct {
	id     string
	kind   protocol.Kind // of its turn
	turns  int
	input  bool // the last entry was a user's: another one is of the same turn
	usage  protocol.Usage
	begun  bool // something of it was shown
	closed bool // its end was
}

// Load replaces everything by what get_messages told, and the message that was
// being streamed then. An entry of an unknown type is shown as such. What live
// events told of the same blocks and entries do not have (what a tool wrote
// while it ran; of an older daemon, how a run ended) stays, and so does the place that is looked at. An
// entry that cannot be read is shown as it is; the error is that of the first.
func (t *Transcript) Load(entries []jsontext.Value, ended []protocol.EndedRun, partial *protocol.Partial) error {
	old, at, follow, focus := t.known, t.top, t.follow, t.focus
	var looked string
	if !follow && at.block < len(t.blocks) {
		looked = t.blocks[at.block].key
	}
	t.clear()
	t.ended = make(map[string]*ending, len(ended))
	for _, run := range ended {
		t.ended[run.RunID] = endingOf(run)
	}
	t.blocks = make([]*block, 0, len(entries)+16)
	var first error
	for i, raw := range entries {
		var e entry
		if err := json.Unmarshal(raw, &e); err != nil {
			if first == nil {
				first = fmt.Errorf("entry %d of get_messages: %w", i, err)
			}
			e = entry{}
		}
		t.loadEntry(i, e, raw, old)
	}
	if partial != nil && partial.MessageID != "" && !t.said[partial.MessageID] {
		b := t.message(assistant, partial.MessageID)
		b.live = true
		b.body.add(partial.Text)
	}
	if old["r:"+t.run.id] != nil || t.ended[t.run.id] != nil {
		t.leaveRun(old)
	}
	t.ended = nil // of the runs that end from now on, events tell
	for key, b := range t.known {
		if was := old[key]; was != nil {
			b.inherit(was)
		}
	}
	if focus != nil {
		t.focus = t.known[focus.key]
	}
	if looked != "" && t.known[looked] != nil {
		for i, b := range t.blocks {
			if b.key == looked {
				t.top, t.follow = place{i, at.piece, at.line}, false
			}
		}
	}
	t.findAgain()
	return first
}

// SetRunning tells of a session that was just loaded whether it has an active
// run: then the first of its tool calls without a result is running, else none
// of them gets one and the last run is over.
func (t *Transcript) SetRunning(active bool) {
	switch {
	case !active:
		t.loseCalls()
		t.leaveRun(nil)
	case len(t.open) > 0 && t.open[0].tool.state == waiting:
		t.open[0].tool.state = running
		t.open[0].dirty()
	}
}

// SetLastRun tells how the latest run of a session that was just loaded ended,
// which no entry does.
func (t *Transcript) SetLastRun(last protocol.LastRun) {
	if b := t.known["r:"+last.RunID]; b != nil && b.end.err == nil {
		b.end.reason, b.end.err = last.StopReason, last.Error
		b.dirty()
	}
}

func (t *Transcript) loadEntry(i int, e entry, raw jsontext.Value, old map[string]*block) {
	if e.RunID != "" && e.RunID != t.run.id {
		t.leaveRun(old)
	}
	switch {
	case e.Type == "compaction":
		b := t.add(compaction, "c:"+keyOr(e.ID, i))
		b.body.add(e.Summary)
	case e.Type != "message" && (e.Type != "" || e.Role == ""):
		t.addUnknown(i, raw)
	case e.Role == "user":
		t.enterRun(e.RunID)
		t.loseCalls()
		if !t.run.input {
			t.run.input = true
			t.run.turns++
		}
		b := t.message(user, keyOr(e.ID, i))
		b.label, b.attached = string(e.TurnKind), e.Attachments
		b.body.add(e.Text)
		t.said[e.ID] = true
	case e.Role == "assistant":
		t.enterRun(e.RunID)
		t.loseCalls()
		id := keyOr(e.ID, i)
		if e.Thinking != "" {
			t.message(thinking, id).body.add(e.Thinking)
		}
		t.endAssistant(id, e.Text, e.StopReason, e.ToolCalls)
		t.run.input = false
		t.count(e.Usage)
	case e.Role == "tool":
		t.enterRun(e.RunID)
		t.run.input = false
		b := t.call(e.ToolCallID, e.ToolName, nil)
		b.tool.result, b.tool.outputs = bounded(e.Text), e.Outputs
		b.lasted(e.DurationMS)
		switch {
		case e.OK == nil || *e.OK:
			b.tool.state = succeeded
		case e.NotRun == protocol.NotRunSteered:
			b.tool.state = skipped
		case e.NotRun == protocol.NotRunAborted: // who was there was told of no result
			b.tool.state, b.tool.result = lost, ""
		default:
			b.tool.state = failed
		}
		t.closeCall(b)
	default:
		t.addUnknown(i, raw)
	}
}

func keyOr(id string, i int) string {
	if id == "" {
		return fmt.Sprint("entry ", i)
	}
	return id
}

func (t *Transcript) addUnknown(i int, raw jsontext.Value) {
	b := t.add(unknown, fmt.Sprint("x:", i))
	b.body.plain = true
	b.body.add(bounded(string(raw)))
}

// add appends an empty block, or returns the one that has the key.
func (t *Transcript) add(k kind, key string) *block {
	if b := t.known[key]; b != nil {
		return b
	}
	b := &block{kind: k, key: key}
	b.body.plain = k == user || k == thinking || k == notice
	t.insert(b, nil)
	return b
}

// message is a message's block of one kind: what was thought stands before what
// was said.
func (t *Transcript) message(k kind, id string) *block {
	if k == thinking {
		if b := t.known["t:"+id]; b != nil {
			return b
		}
		b := &block{kind: thinking, key: "t:" + id}
		b.body.plain = true
		t.insert(b, t.known["m:"+id])
		return b
	}
	return t.add(k, "m:"+id)
}

// call is a tool call's block.
func (t *Transcript) call(id, name string, args jsontext.Value) *block {
	b := t.known["k:"+id]
	if b == nil {
		b = t.add(tool, "k:"+id)
		b.tool = &toolCall{}
		t.open = append(t.open, b)
	}
	b.tool.name = name
	if len(args) > 0 {
		b.tool.args = args
	}
	return b
}

// closeCall notes that a call has its result.
func (t *Transcript) closeCall(b *block) {
	b.dirty()
	for i, o := range t.open {
		if o == b {
			t.open = append(t.open[:i], t.open[i+1:]...)
			return
		}
	}
}

// loseCalls says of calls without a result that there will be none: something
// else came after them.
func (t *Transcript) loseCalls() {
	for _, b := range t.open {
		b.tool.state = lost
		b.dirty()
	}
	t.open = nil
}

// enterRun notes which run is shown.
func (t *Transcript) enterRun(id string) {
	if id == "" {
		return
	}
	if id != t.run.id {
		t.leaveRun(nil)
		t.run = runTotals{id: id, kind: protocol.KindPrompt}
	}
	t.run.begun = true
}

// leaveRun draws the line under a run whose end was not seen, or seen before the
// transcript was loaded anew.
func (t *Transcript) leaveRun(old map[string]*block) {
	if !t.run.begun || t.run.closed {
		return
	}
	t.run.closed = true
	b := t.add(runEnd, "r:"+t.run.id)
	switch was := old[b.key]; {
	case t.ended[t.run.id] != nil:
		b.end = t.ended[t.run.id]
	case was != nil:
		b.end = was.end
	default:
		b.end = &ending{turns: t.run.turns, usage: t.run.usage}
	}
}

func endingOf(run protocol.EndedRun) *ending {
	return &ending{reason: run.StopReason, turns: run.Turns, usage: run.Usage, err: run.Error, took: time.Duration(run.DurationMS) * time.Millisecond}
}

func (t *Transcript) count(u *protocol.Usage) {
	if u == nil {
		return
	}
	t.run.usage.InputTokens += u.InputTokens
	t.run.usage.OutputTokens += u.OutputTokens
	t.run.usage.CachedTokens += u.CachedTokens
	if u.Cost != nil {
		sum := *u.Cost
		if was := t.run.usage.Cost; was != nil {
			sum.Amount += was.Amount
		}
		t.run.usage.Cost = &sum
	}
}

// endAssistant completes an assistant's message.
func (t *Transcript) endAssistant(id, text string, stop protocol.StopReason, calls []protocol.ToolCall) {
	b := t.known["m:"+id]
	if b == nil && (text != "" || remark(stop) != "") {
		b = t.message(assistant, id)
	}
	if b != nil {
		b.body.set(text)
		b.label, b.live = string(stop), false
		b.dirty()
	}
	t.endThought(id)
	t.said[id] = true
	for _, c := range calls {
		t.call(c.ID, c.Name, c.Arguments)
	}
}

func (t *Transcript) endThought(id string) {
	if b := t.known["t:"+id]; b != nil && b.live {
		b.live = false
		b.dirty()
	}
}

// Apply takes one live event of this session, in the order of the events; at is
// when it happened. Events of messages and calls that are already complete
// change nothing.
func (t *Transcript) Apply(ev protocol.Event, at time.Time) {
	switch ev := ev.(type) {
	case protocol.AgentStart:
		t.enterRun(ev.RunID)
	case protocol.TurnStart:
		t.enterRun(ev.RunID)
		t.run.kind = ev.Kind
		t.run.turns++
	case protocol.MessageStart:
		t.startMessage(ev)
	case protocol.MessageUpdate:
		t.updateMessage(ev, at)
	case protocol.MessageEnd:
		t.endMessage(ev)
	case protocol.ToolStart:
		t.enterRun(ev.RunID)
		if b := t.call(ev.ToolCallID, ev.ToolName, ev.Arguments); !b.tool.state.over() {
			b.tool.state, b.began = running, at
			b.dirty()
		}
	case protocol.ToolUpdate:
		if b := t.call(ev.ToolCallID, ev.ToolName, nil); !b.tool.state.over() {
			b.tool.state = running
			if !ev.OfResult { // which comes whole
				b.tool.update(ev.Delta, ev.Update)
			}
			b.dirty()
		}
	case protocol.ToolEnd:
		t.endCall(ev)
	case protocol.AgentEnd:
		t.endRun(ev)
	case protocol.Status:
		switch ev.Code {
		case protocol.StatusSteerQueued, protocol.StatusFollowUpQueued, protocol.StatusAbortRequested, protocol.StatusMarkedRead, protocol.StatusToolsChanged,
			protocol.StatusSettingChanged, protocol.StatusJobEnded, protocol.StatusSessionDeleted,
			protocol.StatusApprovalRequested, protocol.StatusApprovalResolved: // told by who shows the question
		default:
			t.Notice("status", ev.Message)
		}
	case protocol.Warning:
		if b := t.known["k:"+ev.ToolCallID]; b != nil {
			b.tool.note("warning: " + coded(ev.Code, ev.Message))
			b.dirty()
			return
		}
		t.Notice("warning", coded(ev.Code, ev.Message))
	case protocol.ErrorEvent:
		text := coded(ev.Code, ev.Message)
		if ev.Cause != "" {
			text += "\ncause: " + ev.Cause
		}
		t.Notice("error", text)
	}
}

func coded[S ~string](code S, message string) string {
	switch {
	case code == "":
		return message
	case message == "":
		return string(code)
	}
	return string(code) + ": " + message
}

func (t *Transcript) startMessage(ev protocol.MessageStart) {
	t.enterRun(ev.RunID)
	if ev.Role != "user" || t.said[ev.MessageID] || ev.Text == "" && len(ev.Attachments) == 0 {
		return // an older core may say the text later, or not at all
	}
	b := t.message(user, ev.MessageID)
	b.label = string(t.run.kind)
	for _, a := range ev.Attachments {
		b.attached = append(b.attached, attachment{MediaType: a.MediaType, Name: a.Name, Size: a.Size, Path: a.Path})
	}
	b.body.set(ev.Text)
	b.dirty()
}

func (t *Transcript) updateMessage(ev protocol.MessageUpdate, at time.Time) {
	if t.said[ev.MessageID] {
		return
	}
	t.enterRun(ev.RunID)
	if ev.ThinkingDelta != "" {
		b := t.message(thinking, ev.MessageID)
		if !b.live {
			b.live, b.began = true, at
			b.dirty()
		}
		b.body.add(ev.ThinkingDelta)
		b.grown()
	}
	if ev.Delta != "" {
		t.endThought(ev.MessageID)
		b := t.message(assistant, ev.MessageID)
		b.live = true
		b.body.add(ev.Delta)
		b.grown()
	}
}

func (t *Transcript) endMessage(ev protocol.MessageEnd) {
	if t.said[ev.MessageID] {
		return
	}
	t.enterRun(ev.RunID)
	if ev.Role == "user" && ev.Text == "" && t.known["m:"+ev.MessageID] == nil {
		return
	}
	if ev.Role == "user" {
		b := t.message(user, ev.MessageID)
		b.label = string(t.run.kind)
		b.body.set(ev.Text)
		b.dirty()
		t.said[ev.MessageID] = true
		return
	}
	t.endThought(ev.MessageID)
	t.endAssistant(ev.MessageID, ev.Text, ev.StopReason, ev.ToolCalls)
	t.count(ev.Usage)
}

func (t *Transcript) endCall(ev protocol.ToolEnd) {
	b := t.call(ev.ToolCallID, ev.ToolName, nil)
	if b.tool.state.over() {
		return
	}
	b.lasted(ev.DurationMS)
	b.tool.result, b.tool.outputs, b.tool.err = bounded(ev.Result), ev.Outputs, ev.Error
	switch {
	case ev.Skipped:
		b.tool.state = skipped
	case ev.OK:
		b.tool.state = succeeded
	default:
		b.tool.state = failed
	}
	t.closeCall(b)
}

func (t *Transcript) endRun(ev protocol.AgentEnd) {
	if t.known["r:"+ev.RunID] != nil {
		return
	}
	t.loseCalls()
	for i := len(t.blocks) - 1; i >= 0 && t.blocks[i].kind != user; i-- {
		if b := t.blocks[i]; b.live {
			b.live = false
			b.dirty()
		}
	}
	b := t.add(runEnd, "r:"+ev.RunID)
	b.end = endingOf(protocol.EndedRun{StopReason: ev.StopReason, Turns: ev.Turns, Usage: ev.Usage, Error: ev.Error, DurationMS: ev.DurationMS})
	t.run.closed = true
}
