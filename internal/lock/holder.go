package lock

import (
	"bufio"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"noused/internal/regular"
)

// Holder is the process that holds the lock on path, as it has said and as the
// kernel's table of locks has it; 0 where none does, or where either cannot be read.
// It takes no lock, so that nobody who starts meanwhile finds it held.
func Holder(path string) int {
	f, err := regular.Open(path, os.O_RDONLY)
	if err != nil {
		return 0
	}
	defer f.Close()
	var is unix.Stat_t
	pid := (&Lock{f: f}).holder()
	if pid == 0 || unix.Fstat(int(f.Fd()), &is) != nil {
		return 0
	}
	table, err := os.Open("/proc/locks")
	if err != nil {
		return 0
	}
	defer table.Close()
	for lines := bufio.NewScanner(table); lines.Scan(); {
		if holds(lines.Text(), pid, is.Ino) {
			return pid
		}
	}
	return 0
}

// holds tells whether a line of /proc/locks is a process's lock on a file, as in
// "3: FLOCK  ADVISORY  WRITE 4711 fd:01:1234 0 EOF". The device is that of the file
// system, which is not always the one that the file says it has.
func holds(line string, pid int, inode uint64) bool {
	f := strings.Fields(line)
	return len(f) == 8 && f[1] == "FLOCK" && f[4] == strconv.Itoa(pid) &&
		strings.HasSuffix(f[5], ":"+strconv.FormatUint(inode, 10))
}
