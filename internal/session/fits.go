package session

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"noused/internal/model"
)

// MaxCalls is how many tool calls a message may have; four times those that a provider
// lets a model make.
const MaxCalls = 1024

// Bounds of what else a record may say.
const (
	maxOwed = 10_000 // texts that wait; ten times those that are accepted
	maxTurn = math.MaxInt32
)

// fits refuses a fact that no daemon has written, as a byte of it was changed: with it a
// walk through the tree would have no end, a text would be delivered for ever, or a sum
// would be less than nothing.
func (s *State) fits(fact Fact) error {
	switch f := fact.(type) {
	case Created:
		if s.ID != "" {
			return errors.New("the session was created before")
		}
	case Input:
		if f.InputID == "" {
			return errNoID
		}
		if len(s.Pending) >= maxOwed {
			return fmt.Errorf("%d texts wait already", len(s.Pending))
		}
		if slices.ContainsFunc(s.Pending, func(in Input) bool { return in.InputID == f.InputID }) {
			return fmt.Errorf("input %.128q is there already", f.InputID)
		}
	case RunStarted:
		if f.RunID == "" {
			return errNoID
		}
		if _, ended := s.Ended(f.RunID); ended {
			return fmt.Errorf("run %.128q has ended before", f.RunID)
		}
	case TurnStarted:
		if f.Turn < 0 || f.Turn > maxTurn {
			return fmt.Errorf("no turn has the number %d", f.Turn)
		}
	case MessageStarted:
		return s.isNew(f.ID)
	case MessageAdded:
		return s.messageFits(f)
	case Compacted:
		if f.FixedTokens < 0 {
			return errNegative
		}
		return errors.Join(s.isNew(f.ID), usageFits(f.Usage))
	case Patched:
		return usageFits(f.Usage)
	case ChildStarted:
		if f.CallID == "" || f.ChildID == "" || f.ChildRunID == "" {
			return errNoID
		}
		if s.Run == nil || s.Run.ID != f.RunID {
			return fmt.Errorf("a child of run %.128q, which is not active", f.RunID)
		}
	case ChildEnded:
		return childrenFit(f.Spent, f.Children, f.Counted)
	case RunEnded:
		return childrenFit(f.Spent, f.Children, f.Counted)
	case ToolStarted:
		if f.CallID == "" {
			return errNoID
		}
	case RewindBegun:
		if f.RewindID == "" {
			return errNoID
		}
		if s.Run != nil {
			return errors.New("a rewind in the middle of a run")
		}
	case ApprovalAsked:
		if f.ApprovalID == "" {
			return errNoID
		}
		if _, decided := s.Decided(f.ApprovalID); decided {
			return fmt.Errorf("approval %.128q is there already", f.ApprovalID)
		}
		return usedFits(f.Used)
	}
	return nil
}

var (
	errNoID     = errors.New("it has no id")
	errNegative = errors.New("a number is negative")
)

func (s *State) messageFits(f MessageAdded) error {
	switch f.Message.Role {
	case model.User, model.Assistant, model.Tool:
	default:
		return fmt.Errorf("no message has the role %.40q", f.Message.Role)
	}
	if n := len(f.Message.ToolCalls); n > MaxCalls {
		return fmt.Errorf("the message has %d tool calls, at most %d are possible", n, MaxCalls)
	}
	return errors.Join(s.isNew(f.ID), usageFits(f.Usage))
}

// isNew refuses an id that an entry has, or none can have.
func (s *State) isNew(id string) error {
	if id == "" {
		return errNoID
	}
	if s.Entry(id) != nil {
		return fmt.Errorf("entry %.128s is there already", id)
	}
	return nil
}

func usageFits(u *model.Usage) error {
	if u != nil && min(u.InputTokens, u.OutputTokens, u.CachedTokens, u.CacheWriteTokens, u.ReasoningTokens, u.Cost) < 0 {
		return errNegative
	}
	return nil
}

// maxChildren is more than a run has, all of its tree counted.
const maxChildren = 1 << 30

func childrenFit(spent *model.Usage, below, inTree int) error {
	switch {
	case min(below, inTree) < 0:
		return errNegative
	case max(below, inTree) > maxChildren:
		return fmt.Errorf("%d children", max(below, inTree))
	}
	return usageFits(spent)
}

func usedFits(u Used) error {
	if min(u.Tokens, u.Cost, u.DayCost) < 0 {
		return errNegative
	}
	return nil
}

// timeFits refuses a time that cannot be told: its year, in UTC, must have four digits.
func timeFits(at time.Time) error {
	if y := at.UTC().Year(); y < 0 || y > 9999 {
		return fmt.Errorf("no record was made in the year %d", y)
	}
	return nil
}

// skipped notes that a line could not be read, whatever it said: the ids of approvals are
// counted, and none may be given again.
func (s *State) skipped() {
	s.Asked++
	if s.Run != nil {
		s.Run.Damaged = true
	}
}
