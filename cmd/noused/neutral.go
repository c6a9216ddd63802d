package main

import (
	"os"
	"path/filepath"
	"syscall"
)

// neutralFolder is the empty folder in which programs of the user's start. It lies in the
// runtime folder where nobody else may write above it: programs look there, too, and
// tools that work in the home folder may write to that.
func neutralFolder(stateDir string, getenv func(string) string) string {
	const name = "empty"
	if dir := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) && closed(dir) {
		return filepath.Join(dir, "noused", name)
	}
	return filepath.Join(stateDir, name)
}

// closed reports that nobody but the user and root can put anything into a folder, or
// into one above it.
func closed(dir string) bool {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false
	}
	for ; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil || !info.IsDir() || info.Mode().Perm()&0o022 != 0 {
			return false
		}
		if owner := info.Sys().(*syscall.Stat_t).Uid; owner != 0 && int(owner) != os.Geteuid() {
			return false
		}
		if dir == "/" {
			return true
		}
	}
}
