// Package idlemem gives back the memory that a process of ours does not need while
// it rests: free memory of the heap, and the pages of the program itself. The
// kernel maps the program's pages around each one that is used, so that nearly all
// of them are counted as the process's, and brings those that are used again back
// from its cache.
//
// Concurrency: a Rest may be used by any number of goroutines. It never blocks.
//
// It refuses to touch a page that was ever written to: that one is nowhere else.
package idlemem

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// restTime is how long nothing has to be done before memory is given back.
const restTime = 2 * time.Second

// Rest gives back memory after each time of work. Make it with New.
type Rest struct{ timer *time.Timer }

// New returns a Rest that gives memory back a while after the last call of Worked,
// where idle, which may be nil, says that nothing is being done.
func New(idle func() bool) *Rest {
	r := &Rest{time.AfterFunc(time.Hour, func() {
		if idle == nil || idle() {
			debug.FreeOSMemory()
			dropProgram()
		}
	})}
	r.timer.Stop()
	return r
}

// Worked says that something was done, and is to be called once it is over.
func (r *Rest) Worked() { r.timer.Reset(restTime) }

// Reader returns in, of which each read is work: for a process that does what it
// reads.
func (r *Rest) Reader(in io.Reader) io.Reader {
	r.Worked()
	return reader{in, r}
}

type reader struct {
	io.Reader
	rest *Rest
}

// Read reads, and says so.
func (r reader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.rest.Worked()
	return n, err
}

// Stop ends it.
func (r *Rest) Stop() { r.timer.Stop() }

// dropProgram unmaps the pages of the program that are as its file has them. Where
// the system does not say which those are, they stay.
func dropProgram() {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	maps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return
	}
	defer maps.Close()
	var from, to uintptr // of a part of the program that cannot be written to
	clean := false
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		line := lines.Text()
		if name, value, ok := strings.Cut(line, ":"); ok && !strings.ContainsAny(name, " -") {
			// A page that was written to before the part could not be any more, by
			// the linker that loads it, say, is anonymous, or swapped out.
			none := strings.TrimSpace(value) == "0 kB"
			if name == "Anonymous" {
				clean = none
			}
			if name == "Swap" && none && clean && from < to {
				for _, advice := range []uintptr{unix.MADV_NOHUGEPAGE, unix.MADV_DONTNEED} { // or a page brings back 2 MB
					_, _, _ = unix.Syscall(unix.SYS_MADVISE, from, to-from, advice)
				}
			}
			continue
		}
		var perm string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &perm); err != nil || len(perm) != 4 || perm[0] != 'r' ||
			perm[1] == 'w' || perm[3] != 'p' || !strings.HasSuffix(line, " "+program) {
			from, to = 0, 0
		}
	}
}
