package proc

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Conceal has no other process of the user trace this one, read or write its memory,
// read its environment, or open its files. Root may, unless it is in a sandbox. Programs that
// this process executes are as ever.
func Conceal() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("keep other processes from tracing this one: %w", err)
	}
	return nil
}
