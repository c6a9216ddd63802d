package bridge

import (
	"strings"
	"time"

	"noused/internal/acp"
	"noused/internal/client/follow"
	"noused/internal/protocol"
)

// drawing is what the editor has been shown.
type drawing struct {
	entries map[string]bool // messages, and the ids of calls whose results were shown
	message string          // the one that is being said
	text    int             // bytes of it that were shown
	thought int             // and of what it thinks
	stop    protocol.StopReason
	calls   map[string]*call // that have no result yet
	order   []string
}

func newDrawing() drawing {
	return drawing{entries: map[string]bool{}, calls: map[string]*call{}}
}

// turn begins a message, unless it is the one that is shown.
func (d *drawing) turn(id string) {
	if d.message != id {
		d.message, d.text, d.thought = id, 0, 0
	}
}

// drawAll shows what was not shown yet of a snapshot. Silent: the editor does not
// want to see it. A replay waits for an editor that reads slowly.
func (w *window) drawAll(s follow.Snapshot, silent, replay bool) error {
	for _, raw := range s.Messages {
		if replay {
			if err := w.b.conn.Calm(w.ctx); err != nil {
				return err
			}
		}
		e := decodeEntry(raw)
		switch {
		case silent:
			w.draw.know(e)
		default:
			w.drawEntry(e, replay)
		}
	}
	p := s.State.Partial
	if p != nil && w.draw.entries[p.MessageID] { // it was said to the end meanwhile
		p = nil
	}
	if p != nil && silent {
		w.draw.turn(p.MessageID)
		w.draw.text = len(p.Text)
	} else if p != nil {
		w.draw.turn(p.MessageID)
		w.drawText(p.Text)
	}
	return nil
}

// know takes an entry for shown.
func (d *drawing) know(e entry) {
	d.entries[e.ID] = true
	if e.ToolCallID != "" {
		d.entries[e.ToolCallID] = true
	}
}

func (w *window) drawEntry(e entry, replay bool) {
	if w.draw.entries[e.ID] || e.ToolCallID != "" && w.draw.entries[e.ToolCallID] {
		w.draw.know(e)
		return
	}
	w.draw.know(e)
	switch {
	case e.Type == "compaction" && !replay:
		w.say(e.ID, "[The older part of the conversation was summarised.]")
	case e.Type == "compaction":
		w.say(e.ID, "The conversation up to here, summarised:\n\n"+e.Summary)
	case e.Role == "user":
		if replay || !w.own[e.InputID] {
			w.drawUser(e.ID, e.Text, e.Attachments)
		}
		delete(w.own, e.InputID)
	case e.Role == "assistant":
		w.draw.turn(e.ID)
		w.draw.stop = e.StopReason
		w.drawThought(e.Thinking)
		w.drawText(e.Text)
		for _, c := range e.ToolCalls {
			w.announce(c)
		}
	case e.Role == "tool":
		w.drawResult(e)
	}
}

func (w *window) drawUser(id, text string, images []protocol.Attachment) {
	w.update(acp.Chunk{Kind: acp.UserChunk, MessageID: id, Content: acp.TextBlock(text)})
	for _, a := range images {
		w.update(acp.Chunk{Kind: acp.UserChunk, MessageID: id, Content: linkTo(a)})
	}
}

// linkTo names the daemon's copy of an image.
func linkTo(a protocol.Attachment) acp.ContentBlock {
	name := a.Name
	if name == "" {
		name = "image"
	}
	return acp.ContentBlock{Type: "resource_link", Name: name, URI: fileURI(a.Path), MimeType: a.MediaType, Size: a.Size}
}

// drawText shows what is new of the whole text of the message that is being said.
func (w *window) drawText(whole string) {
	if len(whole) > w.draw.text {
		text := strings.ToValidUTF8(whole[w.draw.text:], "")
		w.draw.text = len(whole)
		w.update(acp.Chunk{Kind: acp.AgentChunk, MessageID: w.draw.message, Content: acp.TextBlock(text)})
	}
}

func (w *window) drawThought(whole string) {
	if len(whole) > w.draw.thought {
		text := strings.ToValidUTF8(whole[w.draw.thought:], "")
		w.draw.thought = len(whole)
		w.update(acp.Chunk{Kind: acp.ThoughtChunk, MessageID: w.draw.message, Content: acp.TextBlock(text)})
	}
}

// say shows a text that is no message of the session's.
func (w *window) say(id, text string) {
	w.update(acp.Chunk{Kind: acp.AgentChunk, MessageID: id, Content: acp.TextBlock(text)})
}

func (w *window) messageStarted(e protocol.MessageStart) {
	if w.draw.entries[e.MessageID] {
		return
	}
	if e.Role != "user" {
		w.draw.turn(e.MessageID)
		return
	}
	w.draw.entries[e.MessageID] = true
	if !w.own[e.InputID] {
		w.drawUser(e.MessageID, e.Text, e.Attachments)
	}
	delete(w.own, e.InputID)
}

func (w *window) messageUpdated(e protocol.MessageUpdate) {
	if w.draw.entries[e.MessageID] {
		return
	}
	w.draw.turn(e.MessageID)
	if e.Delta != "" {
		w.draw.text += len(e.Delta)
		w.update(acp.Chunk{Kind: acp.AgentChunk, MessageID: e.MessageID, Content: acp.TextBlock(e.Delta)})
	}
	if e.ThinkingDelta != "" {
		w.draw.thought += len(e.ThinkingDelta)
		w.update(acp.Chunk{Kind: acp.ThoughtChunk, MessageID: e.MessageID, Content: acp.TextBlock(e.ThinkingDelta)})
	}
}

func (w *window) messageEnded(e protocol.MessageEnd) {
	if e.Role == "user" {
		return
	}
	w.draw.stop = e.StopReason
	if w.draw.entries[e.MessageID] {
		return
	}
	w.draw.turn(e.MessageID)
	w.drawText(e.Text)
	w.draw.entries[e.MessageID] = true
	for _, c := range e.ToolCalls {
		w.announce(c)
	}
}

// Bounds of what a running call shows: the end of its output, in bytes, and how
// often that is told anew.
const (
	maxOutput   = 16 << 10
	outputEvery = 100 * time.Millisecond
)

// call is a tool call without a result.
type call struct {
	acp.ToolCall
	output []byte
	fresh  bool // there is output that was not told
	toldAt time.Time
}

// announce shows a call that is going to be made.
func (w *window) announce(c protocol.ToolCall) *call {
	if known := w.draw.calls[c.ID]; known != nil {
		return known
	}
	made := &call{ToolCall: describe(c, w.state.Workdir)}
	if w.draw.entries[c.ID] {
		return made
	}
	w.draw.calls[c.ID] = made
	w.draw.order = append(w.draw.order, c.ID)
	made.Update, made.Status = acp.NewToolCall, acp.Pending
	w.update(made.ToolCall)
	return made
}

func (w *window) callStarted(e protocol.ToolStart) {
	if w.draw.entries[e.ToolCallID] {
		return
	}
	w.announce(protocol.ToolCall{ID: e.ToolCallID, Name: e.ToolName, Arguments: e.Arguments})
	w.update(acp.ToolCall{Update: acp.ToolCallUpdate, ID: e.ToolCallID, Status: acp.InProgress})
}

func (w *window) callUpdated(e protocol.ToolUpdate) {
	w.planOf(e.Update)
	c := w.draw.calls[e.ToolCallID]
	if c == nil || e.OfResult || e.Delta == "" {
		return
	}
	c.output = append(c.output, e.Delta...)
	if e.Delta[len(e.Delta)-1] != '\n' {
		c.output = append(c.output, '\n')
	}
	if len(c.output) > 2*maxOutput {
		c.output = append(c.output[:0], c.output[len(c.output)-maxOutput:]...)
	}
	if c.fresh {
		return
	}
	c.fresh = true
	w.flush.Reset(max(0, outputEvery-time.Since(c.toldAt)))
}

// tellOutput shows what running calls have said.
func (w *window) tellOutput() {
	for _, c := range w.draw.calls {
		if c.fresh {
			c.fresh, c.toldAt = false, time.Now()
			tail := c.output[max(0, len(c.output)-maxOutput):]
			w.update(acp.ToolCall{
				Update: acp.ToolCallUpdate, ID: c.ID,
				Content: append([]acp.ToolContent{}, append(c.Content, acp.ToolText(strings.ToValidUTF8(string(tail), "")))...),
			})
		}
	}
}

func (w *window) callEnded(e protocol.ToolEnd) {
	if w.draw.entries[e.ToolCallID] {
		return
	}
	w.result(e.ToolCallID, e.OK, rawOutput(e.OK, e.Result, e.Outputs), e.Result, e.Attachments)
}

func (w *window) drawResult(e entry) {
	delete(w.draw.entries, e.ToolCallID) // know said so for result
	ok := e.OK != nil && *e.OK
	w.result(e.ToolCallID, ok, rawOutput(ok, e.Text, e.Outputs), e.Text, e.Attachments)
}

// endCalls ends those that were announced and are never made: of them no event
// tells.
func (w *window) endCalls() {
	for _, id := range w.draw.order {
		if w.draw.calls[id] != nil {
			w.result(id, false, nil, "not run", nil)
		}
	}
	w.draw.order = nil
}
