// Package changes records what a session's turns do to its folder, shows it, and takes it
// back: exactly, or not at all.
//
// A [Folder] is recorded before and after a turn. What is kept is content, as blobs of a
// bare git repository that is the session's own, beside its journal; the user's
// repository, its index and its hooks are only read. Files are read and written by this
// package itself, never through a link; git names the files that nothing ignores, makes
// diffs and hands back content, hardened and in the sandbox of tools.
//
// Concurrency: an Engine may be used by any number of goroutines. What concerns one session
// waits for what goes on in it.
//
// It refuses to guess: a turn that could not be recorded is told as such, and what would have
// to be guessed to take it back is not taken back.
package changes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"noused/internal/budget"
	"noused/internal/regular"
	"noused/internal/worktree"
)

// Engine records folders. Make it with New.
type Engine struct {
	o    Options
	pool *budget.Pool // memory

	mu       sync.Mutex
	sessions map[string]*session // those that something goes on in
	windows  []*window
}

// Options are what an Engine needs. All are required but Skip.
type Options struct {
	// Dir is the folder for what is kept of a session, which is made at need.
	Dir    func(sessionID string) string
	Git    worktree.Runner
	Limits Limits
	Skip   []string // folders that are not looked into, absolute and without links; may be empty
}

// New returns an engine.
func New(o Options) *Engine {
	return &Engine{o: o, pool: budget.NewPool(int(o.Limits.Memory / 2)), sessions: map[string]*session{}}
}

// session is one that something goes on in.
type session struct {
	busy   chan struct{} // holds one while somebody has it
	memory memory        // of who has it
	users  int           // guarded by the engine
	// of the latest scan beside a model's answer, unless a turn has ended since it began
	taken time.Time
	took  time.Duration
	ended bool // guarded by the engine: a turn has ended while somebody had it
}

// enter returns a session that somebody has to do with, until leave.
func (e *Engine) enter(id string) *session {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.sessions[id]
	if s == nil {
		s = &session{busy: make(chan struct{}, 1)}
		e.sessions[id] = s
	}
	s.users++
	return s
}

func (e *Engine) leave(id string, s *session) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s.users--; s.users == 0 && !s.ended && (s.taken.IsZero() || len(e.sessions) > maxWarm) {
		delete(e.sessions, id)
	}
}

// acquire gives a session to the caller until release, once nobody else has it.
func (e *Engine) acquire(ctx context.Context, id string) (s *session, release func(), err error) {
	s = e.enter(id)
	select {
	case s.busy <- struct{}{}:
		if ctx.Err() == nil {
			e.settle(id, s)
			s.memory = newMemory(e.pool, e.o.Limits.Memory)
			return s, func() { s.memory.part.End(); e.settle(id, s); <-s.busy; e.leave(id, s) }, nil
		}
		<-s.busy
	case <-ctx.Done():
	}
	e.leave(id, s)
	return nil, nil, context.Cause(ctx)
}

// Hold blocks until nothing goes on in a session, or ctx ends, and keeps it so until release:
// what is kept of the session may be removed meanwhile.
func (e *Engine) Hold(ctx context.Context, sessionID string) (release func(), err error) {
	s, release, err := e.acquire(ctx, sessionID)
	if err == nil {
		s.taken = time.Time{} // nothing needs to be known of it any more
	}
	return release, err
}

// Folder is the folder of a session.
type Folder struct{ SessionID, Workdir string }

// The files of a session beside its objects.
const (
	manifestName = "manifest" // the folder as it was recorded last
	nextName     = "manifest.next"
	turnName     = "turn"   // whose first record that is
	besideName   = "beside" // what turns of other sessions have changed during that turn, for the next daemon
)

func (e *Engine) path(f Folder, name string) string { return filepath.Join(e.o.Dir(f.SessionID), name) }

// open returns where a session's folder is, and its repository.
func (e *Engine) open(s *session, f Folder) (place, *repo, error) {
	p := find(f.Workdir)
	dir, err := filepath.Abs(e.o.Dir(f.SessionID))
	if err != nil {
		return p, nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return p, nil, err
	}
	r, err := makeRepo(e.o.Git, dir, p.objects, &s.memory)
	if err == nil {
		r.most = e.o.Limits.File
	}
	return p, r, err
}

// maxWarm is of how many sessions it is known that their folder was recorded just now.
const maxWarm = 256

// scan records a folder. was is what was recorded last, nil where nothing was. The repository is to
// be flushed before a manifest is written that names what is new.
func (e *Engine) scan(ctx context.Context, s *session, f Folder, was *manifest) (*manifest, *repo, error) {
	p, r, err := e.open(s, f)
	if err != nil {
		return nil, nil, err
	}
	for _, dir := range e.o.Skip {
		if rel, err := filepath.Rel(p.top, dir); err == nil && filepath.IsLocal(rel) && rel != "." {
			p.skip = append(p.skip, rel)
		}
	}
	m, err := scan(ctx, r, p, e.o.Limits, was)
	return m, r, err
}

// rescan records a folder before a turn.
func (e *Engine) rescan(ctx context.Context, s *session, f Folder, was *manifest) (*manifest, error) {
	m, r, err := e.scan(ctx, s, f, was)
	if err != nil || m.same {
		return m, err
	}
	if err := r.flush(); err != nil {
		return m, err
	}
	return m, writeManifest(e.path(f, manifestName), m)
}

// Warm records a folder so that [Engine.Before] is quick. It blocks until that is done, or ctx
// ends.
func (e *Engine) Warm(ctx context.Context, f Folder) {
	s, release, err := e.acquire(ctx, f.SessionID)
	if err != nil {
		return
	}
	defer release()
	if _, err := os.Lstat(e.path(f, turnName)); err == nil { // a record of a turn stays
		_ = e.reopenWindow(ctx, s, f) // else other turns that end do not know of this one
		return
	}
	began := time.Now()
	m, err := readManifest(ctx, &s.memory, e.path(f, manifestName))
	if err == nil {
		m, err = e.rescan(ctx, s, f, m)
	}
	if err == nil { // else Before takes longer, and tells
		s.taken, s.took = began, m.took
	}
}

const (
	// quick is how long a scan may take that is made again at a call.
	quick = 150 * time.Millisecond
	// fresh is how old one may be that is not.
	fresh = 30 * time.Second
)

// Before records the folder for a turn, unless that was done. It blocks until that is done,
// or ctx ends.
func (e *Engine) Before(ctx context.Context, f Folder, turn string) error {
	s, release, err := e.acquire(ctx, f.SessionID)
	if err != nil {
		return err
	}
	defer release()
	if e.turnOf(f) == turn {
		return e.reopenWindow(ctx, s, f)
	}
	m, err := readManifest(ctx, &s.memory, e.path(f, manifestName))
	if err != nil {
		return err
	}
	if m == nil || s.took < quick || time.Since(s.taken) > fresh || e.endedSince(f, m.Top, s.taken) {
		if m, err = e.rescan(ctx, s, f, m); err != nil {
			return err
		}
	}
	s.taken, s.took = time.Time{}, 0
	if err := remove(e.path(f, besideName)); err != nil {
		return err
	}
	if err := writeFile(e.path(f, turnName), func(to io.Writer) error {
		_, err := io.WriteString(to, turn)
		return err
	}); err != nil {
		return err
	}
	e.openWindow(f, m.Top, time.Now())
	return nil
}

// turnOf is the turn whose first record there is, "" for none.
func (e *Engine) turnOf(f Folder) string {
	text, _ := regular.Read(e.path(f, turnName), 4<<10)
	return string(text)
}

// Recorded is what a turn has changed: the object that has the list, zero where there is
// nothing, and how many files.
type Recorded struct {
	Changes OID
	Files   int
}

// After records the folder after a turn, and keeps what the turn has changed. It blocks
// until that is done, or ctx ends. ErrNotBegun says that there is no record from before.
// Where another folder is recorded than before the turn, all in it would count as changed: that is an error.
// The caller calls Settle once it has written down what is returned. What was written more than
// lateWrite after the call has begun is marked as shared: somebody else may have done it.
func (e *Engine) After(ctx context.Context, f Folder, turn string) (Recorded, error) {
	late := time.Now().Add(lateWrite)
	s, release, err := e.acquire(ctx, f.SessionID)
	if err != nil {
		return Recorded{}, err
	}
	defer release()
	if e.turnOf(f) != turn {
		return Recorded{}, ErrNotBegun
	}
	before, err := readManifest(ctx, &s.memory, e.path(f, manifestName))
	if err == nil && before == nil {
		err = errDamaged
	}
	if err != nil {
		return Recorded{}, err
	}
	after, r, err := e.scan(ctx, s, f, before)
	if err != nil {
		return Recorded{}, err
	}
	if after.Top != before.Top {
		return Recorded{}, fmt.Errorf("a repository or a link came or went: %s was recorded before the turn, "+
			"and %s is by now", Shown(before.Top), Shown(after.Top))
	}
	list, err := e.seen(ctx, r, f, before, after)
	if err != nil {
		return Recorded{}, err
	}
	if err := e.share(ctx, s, f, list, after.Top); err != nil {
		return Recorded{}, err
	}
	if time.Now().After(late) {
		if err := shareLate(list, after.Top, late); err != nil {
			return Recorded{}, err
		}
	}
	if err := e.own(ctx, r, list, after); err != nil {
		return Recorded{}, err
	}
	rec, err := keepList(r, after.Top, list)
	if err != nil {
		return Recorded{}, err
	}
	return rec, writeManifest(e.path(f, nextName), after)
}

// ErrNotBegun says that a turn was not recorded before.
var ErrNotBegun = errors.New("the folder was not recorded before the turn")

// Settle has what After has recorded be what is compared with next, or forgets what was
// recorded before a turn that has no After. It waits for nothing: where something goes on in the
// session, it is done when that has ended.
func (e *Engine) Settle(f Folder) {
	s := e.enter(f.SessionID)
	defer e.leave(f.SessionID, s)
	e.mu.Lock()
	s.ended = true
	e.mu.Unlock()
	select {
	case s.busy <- struct{}{}:
		e.settle(f.SessionID, s)
		<-s.busy
	default:
	}
}

// settle does what Settle has asked for. The caller has the session.
func (e *Engine) settle(id string, s *session) {
	e.mu.Lock()
	ended := s.ended
	s.ended = false
	e.mu.Unlock()
	if !ended {
		return
	}
	f := Folder{SessionID: id}
	if err := os.Rename(e.path(f, nextName), e.path(f, manifestName)); err != nil && !errors.Is(err, os.ErrNotExist) {
		_ = remove(e.path(f, nextName))
	}
	_ = remove(e.path(f, turnName)) // else the next turn's record takes its place
	_ = remove(e.path(f, besideName))
	e.closeWindow(f)
	s.taken, s.took = time.Time{}, 0
}

// seen leaves out what is ignored in one of two records.
func (e *Engine) seen(ctx context.Context, r *repo, f Folder, before, after *manifest) ([]Change, error) {
	list, err := difference(before, after, func(path string) error { return r.memory.take(ctx, changedSize+2*len(path)) })
	if err != nil {
		return nil, err
	}
	tree, err := openTree(after.Top)
	if err != nil {
		return nil, err
	}
	defer tree.close()
	var added []string
	for _, c := range list {
		if !c.Before.There() {
			added = append(added, c.Path)
		}
	}
	hidden := map[string]bool{}
	if len(added) > 0 && (before.Index != after.Index || before.Rules != after.Rules || !sameIgnores(before, after)) {
		if hidden, err = e.ignoredBefore(ctx, r, f, before, added); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(list, func(c Change) bool {
		switch {
		case !c.Before.There():
			return hidden[c.Path] || c.After.IsFolder() && hidden[c.Path+"/"] || before.nested(c.Path)
		case !c.After.There(): // it is ignored now, if it is there, and nothing else is in its place
			r, err := tree.stat(c.Path)
			is := State{Mode: r.mode}
			return err == nil && is.IsFolder() == c.Before.IsFolder() && !is.isSpecial()
		}
		return false
	}), nil
}

func sameIgnores(a, b *manifest) bool {
	rules := func(m *manifest) map[string]OID {
		found := map[string]OID{}
		m.each(func(rel string, s State) {
			if filepath.Base(rel) == ".gitignore" {
				found[rel] = s.OID
			}
		})
		return found
	}
	was, is := rules(a), rules(b)
	if len(was) != len(is) {
		return false
	}
	for rel, o := range was {
		if is[rel] != o {
			return false
		}
	}
	return true
}

// ignoredBefore asks git which paths were ignored by the rules of a record.
func (e *Engine) ignoredBefore(ctx context.Context, r *repo, f Folder, before *manifest, paths []string) (
	map[string]bool, error,
) {
	rules := map[OID][]string{before.Rules: {"\x00exclude"}}
	names := []OID{before.Rules}
	before.each(func(rel string, s State) {
		if filepath.Base(rel) == ".gitignore" && s.isFile() && s.Left == "" {
			if rules[s.OID] == nil {
				names = append(names, s.OID)
			}
			rules[s.OID] = append(rules[s.OID], rel)
		}
	})
	dir := e.path(f, "rules")
	defer os.RemoveAll(dir)
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700)); err != nil {
		return nil, err
	}
	if err := r.blobs(ctx, names, func(o OID, text []byte) error {
		for _, rel := range rules[o] {
			to := filepath.Join(dir, rel)
			if rel == "\x00exclude" {
				to = filepath.Join(r.dir, "info", "exclude")
			}
			if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
				return err
			}
			if err := os.WriteFile(to, text, 0o600); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	defer os.Remove(filepath.Join(r.dir, "info", "exclude"))
	return r.ignoredAt(ctx, []string{"--git-dir=" + r.dir, "--work-tree=" + dir, "-C", dir}, nil, paths,
		"--no-index")
}
