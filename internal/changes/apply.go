package changes

import (
	"cmp"
	"context"
	"crypto/sha1" //nolint:gosec // for names only
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Apply does what a plan says. After an error everything is as it was, as far as the
// error does not say otherwise. The caller has written down that it begins. It blocks for the
// disk and for git; it does not end early.
func (e *Engine) Apply(f Folder, plan OID, rewindID string) error {
	return e.applying(f, plan, rewindID, func(a *applier) error {
		err := a.forward()
		if err == nil {
			return nil
		}
		return errors.Join(err, a.backward())
	})
}

// Recover finishes a rewind that was begun, or where something else has changed meanwhile
// takes back what was done of it. It tells which.
func (e *Engine) Recover(f Folder, plan OID, rewindID string) (finished bool, err error) {
	err = e.applying(f, plan, rewindID, func(a *applier) error {
		if a.forward() == nil {
			finished = true
			return nil
		}
		return a.backward()
	})
	return finished, err
}

func (e *Engine) applying(f Folder, plan OID, rewindID string, do func(a *applier) error) error {
	if plan.IsZero() {
		return do(&applier{})
	}
	ctx := context.Background()
	s, release, err := e.acquire(ctx, f.SessionID)
	if err != nil {
		return err
	}
	defer release()
	at, r, err := e.open(s, f)
	if err != nil {
		return err
	}
	top, list, err := r.changes(ctx, plan)
	if err != nil {
		return err
	}
	tree, err := openTree(cmp.Or(top, at.top))
	if err != nil {
		return err
	}
	defer tree.close()
	return do(&applier{ctx: ctx, repo: r, tree: tree, id: rewindID, list: list})
}

// applier changes files from what a list says before to what it says after.
type applier struct {
	ctx  context.Context
	repo *repo
	tree *workTree
	id   string
	list []Change

	drafts []draft // what is written, and not in its place yet
}

// draft is a file beside the place that it is for, and what was there.
type draft struct {
	path string
	is   State
	over raw
}

// forward does the list, nothing of it where a file is neither as before nor as after.
func (a *applier) forward() error {
	for _, c := range a.list {
		if err := a.fits(c); err != nil {
			return err
		}
	}
	return a.do(a.list)
}

// fits reports why a file is neither as it was nor as it is to be.
func (a *applier) fits(c Change) error {
	is, _, err := a.tree.state(c.Path, c.Before)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", Shown(c.Path), err)
	case is == c.Before, is == c.After:
	case is.IsFolder() && (c.Before.IsFolder() || c.After.IsFolder()): // its mode may be between
	case !is.There() && c.Before.IsFolder() != c.After.IsFolder():
	default:
		return fmt.Errorf("%s: %w", Shown(c.Path), errElse)
	}
	return nil
}

var errElse = errors.New("something else has changed it meanwhile")

// backward undoes what of the list was done.
func (a *applier) backward() error {
	var back []Change
	for _, c := range a.list {
		if a.fits(c) == nil { // else something else has changed it, and it stays so
			back = append(back, Change{Path: c.Path, Before: c.After, After: c.Before})
		}
	}
	return a.do(back)
}

// do makes every file what the list says after, in the one order in which that can be
// done. What is there already is left.
func (a *applier) do(list []Change) error {
	if len(list) == 0 {
		return nil
	}
	a.drafts = nil
	defer a.sweep()
	if err := a.unlock(list); err != nil {
		return err
	}
	for _, c := range slices.Backward(list) { // the deepest first
		if err := a.clear(c); err != nil {
			return err
		}
	}
	contents := map[OID][]int{}
	var names []OID
	for i, c := range list {
		if c.After.IsFolder() {
			if err := a.mkdir(c); err != nil {
				return err
			}
		}
		if c.After.inDiff() {
			if contents[c.After.OID] == nil {
				names = append(names, c.After.OID)
			}
			contents[c.After.OID] = append(contents[c.After.OID], i)
		}
	}
	if err := a.repo.blobs(a.ctx, names, func(o OID, content []byte) error {
		for _, i := range contents[o] {
			if err := a.draft(list[i], content); err != nil {
				return fmt.Errorf("%s: %w", Shown(list[i].Path), err)
			}
		}
		return nil
	}); err != nil {
		return err
	}
	if err := a.place(); err != nil {
		return err
	}
	for _, c := range slices.Backward(list) {
		if c.After.IsFolder() {
			if err := a.chmod(c.Path, c.After.Mode); err != nil {
				return err
			}
		}
	}
	return a.sync(list) // before it is written down that it is done
}

// sweep removes the drafts that did not come to their places.
func (a *applier) sweep() {
	for _, d := range a.drafts {
		_ = a.in(d.path, func(fd int, _ string) error { return unix.Unlinkat(fd, a.temporary(d.path), 0) })
	}
}

// sync has the folders of a list be on the disk, as its files are already.
func (a *applier) sync(list []Change) error {
	dirs := map[string]bool{}
	for _, c := range list {
		dirs[strings.TrimSuffix(parent(c.Path), "/")] = true
		if c.After.IsFolder() {
			dirs[c.Path] = true
		}
	}
	paths := slices.Collect(maps.Keys(dirs))
	return syncAll(len(paths), func(i int) error {
		f, err := a.tree.folder(paths[i])
		switch {
		case absent(err) == os.ErrNotExist, errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
			return nil // it is gone as well, or shut
		case err != nil:
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	})
}

// unlock lets folders of the list be written to, and takes away what a killed daemon has
// left there.
func (a *applier) unlock(list []Change) error {
	for _, c := range list {
		if c.Before.IsFolder() || c.After.IsFolder() {
			if is, _, err := a.tree.state(c.Path, State{}); err == nil && is.IsFolder() && is.Mode&0o700 != 0o700 {
				if err := a.chmod(c.Path, is.Mode|0o700); err != nil {
					return err
				}
			}
		}
	}
	for _, c := range list {
		err := a.in(c.Path, func(fd int, _ string) error { return unix.Unlinkat(fd, a.temporary(c.Path), 0) })
		if err != nil && absent(err) != os.ErrNotExist && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: %w", Shown(c.Path), err)
		}
	}
	return nil
}

// in calls with the folder that a path is in, and its name there.
func (a *applier) in(rel string, do func(fd int, name string) error) error {
	dir, name := path.Split(rel)
	fd, err := a.tree.open(strings.TrimSuffix(dir, "/"), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return do(fd, name)
}

// temporary is the name of a file until it is whole.
func (a *applier) temporary(rel string) string {
	sum := sha1.Sum([]byte(a.id + "\x00" + rel))
	return ".nous-rewind-" + hex.EncodeToString(sum[:8])
}

// clear removes what is in the way.
func (a *applier) clear(c Change) error {
	is, _, err := a.tree.state(c.Path, c.Before)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", Shown(c.Path), err)
	case !is.There(), is == c.After, c.After.There() && is.IsFolder() == c.After.IsFolder():
		return nil
	}
	flags := 0
	if is.IsFolder() {
		flags = unix.AT_REMOVEDIR
	}
	err = a.in(c.Path, func(fd int, name string) error { return unix.Unlinkat(fd, name, flags) })
	if is.IsFolder() && (errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST)) && !c.After.There() {
		return nil // somebody has put something there
	}
	if err != nil {
		return fmt.Errorf("%s: %w", Shown(c.Path), err)
	}
	return nil
}

func (a *applier) mkdir(c Change) error {
	err := a.in(c.Path, func(fd int, name string) error { return unix.Mkdirat(fd, name, 0o700) })
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s: %w", Shown(c.Path), err)
	}
	return nil
}

func (a *applier) chmod(rel string, mode uint32) error {
	fd, err := a.tree.open(rel, unix.O_RDONLY|unix.O_DIRECTORY)
	if errors.Is(err, fs.ErrPermission) { // it cannot be opened, and no link is followed all the same
		return a.in(rel, func(fd int, name string) error { return chmodAt(fd, name, mode) })
	}
	if err != nil {
		return fmt.Errorf("%s: %w", Shown(rel), err)
	}
	defer unix.Close(fd)
	return unix.Fchmod(fd, mode&0o7777)
}

func chmodAt(fd int, name string, mode uint32) error {
	return unix.Fchmodat(fd, name, mode&0o7777, unix.AT_SYMLINK_NOFOLLOW)
}

// draft writes a file, or a link, beside its place.
func (a *applier) draft(c Change, content []byte) error {
	is, r, err := a.tree.state(c.Path, c.Before)
	if err != nil || is == c.After {
		return err
	}
	if is.There() && is != c.Before {
		return errElse
	}
	a.drafts = append(a.drafts, draft{c.Path, c.After, r})
	return a.in(c.Path, func(dir int, _ string) error {
		if c.After.IsLink() {
			return unix.Symlinkat(string(content), dir, a.temporary(c.Path))
		}
		return writeAt(dir, a.temporary(c.Path), content)
	})
}

// place puts the drafts into their places, each whole.
func (a *applier) place() error {
	if err := syncAll(len(a.drafts), func(i int) error {
		d := a.drafts[i]
		if d.is.IsLink() {
			return nil
		}
		return a.in(d.path, func(dir int, _ string) error { return finishAt(dir, a.temporary(d.path), d.is.Mode) })
	}); err != nil {
		return err
	}
	for _, d := range a.drafts {
		if err := a.in(d.path, func(dir int, name string) error {
			if r, err := statAt(dir, name); r != d.over || err != nil && !errors.Is(err, fs.ErrNotExist) {
				return errors.Join(errElse, err)
			}
			return unix.Renameat(dir, a.temporary(d.path), dir, name)
		}); err != nil {
			return fmt.Errorf("%s: %w", Shown(d.path), err)
		}
	}
	return nil
}

func writeAt(dir int, name string, content []byte) error {
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

// finishAt gives a draft its mode and has it be on the disk; a link is with its folder.
func finishAt(dir int, name string, mode uint32) error {
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return errors.Join(unix.Fchmod(fd, mode&0o7777), unix.Fsync(fd))
}
