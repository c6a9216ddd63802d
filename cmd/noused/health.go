package main

import (
	"context"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"noused/internal/event"
	"noused/internal/protocol"
	"noused/internal/server"
)

// health is how the daemon is doing beside its sessions.
type health struct {
	events  *event.Log
	readers *server.Readers
	disk    *diskUse
	errors  *lastErrors
}

func (h health) tell() protocol.Health {
	size, most, first, last := h.events.Kept()
	return protocol.Health{
		Readers:     h.readers.Lag(last),
		EventBuffer: &protocol.EventBuffer{Bytes: size, Limit: most, FirstSeq: first},
		Disk:        h.disk.get(),
		LastErrors:  h.errors.list(),
	}
}

const (
	diskFresh = 2 * time.Second       // what was counted then is told without counting again
	diskWait  = 10 * time.Millisecond // for a count that takes no longer
	diskFiles = 1_000_000             // counted at most
)

// diskUse counts what a folder takes on the disk: beside whoever asks, once at a
// time, and only if somebody asks.
type diskUse struct {
	dir string

	mu       sync.Mutex
	known    protocol.DiskUse
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
	if d.counting == nil && time.Since(d.known.CountedAt) > diskFresh && d.ctx.Err() == nil {
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

// count walks through the folder. A file that is gone by then takes nothing.
func (d *diskUse) count(done chan struct{}) {
	use, files := protocol.DiskUse{CountedAt: time.Now().UTC()}, 0
	sessions := filepath.Join(d.dir, "sessions")
	_ = filepath.WalkDir(d.dir, func(path string, entry fs.DirEntry, err error) error {
		if files++; d.ctx.Err() != nil || files > diskFiles {
			return fs.SkipAll
		}
		if err != nil {
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return nil
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			use.Bytes += st.Blocks * 512
		}
		if filepath.Dir(path) == sessions && strings.HasSuffix(path, ".jsonl") && info.Mode().IsRegular() {
			use.Sessions++
		}
		return nil
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known, d.counting = use, nil; d.ctx.Err() != nil {
		d.known = protocol.DiskUse{}
	}
	close(done)
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
	if len(e.Message) > maxErrorText {
		e.Message = strings.ToValidUTF8(e.Message[:maxErrorText-len("…")], "") + "…"
	}
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
