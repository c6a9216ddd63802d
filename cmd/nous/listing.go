package main

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"syscall"

	"noused/internal/protocol"
	"noused/internal/worktree"
)

// sessionTable is a list of sessions as a person sees it, those that need
// somebody first; of all folders one table for each, with the folder above it. A
// folder that is a worktree is shown as one.
func (a *app) sessionTable(list []protocol.SessionInfo, active string, all bool) (lines []span) {
	list = slices.Clone(list)
	slices.SortFunc(list, protocol.ByNeed)
	folders := foldersOf(list)
	if len(folders) == 0 || folders[0] == "" { // it has none
		return tableLines(list, active)
	}
	for _, folder := range folders {
		if len(lines) > 0 {
			lines = append(lines, span{})
		}
		repo, branch, linked := a.worktreeOf(folder)
		switch {
		case a.gone(folder):
			lines = append(lines, span{a.folderText(folder), asBold})
		case linked:
			lines = append(lines, span{oneLine(folder, 4096) + "  worktree of " + describeWorktree(repo, branch), asBold})
		case all:
			lines = append(lines, span{oneLine(folder, 4096), asBold})
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
		return oneLine(dir, 4096) + " (gone)"
	}
	return oneLine(dir, 4096)
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

func tableLines(list []protocol.SessionInfo, active string) []span {
	rows := [][]string{{"", "SESSION", "CREATED", "UPDATED", "MESSAGES", "STATE", "TITLE"}}
	for _, s := range list {
		mark := ""
		if s.SessionID == active {
			mark = "*"
		}
		rows = append(rows, []string{
			mark, s.SessionID, stamp(s.CreatedAt), stamp(s.UpdatedAt), strconv.Itoa(s.Messages), stateWord(s),
			oneLine(s.Title, 60),
		})
	}
	lines := make([]span, len(rows))
	for i, text := range table(rows) {
		lines[i].text = text
	}
	lines[0].look = asDim
	return lines
}

// stateWord says what a session needs, or does.
func stateWord(s protocol.SessionInfo) string {
	return [...]string{"needs you", "failed", cmp.Or(string(s.RunState), "working"), "unread", "idle"}[s.Need()]
}
