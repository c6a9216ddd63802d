package session

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
	"noused/internal/regular"
)

// An index is what the fold of a journal came to, in a file beside it, so that a long
// session is opened, or its end shown, without its journal being decoded. It may be
// deleted at any time: the journal alone says what is true. It is written when a session
// is closed, or was folded to be looked at, and never synced.
//
// The file is blocks of rows, one for each entry and each run that has ended, in their
// order; then the snapshot, JSON; then the trailer: the snapshot's length and checksum,
// and indexMagic. A block can be read without those before it.
const (
	indexExt     = ".index"
	indexMagic   = "nousedi\n"
	trailerSize  = 8 + len(indexMagic)
	indexVersion = 5 // other than what folds make, or the file is, has changed: TestIndexIsAsItWas

	leastIndexed = 512 << 10 // bytes of a journal; a shorter one is folded as fast
	maxIndex     = 64 << 20  // bytes
	maxIndexed   = 1 << 19   // entries, and as many runs
	maxSnapshot  = 4 << 20   // bytes
	blockSize    = 32 << 10  // bytes of rows, or one row more
	endSize      = 64 << 10  // bytes at the end of a journal that are always looked at
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// place is how far a journal was read, or written.
type place struct {
	size  int64 // bytes
	lines int
	sum   uint32 // of the bytes
}

// fileState tells whether a file is the one that it was, and was not written since.
type fileState struct{ Dev, Ino, Size, Sec, Nsec int64 }

func fileStateOf(f *os.File) (s fileState, err error) {
	info, err := f.Stat()
	if err != nil {
		return s, err
	}
	st := info.Sys().(*syscall.Stat_t)
	return fileState{int64(st.Dev), int64(st.Ino), st.Size, int64(st.Ctim.Sec), int64(st.Ctim.Nsec)}, nil
}

// snapshot is what a fold came to beside the entries and the runs that have ended.
type snapshot struct {
	Version int
	// Size, Lines and Sum are of the part of the journal that was folded; File is the
	// journal's state if that was all of it. End is the checksum of the part's end.
	Size   int64
	Lines  int
	Sum    uint32
	End    uint32
	File   fileState
	Blocks []block
	// Whole says that no part of the rows may be read alone: entries name runs that had
	// ended before them.
	Whole bool

	State   *State // its public fields
	Keys    map[string]Accepted
	Named   map[string]model.Attachment
	Patched jsontext.Value `json:",omitzero"`
	Decided []ApprovalDecided
}

// block is where rows are.
type block struct {
	Size    int64
	Sum     uint32
	Entries int
	Runs    int
}

var snapshotOptions = json.JoinOptions(
	jsontext.AllowInvalidUTF8(true), jsontext.PreserveRawStrings(true), json.FormatNilSliceAsNull(true),
	json.FormatNilMapAsNull(true), json.Deterministic(true),
)

func indexPath(journal string) string { return strings.TrimSuffix(journal, journalExt) + indexExt }

// writeIndex writes the index of a fold. errIndex where it would be too long.
func writeIndex(to io.Writer, s *State, snap snapshot) error {
	if len(s.order) > maxIndexed || len(s.ended) > maxIndexed {
		return errIndex
	}
	length := int64(0)
	var failed error
	runs, over := s.ended, map[string]bool{}
	var b block
	var w rowWriter
	flush := func() {
		b.Size, b.Sum = int64(len(w.out)), crc32.Checksum(w.out, castagnoli)
		if _, err := to.Write(w.out); err != nil {
			failed = err
		}
		snap.Blocks, length = append(snap.Blocks, b), length+b.Size
		b, w = block{}, rowWriter{out: w.out[:0]}
	}
	for n := 0; n < len(s.order) || len(runs) > 0; {
		if len(runs) > 0 && (n == len(s.order) || runs[0].after <= n) {
			w.run(runs[0])
			over[runs[0].RunID] = true
			b.Runs, runs = b.Runs+1, runs[1:]
		} else {
			e := s.order[n]
			if e.size == 0 { // not in the journal
				return errIndex
			}
			w.entry(e)
			snap.Whole = snap.Whole || over[e.RunID]
			b.Entries, n = b.Entries+1, n+1
		}
		if len(w.out) >= blockSize {
			flush()
		}
		if length > maxIndex || failed != nil {
			return cmp.Or(failed, errIndex)
		}
	}
	flush()
	snap.Version, snap.State, snap.Keys, snap.Named, snap.Decided = indexVersion, s, s.keys, s.named, s.decided
	if s.patched.root != nil {
		snap.Patched = s.patched.root.appendTo(nil)
	}
	text, err := json.Marshal(snap, snapshotOptions)
	if err != nil || len(text) > maxSnapshot {
		return errIndex
	}
	trailer := binary.LittleEndian.AppendUint32(nil, uint32(len(text)))
	trailer = binary.LittleEndian.AppendUint32(trailer, crc32.Checksum(text, castagnoli))
	_, err = to.Write(slices.Concat(text, trailer, []byte(indexMagic)))
	return errors.Join(failed, err)
}

// index is an index that is being read.
type index struct {
	snapshot
	f  io.ReaderAt
	to int64 // where the blocks end
}

// readIndex reads the snapshot of an index of so many bytes.
func readIndex(f io.ReaderAt, size int64) (*index, error) {
	if size < int64(trailerSize) || size > maxIndex+maxSnapshot {
		return nil, errIndex
	}
	trailer := make([]byte, trailerSize)
	if _, err := f.ReadAt(trailer, size-int64(trailerSize)); err != nil || string(trailer[8:]) != indexMagic {
		return nil, errIndex
	}
	length, sum := int64(binary.LittleEndian.Uint32(trailer)), binary.LittleEndian.Uint32(trailer[4:])
	x := &index{f: f, to: size - int64(trailerSize) - length}
	if length > maxSnapshot || x.to < 0 {
		return nil, errIndex
	}
	text := make([]byte, length)
	if _, err := f.ReadAt(text, x.to); err != nil || crc32.Checksum(text, castagnoli) != sum {
		return nil, errIndex
	}
	x.State = NewState()
	if err := json.Unmarshal(text, &x.snapshot, snapshotOptions); err != nil || x.State == nil ||
		x.Version != indexVersion {
		return nil, errIndex
	}
	blocks, entries, runs := int64(0), 0, 0
	for _, b := range x.Blocks {
		if b.Size < 0 || b.Size > x.to-blocks || b.Entries < 0 || b.Runs < 0 || b.Entries > maxIndexed-entries ||
			b.Runs > maxIndexed-runs {
			return nil, errIndex
		}
		blocks, entries, runs = blocks+b.Size, entries+b.Entries, runs+b.Runs
	}
	if blocks != x.to || x.Size <= 0 || x.Lines < 0 {
		return nil, errIndex
	}
	return x, nil
}

// openIndex opens the index of a journal, whose end and name it must be of. exact says
// that it is of the whole journal as it is. Its file is the caller's to close.
func openIndex(journal *os.File) (x *index, exact bool, closing func(), err error) {
	closing = func() {}
	state, err := fileStateOf(journal)
	if err != nil {
		return nil, false, closing, err
	}
	f, err := regular.Open(indexPath(journal.Name()), os.O_RDONLY)
	if err != nil {
		return nil, false, closing, err
	}
	closing = func() { _ = f.Close() }
	info, err := f.Stat()
	if err != nil {
		return nil, false, closing, err
	}
	if st := info.Sys().(*syscall.Stat_t); st.Nlink != 1 || info.Mode().Perm()&0o022 != 0 {
		return nil, false, closing, errIndex
	}
	if x, err = readIndex(f, info.Size()); err != nil {
		return nil, false, closing, err
	}
	if x.Size > state.Size || belongs(x.State, journal.Name()) != nil {
		return nil, false, closing, errIndex
	}
	if end, err := endSum(journal, x.Size); err != nil || end != x.End {
		return nil, false, closing, errIndex
	}
	return x, x.File == state && x.Size == state.Size, closing, nil
}

// endSum is the checksum of the end of a journal's first bytes.
func endSum(journal *os.File, size int64) (uint32, error) {
	end := make([]byte, min(size, endSize))
	_, err := journal.ReadAt(end, size-int64(len(end)))
	return crc32.Checksum(end, castagnoli), err
}

// restore makes the session of an index. With last more than 0 it may have no more than
// what leads to the last entries of its path, so many of them.
func (x *index) restore(last int) (*State, error) {
	s := x.State
	s.applied = x.Lines
	s.keys, s.named, s.decided = x.Keys, x.Named, x.Decided
	if s.keys == nil {
		s.keys = map[string]Accepted{}
	}
	if s.Run != nil {
		s.Run.Calls = begun(s.Run.Calls, s.Run.Started)
	}
	for _, a := range s.Assets {
		s.assetsSize += AssetSize(a)
	}
	if x.Patched != nil {
		root, err := decodeValue(x.Patched)
		if err != nil {
			return nil, errIndex
		}
		s.patched.root = root
	}
	if last > 0 && !x.Whole {
		n, first := 0, len(x.Blocks)
		for first > 0 && n < last {
			first--
			n += x.Blocks[first].Entries
		}
		if err := x.rows(s, first); err != nil {
			return nil, err
		}
		if first == 0 || s.ledTo(last) {
			return s, nil
		}
	}
	return s, x.rows(s, 0)
}

// ledTo reports whether the last entries of the path are there, so many or all, in a
// session that lacks its oldest.
func (s *State) ledTo(last int) bool {
	if len(s.path.entries) > last { // its first may be a compaction, before what is missing
		return true
	}
	var oldest, compaction *Entry
	for oldest = range s.upwards(s.Leaf) {
		if compaction == nil && oldest.IsCompaction() {
			compaction = oldest
		}
		if compaction != nil && oldest == compaction.kept {
			return true
		}
	}
	return oldest != nil && oldest.parent == nil
}

// rows reads the rows of the blocks from the one with that number on. Of what is before
// them only the ids are known.
func (x *index) rows(s *State, from int) error {
	at, entries, runs := int64(0), 0, 0
	for i, b := range x.Blocks {
		if i < from {
			at += b.Size
		} else {
			entries, runs = entries+b.Entries, runs+b.Runs
		}
	}
	s.entries, s.found, s.order, s.ended = nil, 0, slices.Grow([]*Entry(nil), entries), slices.Grow([]*Ended(nil), runs)
	find := func(id string) *Entry {
		e := s.Entry(id)
		if e == nil && from > 0 && id != "" {
			e = &Entry{ID: id, missing: true}
		}
		return e
	}
	end := int64(0)
	for _, b := range x.Blocks[from:] {
		text := make([]byte, b.Size)
		if _, err := x.f.ReadAt(text, at); err != nil || crc32.Checksum(text, castagnoli) != b.Sum {
			return errIndex
		}
		at += b.Size
		if !x.block(s, b, string(text), &end, find) {
			return errIndex
		}
	}
	if s.Leaf != "" && from == 0 && s.Entry(s.Leaf) == nil {
		return errIndex
	}
	s.path = s.pathTo(s.Leaf)
	return nil
}

// block adds what a block has.
func (x *index) block(s *State, b block, text string, end *int64, find func(id string) *Entry) bool {
	r := rowReader{rest: text}
	entries, runs := make([]Entry, b.Entries), make([]Ended, b.Runs)
	for r.rest != "" && !r.bad {
		flags := r.num()
		if flags&rowRun != 0 {
			if len(runs) == 0 {
				return false
			}
			r.run(&runs[0])
			s.ended, runs = append(s.ended, &runs[0]), runs[1:]
			continue
		}
		if len(entries) == 0 {
			return false
		}
		e := &entries[0]
		entries = entries[1:]
		r.entry(flags, e, find)
		if r.bad || e.at < *end || r.end > x.Size {
			return false
		}
		*end = r.end
		e.n = len(s.order)
		s.order = append(s.order, e)
	}
	return !r.bad && len(entries) == 0 && len(runs) == 0
}

// refolded is a journal that was read.
type refolded struct {
	state    *State
	at       place
	problems []Problem
	indexed  bool // there is an index of all of it
}

// whole reports that an index may be made of it: it says all that its journal does.
func (r refolded) whole() bool { return len(r.problems) == 0 && r.state.applied == r.at.lines }

// refold folds a journal, from where its index ends on where there is one. With last it
// may have no more than restore; with warm it has texts in memory.
func refold(ctx context.Context, f *os.File, last int, warm bool) (refolded, error) {
	r, ok := restored(ctx, f, last)
	if ok && warm {
		ok = r.state.warm(ctx, f) == nil
	}
	if !ok {
		r = refolded{state: NewState()}
	}
	if r.indexed {
		return r, nil
	}
	err := r.goOn(ctx, f)
	return r, err
}

// goOn folds the journal from where r is.
func (r *refolded) goOn(ctx context.Context, f *os.File) (err error) {
	rest := io.NewSectionReader(f, r.at.size, math.MaxInt64-r.at.size)
	r.at, r.problems, err = foldFrom(untilDone{ctx, rest}, f.Name(), r.state, r.at)
	return err
}

// restored is a session as its index has it. A journal that was written since, or is
// another file, has to begin with what the index is of.
func restored(ctx context.Context, f *os.File, last int) (r refolded, ok bool) {
	x, exact, closing, err := openIndex(f)
	defer closing()
	if err != nil {
		return r, false
	}
	if !exact {
		last = 0
		sum := crc32.New(castagnoli)
		if _, err := io.CopyBuffer(sum, untilDone{ctx, io.NewSectionReader(f, 0, x.Size)}, make([]byte, 128<<10)); err !=
			nil || sum.Sum32() != x.Sum {
			return r, false
		}
	}
	state, err := x.restore(last)
	if err != nil {
		return r, false
	}
	return refolded{state: state, at: place{x.Size, x.Lines, x.Sum}, indexed: exact}, true
}

// warm has the newest texts of the path in memory, as after a fold: all of them where
// there is room, else some. None is there before.
func (s *State) warm(ctx context.Context, f *os.File) error {
	cost, most := 0, maxHeld
	for _, e := range s.path.entries {
		cost += costOf(e)
	}
	if cost > most {
		most = leastHeld
	}
	var warmed []*Entry
	for _, e := range slices.Backward(s.path.entries) {
		if most -= costOf(e); most < 0 {
			break
		}
		warmed = append(warmed, e)
	}
	slices.SortFunc(warmed, func(a, b *Entry) int { return a.n - b.n })
	read := bodyReader{ctx: ctx, f: f}
	for _, e := range warmed {
		b, err := read.read(e)
		if err != nil {
			return err
		}
		e.body.Store(b)
		s.hold(e)
	}
	s.path = s.pathTo(s.Leaf)
	return nil
}

// keepIndex writes the index of a journal as it is now, which s is the fold of. It
// returns before that is done; s must not change any more.
func (s *Store) keepIndex(state *State, at place, journal *os.File) {
	if at.size < s.leastIndexed || state.Run != nil && state.Run.Said != (Piece{}) { // which is not in the journal
		return
	}
	is, err := fileStateOf(journal)
	if err != nil || is.Size != at.size {
		return
	}
	end, err := endSum(journal, at.size)
	if err != nil {
		return
	}
	snap := snapshot{Size: at.size, Lines: at.lines, Sum: at.sum, End: end, File: is}
	s.indexing.Go(func() { // waited for by Close
		s.indexers <- struct{}{}
		defer func() { <-s.indexers }()
		_ = s.placeIndex(state, snap) // there will be another time
	})
}

// placeIndex writes an index and puts it in its place. It does not use regular.Replace: an
// index may be lost in a crash and is not synced, is written piece by piece, and takes its
// name only while the session cannot be deleted.
func (s *Store) placeIndex(state *State, snap snapshot) (err error) {
	if err := s.lock.Check(); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Join(s.dir, sessionsName), state.ID+".*"+draftExt)
	if err != nil {
		return err
	}
	err = writeIndex(f, state, snap)
	if err = errors.Join(err, f.Close()); err == nil {
		s.files.RLock() // the session is not deleted meanwhile
		defer s.files.RUnlock()
		if err = ErrNotFound; s.Exists(state.ID) {
			err = os.Rename(f.Name(), indexPath(s.path(state.ID)))
		}
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}
