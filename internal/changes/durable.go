package changes

import (
	"errors"
	"os"

	"golang.org/x/sync/errgroup"
)

// syncsAtOnce is how many files are flushed at a time: the journal of a file system takes them
// together.
const syncsAtOnce = 32

// syncAll calls sync with each number below n, at the same time. It blocks for the disk.
func syncAll(n int, sync func(i int) error) error {
	var group errgroup.Group
	group.SetLimit(syncsAtOnce)
	for i := range n {
		group.Go(func() error { return sync(i) })
	}
	return group.Wait()
}

// syncPaths has files and folders of ours be on the disk.
func syncPaths(paths []string) error {
	return syncAll(len(paths), func(i int) error { return syncPath(paths[i]) })
}

// syncPath has a file or a folder of ours be on the disk.
func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
