package mcpfile

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/tailscale/hujson"
	"golang.org/x/sys/unix"

	"noused/internal/regular"
)

// ErrTaken is why a server is not added; ErrUnknown why none is removed.
var (
	ErrTaken   = errors.New("there is a server of that name already")
	ErrUnknown = errors.New("there is no server of that name")
)

// builtIn is the name of the daemon's own tools, which no server of the user's file
// can have.
const builtIn = "files"

// Add puts a server into the user's file, and leaves the rest of it as it is,
// comments and all. The file is made if need be, is replaced as a whole, and can be
// read by nobody else.
func Add(path string, s Server) error {
	if err := s.Check(); err != nil {
		return err
	}
	if s.Name == builtIn {
		return fmt.Errorf("name: %s is the name of the built-in tools: %s-mcp would do", builtIn, builtIn)
	}
	value, err := json.Marshal(s, json.Deterministic(true), jsontext.WithIndentPrefix("    "), jsontext.WithIndent("  "))
	if err != nil {
		return err
	}
	return change(path, func(root *hujson.Object) error {
		if _, there := find(root, s.Name); there >= 0 {
			return ErrTaken
		}
		entry, err := hujson.Parse(value)
		if err != nil {
			return err
		}
		insert(home(root), s.Name, entry)
		return nil
	})
}

// Remove takes a server out of the user's file, with the comments of its lines.
func Remove(path, server string) error {
	return change(path, func(root *hujson.Object) error {
		servers, i := find(root, server)
		if i < 0 {
			return ErrUnknown
		}
		comma := servers.Members[len(servers.Members)-1].Value.AfterExtra
		servers.Members = slices.Delete(servers.Members, i, i+1)
		if n := len(servers.Members); n == i && n > 0 { // the last one is without a comma, as it was
			servers.Members[n-1].Value.AfterExtra = comma
		}
		return nil
	})
}

// lock has all others who change a file of that folder wait, and makes the folder if
// need be.
func lock(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX); err != unix.EINTR {
			break
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return func() { _ = f.Close() }, nil
}

// change edits the tree of a file and puts the file in its place.
func change(path string, edit func(root *hujson.Object) error) error {
	unlock, err := lock(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer unlock()
	text, err := regular.Read(path, maxFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		text = []byte("{\n  \"mcpServers\": {}\n}\n")
	case err != nil:
		return err
	}
	root, err := parse(path, text)
	if err != nil {
		return err
	}
	object, ok := root.Value.(*hujson.Object)
	if !ok {
		return &Error{Place: Place{File: path}, Reason: "want an object with the key mcpServers"}
	}
	if err := edit(object); err != nil {
		return err
	}
	text = root.Pack()
	if len(text) > maxFile {
		return fmt.Errorf("%s would be longer than %d bytes", path, maxFile)
	}
	if _, err := Parse(path, text); err != nil {
		return err
	}
	return replace(path, text)
}

// replace puts a text in the place of a file, or of what it is a link to.
func replace(path string, text []byte) error {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return regular.Replace(path, text, 0o600)
}

// find is where a file has a server: in which object, as which of its members.
func find(root *hujson.Object, server string) (*hujson.Object, int) {
	for _, m := range root.Members {
		if servers, ok := m.Value.Value.(*hujson.Object); ok && slices.Contains(keys, name(m)) {
			if i := slices.IndexFunc(servers.Members, func(m hujson.ObjectMember) bool { return name(m) == server }); i >= 0 {
				return servers, i
			}
		}
	}
	return nil, -1
}

// home is the object for another server; there is one from then on.
func home(root *hujson.Object) *hujson.Object {
	for _, m := range root.Members {
		if servers, ok := m.Value.Value.(*hujson.Object); ok && slices.Contains(keys, name(m)) {
			return servers
		}
	}
	servers := &hujson.Object{}
	put(root, keys[0], hujson.Value{Value: servers}, "\n  ")
	return servers
}

// insert puts a server behind the others, indented as they are.
func insert(servers *hujson.Object, server string, entry hujson.Value) {
	indent := "\n    "
	if len(servers.Members) > 0 {
		extra := servers.Members[0].Name.BeforeExtra
		if i := bytes.LastIndexByte(extra, '\n'); i >= 0 {
			indent = string(extra[i:])
		}
	}
	put(servers, server, entry, indent)
}

// put appends a member, on a line of its own. What stood before the closing brace
// stays: comments before the member, the white space behind it.
func put(object *hujson.Object, key string, value hujson.Value, indent string) {
	before, after := object.AfterExtra, hujson.Extra(nil)
	if n := len(object.Members); n > 0 {
		last := &object.Members[n-1].Value
		if last.AfterExtra != nil { // a trailing comma, which hujson.Object keeps there
			after = hujson.Extra{}
		}
	}
	kept := bytes.TrimRight(before, " \t\r\n")
	value.BeforeExtra, value.AfterExtra = hujson.Extra(" "), after
	object.Members = append(object.Members, hujson.ObjectMember{
		Name:  hujson.Value{BeforeExtra: append(slices.Clone(kept), indent...), Value: hujson.String(key)},
		Value: value,
	})
	object.AfterExtra = slices.Clone(before[len(kept):])
	if !bytes.Contains(object.AfterExtra, []byte("\n")) {
		object.AfterExtra = hujson.Extra(indent[:max(1, len(indent)-2)])
	}
}
