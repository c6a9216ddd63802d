package session

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
)

// What is not the index of its journal, or cannot be, is passed over in silence: the
// session is the one of its journal.
func TestAnIndexThatIsNone(t *testing.T) {
	store := indexing(t)
	text := lines(t, conversation(20, 300))
	journal := store.path("ses-1")
	path := indexPath(journal)
	change := func(at func(size int) int) func(t *testing.T) {
		return func(t *testing.T) {
			index, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			index[at(len(index))] ^= 1
			if err := os.WriteFile(path, index, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	// edit changes a byte of the journal, whose times are set back then.
	edit := func(from, to string) func(t *testing.T) {
		return func(t *testing.T) {
			writeJournal(t, store, bytes.Replace(text, []byte(from), []byte(to), 1))
			if err := os.Chtimes(journal, t0, t0); err != nil {
				t.Fatal(err)
			}
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, spoil := range map[string]func(t *testing.T){
		"a byte of the first block": change(func(int) int { return 100 }),
		"a byte of the snapshot":    change(func(size int) int { return size - 200 }),
		"a byte of the trailer":     change(func(size int) int { return size - 14 }),
		"a byte of the magic":       change(func(size int) int { return size - 1 }),
		"cut":                       func(*testing.T) { must(os.Truncate(path, 5000)) },
		"empty":                     func(*testing.T) { must(os.Truncate(path, 0)) },
		"too long":                  func(*testing.T) { must(os.Truncate(path, 1<<40)) },
		"a folder":                  func(*testing.T) { must(errors.Join(os.Remove(path), os.Mkdir(path, 0o700))) },
		"a link": func(*testing.T) {
			must(errors.Join(os.Rename(path, path+"2"), os.Symlink(path+"2", path)))
		},
		"a second name":          func(*testing.T) { must(os.Link(path, path+"3")) },
		"a FIFO":                 func(*testing.T) { must(errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600))) },
		"writable by all":        func(*testing.T) { must(os.Chmod(path, 0o622)) },
		"the journal is shorter": func(t *testing.T) { writeJournal(t, store, text[:len(text)/2]) },
		"an edit in the middle":  edit(`"steps":`, `"stepz":`),
		"another id in the middle": edit(`"id":"msg-01994d1c-7c5e-7a51-8000-000000100001"`,
			`"id":"msg-01994d1c-7c5e-7a51-8000-000000100009"`),
		"another text in the middle": edit("Go on.", "Go up."),
		"another text at the end": func(t *testing.T) {
			i := bytes.LastIndex(text, []byte("Go on."))
			writeJournal(t, store, slices.Concat(text[:i], []byte("Go up."), text[i+6:]))
		},
		"a line that is cut out": func(t *testing.T) {
			_, rest, _ := bytes.Cut(text, []byte("\n"))
			line, _, _ := bytes.Cut(rest, []byte("\n"))
			writeJournal(t, store, bytes.Replace(text, append(line, '\n'), nil, 1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			must(os.RemoveAll(path))
			writeJournal(t, store, text)
			if !indexed(t, store) {
				t.Fatal("no index")
			}
			spoil(t)
			for _, last := range []int{0, 3} {
				r, err := read(t, store, last, true)
				if last == 0 || len(r.state.order) == 80 {
					wantFold(t, name, store, r, err)
				}
			}
			if s, err := store.Peek(context.Background(), "ses-1"); err != nil || s.ID != "ses-1" {
				t.Errorf("looked at, it is %q, %v", s.ID, err)
			}
			_, j, _, err := store.Load(context.Background(), "ses-1")
			if err != nil {
				t.Fatal(err)
			}
			must(j.Close())
			store.indexing.Wait()
			if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*"+draftExt)); len(left) > 0 {
				t.Errorf("%v are left", left)
			}
		})
	}
}

// An index is that of the session whose name it has.
func TestAnIndexOfAnotherSession(t *testing.T) {
	store := indexing(t)
	text := lines(t, conversation(60, 100))
	writeJournal(t, store, text)
	if !indexed(t, store) {
		t.Fatal("no index")
	}
	index, err := os.ReadFile(indexPath(store.path("ses-1")))
	if err != nil {
		t.Fatal(err)
	}
	other := bytes.Replace(text, []byte(`"session_id":"ses-1"`), []byte(`"session_id":"ses-2"`), 1)
	if err := errors.Join(os.WriteFile(store.path("ses-2"), other, 0o600), os.WriteFile(indexPath(store.path("ses-2")),
		index, 0o600)); err != nil {
		t.Fatal(err)
	}
	if s, err := store.Peek(context.Background(), "ses-2"); err != nil || s.ID != "ses-2" {
		t.Errorf("got %q, %v", s.ID, err)
	}
}

// A session that is closed gets its index; one whose journal is not what it says, or is
// damaged, does not, and neither does one that is deleted.
func TestWhenAnIndexIsWritten(t *testing.T) {
	records := conversation(3, 100)
	for name, c := range map[string]struct {
		before string // what the journal has at its end before it is opened
		do     func(t *testing.T, store *Store, s *State, j *Journal)
		want   bool
	}{
		"closed":         {do: func(*testing.T, *Store, *State, *Journal) {}, want: true},
		"torn before":    {before: "{", do: func(*testing.T, *Store, *State, *Journal) {}},
		"damaged before": {before: "noise\n", do: func(*testing.T, *Store, *State, *Journal) {}},
		"decided and not written": {do: func(t *testing.T, _ *Store, s *State, _ *Journal) {
			if err := s.Apply(Record{t0, TitleSet{Title: "lost"}}); err != nil {
				t.Error(err)
			}
		}},
		"written and not decided": {do: func(t *testing.T, _ *Store, _ *State, j *Journal) {
			if err := j.Append([]Record{{t0, TitleSet{Title: "unheard of"}}}); err != nil {
				t.Error(err)
			}
		}},
		"deleted": {do: func(t *testing.T, store *Store, _ *State, _ *Journal) {
			if err := store.Delete("ses-1", t0); err != nil {
				t.Error(err)
			}
		}},
		"the folder was taken away": {do: func(t *testing.T, store *Store, _ *State, _ *Journal) {
			if err := os.Rename(filepath.Join(store.dir, "lock"), filepath.Join(store.dir, "lock2")); err != nil {
				t.Error(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			store := indexing(t)
			writeJournal(t, store, append(lines(t, records), c.before...))
			s, j, _, err := store.Load(context.Background(), "ses-1")
			if err != nil {
				t.Fatal(err)
			}
			inChunks(t, s, j, []Record{{t0, TitleSet{Title: "kept"}}})
			c.do(t, store, s, j)
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			store.indexing.Wait()
			_, err = os.Stat(indexPath(store.path("ses-1")))
			if (err == nil) != c.want {
				t.Errorf("got %v", err)
			}
			if c.want {
				r, err := read(t, store, 0, false)
				if !r.indexed || r.state.Title != "kept" {
					t.Errorf("indexed %t, %q", r.indexed, r.state.Title)
				}
				wantFold(t, name, store, r, err)
			}
		})
	}
}

// A short journal has no index, and a long one is indexed when it is looked at; it goes
// with its session, and counts for it.
func TestAnIndexGoesWithItsSession(t *testing.T) {
	store := open(t, OSDisk{}, t.TempDir())
	writeJournal(t, store, lines(t, conversation(3, 100)))
	if indexed(t, store) {
		t.Error("a short journal has an index")
	}
	text := lines(t, conversation(100, 3000))
	writeJournal(t, store, text)
	if !indexed(t, store) {
		t.Fatal("a long journal has no index")
	}
	info, err := os.Stat(indexPath(store.path("ses-1")))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatal(info.Mode(), err)
	}
	all, err := store.Footprints(context.Background())
	if err != nil || len(all) != 1 || all[0].Bytes != int64(len(text))+info.Size() {
		t.Errorf("got %+v, %v; the journal has %d bytes and the index %d", all, err, len(text), info.Size())
	}
	if ids, err := store.IDs(); err != nil || !slices.Equal(ids, []string{"ses-1"}) {
		t.Errorf("got %v, %v", ids, err)
	}
	if in, err := Inspect(store.path("ses-1")); err != nil || len(in.Skipped) > 0 || in.Torn > 0 {
		t.Errorf("got %+v, %v", in, err)
	}
	if err := store.Delete("ses-1", t0); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(store.dir, sessionsName, "*")); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}

var updateIndex = flag.Bool("update-index", false, "write testdata/index anew, with another indexVersion")

// Anyone who changes what a fold makes of a journal, or how an index says it, has to give
// indexes another version: this daemon would believe those of older ones.
func TestIndexIsAsItWas(t *testing.T) {
	s := NewState()
	text := lines(t, life())
	at, problems, err := foldFrom(bytes.NewReader(text), "j", s, place{})
	if err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	var got bytes.Buffer
	if err := writeIndex(&got, s, snapshot{Size: at.size, Lines: at.lines, Sum: at.sum}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", fmt.Sprintf("index.%d", indexVersion))
	if *updateIndex {
		if err := os.WriteFile(path, got.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(want, got.Bytes()) {
		t.Errorf("an index is not as it was, %v: give it another version, remove %s, and use -update-index\n%s", err, path,
			cmp.Diff(string(want), got.String()))
	}
}

// sealed is an index with those rows and that snapshot, whose checksums are right.
func sealed(rows []byte, snap []byte) []byte {
	out := slices.Concat(rows, snap)
	out = binary.LittleEndian.AppendUint32(out, uint32(len(snap)))
	out = binary.LittleEndian.AppendUint32(out, crc32.Checksum(snap, castagnoli))
	return append(out, indexMagic...)
}

// Whatever an index says whose checksums are right, what comes of it is refused or a tree
// no larger than it may be; and the index of whatever a journal says is its fold.
func FuzzIndex(f *testing.F) {
	text := lines(f, life())
	s := NewState()
	if _, _, err := fold(bytes.NewReader(text), "j", s); err != nil {
		f.Fatal(err)
	}
	var made bytes.Buffer
	if err := writeIndex(&made, s, snapshot{Size: int64(len(text)), Lines: len(life())}); err != nil {
		f.Fatal(err)
	}
	x, err := readIndex(bytes.NewReader(made.Bytes()), int64(made.Len()))
	if err != nil {
		f.Fatal(err)
	}
	snap := made.Bytes()[x.to : made.Len()-trailerSize]
	f.Add(made.Bytes()[:x.to], snap, uint16(x.Blocks[0].Entries), uint16(x.Blocks[0].Runs), text, false)
	f.Add(made.Bytes()[:x.to], snap, uint16(x.Blocks[0].Entries), uint16(x.Blocks[0].Runs), []byte("x\n"), true)
	store := indexing(f)
	f.Fuzz(func(t *testing.T, rows, snap []byte, entries, runs uint16, journal []byte, mend bool) {
		if mend { // the blocks are those of the file
			var said snapshot
			said.State = NewState()
			if json.Unmarshal(snap, &said, snapshotOptions) == nil {
				said.Version, said.Size, said.Lines = indexVersion, max(said.Size, 1), max(said.Lines, 0)
				said.Blocks = []block{{
					Size: int64(len(rows)), Sum: crc32.Checksum(rows, castagnoli), Entries: int(entries),
					Runs: int(runs),
				}}
				if text, err := json.Marshal(said, snapshotOptions); err == nil {
					snap = text
				}
			}
		}
		index := sealed(rows, snap)
		for _, last := range []int{0, 2} {
			x, err := readIndex(bytes.NewReader(index), int64(len(index)))
			if err != nil {
				continue
			}
			s, err := x.restore(last)
			if err != nil {
				continue
			}
			if len(s.order)+len(s.ended) > len(rows) {
				t.Fatalf("%d entries and %d runs come of %d bytes", len(s.order), len(s.ended), len(rows))
			}
			ids := map[string]bool{}
			for _, e := range s.order {
				ids[e.ID] = true
				if e.parent != nil && !e.parent.missing && e.parent.n >= e.n {
					t.Fatalf("entry %q hangs below a later one", e.ID)
				}
			}
			if last == 0 && len(ids) == len(s.order) { // whose checksums are right may name one twice
				wantTree(t, s)
			}
			for _, e := range s.order {
				if e.at < 0 || e.size <= 0 || e.at+int64(e.size) > x.Size || e.bytes < 0 || e.tokens < 0 {
					t.Fatalf("entry %q has the place %d, %d", e.ID, e.at, e.size)
				}
			}
			_, _, _ = s.Tokens(), s.Memory(), s.Patched()
		}

		writeJournal(t, store, journal)
		if s, err := store.Peek(t.Context(), "ses-1"); err != nil || !indexed(t, store) {
			_ = s
			return
		}
		got, err := read(t, store, 0, len(rows)%2 == 0)
		wantFold(t, "fuzzed", store, got, err)
		wantEnd(t, store, got.state, int(entries%9)+1)
	})
}
