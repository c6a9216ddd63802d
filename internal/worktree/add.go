package worktree

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"noused/internal/format"
	"noused/internal/gitfile"
	"noused/internal/xdg"
)

// Tree is a worktree that Add has made.
type Tree struct {
	Dir    string // absolute
	Branch string
	// Source is the top of the checkout that it was made from, "" of a bare repository.
	Source   string
	Included Included
	common   string
	run      Runner
	made     string // the commit that the branch was made at, "" if it was there before
	base     string // the folder that no folder is removed from
}

// Home is the folder that worktrees of sessions are made in:
// $XDG_DATA_HOME/noused/worktrees.
func Home(getenv func(string) string) string {
	return filepath.Join(xdg.Data(getenv), "noused", "worktrees")
}

// Add makes a worktree of the repository that dir is in, at home/REPO/BRANCH; of
// another repository with that name at home/REPO-2/BRANCH, and so on. A branch
// that does not exist is made from HEAD. Without a branch a new one is named
// after title, or made up. It blocks until all files are there. It fails, and
// leaves nothing behind, without git, where dir is in no repository, HEAD is no
// commit, the branch's name is not one, or git refuses, as it does for a branch
// that is checked out already, and where ctx ends.
//
// Ignored files that IncludeFile names are copied; what cannot be is left out, and named.
//
// Git runs what the repository's configuration names, such as filters: run decides
// what that may do.
func Add(ctx context.Context, run Runner, dir, home, branch, title string) (t Tree, err error) {
	t.base, t.run = home, run
	if t.common, err = repository(ctx, run, dir); err != nil {
		return t, err
	}
	from := in(run, dir)
	head, err := from.git(ctx, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
	if refused(err) {
		return t, errors.New("the repository has no commit yet: a worktree is made from one")
	} else if err != nil {
		return t, err
	}
	if t.Branch = branch; branch == "" {
		t.Branch, err = from.unusedBranch(ctx, title)
	} else {
		err = from.checkBranch(ctx, branch)
	}
	if err != nil {
		return t, err
	}
	known, err := from.exists(ctx, t.Branch)
	if err != nil {
		return t, err
	}
	if t.Dir, err = freeFolder(home, t.common, t.Branch); err != nil {
		return t, err
	}
	if !known {
		err = t.branch(ctx, strings.TrimSpace(head))
	}
	if err != nil {
		return t, err
	}
	current, err := from.currentBranch(ctx)
	if err == nil {
		err = t.add(ctx)
	}
	if err != nil {
		t.unbranch(ctx)
		return t, err
	}
	if err := (record{Dir: resolved(t.Dir), From: current}).save(home); err != nil {
		return t, errors.Join(err, t.TakeBack(ctx))
	}
	t.include(ctx, from)
	if ctx.Err() != nil {
		return t, errors.Join(context.Cause(ctx), t.TakeBack(ctx))
	}
	return t, nil
}

// include copies what IncludeFile names. Without it the worktree is one all the same.
func (t *Tree) include(ctx context.Context, from place) {
	top, err := from.git(ctx, "rev-parse", "--show-toplevel")
	if err != nil { // it has no checkout
		return
	}
	t.Source = strings.TrimSuffix(top, "\n")
	if t.Included, err = include(ctx, t.run, t.Source, t.Dir); err != nil {
		t.Included.LeftOut = append(t.Included.LeftOut, "what "+IncludeFile+" names: "+err.Error())
	}
}

// branch makes the branch, which nobody has made meanwhile.
func (t *Tree) branch(ctx context.Context, at string) error {
	_, err := of(t.run, t.common).git(ctx, "update-ref", "-m", "branch: Created from HEAD", "refs/heads/"+t.Branch, at, "")
	if err == nil {
		t.made = at
	}
	return err
}

// unbranch removes the branch that branch has made, if nothing was committed there.
func (t Tree) unbranch(ctx context.Context) error {
	if t.made == "" {
		return nil
	}
	ctx, cancel := backTime(ctx)
	defer cancel()
	_, err := of(t.run, t.common).git(ctx, "update-ref", "-d", "refs/heads/"+t.Branch, t.made)
	return err
}

// add makes the worktree in a folder that nobody else has.
func (t Tree) add(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(t.Dir), 0o700); err != nil {
		return err
	}
	known := slices.Contains(linked(t.common), t.Dir) // of a folder that was removed by hand
	if err := os.Mkdir(t.Dir, 0o777); errors.Is(err, os.ErrExist) {
		return fmt.Errorf("there is something in %s already", t.Dir)
	} else if err != nil {
		return err
	}
	_, err := of(t.run, t.common, t.Dir).git(ctx, "worktree", "add", "--quiet", "--", t.Dir, t.Branch)
	switch {
	case err != nil && known:
		removeEmpty(t.Dir, t.base)
	case err != nil:
		_ = t.remove(ctx)
	}
	return err
}

// backTime is the time to take something back in, also after the end of ctx.
func backTime(ctx context.Context) (context.Context, context.CancelFunc) {
	const most = 10 * time.Second // git looks at no file for it
	return context.WithTimeout(context.WithoutCancel(ctx), most)
}

// remove removes the worktree, also one that is only partly made. Nothing else has its folder.
func (t Tree) remove(ctx context.Context) error {
	err := os.RemoveAll(t.Dir)
	if err != nil {
		return err
	}
	removeEmpty(filepath.Dir(t.Dir), t.base)
	ctx, cancel := backTime(ctx)
	defer cancel()
	if slices.Contains(linked(t.common), t.Dir) { // twice --force: git locks it until it is done
		_, err = of(t.run, t.common).git(ctx, "worktree", "remove", "--force", "--force", "--", t.Dir)
	}
	return err
}

// TakeBack removes what Add has made, as nobody has worked there yet. A branch
// that was there before stays. It does so also after the end of ctx.
func (t Tree) TakeBack(ctx context.Context) error {
	return cmp.Or(forgetRecord(t.base, t.Dir), t.remove(ctx), t.unbranch(ctx))
}

// removeEmpty removes the empty folders from dir up to top, and top not.
func removeEmpty(dir, top string) {
	for strings.HasPrefix(dir, top+string(filepath.Separator)) && os.Remove(dir) == nil {
		dir = filepath.Dir(dir)
	}
}

// refused tells whether git ran, and said no.
func refused(err error) bool {
	var e *gitError
	return errors.As(err, &e)
}

// ErrNoRepository says that a folder is not in a git repository.
var ErrNoRepository = errors.New("not in a git repository")

// repository is the git folder of the repository that dir is in.
func repository(ctx context.Context, run Runner, dir string) (string, error) {
	common, err := in(run, dir).git(ctx, "rev-parse", "--git-common-dir")
	if e := (*gitError)(nil); errors.As(err, &e) && strings.Contains(e.said, "not a git repository (or any") {
		return "", fmt.Errorf("the folder %s is %w", dir, ErrNoRepository)
	}
	if err != nil {
		return "", fmt.Errorf("the folder %s: %w", dir, err)
	}
	return filepath.EvalSymlinks(gitfile.Join(dir, strings.TrimSuffix(common, "\n")))
}

func (p place) exists(ctx context.Context, branch string) (bool, error) {
	_, err := p.git(ctx, "show-ref", "--verify", "--quiet", "--", "refs/heads/"+branch)
	if refused(err) {
		return false, nil
	}
	return err == nil, err
}

func (p place) checkBranch(ctx context.Context, name string) error {
	_, err := p.git(ctx, "check-ref-format", "refs/heads/"+name)
	if refused(err) || err == nil && (strings.HasPrefix(name, "-") || name == "HEAD") {
		return fmt.Errorf("%q cannot be the name of a branch; git help check-ref-format says what can", name)
	}
	return err
}

// unusedBranch makes up a name for a new branch.
func (p place) unusedBranch(ctx context.Context, title string) (string, error) {
	name := slug(title)
	if name == "" {
		return "nous-" + random(), nil
	}
	if known, err := p.exists(ctx, name); err != nil || !known {
		return name, err
	}
	return name + "-" + random(), nil
}

func random() string { return strings.ToLower(rand.Text()[:8]) }

// slug is a title as a branch's name: ASCII letters and digits, with - between
// them; "" if it has none.
func slug(title string) string {
	const most = 40
	words := strings.FieldsFunc(strings.ToLower(title), func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9')
	})
	name := strings.Join(words, "-")
	return strings.TrimRight(name[:min(len(name), most)], "-")
}

// freeFolder is where a repository's worktree of a branch comes. A folder for
// the repository belongs to it if it is empty, or one of its worktrees is there.
func freeFolder(home, common, branch string) (string, error) {
	const most = 1000
	name := folderName(repositoryName(common))
	own := linked(common)
	for n := 1; n < most; n++ {
		place := filepath.Join(home, name)
		if n > 1 {
			place = filepath.Join(home, fmt.Sprintf("%s-%d", name, n))
		}
		if !within(own, place) && !empty(place) {
			continue
		}
		return filepath.Join(place, filepath.FromSlash(branch)), outside(place, branch)
	}
	return "", fmt.Errorf("there are %d folders for repositories with the name %s in %s", most, name, home)
}

// within tells whether one of the folders is in place.
func within(dirs []string, place string) bool {
	if real, err := filepath.EvalSymlinks(place); err == nil {
		place = real
	}
	for _, dir := range dirs {
		if strings.HasPrefix(dir, place+string(filepath.Separator)) {
			return true
		}
	}
	return false
}

// empty tells whether nothing is at place, or a folder with nothing in it.
func empty(place string) bool {
	entries, err := os.ReadDir(place)
	return len(entries) == 0 && (err == nil || errors.Is(err, os.ErrNotExist))
}

// outside fails where a branch's folder would be in the worktree of another, as
// after a branch a was renamed and then a/b was made.
func outside(place, branch string) error {
	parts := strings.Split(branch, "/")
	for i := range parts {
		dir := filepath.Join(append([]string{place}, parts[:i+1]...)...)
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return fmt.Errorf("there is a worktree in %s already", dir)
		}
	}
	return nil
}

// folderName is a repository's name as that of a folder which may be shown and
// typed: what is neither a letter nor a digit nor one of . _ + - becomes a -.
func folderName(name string) string {
	const most = 100 // bytes
	name = strings.ToValidUTF8(name, "-")
	name = strings.Map(func(c rune) rune {
		if unicode.IsLetter(c) || unicode.IsDigit(c) || strings.ContainsRune("._+-", c) {
			return c
		}
		return '-'
	}, name)
	name = format.Cut(name, most)
	if name = strings.TrimLeft(name, ".-"); name == "" {
		return "repository"
	}
	return name
}
