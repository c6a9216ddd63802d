//go:build sim

package sim

import (
	"bytes"
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

// disk keeps what a power cut would leave: the contents and names that were synced.
// Its files are real ones, so that the daemon reads them as ever.
type disk struct {
	shadow string // a folder that keeps removed files until their removal is durable

	mu     sync.Mutex
	files  map[uint64]*durable          // by inode
	names  map[string]map[string]uint64 // durable names of each folder, by path
	linked map[string]bool              // names made here that are not durable yet
}

// durable is what is on the platter of one file.
type durable struct {
	content []byte
	lost    []span // that a failed sync dropped: the pages are clean, the platter is not written
}

type span struct{ from, to int }

func newDisk(shadow string) *disk {
	return &disk{
		shadow: shadow, files: map[uint64]*durable{}, names: map[string]map[string]uint64{},
		linked: map[string]bool{},
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
	err := os.Link(from, to)
	if err == nil {
		p.born(to)
	}
	return err
}

func (d *disk) born(path string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.linked[path] = true
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
	if fault := p.life.stop("sync folder " + base(dir)); fault != nil {
		return fault
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := map[string]uint64{}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		now[e.Name()] = inode(info)
		delete(p.linked, filepath.Join(dir, e.Name()))
		kept := filepath.Join(p.shadow, strings.ReplaceAll(filepath.Join(dir, e.Name()), "/", "%"))
		_ = os.Remove(kept)
		if err := os.Link(filepath.Join(dir, e.Name()), kept); err != nil {
			return err
		}
	}
	p.names[dir] = now
	return nil
}

// powerCut leaves of the files under root what was synced, and of the rest what rng
// chooses: each unsynced tail, name and removal may have reached the platter or not.
func (d *disk) powerCut(t testing.TB, root string, rng *rand.Rand) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, path := range sorted(d.linked) {
		if rng.IntN(2) == 0 {
			must(t, ignoreMissing(os.Remove(path)))
		}
	}
	clear(d.linked)
	for _, dir := range sorted(d.names) {
		for _, name := range sorted(d.names[dir]) {
			path := filepath.Join(dir, name)
			kept := filepath.Join(d.shadow, strings.ReplaceAll(path, "/", "%"))
			if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) && rng.IntN(2) == 0 {
				if _, err := os.Lstat(dir); err == nil {
					must(t, ignoreMissing(os.Link(kept, path)))
				}
			}
		}
	}
	must(t, filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		file := d.files[inode(info)]
		if file == nil {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		left := file.content
		if bytes.HasPrefix(text, left) && len(file.lost) == 0 {
			left = text[:len(left)+rng.IntN(len(text)-len(left)+1)]
			if tail := len(left) - len(file.content); tail > 0 && rng.IntN(4) == 0 {
				left = slices.Clone(left) // the size was written, the bytes were not
				clear(left[len(file.content):])
			}
		} else if len(file.lost) == 0 && rng.IntN(2) == 0 {
			left = text
		}
		file.content, file.lost = slices.Clone(left), nil
		return os.WriteFile(path, left, 0o600)
	}))
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func base(path string) string { return filepath.Base(path) }

func sorted[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
