package runs

import (
	"fmt"
	"io"
	"strings"
	"time"

	"noused/internal/client"
	"noused/internal/client/plain"
	"noused/internal/format"
	"noused/internal/plaintext"
	"noused/internal/protocol"
)

// Console is where a run is shown, and where its approvals are asked.
type Console struct {
	*plain.Printer
	Output     *plain.Output // where the Printer writes to
	In         io.Reader
	Result     bool          // one object is printed at the end
	Daemon     client.Sender // sends commands
	Quiet      time.Duration // between checks of a run whose events may be missed
	AnswerLine func(protocol.Approval, protocol.ApprovalOption) string
}

// PersonThere tells whether somebody sees what is asked, and can answer.
func (c *Console) PersonThere() bool { return plain.IsTerminal(c.In) && c.ErrStyle.Terminal }

// NewView shows event lines to scripts, text to people.
func (c *Console) NewView() View {
	if c.JSON {
		return JSONView{c}
	}
	return &TextView{Console: c}
}

// JSONView writes events as they came.
type JSONView struct{ Console *Console }

func (v JSONView) Event(_ protocol.Event, raw []byte) { v.Console.JSONLine(raw) }

// LastView writes the run's last answer when the run has ended, and why it
// ended where that was not by itself.
type LastView struct {
	Console *Console
	text    string
}

func (v *LastView) Event(ev protocol.Event, _ []byte) {
	switch ev := ev.(type) {
	case protocol.MessageEnd:
		if ev.Role == "assistant" {
			v.text = ev.Text
		}
	case protocol.AgentEnd:
		if v.text != "" {
			v.Console.Println(v.text)
		}
		v.Console.explainEnd(ev)
	}
}

// TextView writes what the assistant says to standard output and nothing else;
// the rest goes to standard error. A prompt's own text is not repeated. A message
// whose beginning was missed is written at its end.
type TextView struct {
	Console *Console
	kind    string          // of the turn
	began   bool            // the current message's beginning was seen
	missed  strings.Builder // what was heard of a message whose beginning was not
	said    int             // bytes of the current message that were written
}

func (v *TextView) Event(ev protocol.Event, _ []byte) {
	switch ev := ev.(type) {
	case protocol.TurnStart:
		v.endMessage()
		v.kind = plain.KindWord(ev.Kind)
	case protocol.MessageStart:
		v.endMessage()
		v.began = true
		if ev.Role == "user" && v.kind != "prompt" && ev.Text != "" {
			v.Console.Notef("%s: %s", v.kind, plain.OneLine(ev.Text, plain.LineWidth))
		}
	case protocol.MessageUpdate:
		v.update(ev)
	case protocol.MessageEnd:
		if ev.Role == "assistant" {
			v.missed.Reset()
			if v.said == 0 && ev.Text != "" {
				v.say(ev.Text)
			}
			v.endMessage()
			switch {
			case ev.StopReason == protocol.StopLength:
				v.Console.Notef("warning: the answer was cut off at the model's length limit")
			case ev.StopReason == protocol.StopEnd && ev.Text == "" && len(ev.ToolCalls) == 0:
				v.Console.Notef("the model said nothing")
			}
		}
		v.began = false
	case protocol.ToolStart:
		v.Console.Notef("→ %s", plain.CallHead(ev))
	case protocol.ToolUpdate:
		if text := strings.TrimRight(ev.Delta, "\n"); text != "" && !ev.OfResult {
			v.Console.Notef("%s", format.Indent(plaintext.Clean(text), "  "))
		}
	case protocol.ToolEnd:
		v.toolEnd(ev)
	case protocol.Status:
		switch ev.Code {
		case protocol.StatusAbortRequested, protocol.StatusSteerQueued, protocol.StatusFollowUpQueued:
		case protocol.StatusApprovalRequested, protocol.StatusApprovalResolved: // asking reports them
		default:
			v.Console.Notef("%s", ev.Message)
		}
	case protocol.Warning:
		v.Console.Notef("warning: %s", ev.Message)
	case protocol.ErrorEvent:
		v.Console.Notef("error: %s", (&protocol.Error{Code: ev.Code, Message: ev.Message, Cause: ev.Cause}).Text())
	case protocol.AgentEnd:
		v.agentEnd(ev)
	}
}

func (v *TextView) update(ev protocol.MessageUpdate) {
	if ev.ThinkingDelta != "" {
		v.Console.PrintNote(ev.ThinkingDelta)
	}
	switch {
	case ev.Delta == "":
	case v.began:
		v.say(ev.Delta)
	default:
		v.missed.WriteString(ev.Delta)
	}
}

func (v *TextView) say(text string) {
	v.Console.Print(text)
	v.said += len(text)
}

// endMessage ends the line that a message left open. Of one whose end does not come
// either, what was heard is written.
func (v *TextView) endMessage() {
	if v.missed.Len() > 0 {
		v.say(v.missed.String())
	}
	v.Console.EndLine()
	v.missed.Reset()
	v.began, v.said = false, 0
}

func (v *TextView) mark(mark, format string, args ...any) {
	v.Console.FreshLine()
	fmt.Fprint(v.Console.Err, mark, " ")
	v.Console.Notef(format, args...)
}

func (v *TextView) toolEnd(ev protocol.ToolEnd) {
	took := (time.Duration(ev.DurationMS) * time.Millisecond).String()
	switch {
	case ev.Skipped:
		v.Console.Notef("- %s skipped", ev.ToolName)
	case ev.OK:
		v.mark(v.Console.ErrStyle.Paint(plain.Green, "✓"), "%s %s %s", ev.ToolName, took,
			plain.OneLine(ev.Result, plain.LineWidth))
	default:
		why := plain.OneLine(ev.Result, plain.LineWidth)
		if ev.Error != nil {
			why = plain.CodedLine(ev.Error.Code, ev.Error.Message, plain.LineWidth)
		}
		v.mark(v.Console.ErrStyle.Paint(plain.Red, "✗"), "%s %s %s", ev.ToolName, took, why)
	}
}

func (v *TextView) agentEnd(ev protocol.AgentEnd) {
	v.endMessage()
	v.Console.explainEnd(ev)
}

// UnaskedView says in the end what to do where calls were denied because nobody is
// there to be asked.
type UnaskedView struct {
	View
	Console *Console
	denied  bool
}

func (v *UnaskedView) Event(ev protocol.Event, raw []byte) {
	v.View.Event(ev, raw)
	switch ev := ev.(type) {
	case protocol.ToolEnd:
		v.denied = v.denied || ev.Error != nil && ev.Error.Code == "denied"
	case protocol.AgentEnd:
		if v.denied {
			v.Console.Notef("calls were denied because there is no terminal to ask on: with --approvals ask the run waits " +
				"for nous approve, or goes on where nous set-approval-mode says auto")
		}
	}
}

// explainEnd tells why a run did not end by itself.
func (c *Console) explainEnd(ev protocol.AgentEnd) {
	c.HandBack(ev.Discarded)
	switch {
	case ev.Error != nil:
		c.Complain(protocol.Coded(ev.Error.Code, ev.Error.Message))
	case ev.StopReason == protocol.StopAborted:
		c.Complain("the run was aborted")
	case ev.StopReason == protocol.StopError:
		c.Complain("the run ended in error")
	}
}
