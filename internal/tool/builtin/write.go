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

	"noused/internal/proc"
)

// write replaces a file as a whole (tools.md §6).
func write(c *call, args jsontext.Value) (string, error) {
	var a struct {
		Path    *string `json:"path"`
		Content *string `json:"content"`
		outside
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
	created, err := c.replace(path, content, a.outside)
	switch {
	case err != nil:
		return "", err
	case created:
		return fmt.Sprintf("created %s, %d bytes", path, len(content)), nil
	}
	return fmt.Sprintf("replaced %s, %d bytes", path, len(content)), nil
}

// replace is [replace] for a call. What the sandbox refuses is told as such: the file's
// own permissions let us write there, and the kernel did not.
func (c *call) replace(path, content string, o outside) (created bool, err error) {
	abs := c.real(path)
	created, err = replace(path, abs, []byte(content))
	if !errors.Is(err, fs.ErrPermission) || o.Outside || c.getenv(proc.HiddenVariable) == "" || !permitted(abs) {
		return created, err
	}
	return false, fmt.Errorf("the sandbox does not let tools write %s: only in the working directory and $TMPDIR. "+
		"Where the work needs it, call again with outside_sandbox and a reason, and the user is asked", path)
}

// permitted tells whether the permissions of files, which is all that access(2) asks,
// allow to write a file: it, if it is there, and the nearest folder above.
func permitted(abs string) bool {
	if err := unix.Access(abs, unix.W_OK); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	for dir := filepath.Dir(abs); ; dir = filepath.Dir(dir) {
		err := unix.Access(dir, unix.W_OK|unix.X_OK)
		if !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			return err == nil
		}
	}
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
