package worktree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Mode is how the work of a worktree is brought to a branch.
type Mode string

// Squash makes one commit of it, Merge a merge commit, and Rebase copies each commit.
const (
	Squash Mode = "squash"
	Merge  Mode = "merge"
	Rebase Mode = "rebase"
)

// LandRequest names the work and the branch that gets it.
type LandRequest struct {
	Dir     string // of the worktree
	Home    string // see Home
	Into    string // the branch; "": the one that the worktree was made from
	Mode    Mode
	Message string // of the commits that are made; Plan needs none
}

// Change is what a landing does to one file. Status is one of A, M, D and T as git has
// them; Added and Removed are lines, and -1 of a binary file.
type Change struct {
	Status         byte
	Path           string
	Added, Removed int
	oldMode, mode  string
}

// Landing is a landing that can be done, or was.
type Landing struct {
	Dir, Branch string
	Into        string
	Checkout    string   // the folder in which Into is checked out, "" if it is nowhere
	Commits     int      // of the branch, that were not landed before
	Subject     string   // of the first of them
	Uncommitted int      // files that a commit of their own has
	Files       []Change // of Into
	As          string   // the commit that Into has come to; "" of a plan
}

// ErrNothingToLand says that the branch has all that the worktree has.
var ErrNothingToLand = errors.New("there is nothing to land")

// ConflictError says which files the worktree and the branch have changed in ways that do
// not go together. Nothing was changed.
type ConflictError struct {
	Branch, Into string
	Files        []string // at most maxConflicts
	More         int      // that are not listed
}

const maxConflicts = 1000

func (e *ConflictError) Error() string {
	names := make([]string, 0, maxNamed+1)
	for _, f := range e.Files[:min(len(e.Files), maxNamed)] {
		names = append(names, fmt.Sprintf("%.200q", f))
	}
	if len(e.Files)+e.More > maxNamed {
		names = append(names, fmt.Sprintf("and %d more", len(e.Files)+e.More-maxNamed))
	}
	return fmt.Sprintf("%s conflicts with %s; nothing was changed. Both change %s", e.Branch, e.Into,
		strings.Join(names, ", "))
}

// Plan says what Land would do, and fails where that would. It changes nothing, but that a
// landing which something has ended in the middle is finished, or taken back, first.
func Plan(ctx context.Context, r LandRequest) (Landing, error) {
	l, err := open(ctx, r)
	if err != nil {
		return Landing{}, err
	}
	defer l.close()
	err = l.plan(ctx)
	return l.Landing, err
}

// Land commits what is not committed in a worktree, and brings its branch to another. It
// fails, and leaves both as they were, for a conflict, with a *ConflictError; where files
// that it would change have changes in the checkout of the other branch, or are there
// without git knowing them; where one of the two is in the middle of a rebase or the like;
// and where there is nothing to do, with ErrNothingToLand. Where something ends it after
// it has begun to change files, the next Plan or Land in that repository finishes it.
//
// No hook is run, and no filter, merge driver or program to sign with that the repository's
// own configuration names: a file that needs one is a refusal. It blocks until all files
// are there.
func Land(ctx context.Context, r LandRequest) (l Landing, err error) {
	const tries = 3 // a git status in a prompt writes the index, too
	for range tries {
		if l, err = landOnce(ctx, r); !errors.Is(err, errIndex) {
			break
		}
	}
	return l, err
}

func landOnce(ctx context.Context, r LandRequest) (Landing, error) {
	l, err := open(ctx, r)
	if err != nil {
		return Landing{}, err
	}
	defer l.close()
	if err := l.plan(ctx); err != nil {
		return l.Landing, err
	}
	err = l.apply(ctx)
	return l.Landing, err
}

// landing is one that is planned or done.
type landing struct {
	Landing
	r       LandRequest
	known   record
	state   string // the folder for files of ours
	unlock  func()
	link    link
	tree    place  // the worktree, inert
	objects string // the folder for new objects until they are needed

	head, target string // the commits of Branch and Into
	treeID       string // what the worktree has
	dirty        bool   // treeID is not that of head
	indexWas     string // its signature when it was copied
	checkout     *checkout
	steps        []step // of Rebase
	result       string // the tree that Into comes to
	filters      []string
}

// step is a commit that is copied: what has its changes is tree.
type step struct{ commit, tree string }

// open checks the worktree, and finishes what was begun before.
func open(ctx context.Context, r LandRequest) (l *landing, err error) {
	l = &landing{r: r, unlock: func() {}}
	if l.link, err = landable(r.Dir); err != nil {
		return l, err
	}
	if l.Dir, err = filepath.EvalSymlinks(r.Dir); err != nil {
		return l, err
	}
	l.state = stateFolder(r.Home, l.Dir)
	if l.known, err = readRecord(r.Home, l.Dir); err != nil {
		return l, err
	}
	if l.unlock, err = lockState(ctx, r.Home); err != nil {
		return l, err
	}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if err := resume(ctx, r.Home); err != nil {
		return l, err
	}
	if err := os.MkdirAll(l.state, 0o700); err != nil {
		return l, err
	}
	// of one that was killed before it had begun
	clearState(l.state)
	l.objects, err = os.MkdirTemp(filepath.Join(l.link.common, "objects"), "tmp_objdir-nous-") // git prune removes it
	if err != nil {
		return l, err
	}
	if l.tree, err = l.placeOf(ctx, l.Dir, l.link.gitDir, "tree"); err != nil {
		return l, err
	}
	l.filters = l.tree.foreignKeys(filterKeys)
	return l, nil
}

// Landable says why nothing can be landed from a folder; nil where it is a worktree.
func Landable(dir string) error {
	_, err := landable(dir)
	return err
}

func landable(dir string) (link, error) {
	if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
		return link{}, fmt.Errorf("the worktree %s is gone: what was committed there is still on its branch, and git merge "+
			"brings it to another", dir)
	}
	l, err := linkOf(dir)
	if err != nil {
		return l, fmt.Errorf("%s %w: the session changes its files directly, so there is nothing to land; nous new "+
			"--worktree makes a session whose work is landed", dir, ErrNotLinked)
	}
	return l, nil
}

// close removes what is ours alone.
func (l *landing) close() {
	if l.objects != "" {
		_ = os.RemoveAll(l.objects)
	}
	if l.state != "" && !l.begun() {
		clearState(l.state)
	}
	l.unlock()
}

// filterKeys are those that say what a filter runs; Git LFS runs more.
var filterKeys = pattern(`(?i)^(filter|lfs\.extension)\.`)

// placeOf is a checkout with a git that has an index of its own, runs nothing that the
// repository names, and puts new objects aside.
func (l *landing) placeOf(ctx context.Context, dir, gitDir, name string) (place, error) {
	p := checkoutPlace(dir, gitDir)
	p.env = []string{
		"GIT_INDEX_FILE=" + filepath.Join(l.state, "index-"+name), "GIT_OBJECT_DIRECTORY=" + l.objects,
		"GIT_ALTERNATE_OBJECT_DIRECTORIES=" + quotedPath(filepath.Join(l.link.common, "objects")),
	}
	return p.inert(ctx, l.link.common, filepath.Join(l.state, "git-"+name))
}

// checkoutPlace is a checkout, whatever its files say of where its repository is.
func checkoutPlace(dir, gitDir string) place {
	return place{
		run: Directly, at: []string{"-C", dir, "--git-dir=" + gitDir, "--work-tree=" + dir},
		config: []string{"-c", "core.splitIndex=false", "-c", "core.untrackedCache=false"},
	}
}

// quotedPath is a path as one of a list that has : between paths.
func quotedPath(path string) string {
	if !strings.ContainsAny(path, ":\"\\\n") {
		return path
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(path) + `"`
}

// plan finds out what would be done.
func (l *landing) plan(ctx context.Context) (err error) {
	for _, find := range []func(context.Context) error{
		l.findBranch, l.findTarget, l.snapshot, l.compare, l.merged, l.listChanges, l.findCheckout,
	} {
		if err := find(ctx); err != nil {
			return err
		}
	}
	return nil
}

// findBranch checks that the worktree is on a branch, with nothing going on.
func (l *landing) findBranch(ctx context.Context) (err error) {
	if l.Branch, err = l.tree.currentBranch(ctx); err != nil {
		return err
	}
	if l.Branch == "" {
		return fmt.Errorf("no branch is checked out in the worktree %s: git switch -c NAME there makes one", l.Dir)
	}
	if err := unendedTo(l.link.gitDir, l.Dir); err != nil {
		return err
	}
	l.head, err = l.tree.commit(ctx, l.Branch)
	if refused(err) {
		return fmt.Errorf("the branch %s of the worktree has no commit", l.Branch)
	}
	return err
}

// unendedTo is unended for what can be landed once that has ended.
func unendedTo(gitDir, dir string) error {
	if err := unended(gitDir, dir); err != nil {
		return fmt.Errorf("%w; git status there says how to end it, or give it up", err)
	}
	return nil
}

// commit is the commit of a branch.
func (p place) commit(ctx context.Context, branch string) (string, error) {
	id, err := p.git(ctx, "rev-parse", "--verify", "--quiet", "refs/heads/"+branch+"^{commit}")
	return strings.TrimSpace(id), err
}

func (l *landing) findTarget(ctx context.Context) (err error) {
	if l.Into = l.r.Into; l.Into == "" {
		l.Into = l.known.From
	}
	if l.Into == "" {
		return errors.New("nothing says which branch the worktree was made from: name the one to land on with --into")
	}
	if err := l.tree.checkBranch(ctx, l.Into); err != nil {
		return err
	}
	if l.Into == l.Branch {
		return fmt.Errorf("%s is the worktree's own branch: name another with --into", l.Into)
	}
	l.target, err = l.tree.commit(ctx, l.Into)
	if refused(err) {
		return fmt.Errorf("there is no branch %s: name one that git branch lists with --into", l.Into)
	}
	return err
}

// snapshot is a tree of what the worktree has, committed or not.
func (l *landing) snapshot(ctx context.Context) error {
	if err := l.refuseSubmodules(ctx); err != nil {
		return err
	}
	var changed, there, gone []string
	err := l.tree.each(ctx, nil, func(entry string) error {
		if len(entry) < len("XY p") {
			return nil
		}
		state, path := entry[:2], entry[3:]
		switch {
		case state == "??" && strings.HasSuffix(path, "/"):
			return fmt.Errorf("the worktree has a repository of its own in %.200q: remove it, or have git ignore it", path)
		case strings.Contains(state, "U") || state == "AA" || state == "DD":
			return fmt.Errorf("the worktree has a conflict that is not resolved, in %.200q: resolve it there, and git add it",
				path)
		}
		if changed = append(changed, path); state[1] == 'D' {
			gone = append(gone, path)
		} else if state != "D " {
			there = append(there, path)
		}
		return nil
	}, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--ignore-submodules=all")
	if err != nil {
		return err
	}
	if err := l.refuseFilters(ctx, l.tree, changed); err != nil {
		return err
	}
	if err := l.tree.stage(ctx, gone, there); err != nil {
		return err
	}
	out, err := l.tree.git(ctx, "write-tree")
	if err != nil {
		return err
	}
	l.treeID = strings.TrimSpace(out)
	before, err := l.tree.treeOf(ctx, l.head)
	if l.dirty = before != l.treeID; l.dirty {
		l.Uncommitted = max(1, len(changed))
	}
	return err
}

// stage has the index know what is gone and what is there. git add would ask repositories that
// have come into the worktree since it was looked at for their state, and that runs what they name.
func (p place) stage(ctx context.Context, gone, there []string) error {
	for _, part := range []struct {
		paths   []string
		options []string
	}{{gone, []string{"--force-remove"}}, {there, []string{"--add", "--remove", "--replace"}}} {
		if len(part.paths) == 0 {
			continue
		}
		args := slices.Concat([]string{"update-index"}, part.options, []string{"-z", "--stdin"})
		if _, err := p.gitWith(ctx, []byte(strings.Join(part.paths, "\x00")+"\x00"), args...); err != nil {
			return err
		}
	}
	return nil
}

func (p place) treeOf(ctx context.Context, commit string) (string, error) {
	out, err := p.git(ctx, "rev-parse", "--verify", commit+"^{tree}")
	return strings.TrimSpace(out), err
}

// refuseSubmodules fails for one that is checked out in the worktree. git would look into it
// with the configuration that it has.
func (l *landing) refuseSubmodules(ctx context.Context) error {
	l.indexWas = signature(filepath.Join(l.link.gitDir, "index"))
	if err := copyIndex(l.link.gitDir, filepath.Join(l.state, "index-tree")); err != nil {
		return err
	}
	return l.tree.each(ctx, nil, func(entry string) error {
		facts, path, _ := strings.Cut(entry, "\t")
		if !strings.HasPrefix(facts, gitlink) {
			return nil
		}
		if _, err := os.Lstat(filepath.Join(l.Dir, path, ".git")); err == nil {
			return fmt.Errorf("the submodule %.200q is checked out in the worktree: nous land takes no submodules; commit "+
				"and merge with git, or git submodule deinit it", path)
		}
		return nil
	}, "ls-files", "--stage", "-z")
}

const gitlink = "160000"

// refuseFilters fails for a file that needs a filter which is switched off.
func (l *landing) refuseFilters(ctx context.Context, p place, paths []string, more ...string) error {
	if len(l.filters) == 0 || len(paths) == 0 {
		return nil
	}
	var fields []string
	return p.each(ctx, []byte(strings.Join(paths, "\x00")+"\x00"), func(field string) error {
		if fields = append(fields, field); len(fields) < 3 { // path, attribute, value
			return nil
		}
		path, filter := fields[0], fields[2]
		fields = nil
		if slices.ContainsFunc(l.filters, func(key string) bool {
			return strings.HasPrefix(key, "filter."+filter+".") || filter == "lfs" && !strings.HasPrefix(key, "filter.")
		}) {
			return fmt.Errorf("%.200q goes through the filter %.100q, which the repository's own configuration names, and "+
				"nous land runs none that a session could have written: put it into your own (git config --global; for Git LFS: "+
				"git lfs install, and git lfs uninstall --local), or commit and merge with git", path, filter)
		}
		return nil
	}, append(append([]string{"check-attr"}, more...), "-z", "--stdin", "filter")...)
}
