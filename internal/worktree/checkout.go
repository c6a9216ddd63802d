package worktree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"noused/internal/gitfile"
	"noused/internal/regular"
)

// checkout is where the branch is checked out that is landed on.
type checkout struct {
	dir, gitDir string
	place       place
	indexWas    string            // the signature of its index when it was copied
	was         map[string]string // of the files that are changed, before they were looked at
}

// findCheckout finds the checkout of the branch, and fails where its files cannot be changed.
func (l *landing) findCheckout(ctx context.Context) error {
	common := of(Directly, l.link.common) // worktree list runs nothing
	var dir, found string
	err := common.each(ctx, nil, func(line string) error {
		word, rest, _ := strings.Cut(line, " ")
		switch {
		case word == "worktree":
			dir = rest
		case word == "branch" && rest == "refs/heads/"+l.Into && found == "":
			found = dir
		}
		return nil
	}, "worktree", "list", "--porcelain", "-z")
	if err != nil {
		return err
	}
	if err := l.refuseRebase(); err != nil {
		return err
	}
	if found == "" {
		return nil
	}
	if l.checkout, err = l.checkoutIn(ctx, found); err != nil {
		return err
	}
	l.Checkout = l.checkout.dir
	return l.checkCheckout(ctx)
}

// refuseRebase fails where a rebase of the branch goes on somewhere: it would set the branch.
func (l *landing) refuseRebase() error {
	folders := []string{l.link.common}
	entries, _ := os.ReadDir(filepath.Join(l.link.common, "worktrees"))
	for _, e := range entries {
		folders = append(folders, filepath.Join(l.link.common, "worktrees", e.Name()))
	}
	for _, folder := range folders {
		for _, name := range []string{"rebase-merge/head-name", "rebase-apply/head-name"} {
			if line, err := gitfile.Line(filepath.Join(folder, name)); err == nil && line == "refs/heads/"+l.Into {
				return fmt.Errorf("%s: a rebase of %s goes on: git status there says how to end it, or give it up",
					l.folderOf(folder), l.Into)
			}
		}
	}
	return nil
}

// folderOf is the folder of a checkout whose part of the repository that is.
func (l *landing) folderOf(gitDir string) string {
	if back, err := gitfile.Line(filepath.Join(gitDir, "gitdir")); err == nil && gitDir != l.link.common {
		return filepath.Dir(gitfile.Join(gitDir, back))
	}
	return filepath.Dir(l.link.common)
}

// checkoutIn is the checkout in a folder, which must agree that it is one of this repository:
// a session can write to the repository, and could name any folder there.
func (l *landing) checkoutIn(ctx context.Context, dir string) (*checkout, error) {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, fmt.Errorf("%s is checked out in %s, which cannot be looked at: %w; git worktree prune forgets a "+
			"worktree whose folder is gone", l.Into, dir, err)
	}
	gitDir := filepath.Join(real, ".git")
	if gitDir != l.link.common {
		link, err := linkOf(real)
		common := ""
		if err == nil {
			common, err = filepath.EvalSymlinks(link.common)
		}
		own, ownErr := filepath.EvalSymlinks(l.link.common)
		if err = errors.Join(err, ownErr); err != nil || common != own {
			return nil, unknownCheckout(l.Into, dir)
		}
		gitDir = link.gitDir
	} else if info, err := os.Lstat(gitDir); err != nil || !info.IsDir() {
		return nil, unknownCheckout(l.Into, dir)
	}
	if err := unendedTo(gitDir, real); err != nil {
		return nil, err
	}
	p, err := l.placeOf(ctx, real, gitDir, "target")
	return &checkout{dir: real, gitDir: gitDir, place: p, was: map[string]string{}}, err
}

func unknownCheckout(branch, dir string) error {
	return fmt.Errorf("%s is checked out in %s, which is no checkout of this repository that nous knows", branch, dir)
}

// maxIndex bounds git's index, in bytes.
const maxIndex = 1 << 30

// copyIndex copies the index of a checkout.
func copyIndex(gitDir, to string) (err error) {
	from, err := regular.Open(filepath.Join(gitDir, "index"), os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) { // all is staged as removed
		if err = os.Remove(to); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return err
	}
	if err != nil {
		return err
	}
	defer from.Close()
	info, err := from.Stat()
	if err == nil && info.Size() > maxIndex {
		err = fmt.Errorf("%s is longer than %d bytes", from.Name(), maxIndex)
	}
	if err != nil {
		return err
	}
	return copyFile(from, to, info)
}

// copyFile makes a file with the text, mode and times of another: git believes an index by its times.
func copyFile(from io.Reader, to string, info os.FileInfo) (err error) {
	_ = os.Remove(to)
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, from)
	return errors.Join(err, out.Close(), os.Chtimes(to, info.ModTime(), info.ModTime()))
}

// checkCheckout fails where a file that the landing changes is not as the commit has it, or
// would be lost. It makes the index and the files that the checkout then gets.
func (l *landing) checkCheckout(ctx context.Context) error {
	touched := map[string]Change{}
	for _, c := range l.Files {
		if c.oldMode == gitlink || c.mode == gitlink {
			return fmt.Errorf("the landing moves the submodule %.200q, and %s is checked out in %s: merge %s there with git",
				c.Path, l.Into, l.Checkout, l.Branch)
		}
		touched[c.Path] = c
		l.checkout.was[c.Path] = signature(filepath.Join(l.Checkout, c.Path))
	}
	p := l.checkout.place
	l.checkout.indexWas = signature(filepath.Join(l.checkout.gitDir, "index"))
	if err := copyIndex(l.checkout.gitDir, filepath.Join(l.state, "index-target")); err != nil {
		return err
	}
	if _, err := p.git(ctx, "update-index", "-q", "--really-refresh"); err != nil && !refused(err) {
		return err
	}
	var found []string
	see := func(path string) error {
		if _, ok := touched[path]; ok && !slices.Contains(found, path) && len(found) <= maxNamed {
			found = append(found, path)
		}
		return nil
	}
	err := p.each(ctx, nil, see, "diff-index", "--cached", "-z", "--name-only", "--no-renames", "--ignore-submodules=all",
		l.target, "--")
	if err == nil {
		err = p.each(ctx, nil, see, "diff-files", "-z", "--name-only", "--ignore-submodules=all")
	}
	if err != nil {
		return err
	}
	if err := unclean(l.Checkout, "changes that are not committed in files which the landing changes", found,
		"commit them there, or put them aside with git stash there, and land again"); err != nil {
		return err
	}
	if err := l.refuseStrays(touched); err != nil {
		return err
	}
	if _, err := p.git(ctx, "read-tree", "-m", l.target, l.result); err != nil {
		return err
	}
	var written []string
	for _, c := range l.Files {
		if c.Status != 'D' {
			written = append(written, c.Path)
		}
	}
	return l.refuseFilters(ctx, p, written, "--cached")
}

func unclean(dir, what string, found []string, then string) error {
	if len(found) == 0 {
		return nil
	}
	err := unsaved(dir, what, found, func(path string) string { return fmt.Sprintf("%.200q", path) })
	var e *UnsavedError
	if errors.As(err, &e) {
		return fmt.Errorf("the checkout %s has %s: %s; %s", e.Dir, e.What, strings.Join(e.Names, ", "), then)
	}
	return err
}

// refuseStrays fails where there is a file in the way of a new one, ignored or not.
func (l *landing) refuseStrays(touched map[string]Change) error {
	deleted := func(path string) bool { return touched[path].Status == 'D' }
	var found []string
	clear := map[string]bool{"": true, ".": true} // folders that are folders, or are made
	for _, c := range l.Files {
		if c.Status == 'D' {
			continue
		}
		for _, folder := range above(c.Path) {
			if clear[folder] {
				continue
			}
			info, err := os.Lstat(filepath.Join(l.Checkout, folder))
			switch {
			case errors.Is(err, errNotFolder): // what is in the way is found already
			case errors.Is(err, fs.ErrNotExist), err == nil && (info.IsDir() || deleted(folder)):
				clear[folder] = true
			case err != nil:
				return err
			default:
				found = append(found, folder)
			}
		}
		if c.Status != 'A' {
			continue
		}
		more, err := strays(l.Checkout, c.Path, deleted)
		if err != nil {
			return err
		}
		if found = append(found, more...); len(found) > maxNamed {
			break
		}
	}
	slices.Sort(found)
	return unclean(l.Checkout, "files that git does not know, where the landing would put others", slices.Compact(found),
		"move them away, and land again")
}

// above are the folders that a path leads through, the outermost first.
func above(path string) (folders []string) {
	for i, c := range path {
		if c == '/' {
			folders = append(folders, path[:i])
		}
	}
	return folders
}

// strays are what is at a path or below it, but for files that are deleted and the folders
// that these are in.
func strays(top, path string, deleted func(string) bool) (found []string, err error) {
	full := filepath.Join(top, path)
	kept := map[string]bool{} // folders with nothing that is deleted
	err = filepath.WalkDir(full, func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotFolder) {
			return nil
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(top, name)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			kept[rel] = true
		case deleted(rel):
			for _, folder := range above(rel) {
				delete(kept, folder)
			}
		default:
			if found = append(found, rel); len(found) > maxNamed {
				return fs.SkipAll
			}
		}
		return nil
	})
	for folder := range kept {
		found = append(found, folder+"/")
	}
	return found, err
}

// stage writes the files that the checkout gets beside it, through the filters.
func (l *landing) stage(ctx context.Context) error {
	folder := filepath.Join(l.state, "files")
	if err := errors.Join(os.RemoveAll(folder), os.MkdirAll(folder, 0o700)); err != nil {
		return err
	}
	p := l.checkout.place
	left := map[string]bool{} // by a sparse checkout
	err := p.each(ctx, nil, func(entry string) error {
		if path, ok := strings.CutPrefix(entry, "S "); ok {
			left[path] = true
		}
		return nil
	}, "ls-files", "-t", "-z")
	if err != nil {
		return err
	}
	var list strings.Builder
	for _, c := range l.Files {
		if c.Status != 'D' && !left[c.Path] {
			list.WriteString(c.Path + "\x00")
		}
	}
	p.at = []string{"-C", folder, "--git-dir=" + l.checkout.gitDir, "--work-tree=" + folder}
	_, err = p.gitWith(ctx, []byte(list.String()), "checkout-index", "-q", "-f", "-z", "--stdin")
	return err
}
