package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Where something hidden lies below a folder that may be written to, Landlock
// would have to forbid what is made in that folder later, too. There the hidden
// is covered instead: by mounts that only the process and what it starts see, in
// a mount namespace, which for anyone but root takes a user namespace. Landlock
// then keeps them from being undone.

// uncovered is the shim's first argument where nothing is to be covered.
const uncovered = "-"

// coverer is the shim's first argument where it is: who the program is to be.
func coverer() string {
	if os.Geteuid() == 0 {
		return "root"
	}
	return fmt.Sprintf("%d:%d", os.Geteuid(), os.Getegid())
}

// inNamespace has a command start in a mount namespace of its own.
func inNamespace(attr *syscall.SysProcAttr) {
	attr.Cloneflags |= unix.CLONE_NEWNS
	if os.Geteuid() != 0 {
		attr.Cloneflags |= unix.CLONE_NEWUSER
		attr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN} // over the execution of the shim
	}
}

// canCover tries, once, whether this system lets us cover something.
func (n *nursery) canCover() bool {
	n.covering.Do(func() {
		cmd := exec.Command(n.helper)
		cmd.Args = []string{"noused", sandboxCommand, "probe", coverer()}
		cmd.Dir = "/"
		cmd.Env = []string{} // of the daemon's, nothing
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		inNamespace(cmd.SysProcAttr)
		if n.spawn(cmd, 0) == nil {
			n.covers = cmd.Wait() == nil
		}
	})
	return n.covers
}

// probe is the shim that canCover starts.
func probe(who string) int {
	if cover(who, Hidden{Paths: []string{os.TempDir()}}, nil) != nil || readOnly(os.TempDir()) != nil {
		return 1
	}
	return 0
}

// cover takes what is hidden out of this process's sight. It cannot be moved
// away from under its cover by a program that may write to these folders: every
// folder on the way is a mount of its own. What is left to be read in it can be
// written only where it is one of write itself.
func cover(who string, hidden Hidden, write []string) error {
	if err := become(who); err != nil {
		return err
	}
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	if err := putOver("/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	kept, err := holdOpen(hidden.Except)
	if err != nil {
		return err
	}
	for _, way := range hidden.ways(write) {
		if err := putOver(way, way, unix.MS_BIND|unix.MS_REC, ""); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	var folders []string
	own := map[string]bool{} // where it works itself
	for _, path := range write {
		own[Resolve(path)] = true
	}
	for _, path := range slices.Sorted(slices.Values(slices.Concat(hidden.Paths, hidden.Except))) {
		if fd, ok := kept[path]; ok {
			if err := restore(path, fd); err != nil {
				return err
			}
			if !own[path] { // it lies in a folder that may be written to, maybe
				if err := readOnly(path); err != nil {
					return err
				}
			}
			continue
		}
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, os.ErrNotExist): // also: below what is covered by now
			continue
		case errors.Is(err, os.ErrPermission) && outOfReach(path):
			continue
		case err != nil:
			return err
		case info.IsDir():
			folders = append(folders, path)
			err = putOver(path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0700,size=1m")
		default:
			err = putOver(path, os.DevNull, unix.MS_BIND, "")
		}
		if err != nil {
			return err
		}
	}
	for _, path := range folders {
		if err := putOver(path, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
			return err
		}
	}
	return os.Chdir(dir) // what is known by now leads past the covers
}

// ways are the folders between those that may be written to and what is hidden
// in them, the upper ones first.
func (h Hidden) ways(write []string) (ways []string) {
	for _, from := range write {
		from = Resolve(from)
		for _, path := range h.Paths {
			if path == from || !inside(from, path) {
				continue
			}
			for dir := filepath.Dir(path); dir != from; dir = filepath.Dir(dir) {
				ways = append(ways, dir)
			}
		}
	}
	slices.Sort(ways)
	return slices.Compact(ways)
}

// become makes the process, in its user namespace, who it was outside of it.
func become(who string) error {
	uid, gid, ok := strings.Cut(who, ":")
	if !ok {
		return nil
	}
	for file, text := range map[string]string{"setgroups": "deny", "uid_map": uid + " " + uid + " 1"} {
		if err := os.WriteFile("/proc/self/"+file, []byte(text), 0); err != nil {
			return err
		}
	}
	return os.WriteFile("/proc/self/gid_map", []byte(gid+" "+gid+" 1"), 0)
}

// outOfReach reports that a path lies in a folder of another user's, in which nobody
// who is this one can look for it, nor change that.
func outOfReach(path string) bool {
	for dir := filepath.Dir(path); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		var s unix.Stat_t
		switch err := unix.Lstat(dir, &s); {
		case errors.Is(err, unix.EACCES):
		case err != nil || s.Mode&unix.S_IFMT != unix.S_IFDIR:
			return false
		default:
			return int(s.Uid) != os.Geteuid() && unix.Access(dir, unix.X_OK) != nil
		}
	}
	return false
}

func putOver(on, what string, flags uintptr, data string) error {
	kind := ""
	if what == "tmpfs" {
		kind = what
	}
	if err := unix.Mount(what, on, kind, flags, data); err != nil {
		return &os.PathError{Op: "cover", Path: on, Err: err}
	}
	return nil
}

// holdOpen opens what is to be put back; what is missing is left out.
func holdOpen(paths []string) (map[string]int, error) {
	open := map[string]int{}
	for _, path := range paths {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: path, Err: err}
		}
		open[path] = fd
	}
	return open, nil
}

// restore puts back, through its cover, what was held open.
func restore(path string, fd int) error {
	what := fmt.Sprintf("/proc/self/fd/%d", fd)
	info, err := os.Stat(what)
	if err != nil {
		return err
	}
	if info.IsDir() {
		err = os.MkdirAll(path, 0o700)
	} else if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
		err = os.WriteFile(path, nil, 0o600)
	}
	if err == nil {
		err = putOver(path, what, unix.MS_BIND|unix.MS_REC, "")
	}
	return err
}

// readOnly has nothing written below a mount of ours.
func readOnly(path string) error {
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(unix.AT_FDCWD, path, unix.AT_RECURSIVE|unix.AT_SYMLINK_NOFOLLOW, &attr); err != nil {
		return &os.PathError{Op: "cover", Path: path, Err: err}
	}
	return nil
}

// uncap drops what a namespace took, before the program gets it.
func uncap() error {
	return unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
}

// looking are the capabilities that let root read other processes' memory, and so
// their environments, past Landlock. Only root has them; nothing in a sandbox needs
// them.
var looking = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_PERFMON, unix.CAP_SYS_PTRACE}

// renounce drops them from this thread, for good, and from what it executes.
func renounce() error {
	var header unix.CapUserHeader
	var data [2]unix.CapUserData
	header.Version = unix.LINUX_CAPABILITY_VERSION_3
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	for _, c := range looking {
		if data[c/32].Permitted&(1<<(c%32)) == 0 {
			continue
		}
		// Without new privileges, nothing of the bounding set comes back: it is left
		// where this process may not change it.
		_ = unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		data[c/32].Permitted &^= 1 << (c % 32)
		data[c/32].Effective &^= 1 << (c % 32)
		data[c/32].Inheritable &^= 1 << (c % 32)
	}
	if err := unix.Capset(&header, &data[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	return nil
}
