package session

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"noused/internal/model"
	"noused/internal/protocol"
)

// Apply folds one fact in. An error means that the fact does not fit what came
// before it, and that nothing changed.
func (s *State) Apply(r Record) error {
	err := s.apply(r)
	if err == nil {
		s.applied++
	}
	return err
}

func (s *State) apply(r Record) error {
	if c, ok := r.Fact.(copied); ok {
		b := c.entry.Body()
		if b == nil {
			return fmt.Errorf("entry %.128s is in the journal alone", c.entry.ID)
		}
		r = b.record()
	}
	if err := s.fits(r.Fact); err != nil {
		return err
	}
	switch f := r.Fact.(type) {
	case Created:
		s.ID, s.ParentID, s.Workdir, s.CreatedAt = f.SessionID, f.ParentID, f.Workdir, r.At
		s.Title, s.TitleInherited = retitled(s.Title, s.TitleInherited, f)
		s.Servers, s.Agent, s.Titled = f.Servers, f.Agent, f.Title != ""
		s.Parent, s.Answers = f.Parent, slices.Clone(f.Rules)
	case MarkedRead:
		s.Unread = false
		return nil // the session is as it was
	case Input:
		s.Rewind = nil // none is accepted in the middle of one: its end's line is lost
		s.applyInput(f, r.At)
	case MessageAdded:
		f.Message.Opens, f.Child = s.Run != nil && s.Run.Fresh, cmp.Or(f.Child, s.tells(f.InputID)) // as older ones do not
		if err := s.add(&Body{MessageAdded: f, CreatedAt: r.At}); err != nil {
			return err
		}
		s.applyMessage(f)
	case Compacted:
		if s.Entry(f.FirstKeptEntryID) == nil {
			return fmt.Errorf("compaction keeps unknown entry %q", f.FirstKeptEntryID)
		}
		if err := s.add(bodyOf(r)); err != nil {
			return err
		}
		s.spend(f.RunID, f.Usage)
		s.Environment = EnvironmentTaken{}
	case EnvironmentTaken:
		s.Environment = f
	case LeafSet:
		if s.Entry(f.LeafID) == nil {
			return fmt.Errorf("leaf moved to unknown entry %q", f.LeafID)
		}
		s.Leaf, s.path = f.LeafID, s.pathTo(f.LeafID)
	case Patched:
		if err := s.patched.merge(f.Patch); err != nil {
			return err
		}
		s.spend(f.RunID, f.Usage)
	case AgentSession:
		s.AgentSession = f.ID
	case AgentTook:
		s.Taken = max(s.Taken, min(f.Texts, s.Texts))
	case JobStarted:
		s.addJob(f.Job)
	case AssetAdded:
		s.Assets, s.assetsSize = append(s.Assets, f.Asset), s.assetsSize+AssetSize(f.Asset)
	case RunStarted:
		s.Rewind = nil // its end's line is lost
		s.Run = &Run{
			ID: f.RunID, Began: r.At, Approvals: f.Approvals, Terms: s.termsOf(f.RunID), Root: s.rootOf(f.RunID),
			Outside: s.isFor(f.RunID, CommandCallTool),
		}
		s.Run.Reported = s.tellsAtFirst(f.RunID)
		s.Answered = cmp.Or(f.Model, s.Answered)
	case RuleKept:
		s.kept(f.ApprovalID)
	default:
		if s.applySetting(r.Fact) || s.applyChanges(r.Fact) || s.applyChildren(r.Fact) {
			break
		}
		if err := s.applyRun(r.Fact, r.At); err != nil {
			return err
		}
	}
	if r.At.After(s.UpdatedAt) { // a branch's entries are older than itself
		s.UpdatedAt = r.At
	}
	return nil
}

// applySetting reports whether a fact is one of what the session is set to.
func (s *State) applySetting(fact Fact) bool {
	switch f := fact.(type) {
	case TitleSet:
		s.Title, s.TitleInherited = retitled(s.Title, s.TitleInherited, f)
		s.Titled = s.Titled || !f.Agent
	case ToolsDeferred:
		s.Deferred = f
	case AgentSet:
		s.Agent, s.AgentSession, s.Choices = f.Agent, "", nil
	case AgentChose:
		s.Choices = chosen(s.Choices, f.Choice)
	case ModeSet:
		if f.Kind == protocol.KindSteer {
			s.SteeringMode = f.Mode
		} else {
			s.FollowUpMode = f.Mode
		}
	case ToolsSet:
		s.Tools, s.ToolsChosen = f.Tools, true
	case ModelSet:
		s.Model, s.Answered = f.Model, f.Answered
	case RequestRepaired:
		if s.Repairs == nil {
			s.Repairs = map[string]model.Repair{}
		}
		s.Repairs[f.Model] = f.Repair
	case ApprovalModeSet:
		s.ApprovalMode = f.Mode
	default:
		return false
	}
	return true
}

// termsOf are those of the prompt that a run is for, which waits until it is delivered.
func (s *State) termsOf(runID string) Terms {
	for _, in := range s.Pending {
		if in.RunID == runID && in.Kind == protocol.KindPrompt {
			return in.Terms
		}
	}
	return Terms{}
}

// tellsAtFirst reports that the end of a child in the background begins a run.
func (s *State) tellsAtFirst(runID string) bool {
	return slices.ContainsFunc(s.Pending, func(in Input) bool {
		return in.RunID == runID && in.Kind == protocol.KindPrompt && in.Tells() != ""
	})
}

// isFor reports that a text which came by that command begins a run.
func (s *State) isFor(runID, command string) bool {
	return slices.ContainsFunc(s.Pending, func(in Input) bool {
		return in.RunID == runID && in.Command == command && in.Kind == protocol.KindPrompt
	})
}

func (s *State) applyInput(f Input, at time.Time) {
	s.Pending = append(s.Pending, f)
	switch of := s.Run != nil && f.RunID == s.Run.ID; {
	case of && f.Command == CommandOutputSchema:
		s.Run.AskedAgain++
	case of && f.Command == CommandOnStop:
		s.Run.SentBack = true
	}
	if f.Command == CommandAgent {
		s.delivered(f.Key)
	}
	s.Title, s.TitleInherited = retitled(s.Title, s.TitleInherited, f)
	if f.Key == "" {
		return
	}
	for k, old := range s.keys {
		if at.Sub(old.At) > keyLifetime {
			delete(s.keys, k)
		}
	}
	f.Text, f.Attachments, f.Terms = "", nil, Terms{} // nobody asks for them
	s.keys[f.Key] = Accepted{Input: f, At: at}
}

func (s *State) applyMessage(f MessageAdded) {
	s.Messages++
	if f.InputID != "" {
		s.settle(f.InputID)
	}
	if f.Message.Role == model.Assistant && f.Message.Text != "" {
		s.Said = strings.Clone(LastLine(f.Message.Text)) // not all of the text
	}
	if f.Message.Role == model.User && s.Agent != "" {
		s.Texts++
	}
	s.spend(f.RunID, f.Usage)
	run := s.Run
	if run == nil || run.ID != f.RunID {
		return
	}
	run.Fresh, run.Asked = false, false
	if f.ID == run.Open.ID {
		run.Open, run.Said = MessageStarted{}, Piece{}
	}
	if f.StopReason != model.StopError { // else it may be the disk that does not let it end
		run.Faults = 0
	}
	switch f.Message.Role {
	case model.Assistant:
		run.Open, run.Said = MessageStarted{}, Piece{}
		run.Steps++
		run.Answers++
		run.Damaged = false
		run.Calls, run.Output, run.Stop = f.Message.ToolCalls, f.Message.Text, f.StopReason
	case model.Tool:
		run.Started = ""
		run.Skips = run.Skips || slices.ContainsFunc(s.Pending, func(in Input) bool { return in.Kind == protocol.KindSteer })
		run.past(f.Message.ToolCallID)
		run.Calls = slices.DeleteFunc(slices.Clone(run.Calls), func(c model.ToolCall) bool {
			return c.ID == f.Message.ToolCallID
		})
	}
}

// begun are calls without the arguments of the one that has begun: they may be long, and
// the caller has them.
func begun(calls []model.ToolCall, id string) []model.ToolCall {
	i := slices.IndexFunc(calls, func(c model.ToolCall) bool { return c.ID == id })
	if i >= 0 {
		calls = slices.Clone(calls) // the entry has them too
		calls[i].Arguments = nil
	}
	return calls
}

// settle ends the waiting of an input.
func (s *State) settle(inputID string) {
	s.Pending = slices.DeleteFunc(slices.Clone(s.Pending), func(in Input) bool { return in.InputID == inputID })
}

// spend adds to what the session and its run have used.
func (s *State) spend(runID string, used *model.Usage) {
	if used == nil {
		return
	}
	s.Usage = s.Usage.Add(*used)
	if s.Run != nil && s.Run.ID == runID {
		s.Run.Usage = s.Run.Usage.Add(*used)
	}
}

// applyRun folds the facts that only make sense while a run is active.
func (s *State) applyRun(fact Fact, at time.Time) error {
	run := s.Run
	if run == nil {
		return fmt.Errorf("%s without an active run", fact.kind())
	}
	switch f := fact.(type) {
	case TurnStarted:
		run.Turn, run.Kind, run.TurnOpen, run.Inputs, run.Steps = f.Turn, f.Kind, true, f.InputIDs, 0
		run.Calls, run.Started, run.Skips, run.Fresh, run.Question = nil, "", false, true, nil
		run.Damaged, run.Changing = false, false
	case MessageStarted:
		run.Open, run.Asked, run.Parked = f, true, false
	case ToolStarted:
		run.Started, run.StartedAt = f.CallID, at
		run.Changing = run.Changing || !f.Reads
		run.past(f.CallID)
		run.Calls = begun(run.Calls, f.CallID)
	case ApprovalAsked:
		return s.openApproval(f, at)
	case ApprovalDecided:
		return s.decide(f)
	case TurnEnded:
		run.TurnOpen, run.Ended, run.Question = false, f, nil
	case AgentPrompted:
	case Withdrawn:
		s.settle(f.InputID)
	case AbortRequested:
		if f.AtEnd {
			run.Unheard = s.Pending
		}
		run.Aborting, s.Pending = true, nil
	case RunParked:
		run.Parked = true
	case RunResumed:
		switch {
		case f.Fault:
			run.Faults++
		// a run that waits has done nothing that could crash a daemon
		case !run.Parked && !run.WaitsForChild() && (run.Question == nil || run.Question.Form()):
			run.Crashes++
		}
		run.Parked = false
		run.Open, run.Said = MessageStarted{}, Piece{} // what came of it stands before this
	case RunEnded:
		ended := f
		ended.Waits, ended.As = false, "" // nobody asks that of an earlier run, and an index has no place for it
		s.ended = append(s.ended, &Ended{
			RunEnded: ended, Turns: run.Turn, Usage: run.Usage, Took: at.Sub(run.Began),
			after: len(s.order),
		})
		s.Run, s.Pending, s.LastRun, s.Unread = nil, nil, f, f.Unread
		s.counted(run.Tree(), max(f.Children, f.Counted, run.Counted()))
		if run.Reported { // no run above it counts it
			s.late(reportEnded(run, f))
		}
		s.forgetTrees()
		for k, a := range s.keys {
			if a.RunID == f.RunID {
				a.Ended = &ended
				s.keys[k] = a
			}
		}
	}
	return nil
}

// adopt hangs a message or a compaction whose parent is missing, because the
// parent's line cannot be read, below the leaf, so that one bad line does not
// cost all that follows. False: that is not what is wrong.
func (s *State) adopt(r Record) (Record, bool) {
	switch f := r.Fact.(type) {
	case MessageAdded:
		if f.ParentID != "" && s.Entry(f.ParentID) == nil {
			f.ParentID = s.Leaf
			return Record{r.At, f}, true
		}
	case Compacted:
		if f.ParentID != "" && s.Entry(f.ParentID) == nil {
			f.ParentID = s.Leaf
			return Record{r.At, f}, true
		}
	}
	return r, false
}

// maxChoices is how many options of a hosted agent a session remembers.
const maxChoices = 64

// chosen adds a choice, which takes the place of an older one of the same option.
func chosen(all []model.AgentChoice, c model.AgentChoice) []model.AgentChoice {
	out := make([]model.AgentChoice, 0, len(all)+1)
	for _, old := range all {
		if old.ID != c.ID {
			out = append(out, old)
		}
	}
	return append(out, c)[max(0, len(out)+1-maxChoices):]
}
