package session

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"noused/internal/model"
	"noused/internal/protocol"
)

// TurnChanged says what a turn has changed in the session's folder: the object of the
// session's changes that has the list, and how many files. Missing says why that is not
// known. A later one of the same turn is in the place of the former.
type TurnChanged struct {
	RunID   string `json:"run_id"`
	Turn    int    `json:"turn"`
	Changes string `json:"changes,omitzero"`
	Files   int    `json:"files,omitzero"`
	Missing string `json:"missing,omitzero"`
}

// RewindBegun says that a rewind is going to change files: the object has the list. With
// What other than files, the leaf goes to Leaf, "" for before the first message; it was Was. With
// Undoes set it takes that rewind back.
type RewindBegun struct {
	RewindID string              `json:"rewind_id"`
	To       string              `json:"to,omitzero"`
	What     protocol.RewindWhat `json:"what"`
	Changes  string              `json:"changes,omitzero"`
	Leaf     string              `json:"leaf,omitzero"`
	Was      string              `json:"was,omitzero"`
	Undoes   string              `json:"undoes,omitzero"`
}

// RewindEnded says that it has done so, or with TakenBack that all is as it was before.
type RewindEnded struct {
	RewindID  string `json:"rewind_id"`
	TakenBack bool   `json:"taken_back,omitzero"`
}

func (TurnChanged) kind() string { return "turn_changed" }
func (RewindBegun) kind() string { return "rewind_begun" }
func (RewindEnded) kind() string { return "rewind_ended" }

func (TurnChanged) durable() bool { return true } // what it is from is thrown away then
func (RewindBegun) durable() bool { return true }
func (RewindEnded) durable() bool { return true }

// Step is one of the things that the session has done to its folder: a turn, or a rewind
// with its RewindID.
type Step struct {
	RunID    string `json:",omitzero"`
	Turn     int    `json:",omitzero"`
	Changes  string `json:",omitzero"`
	Missing  string `json:",omitzero"`
	RewindID string `json:",omitzero"`
	Undone   bool   `json:",omitzero"` // that rewind
	Rewind   RewindBegun
	After    int // so many entries
}

// applyChanges reports whether a fact is one of what was done to the session's folder.
func (s *State) applyChanges(fact Fact) bool {
	switch f := fact.(type) {
	case TurnChanged:
		step := Step{RunID: f.RunID, Turn: f.Turn, Changes: f.Changes, Missing: f.Missing, After: len(s.order)}
		if s.Changed(f.RunID, f.Turn) {
			last := &s.Steps[len(s.Steps)-1]
			if s.Run == nil || s.Run.ID != f.RunID || s.Run.Turn != f.Turn { // others have ended since
				step.After = last.After
			}
			*last = step
		} else {
			s.Steps = append(s.Steps, step)
		}
	case RewindBegun:
		s.Rewind = &f
	case RewindEnded:
		if r := s.Rewind; r != nil && r.RewindID == f.RewindID && !f.TakenBack {
			s.rewound(*r)
		}
		s.Rewind = nil
	default:
		return false
	}
	return true
}

// Changed reports that the latest record is of what that turn has changed, or of why that is not
// known.
func (s *State) Changed(runID string, turn int) bool {
	n := len(s.Steps)
	return n > 0 && s.Steps[n-1].RunID == runID && s.Steps[n-1].Turn == turn
}

func (s *State) rewound(r RewindBegun) {
	for i := range s.Steps {
		if r.Undoes != "" && s.Steps[i].RewindID == r.Undoes {
			s.Steps[i].Undone = true
		}
	}
	s.Steps = append(s.Steps, Step{Changes: r.Changes, RewindID: r.RewindID, Rewind: r, After: len(s.order)})
	if r.What != protocol.RewindFiles && (r.Leaf == "" || s.Entry(r.Leaf) != nil) {
		s.Leaf, s.path = r.Leaf, s.pathTo(r.Leaf)
	}
}

// Rewound returns a rewind that was done and not undone, "" for the latest of them.
func (s *State) Rewound(id string) (step Step, ok bool) {
	for _, step := range slices.Backward(s.Steps) {
		switch {
		case step.RewindID == "", id != "" && step.RewindID != id, id == "" && (step.Undone || step.Rewind.Undoes != ""):
		default:
			return step, true
		}
	}
	return Step{}, false
}

// entries are the first and the last of a message, or of a run; ok is false where there
// are none.
func (s *State) entriesOf(name string) (first, last int, ok bool) {
	first = -1
	for i, e := range s.order {
		if e.ID == name || e.RunID == name {
			if first < 0 {
				first = i
			}
			last = i
		}
	}
	return first, last, first >= 0
}

// StepsOf are the steps from one message, run or turn to another, each "" for as far as there
// are. A message as from means its turn, as to before its turn. The error names the field.
func (s *State) StepsOf(from, to string) ([]Step, error) {
	begin, end := 0, len(s.Steps)
	if from != "" {
		at, err := s.cut(from, false)
		if err != nil {
			return nil, fmt.Errorf("from: %w", err)
		}
		begin = at
	}
	if to != "" {
		at, err := s.cut(to, true)
		if err != nil {
			return nil, fmt.Errorf("to: %w", err)
		}
		end = at
	}
	return s.Steps[min(begin, end):end], nil
}

// cut is how many steps there are before something; with past set, before the end of a run or
// turn.
func (s *State) cut(name string, past bool) (int, error) {
	run, turn := name, 0
	if id, number, found := strings.Cut(name, "/"); found {
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 {
			return 0, fmt.Errorf("%.80q is no turn: one is named RUN/TURN, like run-1/2", name)
		}
		run, turn = id, n
	}
	isStep := func(step Step) bool { return step.RunID == run && (turn == 0 || step.Turn == turn) }
	first, last, ok := s.entriesOf(run)
	if !ok && !slices.ContainsFunc(s.Steps, isStep) {
		return 0, fmt.Errorf("there is no message, run or turn %.80q", name)
	}
	if !past {
		for i, step := range s.Steps {
			if isStep(step) || turn > 0 && step.RunID == run && step.Turn > turn || turn == 0 && step.After > first {
				return i, nil
			}
			if turn > 0 && step.After > last+1 {
				return i, nil
			}
		}
		return len(s.Steps), nil
	}
	if e := s.Entry(name); e != nil {
		for i, step := range s.Steps {
			if step.After > first {
				return i, nil
			}
		}
		return len(s.Steps), nil
	}
	end := 0
	for i, step := range s.Steps {
		switch {
		case step.RunID == run && (turn == 0 || step.Turn <= turn):
			end = i + 1
		case step.After <= first:
			end = i + 1
		}
	}
	return end, nil
}

// LastText is the last message of the user on the path to the leaf, nil where there is none.
func (s *State) LastText() *Entry {
	for e := range s.upwards(s.Leaf) {
		if e.Role == model.User {
			return e
		}
	}
	return nil
}
