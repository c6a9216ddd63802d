package main

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"syscall"

	"noused/internal/client/plain"
	"noused/internal/protocol"
	"noused/internal/worktree"
)

// sessionTable is a list of sessions as a person sees it, those that need
// somebody first; of all folders one table for each, with the folder above it. A
// folder that is a worktree is shown as one.
func (a *app) sessionTable(list []protocol.SessionInfo, active string, all bool) (lines []plain.Span) {
	list = slices.Clone(list)
	slices.SortFunc(list, protocol.ByNeed)
	folders := foldersOf(list)
	if len(folders) == 0 || folders[0] == "" { // it has none
		return tableLines(list, active)
	}
	for _, folder := range folders {
		if len(lines) > 0 {
			lines = append(lines, plain.Span{})
		}
		repo, branch, linked := a.worktreeOf(folder)
		switch {
		case a.gone(folder):
			lines = append(lines, plain.Span{Text: a.folderText(folder), Look: plain.Bold})
		case linked:
			lines = append(lines, plain.Span{Text: plain.OneLine(folder, 4096) + "  worktree of " + describeWorktree(repo, branch), Look: plain.Bold})
		case all:
			lines = append(lines, plain.Span{Text: plain.OneLine(folder, 4096), Look: plain.Bold})
		}
		of := slices.DeleteFunc(slices.Clone(list), func(s protocol.SessionInfo) bool { return s.Workdir != folder })
		lines = append(lines, tableLines(of, active)...)
	}
	return lines
}

// folderGone tells whether a session's folder is no more. One that cannot be
// looked at may be there.
func folderGone(dir string) bool {
	_, err := os.Stat(dir)
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// gone is folderGone of a folder of the daemon's machine, if that is this one.
func (a *app) gone(dir string) bool { return a.far == nil && folderGone(dir) }

// worktreeOf is worktree.Of of such a folder.
func (a *app) worktreeOf(dir string) (repo, branch string, ok bool) {
	if a.far != nil {
		return "", "", false
	}
	return worktree.Of(dir)
}

// folderText is a session's folder in a line, "" where it has none.
func (a *app) folderText(dir string) string {
	if dir != "" && a.gone(dir) {
		return plain.OneLine(dir, 4096) + " (gone)"
	}
	return plain.OneLine(dir, 4096)
}

// foldersOf names each folder once, in the order of the list.
func foldersOf(list []protocol.SessionInfo) (folders []string) {
	seen := map[string]bool{}
	for _, s := range list {
		if !seen[s.Workdir] {
			folders = append(folders, s.Workdir)
		}
		seen[s.Workdir] = true
	}
	return folders
}

func tableLines(list []protocol.SessionInfo, active string) []plain.Span {
	rows := [][]string{{"", "SESSION", "CREATED", "UPDATED", "MESSAGES", "STATE", "TITLE"}}
	for _, s := range list {
		mark := ""
		if s.SessionID == active {
			mark = "*"
		}
		rows = append(rows, []string{
			mark, s.SessionID, plain.Stamp(s.CreatedAt), plain.Stamp(s.UpdatedAt), strconv.Itoa(s.Messages), stateWord(s),
			plain.OneLine(s.Title, 60),
		})
	}
	lines := make([]plain.Span, len(rows))
	for i, text := range plain.Table(rows) {
		lines[i].Text = text
	}
	lines[0].Look = plain.Dim
	return lines
}

// stateWord says what a session needs, or does.
func stateWord(s protocol.SessionInfo) string {
	return [...]string{"needs you", "failed", cmp.Or(string(s.RunState), "working"), "unread", "idle"}[s.Need()]
}
