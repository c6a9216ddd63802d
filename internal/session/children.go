package session

import (
	"cmp"
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
	// Host is the hosted agent that makes the turns of a new one, as the call or the file of the named one said when the
	// call was allowed.
	Host string `json:"host,omitzero"`
	// Root is the run at the root of that run's tree, "" for itself, and Approvals and MaxCost are
	// that run's, where the child is in the background.
	Root      string                `json:"root,omitzero"`
	Approvals protocol.ApprovalMode `json:"approvals,omitzero"`
	MaxCost   int64                 `json:"max_cost_nano_usd,omitzero"`
}

// Terms are those of a run that is made for the call.
func (f ChildStarted) Terms() Terms { return Terms{MaxCost: f.MaxCost, As: f.Within} }

// ChildEnded says that a child's run is known to have ended. Spent is what it has used, its
// own children included, Children how many those are. Counted is as that of RunEnded. Root is set where the run of the
// call was over by then, so that no run above counts it: it is the run at the root of their tree, of which a run of the
// session, or of a child in the background, is too.
type ChildEnded struct {
	CallID     string       `json:"call_id"`
	ChildRunID string       `json:"child_run_id"`
	Spent      *model.Usage `json:"spent,omitzero"`
	Children   int          `json:"children,omitzero"`
	Counted    int          `json:"counted,omitzero"`
	Root       string       `json:"root_run_id,omitzero"`
}

func (ChildStarted) kind() string { return "child_started" }
func (ChildEnded) kind() string   { return "child_ended" }

func (ChildStarted) durable() bool { return true }
func (f ChildEnded) durable() bool { return f.Root != "" } // else the child's journal has it

// Child is a child of a run.
type Child struct {
	ChildStarted
	Ended    bool        `json:",omitzero"`
	Spent    model.Usage `json:",omitzero"` // once it has ended
	Children int         `json:",omitzero"` // of its own
	Counted  int         `json:",omitzero"` // children of its tree, as far as its run knew
}

// Late is what a run of a tree has used, and how many children it has had, that no run above it counts.
type Late struct {
	Root, Run string
	Spent     model.Usage `json:",omitzero"`
	Children  int         `json:",omitzero"`
	Counted   int         `json:",omitzero"`
}

// Fact has another session keep it.
func (l Late) Fact() ChildEnded {
	return ChildEnded{ChildRunID: l.Run, Root: l.Root, Spent: &l.Spent, Children: l.Children, Counted: l.Counted}
}

// ChildKey names what a child's run has come to, exactly once.
func ChildKey(sessionID, runID string) string { return sessionID + "@" + runID }

// Tells is the ChildKey of the child in the background whose end the text tells, "" for any other text.
func (f Input) Tells() string {
	if f.Command != CommandAgent {
		return ""
	}
	return f.Key
}

// tells is the ChildKey of the child whose end an input tells that waits.
func (s *State) tells(inputID string) string {
	i := slices.IndexFunc(s.Pending, func(in Input) bool { return in.InputID == inputID })
	if inputID == "" || i < 0 {
		return ""
	}
	return s.Pending[i].Tells()
}

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

// Counts reports that a child's run has ended, and that this run counts what it has used.
func (r *Run) Counts(childRun string) bool {
	return r != nil && slices.ContainsFunc(r.Children, func(c Child) bool { return c.ChildRunID == childRun && c.Ended })
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
		n = max(n, c.Nth+c.Children, c.Counted)
	}
	return n
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
		s.Run.past(f.CallID)
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
	if f.Root != "" {
		s.late(f)
	}
	for _, c := range s.Background {
		if c.ChildRunID == f.ChildRunID {
			s.counted(c.Tree(), max(c.Nth+f.Children, f.Counted))
		}
	}
	if s.Run == nil {
		return
	}
	s.Run.Children = slices.Clone(s.Run.Children) // others may look at what was there
	for i := range s.Run.Children {
		c := &s.Run.Children[i]
		if c.CallID != f.CallID || c.ChildRunID != f.ChildRunID {
			continue
		}
		c.Ended, c.Children, c.Counted = true, f.Children, f.Counted
		if f.Spent != nil {
			c.Spent = *f.Spent
		}
	}
}

// late keeps what a run has used that no run above it counts, while there is anything of its tree here.
func (s *State) late(f ChildEnded) {
	known := func(l Late) bool { return l.Run == f.ChildRunID }
	if !s.Keeps(f.Root) || slices.ContainsFunc(s.Late, known) {
		return
	}
	l := Late{Root: f.Root, Run: f.ChildRunID, Children: f.Children, Counted: f.Counted}
	if f.Spent != nil {
		l.Spent = *f.Spent
	}
	s.Late = append(slices.Clip(s.Late), l)
	s.counted(f.Root, f.Counted)
}

// Keeps reports that the session's run, one that is about to begin, or a child in the background, is of that tree.
func (s *State) Keeps(tree string) bool {
	return s.Run != nil && s.Run.Tree() == tree ||
		slices.ContainsFunc(s.Pending, func(in Input) bool { return in.Root == tree }) ||
		slices.ContainsFunc(s.Background, func(c Child) bool { return c.Tree() == tree })
}

// forgetTrees forgets what is late of trees that there is nothing of here any more.
func (s *State) forgetTrees() {
	s.Late = slices.DeleteFunc(slices.Clone(s.Late), func(l Late) bool { return !s.Keeps(l.Root) })
}

// Tree is the run at the root of the run's tree.
func (r *Run) Tree() string { return cmp.Or(r.Root, r.ID) }

// IsChild reports that a call of another session's run has begun it.
func (r *Run) IsChild() bool { return r.Root != "" && !r.Reported }

// reportEnded is what a run has used that the end of a child in the background began.
func reportEnded(run *Run, f RunEnded) ChildEnded {
	spent := run.Usage
	if f.Spent != nil {
		spent = spent.Add(*f.Spent)
	}
	return ChildEnded{
		ChildRunID: run.ID, Root: run.Tree(), Spent: &spent, Children: f.Children, Counted: max(f.Counted, run.Counted()),
	}
}

// Tree is the run at the root of the child's tree.
func (c Child) Tree() string { return cmp.Or(c.Root, c.RunID) }

// counted has the children in the background know how many there were in their tree: they may be
// all that is left of it.
func (s *State) counted(tree string, n int) {
	s.Background = slices.Clone(s.Background) // others may look at what was there
	for i := range s.Background {
		if c := &s.Background[i]; c.Tree() == tree {
			c.Counted = max(c.Counted, n)
		}
	}
}

// delivered forgets a child in the background, of which an input says what it has come to.
func (s *State) delivered(key string) {
	s.Background = slices.DeleteFunc(slices.Clone(s.Background), func(c Child) bool { return c.Key() == key })
	s.forgetTrees()
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
