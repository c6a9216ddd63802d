package changes

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"noused/internal/regular"
)

// window is the time of a turn that may change files below a folder.
type window struct {
	folder Folder
	top    string
	from   time.Time
	to     time.Time        // zero: it is open
	wrote  map[string]State // once it has ended: what was there before, by absolute path
}

// lateWrite is how long after the end of a turn a file may be written and still be the turn's.
const lateWrite = 2 * time.Second

// shareLate marks what was written after that time.
func shareLate(list []Change, top string, late time.Time) error {
	tree, err := openTree(top)
	if err != nil {
		return err
	}
	defer tree.close()
	for i := range list {
		c := &list[i]
		at := c.Path
		r, err := tree.stat(at)
		for err != nil && at != "." { // it is gone, which the folder tells that it was in
			at = path.Dir(at)
			r, err = tree.stat(at)
		}
		c.Shared = c.Shared || err != nil || r.Ctime > late.UnixNano()
	}
	return nil
}

// openWindow begins a turn's.
func (e *Engine) openWindow(f Folder, top string, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.windows = append(e.windows, &window{folder: f, top: top, from: at})
}

// reopenWindow has a window for a turn that began under a former daemon, too.
func (e *Engine) reopenWindow(ctx context.Context, s *session, f Folder) error {
	e.mu.Lock()
	w := e.windowOf(f)
	e.mu.Unlock()
	if w != nil {
		return nil
	}
	m, err := readManifest(ctx, &s.memory, e.path(f, manifestName))
	if err == nil && m != nil {
		e.openWindow(f, m.Top, time.Time{})
	}
	return err
}

func (e *Engine) windowOf(f Folder) *window {
	for _, w := range e.windows {
		if w.folder.SessionID == f.SessionID && w.to.IsZero() {
			return w
		}
	}
	return nil
}

// endedSince reports that another session's turn in the same folder ended after a moment that is fresh.
func (e *Engine) endedSince(f Folder, top string, at time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	own := &window{folder: f, top: top, from: at}
	return slices.ContainsFunc(e.windows, func(w *window) bool { return !w.to.IsZero() && own.meets(w) })
}

// closeWindow forgets a window that nothing was recorded of, and what those have written that no open one
// was there with. It keeps for a while that they have ended: see endedSince.
func (e *Engine) closeWindow(f Folder) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if w := e.windowOf(f); w != nil {
		w.to = time.Now()
	}
	kept := e.windows[:0]
closed:
	for _, w := range e.windows {
		if w.to.IsZero() {
			kept = append(kept, w)
			continue
		}
		for _, open := range e.windows {
			if open.to.IsZero() && open.from.Before(w.to) && overlap(open.top, w.top) {
				kept = append(kept, w)
				continue closed
			}
		}
		if w.wrote = nil; time.Since(w.to) < fresh {
			kept = append(kept, w)
		}
	}
	clear(e.windows[len(kept):])
	e.windows = kept
}

// overlap reports that one of two folders is in the other, or is it.
func overlap(a, b string) bool { return inside(a, b) || inside(b, a) }

// inside reports that a folder is in another one, or is it.
func inside(dir, of string) bool {
	return dir == of || strings.HasPrefix(dir+"/", strings.TrimSuffix(of, "/")+"/")
}

// share ends a turn's window, and marks which of its changes another session's turn may have
// made: one that has the same path among its own, or will have.
func (e *Engine) share(ctx context.Context, s *session, f Folder, list []Change, top string) error {
	own, open := e.beside(f, top)
	may := make([][]int, len(open)) // changes that each of them may have made
	before := s.memory.part.Size()
	for i, other := range open {
		m, err := readManifest(ctx, &s.memory, e.path(other.folder, manifestName))
		if err != nil {
			return err
		}
		for n, c := range list {
			rel, err := filepath.Rel(other.top, filepath.Join(top, c.Path))
			if m != nil && err == nil && filepath.IsLocal(rel) && m.state(rel) != c.After {
				may[i] = append(may[i], n)
			}
		}
		s.memory.give(s.memory.part.Size() - before) // the next one takes its place
		if err := e.leaveWord(other, top, list, may[i]); err != nil {
			return err
		}
	}
	if own.from.IsZero() {
		if err := e.shareBefore(ctx, s, f, list, top); err != nil {
			return err
		}
	}
	wrote := map[string]State{}
	for _, c := range list {
		wrote[filepath.Join(top, c.Path)] = c.Before
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, other := range open {
		for _, n := range may[i] {
			list[n].Shared = list[n].Shared || other.to.IsZero() // else it is known by now what it wrote
		}
	}
	for _, other := range e.windows {
		if other.to.IsZero() || !own.meets(other) {
			continue
		}
		for i := range list {
			if _, ok := other.wrote[filepath.Join(top, list[i].Path)]; ok {
				list[i].Shared = true
			}
		}
	}
	own.to, own.wrote = time.Now(), wrote
	return nil
}

// maxBeside is how much is kept of what other sessions' turns have changed during one, in bytes.
const maxBeside = 4 << 20

// leaveWord keeps with another session's turn what this one has changed meanwhile: a daemon that is started before
// that turn ends knows it from there. Where it is too much, an empty name says that it is anything.
func (e *Engine) leaveWord(other *window, top string, list []Change, which []int) error {
	if len(which) == 0 {
		return nil
	}
	var text []byte
	for _, n := range which {
		text = append(append(text, filepath.Join(top, list[n].Path)...), 0)
	}
	file := e.path(other.folder, besideName)
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	is, err := f.Stat()
	if err == nil && is.Size()+int64(len(text)) > maxBeside {
		text = []byte{0}
	}
	if err == nil {
		_, err = f.Write(text)
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil || is.Size() > 0 {
		return err
	}
	return syncPath(filepath.Dir(file))
}

// shareBefore marks what other sessions have changed under former daemons, in a turn that went on since.
func (e *Engine) shareBefore(ctx context.Context, s *session, f Folder, list []Change, top string) error {
	const most = maxBeside + 1<<10 // each turn that ends beside it may add an empty name
	is, err := os.Lstat(e.path(f, besideName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	size := most
	if err == nil {
		size = int(min(is.Size(), most))
	}
	if err := s.memory.take(ctx, 3*size); err != nil { // with the names of it
		return err
	}
	defer s.memory.give(3 * size)
	text, err := regular.Read(e.path(f, besideName), most)
	theirs := map[string]bool{}
	for name := range strings.SplitSeq(string(text), "\x00") {
		theirs[name] = true
	}
	all := err != nil || bytes.HasPrefix(text, []byte{0}) || bytes.Contains(text, []byte{0, 0})
	for n := range list {
		list[n].Shared = list[n].Shared || all || theirs[filepath.Join(top, list[n].Path)]
	}
	return nil
}

// beside is a session's window, and the open ones of others.
func (e *Engine) beside(f Folder, top string) (own *window, open []*window) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if own = e.windowOf(f); own == nil { // the daemon was restarted in the turn
		own = &window{folder: f, top: top}
		e.windows = append(e.windows, own)
	}
	for _, other := range e.windows {
		if other.to.IsZero() && own.meets(other) {
			open = append(open, other)
		}
	}
	return own, open
}

// meets reports that another session was at work in the same folder, before this one ended.
func (w *window) meets(other *window) bool {
	over := !other.to.IsZero() && other.to.Before(w.from)
	return other.folder.SessionID != w.folder.SessionID && overlap(other.top, w.top) && !over
}
