package builtin

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// find lists the files and folders that a glob fits (tools.md §6), with paths
// that the other tools take.
func find(c *call, args jsontext.Value) (string, error) {
	var a struct {
		Pattern *string `json:"pattern"`
		Path    string  `json:"path"`
	}
	if err := arguments(args, &a); err != nil {
		return "", err
	}
	pattern, err := word("pattern", a.Pattern)
	if err != nil {
		return "", err
	}
	g, err := newGlob("pattern", pattern)
	if err != nil {
		return "", err
	}
	path := orHere(a.Path)
	abs := c.real(path)
	if err := c.concealed(path, abs); err != nil {
		return "", err
	}
	info, err := statReal(abs)
	switch {
	case err != nil:
		return "", c.missing(path, err)
	case !info.IsDir():
		return "", fmt.Errorf("%s is not a folder", path)
	}
	var out listing
	w := walker{c: c, visit: func(rel string, e fs.DirEntry) error {
		if g.fits(rel, e.IsDir()) {
			name := show(filepath.Join(path, rel))
			if e.IsDir() {
				name += "/"
			}
			out.add(name)
		}
		return nil
	}}
	note, err := w.walk(abs)
	if err != nil {
		return "", c.wrap(path, err)
	}
	if len(out.lines) == 0 {
		return strings.TrimSpace("[nothing fits]\n" + note), nil
	}
	return out.text(note), nil
}

// wrap is because, but for the end of the call, which is not the path's fault.
func (c *call) wrap(path string, err error) error {
	if stopped := c.stopped(); stopped != nil {
		return stopped
	}
	return because(path, err)
}
