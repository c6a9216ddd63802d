package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"

	"noused/internal/regular"
)

// Journal is one session's file. It belongs to one goroutine.
type Journal struct {
	disk   Disk
	guard  *guard
	f      *os.File
	path   string
	size   int64 // of what has been written whole
	before int64 // the size before the latest write
	synced int64 // the size at the latest sync; 0: nobody knows it
	buf    []byte
	ends   []int  // of the records in a write
	draft  bool   // it has no name of its own yet
	fresh  bool   // the disk may not know its name yet
	state  *State // that its records were applied to; nil: nobody wants to know where they are

	streams *streams
	stream  *stream // of the message that is being streamed; nil: nothing was announced of one
	ended   bool    // that message is in the journal
	unheard bool    // the latest write was not announced

	store   *Store // that keeps its index; nil: nobody does
	lines   int
	sum     uint32 // of what has been written
	indexed int64  // the size that the index covers
	unfit   bool   // for one: its state is not what it says
}

// Problem is something that was wrong with a journal and has been got over.
type Problem struct {
	Path   string
	Line   int   // from 1
	Offset int64 // of the line, in bytes
	Err    error
}

func (p Problem) Error() string {
	return fmt.Sprintf("%s:%d: at byte %d: %v", p.Path, p.Line, p.Offset, p.Err)
}

// Unwrap returns what is wrong.
func (p Problem) Unwrap() error { return p.Err }

// MaxProblems is how many problems of a journal are told one by one: every byte of it may
// be one.
const MaxProblems = 100

var (
	errTorn  = errors.New("the last line was torn and has been cut off")
	errNewer = errors.New("the journal was written by a newer version of noused")
	// ErrReadOnly says that a journal has a record whose type this version does not know. It
	// may say of a call that it waits for an answer, so that nothing goes on from it and
	// nothing is written behind it.
	ErrReadOnly = errors.New("a newer version of noused wrote the session, and this one only reads it")

	errNameless = errors.New("the journal does not say which session it is")
)

// draftJournal begins a session's file. What it has of records is written with Append or
// Write; then it is made. Where it is direct it has its name from the beginning, if the
// next start will know it for one that was not made; else from then on.
func draftJournal(disk Disk, path string, state *State, direct bool) (*Journal, error) {
	name := path
	if !direct {
		name = path + draftExt
	}
	f, err := disk.Create(name)
	if err != nil {
		return nil, err
	}
	return &Journal{disk: disk, f: f, path: path, state: state, draft: !direct}, nil
}

// make gives a journal its name. What is durable is its draft, if it had one; else the
// first Sync sees to that.
func (j *Journal) make() error {
	if j.draft {
		err := j.disk.Link(j.path+draftExt, j.path) // unlike a rename it never replaces a session
		j.draft = err != nil
		if err = errors.Join(err, os.Remove(j.path+draftExt)); err != nil {
			return err
		}
		return j.disk.SyncDir(filepath.Dir(j.path))
	}
	j.fresh = true
	return nil
}

// unmake takes away what came of a journal that could not be made: what was refused
// must not be there after the next start.
func (j *Journal) unmake() {
	if j.draft {
		_ = os.Remove(j.path + draftExt)
	} else {
		_ = os.Remove(j.path)
	}
	_ = j.Close()
}

// maxUnmade is the longest journal, in bytes, that may be one without a whole
// line.
const maxUnmade = 64 << 10

// unmade reports that the journal at path has no whole line: a crash has ended the
// making of its session, or it is being made. Nobody learned of that.
func unmade(path string) bool {
	f, err := regular.Open(path, os.O_RDONLY)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil || info.Size() > maxUnmade {
		return false
	}
	_, _, err = newLineReader(f).next()
	return errors.Is(err, io.EOF)
}

// damagedExt is behind a journal's name for the file that has what was cut off
// it.
const damagedExt = ".damaged"

// openJournal folds a session's file and makes it ready to be appended to: a
// torn last line is cut off and kept aside, a corrupt one elsewhere skipped and
// left as it is; both are reported (wire-v1 §7). ErrReadOnly where a newer version wrote
// to it: then it is left as it is.
func openJournal(ctx context.Context, disk Disk, path string) (*State, *Journal, []Problem, error) {
	f, err := disk.Open(path)
	if err != nil {
		return nil, nil, nil, err
	}
	r, err := refold(ctx, f, 0, true)
	state, size, problems := r.state, r.at.size, r.problems
	if err == nil {
		err = belongs(state, path)
	}
	if err == nil {
		err = state.ReadOnly
	}
	if err == nil && len(problems) > 0 && errors.Is(problems[len(problems)-1].Err, errTorn) {
		if err = keepAside(disk, f, size, path+damagedExt); err == nil {
			err = disk.Truncate(f, size)
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, problems, err
	}
	j := &Journal{
		disk: disk, f: f, path: path, size: size, fresh: true, state: state, lines: r.at.lines, sum: r.at.sum,
		unfit: !r.whole(),
	}
	if r.indexed {
		j.indexed = size
	}
	return state, j, problems, nil
}

// belongs refuses a journal that is not that of the session its name says: a
// copy of another one would go on with that one's runs.
func belongs(state *State, path string) error {
	switch state.ID {
	case "":
		if unmade(path) {
			return ErrNotFound
		}
		return errNameless
	case strings.TrimSuffix(filepath.Base(path), journalExt):
		return nil
	}
	return fmt.Errorf("the journal says that it is session %.128s", state.ID)
}

// keepAside appends what f has from offset on to a file of its own, durably.
func keepAside(disk Disk, f *os.File, offset int64, path string) error {
	aside, err := regular.Open(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND)
	if err != nil {
		return err
	}
	_, err = io.Copy(aside, io.NewSectionReader(f, offset, math.MaxInt64-offset))
	if err == nil {
		_, err = aside.WriteString("\n")
	}
	if err == nil {
		err = disk.Sync(aside)
	}
	return errors.Join(err, aside.Close())
}

// fold applies every whole record of r to state and returns their length. The problems
// are in the order of their lines, at most MaxProblems and two.
func fold(r io.Reader, path string, state *State) (size int64, problems []Problem, err error) {
	at, problems, err := foldFrom(r, path, state, place{})
	return at.size, problems, err
}

// foldFrom is fold for what comes after a place, up to which state has it. It returns the
// place up to which that is so then.
func foldFrom(r io.Reader, path string, state *State, at place) (place, []Problem, error) {
	var problems []Problem
	in := newLineReader(&summed{r, &at.sum})
	more := Problem{Path: path}
	skipped := 0 // that more stands for
	tell := func(p Problem) {
		if len(problems) < MaxProblems {
			problems = append(problems, p)
			return
		}
		if skipped++; skipped == 1 {
			more.Line, more.Offset = p.Line, p.Offset
		}
	}
	for ; ; at.lines++ {
		n, size := at.lines+1, at.size
		line, length, err := in.next()
		if errors.Is(err, io.EOF) {
			if skipped > 0 {
				more.Err = fmt.Errorf("%d more lines, from this one on, are not as they should be", skipped)
				problems = append(problems, more)
			}
			if length > 0 {
				problems = append(problems, Problem{path, n, size, errTorn})
			}
			return at, problems, nil
		}
		if err != nil && !errors.Is(err, errLong) && !errors.Is(err, errNul) {
			return at, problems, Problem{path, n, size, err}
		}
		var rec Record
		if err == nil {
			rec, err = decodeRecord(line)
		}
		if errors.Is(err, errNewer) {
			return at, problems, Problem{path, n, size, err}
		}
		if err == nil {
			if err = state.Apply(rec); err != nil {
				if again, ok := state.adopt(rec); ok && state.Apply(again) == nil {
					tell(Problem{path, n, size, fmt.Errorf("put after the last entry: %w", err)})
					err = nil
				}
			}
		}
		if errors.Is(err, ErrReadOnly) && state.ReadOnly == nil {
			state.ReadOnly = Problem{path, n, size, err}
		}
		if err != nil {
			state.skipped()
			tell(Problem{path, n, size, fmt.Errorf("line skipped: %w", err)})
		} else {
			state.placed(rec.Fact, size, int(length))
		}
		at.size += length
	}
}

// summed has the checksum of all that is read.
type summed struct {
	r   io.Reader
	sum *uint32
}

func (s *summed) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	*s.sum = crc32.Update(*s.sum, castagnoli, p[:n])
	return n, err
}

// Append writes the records and, if one of them has to be durable, syncs.
func (j *Journal) Append(records []Record) error {
	sync, err := j.Write(records)
	if err == nil && sync {
		err = j.Sync()
	}
	return err
}

// Write writes the records in one write and tells whether one of them has to
// be durable before anybody hears of them. After an error, of Write or Sync,
// the journal must be closed: what the disk holds is found out by opening it
// again.
func (j *Journal) Write(records []Record) (sync bool, err error) {
	out := j.buf[:0]
	j.ends = j.ends[:0]
	for _, r := range records {
		start := len(out)
		if out, err = appendRecord(out, r); err != nil {
			return false, err
		}
		if len(out)-start > maxRecord {
			return false, fmt.Errorf("append %s to %s: %w", r.Fact.kind(), j.path, errLong)
		}
		sync = sync || r.Fact.durable()
		j.ends = append(j.ends, len(out))
	}
	if cap(out) <= 1<<20 {
		j.buf = out
	}
	if len(out) == 0 {
		return false, nil
	}
	if err := j.guard.check(j.f); err != nil {
		return false, fmt.Errorf("append to %s: %w", j.path, err)
	}
	if _, err := j.disk.Write(j.f, out); err != nil {
		j.unfit = true
		j.mend(j.size, j.size)
		return false, fmt.Errorf("append to %s: %w", j.path, err)
	}
	j.before, j.size, j.unheard = j.size, j.size+int64(len(out)), true
	j.lines, j.sum = j.lines+len(records), crc32.Update(j.sum, castagnoli, out)
	j.place(records)
	j.ended = j.ended || j.endsStream(records)
	return sync, nil
}

// place tells the session where its entries are.
func (j *Journal) place(records []Record) {
	if j.state == nil {
		return
	}
	start := 0
	for i, r := range records {
		j.state.placed(r.Fact, j.before+int64(start), j.ends[i]-start)
		start = j.ends[i]
	}
}

// Sync makes what has been written durable. Where that fails the latest write is
// taken back, as nobody will hear of it, unless it was announced.
func (j *Journal) Sync() error {
	named := make(chan error, 1)
	if j.fresh {
		go func() { named <- j.disk.SyncDir(filepath.Dir(j.path)) }() // the disk is flushed once for both
	} else {
		named <- nil
	}
	err := cmp.Or(j.disk.Sync(j.f), <-named)
	j.fresh = j.fresh && err != nil
	if err != nil {
		j.unfit = true
		kept := j.size
		if j.unheard {
			kept = j.before
		}
		j.mend(j.synced, kept)
		return fmt.Errorf("sync %s: %w", j.path, err)
	}
	j.synced = j.size
	return nil
}

// Durable reports that all of it is known to be on the disk. Of what a former daemon has
// written nobody knows until the next Sync.
func (j *Journal) Durable() bool { return j.synced == j.size && !j.fresh }

// Size is how many bytes it has.
func (j *Journal) Size() int64 { return j.size }

// Close closes the file. What the session has in memory is not counted any more. An index
// of it may be written then: the session must not change any more.
func (j *Journal) Close() error {
	if j.stream != nil {
		j.stream.leave()
		j.stream = nil
	}
	j.state.unshare()
	if j.store != nil && !j.unfit && j.size > j.indexed && j.state.applied == j.lines {
		j.store.keepIndex(j.state, place{j.size, j.lines, j.sum}, j.f)
	}
	return j.f.Close()
}
