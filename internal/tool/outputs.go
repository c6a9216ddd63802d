package tool

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"noused/internal/proc"
	"noused/internal/regular"
)

// How the names of kept files begin.
const (
	KeptResult = "result-" // what was too long for a model
	KeptJob    = "job-"    // what a job prints
	KeptAsset  = "asset-"  // what came with a result
	keptBefore = "bash-"   // as KeptResult, of daemons before
)

// Outputs are the files of what is too long for a result, or comes with one: in a
// folder for each session, where only the daemon writes, and of which a sandbox opens at
// most one. Its methods may be called from any goroutine, and block for the disk. None
// follows a link.
type Outputs struct {
	Dir string // private to the user, no links on the way; made when it is needed
}

// KeptFile is one of [Outputs]. Name is its path from Dir.
type KeptFile struct {
	Name string
	fs.FileInfo
}

// OpenOutputs are those in a folder; "" stands for one of the system's temporary one.
func OpenOutputs(dir string) Outputs {
	dir = cmp.Or(dir, filepath.Join(os.TempDir(), fmt.Sprintf("noused-%d", os.Getuid())))
	return Outputs{filepath.Join(proc.Resolve(filepath.Dir(dir)), filepath.Base(dir))}
}

// Of is the folder of a session, whether it is there or not; "" is one for all calls
// that are no session's.
func (o Outputs) Of(session string) string { return filepath.Join(o.Dir, ofSession(session)) }

func ofSession(session string) string {
	if strings.HasPrefix(session, ".") || session != filepath.Base(session) {
		return "none"
	}
	return session
}

// NewName is the path of a file that Create can make for a session.
func (o Outputs) NewName(session, prefix, ending string) string {
	return filepath.Join(o.Of(session), prefix+rand.Text()+ending)
}

// Create makes a file of a session's, to be read and written. The error is fs.ErrExist
// where there is something of that name.
func (o Outputs) Create(session, name string) (*os.File, error) {
	root, err := o.open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	for range 3 { // Remove may take the folder away that has become empty
		var f *os.File
		if f, err = o.create(root, ofSession(session), name); !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
	}
	return nil, err
}

func (o Outputs) create(root *os.Root, folder, name string) (*os.File, error) {
	if err := root.Mkdir(folder, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if err := regular.IsFolder(filepath.Join(o.Dir, folder)); err != nil {
		return nil, err
	}
	return root.OpenFile(filepath.Join(folder, name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

// open makes the folder where there is none. Of one that is a link nothing is used.
func (o Outputs) open() (*os.Root, error) {
	if err := regular.Folder(o.Dir); err != nil {
		return nil, err
	}
	return os.OpenRoot(o.Dir)
}

// List are the files whose names begin so, of any kind for "", the oldest first: of all
// sessions, and those of former daemons that had no folders for them.
func (o Outputs) List(prefix string) (files []KeptFile, err error) {
	switch err := regular.IsFolder(o.Dir); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	}
	entries, err := os.ReadDir(o.Dir)
	if err != nil {
		return nil, err
	}
	files = kept(prefix, "", entries)
	for _, e := range entries {
		if e.IsDir() {
			in, err := os.ReadDir(filepath.Join(o.Dir, e.Name()))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			files = append(files, kept(prefix, e.Name(), in)...)
		}
	}
	slices.SortFunc(files, func(a, b KeptFile) int { return a.ModTime().Compare(b.ModTime()) })
	return files, nil
}

// kept are those entries that are named as the daemon names them.
func kept(prefix, folder string, entries []fs.DirEntry) (files []KeptFile) {
	for _, e := range entries {
		ours := slices.ContainsFunc([]string{KeptResult, KeptJob, KeptAsset, keptBefore}, func(p string) bool {
			return strings.HasPrefix(e.Name(), p) && (prefix == "" || p == prefix || p == keptBefore && prefix == KeptResult)
		})
		if info, err := e.Info(); err == nil && ours && info.Mode().IsRegular() {
			files = append(files, KeptFile{filepath.Join(folder, e.Name()), info})
		}
	}
	return files
}

// Trim removes the oldest files whose names begin so until there are at most so many,
// of so many bytes together. What busy says is being written stays.
func (o Outputs) Trim(prefix string, most int, size int64, busy func(path string) bool) {
	files, err := o.List(prefix)
	if err != nil {
		return // whatever is written next says why
	}
	var all int64
	for _, f := range files {
		all += f.Size()
	}
	n := len(files)
	for _, f := range files {
		if n <= most && all <= size {
			return
		}
		if busy != nil && busy(filepath.Join(o.Dir, f.Name)) {
			continue
		}
		if o.Remove(f.Name) == nil {
			n, all = n-1, all-f.Size()
		}
	}
}

// Remove removes a file, and with the last one of a session its folder.
func (o Outputs) Remove(name string) error {
	root, err := o.root()
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if err := root.Remove(name); err != nil {
		return err
	}
	if dir := filepath.Dir(name); dir != "." {
		_ = root.Remove(dir) // it has others
	}
	return nil
}

// End removes what was kept for a session.
func (o Outputs) End(session string) error {
	root, err := o.root()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	return root.RemoveAll(ofSession(session))
}

// root is open for a folder that must be there.
func (o Outputs) root() (*os.Root, error) {
	if err := regular.IsFolder(o.Dir); err != nil {
		return nil, err
	}
	return os.OpenRoot(o.Dir)
}
