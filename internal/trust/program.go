package trust

import (
	"fmt"
	"os"
	"syscall"
)

// ProgramError says why a program is not to be executed.
type ProgramError struct {
	Path, Reason string
	Folder       string // of [Writable], where that is why
}

func (e *ProgramError) Error() string { return e.Path + " " + e.Reason }

// Program reports whose hands a program's file is in, links followed: it must belong
// to us, to root, or to whom this very program belongs to, and not everybody may write
// to it. The error is a *ProgramError, or the system's where it cannot be looked at.
func Program(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	st := info.Sys().(*syscall.Stat_t)
	var self syscall.Stat_t
	known := syscall.Stat("/proc/self/exe", &self) == nil
	switch {
	case !ours(st) && (!known || st.Uid != self.Uid):
		return &ProgramError{Path: path, Reason: fmt.Sprintf("belongs to user %d, neither to you nor to root", st.Uid)}
	case info.Mode()&0o002 != 0:
		return &ProgramError{
			Path: path, Reason: fmt.Sprintf("can be written to by everybody (mode %04o)", info.Mode().Perm()),
		}
	}
	return nil
}
