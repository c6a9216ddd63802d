package changes

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// State is what is at a path: nothing (the zero State), a regular file, a symlink or a
// folder. OID names the content of a file, and what a link leads to. Left, where it is not
// empty, stands for a content that is not kept: two that differ are of two contents.
type State struct {
	Mode uint32 `json:"mode,omitzero"` // as stat has it: type and all permission bits
	OID  OID    `json:"oid,omitzero"`
	Left string `json:"left,omitzero"`
}

// There reports that something is there.
func (s State) There() bool { return s.Mode != 0 }

// IsFolder reports that it is a folder.
func (s State) IsFolder() bool { return s.Mode&unix.S_IFMT == unix.S_IFDIR }

// IsLink reports that it is a symlink.
func (s State) IsLink() bool { return s.Mode&unix.S_IFMT == unix.S_IFLNK }

func (s State) isFile() bool { return s.Mode&unix.S_IFMT == unix.S_IFREG }

// inDiff reports that a diff of git's can have it.
func (s State) inDiff() bool { return s.Left == "" && (s.isFile() || s.IsLink()) }

func (s State) gitMode() string {
	switch {
	case s.IsLink():
		return "120000"
	case s.Mode&0o100 != 0:
		return "100755"
	}
	return "100644"
}

// Change says how what is at a path has changed. Path is relative to the top, with whatever bytes the
// name has. Shared says that a turn of another session may have done it.
type Change struct {
	Path          string
	Before, After State
	Shared        bool
}

func (c Change) leftOut() bool { return c.Before.Left != "" || c.After.Left != "" }

// Shown is a path as people and JSON have it: \xNN stands for each byte that is of no
// character.
func Shown(path string) string {
	if utf8.ValidString(path) {
		return path
	}
	var out strings.Builder
	for len(path) > 0 {
		r, n := utf8.DecodeRuneInString(path)
		if r == utf8.RuneError && n == 1 {
			fmt.Fprintf(&out, `\x%02x`, path[0])
		} else {
			out.WriteString(path[:n])
		}
		path = path[n:]
	}
	return out.String()
}
