package builtin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"noused/internal/proc"
)

const (
	// maxEntries is how many entries of one folder are looked at.
	maxEntries = 100_000
	// nearNames is how many similar names an error offers.
	nearNames = 3
)

// call is what an operation knows of its call.
type call struct {
	ctx     context.Context
	timeout time.Duration // of the call's context; 0: none
	dir     string
	environ []string
	log     func(message string)
	listen  func()   // ends the call if the client is gone
	images  []string // to be shown with the result
	judged  string   // where its path led when the rules were asked; "": they were not

	keepIn string         // the file that keep fills; "": none
	keep   func(b []byte) // may be called from another goroutine

	commands func() *proc.Supervisor // starts them
}

// addEnv puts the context's variables over the inherited ones.
func (c *call) addEnv(env map[string]string) {
	c.environ = slices.Clip(c.environ)
	for name, value := range env {
		c.environ = append(c.environ, name+"="+value)
	}
}

func (c *call) getenv(name string) string {
	for _, kv := range slices.Backward(c.environ) {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value
		}
	}
	return ""
}

// stopped is why the call has to end, or nil.
func (c *call) stopped() error { return context.Cause(c.ctx) }

// resolve makes a path absolute: from the working directory, or from HOME
// where it begins with ~.
func (c *call) resolve(path string) string {
	if home := c.getenv("HOME"); home != "" && (path == "~" || strings.HasPrefix(path, "~/")) {
		path = filepath.Join(home, path[1:])
	}
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(c.dir, path)
}

// real is what a path leads to: what the rules were asked about, or what exists now. It
// has no link on its way, and nothing else is opened for the call's path.
func (c *call) real(path string) string {
	if c.judged != "" {
		return c.judged
	}
	return proc.Resolve(c.resolve(path))
}

// errSwapped: a link has come to where a path leads since that was looked up.
var errSwapped = errors.New("a part of its path has become a link since the call was judged; nothing was done")

// swapped is errSwapped, or that the links go in a circle.
func swapped(abs string) error {
	if _, err := os.Stat(abs); errors.Is(err, unix.ELOOP) {
		return err
	}
	return &fs.PathError{Op: "open", Path: abs, Err: errSwapped}
}

// openReal opens what is at a path of which no part is a link; what has become one since
// is not followed. It does not wait, whatever it is.
func openReal(abs string, flag int) (*os.File, error) {
	f, err := os.OpenFile(abs, flag|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		if info, e := os.Lstat(abs); e == nil && info.Mode()&fs.ModeSymlink != 0 {
			err = swapped(abs)
		}
		return nil, err
	}
	at, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	// O_PATH opens links
	if info, e := f.Stat(); err == nil && (at != abs || e == nil && info.Mode()&fs.ModeSymlink != 0) {
		err = swapped(abs)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// statReal is openReal for what is only looked at.
func statReal(abs string) (fs.FileInfo, error) {
	f, err := openReal(abs, unix.O_PATH)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Stat()
}

// concealed is why a path may not be looked at: it is one of the daemon's own. The
// sandbox sees to that for every program; this says it in words.
func (c *call) concealed(path, abs string) error {
	if c.hidden().Covers(abs) {
		return fmt.Errorf("%s is hidden from tools in the sandbox: it may hold keys, or is the daemon's own", path)
	}
	return nil
}

// commandEnv is the environment of a command: what is hidden is told to these tools
// alone, it fills pages wherever a command prints its environment.
func (c *call) commandEnv() []string {
	return slices.DeleteFunc(slices.Clone(c.environ), func(kv string) bool {
		return strings.HasPrefix(kv, proc.HiddenVariable+"=")
	})
}

func (c *call) hidden() proc.Hidden { return proc.ParseHidden(c.getenv(proc.HiddenVariable)) }

// open opens a regular file to read. Other kinds are refused unopened, as one
// could wait for ever to be read.
func (c *call) open(path string) (*os.File, fs.FileInfo, error) {
	abs := c.real(path)
	if err := c.concealed(path, abs); err != nil {
		return nil, nil, err
	}
	info, err := statReal(abs)
	if err != nil {
		return nil, nil, c.missing(path, err)
	}
	if err := regular(path, info); err != nil {
		return nil, nil, err
	}
	f, err := openReal(abs, os.O_RDONLY)
	if err != nil {
		return nil, nil, because(path, err)
	}
	return f, info, nil
}

func regular(path string, info fs.FileInfo) error {
	switch {
	case info.IsDir():
		return fmt.Errorf("%s is a folder; use ls to see what is in it", path)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file but a %s", path, special(info.Mode()))
	}
	return nil
}

func special(m fs.FileMode) string {
	switch {
	case m&fs.ModeNamedPipe != 0:
		return "named pipe"
	case m&fs.ModeSocket != 0:
		return "socket"
	}
	return "device"
}

// because says why something could not be done to a path, in the caller's own
// spelling of it.
func because(path string, err error) error {
	var p *fs.PathError
	var l *os.LinkError
	switch {
	case errors.As(err, &p):
		err = p.Err
	case errors.As(err, &l):
		err = l.Err
	}
	return fmt.Errorf("%s: %w", path, err)
}

// missing is because, with similar names where there is nothing of this one.
func (c *call) missing(path string, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return because(path, err)
	}
	abs := c.real(path)
	parent := filepath.Dir(abs)
	info, statErr := os.Stat(parent)
	if statErr != nil || !info.IsDir() {
		return fmt.Errorf("%s does not exist, nor does its folder", path)
	}
	near := similar(filepath.Base(abs), parent)
	if len(near) == 0 {
		return fmt.Errorf("%s does not exist", path)
	}
	for i, name := range near {
		near[i] = show(filepath.Join(filepath.Dir(path), name))
	}
	return fmt.Errorf("%s does not exist; did you mean %s?", path, strings.Join(near, " or "))
}

// similar returns the names in a folder that differ from name in case or in a
// letter or two, the most similar first.
func similar(name, dir string) []string {
	entries, _, err := readDir(dir)
	if err != nil {
		return nil
	}
	type candidate struct {
		name string
		far  int
	}
	want := []rune(strings.ToLower(name))
	reach := min(2, len(want)/3)
	var found []candidate
	for _, e := range entries {
		got := []rune(strings.ToLower(e.Name()))
		if far := distance(want, got, reach); far <= reach {
			found = append(found, candidate{e.Name(), far})
		}
	}
	slices.SortStableFunc(found, func(a, b candidate) int { return a.far - b.far })
	var names []string
	for _, f := range found[:min(len(found), nearNames)] {
		names = append(names, f.name)
	}
	return names
}

// distance is how many letters must be put in, left out or changed to get from
// a to b. What is certain to be over reach may come back as anything over it.
func distance(a, b []rune, reach int) int {
	if d := len(a) - len(b); d > reach || -d > reach {
		return reach + 1
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i, x := range a {
		diagonal, least := row[0], i+1
		row[0] = i + 1
		for j, y := range b {
			cost := 1
			if x == y {
				cost = 0
			}
			next := min(row[j+1]+1, row[j]+1, diagonal+cost)
			diagonal, row[j+1] = row[j+1], next
			least = min(least, next)
		}
		if least > reach {
			return reach + 1
		}
	}
	return row[len(b)]
}

// readDir returns a folder's entries sorted by name, and whether there are
// more than it looks at.
func readDir(abs string) (entries []fs.DirEntry, more bool, err error) {
	f, err := openReal(abs, os.O_RDONLY)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	entries, err = f.ReadDir(maxEntries)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false, err
	}
	if len(entries) == maxEntries {
		next, _ := f.ReadDir(1)
		more = len(next) > 0
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, more, nil
}

// show is a name as a line of a result has it: quoted where it would break it.
func show(name string) string {
	if strings.ContainsFunc(name, unicode.IsControl) {
		return strconv.Quote(name)
	}
	return name
}
