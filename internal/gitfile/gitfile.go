// Package gitfile reads the small files in which git names folders and branches. It
// never runs git: a repository can name programs that git would start.
//
// Concurrency: its functions may be called from any number of goroutines.
//
// It opens regular files only, and reads a bounded part of them. Whether a folder that
// a file names may be trusted is for the caller to check.
package gitfile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"noused/internal/regular"
)

// maxLine bounds a file, in bytes: each has one line, a path or the name of a branch.
const maxLine = 16 << 10

// Line is the line of a file that has one, without its end.
func Line(path string) (string, error) {
	text, err := regular.Read(path, maxLine)
	return strings.TrimRight(string(text), "\r\n"), err
}

// Join is a path as a file of git's in dir names it: relative to dir, or absolute.
func Join(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

// Target is the folder that the .git file of a linked worktree or a submodule names.
func Target(dotGit string) (string, error) {
	text, err := Line(dotGit)
	if err != nil {
		return "", err
	}
	target, ok := strings.CutPrefix(text, "gitdir: ")
	if !ok {
		return "", fmt.Errorf("%s does not say where its repository is", dotGit)
	}
	return Join(filepath.Dir(dotGit), target), nil
}

// Folder is where a working tree has its HEAD and its index: its .git, or the target of
// that where it is a file. The error is fs.ErrNotExist where there is no .git.
func Folder(workTree string) (string, error) {
	dotGit := filepath.Join(workTree, ".git")
	info, err := os.Stat(dotGit)
	if err != nil || info.IsDir() {
		return dotGit, err
	}
	return Target(dotGit)
}

// Head is the line of the HEAD in a git folder, and the branch it names, "" if it names
// none.
func Head(gitDir string) (line, branch string, err error) {
	line, err = Line(filepath.Join(gitDir, "HEAD"))
	if name, ok := strings.CutPrefix(line, "ref: refs/heads/"); ok {
		branch = name
	}
	return line, branch, err
}
