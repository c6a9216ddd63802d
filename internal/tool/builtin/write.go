package builtin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// maxLinks is how many symbolic links are followed, as many as Linux does.
const maxLinks = 40

// write replaces a file as a whole (tools.md §6).
func write(c *call, args jsontext.Value) (string, error) {
	var a struct {
		Path    *string `json:"path"`
		Content *string `json:"content"`
	}
	if err := arguments(args, &a); err != nil {
		return "", err
	}
	path, err := word("path", a.Path)
	if err != nil {
		return "", err
	}
	content, err := text("content", a.Content)
	if err != nil {
		return "", err
	}
	created, err := replace(path, c.resolve(path), []byte(content))
	switch {
	case err != nil:
		return "", err
	case created:
		return fmt.Sprintf("created %s, %d bytes", path, len(content)), nil
	}
	return fmt.Sprintf("replaced %s, %d bytes", path, len(content)), nil
}

// replace puts content in the place of the file at abs, which the caller calls
// path, so that at any time there is either the old one or the new one,
// complete. Permissions stay, a symbolic link stays one, missing folders are
// made. It reports whether there was no such file.
func replace(path, abs string, content []byte) (created bool, err error) {
	if abs, err = target(abs); err != nil {
		return false, because(path, err)
	}
	info, err := os.Stat(abs)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		created = true
		if err := os.MkdirAll(filepath.Dir(abs), 0o777); err != nil {
			return false, because(path, err)
		}
	case err != nil:
		return false, because(path, err)
	case info.IsDir():
		return false, fmt.Errorf("%s is a folder", path)
	default:
		if err := regular(path, info); err != nil {
			return false, err
		}
		// A rename does not ask whether the old file may be written.
		if err := unix.Access(abs, unix.W_OK); err != nil {
			return false, fmt.Errorf("%s: %w", path, err)
		}
	}
	f, err := renameio.NewPendingFile(abs, renameio.WithTempDir(filepath.Dir(abs)),
		renameio.WithPermissions(0o666), renameio.WithExistingPermissions())
	if err != nil {
		return false, because(path, err)
	}
	defer f.Cleanup() // does nothing after success
	if _, err := f.Write(content); err != nil {
		return false, because(path, err)
	}
	if err := f.CloseAtomicallyReplace(); err != nil {
		return false, because(path, err)
	}
	return created, nil
}

// target follows symbolic links to the file they mean, there or not.
func target(abs string) (string, error) {
	for range maxLinks {
		link, err := os.Readlink(abs)
		if err != nil {
			return abs, nil // not a link, or nothing yet
		}
		if !filepath.IsAbs(link) {
			// The folder may be reached through a link itself.
			dir, err := filepath.EvalSymlinks(filepath.Dir(abs))
			if err != nil {
				return "", err
			}
			link = filepath.Join(dir, link)
		}
		abs = link
	}
	return "", unix.ELOOP
}
