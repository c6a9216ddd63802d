// Package alert decides which events of runs are worth a person's attention, and what is said
// about them: to the notify command of the daemon, and by the bell of the screen.
//
// Concurrency: a Watch belongs to one goroutine.
//
// It refuses to deliver anything, and to remember more than 4096 runs.
package alert

import (
	"slices"
	"time"

	"noused/internal/protocol"
)

// Kinds of alerts, as configurations name them.
const (
	Approval = "approval"
	RunEnd   = "run_end"
	RunError = "run_error"
)

// Kinds are all of these.
var Kinds = []string{Approval, RunEnd, RunError}

const maxRuns = 4096 // whose beginning is remembered

// Wish is what a person wants to learn: some of Kinds, and of runs that took at least After.
type Wish struct {
	On    []string
	After time.Duration
}

// Alert is what is said about an event. Took is how long the run took, 0 where that is not
// known.
type Alert struct {
	Kind, Message string
	Took          time.Duration
}

// Watch remembers when runs began. The zero Watch is ready to use.
type Watch struct{ began map[string]time.Time }

// Concerns reports whether a Watch needs to see an event; others change nothing.
func Concerns(ev protocol.Event) bool {
	switch ev := ev.(type) {
	case protocol.AgentStart, protocol.AgentEnd:
		return true
	case protocol.Status:
		return ev.Code == protocol.StatusApprovalRequested || ev.Code == protocol.StatusModelMissing
	}
	return false
}

// See takes in an event of a run at that time, and returns the alert, if the person wishes
// one. run is any name of the run that no other has. A run that began before the Watch is
// taken to have lasted long enough.
func (w *Watch) See(run string, ev protocol.Event, at time.Time, wish Wish) (a Alert, ok bool) {
	switch ev := ev.(type) {
	case protocol.AgentStart:
		if w.began == nil || len(w.began) >= maxRuns {
			w.began = map[string]time.Time{}
		}
		w.began[run] = at
	case protocol.Status:
		if Concerns(ev) {
			a.Kind, a.Message = Approval, ev.Message
		}
	case protocol.AgentEnd:
		start, known := w.began[run]
		delete(w.began, run)
		if known {
			a.Took = at.Sub(start)
		}
		switch {
		case known && a.Took < wish.After:
		case ev.StopReason == protocol.StopCompleted:
			a.Kind, a.Message = RunEnd, "done"
		case ev.StopReason == protocol.StopError:
			a.Kind, a.Message = RunError, "failed"
			if ev.Error != nil {
				a.Message += ": " + ev.Error.Message
			}
		}
	}
	return a, a.Kind != "" && slices.Contains(wish.On, a.Kind)
}
