package session

import (
	"slices"

	"noused/internal/model"
	"noused/internal/protocol"
)

// Parent is the call that a child session was made for. Depth is how many sessions are above
// the child, Titles are theirs, from the root, as they were then.
type Parent struct {
	SessionID  string   `json:"session_id"`
	RunID      string   `json:"run_id"`
	ToolCallID string   `json:"tool_call_id"`
	Depth      int      `json:"depth"`
	Titles     []string `json:"titles,omitempty"`
}

// CommandAgent is the Command of an Input that has what a child in the background has come
// to, with ChildKey as its Key.
const CommandAgent = "agent"

// ChildStarted says that a call of the tool agent, in the message MessageID, has a child: the
// run ChildRunID of session ChildID. Both ids are given here, before either is there, so that
// a later daemon finds or makes the same. With New the session is made for the call. In the
// background the call does not wait for it.
type ChildStarted struct {
	RunID       string `json:"run_id"`
	CallID      string `json:"call_id"`
	MessageID   string `json:"message_id"`
	ChildID     string `json:"child_id"`
	ChildRunID  string `json:"child_run_id"`
	Description string `json:"description,omitzero"`
	New         bool   `json:"new,omitzero"`
	Background  bool   `json:"background,omitzero"`
	Nth         int    `json:"nth,omitzero"` // child of its tree
	// Within is the named agent of the run that has the call: the child may do no more.
	Within *model.NamedAgent `json:"within,omitzero"`
	// Root is the run at the root of that run's tree, "" for itself, and Approvals and MaxCost are
	// that run's, where the child is in the background.
	Root      string                `json:"root,omitzero"`
	Approvals protocol.ApprovalMode `json:"approvals,omitzero"`
	MaxCost   int64                 `json:"max_cost_nano_usd,omitzero"`
}

// Terms are those of a run that is made for the call.
func (f ChildStarted) Terms() Terms { return Terms{MaxCost: f.MaxCost, As: f.Within} }

// ChildEnded says that a child's run is known to have ended. Spent is what it has used, its
// own children included, Children how many those are.
type ChildEnded struct {
	CallID     string       `json:"call_id"`
	ChildRunID string       `json:"child_run_id"`
	Spent      *model.Usage `json:"spent,omitzero"`
	Children   int          `json:"children,omitzero"`
}

func (ChildStarted) kind() string { return "child_started" }
func (ChildEnded) kind() string   { return "child_ended" }

func (ChildStarted) durable() bool { return true }
func (ChildEnded) durable() bool   { return false }

// Child is a child of a run.
type Child struct {
	ChildStarted
	Ended    bool        `json:",omitzero"`
	Spent    model.Usage `json:",omitzero"` // once it has ended
	Children int         `json:",omitzero"` // of its own
}

// ChildKey names what a child's run has come to, exactly once.
func ChildKey(sessionID, runID string) string { return sessionID + "@" + runID }

// Key is the ChildKey of a child.
func (c Child) Key() string { return ChildKey(c.ChildID, c.ChildRunID) }

// Child is the child of a call of this run; ok is false where it has none.
func (r *Run) Child(callID string) (c Child, ok bool) {
	i := slices.IndexFunc(r.Children, func(c Child) bool { return c.CallID == callID })
	if i < 0 {
		return Child{}, false
	}
	return r.Children[i], true
}

// Awaited are the children whose calls have no result yet, in the order of the calls.
func (r *Run) Awaited() (out []Child) {
	if len(r.Children) == 0 {
		return nil
	}
	for _, call := range r.Calls {
		if c, ok := r.Child(call.ID); ok && !c.Background {
			out = append(out, c)
		}
	}
	return out
}

// Below is what children that have ended have used, and how many children there are below the
// run, as far as that is known.
func (r *Run) Below() (used model.Usage, children int) {
	for _, c := range r.Children {
		used, children = used.Add(c.Spent), children+1+c.Children
	}
	return used, children
}

// Counted is how many children the run's tree has had at least, as those of the run say.
func (r *Run) Counted() (n int) {
	for _, c := range r.Children {
		n = max(n, c.Nth+c.Children)
	}
	return n
}

// alone is the fact without what is said of the run's children, as an index keeps it.
func (f RunEnded) alone() RunEnded {
	f.Waits, f.Spent, f.Children = false, nil, 0
	return f
}

// Depth is how many sessions are above this one.
func (s *State) Depth() int {
	if s.Parent == nil {
		return 0
	}
	return s.Parent.Depth
}

// WaitsForChild reports that the run does nothing else: that crashes no daemon.
func (r *Run) WaitsForChild() bool {
	c, ok := r.Child(r.Started)
	return ok && !c.Background
}

// applyChildren reports whether a fact is one about the session's children.
func (s *State) applyChildren(fact Fact) bool {
	switch f := fact.(type) {
	case ChildStarted:
		c := Child{ChildStarted: f}
		s.Run.Children = append(slices.Clip(s.Run.Children), c)
		if f.New {
			s.Children = append(slices.Clip(s.Children), f.ChildID)
		}
		if f.Background {
			s.Background = append(slices.Clip(s.Background), c)
		}
	case ChildEnded:
		s.childEnded(f)
	default:
		return false
	}
	return true
}

func (s *State) childEnded(f ChildEnded) {
	if s.Run == nil {
		return
	}
	s.Run.Children = slices.Clone(s.Run.Children) // others may look at what was there
	for i := range s.Run.Children {
		c := &s.Run.Children[i]
		if c.CallID != f.CallID || c.ChildRunID != f.ChildRunID {
			continue
		}
		c.Ended, c.Children = true, f.Children
		if f.Spent != nil {
			c.Spent = *f.Spent
		}
	}
}

// delivered forgets a child in the background, of which an input says what it has come to.
func (s *State) delivered(key string) {
	s.Background = slices.DeleteFunc(slices.Clone(s.Background), func(c Child) bool { return c.Key() == key })
}

// rootOf is the run at the root of the tree that a run belongs to, "" for itself.
func (s *State) rootOf(runID string) string {
	for _, in := range s.Pending {
		if in.RunID == runID && in.Root != "" {
			return in.Root
		}
	}
	return ""
}

// bytes is what it holds.
func (p *Parent) bytes() (n int) {
	if p == nil {
		return 0
	}
	n = len(p.SessionID) + len(p.RunID) + len(p.ToolCallID)
	for _, title := range p.Titles {
		n += len(title)
	}
	return n
}
