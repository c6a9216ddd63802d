package tui

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	tea "charm.land/bubbletea/v2"

	"noused/internal/gitfile"
	"noused/internal/tui/cell"
)

const (
	maxBranch  = 4 << 10 // cells of a branch that are kept
	maxParents = 32      // folders above that may be the repository's
	folderMost = 40      // cells
	branchMost = 24
)

// whereabouts is the folder of the session, and the branch that git has there.
type whereabouts struct {
	folder, branch string
	looking        bool
}

// located is the answer to locate.
type located struct{ folder, branch string }

// locate reads the branch of the session's folder, beside the screen: the disk
// may be slow.
func (ds *daemons) locate() {
	folder := ds.state.Workdir
	if folder != ds.where.folder {
		ds.where.folder, ds.where.branch = folder, ""
	}
	if ds.where.looking || folder == "" || ds.opts.Host != "" {
		return
	}
	ds.where.looking = true
	ds.jobs.Start(func(context.Context) tea.Msg { return located{folder, gitBranch(folder)} })
}

func (ds *daemons) located(l located) {
	ds.where.looking = false
	if l.folder == ds.where.folder {
		ds.where.branch = l.branch
	}
}

// whereParts are the folder and the branch in the status line.
func (m *model) whereParts() []part {
	if m.where.folder == "" {
		return nil
	}
	text := cell.Folder(m.where.folder, m.opts.home(), folderMost)
	if m.where.branch != "" {
		text += " (" + cell.Truncate(m.where.branch, branchMost) + ")"
	}
	return []part{{text, m.theme.Dim, 6}}
}

// gitBranch is the branch that is checked out in a folder or one above it, the
// beginning of the commit where it is none, "" where there is no repository on
// this machine. It reads two small files, and asks no git: that might run what
// the repository says.
func gitBranch(folder string) string {
	if !filepath.IsAbs(folder) {
		return ""
	}
	for range maxParents {
		dir, err := gitfile.Folder(folder)
		if err == nil {
			return headOf(dir)
		}
		up := filepath.Dir(folder)
		if !errors.Is(err, fs.ErrNotExist) || up == folder {
			return ""
		}
		folder = up
	}
	return ""
}

func headOf(dir string) string {
	head, branch, err := gitfile.Head(dir)
	if err != nil {
		return ""
	}
	if branch != "" {
		return cell.Line(branch, maxBranch)
	}
	if strings.Trim(head, "0123456789abcdef") != "" || len(head) < 7 {
		return ""
	}
	return head[:7]
}
