package proc

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// mark says which child of which Supervisor a process descends from: the
// Supervisor's random number of 31 bits, and the child's of 32. 0 is none.
//
// All descendants inherit it in two ways. One is the soft limit on file locks,
// which Linux has not enforced since 2.4 and hardly any program sets. It is not
// in the program's hands as its environment and arguments are: it stays when
// the environment is cleared or overwritten, can be read of a process that lets
// nobody else look into it (ssh-agent), and is there without a gap while a
// program is executed. The other is a variable of the environment, for what does
// set its limits anew, as su does, and for kernels that do not let us.
type mark uint64

const markBits = 32 // of the child's number

func newMark(id, number uint32) mark { return mark(id)<<markBits | mark(number) }

func (m mark) parts() (id, number uint32) { return uint32(m >> markBits), uint32(m) }

// variable is the mark as a child's environment has it.
func (m mark) variable() string { return fmt.Sprintf("%s=%d", markName, m) }

// inheriting is held while this process has limits that are meant for a child.
var inheriting sync.Mutex

// pass calls start, which starts a child, so that the child has the mark among
// its limits. Where that is not allowed, the child has none there.
func (m mark) pass(start func() error) error {
	inheriting.Lock()
	defer inheriting.Unlock()
	var own unix.Rlimit
	if m != 0 && unix.Prlimit(0, unix.RLIMIT_LOCKS, nil, &own) == nil &&
		unix.Prlimit(0, unix.RLIMIT_LOCKS, &unix.Rlimit{Cur: uint64(m), Max: own.Max}, nil) == nil {
		defer func() { _ = unix.Prlimit(0, unix.RLIMIT_LOCKS, &own, nil) }()
	}
	return start()
}

// readMark returns a process's mark, 0 where it has none or nobody may know.
func readMark(pid int) mark {
	if limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid)); err == nil {
		if m := limitsMark(limits); m != 0 {
			return m
		}
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return 0
	}
	defer f.Close()
	environ, _ := io.ReadAll(io.LimitReader(f, maxEnviron))
	return environMark(environ)
}

// limitsMark finds the mark in the text of /proc/PID/limits.
func limitsMark(limits []byte) mark {
	for line := range bytes.Lines(limits) {
		if values, ok := bytes.CutPrefix(line, []byte("Max file locks ")); ok {
			if fields := bytes.Fields(values); len(fields) > 0 {
				return parseMark(fields[0])
			}
		}
	}
	return 0
}

// environMark finds it in that of /proc/PID/environ.
func environMark(environ []byte) mark {
	for kv := range bytes.SplitSeq(environ, []byte{0}) {
		if value, ok := bytes.CutPrefix(kv, []byte(markName+"=")); ok {
			return parseMark(value)
		}
	}
	return 0
}

// parseMark returns 0 for what is none, as an ordinary limit is.
func parseMark(text []byte) mark {
	m, err := strconv.ParseUint(string(text), 10, 2*markBits-1)
	if err != nil || m>>markBits == 0 {
		return 0
	}
	return mark(m)
}
