package session

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
	"sync"
	"sync/atomic"
	"time"

	"noused/internal/lock"
	"noused/internal/regular"
)

// ErrNotFound says that there is no session with that id.
var ErrNotFound = errors.New("session not found")

const (
	idPrefix     = "ses-"
	journalExt   = ".jsonl"
	draftExt     = ".new" // of a session that is being branched, or an image that is being kept
	activeName   = "active.jsonl"
	activeLimit  = 1 << 20 // bytes before the file is written anew
	tailLength   = 64 << 10
	sessionsName = "sessions"
)

// Store is a state directory: the sessions' journals, which of them is the
// active one, and the lock that makes it this daemon's. Safe for concurrent
// use; each session is opened by one caller at a time.
type Store struct {
	dir   string
	disk  Disk
	lock  *lock.Lock
	guard guard

	streams streams

	active atomic.Pointer[string]

	readers   chan struct{} // holds one for each journal that is being read
	bodies    chan struct{} // and one for each that entries are read from
	inMemory  atomic.Int64  // bytes of what open sessions have of their entries
	summaries summaries

	leastIndexed int64          // bytes of a journal that an index is kept of
	indexing     sync.WaitGroup // indexes that are being written
	indexers     chan struct{}  // holds one for the one that is

	files sync.RWMutex // held to write while a session's files are removed; taken after mu

	mu       sync.Mutex // guards the rest; held while the active session changes
	activeIn *os.File
	// the disk knows the name of that file
	activeNamed bool
	newest      string // the greatest id, once listed
	listed      bool
}

// Open takes a state directory, making it if need be. It fails with a
// *lock.HeldError when another daemon has it.
func Open(dir string) (*Store, error) { return OpenOn(OSDisk{}, dir) }

// OpenOn is Open for a directory that is changed through disk.
func OpenOn(disk Disk, dir string) (*Store, error) {
	return openHeld(disk, dir, lock.Acquire)
}

// Inherit is Open with the lock that KeepLock has returned before this program was
// executed.
func Inherit(dir string, held *os.File) (*Store, error) {
	return openHeld(OSDisk{}, dir, func(path string) (*lock.Lock, error) { return lock.Inherit(held, path) })
}

// KeepLock has the directory stay locked when the Store is closed, for the program
// that takes this one's place in the same process.
func (s *Store) KeepLock() (*os.File, error) { return s.lock.Keep() }

func openHeld(disk Disk, dir string, acquire func(path string) (*lock.Lock, error)) (*Store, error) {
	var made []string // folders that get a new one
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Lstat(at); err == nil || at == filepath.Dir(at) {
			break
		}
		made = append(made, filepath.Dir(at))
	}
	if err := os.MkdirAll(filepath.Join(dir, sessionsName), 0o700); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	l, err := acquire(filepath.Join(dir, "lock"))
	if err != nil {
		return nil, fmt.Errorf("state directory %s: %w", dir, err)
	}
	if err := syncNew(disk, dir, made); err != nil {
		return nil, errors.Join(fmt.Errorf("state directory: %w", err), l.Release())
	}
	return &Store{
		dir: dir, disk: disk, lock: l, guard: guard{lock: l}, streams: streams{
			dir:  filepath.Join(dir, streamingName),
			disk: disk,
		},
		readers: make(chan struct{}, maxReaders), bodies: make(chan struct{}, maxBodyReads),
		indexers: make(chan struct{}, 1), leastIndexed: leastIndexed,
	}, nil
}

// syncNew syncs the directory entries of a state directory that has no session yet, so that a
// power cut cannot take a folder away together with its first session. made are the folders in
// which this daemon has made one on the way.
func syncNew(disk Disk, dir string, made []string) error {
	names, err := readNames(filepath.Join(dir, sessionsName))
	if err != nil || len(names) > 0 {
		return err
	}
	for _, at := range append([]string{dir}, made...) {
		// A folder may be one that can be written to and not read.
		if err := disk.SyncDir(at); err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	return nil
}

// Close gives the directory up. Sessions must have been closed before.
func (s *Store) Close() error {
	s.indexing.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams.close()
	err := s.lock.Release()
	if s.activeIn != nil {
		err = errors.Join(err, s.activeIn.Close())
	}
	return err
}

// Holds reports whether a path, absolute and without links, is that of the state
// directory or leads into it.
func (s *Store) Holds(path string) bool {
	dir, err := filepath.Abs(s.dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return false
	}
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// ValidID reports whether id has the form of a session's: letters, digits and
// '-' only, so that it can be a file's name.
func ValidID(id string) bool {
	return len(id) > 0 && len(id) <= 128 && strings.IndexFunc(id, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-'
	}) < 0
}

func (s *Store) path(id string) string {
	return filepath.Join(s.dir, sessionsName, id+journalExt)
}

// Create creates a session's journal and makes the session the active one. Several first
// records are synced at once; a single one is synced with the next write. It returns the state
// that the records make. Images that they name are taken from the parent session; ErrNotFound
// if that is gone.
func (s *Store) Create(id string, records []Record) (*State, *Journal, error) {
	return s.create(id, records, true)
}

// CreateAside is Create for a session that does not become the active one.
func (s *Store) CreateAside(id string, records []Record) (*State, *Journal, error) {
	return s.create(id, records, false)
}

func (s *Store) create(id string, records []Record, activate bool) (*State, *Journal, error) {
	state := NewState()
	for _, r := range records {
		if _, ok := r.Fact.(copied); ok { // what follows comes when it is written
			break
		}
		if err := state.Apply(r); err != nil {
			return nil, nil, fmt.Errorf("create session %s: %w", id, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.prepareWrite(); err != nil {
		return nil, nil, err
	}
	if !activate {
		if err := s.keepActive(id, state.CreatedAt); err != nil {
			return nil, nil, err
		}
	}
	j, err := draftJournal(s.disk, s.path(id), state, len(records) == 1 && id > s.newest)
	if err != nil {
		return nil, nil, fmt.Errorf("create session %s: %w", id, err)
	}
	disown := func() error { return nil }
	err = s.fill(j, records)
	if err == nil {
		disown, err = s.inherit(state, id)
	}
	if err == nil {
		err = j.make()
	}
	if err != nil {
		j.unmake()
		return nil, nil, fmt.Errorf("create session %s: %w", id, errors.Join(err, disown()))
	}
	if activate && id <= s.newest { // the clock was set back
		err = s.note(id, state.CreatedAt)
	}
	if err != nil {
		return nil, nil, errors.Join(err, j.Close(), os.Remove(s.path(id)), disown())
	}
	j.guard, j.streams, j.store = &s.guard, &s.streams, s
	state.share(&s.inMemory)
	s.newest = max(s.newest, id)
	if activate {
		s.active.Store(&id)
	}
	return state, j, nil
}

// fillSize is how much of a branch is in memory while it is written, in bytes or a
// little more.
const fillSize = 1 << 20

// fill writes a session's first records, durably if there are several, and applies those that were not: from
// the first copy on.
func (s *Store) fill(j *Journal, records []Record) error {
	first := slices.IndexFunc(records, func(r Record) bool { _, ok := r.Fact.(copied); return ok })
	if first < 0 {
		_, err := j.Write(records)
		if err == nil && j.draft {
			err = j.Sync()
		}
		return err
	}
	batch, size := slices.Clone(records[:first]), 0
	parent := j.state.ParentID
	read := bodyReader{store: s, ctx: context.Background(), id: parent}
	defer read.close()
	for _, r := range records[first:] {
		if c, ok := r.Fact.(copied); ok {
			b := c.entry.body.Load()
			if b == nil {
				var err error
				if b, err = read.read(c.entry); err != nil {
					return fmt.Errorf("read entry %.128s of session %s: %w", c.entry.ID, parent, err)
				}
			}
			r, size = b.record(), size+c.entry.bytes
		}
		if err := j.state.Apply(r); err != nil {
			return err
		}
		if batch = append(batch, r); size > fillSize {
			if _, err := j.Write(batch); err != nil {
				return err
			}
			batch, size = batch[:0], 0
		}
	}
	if _, err := j.Write(batch); err != nil {
		return err
	}
	return j.Sync()
}

// keepActive records the active session before a new one is made, so that the new one does
// not become active for being the newest. s is locked.
func (s *Store) keepActive(id string, at time.Time) error {
	s.newest = max(s.newest, id)
	active := ""
	if a := s.active.Load(); a != nil {
		active = *a
	}
	return s.note(active, at)
}

// Load opens a session. ErrNotFound when there is none with that id, ErrReadOnly when a
// newer version wrote to it. The
// problems were got over and want to be told. It blocks for as long as the whole
// journal takes to be read, until ctx ends.
func (s *Store) Load(ctx context.Context, id string) (*State, *Journal, []Problem, error) {
	if !ValidID(id) {
		return nil, nil, nil, ErrNotFound
	}
	err := s.lock.Check()
	if err == nil {
		err = s.guard.mended(s.disk, s.path(id))
	}
	if err != nil {
		return nil, nil, nil, fmt.Errorf("open session %s: %w", id, err)
	}
	state, j, problems, err := openJournal(ctx, s.disk, s.path(id))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, nil, ErrNotFound
	}
	if err != nil {
		return nil, nil, problems, fmt.Errorf("open session %s: %w", id, err)
	}
	j.guard, j.streams, j.store = &s.guard, &s.streams, s
	if err := j.recoverStream(); err != nil {
		return nil, nil, problems, errors.Join(fmt.Errorf("open session %s: what was announced of its last message: %w", id,
			err), j.Close())
	}
	state.share(&s.inMemory)
	return state, j, problems, nil
}

// Peek folds a session's journal as it is on the disk, without opening it for
// writing; see State.ReadOnly. ErrNotFound when there is none. It blocks as Load does, and while many
// others are read.
func (s *Store) Peek(ctx context.Context, id string) (*State, error) { return s.PeekEnd(ctx, id, 0) }

// PeekEnd is Peek that promises only the last entries of the current path, so many of them,
// and how their runs ended. Other entries may be missing. 0 means all.
func (s *Store) PeekEnd(ctx context.Context, id string, last int) (state *State, err error) {
	err = s.reading(ctx, id, func(f *os.File, _ io.Reader) error {
		r, err := refold(ctx, f, last, false)
		state = r.state
		if err == nil {
			err = belongs(state, f.Name())
		}
		if err == nil && !r.indexed && r.whole() {
			s.keepIndex(state, r.at, f)
		}
		return err
	})
	return state, err
}

// Exists reports whether there is a session with that id. It asks the disk.
func (s *Store) Exists(id string) bool {
	if !ValidID(id) {
		return false
	}
	_, err := os.Lstat(s.path(id))
	return err == nil
}

// IDs lists the ids of all sessions, newest first. It reads the folder, and fails
// where that cannot be read.
func (s *Store) IDs() ([]string, error) {
	ids, err := s.names()
	for len(ids) > 0 && unmade(s.path(ids[0])) { // no other can be: see draftJournal
		ids = ids[1:]
	}
	return ids, err
}

// names lists the journals there are by their sessions, newest first.
func (s *Store) names() ([]string, error) {
	names, err := readNames(filepath.Join(s.dir, sessionsName))
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	ids := names[:0]
	for _, name := range names {
		if id, ok := strings.CutSuffix(name, journalExt); ok && ValidID(id) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int { return strings.Compare(b, a) })
	return ids, nil
}

// readNames lists a folder, in no order.
func readNames(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	names, err := d.Readdirnames(-1)
	return names, errors.Join(err, d.Close())
}

// prepareWrite checks that this daemon still holds the lock, then lists the directory. Call
// it before changing the directory.
func (s *Store) prepareWrite() error {
	if err := s.lock.Check(); err != nil {
		return err
	}
	return s.list()
}

// list looks once for the newest session, and so for the active one. It is put
// off until somebody asks, so that a start does not wait for it.
func (s *Store) list() error {
	if s.listed {
		return nil
	}
	ids, err := s.names()
	if err != nil {
		return err
	}
	for len(ids) > 0 && unmade(s.path(ids[0])) {
		if err := os.Remove(s.path(ids[0])); err != nil {
			return err
		}
		ids = ids[1:]
	}
	if err := s.removeDrafts(); err != nil {
		return err
	}
	s.finishFormer()
	last, err := s.openActive()
	if err != nil {
		return fmt.Errorf("active session: %w", err)
	}
	s.listed = true
	active := last.SessionID
	if len(ids) > 0 {
		s.newest = ids[0]
	}
	none := last.V != 0 && active == "" && s.newest <= last.Newest
	if !none && (s.newest > last.Newest || !s.readable(active)) {
		active = ""
		if i := slices.IndexFunc(ids, s.readable); i >= 0 {
			active = ids[i]
		}
	}
	s.newest = max(s.newest, last.Newest) // which has been deleted since, where it is the greater
	if active != "" {
		s.active.Store(&active)
	}
	return nil
}

// readable reports that a session's journal says whose it is.
func (s *Store) readable(id string) bool {
	if !ValidID(id) {
		return false
	}
	f, err := regular.Open(s.path(id), os.O_RDONLY)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	line, _, err := newLineReader(f).next()
	if err != nil {
		return false
	}
	rec, err := decodeRecord(line)
	created, _ := rec.Fact.(Created)
	return err == nil && created.SessionID == id
}

// removeDrafts clears away what a crash left of sessions that were being made,
// and of images that were being kept.
func (s *Store) removeDrafts() error {
	drafts, err := filepath.Glob(filepath.Join(s.dir, sessionsName, "*"+draftExt))
	for _, path := range drafts {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}
