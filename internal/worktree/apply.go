package worktree

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

var errNotFolder = syscall.ENOTDIR

// maxJournal bounds what is written down of a landing, in bytes.
const maxJournal = 64 << 20

// lockState keeps two landings apart, of any repository: they last for moments, and so long
// it waits.
func lockState(ctx context.Context, home string) (unlock func(), err error) {
	const patience, pause = 30 * time.Second, 20 * time.Millisecond
	unlock = func() {}
	if err := os.MkdirAll(stateHome(home), 0o700); err != nil {
		return unlock, err
	}
	f, err := os.OpenFile(filepath.Join(stateHome(home), "lock"), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return unlock, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience,
		errors.New("another nous is landing something: try again when it is done"))
	defer cancel()
	again := time.NewTicker(pause)
	defer again.Stop()
	for syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		select {
		case <-again.C:
		case <-ctx.Done():
			return unlock, errors.Join(context.Cause(ctx), f.Close())
		}
	}
	return func() { _ = f.Close() }, nil
}

func (l *landing) begun() bool {
	_, err := os.Lstat(filepath.Join(l.state, "landing.json"))
	return err == nil
}

// clearState removes all but the record.
func clearState(state string) {
	for _, name := range []string{
		"files", "index-tree", "index-target", "index-tree.lock", "index-target.lock", "git-tree", "git-target",
	} {
		_ = os.RemoveAll(filepath.Join(state, name))
	}
}

// apply does what was planned.
func (l *landing) apply(ctx context.Context) error {
	commit, as, err := l.commits(ctx)
	if err != nil {
		return err
	}
	j := l.journal(commit, as)
	if l.checkout != nil {
		if err := l.stage(ctx); err != nil {
			return err
		}
	}
	l.As = as
	if err := l.carryOut(ctx, j); err != nil {
		if !l.begun() {
			l.As = ""
		}
		return err
	}
	return nil
}

// errIndex says that an index is not what it was when it was copied.
var errIndex = errors.New("git has changed it meanwhile; nothing was landed, try again")

// errMoved says that a branch is not where it was when it was looked at.
var errMoved = errors.New("has changed meanwhile; nothing was landed, try again")

// carryOut changes the branches, and then all else.
func (l *landing) carryOut(ctx context.Context, j journal) error {
	if err := migrate(l.objects, filepath.Join(l.link.common, "objects")); err != nil {
		return err
	}
	if err := j.begin(l.state); err != nil {
		return err
	}
	if err := l.unchanged(j); err != nil {
		return errors.Join(err, j.takeBack(l.state))
	}
	switch err := l.moveBranches(ctx, j); {
	case errors.Is(err, errMoved):
		return errors.Join(err, j.takeBack(l.state))
	case err != nil: // it was interrupted, and may have moved them
		ctx, cancel := backTime(ctx)
		defer cancel()
		return errors.Join(err, j.resume(ctx, l.r.Home, l.state))
	}
	return j.finish(ctx, l.r.Home, l.state)
}

// journal is what is written down of it.
func (l *landing) journal(commit, as string) journal {
	j := journal{
		Common: l.link.common, Dir: l.Dir, GitDir: l.link.gitDir, Branch: l.Branch, Commit: commit, Index: l.dirty,
		Into: l.Into, Old: l.target, New: as, Token: "nous land " + rand.Text() + "\n",
	}
	if c := l.checkout; c != nil {
		j.Checkout, j.CheckGit = c.dir, c.gitDir
		for _, f := range l.Files {
			j.Files = append(j.Files, file{[]byte(f.Path), f.Status == 'D', c.was[f.Path]})
		}
	}
	return j
}

// unchanged fails where git has changed an index since it was copied.
func (l *landing) unchanged(j journal) error {
	was := map[string]string{l.link.gitDir: l.indexWas}
	if l.checkout != nil {
		was[l.checkout.gitDir] = l.checkout.indexWas
	}
	for _, gitDir := range j.locked() {
		if signature(filepath.Join(gitDir, "index")) != was[gitDir] {
			return fmt.Errorf("%s: %w", filepath.Join(gitDir, "index"), errIndex)
		}
	}
	return nil
}

// moveBranches is the moment from which the landing is done.
func (l *landing) moveBranches(ctx context.Context, j journal) error {
	lines := fmt.Sprintf("update refs/heads/%s %s %s\n", j.Into, j.New, j.Old)
	switch {
	case j.Into == j.Branch: // it is committed, and not landed
	case j.Index:
		lines += fmt.Sprintf("update refs/heads/%s %s %s\n", j.Branch, j.Commit, l.head)
	default: // nobody has committed meanwhile
		lines += fmt.Sprintf("verify refs/heads/%s %s\n", j.Branch, l.head)
	}
	at := l.tree
	if l.checkout != nil { // its HEAD has a log
		at = l.checkout.place
	}
	_, err := at.gitWith(ctx, []byte(lines), "update-ref", "-m", "nous land: "+j.Branch, "--stdin")
	if refused(err) {
		return fmt.Errorf("%s or %s %w (%w)", j.Into, j.Branch, errMoved, err)
	}
	return err
}

// commits makes them: that of the worktree, and that of the branch.
func (l *landing) commits(ctx context.Context) (commit, as string, err error) {
	message := strings.TrimSpace(l.r.Message) + "\n"
	if message == "\n" {
		return "", "", errors.New("the message of the commit is empty")
	}
	sign, err := l.tree.signs(ctx)
	if err != nil {
		return "", "", err
	}
	if commit = l.head; l.dirty {
		if commit, err = l.tree.commitTree(ctx, sign, l.treeID, message, nil, l.head); err != nil {
			return "", "", err
		}
	}
	switch l.r.Mode {
	case Squash:
		as, err = l.tree.commitTree(ctx, sign, l.result, message, nil, l.target)
	case Merge:
		as, err = l.tree.commitTree(ctx, sign, l.result, fmt.Sprintf("Merge branch '%s'\n\n%s", l.Branch, message), nil,
			l.target, commit)
	case Rebase:
		as, err = l.copies(ctx, sign, message, commit)
	default:
		err = fmt.Errorf("there is no way %q to land", l.r.Mode)
	}
	return commit, as, err
}

// copies makes the commits of a rebase. Where the branch begins at the target they are it.
func (l *landing) copies(ctx context.Context, sign bool, message, commit string) (as string, err error) {
	if _, err := l.tree.git(ctx, "merge-base", "--is-ancestor", l.target, commit); err == nil {
		return commit, nil
	}
	as = l.target
	for _, s := range l.steps {
		text, author := message, []string(nil)
		if s.commit != "" {
			out, err := l.tree.git(ctx, "log", "-1", "--no-show-signature", "--date=raw", "--format=%an%x00%ae%x00%ad%x00%B",
				s.commit, "--")
			if err != nil {
				return "", err
			}
			f := strings.SplitN(out, "\x00", 4)
			if len(f) != 4 || len(out) == maxOutput {
				return "", fmt.Errorf("the commit %s cannot be copied: its message is too long", s.commit)
			}
			text = strings.TrimSpace(f[3]) + "\n"
			author = []string{"GIT_AUTHOR_NAME=" + f[0], "GIT_AUTHOR_EMAIL=" + f[1], "GIT_AUTHOR_DATE=" + f[2]}
		}
		if as, err = l.tree.commitTree(ctx, sign, s.tree, text, author, as); err != nil {
			return "", err
		}
	}
	return as, nil
}

func (p place) commitTree(ctx context.Context, sign bool, tree, message string, env []string, parents ...string) (
	string, error,
) {
	args := []string{"commit-tree", "--no-gpg-sign", "-F", "-", tree}
	if sign {
		args[1] = "--gpg-sign"
	}
	for _, parent := range parents {
		args = append(args, "-p", parent)
	}
	p.env = append(slices.Clip(p.env), env...)
	out, err := p.gitWith(ctx, []byte(message), args...)
	return strings.TrimSpace(out), err
}

var signPrograms = pattern(`(?s)^gpg\.(.*\.)?(program|defaultkeycommand)$`)

// signs tells whether commits are signed, as the user's git does it. A program for it that
// the repository's own configuration names is not run.
func (p place) signs(ctx context.Context) (bool, error) {
	out, err := p.git(ctx, "config", "--type=bool", "--get", "commit.gpgSign")
	if refused(err) || err == nil && strings.TrimSpace(out) != "true" {
		return false, nil
	} else if err != nil {
		return false, err
	}
	if keys := p.foreignKeys(signPrograms); len(keys) > 0 {
		err = fmt.Errorf("commits are signed, and the repository's own configuration sets %s: nous land runs no "+
			"program that a session could have named; set it with git config --global, or commit and merge with git", keys[0])
	}
	return true, err
}

// migrate moves new objects to where all look for them; a pack's index last.
func migrate(from, to string) error {
	var names []string
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			rel, relErr := filepath.Rel(from, path)
			names, err = append(names, rel), relErr
		}
		return err
	})
	if err != nil {
		return err
	}
	slices.SortStableFunc(names, func(x, y string) int {
		return strings.Compare(filepath.Ext(y), filepath.Ext(x)) // .rev, .pack, .idx, and then loose ones
	})
	for _, name := range names {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(to, name)), 0o777); err != nil {
			return err
		}
		if err := os.Link(filepath.Join(from, name), filepath.Join(to, name)); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}
