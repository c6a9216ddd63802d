package tool

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"noused/internal/gitfile"
	"noused/internal/proc"
)

// gitFolder is the git folder of the repository that a folder is a linked worktree
// of: without it nothing can be committed there (folders.md §1). It is "" for any
// other folder.
//
// A tool may have written the folder's own .git file. So it counts only if the
// repository's side, where a sandboxed tool cannot write unless it may already,
// names that very file: all is the user's own, links are resolved first, and what
// is granted has the form of a git folder.
func gitFolder(workdir string) string {
	dotGit := filepath.Join(workdir, ".git")
	info, err := os.Lstat(dotGit)
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	admin, ok := strings.CutPrefix(pointer(dotGit), "gitdir: ")
	if !ok {
		return ""
	}
	admin = resolve(workdir, admin)
	common := filepath.Dir(filepath.Dir(admin))
	switch {
	case admin == "" || filepath.Base(filepath.Dir(admin)) != "worktrees":
	case !ownFolder(admin) || !ownFolder(common):
	case resolve(admin, pointer(filepath.Join(admin, "commondir"))) != common:
	case resolve(admin, pointer(filepath.Join(admin, "gitdir"))) != filepath.Join(proc.Resolve(workdir), ".git"):
	case !ownFolder(filepath.Join(common, "objects")) || !ownFolder(filepath.Join(common, "refs")):
	case pointer(filepath.Join(common, "HEAD")) == "":
	default:
		return common
	}
	return ""
}

// pointer is the one line of a file of the user's own, "" if it is no such file.
func pointer(path string) string {
	line, err := gitfile.Line(path)
	if err != nil || strings.ContainsAny(line, "\n\x00") {
		return ""
	}
	return line
}

// resolve is a path that may start from a folder, without links; "" if there is no
// such file.
func resolve(dir, path string) string {
	if path == "" {
		return ""
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return ""
	}
	return real
}

// ownFolder reports that a path is a folder, and no link to one, that the user
// owns.
func ownFolder(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}
