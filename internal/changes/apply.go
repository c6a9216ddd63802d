package changes

import (
	"context"
	"crypto/sha1" //nolint:gosec // for names only
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
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
	_, release, err := e.acquire(ctx, f.SessionID)
	if err != nil {
		return err
	}
	defer release()
	at, r, err := e.open(f)
	if err != nil {
		return err
	}
	list, err := r.changes(ctx, plan)
	if err != nil {
		return err
	}
	tree, err := openTree(at.top)
	if err != nil {
		return err
	}
	defer tree.close()
	return do(&applier{ctx, r, tree, rewindID, list})
}

// applier changes files from what a list says before to what it says after.
type applier struct {
	ctx  context.Context
	repo *repo
	tree *workTree
	id   string
	list []Change
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
			if err := a.write(list[i], content); err != nil {
				return fmt.Errorf("%s: %w", Shown(list[i].Path), err)
			}
		}
		return nil
	}); err != nil {
		return err
	}
	for _, c := range slices.Backward(list) {
		if c.After.IsFolder() {
			if err := a.chmod(c.Path, c.After.Mode); err != nil {
				return err
			}
		}
	}
	return nil
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
	fd, err := a.tree.open(strings.TrimSuffix(dir, "/"), unix.O_RDONLY|unix.O_DIRECTORY)
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

// write puts a file, or a link, into its place, whole.
func (a *applier) write(c Change, content []byte) error {
	is, _, err := a.tree.state(c.Path, c.Before)
	if err != nil || is == c.After {
		return err
	}
	if is.There() && is != c.Before {
		return errElse
	}
	return a.in(c.Path, func(dir int, name string) error {
		draft := a.temporary(c.Path)
		if c.After.IsLink() {
			err = unix.Symlinkat(string(content), dir, draft)
		} else {
			err = writeAt(dir, draft, content, c.After.Mode)
		}
		if err == nil {
			err = unix.Renameat(dir, draft, dir, name)
		}
		if err != nil {
			_ = unix.Unlinkat(dir, draft, 0)
		}
		return err
	})
}

func writeAt(dir int, name string, content []byte, mode uint32) error {
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = f.Write(content)
	if err == nil {
		err = unix.Fchmod(fd, mode&0o7777)
	}
	return errors.Join(err, f.Close())
}
