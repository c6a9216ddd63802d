package builtin

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// maxListed is how many entries ls and find show.
const maxListed = 1000

// ls lists a folder (tools.md §6): a size and a name on each line.
func ls(c *call, args jsontext.Value) (string, error) {
	var a struct {
		Path string `json:"path"`
	}
	if err := arguments(args, &a); err != nil {
		return "", err
	}
	path := orHere(a.Path)
	abs := c.real(path)
	if err := c.concealed(path, abs); err != nil {
		return "", err
	}
	info, err := statReal(abs)
	if err != nil {
		return "", c.missing(path, err)
	}
	if !info.IsDir() {
		return row(path, abs, info), nil
	}
	entries, more, err := readDir(abs)
	if err != nil {
		return "", because(path, err)
	}
	if len(entries) == 0 {
		return "[the folder is empty]", nil
	}
	var out listing
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			continue // gone meanwhile
		}
		out.add(row(e.Name(), filepath.Join(abs, e.Name()), info))
	}
	if more {
		return out.text(fmt.Sprintf("[only %d entries of the folder were looked at]", maxEntries)), nil
	}
	return out.text(""), nil
}

func orHere(path string) string {
	if path == "" {
		return "."
	}
	return path
}

func row(name, abs string, info fs.FileInfo) string {
	size := "-"
	name = show(name)
	switch m := info.Mode(); {
	case m.IsDir():
		name += "/"
	case m&fs.ModeSymlink != 0:
		link, err := os.Readlink(abs)
		if err != nil {
			link = "?"
		}
		name += " -> " + show(link)
	case m.IsRegular():
		size = fmt.Sprint(info.Size())
	}
	return fmt.Sprintf("%10s  %s", size, name)
}

// listing collects the lines of a result, and counts those there is no room
// for.
type listing struct {
	lines []string
	size  int
	most  int // lines; 0: maxListed
	rest  int
}

func (l *listing) add(line string) {
	most := l.most
	if most == 0 {
		most = maxListed
	}
	if l.rest > 0 || len(l.lines) == most || l.size+len(line)+1 > maxText {
		l.rest++
		return
	}
	l.lines = append(l.lines, line)
	l.size += len(line) + 1
}

// text is all of it, with the number of what is left out, and a note if there
// is one.
func (l *listing) text(note string) string {
	lines := l.lines
	if l.rest > 0 {
		lines = append(lines, fmt.Sprintf("[and %d more]", l.rest))
	}
	if note != "" {
		lines = append(lines, note)
	}
	return strings.Join(lines, "\n")
}
