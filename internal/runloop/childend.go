package runloop

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"noused/internal/format"
	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
)

// How the end of a child comes back to its parent.

// childEnd is how a child's run has ended. NotRun is set where it was never begun: why.
type childEnd struct {
	stop     protocol.StopReason
	code     protocol.Code
	message  string
	usage    model.Usage // of the run alone
	below    model.Usage // of its children
	children int
	counted  int // children of its tree, at least
	notRun   *model.ToolResult
}

func childEndOf(f session.RunEnded, used model.Usage) childEnd {
	end := childEnd{stop: f.StopReason, code: f.Code, message: f.Error, usage: used}
	end.children, end.counted = f.Children, f.Counted
	if f.Spent != nil {
		end.below = *f.Spent
	}
	return end
}

// fact is what the parent's journal keeps of it.
func (end childEnd) fact(c session.Child) session.ChildEnded {
	spent := end.usage.Add(end.below)
	return session.ChildEnded{
		CallID: c.CallID, ChildRunID: c.ChildRunID, Spent: &spent, Children: end.children, Counted: end.counted,
	}
}

type (
	// childDoneIn has the result of the call whose child was waited for.
	childDoneIn struct {
		gen    int
		end    childEnd
		result model.ToolResult
	}
	// childReportIn has what a child in the background has come to. It is answered once that is taken in, or with
	// tellTree where the run of the call is over, and what is left of its tree was not told.
	childReportIn struct {
		ticket ticket
		child  session.Child
		end    childEnd
		text   string
		told   bool
	}
	// childRunIn begins the run that a parent's call is for, unless it is there, and is
	// answered when that has ended, with a childEnd. Without start it begins nothing: an
	// unknown run is answered with a childUnknown.
	childRunIn struct {
		ticket ticket
		runID  string
		start  *childStart
	}
	childUnknown struct{}
)

func (in childDoneIn) step(m *machine) {
	if in.gen != m.gen || m.phase != calling {
		return
	}
	took := m.now.Sub(m.since)
	if c, ok := m.s.Run.Child(m.call.ID); ok {
		m.record(in.end.fact(c))
	}
	skipped := m.skipping && !m.s.Run.Aborting // which has handed the steer back
	m.skipping = false
	if ends := m.s.Run.Aborting || m.givesUp != nil; ends && m.s.Run.Started != m.call.ID {
		m.notRun(m.call)
		m.finish()
		return
	}
	if skipped {
		m.said = false
		in.result = model.ToolResult{
			Text: "skipped: the user steered the run, and the child session was stopped", Outputs: in.result.Outputs,
		}
	}
	m.endCall(m.call, in.result, skipped, took)
	m.call = model.ToolCall{}
	switch {
	case m.s.Run.Aborting, m.givesUp != nil:
		m.finish()
	case skipped: // and so are the others, also where the steer was taken back meanwhile
		m.skipRest()
	default:
		m.afterCall()
	}
}

// finish ends a run that stopped its children, once they have ended.
func (m *machine) finish() {
	if m.s.Run.Aborting {
		m.finishAbort()
		return
	}
	m.giveUp(m.givesUp)
}

func (in childReportIn) step(m *machine) {
	key := in.child.Key()
	run := m.s.Run
	late := run == nil || run.ID != in.child.RunID
	switch {
	case !slices.ContainsFunc(m.s.Background, func(c session.Child) bool { return c.Key() == key }): // it was told
		m.reply(in.ticket, nil)
		return
	case m.draining: // the next daemon tells
		return
	case run != nil && run.Aborting, m.phase == rewinding:
		m.postponed = append(m.postponed, in)
		return
	case late && !in.told:
		m.reply(in.ticket, tellTree{})
		return
	}
	m.reply(in.ticket, nil)
	fact := in.end.fact(in.child)
	if late {
		fact = in.end.late(in.child)
	}
	m.record(fact)
	text := session.Input{Command: session.CommandAgent, Key: key, Text: in.text}
	if run == nil { // it goes on from the run of the call, and may do no more, nor use more
		text.Approvals, text.Terms, text.Root = in.child.Approvals, in.child.Terms(), in.child.Tree()
		m.beginRun(nil, text)
		return
	}
	text.InputID, text.Kind, text.RunID = m.newID("in-"), protocol.KindFollowUp, run.ID
	m.owe(text)
	m.steered()
}

func (in childRunIn) step(m *machine) {
	ended, done := m.s.Ended(in.runID)
	switch {
	case done:
		m.out.vouched = true
		m.reply(in.ticket, childEndOf(ended.RunEnded, ended.Usage))
	case m.s.Run != nil && m.s.Run.ID == in.runID:
		m.watch(in.ticket)
	case in.start == nil:
		m.reply(in.ticket, childUnknown{})
	case m.draining:
		m.refuse(in.ticket, shuttingDown())
	case m.s.Run != nil:
		m.refuse(in.ticket, runInProgress(m.s.ID, m.s.Run.ID))
	case m.phase == rewinding:
		m.refuse(in.ticket, protocol.Rejectf(protocol.Busy, "session %s is being rewound", m.s.ID))
	case m.agentMissing() != nil:
		m.refuse(in.ticket, m.agentMissing())
	default:
		m.watch(in.ticket)
		text := session.Input{
			InputID: m.newID("in-"), Kind: protocol.KindPrompt, Command: session.CommandAgent, Text: in.start.text,
			RunID: in.runID, Approvals: in.start.approvals, Terms: in.start.terms, Root: in.start.root,
		}
		m.record(text)
		for _, l := range in.start.late {
			m.record(l.Fact())
		}
		m.openRun(text)
	}
}

// watch answers when the run ends.
func (m *machine) watch(to ticket) {
	m.watchers = append(m.watchers, to)
	m.out.replies = append(m.out.replies, reply{to: to, postponed: true})
}

// resultOf is what a model reads of a child whose run has ended.
func resultOf(c session.Child, end childEnd, workdir, answer string, files []protocol.ChangedFile,
	most int,
) model.ToolResult {
	out := childResult{
		SessionID: c.ChildID, RunID: c.ChildRunID, StopReason: end.stop, Usage: *wireUsage(&end.usage), Files: files,
		Workdir: workdir,
	}
	value, _ := json.Marshal(out)
	res := model.ToolResult{
		OK: end.stop == protocol.StopCompleted, Value: value,
		Outputs: map[string]string{
			"session_id": c.ChildID, "run_id": c.ChildRunID, "stop_reason": string(end.stop),
		},
	}
	note := "[session_id " + c.ChildID + ", folder " + format.Line(workdir) + ", " + string(end.stop)
	if end.message != "" {
		note += ": " + string(end.code) + ": " + format.Clip(format.Line(end.message), maxChildNote)
	}
	res.Text = boundAnswer(cmp.Or(answer, "no answer"), most, c.ChildID) + "\n\n" + note + filesNote(files) + "]"
	if !res.OK {
		res.Error = &model.ToolError{
			Code:    string(cmp.Or(end.code, protocol.Code(end.stop))),
			Message: "the child session's run ended: " + string(end.stop),
		}
	}
	return res
}

// childResult is the value of a call of the tool agent.
type childResult struct {
	SessionID  string                 `json:"session_id"`
	RunID      string                 `json:"run_id"`
	StopReason protocol.StopReason    `json:"stop_reason"`
	Usage      protocol.Usage         `json:"usage"`
	Workdir    string                 `json:"workdir"`
	Files      []protocol.ChangedFile `json:"files"`
}

// Bounds of what a model reads of a child, in bytes and files.
const (
	maxChildAnswer = 50 << 10
	minChildAnswer = 1 << 10
	maxChildNote   = 1 << 10
	maxChildFiles  = 100
)

// filesNote names the files that a child has changed, and those that somebody else may have changed.
func filesNote(files []protocol.ChangedFile) (note string) {
	var own, shared []string
	for _, f := range files[:min(len(files), maxChildFiles)] {
		if f.Shared {
			shared = append(shared, format.Line(f.Path))
		} else {
			own = append(own, format.Line(f.Path))
		}
	}
	if len(own) > 0 {
		note = "; files changed: " + strings.Join(own, ", ")
	}
	if len(shared) > 0 {
		note += "; files that it or somebody else changed: " + strings.Join(shared, ", ")
	}
	if more := len(files) - len(own) - len(shared); more > 0 {
		note += fmt.Sprintf(" and %d more", more)
	}
	return note
}

// boundAnswer is an answer's beginning and end where it is too long.
func boundAnswer(text string, most int, id string) string {
	room := maxChildAnswer
	if most > 0 {
		room = min(room, max(most, minChildAnswer))
	}
	if len(text) <= room {
		return text
	}
	head, tail := format.Cut(text, room*2/3), format.CutStart(text, room/3)
	return fmt.Sprintf("%s\n[… %d of %d bytes left out here; session %s has all of it …]\n%s", head,
		len(text)-len(head)-len(tail), len(text), id, tail)
}

// reportText is the message that says what a child in the background has come to.
func reportText(c session.Child, end childEnd, res model.ToolResult) string {
	did := "has ended"
	switch end.stop {
	case protocol.StopAborted:
		did = "was aborted"
	case protocol.StopError:
		did = "has failed"
	}
	return fmt.Sprintf("[%s: the background child session %q %s]\n\n%s", c.Key(), c.Description, did, res.Text)
}

// wireChild is the run that a session.ChildKey names, nil for "".
func wireChild(key string) *protocol.ChildRun {
	id, run, ok := strings.Cut(key, "@")
	if !ok {
		return nil
	}
	return &protocol.ChildRun{SessionID: id, RunID: run}
}

func wireParent(p *session.Parent) *protocol.Parent {
	if p == nil {
		return nil
	}
	return &protocol.Parent{SessionID: p.SessionID, RunID: p.RunID, ToolCallID: p.ToolCallID}
}

// childRetry is how long a parent waits before it looks again for a child whose journal
// fails.
const childRetry = time.Second

// maxVain is how often a child that is to stop, and whose journal cannot be opened, is looked for: an abort of its
// parent ends.
const maxVain = 10
