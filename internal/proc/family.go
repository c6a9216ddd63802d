package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"strconv"
	"strings"
	"time"
)

// familyTime is how long a guardian waits, while tools run, before it looks again
// at what descends from the daemon.
const familyTime = 100 * time.Millisecond

// family is what a guardian last saw descend from its daemon: processes that may
// have thrown away every mark, or made one up, and whose parents may be gone by the
// time when the daemon is. What comes and throws everything away between the last
// look and the daemon's death is not in it.
type family struct {
	daemon  int          // its process
	foreign map[int]bool // sessions from before the first tool
	seen    map[int]stat
}

// refresh sees the daemon's descendants. One that it saw before is kept while it
// lives: while it looks, the daemon may adopt it. What it sees when the daemon is
// gone does not count.
func (f *family) refresh() {
	now := descent(f.daemon)
	for pid, st := range f.seen {
		if again, err := readStat(pid); err == nil && again.start == st.start && !again.dead() {
			now[pid] = again
		}
	}
	maps.DeleteFunc(now, func(pid int, st stat) bool { return pid == os.Getpid() || f.foreign[st.session] })
	if os.Getppid() == f.daemon {
		f.seen = now
	}
}

// has reports whether it is the process that was seen.
func (f *family) has(pid int, st stat) bool {
	seen, ok := f.seen[pid]
	return ok && seen.start == st.start
}

// descent returns the descendants of a process. It reads of them and of their
// threads alone; on a kernel that does not tell a thread's children, of all
// processes there are.
func descent(of int) map[int]stat {
	found := make(map[int]stat)
	for todo := []int{of}; len(todo) > 0; todo = todo[1:] {
		children, err := childrenOf(todo[0])
		if err != nil {
			return descentOfAll(of)
		}
		for _, pid := range children {
			if _, known := found[pid]; known {
				continue
			}
			if st, err := readStat(pid); err == nil {
				found[pid] = st
				todo = append(todo, pid)
			}
		}
	}
	return found
}

func descentOfAll(of int) map[int]stat {
	all, family := allProcesses(), map[int]bool{of: true}
	descendants(all, family)
	maps.DeleteFunc(all, func(pid int, _ stat) bool { return pid == of || !family[pid] })
	return all
}

// childrenOf returns those of all threads of a process, none of one that is
// gone.
func childrenOf(pid int) (children []int, err error) {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil, nil
	}
	for _, thread := range threads {
		text, err := readProc(fmt.Sprintf("/proc/%d/task/%s/children", pid, thread.Name()))
		if _, gone := os.Stat(fmt.Sprintf("/proc/%d/task/%s", pid, thread.Name())); errors.Is(err, fs.ErrNotExist) &&
			gone == nil {
			return nil, err
		}
		for word := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(word); err == nil {
				children = append(children, child)
			}
		}
	}
	return children, nil
}
