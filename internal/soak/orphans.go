package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// adoptOrphans makes this process the parent of what a daemon that has ended leaves
// behind.
func adoptOrphans() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// parents are those of all processes that can be seen.
func parents() map[int]int {
	of := map[int]int{}
	paths, _ := filepath.Glob("/proc/[0-9]*/stat") // a bad pattern is its only error
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		rest := string(text[strings.LastIndexByte(string(text), ')')+1:])
		if fields := strings.Fields(rest); len(fields) > 1 {
			of[pid], _ = strconv.Atoi(fields[1])
		}
	}
	return of
}

// descendants are all that a process has started, directly or not.
func descendants(root int) (found []int) {
	of := parents()
	for pid := range of {
		for up, n := of[pid], 0; up > 1 && n < 100; up, n = of[up], n+1 {
			if up == root {
				found = append(found, pid)
				break
			}
		}
	}
	slices.Sort(found)
	return found
}

// orphansGone waits until this process has adopted nothing that lives, and says what
// it has then.
func orphansGone(deadline time.Time) string {
	for {
		left := ""
		for pid, parent := range parents() {
			if parent == os.Getpid() && !ours(pid) {
				left += orphan(pid)
			}
		}
		if left == "" || time.Now().After(deadline) {
			return left
		}
		time.Sleep(20 * time.Millisecond) // the kernel tells nobody of an adopted process
	}
}

// ours tells whether this process has started a child itself: then it is a daemon.
func ours(pid int) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && strings.Contains(string(line), "--debug-socket")
}

// orphan reaps a child that has ended, and describes another.
func orphan(pid int) string {
	if done, err := unix.Wait4(pid, nil, unix.WNOHANG, nil); err != nil || done == pid {
		return ""
	}
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return fmt.Sprintf("%d %q; ", pid, line)
}
