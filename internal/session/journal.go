package session

import (
	"context"
	"errors"
	"fmt"
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
	buf    []byte
}

// Problem is something that was wrong with a journal and has been got over.
type Problem struct {
	Path   string
	Offset int64 // in bytes
	Err    error
}

func (p Problem) Error() string { return fmt.Sprintf("%s at byte %d: %v", p.Path, p.Offset, p.Err) }

var (
	errTorn     = errors.New("the last line was torn and has been cut off")
	errNewer    = errors.New("the journal was written by a newer version of noused")
	errNameless = errors.New("the journal does not say which session it is")
)

// createJournal makes a session's file, durable with its first records. With one
// record it has its name from the beginning, if the next start will know it for
// one that was not made; else from the moment when it is whole.
func createJournal(disk Disk, path string, records []Record, newest bool) (*Journal, error) {
	name := path
	if len(records) != 1 || !newest {
		name = path + draftExt
	}
	f, err := disk.Create(name)
	if err != nil {
		return nil, err
	}
	j := &Journal{disk: disk, f: f, path: path}
	err = j.Append(records)
	made := name == path
	if !made {
		if err == nil {
			err = disk.Link(name, path) // unlike a rename it never replaces a session
		}
		made = err == nil
		err = errors.Join(err, os.Remove(name))
	}
	if err == nil {
		err = disk.SyncDir(filepath.Dir(path))
	}
	if err != nil {
		if made { // what was refused must not be there after the next start
			_ = os.Remove(path)
		}
		_ = f.Close()
		return nil, err
	}
	return j, nil
}

// maxUnmade is the longest journal, in bytes, that may be one without a whole
// line.
const maxUnmade = 64 << 10

// unmade reports that the journal at path has no whole line: a crash has ended the
// making of its session, or it is being made. Nobody was told of that.
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
// left as it is; both are reported (wire-v1 §7).
func openJournal(ctx context.Context, disk Disk, path string) (*State, *Journal, []Problem, error) {
	f, err := regular.Open(path, os.O_RDWR|os.O_APPEND)
	if err != nil {
		return nil, nil, nil, err
	}
	state := NewState()
	size, problems, err := fold(untilDone{ctx, f}, path, state)
	if err == nil {
		err = belongs(state, path)
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
	return state, &Journal{disk: disk, f: f, path: path, size: size}, problems, nil
}

// belongs refuses a journal that is not that of the session its name says: a
// copy of another one would go on with that one's runs.
func belongs(state *State, path string) error {
	switch state.ID {
	case "":
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

// fold applies every whole record of r to state and returns their length.
func fold(r io.Reader, path string, state *State) (size int64, problems []Problem, err error) {
	in := newLineReader(r)
	for {
		line, length, err := in.next()
		if errors.Is(err, io.EOF) {
			if length > 0 {
				problems = append(problems, Problem{path, size, errTorn})
			}
			return size, problems, nil
		}
		if err != nil && !errors.Is(err, errLong) {
			return size, problems, err
		}
		var rec Record
		if err == nil {
			rec, err = decodeRecord(line)
		}
		if err == nil {
			err = state.Apply(rec)
			if again, ok := state.adopt(rec); err != nil && ok {
				problems = append(problems, Problem{path, size, fmt.Errorf("put after the last entry: %w", err)})
				err = state.Apply(again)
			}
		}
		if errors.Is(err, errNewer) {
			return size, problems, fmt.Errorf("%s at byte %d: %w", path, size, err)
		}
		if err != nil {
			problems = append(problems, Problem{path, size, fmt.Errorf("line skipped: %w", err)})
		}
		size += length
	}
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
	for _, r := range records {
		start := len(out)
		if out, err = appendRecord(out, r); err != nil {
			return false, err
		}
		if len(out)-start > maxRecord {
			return false, fmt.Errorf("append %s to %s: %w", r.Fact.kind(), j.path, errLong)
		}
		sync = sync || r.Fact.durable()
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
		j.takeBack(j.size)
		return false, fmt.Errorf("append to %s: %w", j.path, err)
	}
	j.before, j.size = j.size, j.size+int64(len(out))
	return sync, nil
}

// Sync makes what has been written durable. Where that fails the latest write is
// taken back, as nobody will hear of it.
func (j *Journal) Sync() error {
	if err := j.disk.Sync(j.f); err != nil {
		j.takeBack(j.before)
		return fmt.Errorf("sync %s: %w", j.path, err)
	}
	return nil
}

// takeBack cuts off what nobody will hear of, or has it cut off before the journal
// is opened again.
func (j *Journal) takeBack(size int64) {
	if err := j.disk.Truncate(j.f, size); err != nil {
		j.guard.leave(j.path, size)
	}
}

// Size is how many bytes it has.
func (j *Journal) Size() int64 { return j.size }

// Close closes the file.
func (j *Journal) Close() error { return j.f.Close() }
