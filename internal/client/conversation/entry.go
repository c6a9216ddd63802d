package conversation

import (
	"fmt"
	"strings"
	"time"

	"noused/internal/format"
	"noused/internal/protocol"
)

// Bounds of what is kept.
const (
	MaxText    = 16 << 20 // bytes of one message
	MaxEntries = 100_000  // the oldest are let go
)

// Kind says what an entry is.
type Kind uint8

// Kinds of entries.
const (
	User Kind = iota
	Assistant
	Thinking // of the message that follows it
	Tool     // a call, with its result once there is one
	Summary  // that models read in place of what stands before; see [Summarised]
	RunEnd
	Report  // of what a child session in the background has come to
	Aside   // the client's own words, in no session
	Unknown // of a type that this client does not know; the text is its JSON
)

// Entry is one thing that was said or done. What it is of Kind says which of the
// pointers and texts it has. Only the conversation changes it.
type Entry struct {
	Kind Kind
	Key  string // unique in the conversation, and the same after each Load
	Text Text

	TurnKind    protocol.Kind       // of a User's turn
	StopReason  protocol.StopReason // of an Assistant, once it is not Live
	Attachments []protocol.Attachment
	Call        *Call     // of a Tool
	Before      int64     // of a Summary: tokens of the context, and how many it left
	After       int64     // 0 where that is not known
	End         *Ending   // of a RunEnd
	Reported    *Reported // of a Report

	Live  bool      // more of the text may come
	Began time.Time // of thinking and of calls that were seen to begin
	Took  time.Duration
	Timed bool // Took is known
}

// Ending is how a run ended.
type Ending struct {
	Reason protocol.StopReason // "" where that is not known
	Calls  int                 // of the model
	Took   time.Duration       // 0 where that is not known
	Usage  protocol.Usage
	Err    *protocol.RunError
}

// Text is a text that grows, to MaxText bytes. The zero Text is empty.
type Text struct {
	said     strings.Builder
	over     bool
	replaced int
}

func (t *Text) String() string { return t.said.String() }

// Len is in bytes.
func (t *Text) Len() int { return t.said.Len() }

// Over reports that there was more than is kept.
func (t *Text) Over() bool { return t.over }

// Replaced counts how often the text became another one, rather than a longer one.
func (t *Text) Replaced() int { return t.replaced }

// Add appends, as far as there is room.
func (t *Text) Add(s string) {
	if room := MaxText - t.said.Len(); len(s) > room {
		t.over = true
		s = format.Cut(s, room)
	}
	t.said.WriteString(s)
}

// set replaces the text.
func (t *Text) set(s string) {
	if !t.over && s == t.said.String() {
		return
	}
	*t = Text{replaced: t.replaced + 1}
	t.Add(s)
}

// lasted notes how long a call ran; of one that did not run nothing is said.
func (e *Entry) lasted(ms int64) {
	e.Took, e.Timed = time.Duration(ms)*time.Millisecond, ms > 0
}

// inherit takes over from the entry before a Load what get_messages does not say.
func (e *Entry) inherit(was *Entry) {
	if e.Call == nil || was.Call == nil {
		return
	}
	if !e.Timed { // an older daemon's
		e.Took, e.Timed = was.Took, was.Timed
	}
	e.Began = was.Began
	e.Call.inherit(was.Call)
}

func endingOf(run protocol.EndedRun) *Ending {
	return &Ending{
		Reason: run.StopReason, Usage: run.Usage, Err: run.Error,
		Took: time.Duration(run.DurationMS) * time.Millisecond,
	}
}

// Summarised is the line at which models read a summary of what stands above it, which
// left so many tokens of the context; 0 is not known.
func Summarised(before, after int64) string {
	if saved := Shrunk(before, after); saved != "" {
		return "summarised here: " + saved
	}
	return "summarised here"
}

// Shrunk says how many tokens a summary has left of how many, "" where that is not known.
func Shrunk(before, after int64) string {
	switch {
	case before <= 0:
		return ""
	case after <= 0:
		return format.Short(before) + " tokens"
	}
	return format.Short(before) + " → " + format.Short(after) + " tokens"
}

// Retrying is the line of a provider_retry while it waits, so long still: clients count it
// down.
func Retrying(w protocol.Warning, left time.Duration) string {
	text := "retrying now"
	if left > 0 {
		text = fmt.Sprintf("retrying in %d s", (left+time.Second-1)/time.Second)
	}
	switch {
	case w.Attempts > 0:
		text += fmt.Sprintf(" (%d of %d)", w.Attempt, w.Attempts)
	case w.Attempt > 0:
		text += fmt.Sprintf(" (attempt %d)", w.Attempt)
	}
	return text
}
