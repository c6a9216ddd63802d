package changes

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// again looks at the folders that were there before. False: there may be others by now, or others
// may be ignored.
func (s *scanner) again(ctx context.Context) (bool, error) {
	if s.was == nil || s.was.Index != s.now.Index || s.was.Exclude != s.now.Exclude {
		return false, nil
	}
	s.now.Rules = s.was.Rules
	s.now.Folders = make([]folder, len(s.was.Folders))
	unknown := make([][]string, len(s.was.Folders))
	err := s.eachFolder(ctx, func(i int) (err error) {
		was := &s.was.Folders[i]
		names := make([]string, len(was.Files))
		for i := range was.Files {
			names[i] = was.Files[i].Name
		}
		f, err := s.look(ctx, was.Path, names, was, nil)
		switch {
		case err != nil:
		case f.Mode != was.Mode || f.Ignore != was.Ignore || f.Ignore == unsure:
			err = errMoved
		case f.Stamp == was.Stamp && !was.Racy:
			f.Ignored = was.Ignored
		default:
			s.changed.Store(true)
			f.Ignored, unknown[i], err = s.others(was)
		}
		s.now.Folders[i] = f
		return err
	})
	if err == nil {
		err = s.add(ctx, unknown)
	}
	if errors.Is(err, errMoved) {
		return false, nil
	}
	return true, err
}

// others are the names in a folder that were not recorded: those that are ignored, and the paths of
// files of which that is not known. Where there is another folder, that is errMoved.
func (s *scanner) others(was *folder) (ignored, unknown []string, err error) {
	err = s.entries(was.Path, func(e fs.DirEntry) error {
		name, rel := e.Name(), path.Join(was.Path, e.Name())
		before := was.at(len(was.Files), name)
		switch {
		case name == ".git" && was.Path != "": // it is a repository by now
			return errMoved
		case name == ".git", s.place.skips(rel), before != nil && (!e.IsDir() || before.State.IsFolder()):
		case e.IsDir() && was.ignores(name+"/"):
			ignored = append(ignored, name+"/")
		case e.IsDir():
			if s.was.folder(rel) == nil {
				return errMoved
			}
		case was.ignores(name):
			ignored = append(ignored, name)
		case e.Type().IsRegular(), e.Type() == fs.ModeSymlink:
			unknown = append(unknown, rel)
		}
		return nil
	})
	slices.Sort(ignored)
	slices.Sort(unknown) // which of them are too many does not hang on the file system
	return ignored, unknown, err
}

// ignores reports that a name was found to be ignored.
func (f *folder) ignores(name string) bool {
	if f == nil {
		return false
	}
	_, found := slices.BinarySearch(f.Ignored, name)
	return found
}

// maxAsked is for how many files git is asked whether they are ignored. For more it lists all.
const maxAsked = 10_000

// add records the files that are new in each folder, unless they are ignored.
func (s *scanner) add(ctx context.Context, files [][]string) error {
	all := slices.Concat(files...)
	if len(all) > maxAsked {
		return errMoved
	}
	ignored, err := s.repo.ignored(ctx, s.place, all)
	if err != nil {
		return err
	}
	return s.eachFolder(ctx, func(i int) error {
		if len(files[i]) == 0 {
			return nil
		}
		f := &s.now.Folders[i]
		fd, err := s.tree.open(f.Path, unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			return errMoved
		}
		defer unix.Close(fd)
		for _, rel := range files[i] {
			name := path.Base(rel)
			if ignored[rel] {
				f.Ignored = append(f.Ignored, name)
				continue
			}
			is, err := s.lookAt(ctx, fd, f.Path, name, nil, listed{})
			if err != nil {
				return err
			}
			if is.State.There() {
				f.Files = append(f.Files, is)
			}
		}
		slices.Sort(f.Ignored)
		slices.SortFunc(f.Files, func(a, b file) int { return strings.Compare(a.Name, b.Name) })
		return nil
	})
}

var errMoved = errors.New("a folder has changed")
