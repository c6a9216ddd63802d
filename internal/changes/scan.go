package changes

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// file is what a manifest knows of one.
type file struct {
	Name  string
	State State
	Stamp stamp
	Racy  bool // it may have been changed since without that its stamp shows it
}

// folder is what a manifest knows of one that is not ignored.
type folder struct {
	Path   string // "" is the top
	Mode   uint32
	Stamp  stamp
	Ignore stamp  // of its .gitignore; unsure where that may be another by now
	Racy   bool   // there may be other names in it by now without that its stamp shows it
	Files  []file // by name

	// Ignored are names that were found to be ignored, sorted, a folder's with a slash behind it. What
	// is neither here nor in Files has to be asked about.
	Ignored []string
}

// manifest is a folder as it was recorded.
type manifest struct {
	Top, GitDir    string
	Index, Exclude stamp // of the user's files
	Rules          OID   // what info/exclude said
	Folders        []folder

	// What is kept of the session so far.
	Bytes, Count int64

	took time.Duration
	same bool // as the one before it
}

// state is what the manifest has at a path.
func (m *manifest) state(rel string) State {
	dir, name := path.Split(rel)
	if f := m.folder(rel); f != nil {
		return State{Mode: f.Mode}
	}
	if f := m.folder(strings.TrimSuffix(dir, "/")); f != nil {
		if i, ok := slices.BinarySearchFunc(f.Files, name, func(f file, name string) int {
			return strings.Compare(f.Name, name)
		}); ok {
			return f.Files[i].State
		}
	}
	return State{}
}

// nested reports that a path is in a repository inside the folder, which was not entered.
func (m *manifest) nested(rel string) bool {
	for rel = path.Dir(rel); rel != "."; rel = path.Dir(rel) {
		if s := m.state(rel); s.IsFolder() && s.Left != "" {
			return true
		}
	}
	return false
}

func (m *manifest) folder(rel string) *folder {
	i, ok := slices.BinarySearchFunc(m.Folders, rel, func(f folder, rel string) int {
		return strings.Compare(f.Path, rel)
	})
	if !ok {
		return nil
	}
	return &m.Folders[i]
}

// each calls with every path but the top's.
func (m *manifest) each(call func(rel string, s State)) {
	for i := range m.Folders {
		f := &m.Folders[i]
		if f.Path != "" {
			call(f.Path, State{Mode: f.Mode})
		}
		for j := range f.Files {
			call(path.Join(f.Path, f.Files[j].Name), f.Files[j].State)
		}
	}
}

// Limits bound what is kept. Zero ones keep nothing.
type Limits struct {
	File  int64 // bytes of a file
	Bytes int64 // of a session
	Files int64 // that are kept of a session
	// Memory is how many bytes of it a call may take, and all of them together half as many more.
	Memory int64
}

// scanner makes a manifest of a folder.
type scanner struct {
	repo   *repo
	place  place
	limits Limits
	tree   *workTree
	was    *manifest // nil: there is none
	now    *manifest
	at     time.Time
	bytes  atomic.Int64
	count  atomic.Int64

	changed atomic.Bool // now is not as was
}

// scan records a folder as it is, with what was known of it before. It blocks for the disk
// and for git, until ctx ends.
func scan(ctx context.Context, r *repo, p place, limits Limits, was *manifest) (*manifest, error) {
	began := time.Now()
	tree, err := openTree(p.top)
	if err != nil {
		return nil, err
	}
	defer tree.close()
	s := &scanner{repo: r, place: p, limits: limits, tree: tree, was: was, at: began}
	if was != nil && (was.Top != p.top || was.GitDir != p.gitDir) {
		s.was = nil
	}
	s.now = &manifest{Top: p.top, GitDir: p.gitDir}
	if p.gitDir != "" {
		s.now.Index, s.now.Exclude = stampOf(p.gitDir+"/index"), stampOf(p.exclude)
	}
	if was != nil {
		s.bytes.Store(was.Bytes)
		s.count.Store(was.Count)
	}
	again, err := s.again(ctx)
	if err == nil && !again {
		s.now.Folders, s.changed = nil, atomic.Bool{}
		s.changed.Store(true)
		err = s.anew(ctx)
	}
	s.now.Bytes, s.now.Count, s.now.took = s.bytes.Load(), s.count.Load(), time.Since(began)
	s.now.same = again && !s.changed.Load()
	return s.now, err
}

// ignoreStamp is that of a folder's .gitignore.
func (s *scanner) ignoreStamp(fd int) stamp {
	r, _ := statAt(fd, ".gitignore")
	if r.stamp != (stamp{}) && !r.settled(s.at) {
		return unsure
	}
	return r.stamp
}

// unsure is the stamp of a file that may be changed without that its own shows it.
var unsure = stamp{Ino: -1}

// parallel calls with each number below n, on all processors.
func (s *scanner) parallel(n int, call func(i int)) {
	var next atomic.Int64
	var workers sync.WaitGroup
	const batch = 16
	for range min(runtime.GOMAXPROCS(0), n/batch+1) {
		workers.Go(func() {
			for {
				from := int(next.Add(batch)) - batch
				if from >= n {
					return
				}
				for i := from; i < min(from+batch, n); i++ {
					call(i)
				}
			}
		})
	}
	workers.Wait()
}

func (s *scanner) eachFolder(ctx context.Context, look func(i int) error) error {
	var failed atomic.Pointer[error]
	s.parallel(len(s.now.Folders), func(i int) {
		if failed.Load() != nil {
			return
		}
		err := look(i)
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			failed.CompareAndSwap(nil, &err)
		}
	})
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// anew asks git which files there are.
func (s *scanner) anew(ctx context.Context) error {
	rules, err := s.repo.exclude(s.place)
	if err != nil {
		return err
	}
	if s.now.Rules, err = s.repo.put("blob", rules); err != nil {
		return err
	}
	files, err := s.repo.list(ctx, s.place)
	if err != nil {
		return err
	}
	dirs := map[string][]string{"": nil}
	for name := range files {
		dir, base := path.Split(name)
		dir = strings.TrimSuffix(dir, "/")
		dirs[dir] = append(dirs[dir], base)
		for dir != "" {
			dir = strings.TrimSuffix(parent(dir), "/")
			if _, ok := dirs[dir]; ok {
				break
			}
			dirs[dir] = nil
		}
	}
	ignored, err := s.bare(ctx, dirs, files)
	if err != nil {
		return err
	}
	trusted, err := s.trust(ctx, files)
	if err != nil {
		return err
	}
	for dir, names := range dirs {
		slices.Sort(names)
		s.now.Folders = append(s.now.Folders, folder{Path: dir})
	}
	slices.SortFunc(s.now.Folders, func(a, b folder) int { return strings.Compare(a.Path, b.Path) })
	if err = s.eachFolder(ctx, func(i int) error {
		rel := s.now.Folders[i].Path
		f, err := s.look(ctx, rel, dirs[rel], s.wasAt(rel), func(rel string) listed {
			l := files[rel]
			l.trusted = trusted[rel]
			return l
		})
		f.Ignored = slices.Sorted(slices.Values(ignored[rel]))
		s.now.Folders[i] = f
		return err
	}); err != nil {
		return err
	}
	s.now.Folders = slices.DeleteFunc(s.now.Folders, func(f folder) bool { return f.Mode == 0 }) // gone meanwhile
	return nil
}

func parent(rel string) string {
	dir, _ := path.Split(rel)
	return dir
}

// bare adds the folders to dirs that have no file which git names, and are not ignored. It returns
// the names of those that are, by the folder that they are in.
func (s *scanner) bare(ctx context.Context, dirs map[string][]string, files map[string]listed) (
	ignored map[string][]string, err error,
) {
	ignored = map[string][]string{}
	known := s.was != nil && s.was.Exclude == s.now.Exclude && s.sameRules()
	seen := known && s.was.Index == s.now.Index // else a folder may have had nothing but tracked files
	level := make([]string, 0, len(dirs))
	for dir := range dirs {
		level = append(level, dir)
	}
	for len(level) > 0 {
		var ask, next []string
		for _, dir := range level {
			names, err := s.subfolders(dir)
			if err != nil {
				return nil, err
			}
			for _, name := range names {
				rel := path.Join(dir, name)
				_, has := dirs[rel]
				switch {
				case has, name == ".git", files[rel].folder, s.place.skips(rel):
				case known && s.was.folder(dir).ignores(name+"/"):
					ignored[dir] = append(ignored[dir], name+"/")
				case seen && s.was.folder(rel) != nil:
					dirs[rel] = nil
					next = append(next, rel)
				default:
					ask = append(ask, rel)
				}
			}
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
		}
		found, err := s.repo.ignored(ctx, s.place, ask)
		if err != nil {
			return nil, err
		}
		for _, rel := range ask {
			if found[rel] {
				dir := strings.TrimSuffix(parent(rel), "/")
				ignored[dir] = append(ignored[dir], path.Base(rel)+"/")
				continue
			}
			dirs[rel] = nil
			next = append(next, rel)
		}
		level = next
		if len(dirs) > maxListed {
			return nil, errTooMany
		}
	}
	return ignored, nil
}

// sameRules reports that no .gitignore has changed that was there.
func (s *scanner) sameRules() bool {
	for i := range s.was.Folders {
		f := &s.was.Folders[i]
		fd, err := s.tree.open(f.Path, unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			if f.Ignore != (stamp{}) {
				return false
			}
			continue
		}
		is := s.ignoreStamp(fd)
		unix.Close(fd)
		if is != f.Ignore || is == unsure {
			return false
		}
	}
	return true
}

// subfolders are the folders in one, by name.
func (s *scanner) subfolders(dir string) (names []string, err error) {
	err = s.entries(dir, func(e fs.DirEntry) error {
		if e.IsDir() {
			names = append(names, e.Name())
		}
		return nil
	})
	return names, err
}

// entries calls with what is in a folder, until that fails.
func (s *scanner) entries(dir string, each func(e fs.DirEntry) error) error {
	f, err := s.tree.folder(dir)
	if err != nil {
		if dir == "" {
			return err
		}
		return nil // gone, or not to be read
	}
	defer f.Close()
	for {
		entries, err := f.ReadDir(1024)
		for _, e := range entries {
			if err := each(e); err != nil {
				return err
			}
		}
		if err != nil {
			return nil //nolint:nilerr // of a folder that cannot be read there is no more
		}
	}
}

// trust finds the files that need not be read, as they are as the index has them, and the
// user's repository has that.
func (s *scanner) trust(ctx context.Context, files map[string]listed) (map[string]bool, error) {
	trusted := map[string]bool{}
	names := map[OID]struct{}{}
	attributes := false
	var asked []string
	for rel, l := range files {
		if path.Base(rel) == ".gitattributes" {
			attributes = true
		}
		if !l.tracked || l.folder || l.oid.IsZero() {
			continue
		}
		if s.was != nil && s.was.state(rel).There() { // by far the most
			continue
		}
		names[l.oid] = struct{}{}
		asked = append(asked, rel)
	}
	if len(asked) == 0 || !lendable(s.place.objects) {
		return trusted, nil
	}
	if err := s.repo.memory.take(ctx, askedSize*len(asked)); err != nil {
		return nil, err
	}
	sizes, err := s.repo.sizes(ctx, names)
	if err != nil {
		return nil, err
	}
	converted := map[string]bool{}
	if attributes || stampOf(path.Join(path.Dir(s.place.exclude), "attributes")) != (stamp{}) {
		if converted, err = s.repo.converted(ctx, s.place, asked); err != nil {
			return nil, err
		}
	}
	for _, rel := range asked {
		l := files[rel]
		if size, ok := sizes[l.oid]; ok && size == l.stamp.Size && size <= s.limits.File && !converted[rel] {
			trusted[rel] = true
		}
	}
	return trusted, nil
}

// look records a folder and its files of these names.
func (s *scanner) look(ctx context.Context, rel string, names []string, was *folder,
	of func(rel string) listed,
) (f folder, err error) {
	f.Path = rel
	fd, err := s.tree.open(rel, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil { // gone meanwhile
		return f, nil //nolint:nilerr // as it says
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return f, err
	}
	r := rawOf(&st)
	f.Mode, f.Stamp, f.Ignore = r.mode, r.stamp, s.ignoreStamp(fd)
	f.Racy = !r.settled(s.at)
	f.Files = make([]file, 0, len(names))
	for i, name := range names {
		before := was.at(i, name)
		var l listed
		if of != nil {
			l = of(path.Join(rel, name))
		}
		is, err := s.lookAt(ctx, fd, rel, name, before, l)
		if err != nil {
			return f, err
		}
		if of == nil && before.State != is.State && (is.State.Left == noRepository || is.State.Left == noHead) {
			return f, errMoved // git may enter it now
		}
		if before == nil || *before != is {
			s.changed.Store(true)
		}
		if is.State.There() {
			f.Files = append(f.Files, is)
		}
		if ctx.Err() != nil {
			return f, context.Cause(ctx)
		}
	}
	return f, nil
}

// wasAt is a folder as it was recorded before, nil where it was not.
func (s *scanner) wasAt(rel string) *folder {
	if s.was == nil {
		return nil
	}
	return s.was.folder(rel)
}

// at is a file by its name, which may be the one with that number.
func (f *folder) at(i int, name string) *file {
	switch {
	case f == nil:
		return nil
	case i < len(f.Files) && f.Files[i].Name == name:
		return &f.Files[i]
	}
	i, found := slices.BinarySearchFunc(f.Files, name, func(f file, name string) int {
		return strings.Compare(f.Name, name)
	})
	if !found {
		return nil
	}
	return &f.Files[i]
}

// lookAt records one file, whose former state may be known.
func (s *scanner) lookAt(ctx context.Context, fd int, dir, name string, before *file, l listed) (file, error) {
	r, err := statAt(fd, name)
	if err != nil {
		return file{}, nil //nolint:nilerr // it is not there
	}
	is := file{Name: name, State: State{Mode: r.mode}, Stamp: r.stamp}
	switch r.mode & unix.S_IFMT {
	case unix.S_IFREG, unix.S_IFLNK:
	case unix.S_IFDIR: // a repository inside; what else it could be, the next listing finds
		if l.folder || before != nil && before.State.Left != "" {
			is.State.Left = nestedHead(s.place.top, path.Join(dir, name))
			is.Stamp = stamp{}
			return is, nil
		}
		return file{}, nil
	default:
		return file{}, nil
	}
	if before != nil && !before.Racy && before.Stamp == r.stamp && before.State.Mode&unix.S_IFMT == r.mode&unix.S_IFMT {
		is.State.OID, is.State.Left = before.State.OID, before.State.Left
		return is, nil
	}
	if l.trusted && l.fits(r, s.now.Index) {
		is.State.OID = l.oid
		return is, nil
	}
	return s.read(ctx, fd, is)
}

// read keeps a file's content, as far as it may.
func (s *scanner) read(ctx context.Context, fd int, is file) (file, error) {
	leave := func(r raw) (file, error) {
		is.State = State{Mode: r.mode, Left: r.identity()}
		is.Stamp, is.Racy = r.stamp, !r.settled(s.at)
		return is, nil
	}
	if is.Stamp.Size > s.limits.File {
		return leave(raw{is.Stamp, is.State.Mode, 0})
	}
	mem := s.repo.memory.beside()
	defer mem.part.End()
	content, r, err := mem.contentAt(ctx, fd, is.Name, s.limits.File)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return file{}, nil
	case errors.Is(err, errTaken), ctx.Err() != nil:
		return is, err

	case err != nil: // it cannot be read, or does not hold still
		return leave(raw{is.Stamp, is.State.Mode, 0})
	}
	is.State.Mode, is.Stamp, is.Racy = r.mode, r.stamp, !r.settled(s.at)
	o := hashOf(content)
	if !s.repo.has(o) {
		if s.bytes.Load()+int64(len(content)) > s.limits.Bytes || s.count.Load() >= s.limits.Files {
			return leave(r)
		}
		s.bytes.Add(int64(len(content)))
		s.count.Add(1)
		if _, err := s.repo.put("blob", content); err != nil {
			return is, err
		}
	}
	is.State.OID = o
	return is, nil
}

// difference is what has changed from one manifest to the next, by path. take is asked before each.
func difference(before, after *manifest, take func(path string) error) (out []Change, err error) {
	add := func(rel string, was, is State) {
		if was == is || err != nil {
			return
		}
		if err = take(rel); err == nil {
			out = append(out, Change{Path: rel, Before: was, After: is})
		}
	}
	before.each(func(rel string, s State) { add(rel, s, after.state(rel)) })
	after.each(func(rel string, s State) {
		if was := before.state(rel); !was.There() {
			add(rel, was, s)
		}
	})
	slices.SortFunc(out, func(a, b Change) int { return cmp.Compare(a.Path, b.Path) })
	return out, err
}
