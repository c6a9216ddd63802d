package proc

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Wherever the system allows it, a sandboxed program has namespaces of its own: one
// for mounts, which for anyone but root takes a user namespace, and one for shared
// memory and queues. In it, mounts cover what the program is not to see; Landlock
// keeps them from being undone. Landlock alone cannot keep a program from devices
// that it may not name, nor, before its ninth version, from sockets, nor hide
// something below a folder in which the program may make anything.

// uncovered is the shim's first argument where it has no namespaces.
const uncovered = "-"

// coverer is the shim's first argument where it is: who the program is to be.
func coverer() string {
	if os.Geteuid() == 0 {
		return "root"
	}
	return fmt.Sprintf("%d:%d", os.Geteuid(), os.Getegid())
}

// inNamespace has a command start in namespaces of its own.
func inNamespace(attr *syscall.SysProcAttr) {
	attr.Cloneflags |= unix.CLONE_NEWNS | unix.CLONE_NEWIPC
	if os.Geteuid() != 0 {
		attr.Cloneflags |= unix.CLONE_NEWUSER
		attr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN} // over the execution of the shim
	}
}

// canCover tries, once, whether this system lets us have namespaces and cover
// something in them. Where that cannot be tried now, for want of processes or memory,
// it is taken for granted, so that no program is started without.
func (n *spawner) canCover() bool {
	n.covering.Lock()
	defer n.covering.Unlock()
	if n.tried {
		return n.covers
	}
	cmd := exec.Command(n.helper)
	cmd.Args = []string{"noused", sandboxCommand, "probe", coverer()}
	cmd.Dir = "/"
	cmd.Env = []string{} // of the daemon's, nothing
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	inNamespace(cmd.SysProcAttr)
	err := n.spawn(cmd, 0, func(int) {})
	if err == nil {
		err = cmd.Wait()
	}
	var exit *exec.ExitError
	refused := errors.As(err, &exit) && exit.Exited()
	for _, no := range []syscall.Errno{unix.EPERM, unix.EACCES, unix.EINVAL, unix.ENOSYS, unix.ENOSPC, unix.EUSERS} {
		refused = refused || errors.Is(err, no)
	}
	n.tried, n.covers = err == nil || refused, !refused
	return n.covers
}

// probe is the shim that canCover starts.
func probe(who string) int {
	if cover(who, Hidden{Paths: []string{os.TempDir()}}, nil, "") != nil ||
		setMounts(os.TempDir(), unix.MOUNT_ATTR_RDONLY) != nil {
		return 1
	}
	return 0
}

// cover takes out of this process's sight what is hidden, what it has nothing to do
// with of the machine, and sockets of others. It cannot be moved away from under its
// cover by a program that may write to these folders: every folder on the way is a
// mount of its own. What is left to be read in it can be written only where it is one
// of write itself. empty is the folder of [Supervisor.StartIn] where the program starts in it.
func cover(who string, hidden Hidden, write []string, empty string) error {
	err := become(who)
	if err != nil {
		return err
	}
	read := hidden.Except
	if hidden, err = hidden.listed(); err != nil {
		return err
	}
	dir, err := unix.Getwd()
	if err != nil {
		return err
	}
	if dir == empty { // by any other name, somebody else's link may have led there
		hidden, read = hidden.without(dir), append(slices.Clip(read), dir)
	}
	if hidden.Covers(dir) {
		return fmt.Errorf("it would start in %s, which is hidden", dir)
	}
	defer unix.Umask(unix.Umask(0))
	if err := putOver("/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	_ = os.Mkdir(tmuxFolder(), 0o700) // as the first tmux makes it, which may start later
	other := machine(slices.Concat(write, read), append(gatherings(), temporary(write)...)...)
	all := hidden.and(other)
	links := linksOf(services)
	kept, err := copyMounts(append(all.Except, "/dev/tty"))
	if err != nil {
		return err
	}
	// No device by any other name, as in a folder that is a system of its own.
	if err := setMounts("/", unix.MOUNT_ATTR_NODEV); err != nil {
		return err
	}
	for _, way := range hidden.ways(write) {
		if err := putOver(way, way, unix.MS_BIND|unix.MS_REC, ""); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	var folders []string
	for _, path := range sortedPaths(all.Paths, slices.Collect(maps.Keys(kept))) {
		if fd, ok := kept[path]; ok {
			if err := restore(path, fd); err != nil {
				return err
			}
			if !slices.Contains(write, path) { // it lies in a folder that may be written to, maybe
				if err := setMounts(path, unix.MOUNT_ATTR_RDONLY); err != nil {
					return err
				}
			}
			continue
		}
		folder, err := coverOne(path, links)
		if err != nil {
			return err
		}
		if folder {
			folders = append(folders, path)
		}
	}
	others, err := sockets(hidden, other, write)
	if err != nil {
		return err
	}
	for _, path := range others {
		if err := putOver(path, os.DevNull, unix.MS_BIND, ""); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	for _, path := range folders {
		if err := putOver(path, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, ""); err !=
			nil && !vanished(path, err) && !goes(path, err) {
			return err
		}
	}
	return os.Chdir(dir) // what is known by now leads past the covers
}

// coverOne puts an empty folder, with those links, over a folder, and the null device
// over a file. What is not there, or has gone meanwhile, needs no cover.
func coverOne(path string, links map[string]string) (folder bool, err error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist): // also: below what is covered by now
		return false, nil
	case errors.Is(err, os.ErrPermission) && outOfReach(path):
		return false, nil
	case err != nil:
		return false, err
	case info.IsDir():
		folder = true
		if err = putOver(path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=1m"); err == nil {
			if err = furnish(path, links); goes(path, err) {
				err = nil
			}
		}
	default:
		err = putOver(path, os.DevNull, unix.MS_BIND, "")
	}
	if vanished(path, err) { // another daemon's folder, say
		err = nil
	}
	return folder, err
}

// sortedPaths has what lies in a folder behind it, and each once.
func sortedPaths(lists ...[]string) []string {
	all := slices.Concat(lists...)
	slices.Sort(all)
	return slices.Compact(all)
}

// ways are the folders between those that may be written to and what is hidden
// in them, the upper ones first.
func (h Hidden) ways(write []string) (ways []string) {
	for _, from := range write {
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

// vanished tells that an error comes from there being nothing at a path any more. A mount may also
// fail with EINVAL where its folder is removed meanwhile.
func vanished(path string, err error) bool {
	if !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.EINVAL) {
		return false
	}
	_, err = os.Lstat(path)
	return errors.Is(err, os.ErrNotExist)
}

// goes tells that an error comes from the removal of a folder that we have covered. The cover goes
// first: nothing is mounted there then, though the folder, of no links, is still found for a moment.
func goes(path string, err error) bool {
	var s unix.Stat_t
	return (errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.EINVAL)) && unix.Lstat(path, &s) == nil && s.Nlink == 0
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

// copyMounts copies the mounts to put back; what is missing, or reached
// through a link, is left out.
func copyMounts(paths []string) (map[string]int, error) {
	taken := map[string]int{}
	for _, path := range paths {
		at, err := pinned(path)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, errLink) || errors.Is(err, unix.EACCES) {
			continue
		}
		if err != nil {
			return nil, err
		}
		fd, err := unix.OpenTree(unix.AT_FDCWD, at, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		if err != nil {
			return nil, &os.PathError{Op: "open_tree", Path: path, Err: err}
		}
		taken[path] = fd
	}
	return taken, nil
}

// restore puts back, through its cover, what was taken.
func restore(path string, fd int) error {
	var info unix.Stat_t
	if err := unix.Fstat(fd, &info); err != nil {
		return err
	}
	var err error
	if info.Mode&unix.S_IFMT == unix.S_IFDIR {
		err = os.MkdirAll(path, 0o755)
	} else if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
		var f *os.File
		if f, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644); err == nil {
			err = f.Close()
		} else if errors.Is(err, os.ErrExist) { // in an exception that was put back, and not ours to empty
			err = nil
		}
	}
	if err != nil {
		return err
	}
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return &os.PathError{Op: "cover", Path: path, Err: err}
	}
	return unix.Close(fd)
}

// setMounts gives a mount of ours, and all below it, an attribute.
func setMounts(path string, attribute uint64) error {
	attr := unix.MountAttr{Attr_set: attribute}
	if err := unix.MountSetattr(unix.AT_FDCWD, path, unix.AT_RECURSIVE|unix.AT_SYMLINK_NOFOLLOW, &attr); err != nil {
		return &os.PathError{Op: "cover", Path: path, Err: err}
	}
	return nil
}

// uncap drops what a namespace took, before the program gets it.
func uncap() error {
	return unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
}

// kept are the capabilities that root's sandbox has: those that make root the owner
// of all files and let it become others. With the rest it could read other processes'
// memory, raise limits, load code into the kernel, listen to the network's packets.
var kept = []int{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL, unix.CAP_SETGID,
	unix.CAP_SETUID,
	unix.CAP_SETPCAP, unix.CAP_SETFCAP, unix.CAP_NET_BIND_SERVICE, unix.CAP_SYS_CHROOT, unix.CAP_AUDIT_WRITE,
}

// renounce drops all others from this thread, for good, and from what it executes.
func renounce() error {
	var header unix.CapUserHeader
	var data [2]unix.CapUserData
	header.Version = unix.LINUX_CAPABILITY_VERSION_3
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	for c := range 64 {
		if slices.Contains(kept, c) || data[c/32].Permitted&(1<<(c%32)) == 0 {
			continue
		}
		// Without new privileges, nothing of the bounding set comes back: it is left
		// where this process may not change it.
		_ = unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0)
		data[c/32].Permitted &^= 1 << (c % 32)
		data[c/32].Effective &^= 1 << (c % 32)
		data[c/32].Inheritable &^= 1 << (c % 32)
	}
	if err := unix.Capset(&header, &data[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	return nil
}
