package plain

import (
	"fmt"
	"strings"

	"noused/internal/client/approval"
	"noused/internal/format"
	"noused/internal/plaintext"
	"noused/internal/protocol"
)

// Tail is the end of an id, which differs where its beginning, a time, does not.
func Tail(id string) string { return id[max(0, len(id)-tailLength):] }

const tailLength = 8

// Event is an event's payload in one line.
func Event(ev protocol.Event) string {
	switch ev := ev.(type) {
	case protocol.AgentStart:
		return "session " + ev.SessionID
	case protocol.AgentEnd:
		text := fmt.Sprintf("%s after %s", ev.StopReason, format.Count(ev.Turns, "turn"))
		if ev.Error != nil {
			text += ": " + CodedLine(ev.Error.Code, ev.Error.Message, LineWidth)
		}
		return text
	case protocol.TurnStart:
		return "turn " + ev.TurnID + ": " + KindWord(ev.Kind)
	case protocol.TurnEnd:
		return "turn " + ev.TurnID + ": " + string(ev.StopReason)
	case protocol.MessageStart:
		return strings.TrimSpace(ev.Role + " " + OneLine(ev.Text, LineWidth))
	case protocol.MessageUpdate:
		if ev.ThinkingDelta != "" {
			return "thinking " + quoted(ev.ThinkingDelta)
		}
		return quoted(ev.Delta)
	case protocol.MessageEnd:
		text := ev.Role
		if n := len(ev.ToolCalls); n > 0 {
			text += ", " + format.Count(n, "tool call")
		}
		return text + " " + OneLine(ev.Text, LineWidth)
	case protocol.ToolStart:
		return CallHead(ev)
	case protocol.ToolUpdate:
		return ev.ToolName + " " + OneLine(ev.Delta, LineWidth)
	case protocol.ToolEnd:
		return fmt.Sprintf("%s %s in %d ms: %s", ev.ToolName, outcome(ev), ev.DurationMS, OneLine(ev.Result, LineWidth))
	case protocol.Status:
		switch {
		case ev.Approval != nil:
			return string(ev.Code) + ": " + ev.Approval.ApprovalID + " " + approval.Summary(*ev.Approval, LineWidth)
		case ev.Code == protocol.StatusApprovalResolved:
			return string(ev.Code) + ": " + ev.ApprovalID + " " + approval.Outcome(ev)
		}
		return OneLine(string(ev.Code)+": "+ev.Message, LineWidth)
	case protocol.Warning:
		return OneLine(string(ev.Code)+": "+ev.Message, LineWidth)
	case protocol.ErrorEvent:
		return OneLine((&protocol.Error{Code: ev.Code, Message: ev.Message, Cause: ev.Cause}).Text(), LineWidth)
	default:
		return ""
	}
}

// CallHead is a call in one line, or the beginning of it.
func CallHead(ev protocol.ToolStart) string {
	shown, left := plaintext.RevealHead(ev.ToolName+" "+string(ev.Arguments), LineWidth)
	if left > 0 {
		shown += fmt.Sprintf(" … %d bytes more", left)
	}
	return shown
}

func outcome(ev protocol.ToolEnd) string {
	switch {
	case ev.Skipped:
		return "skipped"
	case ev.OK:
		return "ok"
	default:
		return "failed"
	}
}

// quoted keeps a delta's spaces and line breaks visible.
func quoted(text string) string { return fmt.Sprintf("%.100q", text) }
