package runloop

import (
	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
)

// ticket stands for a client that waits for replies.
type ticket any

// effects is what a batch of steps wants done, in this order: the records on
// disk, the events published, the replies given, the work started.
type effects struct {
	records []session.Record
	events  []protocol.Event
	replies []reply
	work    []work
	// vouched says that a reply repeats what was promised before, maybe by a former daemon
	// that was killed before it had synced that.
	vouched bool
	said    []session.Piece    // announced of the message that is being streamed
	rules   []keptRule         // to be kept for good, before anybody hears of it
	audits  []model.AuditEvent // of what is on the disk
	cut     bool               // the hosted agent is to end its turn
	steered bool               // it is told that a steer waits
	results []callResult       // of the hosted agent's calls
	pause   bool               // the next program has it
	faults  []error            // for the log
	settle  bool               // what the turn has changed is written down
	// children are started, or stopped, once all that is on the disk.
	children []childWork
	// captures names the runs started for a client that waits for their events.
	captures []capturing
}

// capturing is a run whose events are kept for a ticket.
type capturing struct {
	to    ticket
	runID string
}

// reply answers a ticket. With ended set it is the end of the run that a
// waiting prompt asked for; with postponed set it says that the answer has to
// wait.
type reply struct {
	to        ticket
	value     any
	err       error
	ended     *runEnd
	postponed bool
	seq       uint64 // the last event before the reply
}

type runEnd struct {
	runID, output string
	said          *session.Entry // not nil: it has the output
	err           *protocol.Error
}

// work is a goroutine to start, or with none set the running one to cancel. With
// search set, tool is a call of the tool that finds others.
type work struct {
	gen    int
	call   *modelCall
	tool   *model.Invocation
	made   *session.Entry // not nil: it has the tool's arguments, of size bytes
	size   int
	search *toolset
	look   *precheck
	stop   *stopCheck
	before string // not "": a turn, for which the folder is recorded before the tool is called
	after  string // not "": a turn, for which the folder is recorded
	rewind *rewindWork
	child  *childWait // a call's child, which has been started
}

// cancels reports that it is the end of what runs.
func (w work) cancels() bool {
	return w.call == nil && w.tool == nil && w.look == nil && w.stop == nil && w.after == "" && w.rewind == nil &&
		w.child == nil
}

// waits reports that it starts once what was decided is on the disk.
func (w work) waits() bool {
	return w.tool != nil || w.rewind != nil || w.after != "" || w.child != nil
}

// precheck finds out more of a call before it is decided: what orchestrators say, and
// what it would change. With trees set it is one of the tool agent that was decided, and
// waits until all trees are known.
type precheck struct {
	inv             model.Invocation
	guarded, change bool
	trees           bool
}

// modelCall is a request to the model.
type modelCall struct {
	choice model.Choice
	req    model.Request
	// history is what the request's messages are made of, with fit.
	history session.Conversation
	fit     func([]model.Message) []model.Message

	warm bool // the folder is recorded meanwhile
	// not "": a turn, for which that folder is recorded before the agent is prompted
	before, workdir string

	agent *model.AgentTurn // not nil: a hosted agent answers, and what follows is not set

	toolset
	environment session.EnvironmentTaken // zero: not taken yet
	as          string                   // instructions of the named agent that makes the run
}
