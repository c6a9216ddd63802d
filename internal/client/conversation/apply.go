package conversation

import (
	"time"

	"noused/internal/protocol"
)

// Apply takes one live event of this session, in the order of the events; at is
// when it happened. Events of messages and calls that are already complete
// change nothing.
func (c *Conversation) Apply(ev protocol.Event, at time.Time) {
	switch ev := ev.(type) {
	case protocol.AgentStart:
		c.enterRun(ev.RunID)
	case protocol.TurnStart:
		c.enterRun(ev.RunID)
		c.run.kind = ev.Kind
	case protocol.MessageStart:
		c.startMessage(ev)
	case protocol.MessageUpdate:
		c.updateMessage(ev, at)
	case protocol.MessageEnd:
		c.endMessage(ev)
	case protocol.ToolStart:
		c.enterRun(ev.RunID)
		if e := c.call(ev.ToolCallID, ev.ToolName, ev.Arguments); !e.Call.State.Over() {
			e.Call.State, e.Began = Running, at
			c.changed(e)
		}
	case protocol.ToolUpdate:
		if e := c.call(ev.ToolCallID, ev.ToolName, nil); !e.Call.State.Over() {
			e.Call.State = Running
			if !ev.OfResult { // which comes whole
				e.Call.update(ev.Delta, ev.Update)
			}
			c.changed(e)
		}
	case protocol.ToolEnd:
		c.endCall(ev)
	case protocol.AgentEnd:
		c.agentEnded(ev)
	case protocol.Status:
		if !silent(ev.Code) {
			c.view.Noticed("status", ev.Message)
		}
	case protocol.Warning:
		if e := c.known["k:"+ev.ToolCallID]; e != nil {
			e.Call.note("warning: " + protocol.Coded(ev.Code, ev.Message))
			c.changed(e)
			return
		}
		c.view.Noticed("warning", protocol.Coded(ev.Code, ev.Message))
	case protocol.ErrorEvent:
		text := protocol.Coded(ev.Code, ev.Message)
		if ev.Cause != "" {
			text += "\ncause: " + ev.Cause
		}
		c.view.Noticed("error", text)
	}
}

// silent reports that a status says nothing to a person: it has a place of its own in
// clients, or none.
func silent(code protocol.Code) bool {
	switch code {
	case protocol.StatusSteerQueued, protocol.StatusFollowUpQueued, protocol.StatusAbortRequested,
		protocol.StatusMarkedRead,
		protocol.StatusToolsChanged, protocol.StatusSettingChanged, protocol.StatusJobEnded, protocol.StatusSessionDeleted,
		protocol.StatusApprovalRequested, protocol.StatusApprovalResolved, protocol.StatusOperationOutput:
		return true
	}
	return false
}

// cutShort reports that a message is not whole.
func cutShort(stop protocol.StopReason) bool {
	return stop == protocol.StopAborted || stop == protocol.StopError || stop == protocol.StopLength
}

func (c *Conversation) startMessage(ev protocol.MessageStart) {
	c.enterRun(ev.RunID)
	if ev.Role != "user" || c.said[ev.MessageID] || ev.Text == "" && len(ev.Attachments) == 0 {
		return // an older core may say the text later, or not at all
	}
	e := c.userSaid(ev.MessageID, ev.Text, c.run.kind, ev.Child)
	e.Attachments = append(e.Attachments, ev.Attachments...)
	c.changed(e)
}

func (c *Conversation) updateMessage(ev protocol.MessageUpdate, at time.Time) {
	if c.said[ev.MessageID] {
		return
	}
	c.enterRun(ev.RunID)
	if ev.ThinkingDelta != "" {
		e := c.messageEntry(Thinking, ev.MessageID)
		if !e.Live {
			e.Live, e.Began = true, at
			c.changed(e)
		}
		e.Text.Add(ev.ThinkingDelta)
		c.view.Grew(e)
	}
	if ev.Delta != "" {
		c.endThought(ev.MessageID)
		e := c.messageEntry(Assistant, ev.MessageID)
		e.Live = true
		e.Text.Add(ev.Delta)
		c.view.Grew(e)
	}
}

func (c *Conversation) endMessage(ev protocol.MessageEnd) {
	if c.said[ev.MessageID] {
		return
	}
	c.enterRun(ev.RunID)
	if ev.Role == "user" {
		e := c.known["m:"+ev.MessageID]
		switch {
		case e == nil && ev.Text == "":
			return
		case e == nil || e.Reported == nil: // else its start has said all
			e = c.userSaid(ev.MessageID, ev.Text, c.run.kind, nil)
		}
		c.said[ev.MessageID] = true
		c.changed(e)
		return
	}
	c.endAssistant(ev.MessageID, ev.Text, ev.StopReason, ev.ToolCalls)
	c.run.calls++
	c.count(ev.Usage)
}

func (c *Conversation) endCall(ev protocol.ToolEnd) {
	e := c.call(ev.ToolCallID, ev.ToolName, nil)
	if e.Call.State.Over() {
		return
	}
	e.lasted(ev.DurationMS)
	e.Call.ended(ev.Result, ev.Outputs)
	e.Call.Err = ev.Error
	switch {
	case ev.Skipped:
		e.Call.State = Skipped
	case ev.OK:
		e.Call.State = Succeeded
	default:
		e.Call.State = Failed
	}
	c.closeCall(e)
}

func (c *Conversation) agentEnded(ev protocol.AgentEnd) {
	if c.known["r:"+ev.RunID] != nil {
		return
	}
	c.loseCalls()
	for i := len(c.entries) - 1; i >= 0 && c.entries[i].Kind != User; i-- {
		if e := c.entries[i]; e.Live {
			e.Live = false
			c.changed(e)
		}
	}
	c.endRun(ev.RunID, endingOf(protocol.EndedRun{
		StopReason: ev.StopReason, Usage: ev.Usage, Error: ev.Error, DurationMS: ev.DurationMS,
	}))
}
