package instructions

import (
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	// unchangedFor is how long a file has to be unchanged for its content to be kept: the
	// clock of a file system may not tell two changes apart that follow each other
	// at once.
	unchangedFor = 2 * time.Second
	// maxCached is how many files are kept of. Those of one folder are fewer.
	maxCached = 512
)

// cache keeps what was read of files, for as long as they do not change. The zero
// cache is empty.
type cache[T any] struct {
	mu sync.Mutex
	of map[string]kept[T]
}

type kept[T any] struct {
	stamp
	value T
}

// stamp tells one state of a file from the next.
type stamp struct {
	dev, ino         uint64
	size             int64
	changed, written syscall.Timespec
}

func stampOf(info os.FileInfo) stamp {
	s := info.Sys().(*syscall.Stat_t)
	return stamp{s.Dev, s.Ino, s.Size, s.Ctim, s.Mtim}
}

// get returns what read makes of the file, or has made of it before; false: there
// is no such file. root belongs to what is asked.
func (c *cache[T]) get(root, path string, read func(root, path string) T) (value T, ok bool) {
	info, err := os.Stat(path)
	if err != nil {
		return value, false
	}
	now, key := stampOf(info), root+"\x00"+path
	c.mu.Lock()
	before, ok := c.of[key]
	c.mu.Unlock()
	if ok && before.stamp == now {
		return before.value, true
	}
	value = read(root, path)
	if time.Since(time.Unix(now.changed.Unix())) > unchangedFor {
		c.put(key, kept[T]{now, value})
	}
	return value, true
}

func (c *cache[T]) put(key string, k kept[T]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil || len(c.of) >= maxCached {
		c.of = map[string]kept[T]{}
	}
	c.of[key] = k
}
