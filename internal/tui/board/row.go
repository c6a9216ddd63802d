package board

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"noused/internal/format"
	"noused/internal/protocol"
	"noused/internal/tui/cell"
)

// State is what a session needs.
type State int

// The states, in the order of the board.
const (
	NeedsYou State = iota // it waits for an approval, or failed and nobody has looked
	Working               // a run goes on
	Done                  // a run has ended and nobody has looked
	Idle
	states
)

// of is the state of each need.
var of = map[protocol.Need]State{
	protocol.NeedAnswer: NeedsYou, protocol.NeedLook: NeedsYou, protocol.NeedPatience: Working,
	protocol.NeedReading: Done, protocol.NeedNothing: Idle,
}

// String is the state's heading.
func (s State) String() string {
	return [states]string{"needs you", "working", "done, unread", "idle"}[s]
}

// Bounds of what is kept of a row, in bytes.
const (
	maxTitle = 256
	maxText  = 512
)

// row is one session.
type row struct {
	id     ID
	info   protocol.SessionInfo
	state  State
	place  place
	tree   tree
	search string // folded

	tail  string // of the message that is being said, since its last line break
	whole bool   // tail is all of that
}

// place is where a row stands. Rank is the time by which a state is ordered, so
// that the smaller one comes first.
type place struct {
	state  State
	folder folder
	need   protocol.Need
	rank   int64
}

// set takes in what list_sessions says.
func (r *row) set(info protocol.SessionInfo) {
	if info.Working != nil {
		working := *info.Working
		info.Working = &working
	}
	r.info, r.whole = info, false
	r.settle()
}

// settle finds out where the row belongs.
func (r *row) settle() {
	i := &r.info
	need := i.Need()
	r.state = of[need]
	r.place = place{state: r.state, folder: folder{r.id.Host, i.Workdir}, need: need, rank: -i.UpdatedAt.UnixNano()}
	if i.Working != nil {
		r.place.rank = i.Working.StartedAt.UnixNano() // the longest first
	}
	r.search = strings.ToLower(strings.Join([]string{
		cell.Line(i.Title, maxTitle), i.Workdir, i.Model.Provider + "/" + i.Model.Name, i.SessionID, r.id.Host,
	}, "\n"))
}

// fits tells whether the filter lets the row through.
func (r *row) fits(terms []string) bool {
	return !slices.ContainsFunc(terms, func(term string) bool { return !strings.Contains(r.search, term) })
}

// apply takes in an event of the session. Unsure: it does not say all.
func (r *row) apply(ev protocol.Event, at time.Time) (unsure bool) {
	i := &r.info
	switch e := ev.(type) {
	case protocol.AgentStart:
		i.RunState, i.WaitingFor = protocol.StateRunning, ""
		i.Working = &protocol.Working{RunID: e.RunID, StartedAt: at, Since: at}
	case protocol.AgentEnd:
		i.RunState, i.Working, i.WaitingFor = protocol.StateIdle, nil, ""
		i.LastStopReason, i.Unread, i.UpdatedAt = e.StopReason, true, at
	case protocol.TurnStart:
		r.doing(e.RunID, "", at)
		return false
	case protocol.ToolStart:
		r.doing(e.RunID, e.ToolName, at)
		return false
	case protocol.ToolEnd:
		r.doing(e.RunID, "", at)
		return false
	case protocol.MessageStart:
		r.tail, r.whole = "", true
		return e.Role == "user" && i.Title == ""
	case protocol.MessageUpdate:
		r.hear(e.Delta)
		return false
	case protocol.MessageEnd:
		r.heard(e)
		return false
	case protocol.Status:
		unsure = r.status(e, at)
	default:
		return false
	}
	r.settle()
	return unsure
}

// status takes in a status. One that is not known here may change anything.
func (r *row) status(e protocol.Status, at time.Time) (unsure bool) {
	switch e.Code {
	case protocol.StatusAbortRequested:
		r.info.RunState = protocol.StateAborting
	case protocol.StatusTitleSet:
		r.info.Title = e.Title
	case protocol.StatusMarkedRead:
		r.info.Unread = false
	case protocol.StatusRunResumed:
		r.info.RunState = protocol.StateRunning
		r.doing(e.RunID, "", at)
	case protocol.StatusSteerQueued, protocol.StatusFollowUpQueued, protocol.StatusInputWithdrawn,
		protocol.StatusCompacting, protocol.StatusCompacted, protocol.StatusJournalRepaired:
	default:
		return true
	}
	return false
}

// doing notes what the run does from now on.
func (r *row) doing(run, tool string, at time.Time) {
	w := r.info.Working
	if w == nil {
		w = &protocol.Working{RunID: run, StartedAt: at}
		r.info.Working, r.info.RunState = w, protocol.StateRunning
		defer r.settle()
	}
	w.ToolName, w.Since = tool, at
}

// hear takes in a piece of what the model says. Where the beginning of the line
// was not heard, the line is not known: it would be told with a hole in it.
func (r *row) hear(delta string) {
	if len(delta) > maxText {
		delta, r.tail, r.whole = format.CutStart(strings.TrimRight(delta, " \t\r\n"), maxText), "", true
	}
	for {
		line, rest, ended := strings.Cut(delta, "\n")
		if r.whole {
			r.tail = format.Cut(r.tail+line, maxText)
		}
		if r.whole && strings.TrimSpace(r.tail) != "" {
			r.info.LastText = r.tail
		}
		if !ended {
			return
		}
		r.tail, r.whole, delta = "", true, rest
	}
}

func (r *row) heard(e protocol.MessageEnd) {
	r.tail, r.whole = "", false
	r.info.Messages++
	text := strings.TrimSpace(format.CutStart(strings.TrimRight(e.Text, " \t\r\n"), maxText))
	if e.Role == "user" || text == "" {
		return
	}
	r.info.LastText = format.Cut(text[strings.LastIndexByte(text, '\n')+1:], maxText)
}

// title is what the session is called.
func (r *row) title() string {
	return cmp.Or(format.Unmarked(cell.Line(r.info.Title, maxTitle)), "(no title)")
}

// said is the last line of the latest answer.
func (r *row) said() string { return format.Unmarked(cell.Line(r.info.LastText, maxText)) }

// does says what the session needs or is doing, and since when.
func (r *row) does(now time.Time) string {
	i := r.info
	switch {
	case i.WaitingFor == protocol.WaitApproval:
		what := "waits for approval"
		if i.Working != nil && i.Working.ToolName != "" {
			what += " of " + cell.Line(i.Working.ToolName, maxTitle)
		}
		return what
	case i.WaitingFor != "":
		return "waits for " + cell.Line(string(i.WaitingFor), maxTitle)
	case r.state == NeedsYou:
		return "failed"
	case r.state == Working:
		return r.works(now)
	case i.LastStopReason == protocol.StopAborted && r.state == Done:
		return "aborted"
	}
	return ""
}

func (r *row) works(now time.Time) string {
	what := "answering"
	w := r.info.Working
	switch {
	case r.info.RunState == protocol.StateAborting:
		what = "aborting"
	case w == nil:
		return "running"
	case w.ToolName != "":
		what = cell.Line(w.ToolName, maxTitle)
	}
	if w == nil || w.Since.IsZero() {
		return what
	}
	return what + " " + format.Elapsed(now.Sub(w.Since))
}
