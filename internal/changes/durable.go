package changes

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// maxSyncs is up to how many files are flushed one by one: for more the file system is flushed
// as a whole, which others' writes may hold up.
const maxSyncs = 64

// syncAll has files and folders be on the disk, which are below a folder. It blocks for the disk.
func syncAll(below string, paths []string) error {
	if len(paths) > maxSyncs {
		return syncSystem(below)
	}
	for _, path := range paths {
		if err := syncPath(path); err != nil {
			return err
		}
	}
	return nil
}

// syncPath has a file or a folder of ours be on the disk.
func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// syncSystem flushes the file system that a folder is on.
func syncSystem(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(syncFD(int(f.Fd())), f.Close())
}

func syncFD(fd int) error {
	for {
		if err := unix.Syncfs(fd); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
