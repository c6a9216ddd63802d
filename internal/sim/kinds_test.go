//go:build sim

package sim

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"

	"noused/internal/model"
	"noused/internal/runloop"
	"noused/internal/session"
)

// Children are of several kinds: in a worktree of their own, with another model, made by a named agent that may call
// certain tools alone, or by a hosted one. In some worlds a tree may use so many tokens, and asks a person then.

// kinds is what is known of them.
type kinds struct {
	limit int64             // tokens that a tree may use before it asks; 0: any
	wants map[string]want   // by the name of the task; of a child that there is nothing is wanted
	made  map[string]string // whose worktrees are, by their folders
	asks  map[string]string // the models of children
	reads map[string]bool   // runs that the agent reads makes, or that are below one
}

// want is what a task's child is to be.
type want struct {
	agent, model string
	worktree     bool
}

const (
	reads = "reads" // the named agent: it calls no t.ask
	small = "small" // the other model
)

func newKinds(rng *rand.Rand) kinds {
	return kinds{
		limit: []int64{0, 0, 40}[rng.IntN(3)], wants: map[string]want{}, made: map[string]string{},
		asks: map[string]string{}, reads: map[string]bool{},
	}
}

// wanted has a task's child be of some kind.
func (w *world) wanted(task string, args map[string]any) {
	sum := fnv.New64a()
	fmt.Fprint(sum, "kind of ", task)
	var want want
	switch n := rand.New(rand.NewPCG(w.seed, sum.Sum64())).IntN(14); n {
	case 0, 1:
		want.worktree = true
	case 2:
		want.model = small
	case 3:
		want.model, want.worktree = small, true
	case 4, 5:
		want.agent = reads
	case 6:
		want.agent = makers[len(task)%len(makers)]
	}
	w.wants[task] = want
	if want.worktree {
		args["worktree"] = true
	}
	if want.model != "" {
		args["model"] = want.model
	}
	if want.agent != "" {
		args["agent"] = want.agent
	}
}

// models are the daemon's own one, and another.
type models struct{ l *life }

var _ runloop.Models = models{}

func (models) Own() model.Choice         { return own }
func (models) Fallbacks() []model.Choice { return nil }
func (models) Window(model.Choice) int64 { return 0 }
func (m models) Model(c model.Choice) (runloop.Model, error) {
	if c == (model.Choice{}) {
		c = own
	}
	return thinker{m.l, c.Name}, nil
}

func (models) Choose(name, _, _ string) (model.Choice, error) {
	return model.Choice{Provider: own.Provider, Name: name}, nil
}

// thinks holds the model that is asked against the one that the session is to have.
func (w *world) thinks(session, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if is, known := w.asks[session]; known && is != name && !w.holed(session) {
		w.fail("session %s asks the model %s, and is to ask %s", session, name, is)
	}
}

// teller knows the agent reads.
type teller struct{}

var _ runloop.Instructions = teller{}

func (teller) Environment(context.Context, string) string                      { return "" }
func (teller) System(string, string, int64) (text string, files, why []string) { return "", nil, nil }

func (teller) Expand(string, string) (string, bool, error) { return "", false, nil }

func (teller) ListNamed(string) string { return "\n" + reads }

func (teller) Named(_, name string) (*model.NamedAgent, error) {
	if name != reads {
		return nil, errors.New("there is no such agent")
	}
	return &model.NamedAgent{Name: reads, Tools: []string{"t.x", "agent"}}, nil
}

// planter makes worktrees.
type planter struct{ l *life }

var _ runloop.Worktrees = planter{}

func (p planter) Make(ctx context.Context, _, title string) (string, error) {
	if err := p.l.stopUntil(ctx, "worktree for "+title); err != nil {
		return "", err
	}
	w := p.l.w
	w.mu.Lock()
	defer w.mu.Unlock()
	dir := filepath.Join(w.dir, "trees", fmt.Sprint("tree-", len(w.made)+1))
	w.made[dir] = ""
	return dir, nil
}

// kindOf holds a child that was given a task against what it is to be. w.mu is held.
func (w *world) kindOf(in, run, text string) {
	k := w.meet(in, run)
	if k == nil {
		return
	}
	want, is := w.wants[firstLine(text)]
	w.reads[run] = w.reads[k.RunID] || want.agent == reads
	child, parent := w.created(in), w.created(k.parent)
	if !is || child == nil || parent == nil || w.holed(in) || w.holed(k.parent) {
		return
	}
	if child.Agent != "" && child.Agent != want.agent || child.Agent == "" && slices.Contains(makers, want.agent) {
		w.fail("the child %s of %q is the agent %q's, and is to be %q's", in, firstLine(text), child.Agent, want.agent)
	}
	whose, made := w.made[child.Workdir]
	switch {
	case !want.worktree && child.Workdir != parent.Workdir,
		want.worktree && (!made || whose != "" && whose != in):
		w.fail("the child %s of %q works in %s, made for %q, its parent in %s", in, firstLine(text), child.Workdir, whose,
			parent.Workdir)
	case want.worktree:
		w.made[child.Workdir] = in
		w.sometimes("a child has a worktree of its own")
	}
	if of, known := w.asks[k.parent]; known {
		w.asks[in] = of
	} else if parent.Parent == nil && parent.ParentID == "" { // else nobody has told which one it is to have
		w.asks[in] = own.Name
	}
	if want.model != "" {
		w.asks[in] = want.model
		w.sometimes("a child has another model")
	}
	if want.agent == reads {
		w.sometimes("a child is made by a named agent")
	}
	if child.Agent != "" {
		w.sometimes("a child is a hosted agent's")
	}
}

// created is how a session's journal begins; nil: it does not say.
func (w *world) created(id string) *session.Created {
	for _, f := range factsOf[session.Created](w.journal(id), "created") {
		return &f
	}
	return nil
}

// host learns which agent a session is of, before anything else is known of it. w.mu is held.
func (w *world) host(id string) {
	if _, known := w.hosted[id]; known || !w.families {
		return
	}
	if f := w.created(id); f != nil {
		w.hosted[id] = f.Agent
	}
}

// mayCall holds a call against what the run may call. w.mu is held.
func (w *world) mayCall(inv model.Invocation) {
	if run := w.running[inv.SessionID]; inv.Name == "t.ask" && w.reads[run] {
		w.fail("run %s calls %s, which the agent %s may not", run, inv.Name, reads)
	}
}

// noteBudget notes that a run of a tree asks whether it goes on. w.mu is held.
func (w *world) noteBudget(run string) {
	for of, k := range w.kin {
		if of == run || k.RunID == run {
			w.sometimes("a tree asks at its limit whether it goes on")
			return
		}
	}
}

func isTask(text string) bool { return strings.HasPrefix(text, "task ") }
