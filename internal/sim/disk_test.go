//go:build sim

package sim

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"noused/internal/session"
)

// errDead is what operations of a killed daemon return: nobody is there to see it.
var errDead = errors.New("the daemon was killed")

// disk keeps what a power cut would leave: the contents and names that were synced. Its
// files are real ones, so that the daemon reads them as ever, and what it does with them
// past the port is seen at the cut.
type disk struct {
	shadow string // a folder that keeps files whose names are durable until their removal is

	mu    sync.Mutex
	files map[uint64]*durable          // by inode
	names map[string]map[string]uint64 // durable names of each folder, by path
	dirs  map[string]bool              // folders whose names are durable
	holed map[string]bool              // files that a power cut left holes in, by path
}

// durable is what is on the platter of one file.
type durable struct {
	content []byte
	lost    []span // that a failed sync dropped: the pages are clean, the platter is not written
}

type span struct{ from, to int }

func newDisk(shadow string) *disk {
	return &disk{
		shadow: shadow, files: map[uint64]*durable{}, names: map[string]map[string]uint64{}, dirs: map[string]bool{},
		holed: map[string]bool{},
	}
}

func inode(info os.FileInfo) uint64 { return info.Sys().(*syscall.Stat_t).Ino }

// port is the disk of one life of the daemon.
type port struct {
	*disk
	life *life
}

var _ session.Disk = port{}

func (p port) Create(path string) (f *os.File, err error) {
	if fault := p.life.stop("create " + base(path)); fault != nil {
		return nil, fault
	}
	if f, err = (session.OSDisk{}).Create(path); err == nil {
		p.born(path)
	}
	return f, err
}

func (p port) Open(path string) (*os.File, error) {
	if fault := p.life.stop("open " + base(path)); fault != nil {
		return nil, fault
	}
	return (session.OSDisk{}).Open(path)
}

func (p port) Link(from, to string) error {
	if fault := p.life.stop("link " + base(to)); fault != nil {
		return fault
	}
	return os.Link(from, to)
}

func (d *disk) born(path string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if info, err := os.Lstat(path); err == nil && d.files[inode(info)] == nil {
		d.files[inode(info)] = &durable{}
	}
}

func (p port) Write(f *os.File, text []byte) (int, error) {
	p.rewritten(f, len(text))
	fault := p.life.stop(p.first(f) + "write " + base(f.Name()))
	var short shortWrite
	switch {
	case errors.As(fault, &short):
		n, _ := f.Write(text[:int(short)%(len(text)+1)])
		return n, syscall.ENOSPC
	case fault != nil:
		return 0, fault
	}
	return f.Write(text)
}

// rewritten notes that pages are written again, so that the next sync takes them along.
func (p port) rewritten(f *os.File, n int) {
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	info, e := f.Stat()
	at, e2 := f.Seek(0, io.SeekCurrent)
	if err != nil || e != nil || e2 != nil || flags&unix.O_APPEND != 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if file := p.files[inode(info)]; file != nil {
		file.lost = slices.DeleteFunc(file.lost, func(s span) bool {
			return int(at) <= s.from && s.to <= int(at)+n
		})
	}
}

// first is "first " for a file that was never synced, else "".
func (p port) first(f *os.File) string {
	info, err := f.Stat()
	if err != nil {
		return "first "
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if file := p.files[inode(info)]; file != nil && len(file.content) > 0 {
		return ""
	}
	return "first "
}

func (p port) Truncate(f *os.File, size int64) error {
	if fault := p.life.stop("truncate " + base(f.Name())); fault != nil {
		return fault
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if file := p.files[inode(info)]; file != nil { // what is written there next is written anew
		file.lost = slices.DeleteFunc(file.lost, func(s span) bool { return s.from >= int(size) })
		for i := range file.lost {
			file.lost[i].to = min(file.lost[i].to, int(size))
		}
	}
	return f.Truncate(size)
}

func (p port) Sync(f *os.File) error {
	fault := p.life.stop(p.first(f) + "sync " + base(f.Name()))
	if errors.Is(fault, errDead) {
		return fault
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(f.Name())
	if err != nil { // it was renamed: its content is found by its inode
		text = make([]byte, info.Size())
		_, err = f.ReadAt(text, 0)
	}
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	file := p.files[inode(info)]
	if file == nil {
		file = &durable{}
		p.files[inode(info)] = file
	}
	if fault != nil { // EIO: what was not written yet never will be
		if from := common(file.content, text); from < len(text) {
			file.lost = append(file.lost, span{from, len(text)})
		}
		return fault
	}
	file.content = slices.Clone(text)
	for _, s := range file.lost {
		for i := s.from; i < min(s.to, len(text)); i++ {
			file.content[i] = 0
		}
	}
	return nil
}

func common(a, b []byte) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

func (p port) SyncDir(dir string) error {
	if p.life.w.families {
		p.life.w.removes()
	}
	if fault := p.life.stop("sync folder " + strings.TrimPrefix(dir, p.life.w.dir)); fault != nil {
		return fault
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.keepNames(dir)
}

// keepNames notes that the names in a folder are durable. d.mu is held.
func (d *disk) keepNames(dir string) error {
	now, err := inodes(dir)
	if err != nil {
		return err
	}
	inside, err := filepath.Glob(filepath.Join(dir, "*", "."))
	if err != nil {
		return err
	}
	for _, path := range inside {
		d.dirs[filepath.Clean(path)] = true
	}
	for name, before := range d.names[dir] {
		if now[name] != before {
			_ = os.Remove(d.keptAs(dir, name))
		}
	}
	for name, is := range now {
		if d.names[dir][name] == is {
			continue
		}
		if err := os.Link(filepath.Join(dir, name), d.keptAs(dir, name)); err != nil {
			return err
		}
	}
	d.names[dir] = now
	return nil
}

// keptAs is where the file is kept that a durable name stands for.
func (d *disk) keptAs(dir, name string) string {
	return filepath.Join(d.shadow, strings.ReplaceAll(filepath.Join(dir, name), "/", "%"))
}

// inodes are the files in a folder.
func inodes(dir string) (map[string]uint64, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	now := map[string]uint64{}
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
			continue
		}
		if err != nil {
			return nil, err
		}
		now[e.Name()] = inode(info)
	}
	return now, nil
}

// powerCut leaves of the folders under root what was synced, and of the rest what rng
// chooses: each unsynced content, size, name, removal and renaming may have reached the
// platter or not, whatever came before it.
func (d *disk) powerCut(t testing.TB, root string, rng *rand.Rand) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	must(t, filepath.WalkDir(root, func(dir string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() && dir != root && !d.dirs[dir] && rng.IntN(2) == 0 {
			for name := range d.names[dir] {
				_ = os.Remove(d.keptAs(dir, name))
			}
			delete(d.names, dir)
			return cmp.Or(os.RemoveAll(dir), fs.SkipDir)
		}
		if err == nil && e.IsDir() {
			d.cutNames(t, dir, rng)
		}
		return err
	}))
	must(t, filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			d.cutContent(t, path, rng)
		}
		return err
	}))
	must(t, filepath.WalkDir(root, func(dir string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() { // what is there is all there is
			return d.keepNames(dir)
		}
		return err
	}))
}

// cutNames chooses which names a folder has.
func (d *disk) cutNames(t testing.TB, dir string, rng *rand.Rand) {
	now, err := inodes(dir)
	must(t, err)
	before := d.names[dir]
	renamed := map[string]string{} // the durable name of a file that has another one now
	for _, old := range sorted(before) {
		for _, name := range sorted(now) {
			if now[old] == 0 && now[name] == before[old] && before[name] == 0 {
				renamed[name] = old
			}
		}
	}
	for _, name := range sorted(now) {
		path := filepath.Join(dir, name)
		was, known := before[name]
		switch old := renamed[name]; {
		case known && was == now[name], rng.IntN(2) == 0 || name == "lock":
		case old != "":
			must(t, os.Rename(path, filepath.Join(dir, old)))
		case known: // another file took its name
			must(t, os.Remove(path))
			must(t, os.Link(d.keptAs(dir, name), path))
		default:
			must(t, os.Remove(path))
		}
	}
	for _, name := range sorted(before) {
		moved := false
		for _, old := range renamed {
			moved = moved || old == name
		}
		if now[name] == 0 && !moved && rng.IntN(2) == 0 {
			must(t, os.Link(d.keptAs(dir, name), filepath.Join(dir, name)))
		}
	}
}

// cutContent chooses what a file has.
func (d *disk) cutContent(t testing.TB, path string, rng *rand.Rand) {
	info, err := os.Lstat(path)
	must(t, err)
	file := d.files[inode(info)]
	if file == nil { // nobody has synced it
		file = &durable{}
		d.files[inode(info)] = file
	}
	text, err := os.ReadFile(path)
	must(t, err)
	if filepath.Base(path) == "lock" && len(text) > 0 { // the number of this process, whose length decides nothing
		text = []byte("12345")
	}
	left := file.content
	if bytes.HasPrefix(text, left) && len(file.lost) == 0 {
		left = text[:len(left)+rng.IntN(len(text)-len(left)+1)]
		if tail := len(left) - len(file.content); tail > 0 {
			left = slices.Clone(left)
			switch rng.IntN(12) {
			case 0, 1, 2: // the size was written, the last bytes were not
				clear(left[len(file.content)+rng.IntN(tail):])
			case 3: // nor some before others that were
				d.holed[path] = holes(left, len(file.content), rng) || d.holed[path]
			}
		}
	} else if len(file.lost) == 0 && rng.IntN(2) == 0 {
		left = text
	}
	file.content, file.lost = slices.Clone(left), nil
	must(t, os.WriteFile(path, left, 0o600))
}

// sector is what a disk writes at once.
const sector = 512

// holes leaves zeros in some sectors of what is behind the first synced bytes: each may have
// reached the platter or not. It reports whether one before another has not.
func holes(text []byte, synced int, rng *rand.Rand) (holed bool) {
	empty := false
	for from := synced; from < len(text); {
		to := min(len(text), (from/sector+1)*sector)
		if rng.IntN(2) == 0 {
			clear(text[from:to])
			empty = true
		} else {
			holed = holed || empty
		}
		from = to
	}
	return holed
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// base is the name of a file, without what is random in that of a draft.
func base(path string) string {
	name := filepath.Base(path)
	if id, draft := strings.CutSuffix(name, ".new"); draft && !strings.HasSuffix(id, ".jsonl") {
		id, _, _ = strings.Cut(id, ".")
		return id + ".new"
	}
	return name
}

func sorted[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// The number of the process is in its lock, and is no part of the seed.
func TestTheNumberOfTheProcessDecidesNothing(t *testing.T) {
	for seed := range uint64(100) {
		var next []uint64
		for _, pid := range []string{"7", "31999", "4194303"} {
			dir, shadow := t.TempDir(), t.TempDir()
			path := filepath.Join(dir, "lock")
			must(t, os.WriteFile(path, []byte(pid), 0o600))
			rng := rand.New(rand.NewPCG(seed, 0))
			newDisk(shadow).cutContent(t, path, rng)
			next = append(next, rng.Uint64())
		}
		if next[0] != next[1] || next[1] != next[2] {
			t.Fatalf("seed %d goes on with %d", seed, next)
		}
	}
}
