package proc

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// emptyMode lets the user enter the empty folder and nobody write to it: programs leave
// each other nothing there. For root it is emptied before each start.
const emptyMode = 0o500

// StartIn has every [Command] without a Dir start in an empty folder of that path, which
// is made when it is needed. "", as before the first call, is the folder /. It is to be
// called before anything is started.
//
// A program that is started for a session must not find that session's folder around it:
// python -m, npx and many others run what lies in the current folder, or above it.
// Deleting the folder after each start was tried: where the current folder is gone,
// node does not start.
func (s *Supervisor) StartIn(empty string) { s.empty = empty }

// emptyFolder is the folder of commands without a Dir, made or emptied if need be.
func (n *spawner) emptyFolder() (string, error) {
	if n.empty == "" {
		return "/", nil
	}
	if err := makeEmpty(n.empty); err != nil {
		return "", fmt.Errorf("the empty folder that programs start in: %w", err)
	}
	return n.empty, nil
}

func makeEmpty(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(path, emptyMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	dir, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	if !ownDir(dir) {
		return fmt.Errorf("%s belongs to another user", path)
	}
	names, err := dir.Readdirnames(-1)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if len(names) > 0 {
		if err := dir.Chmod(0o700); err != nil {
			return err
		}
		for _, name := range names {
			if err := removeTree(filepath.Join(path, name)); err != nil {
				return err
			}
		}
	}
	info, err := dir.Stat()
	if err == nil && info.Mode().Perm() != emptyMode {
		err = dir.Chmod(emptyMode)
	}
	return err
}
