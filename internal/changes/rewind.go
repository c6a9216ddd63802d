package changes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// What a rewind does to a file.
const (
	Restore = "restore" // it is not there, and comes back
	Remove  = "remove"
	Alter   = "change"
)

// Action is what a rewind does to a file. Path is as Shown has it.
type Action struct{ Path, Action string }

// Conflict is a file that a rewind would have to guess about, and why.
type Conflict struct{ Path, Why string }

// Missing is the path of the conflict that a turn was not recorded.
const Missing = "."

// Plan is what a rewind would do. Changes is the object that has the list, zero where there is
// nothing to do, or anything in its way.
type Plan struct {
	Changes   OID
	Files     []Action
	Conflicts []Conflict
}

// PlanRewind finds out what takes the steps back, and changes nothing but with keep set what
// is kept of the session. force names files, as Shown does, that are taken back though
// something else happened to them. It blocks for the disk and for git, until ctx ends.
func (e *Engine) PlanRewind(ctx context.Context, f Folder, steps []Step, force []string, keep bool) (Plan, error) {
	s, release, err := e.acquire(ctx, f.SessionID)
	if err != nil {
		return Plan{}, err
	}
	defer release()
	p := planner{force: force, keep: keep, plan: Plan{Files: []Action{}, Conflicts: []Conflict{}}}
	for _, s := range steps {
		if s.Missing != "" && !slices.Contains(force, Missing) {
			p.conflict(Missing, "a turn was not recorded: "+s.Missing)
			break
		}
	}
	steps = slices.DeleteFunc(slices.Clone(steps), func(s Step) bool { return s.Changes.IsZero() })
	if len(steps) == 0 {
		return p.plan, nil
	}
	at, r, err := e.open(s, f)
	if err != nil {
		return Plan{}, err
	}
	all, err := r.fold(ctx, at.top, steps)
	if err != nil {
		return Plan{}, err
	}
	if p.tree, err = openTree(all.top); err != nil {
		return Plan{}, err
	}
	defer p.tree.close()
	p.repo, p.top = r, all.top
	p.inner(all.tops)
	return p.make(ctx, all.nets)
}

// planner makes a Plan.
type planner struct {
	repo  *repo
	top   string
	tree  *workTree
	force []string
	keep  bool
	plan  Plan
	list  []Change // of the plan
}

func (p *planner) conflict(path, why string) {
	p.plan.Conflicts = append(p.plan.Conflicts, Conflict{path, why})
}

// inner finds folders of former steps that are not there any more, or that only a link leads to.
func (p *planner) inner(tops []string) {
	for _, top := range tops {
		rel := strings.TrimSuffix(below(p.top, top), "/")
		if rel == "" {
			continue
		}
		if is, _, err := p.tree.state(rel, State{}); err != nil || !is.IsFolder() {
			p.conflict(Shown(rel)+"/", "the folder is not there any more, or a link leads to it")
		}
	}
}

func (p *planner) make(ctx context.Context, all []net) (Plan, error) {
	for _, n := range all {
		if ctx.Err() != nil {
			return Plan{}, context.Cause(ctx)
		}
		if n.Before.IsFolder() && !n.After.There() || n.After.IsFolder() && !n.Before.There() {
			continue // once all files are known
		}
		if err := p.file(ctx, n); err != nil {
			return Plan{}, err
		}
	}
	if err := p.folders(all); err != nil {
		return Plan{}, err
	}
	slices.SortFunc(p.list, func(a, b Change) int { return strings.Compare(a.Path, b.Path) })
	p.parents()
	p.locked()
	slices.SortFunc(p.plan.Conflicts, func(a, b Conflict) int { return strings.Compare(a.Path, b.Path) })
	for _, c := range p.list {
		a := Action{Shown(c.Path), Alter}
		switch {
		case c.Before.IsFolder() || c.After.IsFolder():
			if c.Before.There() != c.After.There() && p.below(c.Path) {
				continue
			}
			a.Path += "/"
		}
		switch {
		case !c.Before.There():
			a.Action = Restore
		case !c.After.There():
			a.Action = Remove
		}
		p.plan.Files = append(p.plan.Files, a)
	}
	if len(p.plan.Conflicts) > 0 || !p.keep {
		return p.plan, nil
	}
	rec, err := keepList(p.repo, p.top, p.list)
	p.plan.Changes = rec.Changes
	return p.plan, err
}

// below reports that something below a path is in the list.
func (p *planner) below(dir string) bool {
	return slices.ContainsFunc(p.list, func(c Change) bool { return strings.HasPrefix(c.Path, dir+"/") })
}

// file plans for what is no folder that came or went.
func (p *planner) file(ctx context.Context, n net) error {
	shown := Shown(n.Path)
	forced := slices.Contains(p.force, shown) || slices.Contains(p.force, shown+"/")
	is, _, err := p.tree.state(n.Path, n.After)
	if err != nil {
		p.conflict(shown, fmt.Sprintf("it cannot be read: %v", err))
		return nil
	}
	switch {
	case is == n.Before:
		return nil // somebody has taken it back
	case n.Before.Left != "":
		p.conflict(shown, "its former content was not kept")
		return nil
	case n.Before.inDiff() && !p.repo.has(n.Before.OID):
		p.conflict(shown, errGone.Error())
		return nil
	case forced:
	case n.leftOut():
		p.conflict(shown, "it is too long to be kept, or could not be")
		return nil
	case n.broken:
		p.conflict(shown, "somebody else changed it between two turns")
		return nil
	case n.Shared:
		p.conflict(shown, "somebody else was at work in the folder meanwhile, who may have changed it")
		return nil
	case is != n.After:
		p.conflict(shown, "it has changed since the session last wrote it")
		return nil
	}
	if is.isSpecial() || is.IsFolder() != n.After.IsFolder() {
		p.conflict(shown, "something else is in its place")
		return nil
	}
	if is.inDiff() || is.Left != "" && is.isFile() { // so that it can come back
		if is, err = p.save(ctx, n.Path, is); err != nil {
			p.conflict(shown, fmt.Sprintf("what is there now cannot be kept: %v", err))
			return nil
		}
	}
	p.list = append(p.list, Change{Path: n.Path, Before: is, After: n.Before})
	return nil
}

// save keeps the content that a file has now.
func (p *planner) save(ctx context.Context, rel string, is State) (State, error) {
	if is.Left == "" && p.repo.has(is.OID) {
		return is, nil
	}
	dir, name := path.Split(rel)
	fd, err := p.tree.open(strings.TrimSuffix(dir, "/"), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return is, err
	}
	defer unix.Close(fd)
	if !p.keep {
		o, r, err := hashAt(fd, name, maxSaved)
		return State{Mode: r.mode, OID: o}, err
	}
	content, r, err := p.repo.memory.contentAt(ctx, fd, name, maxSaved)
	if err != nil {
		return is, err
	}
	defer p.repo.memory.give(len(content))
	o, err := p.repo.put("blob", content)
	return State{Mode: r.mode, OID: o}, err
}

// maxSaved bounds a file that a rewind removes or changes, in bytes.
const maxSaved = 256 << 20

// folders plans for those that the session made or removed. One that has something else
// in it by now stays.
func (p *planner) folders(all []net) error {
	going := map[string]bool{}
	for _, c := range p.list {
		going[c.Path] = !c.After.There()
	}
	for _, n := range slices.Backward(all) { // the deepest first
		if !n.After.IsFolder() || n.Before.There() {
			continue
		}
		is, _, err := p.tree.state(n.Path, State{})
		if err != nil || !is.IsFolder() {
			continue
		}
		names, err := p.tree.names(n.Path)
		if err != nil || slices.ContainsFunc(names, func(name string) bool { return !going[n.Path+"/"+name] }) {
			continue
		}
		going[n.Path] = true
		p.list = append(p.list, Change{Path: n.Path, Before: is})
	}
	for _, n := range all {
		if !n.Before.IsFolder() || n.After.There() {
			continue
		}
		is, _, err := p.tree.state(n.Path, State{})
		switch {
		case err != nil:
			p.conflict(Shown(n.Path)+"/", fmt.Sprintf("it cannot be read: %v", err))
		case is.There() && !is.IsFolder() && !going[n.Path]:
			p.conflict(Shown(n.Path)+"/", "something else is in its place")
		case !is.There():
			p.list = append(p.list, Change{Path: n.Path, After: n.Before})
		}
	}
	return nil
}

// parents finds what would come back to a folder that is not there.
func (p *planner) parents() {
	will := map[string]State{}
	for _, c := range p.list {
		will[c.Path] = c.After
	}
	for _, c := range p.list {
		dir := strings.TrimSuffix(parent(c.Path), "/")
		if !c.After.There() || dir == "" {
			continue
		}
		is, planned := will[dir]
		if !planned {
			var err error
			if is, _, err = p.tree.state(dir, State{}); err != nil {
				is = State{}
			}
		}
		if !is.IsFolder() {
			p.conflict(Shown(c.Path), "its folder is not there any more")
		}
	}
}

// locked finds folders in which something would change, and that may not be written to. Those
// of the list are opened for it.
func (p *planner) locked() {
	seen := map[string]bool{}
	for _, c := range p.list {
		if c.Before.IsFolder() || c.After.IsFolder() {
			seen[c.Path] = true
		}
	}
	for _, c := range p.list {
		dir := strings.TrimSuffix(parent(c.Path), "/")
		if seen[dir] {
			continue
		}
		seen[dir] = true
		fd, err := p.tree.open(dir, unix.O_PATH|unix.O_DIRECTORY)
		if err != nil { // it is gone, which parents tells
			continue
		}
		err = unix.Faccessat(fd, ".", unix.W_OK|unix.X_OK, unix.AT_EACCESS)
		unix.Close(fd)
		if err != nil {
			why := fmt.Sprintf("files in it would change, and nothing may be written there: %v", err)
			p.conflict(Shown(path.Join(".", dir))+"/", why)
		}
	}
}

// PlanUndo finds out what takes a rewind back whose list of changes that is, as PlanRewind
// does.
func (e *Engine) PlanUndo(ctx context.Context, f Folder, done OID, force []string, keep bool) (Plan, error) {
	return e.PlanRewind(ctx, f, []Step{{Changes: done}}, force, keep)
}

func (s State) isSpecial() bool { return s.There() && !s.isFile() && !s.IsLink() && !s.IsFolder() }

// state is what is at a path now; like says what is expected there, whose content may not have
// been kept.
func (t *workTree) state(rel string, like State) (State, raw, error) {
	r, err := t.stat(rel)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return State{}, r, nil
	case err != nil:
		return State{}, r, err
	}
	s := State{Mode: r.mode}
	switch {
	case s.IsFolder(), s.isSpecial():
		return s, r, nil
	case like.Left != "" && like.Left == r.identity():
		s.Left = like.Left
		return s, r, nil
	}
	dir, name := path.Split(rel)
	fd, err := t.open(strings.TrimSuffix(dir, "/"), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return State{}, r, err
	}
	defer unix.Close(fd)
	if r.Size > maxSaved {
		s.Left = r.identity()
		return s, r, nil
	}
	o, r, err := hashAt(fd, name, maxSaved)
	if err != nil {
		return State{}, r, err
	}
	return State{Mode: r.mode, OID: o}, r, nil
}

// names are those in a folder.
func (t *workTree) names(rel string) ([]string, error) {
	f, err := t.folder(rel)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, err
}
