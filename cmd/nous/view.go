package main

import (
	"fmt"
	"strings"
	"time"

	"noused/internal/client/plain"
	"noused/internal/format"
	"noused/internal/plaintext"
	"noused/internal/protocol"
)

// runView is how prompt shows a run: event lines for scripts, text for people.
func (a *app) runView() runView {
	if a.json {
		return jsonView{a}
	}
	return &textView{a: a}
}

type jsonView struct{ a *app }

func (v jsonView) event(_ protocol.Event, raw []byte) { v.a.printJSON(raw) }

// lastView writes the run's last answer when the run has ended, and why it
// ended where that was not by itself.
type lastView struct {
	a    *app
	text string
}

func (v *lastView) event(ev protocol.Event, _ []byte) {
	switch ev := ev.(type) {
	case protocol.MessageEnd:
		if ev.Role == "assistant" {
			v.text = ev.Text
		}
	case protocol.AgentEnd:
		if v.text != "" {
			v.a.println(v.text)
		}
		v.a.explainEnd(ev)
	}
}

// textView writes what the assistant says to standard output and nothing else;
// the rest goes to standard error. open and thinking say on which of the two
// a line is unfinished. A prompt's own text is not repeated. A message whose
// beginning was missed is written at its end.
type textView struct {
	a        *app
	kind     string          // of the turn
	began    bool            // the current message's beginning was seen
	missed   strings.Builder // what was heard of a message whose beginning was not
	said     int             // bytes of the current message that were written
	open     bool
	thinking bool
}

func (v *textView) event(ev protocol.Event, _ []byte) {
	switch ev := ev.(type) {
	case protocol.TurnStart:
		v.endMessage()
		v.kind = plain.KindWord(ev.Kind)
	case protocol.MessageStart:
		v.endMessage()
		v.began = true
		if ev.Role == "user" && v.kind != "prompt" && ev.Text != "" {
			v.note("%s: %s", v.kind, plain.OneLine(ev.Text, plain.LineWidth))
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
				v.note("warning: the answer was cut off at the model's length limit")
			case ev.StopReason == protocol.StopEnd && ev.Text == "" && len(ev.ToolCalls) == 0:
				v.note("the model said nothing")
			}
		}
		v.began = false
	case protocol.ToolStart:
		v.note("→ %s", plain.CallHead(ev))
	case protocol.ToolUpdate:
		if text := strings.TrimRight(ev.Delta, "\n"); text != "" && !ev.OfResult {
			v.note("%s", format.Indent(plaintext.Clean(text), "  "))
		}
	case protocol.ToolEnd:
		v.toolEnd(ev)
	case protocol.Status:
		switch ev.Code {
		case protocol.StatusAbortRequested, protocol.StatusSteerQueued, protocol.StatusFollowUpQueued:
		case protocol.StatusApprovalRequested, protocol.StatusApprovalResolved: // asking reports them
		default:
			v.note("%s", ev.Message)
		}
	case protocol.Warning:
		v.note("warning: %s", ev.Message)
	case protocol.ErrorEvent:
		v.note("error: %s", plain.ErrorText(ev.Code, ev.Message, ev.Cause))
	case protocol.AgentEnd:
		v.agentEnd(ev)
	}
}

func (v *textView) update(ev protocol.MessageUpdate) {
	if ev.ThinkingDelta != "" {
		v.freshLine()
		fmt.Fprint(v.a.err, v.a.errStyle.Paint(plain.Dim, plaintext.Clean(ev.ThinkingDelta)))
		v.thinking = true
	}
	switch {
	case ev.Delta == "":
	case v.began:
		v.say(ev.Delta)
	default:
		v.missed.WriteString(ev.Delta)
	}
}

func (v *textView) say(text string) {
	v.endThinking()
	v.a.print(text)
	v.said += len(text)
	v.open = !strings.HasSuffix(text, "\n")
}

// endMessage ends the line that a message left open. Of one whose end does not come
// either, what was heard is written.
func (v *textView) endMessage() {
	v.endThinking()
	if v.missed.Len() > 0 {
		v.say(v.missed.String())
	}
	if v.open {
		v.a.println("")
	}
	v.missed.Reset()
	v.began, v.said, v.open = false, 0, false
}

func (v *textView) endThinking() {
	if v.thinking {
		fmt.Fprintln(v.a.err)
		v.thinking = false
	}
}

// freshLine keeps what goes to standard error off the end of the assistant's
// line where both meet on a terminal.
func (v *textView) freshLine() {
	if v.open && v.a.outStyle.Terminal && v.a.errStyle.Terminal && !v.thinking {
		fmt.Fprintln(v.a.err)
		v.open = false
	}
}

func (v *textView) note(format string, args ...any) {
	v.endThinking()
	v.freshLine()
	v.a.notef(format, args...)
}

func (v *textView) mark(mark, format string, args ...any) {
	v.endThinking()
	v.freshLine()
	fmt.Fprint(v.a.err, mark, " ")
	v.a.notef(format, args...)
}

func (v *textView) toolEnd(ev protocol.ToolEnd) {
	took := (time.Duration(ev.DurationMS) * time.Millisecond).String()
	switch {
	case ev.Skipped:
		v.note("- %s skipped", ev.ToolName)
	case ev.OK:
		v.mark(v.a.errStyle.Paint(plain.Green, "✓"), "%s %s %s", ev.ToolName, took, plain.OneLine(ev.Result, plain.LineWidth))
	default:
		why := ev.Result
		if ev.Error != nil {
			why = plain.ErrorText(ev.Error.Code, ev.Error.Message, "")
		}
		v.mark(v.a.errStyle.Paint(plain.Red, "✗"), "%s %s %s", ev.ToolName, took, plain.OneLine(why, plain.LineWidth))
	}
}

func (v *textView) agentEnd(ev protocol.AgentEnd) {
	v.endMessage()
	v.a.explainEnd(ev)
}

// explainEnd tells why a run did not end by itself.
func (a *app) explainEnd(ev protocol.AgentEnd) {
	a.handBack(ev.Discarded)
	switch {
	case ev.Error != nil:
		a.complain(plain.ErrorText(ev.Error.Code, ev.Error.Message, ""))
	case ev.StopReason == protocol.StopAborted:
		a.complain("the run was aborted")
	case ev.StopReason == protocol.StopError:
		a.complain("the run ended in error")
	}
}
