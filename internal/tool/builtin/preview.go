package builtin

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"noused/internal/format"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sys/unix"
)

// Bounds of what is looked at and shown before a call, in bytes.
const (
	maxPreviewed = 1 << 20
	maxPreview   = 32 << 10
)

// Preview is the diff that a call of edit or write would make in a session's
// folder, "" where nobody can tell: the call is wrong, the file is long, or is not
// in that folder once links are followed. It reads that file and changes nothing.
func Preview(workdir, op string, arguments []byte) string {
	var show func(*call, jsontext.Value) (string, error)
	switch op {
	case "edit":
		show = previewEdit
	case "write":
		show = previewWrite
	default:
		return ""
	}
	c := &call{ctx: context.Background(), dir: workdir, environ: os.Environ()}
	diff, err := show(c, jsontext.Value(arguments))
	if err != nil {
		return ""
	}
	if len(diff) > maxPreview {
		diff = format.Cut(diff, maxPreview) + "\n[and more; the arguments have all of it]"
	}
	return diff
}

func previewEdit(c *call, args jsontext.Value) (string, error) {
	var a struct {
		Path *string `json:"path"`
		replacement
		Edits []replacement `json:"edits"`
		outside
	}
	if err := arguments(args, &a); err != nil {
		return "", err
	}
	list, err := wanted(a.replacement, a.Edits)
	if err != nil {
		return "", err
	}
	content, err := c.peek(a.Path)
	if err != nil {
		return "", err
	}
	_, told, err := changeAll(content, list, whole)
	_, diff, _ := strings.Cut(told, "\n") // the first line counts places
	return diff, err
}

func previewWrite(c *call, args jsontext.Value) (string, error) {
	var a struct {
		Path    *string `json:"path"`
		Content *string `json:"content"`
		outside
	}
	if err := arguments(args, &a); err != nil {
		return "", err
	}
	is, err := text("content", a.Content)
	if err != nil {
		return "", err
	}
	was, err := c.peek(a.Path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	var out strings.Builder
	if was != is {
		hunk{rows(was), rows(is), 1, 1}.show(&out, whole, nil, nil)
	}
	return strings.TrimSuffix(out.String(), "\n"), nil
}

// peek reads a file that is in the folder, whatever links there are. Anyone who looks
// is in no sandbox.
func (c *call) peek(path *string) (string, error) {
	name, err := word("path", path)
	if err != nil {
		return "", err
	}
	rel, err := filepath.Rel(c.dir, c.resolve(name))
	if err != nil {
		return "", err
	}
	root, err := os.OpenRoot(c.dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	f, err := root.OpenFile(rel, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular() || info.Size() > maxPreviewed:
		return "", errors.New("is no file to look at")
	}
	content, err := io.ReadAll(io.LimitReader(f, maxPreviewed+1))
	if err == nil && len(content) > maxPreviewed {
		err = errors.New("is too long to look at")
	}
	return string(content), err
}
