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
	created, err := replace(path, c.real(path), []byte(content))
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
// complete. Permissions stay, missing folders are made; no part of abs is a link. It
// reports whether there was no such file.
func replace(path, abs string, content []byte) (created bool, err error) {
	folder, err := makeFolder(filepath.Dir(abs))
	if err != nil {
		return false, because(path, err)
	}
	defer folder.Close()
	dir := fmt.Sprintf("/proc/self/fd/%d", folder.Fd()) // whatever its name leads to by now
	abs = filepath.Join(dir, filepath.Base(abs))
	info, err := os.Lstat(abs)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		created = true
	case err != nil:
		return false, because(path, err)
	case info.Mode()&fs.ModeSymlink != 0:
		return false, because(path, swapped(abs))
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
	f, err := renameio.NewPendingFile(abs, renameio.WithTempDir(dir),
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

// makeFolder opens the folder at abs, which is made where it is missing, and those
// above it.
func makeFolder(abs string) (*os.File, error) {
	f, err := openReal(abs, unix.O_PATH|unix.O_DIRECTORY)
	if !errors.Is(err, fs.ErrNotExist) || abs == filepath.Dir(abs) {
		return f, err
	}
	above, err := makeFolder(filepath.Dir(abs))
	if err != nil {
		return nil, err
	}
	defer above.Close()
	if err := unix.Mkdirat(int(above.Fd()), filepath.Base(abs), 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return openReal(abs, unix.O_PATH|unix.O_DIRECTORY)
}
