package main

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"noused/internal/event"
	"noused/internal/format"
	"noused/internal/protocol"
	"noused/internal/server"
)

// health is how the daemon is doing beside its sessions.
type health struct {
	events  *event.Log
	readers *server.Readers
	disk    *diskUse
	errors  *lastErrors
	fleet   func() *protocol.FleetState
}

func (h health) report() protocol.Health {
	size, most, first, last := h.events.Kept()
	return protocol.Health{
		Readers:     h.readers.Lag(last),
		EventBuffer: &protocol.EventBuffer{Bytes: size, Limit: most, FirstSeq: first},
		Disk:        h.disk.get(),
		LastErrors:  h.errors.list(),
		Fleet:       h.fleet(),
	}
}

const (
	diskFresh = 2 * time.Second       // what was counted then is told without counting again
	diskWait  = 10 * time.Millisecond // for a count that takes no longer
	diskFiles = 1_000_000             // counted at most
	diskDepth = 16                    // folders in folders
	diskRead  = 256                   // files of a folder that are in memory
)

// diskUse counts what a folder takes on the disk: without delaying its callers, once at a
// time, and only if somebody asks.
type diskUse struct {
	dir string

	mu       sync.Mutex
	known    protocol.DiskUse
	at       time.Time     // when that count began, by the clock that nobody sets
	counting chan struct{} // closed at the end of a count; nil while there is none
	ctx      context.Context
	stop     context.CancelFunc
}

func newDiskUse(dir string) *diskUse {
	d := &diskUse{dir: dir}
	d.ctx, d.stop = context.WithCancel(context.Background())
	return d
}

// get returns what was counted last, and has it counted again where that is not
// fresh. It waits a moment for that.
func (d *diskUse) get() *protocol.DiskUse {
	d.mu.Lock()
	if d.counting == nil && (d.at.IsZero() || time.Since(d.at) > diskFresh) && d.ctx.Err() == nil {
		d.counting = make(chan struct{})
		go d.count(d.counting) // ends with the count, or with close
	}
	counting := d.counting
	d.mu.Unlock()
	if counting != nil {
		select {
		case <-counting:
		case <-time.After(diskWait):
		}
	}
	d.mu.Lock()
	use := d.known
	d.mu.Unlock()
	use.Path = d.dir
	var st unix.Statfs_t
	if unix.Statfs(d.dir, &st) == nil {
		use.FreeBytes = int64(st.Bavail) * st.Bsize
	}
	return &use
}

// count goes through the folder.
func (d *diskUse) count(done chan struct{}) {
	at := time.Now()
	c := counter{ctx: d.ctx, sessions: filepath.Join(d.dir, "sessions"), use: protocol.DiskUse{CountedAt: at.UTC()}}
	if info, err := os.Lstat(d.dir); err == nil {
		c.add(d.dir, info, diskDepth)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known, d.at, d.counting = c.use, at, nil; d.ctx.Err() != nil {
		d.known = protocol.DiskUse{}
	}
	close(done)
}

// counter counts files, and follows no links.
type counter struct {
	ctx      context.Context
	sessions string // the folder of journals
	use      protocol.DiskUse
	files    int
}

// add counts a file, and what is in it where it is a folder, so many folders deep.
func (c *counter) add(path string, info fs.FileInfo, depth int) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		c.use.Bytes += st.Blocks * 512
	}
	if filepath.Dir(path) == c.sessions && strings.HasSuffix(path, ".jsonl") && info.Mode().IsRegular() {
		c.use.Sessions++
	}
	if !info.IsDir() || depth == 0 {
		return
	}
	folder, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return
	}
	defer folder.Close()
	for {
		entries, err := folder.ReadDir(diskRead)
		for _, e := range entries {
			if c.files++; c.ctx.Err() != nil || c.files > diskFiles {
				return
			}
			if info, err := e.Info(); err == nil { // else it is gone
				c.add(filepath.Join(path, e.Name()), info, depth-1)
			}
		}
		if err != nil { // io.EOF, or the disk's
			return
		}
	}
}

// close ends a count and waits for it.
func (d *diskUse) close() {
	d.stop()
	d.mu.Lock()
	counting := d.counting
	d.mu.Unlock()
	if counting != nil {
		<-counting
	}
}

const (
	maxErrors    = 8
	maxErrorText = 400 // bytes
)

// lastErrors are the errors that the log told last. Any number of goroutines may
// use it.
type lastErrors struct {
	mu  sync.Mutex
	all []protocol.LoggedError // the newest last
}

func (l *lastErrors) add(e protocol.LoggedError) {
	e.Message = format.Clip(e.Message, maxErrorText-len("…"))
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all = append(l.all, e); len(l.all) > maxErrors {
		l.all = append(l.all[:0], l.all[1:]...)
	}
}

func (l *lastErrors) list() []protocol.LoggedError {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]protocol.LoggedError(nil), l.all...)
}
