package worktree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"noused/internal/regular"
)

// IncludeFile is where a repository names ignored files, in the syntax of .gitignore, that
// a new worktree gets a copy of.
const IncludeFile = ".worktreeinclude"

// What is copied at most.
const (
	maxIncludeFile  = 64 << 10
	maxIncluded     = 10_000    // files
	maxIncludedSize = 256 << 20 // bytes of all together
	maxLeftOut      = 10        // that are named
)

// Included says what a new worktree has got beside the branch's files.
type Included struct {
	Files   int
	LeftOut []string // each with the reason, at most maxLeftOut and a line that counts the others
	more    int
}

func (in *Included) leaveOut(path, why string) {
	if len(in.LeftOut) == maxLeftOut {
		in.more++
		return
	}
	in.LeftOut = append(in.LeftOut, fmt.Sprintf("%.200q: %s", path, why))
}

// include copies the ignored files of a checkout that its IncludeFile names. It reads and
// writes through no link.
func include(ctx context.Context, run Runner, from, to string) (in Included, err error) {
	file := filepath.Join(from, IncludeFile)
	if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
		return in, nil
	}
	if _, err := regular.ReadOwn(file, maxIncludeFile); err != nil {
		return in, err
	}
	named := map[string]bool{}
	tooMany := false
	p := untracked(run, from)
	err = p.each(ctx, nil, func(path string) error {
		if tooMany = len(named) == maxIncluded && !named[path]; !tooMany {
			named[path] = true
		}
		return nil
	}, "ls-files", "-z", "--others", "--ignored", "--exclude-from="+file)
	if err != nil {
		return in, err
	}
	c, err := newCopier(from, to)
	if err != nil {
		return in, err
	}
	defer c.close()
	err = p.each(ctx, nil, func(path string) error {
		if named[path] && ctx.Err() == nil {
			if why := c.copy(path); why != "" {
				in.leaveOut(path, why)
			} else {
				in.Files++
			}
		}
		return context.Cause(ctx)
	}, "ls-files", "-z", "--others", "--ignored", "--exclude-standard")
	if tooMany {
		in.LeftOut = append(in.LeftOut, fmt.Sprintf("all files after the first %d", maxIncluded))
	}
	if in.more > 0 {
		in.LeftOut = append(in.LeftOut, fmt.Sprintf("and %d more", in.more))
	}
	return in, err
}

func untracked(run Runner, dir string) place {
	p := in(run, dir)
	p.config = []string{"-c", "core.untrackedCache=false"}
	return p
}

// copier copies files from one folder to another.
type copier struct {
	from, to *os.Root
	left     int64 // bytes
}

func newCopier(from, to string) (*copier, error) {
	c := &copier{left: maxIncludedSize}
	var err error
	if c.from, err = os.OpenRoot(from); err != nil {
		return nil, err
	}
	if c.to, err = os.OpenRoot(to); err != nil {
		return nil, errors.Join(err, c.from.Close())
	}
	return c, nil
}

func (c *copier) close() { _ = errors.Join(c.from.Close(), c.to.Close()) }

// copy copies one file; else it says why not.
func (c *copier) copy(path string) (why string) {
	for _, folder := range above(path) {
		source, err := c.from.Lstat(folder)
		if err != nil || !source.IsDir() {
			return "is behind a link"
		}
		if err := c.to.Mkdir(folder, source.Mode().Perm()|0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return reason(err)
		}
		if there, err := c.to.Lstat(folder); err != nil || !there.IsDir() {
			return folder + " is no folder in the worktree"
		}
	}
	info, err := c.from.Lstat(path)
	switch {
	case err != nil:
		return reason(err)
	case info.Mode()&fs.ModeSymlink != 0:
		return c.link(path)
	case !info.Mode().IsRegular():
		return "is no file"
	case info.Size() > c.left:
		return fmt.Sprintf("would be more than %d MiB in all", maxIncludedSize>>20)
	}
	if err := c.regular(path, info); err != nil {
		return reason(err)
	}
	return ""
}

func (c *copier) regular(path string, info os.FileInfo) (err error) {
	in, err := c.from.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := c.to.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm())
	if err != nil {
		return err
	}
	n, err := io.CopyN(out, in, info.Size())
	if c.left -= n; errors.Is(err, io.EOF) { // it was shortened meanwhile
		err = nil
	}
	return errors.Join(err, out.Close(), c.to.Chtimes(path, info.ModTime(), info.ModTime()))
}

// link copies a link that leads to something in the worktree.
func (c *copier) link(path string) (why string) {
	target, err := c.from.Readlink(path)
	if err != nil {
		return reason(err)
	}
	if filepath.IsAbs(target) || !filepath.IsLocal(filepath.Join(filepath.Dir(path), target)) {
		return "is a link out of the folder"
	}
	if err := c.to.Symlink(target, path); err != nil {
		return reason(err)
	}
	return ""
}

// reason is an error without the path, which is said before it.
func reason(err error) string {
	if errors.Is(err, fs.ErrExist) {
		return "is there already"
	}
	var e *fs.PathError
	if errors.As(err, &e) {
		err = e.Err
	}
	return strings.TrimSpace(err.Error())
}
