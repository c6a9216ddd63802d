package plain

import (
	"slices"
	"strings"

	"noused/internal/format"
	"noused/internal/protocol"
)

// Families is a list of sessions in which child sessions are counted in their parent's title. A child that waits
// for a person, or whose parent is not listed, stays. With tree all stay, each below its parent, and in its folder.
func Families(list []protocol.SessionInfo, tree bool) []protocol.SessionInfo {
	f := family{tree: tree, below: map[string][]protocol.SessionInfo{}}
	listed := map[string]bool{}
	for _, s := range list {
		listed[s.SessionID] = true
	}
	var roots []protocol.SessionInfo
	for _, s := range list {
		if s.Parent == nil || !listed[s.Parent.SessionID] {
			roots = append(roots, s)
		} else {
			f.below[s.Parent.SessionID] = append(f.below[s.Parent.SessionID], s)
		}
	}
	for _, s := range roots {
		f.add(s, 0)
	}
	return f.out
}

// WithChildren is a list with the child sessions of its sessions, and theirs, that have another folder, as a worktree.
func WithChildren(list, everywhere []protocol.SessionInfo) []protocol.SessionInfo {
	listed := map[string]bool{}
	for _, s := range list {
		listed[s.SessionID] = true
	}
	list = slices.Clip(list)
	for found := true; found; {
		found = false
		for _, s := range everywhere {
			if s.Parent != nil && listed[s.Parent.SessionID] && !listed[s.SessionID] {
				list, listed[s.SessionID], found = append(list, s), true, true
			}
		}
	}
	return list
}

type family struct {
	tree  bool
	below map[string][]protocol.SessionInfo // by the parent's id
	out   []protocol.SessionInfo
}

// add puts a session into the list, with those below it as far as they stay.
func (f *family) add(s protocol.SessionInfo, depth int) {
	children := f.below[s.SessionID]
	delete(f.below, s.SessionID)
	switch {
	case depth > 0:
		s.Title = "└" + strings.Repeat("─", depth) + " " + s.Title
	case len(children) > 0 && !f.tree:
		s.Title += " · " + format.Count(f.count(children), "child session")
	}
	f.out = append(f.out, s)
	for _, child := range children {
		if child.Workdir = s.Workdir; f.tree || child.Need() == protocol.NeedAnswer {
			f.add(child, depth+1)
		} else {
			f.waiting(child, depth+1)
		}
	}
}

// waiting adds those below a session that is counted only which wait for a person.
func (f *family) waiting(s protocol.SessionInfo, depth int) {
	children := f.below[s.SessionID]
	delete(f.below, s.SessionID)
	for _, child := range children {
		if child.Workdir = s.Workdir; child.Need() == protocol.NeedAnswer {
			f.add(child, depth+1)
		} else {
			f.waiting(child, depth+1)
		}
	}
}

// count is how many sessions there are in a list and below it.
func (f *family) count(list []protocol.SessionInfo) int {
	n := len(list)
	for _, s := range list {
		n += f.count(f.below[s.SessionID])
	}
	return n
}
