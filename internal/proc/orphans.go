package proc

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// markName is the variable that has the mark.
	markName = "NOUSED_CHILD"
	// clearTime is how long the end of a process waits for what it left behind
	// to be dead.
	clearTime = 2 * time.Second
	// lookTime is how long it waits before it looks again.
	lookTime = 10 * time.Millisecond
	// maxEnviron bounds what is read of a process's environment, in bytes.
	maxEnviron = 8 << 20
)

// orphans are the processes that this one adopts when their parents end: the
// kernel hands them to the nearest subreaper. An orphan lives for as long as
// the child whose mark it carries, and is killed when that has ended; its own
// children then become orphans in turn. So nothing outlives its call, whatever
// it did to its process group, session or parents; and that there is nothing to
// do is one small file of /proc.
//
// One without any mark has thrown it away, and is ended as soon as that is sure:
// nobody can tell whose it was. So is one with a mark that is not of ours, which any
// program can make up. Left alone is what is in a session from before the first tool:
// a job of the shell that became the daemon. Every tool starts in a session of its
// own, and no process can join another. As process 1 the daemon adopts everybody's
// orphans, and leaves those without a mark of ours alone: nothing outlives process 1.
type orphans struct {
	id      uint32
	nested  bool // another Supervisor marks the children, and there is one at a time
	group   int
	foreign map[int]bool // sessions
	wake    chan os.Signal
	quit    chan struct{}
	work    sync.WaitGroup

	mu   sync.Mutex
	last uint32
	live map[uint32]child
	aide int // the guardian, 0 for none: a child of ours that has no number

	// sweeping is held while the orphans are looked at, /proc and all: as nobody
	// else reaps them, none of their numbers is used anew meanwhile.
	sweeping sync.Mutex
	unmarked map[int]suspect // by process
}

// child is one of the Supervisor's own.
type child struct {
	pid  int  // 0 while it is being started
	over bool // what descends from it is to end
}

// suspect is an orphan in which no mark of ours was found, looks times in a row.
type suspect struct{ start, looks int }

// newOrphans begins with the children that a former program has left, where left is not nil.
func newOrphans(nested bool, left *Left) *orphans {
	var random [4]byte
	rand.Read(random[:]) // never fails
	o := &orphans{
		id:     binary.NativeEndian.Uint32(random[:])>>1 | 1,
		nested: nested, group: unix.Getpgrp(), live: make(map[uint32]child),
		unmarked: make(map[int]suspect),
		wake:     make(chan os.Signal, 1), quit: make(chan struct{}),
	}
	if left == nil {
		o.foreign = sessions()
	} else {
		o.takeOver(left)
	}
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) // Linux 3.4
	signal.Notify(o.wake, unix.SIGCHLD)
	o.work.Go(o.reap)
	return o
}

// takeOver has the marks of the children that were left be its own.
func (o *orphans) takeOver(left *Left) {
	o.id, o.last, o.foreign = left.ID, left.Last, make(map[int]bool)
	for _, session := range left.Foreign {
		o.foreign[session] = true
	}
	for _, k := range left.Children {
		o.live[k.Number] = child{pid: k.PID}
	}
	if left.Guardian != nil {
		o.aide = left.Guardian.PID
	}
}

// guards is called with the guardian's process.
func (o *orphans) guards(pid int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.aide = pid
}

// sessions are those of this process and of all its descendants. A process has
// none when a daemon starts, except where a shell became it; so that is asked
// first, as the whole of /proc may be thousands of files. The kernel's lists of
// children may lack some while others end, but are never empty then.
func sessions() map[int]bool {
	self := os.Getpid()
	if children, err := childrenOf(self); err == nil && len(children) == 0 {
		if sid, err := unix.Getsid(0); err == nil {
			return map[int]bool{sid: true}
		}
	}
	all := allProcesses()
	family := map[int]bool{self: true}
	descendants(all, family)
	found := make(map[int]bool)
	for pid := range family {
		found[all[pid].session] = true
	}
	return found
}

// descendants adds to some processes all that descend from them.
func descendants(all map[int]stat, of map[int]bool) {
	for grown := true; grown; {
		grown = false
		for pid, st := range all {
			if of[st.parent] && !of[pid] {
				of[pid], grown = true, true
			}
		}
	}
}

// reap takes away those that die while their child lives on, and ends those
// that nobody knows. It ends with close.
func (o *orphans) reap() {
	defer signal.Stop(o.wake)
	look := time.NewTimer(0)
	defer look.Stop()
	for {
		select {
		case <-o.wake:
		case <-look.C:
		case <-o.quit:
			return
		}
		if len(o.sweep()) > 0 {
			look.Reset(lookTime)
		}
	}
}

func (o *orphans) close() {
	close(o.quit)
	o.work.Wait()
	o.clear()
}

// idle reports that no child lives, and nothing of one.
func (o *orphans) idle() bool {
	o.mu.Lock()
	live := len(o.live)
	o.mu.Unlock()
	return live == 0 && o.clear()
}

// next returns the number and the mark of the next child, 0 if it has another's.
func (o *orphans) next() (uint32, mark) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last++
	if o.nested {
		return o.last, 0
	}
	return o.last, newMark(o.id, o.last)
}

// born is called before the child is started, with 0, and with its process
// after.
func (o *orphans) born(number uint32, pid int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.live[number] = child{pid: pid}
}

// over is called when what descends from a child is to end, before it has died.
func (o *orphans) over(number uint32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.live[number] = child{o.live[number].pid, true}
}

func (o *orphans) died(number uint32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.live, number)
}

// clear ends what nobody needs any more, and waits until it is dead. It returns
// false when something is still not dead after clearTime.
func (o *orphans) clear() bool {
	for deadline := time.Now().Add(clearTime); ; {
		left := o.sweep()
		if len(left) == 0 {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
		await(left[0], lookTime)
	}
}

// await returns when a process has ended, or later than d.
func await(pid int, d time.Duration) {
	fds := []unix.PollFd{}
	if fd, err := unix.PidfdOpen(pid, 0); err == nil {
		defer unix.Close(fd)
		fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	} else if errors.Is(err, unix.ESRCH) {
		return
	}
	_, _ = unix.Poll(fds, int(d.Milliseconds()))
}

// sweep looks at each orphan once: it reaps the dead, and kills those whose
// child has ended and those that are surely without a mark of ours. It returns those
// that are to go and are not gone yet.
func (o *orphans) sweep() (left []int) {
	o.sweeping.Lock()
	defer o.sweeping.Unlock()
	suspects := make(map[int]suspect)
	for _, pid := range adopted() {
		st, err := readStat(pid)
		if err != nil || st.group == o.group || o.ours(pid) {
			continue
		}
		if st.dead() {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
			continue
		}
		if o.foreign[st.session] {
			continue
		}
		m := readMark(pid)
		if id, _ := m.parts(); id != o.id && os.Getpid() != 1 && !o.nested {
			s := suspect{st.start, 1}
			if before := o.unmarked[pid]; before.start == st.start {
				s.looks += before.looks
			}
			if suspects[pid] = s; s.looks < cleanPasses {
				left = append(left, pid)
				continue
			}
		} else if !o.ended(m) {
			continue
		}
		if unix.Kill(pid, unix.SIGKILL) == nil {
			left = append(left, pid)
		}
	}
	o.unmarked = suspects
	return left
}

// ended reports whether a mark is that of a child which no longer lives, or whose
// descendants are to end; without marks, whether that is so of all children.
func (o *orphans) ended(m mark) bool {
	id, number := m.parts()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.nested {
		for _, c := range o.live {
			if !c.over {
				return false
			}
		}
		return true
	}
	c, lives := o.live[number]
	return id == o.id && (!lives || c.over)
}

// ours reports whether a process is a child itself, which [Process.Wait] reaps.
// Those become the main thread's when the spawning thread has ended.
func (o *orphans) ours(pid int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range o.live {
		if c.pid == pid {
			return true
		}
	}
	return pid == o.aide
}

// adopted returns the children of the main thread, to which the kernel gives
// the orphans of a process that is a subreaper (tools.md §5). Among them may be
// others that the main thread has started; those that a [Supervisor] starts are
// its spawning thread's. On a kernel that does not tell, it is all children that
// do not lead a process group, found the long way.
func adopted() []int {
	self := os.Getpid()
	text, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/children", self))
	if err != nil {
		var pids []int
		for pid, st := range allProcesses() {
			if st.parent == self && st.group != pid { // a child of ours leads its group
				pids = append(pids, pid)
			}
		}
		return pids
	}
	if len(text) == 0 {
		return nil
	}
	var pids []int
	for word := range strings.FieldsSeq(string(text)) {
		if pid, err := strconv.Atoi(word); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// stat is what /proc/PID/stat says of a process.
type stat struct {
	state                  byte
	parent, group, session int
	threads                int
	start                  int // in clock ticks since the boot
}

// dead reports a process that is only waiting to be reaped. A main thread may
// end before the others do.
func (s stat) dead() bool { return (s.state == 'Z' || s.state == 'X') && s.threads <= 1 }

func readStat(pid int) (stat, error) {
	text, err := readProc(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	return parseStat(text)
}

// readProc reads a file of /proc with a third of the system calls of
// [os.ReadFile], which tries to wait for it.
func readProc(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	text := make([]byte, 0, 512)
	for {
		n, err := unix.Read(fd, text[len(text):cap(text)])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, &os.PathError{Op: "read", Path: path, Err: err}
		case n == 0:
			return text, nil
		default:
			text = slices.Grow(text[:len(text)+n], 256)
		}
	}
}

// parseStat reads the fields after the name, which may hold anything.
func parseStat(text []byte) (stat, error) {
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 20 || len(fields[0]) != 1 {
		return stat{}, errors.New("not a process's stat")
	}
	s := stat{state: fields[0][0]}
	for i, into := range map[int]*int{1: &s.parent, 2: &s.group, 3: &s.session, 17: &s.threads, 19: &s.start} {
		n, err := strconv.Atoi(fields[i])
		if err != nil {
			return stat{}, err
		}
		*into = n
	}
	return s, nil
}

// allProcesses returns every process that /proc shows.
func allProcesses() map[int]stat {
	all := make(map[int]stat)
	dir, err := os.Open("/proc")
	if err != nil {
		return all
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if st, err := readStat(pid); err == nil {
			all[pid] = st
		}
	}
	return all
}
