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
	"syscall"
	"time"
	"unicode"

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

// concealed is why a path may not be looked at: it is one of the daemon's own. The
// sandbox sees to that for every program; this says it in words.
func (c *call) concealed(path, abs string) error {
	if c.hidden().Covers(proc.Resolve(abs)) {
		return fmt.Errorf("%s is hidden from tools in the sandbox: it may hold keys, or is the daemon's own", path)
	}
	return nil
}

func (c *call) hidden() proc.Hidden { return proc.ParseHidden(c.getenv(proc.HiddenVariable)) }

// open opens a regular file to read. Other kinds are refused unopened, as one
// could wait for ever to be read.
func (c *call) open(path string) (*os.File, fs.FileInfo, error) {
	abs := c.resolve(path)
	if err := c.concealed(path, abs); err != nil {
		return nil, nil, err
	}
	info, err := os.Stat(abs)
	if err != nil {
		return nil, nil, c.missing(path, err)
	}
	if err := regular(path, info); err != nil {
		return nil, nil, err
	}
	f, err := openQuietly(abs)
	if err != nil {
		return nil, nil, because(path, err)
	}
	return f, info, nil
}

// openQuietly opens a file that was a regular one a moment ago, without
// waiting if it is none any more.
func openQuietly(abs string) (*os.File, error) {
	return os.OpenFile(abs, os.O_RDONLY|syscall.O_NONBLOCK, 0)
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
	abs := c.resolve(path)
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
	f, err := openQuietly(abs)
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
