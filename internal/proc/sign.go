package proc

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// sign gives this process what its descendants inherit and none can lose: how every
// daemon tells a tool in a sandbox, no matter who started it (package server). It is a hard
// limit on file locks below the one that the daemon has. Linux has not enforced that
// since 2.4, so hardly anybody has one; only who may exceed limits on all of the
// machine can raise it, and root's sandbox may not; everybody can read it.
//
// It is one less, so that every mark still fits below it.
func sign() error {
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_LOCKS, &own); err != nil {
		return fmt.Errorf("sandbox: the limit on file locks: %w", err)
	}
	if own.Max == 0 {
		return errors.New("sandbox: the daemon's hard limit on file locks is 0, and tools in a sandbox are told by a lower " +
			"one: start it without that limit")
	}
	own.Max--
	own.Cur = min(own.Cur, own.Max)
	if err := unix.Setrlimit(unix.RLIMIT_LOCKS, &own); err != nil {
		return fmt.Errorf("sandbox: the limit on file locks: %w", err)
	}
	return nil
}
