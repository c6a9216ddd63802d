package proc

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// What a user's processes have queued of signals, and of timers, counts together: one
// that queues all that there may be leaves none for the others. The threads of a Go
// program need one each to change something of them all, and so every shim needs some
// (Landlock), before it has its own share.
const (
	signalShare = 256 // of the limit; there are no more than some 64 jobs at a time
	minSignals  = 128
)

// shareOfSignals is how many signals a program in a sandbox can have queued, of a
// limit.
func shareOfSignals(limit uint64) uint64 {
	return min(limit, max(limit/signalShare, minSignals))
}

// lowerSignals leaves this process, for good, and all that it executes and starts
// their share. In a user namespace, that is what they have among themselves; without
// one, nothing is queued in a sandbox while all of the user's have as many.
func lowerSignals() error {
	var own unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_SIGPENDING, &own)
	if err == nil {
		own.Max = shareOfSignals(own.Max)
		own.Cur = min(shareOfSignals(own.Cur), own.Max)
		err = unix.Setrlimit(unix.RLIMIT_SIGPENDING, &own)
	}
	if err != nil {
		return fmt.Errorf("sandbox: the limit on queued signals: %w", err)
	}
	return nil
}
