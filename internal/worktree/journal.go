package worktree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"noused/internal/regular"
)

// journal is a landing that has begun: it lies where no session can write. The branch Into
// is changed first; from then on it is finished, and before that taken back.
type journal struct {
	Common   string `json:"common"`
	Dir      string `json:"dir"` // the worktree
	GitDir   string `json:"git_dir"`
	Branch   string `json:"branch"`
	Commit   string `json:"commit"` // that Branch comes to
	Index    bool   `json:"index"`  // the worktree gets another index
	Into     string `json:"into"`
	Old      string `json:"old"`
	New      string `json:"new"`
	Checkout string `json:"checkout,omitzero"`
	CheckGit string `json:"checkout_git_dir,omitzero"`
	Token    string `json:"token"` // what the locks have that are ours
	Files    []file `json:"files,omitzero"`
}

// file is one that the checkout gets, or loses, and how it was.
type file struct {
	Path   []byte `json:"path"` // any bytes
	Delete bool   `json:"delete,omitzero"`
	Was    string `json:"was,omitzero"` // "" there was none
}

// begin writes it down, and keeps other gits from the checkouts.
func (j journal) begin(state string) error {
	text, err := json.Marshal(j)
	if err != nil {
		return err
	}
	if len(text) > maxJournal {
		return fmt.Errorf("the landing changes too many files: its list would be longer than %d bytes", maxJournal)
	}
	if err := regular.Replace(filepath.Join(state, "landing.json"), text, 0o600); err != nil {
		return err
	}
	for _, gitDir := range j.locked() {
		if err := j.lock(gitDir); err != nil {
			return errors.Join(err, j.takeBack(state))
		}
	}
	return nil
}

// locked are the git folders whose index is changed.
func (j journal) locked() (gitDirs []string) {
	if j.Index {
		gitDirs = append(gitDirs, j.GitDir)
	}
	if j.Checkout != "" {
		gitDirs = append(gitDirs, j.CheckGit)
	}
	return gitDirs
}

// lock makes git's lock of an index, with our token in it from the first moment on.
func (j journal) lock(gitDir string) error {
	own, err := os.CreateTemp(gitDir, "nous-lock-")
	if err != nil {
		return err
	}
	defer os.Remove(own.Name())
	_, err = own.WriteString(j.Token)
	if err = errors.Join(err, own.Close()); err != nil {
		return err
	}
	path := filepath.Join(gitDir, "index.lock")
	if err = os.Link(own.Name(), path); errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there: another git works there, or one was killed; remove the file if none does", path)
	}
	return err
}

// unlock removes our lock, and no other.
func (j journal) unlock(gitDir string) error {
	path := filepath.Join(gitDir, "index.lock")
	text, err := regular.ReadOwn(path, maxRecordFile)
	if err != nil || string(text) != j.Token {
		return nil
	}
	return os.Remove(path)
}

// takeBack ends a landing that has changed nothing.
func (j journal) takeBack(state string) error {
	var failed error
	for _, gitDir := range j.locked() {
		failed = errors.Join(failed, j.unlock(gitDir))
	}
	return errors.Join(failed, os.Remove(filepath.Join(state, "landing.json")))
}

// finish does all that comes after the branches have moved. Each step may have been done.
func (j journal) finish(ctx context.Context, home, state string) error {
	if j.Index {
		if err := j.install(filepath.Join(state, "index-tree"), j.GitDir); err != nil {
			return err
		}
	}
	if j.Checkout != "" {
		if err := j.place(state); err != nil {
			return err
		}
		index := filepath.Join(state, "index-target")
		if _, err := os.Lstat(index); err == nil {
			p := checkoutPlace(j.Checkout, j.CheckGit)
			p.env = []string{"GIT_INDEX_FILE=" + index}
			if p, err = p.inert(ctx, j.Common, filepath.Join(state, "git-target")); err != nil {
				return err
			}
			if _, err := p.git(ctx, "update-index", "-q", "--refresh"); err != nil && !refused(err) {
				return err
			}
		}
		if err := j.install(index, j.CheckGit); err != nil {
			return err
		}
	}
	if j.Into == j.Branch { // it is committed, and not landed
		return j.takeBack(state)
	}
	known, err := readRecord(home, j.Dir)
	if err != nil {
		return err
	}
	known.Dir, known.Landed = j.Dir, &landed{Commit: j.Commit, As: j.New, Into: j.Into}
	if err := known.save(home); err != nil {
		return err
	}
	return j.takeBack(state)
}

// install puts an index in the place of another, and removes our lock.
func (j journal) install(index, gitDir string) error {
	from, err := regular.Open(index, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) { // it was done
		return j.unlock(gitDir)
	}
	if err != nil {
		return err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	beside := filepath.Join(gitDir, "nous-index")
	if err := copyFile(from, beside, info); err != nil {
		return err
	}
	if err := os.Rename(beside, filepath.Join(gitDir, "index")); err != nil {
		return err
	}
	return errors.Join(os.Remove(index), j.unlock(gitDir))
}

// place puts the files into the checkout: first those go that are deleted. A file that is
// neither as it was nor as it becomes is somebody's, and ends it with an error. It goes through
// no link: a session may put one in the place of a folder at any moment.
func (j journal) place(state string) error {
	top, err := openFolder(j.Checkout)
	if err != nil {
		return err
	}
	defer top.close()
	for _, f := range slices.Backward(j.Files) {
		if f.Delete {
			if err := j.delete(top, f); err != nil {
				return err
			}
		}
	}
	for _, f := range j.Files {
		if f.Delete {
			continue
		}
		staged := filepath.Join(state, "files", string(f.Path))
		info, err := os.Lstat(staged)
		if errors.Is(err, fs.ErrNotExist) { // it was done, or a sparse checkout leaves it out
			continue
		}
		if err == nil {
			err = j.put(top, f, staged, info)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// parent is the folder that a file is in, "" the top.
func parent(name string) string { return name[:max(0, strings.LastIndexByte(name, '/'))] }

func (j journal) delete(top dirFD, f file) error {
	name := string(f.Path)
	dir, err := top.folder(parent(name), false)
	if missing(err) { // it was done, or somebody has something else there
		return nil
	}
	if err != nil {
		return &fs.PathError{Op: "open", Path: filepath.Join(j.Checkout, parent(name)), Err: err}
	}
	defer dir.close()
	switch now := dir.signature(path.Base(name)); now {
	case "":
		return nil
	case f.Was:
	default:
		return j.changed(name)
	}
	if err := dir.remove(path.Base(name)); err != nil {
		return fmt.Errorf("remove %s: %w", filepath.Join(j.Checkout, name), err)
	}
	top.removeEmpty(parent(name))
	return nil
}

// put gives the checkout a file that is staged.
func (j journal) put(top dirFD, f file, staged string, info os.FileInfo) error {
	name := string(f.Path)
	dir, err := top.folder(parent(name), true)
	if missing(err) {
		return j.changed(parent(name))
	}
	if err != nil {
		return &fs.PathError{Op: "open", Path: filepath.Join(j.Checkout, parent(name)), Err: err}
	}
	defer dir.close()
	if now := dir.signature(path.Base(name)); now != f.Was && now != "" {
		if !dir.has(path.Base(name), staged) {
			return j.changed(name)
		}
		return nil
	}
	if err := dir.take(staged, path.Base(name), info); err != nil {
		return fmt.Errorf("put %s: %w", filepath.Join(j.Checkout, name), err)
	}
	return nil
}

func (j journal) changed(path string) error {
	return fmt.Errorf("%s is landed on %s, but %q was changed in %s meanwhile, and so not all files there are "+
		"as committed: move it away, and call nous land again", j.Branch, j.Into, path, j.Checkout)
}

// signature is how a file is, as far as can be told without reading it; "" if it is not there.
func signature(path string) string { return dirFD(unix.AT_FDCWD).signature(path) }

func sameText(f, g io.Reader) bool {
	one, two := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, err := f.Read(one)
		if n == 0 {
			return err != nil
		}
		if _, err := io.ReadFull(g, two[:n]); err != nil || !bytes.Equal(one[:n], two[:n]) {
			return false
		}
	}
}

// resume finishes what landings have begun, or takes it back. It is for who has the lock.
func resume(ctx context.Context, home string) error {
	paths, err := filepath.Glob(filepath.Join(stateHome(home), "*", "landing.json"))
	if err != nil {
		return err
	}
	for _, path := range paths {
		text, err := regular.ReadOwn(path, maxJournal)
		var j journal
		if err == nil {
			err = json.Unmarshal(text, &j)
		}
		if err == nil {
			err = j.resume(ctx, home, filepath.Dir(path))
		}
		if err != nil {
			return fmt.Errorf("an interrupted landing (%s): %w", path, err)
		}
	}
	return nil
}

func (j journal) resume(ctx context.Context, home, state string) error {
	if _, err := os.Lstat(j.Common); errors.Is(err, fs.ErrNotExist) { // the repository is gone
		return os.RemoveAll(state)
	}
	at := of(Directly, j.Common)
	at.env = noFetch
	now, err := at.commit(ctx, j.Into)
	if err != nil && !refused(err) {
		return err
	}
	switch {
	case now == j.New:
		if _, err := os.Lstat(j.GitDir); errors.Is(err, fs.ErrNotExist) {
			j.Index = false
		}
		err = j.finish(ctx, home, state)
	case now == j.Old:
		own, commitErr := at.commit(ctx, j.Branch)
		if j.Index && commitErr == nil && own == j.Commit { // that much is done
			err = j.install(filepath.Join(state, "index-tree"), j.GitDir)
		}
		err = errors.Join(err, j.takeBack(state))
	default:
		err = errors.Join(j.takeBack(state), fmt.Errorf("%s was to come to %s, and is somewhere else now; see what "+
			"git status says in %s, then call nous land again", j.Into, j.New, j.Checkout))
	}
	if _, there := os.Lstat(filepath.Join(state, "landing.json")); errors.Is(there, fs.ErrNotExist) {
		clearState(state)
	}
	return err
}
