// Package sessiontest reads what the journals of sessions say, as an oracle for
// tests that kill a daemon or fail its disk (wire-v1 §7).
//
// Concurrency: a Story belongs to one goroutine.
//
// It refuses to share code with the fold it is held against.
package sessiontest

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/protocol/protocoltest"
	"noused/internal/session"
)

// Story is a session as its journal tells it, read anew so that the fold in
// package session is not its own witness: each record stands for the events
// that have to be announced with it, in that order, and those are held against
// the invariants of wire-v1 §4. Make it with New.
type Story struct {
	ID        string
	Made      bool             // it says whose it is
	Events    []string         // the essence of every event so far
	Told      []protocol.Event // those events, as far as they are known from the journal
	Parent    string
	Workdir   string
	Title     string            // that somebody gave
	Titles    map[string]bool   // all that somebody gave
	Decided   map[string]bool   // approvals that have ended, by id
	Reads     int               // how often it was marked as read
	Modes     map[string]string // by kind: "steer", "follow_up"
	Tools     []string          // the active ones, if they were chosen
	Chosen    bool
	Leaf      string
	Leaves    map[string]bool   // that a client ever moved to
	Texts     map[string]string // of every entry, by id
	Summaries map[string]bool   // of every compaction

	Inputs    map[string]session.Input
	Said      map[string]int      // how many inputs have that text
	Keys      map[string]int      // how many inputs have that idempotency key
	Delivered map[string]int      // how many messages deliver that input
	Withdrawn map[string]bool     // every input that was taken back
	Aborts    map[string][]string // what an abort took out of the queues, by run
	Calls     map[string]bool     // every tool call that was started
	Runs      map[string]string   // every run's stop reason, "" while it is active
	Rewinds   map[string]bool     // every rewind that was done
	Rewinding string              // one that has begun and not ended
	Above     *session.Parent     // of a child session
	Started   []session.ChildStarted
	Results   map[string]int         // of calls, how many
	Used      map[string]model.Usage // of every run, its children not included
	Ends      map[string]session.RunEnded
	Ended     []session.ChildEnded

	Run     string          // the active one
	Pending []session.Input // accepted and not yet delivered

	Resumed int // how often runs were resumed
	Cut     int // tool calls that a crash left without a result
	GivenUp int // runs that ended in a crash loop

	Wrong []string // what the journal says that cannot be
	Holed bool     // a power failure left holes in it: what they lack, and what follows from that, is not wrong

	checker     *protocoltest.Checker
	arguments   map[string]jsontext.Value // of calls, by id
	read        int                       // bytes of the journal that were taken in
	turn, turns int                       // turn is 0 between turns
	open        string                    // the tool call that runs
	streams     string                    // the assistant message that is being streamed
	interrupted string                    // the tool call that a crash left without a result
	aborting    bool
	unheard     []session.Input // that the end of the run hands back
	crashes     int
	parked      bool
	over        string // a call that was not run, as the run is aborted or given up
	about       string // the call of the latest approval
	hosted      bool   // by another agent
	asks        bool   // an approval waits, or was answered and the call has not begun
}

// New returns the story of a session, nothing of it read yet.
func New(id string) *Story { return NewIn(id, protocoltest.NewChecker()) }

// NewIn is New for a story that is held against what the checker has seen.
func NewIn(id string, checker *protocoltest.Checker) *Story {
	return &Story{
		ID: id, checker: checker, arguments: map[string]jsontext.Value{}, Modes: map[string]string{
			"steer":     "one-at-a-time",
			"follow_up": "one-at-a-time",
		},
		Titles: map[string]bool{}, Decided: map[string]bool{},
		Withdrawn: map[string]bool{}, Leaves: map[string]bool{}, Texts: map[string]string{}, Summaries: map[string]bool{},
		Inputs: map[string]session.Input{}, Said: map[string]int{}, Keys: map[string]int{}, Delivered: map[string]int{},
		Aborts: map[string][]string{}, Calls: map[string]bool{}, Runs: map[string]string{},
		Rewinds: map[string]bool{}, Results: map[string]int{}, Used: map[string]model.Usage{},
		Ends: map[string]session.RunEnded{},
	}
}

// Owed are the runs that have to end: the active one, or one that was promised
// and not started.
func (s *Story) Owed() map[string]bool {
	runs := map[string]bool{}
	if s.Run != "" {
		runs[s.Run] = true
	}
	for _, in := range s.Pending {
		runs[in.RunID] = true
	}
	return runs
}

// Done reports texts that were neither delivered nor handed back, and runs that
// have not ended.
func (s *Story) Done() error { return s.checker.Done() }

// Take reads what the journal has gained since the last time. A torn last line
// was not announced.
func (s *Story) Take(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if len(text) < s.read {
		return fmt.Errorf("the journal has lost %d bytes of whole lines", s.read-len(text))
	}
	for {
		line, _, whole := bytes.Cut(text[s.read:], []byte("\n"))
		if !whole {
			return nil
		}
		if s.Holed && bytes.IndexByte(line, 0) >= 0 {
			s.read += len(line) + 1
			continue
		}
		var r struct {
			Type string         `json:"type"`
			Data jsontext.Value `json:"data"`
		}
		if err := json.Unmarshal(line, &r); err != nil {
			return fmt.Errorf("byte %d of the journal: %w in %.200s", s.read, err, line)
		}
		if err := s.record(r.Type, r.Data); err != nil {
			return fmt.Errorf("byte %d of the journal: %w", s.read, err)
		}
		s.read += len(line) + 1
	}
}

func (s *Story) bad(format string, args ...any) {
	if s.Holed {
		return
	}
	s.Wrong = append(s.Wrong, fmt.Sprintf(format, args...))
}

// checked is an event that the record stands for, and that may be announced again.
func (s *Story) checked(ev protocol.Event) {
	if s.Holed {
		return
	}
	s.checker.Hosted = s.hosted
	if err := s.checker.Event(ev); err != nil {
		s.bad("the journal reports events out of order: %v", err)
	}
}

// asked is an approval that waits. What the call is about stands in its message.
func (s *Story) asked(f session.ApprovalAsked) {
	if len(f.Arguments) == 0 {
		f.Arguments = s.arguments[f.CallID]
	}
	s.arguments[f.CallID] = f.Arguments
	s.asks, s.about = f.Kind != protocol.ApprovalQuestion, f.CallID
	a := &protocol.Approval{
		ApprovalID: f.ApprovalID, Kind: f.Kind, ToolCallID: f.CallID, Arguments: f.Arguments, Schema: f.Schema,
		Options: make([]protocol.ApprovalOption, len(f.Options)),
	}
	s.checked(protocol.Status{Ref: s.ref(), Code: protocol.StatusApprovalRequested, Approval: a})
}

// happened is an event that the record stands for.
func (s *Story) happened(ev protocol.Event) {
	s.checked(ev)
	if e := Essence(ev); e != "" {
		s.Events, s.Told = append(s.Events, e), append(s.Told, ev)
	}
}

func (s *Story) ref() protocol.Ref {
	ref := protocol.Ref{RunID: s.Run, SessionID: s.ID}
	if s.turn > 0 {
		ref.TurnID = strconv.Itoa(s.turn)
	}
	return ref
}

func recordOf[F session.Fact](data jsontext.Value, take func(F)) error {
	var f F
	if err := json.Unmarshal(data, &f); err != nil {
		return err
	}
	take(f)
	return nil
}

func (s *Story) record(kind string, data jsontext.Value) error {
	switch kind {
	case "created":
		return recordOf(data, func(f session.Created) {
			s.Made, s.Parent, s.Workdir, s.hosted, s.Above = true, f.ParentID, f.Workdir, f.Agent != "", f.Parent
		})
	case "title_set":
		return recordOf(data, func(f session.TitleSet) { s.Title, s.Titles[f.Title] = f.Title, true })
	case "marked_read":
		s.Reads++
	case "input":
		return recordOf(data, s.input)
	case "input_withdrawn":
		return recordOf(data, s.withdrawn)
	case "run_started":
		return recordOf(data, s.runStarted)
	case "turn_started":
		return recordOf(data, func(f session.TurnStarted) {
			s.turn, s.turns, s.asks = f.Turn, s.turns+1, false
			s.happened(protocol.TurnStart{Ref: s.ref(), Kind: f.Kind, InputIDs: f.InputIDs})
		})
	case "message_started":
		return recordOf(data, func(f session.MessageStarted) {
			s.streams = f.ID
			s.goesOn()
			s.happened(protocol.MessageStart{Ref: s.ref(), MessageID: f.ID, Role: "assistant"})
		})
	case "message":
		return recordOf(data, s.message)
	case "tool_started":
		return recordOf(data, s.toolStarted)
	case "turn_ended":
		return recordOf(data, func(f session.TurnEnded) {
			s.asks = false
			s.happened(protocol.TurnEnd{Ref: s.ref(), StopReason: f.StopReason})
			s.turn = 0
		})
	case "abort_requested":
		return recordOf(data, func(f session.AbortRequested) {
			if s.Aborts[f.RunID] = []string{}; f.AtEnd {
				s.unheard, s.Pending = s.Pending, nil
			} else {
				s.Aborts[f.RunID] = s.handBack()
			}
			s.happened(protocol.Status{Ref: s.ref(), Code: protocol.StatusAbortRequested})
			s.aborting = true
		})
	case "run_ended":
		return recordOf(data, s.runEnded)
	case "run_parked":
		s.parked = true
	case "run_resumed":
		return recordOf(data, s.runResumed)
	case "mode_set":
		return recordOf(data, func(f session.ModeSet) { s.Modes[string(f.Kind)] = string(f.Mode) })
	case "tools_set":
		return recordOf(data, func(f session.ToolsSet) { s.Tools, s.Chosen = f.Tools, true })
	case "leaf_set":
		return recordOf(data, func(f session.LeafSet) { s.Leaf, s.Leaves[f.LeafID] = f.LeafID, true })
	case "child_started":
		return recordOf(data, s.childStarted)
	case "child_ended", "patched":
		return s.spending(kind, data)
	case "rewind_begun":
		return recordOf(data, s.rewindBegun)
	case "rewind_ended":
		return recordOf(data, s.rewindEnded)
	case "approval_asked":
		return recordOf(data, s.asked)
	case "approval_decided":
		return recordOf(data, s.approvalDecided)
	case "compacted":
		return recordOf(data, func(f session.Compacted) {
			s.entry(f.ID, f.Summary)
			s.Summaries[f.Summary] = true
			s.used(f.RunID, f.Usage)
		})
	}
	return nil
}

func (s *Story) rewindBegun(f session.RewindBegun) {
	if s.Rewinding != "" || s.Run != "" {
		s.bad("rewind %s begins in run %q and rewind %q", f.RewindID, s.Run, s.Rewinding)
	}
	s.Rewinding = f.RewindID
}

func (s *Story) rewindEnded(f session.RewindEnded) {
	if s.Rewinding != f.RewindID {
		s.bad("rewind %s ends, and %q has begun", f.RewindID, s.Rewinding)
	}
	s.Rewinding, s.Rewinds[f.RewindID] = "", !f.TakenBack
}

func (s *Story) toolStarted(f session.ToolStarted) {
	if s.Calls[f.CallID] {
		s.bad("tool call %s was started twice", f.CallID)
	}
	s.Calls[f.CallID], s.open = true, f.CallID
	s.goesOn()
	s.begun(f.CallID)
	s.happened(protocol.ToolStart{Ref: s.ref(), ToolCallID: f.CallID, Arguments: s.arguments[f.CallID]})
}

func (s *Story) approvalDecided(f session.ApprovalDecided) {
	s.Decided[f.ApprovalID] = true
	if s.about == "" && f.Outcome == protocol.OutcomeAllowed { // the model is asked next
		s.asks = false
	}
	by := protocol.ByWord(cmp.Or(f.By, "a person"))
	s.checked(protocol.Status{
		Ref: s.ref(), Code: protocol.StatusApprovalResolved, ApprovalID: f.ApprovalID, Outcome: f.Outcome, By: by,
	})
}

func (s *Story) input(f session.Input) {
	if _, twice := s.Inputs[f.InputID]; twice {
		s.bad("input %s was accepted twice", f.InputID)
	}
	s.Inputs[f.InputID] = f
	s.Said[f.Text]++
	if f.Key != "" {
		s.Keys[f.Key]++
	}
	s.Pending = append(s.Pending, f)
	if !s.Holed {
		s.checker.Accepted(f.InputID, f.RunID)
	}
	if f.Kind != protocol.KindPrompt {
		s.happened(protocol.Status{Ref: s.ref(), Code: protocol.Code(f.Kind + "_queued"), InputID: f.InputID})
	}
}

// spending are records that say what was used, and stand for no event.
func (s *Story) spending(kind string, data jsontext.Value) error {
	if kind == "child_ended" {
		return recordOf(data, func(f session.ChildEnded) { s.Ended = append(s.Ended, f) })
	}
	return recordOf(data, func(f session.Patched) { s.used(f.RunID, f.Usage) })
}

// used adds to what a run of the session has used.
func (s *Story) used(run string, used *model.Usage) {
	if _, is := s.Runs[run]; is && used != nil {
		s.Used[run] = s.Used[run].Add(*used)
	}
}

func (s *Story) withdrawn(f session.Withdrawn) {
	i := slices.IndexFunc(s.Pending, func(in session.Input) bool { return in.InputID == f.InputID })
	if i < 0 || s.Pending[i].Kind == "prompt" {
		s.bad("input %s was withdrawn and did not wait", f.InputID)
		return
	}
	s.Pending = slices.Delete(s.Pending, i, i+1)
	s.Withdrawn[f.InputID] = true
	s.happened(protocol.Status{Ref: s.ref(), Code: protocol.StatusInputWithdrawn, InputID: f.InputID})
}

func (s *Story) runStarted(f session.RunStarted) {
	if _, twice := s.Runs[f.RunID]; twice {
		s.bad("run %s was started twice", f.RunID)
	}
	s.Run, s.turn, s.turns, s.open, s.aborting, s.crashes, s.parked, s.asks = f.RunID, 0, 0, "", false, 0, false, false
	s.over = ""
	s.Runs[f.RunID] = ""
	s.happened(protocol.AgentStart{Ref: s.ref()})
}

func (s *Story) entry(id, text string) {
	if _, twice := s.Texts[id]; twice {
		s.bad("entry %s is there twice", id)
	}
	s.Texts[id], s.Leaf = text, id
}

func (s *Story) message(f session.MessageAdded) {
	s.entry(f.ID, f.Message.Text)
	if s.Run != f.RunID {
		return // copied from the parent
	}
	s.used(f.RunID, f.Usage)
	if f.InputID != "" {
		s.Delivered[f.InputID]++
		s.Pending = slices.DeleteFunc(s.Pending, func(in session.Input) bool { return in.InputID == f.InputID })
	}
	ref := s.ref()
	switch f.Message.Role {
	case model.User:
		s.happened(protocol.MessageStart{Ref: ref, MessageID: f.ID, Role: "user", Text: f.Message.Text})
		s.happened(protocol.MessageEnd{Ref: ref, MessageID: f.ID, Role: "user", Text: f.Message.Text})
	case model.Assistant:
		end := protocol.MessageEnd{
			Ref: ref, MessageID: f.ID, Role: "assistant", Text: f.Message.Text,
			StopReason: protocol.StopReason(f.StopReason),
		}
		for _, c := range f.Message.ToolCalls {
			end.ToolCalls = append(end.ToolCalls, protocol.ToolCall{
				ID: c.ID, Name: c.Name,
				Arguments: jsontext.Value(c.Arguments),
			})
			s.arguments[c.ID] = jsontext.Value(c.Arguments)
		}
		if s.streams == "" { // of a journal older than message_started
			s.happened(protocol.MessageStart{Ref: ref, MessageID: f.ID, Role: "assistant"})
		}
		s.streams = ""
		s.happened(end)
	case model.Tool:
		s.toolResult(f.Message, f.NotRun)
	}
}

// begun forgets the approval for a call that has begun, or has its result.
func (s *Story) childStarted(f session.ChildStarted) {
	s.Started = append(s.Started, f)
	s.begun(f.CallID)
}

func (s *Story) begun(callID string) { s.asks = s.asks && s.about != callID }

func (s *Story) toolResult(m model.Message, notRun protocol.NotRun) {
	if s.Results[m.ToolCallID]++; s.Results[m.ToolCallID] > 1 {
		s.bad("call %s has its result twice", m.ToolCallID)
	}
	s.begun(m.ToolCallID)
	ref := s.ref()
	if s.interrupted != "" {
		if s.interrupted != m.ToolCallID || !strings.Contains(m.Text, "it may have done part of its work; check") {
			s.bad("tool call %s was running at the crash; the next result is %q of %s", s.interrupted, m.Text, m.ToolCallID)
		}
		s.interrupted = ""
	}
	if s.open == "" {
		if notRun == protocol.NotRunAborted { // it is not announced
			s.over = m.ToolCallID
			return
		}
		s.happened(protocol.ToolStart{Ref: ref, ToolCallID: m.ToolCallID, Arguments: s.arguments[m.ToolCallID]})
	}
	s.open = ""
	s.happened(protocol.ToolEnd{
		Ref: ref, ToolCallID: m.ToolCallID, ToolName: m.ToolName, OK: m.OK, Result: m.Text,
		Skipped: notRun == protocol.NotRunSteered,
	})
}

// handBack takes everything that waits out of the queues.
func (s *Story) handBack() []string {
	ids := []string{}
	for _, in := range s.discarded() {
		ids = append(ids, in.InputID)
		if err := s.checker.HandedBack([]protocol.DiscardedInput{in}); err != nil && !s.Holed {
			s.bad("%v", err)
		}
	}
	s.Pending = nil
	return ids
}

func (s *Story) discarded() []protocol.DiscardedInput {
	var out []protocol.DiscardedInput
	for _, in := range slices.Concat(s.unheard, s.Pending) {
		out = append(out, protocol.DiscardedInput{InputID: in.InputID, Kind: in.Kind, Text: in.Text})
	}
	return out
}

func (s *Story) runEnded(f session.RunEnded) {
	if s.Runs[f.RunID] != "" {
		s.bad("run %s ended twice", f.RunID)
	}
	if f.Code == protocol.CrashLoop {
		if s.GivenUp++; s.crashes < maxCrashes { // more, where the end was torn off
			s.bad("run %s is given up after %d crashes", f.RunID, s.crashes)
		}
	}
	end := protocol.AgentEnd{
		Ref: protocol.Ref{RunID: s.Run, SessionID: s.ID}, StopReason: f.StopReason, Turns: s.turns,
		Discarded: s.discarded(),
	}
	s.happened(end)
	s.unheard = nil
	s.Runs[f.RunID], s.Run, s.Pending, s.open = string(f.StopReason), "", nil, ""
	s.Ends[f.RunID] = f
}

// maxCrashes is how many ends of a daemon a run survives: the last of them ends it (wire-v1 §7).
const maxCrashes = 3

// goesOn is what no run does any more that has crashed the daemon that often, or whose calls were
// not run for its end.
func (s *Story) goesOn() {
	if s.crashes >= maxCrashes {
		s.bad("run %s goes on after %d crashes", s.Run, s.crashes)
	}
	if s.over != "" {
		s.bad("run %s goes on, and call %s was not run for its end", s.Run, s.over)
	}
}

func (s *Story) runResumed(f session.RunResumed) {
	switch {
	case f.RunID != s.Run:
		s.bad("run %s was resumed while %q was active", f.RunID, s.Run)
	case f.Fault, s.asks, s.waits(): // the disk failed, or the run waited: nothing of it could crash a daemon
	case !s.parked:
		s.crashes++
	}
	s.parked = false
	s.Resumed++
	if s.open != "" && !s.delegated() {
		s.interrupted = s.open
		s.Cut++
	}
	if s.streams != "" { // nothing of it was announced
		s.happened(protocol.MessageEnd{
			Ref: s.ref(), MessageID: s.streams, Role: "assistant",
			StopReason: protocol.StopReason(model.StopError),
		})
		s.streams = ""
	}
	s.happened(protocol.Status{Ref: s.ref(), Code: protocol.StatusRunResumed})
}

// delegated reports that the call which is open has a child, so that it is known what comes of it.
func (s *Story) delegated() bool {
	return slices.ContainsFunc(s.Started, func(c session.ChildStarted) bool { return c.CallID == s.open })
}

// waits reports that the call which is open waits for a child.
func (s *Story) waits() bool {
	return slices.ContainsFunc(s.Started, func(c session.ChildStarted) bool {
		return c.CallID == s.open && !c.Background
	})
}

// Essence is what of an event has to be in the journal, "" for one that need
// not be.
func Essence(ev protocol.Event) string {
	at := ev.Where()
	what := ""
	switch ev := ev.(type) {
	case protocol.AgentStart:
	case protocol.AgentEnd:
		what = fmt.Sprint(ev.StopReason, " after turns: ", ev.Turns, " discarded: ", ev.Discarded)
	case protocol.TurnStart:
		what = fmt.Sprint(ev.Kind, ev.InputIDs)
	case protocol.TurnEnd:
		what = string(ev.StopReason)
	case protocol.MessageStart:
		what = fmt.Sprint(ev.MessageID, " ", ev.Role, " ", ev.Text)
	case protocol.MessageEnd:
		what = fmt.Sprint(ev.MessageID, " ", ev.Role, " ", ev.StopReason, " ", ev.Text)
		for _, c := range ev.ToolCalls {
			what += fmt.Sprint("; ", c.ID, " ", c.Name, " ", c.Arguments)
		}
	case protocol.ToolStart:
		what = ev.ToolCallID
	case protocol.ToolEnd:
		what = fmt.Sprint(ev.ToolCallID, " ", ev.ToolName, " ", ev.OK, " ", ev.Skipped, " ", ev.Result)
	case protocol.Status:
		switch ev.Code {
		case protocol.StatusCompacting, protocol.StatusCompacted, protocol.StatusChangesUnavailable:
			return ""
		}
		if at.RunID == "" {
			return ""
		}
		what = fmt.Sprint(ev.Code, " ", ev.InputID)
	default:
		return ""
	}
	return fmt.Sprintf("%s %s turn %s: %s", ev.Type(), at.RunID, at.TurnID, what)
}
