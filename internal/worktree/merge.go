package worktree

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// compare counts what is new, and fails where nothing is.
func (l *landing) compare(ctx context.Context) error {
	if _, err := l.tree.git(ctx, "merge-base", l.head, l.target); refused(err) {
		return fmt.Errorf("%s and %s have no commit in common", l.Branch, l.Into)
	} else if err != nil {
		return err
	}
	if err := l.forgetOtherLanding(ctx); err != nil {
		return err
	}
	what := []string{"--topo-order", "--reverse", l.head, "^" + l.target}
	if l.known.Landed != nil {
		what = append(what, "^"+l.known.Landed.Commit)
	}
	const mostCommits = 1000
	var all []string
	out, err := l.tree.git(ctx, append([]string{"rev-list", "--count"}, what[2:]...)...)
	if err == nil {
		l.Commits, err = strconv.Atoi(strings.TrimSpace(out))
	}
	if err != nil {
		return err
	}
	if l.Commits == 0 && !l.dirty {
		return ErrNothingToLand
	}
	if l.Commits > mostCommits && l.r.Mode == Rebase {
		return fmt.Errorf("%s has %d commits that %s has not, and --rebase copies at most %d: use --squash or --merge",
			l.Branch, l.Commits, l.Into, mostCommits)
	}
	if l.Commits > 0 {
		if out, err = l.tree.git(ctx, append([]string{"rev-list"}, what...)...); err != nil {
			return err
		}
		all = strings.Fields(out)
		if out, err = l.tree.git(ctx, "log", "-1", "--no-show-signature", "--format=%s", all[0], "--"); err != nil {
			return err
		}
		l.Subject = strings.TrimSpace(out)
	}
	if l.r.Mode != Rebase {
		return nil
	}
	if out, err = l.tree.git(ctx, append([]string{"rev-list", "--merges", "--max-count=1"}, what[2:]...)...); err != nil {
		return err
	} else if out != "" {
		return fmt.Errorf("%s has merge commits, which --rebase would lose: use --squash or --merge", l.Branch)
	}
	for _, commit := range all {
		l.steps = append(l.steps, step{commit: commit})
	}
	return nil
}

// forgetOtherLanding keeps the last landing only while both branches still have it.
func (l *landing) forgetOtherLanding(ctx context.Context) error {
	last := l.known.Landed
	if last == nil {
		return nil
	}
	holds := last.Into == l.Into
	for _, pair := range [][2]string{{last.Commit, l.head}, {last.As, l.target}} {
		if !holds {
			break
		}
		_, err := l.tree.git(ctx, "merge-base", "--is-ancestor", pair[0], pair[1])
		if err != nil && !refused(err) {
			return err
		}
		holds = err == nil
	}
	if holds { // and a merge into the branch since has it in both
		_, err := l.tree.git(ctx, "merge-base", "--is-ancestor", last.As, l.head)
		if err != nil && !refused(err) {
			return err
		}
		holds = err != nil
	}
	if !holds {
		l.known.Landed = nil
	}
	return nil
}

// merged finds the tree that the branch comes to.
func (l *landing) merged(ctx context.Context) (err error) {
	if l.r.Mode == Rebase {
		return l.rebased(ctx)
	}
	target, err := l.tree.treeOf(ctx, l.target)
	if err != nil {
		return err
	}
	if l.known.Landed != nil {
		base, err := l.tree.treeOf(ctx, l.known.Landed.Commit)
		if err == nil {
			l.result, err = l.merge3(ctx, base, target, l.treeID)
		}
		if err != nil {
			return err
		}
	} else {
		work, err := l.tree.scratch(ctx, l.treeID, l.head)
		if err == nil {
			l.result, err = l.mergeTree(ctx, l.target, work)
		}
		if err != nil {
			return err
		}
	}
	if l.result == target && l.r.Mode == Squash {
		return ErrNothingToLand
	}
	return nil
}

// rebased copies each commit's changes. One that changes nothing more is left out.
func (l *landing) rebased(ctx context.Context) (err error) {
	if l.dirty {
		l.steps = append(l.steps, step{tree: l.treeID})
	}
	at, err := l.tree.treeOf(ctx, l.target)
	if err != nil {
		return err
	}
	before := ""
	if len(l.steps) > 0 && l.steps[0].commit != "" {
		before, err = l.tree.treeOf(ctx, l.steps[0].commit+"^")
	} else {
		before, err = l.tree.treeOf(ctx, l.head)
	}
	if err != nil {
		return err
	}
	var kept []step
	for _, s := range l.steps {
		work := s.tree
		if s.commit != "" {
			if work, err = l.tree.treeOf(ctx, s.commit); err != nil {
				return err
			}
		}
		next, err := l.merge3(ctx, before, at, work)
		if err != nil {
			return err
		}
		if next != at || work == before {
			kept = append(kept, step{s.commit, next})
		}
		at, before = next, work
	}
	if l.steps, l.result = kept, at; len(kept) == 0 {
		return ErrNothingToLand
	}
	return nil
}

// scratch makes a commit that nobody sees.
func (p place) scratch(ctx context.Context, tree string, parents ...string) (string, error) {
	args := []string{"commit-tree", "--no-gpg-sign", "-m", "scratch", tree}
	for _, parent := range parents {
		args = append(args, "-p", parent)
	}
	p.env = append(slices.Clip(p.env), "GIT_AUTHOR_NAME=nous", "GIT_AUTHOR_EMAIL=nous", "GIT_COMMITTER_NAME=nous",
		"GIT_COMMITTER_EMAIL=nous", "GIT_AUTHOR_DATE=@1 +0000", "GIT_COMMITTER_DATE=@1 +0000")
	out, err := p.git(ctx, args...)
	return strings.TrimSpace(out), err
}

// merge3 merges two trees that came of a third.
func (l *landing) merge3(ctx context.Context, base, ours, theirs string) (string, error) {
	switch base {
	case ours:
		return theirs, nil
	case theirs:
		return ours, nil
	}
	from, err := l.tree.scratch(ctx, base)
	if err != nil {
		return "", err
	}
	var sides [2]string
	for i, tree := range []string{ours, theirs} {
		if sides[i], err = l.tree.scratch(ctx, tree, from); err != nil {
			return "", err
		}
	}
	return l.mergeTree(ctx, sides[0], sides[1])
}

// mergeTree merges two commits, and touches no checkout.
func (l *landing) mergeTree(ctx context.Context, ours, theirs string) (string, error) {
	tree := ""
	e := &ConflictError{Branch: l.Branch, Into: l.Into}
	out := records{take: func(record string) error {
		switch {
		case tree == "":
			tree = record
		case len(e.Files) == maxConflicts:
			e.More++
		case record != "" && !slices.Contains(e.Files, record):
			e.Files = append(e.Files, record)
		}
		return nil
	}}
	err := l.tree.stream(ctx, nil, &out, "merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", ours, theirs)
	var refusal *gitError
	switch {
	case errors.As(err, &refusal) && tree != "":
		return "", e
	case errors.As(err, &refusal) && strings.Contains(refusal.said, "usage:"):
		return "", errors.New("git is too old to merge without a checkout: 2.38 or newer is needed")
	case err != nil:
		return "", err
	}
	return tree, out.err
}

// listChanges lists how the files of the branch change.
func (l *landing) listChanges(ctx context.Context) error {
	var facts []string
	index := map[string]int{}
	err := l.tree.each(ctx, nil, func(record string) error {
		if facts == nil {
			facts = strings.Fields(strings.TrimPrefix(record, ":"))
			return nil
		}
		if len(facts) < 5 {
			return fmt.Errorf("git diff-tree says %.100q", strings.Join(facts, " "))
		}
		index[record] = len(l.Files)
		l.Files = append(l.Files, Change{Status: facts[4][0], Path: record, oldMode: facts[0], mode: facts[1]})
		facts = nil
		return nil
	}, "diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-ext-diff", l.target, l.result)
	if err != nil {
		return err
	}
	return l.tree.each(ctx, nil, func(record string) error {
		f := strings.SplitN(record, "\t", 3)
		if len(f) != 3 {
			return nil
		}
		i, ok := index[f[2]]
		if !ok {
			return nil
		}
		var err error
		c := &l.Files[i]
		if c.Added, err = strconv.Atoi(f[0]); err != nil {
			c.Added, c.Removed = -1, -1
		} else {
			c.Removed, _ = strconv.Atoi(f[1])
		}
		return nil
	}, "diff-tree", "-r", "-z", "--numstat", "--no-renames", "--no-ext-diff", "--no-textconv", l.target, l.result)
}
