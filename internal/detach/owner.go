package detach

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ownerVariable names the descriptor of a pipe that the owner of a daemon holds the other
// end of, and behind a colon the folder that goes away with the daemon, if any.
const ownerVariable = "NOUSED_OWNER"

// OwnedAt is the environment variable for a daemon that is to end when the pipe at a
// descriptor does, and to remove a folder then; "" is none.
func OwnedAt(fd int, folder string) string {
	return ownerVariable + "=" + strconv.Itoa(fd) + ":" + folder
}

// Owner is the process that a private daemon belongs to.
type Owner struct {
	pipe   *os.File
	folder string
}

// Owned takes the pipe over, so that no child of the process inherits it or its variable.
// Nil: the daemon belongs to nobody.
func Owned() *Owner {
	number, folder, found := strings.Cut(os.Getenv(ownerVariable), ":")
	_ = os.Unsetenv(ownerVariable)
	fd, err := strconv.Atoi(number)
	if !found || err != nil || fd < 3 {
		return nil
	}
	unix.CloseOnExec(fd)
	return &Owner{os.NewFile(uintptr(fd), "owner"), folder}
}

// Wait blocks until the owner has ended, in whatever way.
func (o *Owner) Wait() {
	for buf := make([]byte, 64); ; {
		if _, err := o.pipe.Read(buf); err != nil {
			return
		}
	}
}

// Clean removes the folder. Call it when nothing in it is open any more.
func (o *Owner) Clean() error {
	if o == nil || o.folder == "" {
		return nil
	}
	return os.RemoveAll(o.folder)
}
