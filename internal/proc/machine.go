package proc

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// devices can be read and written by everybody and keep nothing. No others are
// there for sandboxed programs but what [Sandbox].Write names, and, in a namespace,
// terminals and shared memory of their own. Terminals of the outside have what the
// user types.
var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}

// services are what is left of /run: names of hosts and users are looked up there,
// NixOS has its programs there, and removable disks are mounted there.
var services = []string{
	"/run/systemd/resolve", "/run/systemd/userdb", "/run/nscd", "/run/media",
	"/run/current-system", "/run/booted-system", "/run/opengl-driver", "/run/opengl-driver-32", "/run/wrappers",
}

// lookups are the sockets outside of /run by which names of users are looked up.
var lookups = []string{"/var/lib/sss/pipes/nss"}

// machine is what of the machine sandboxed programs that may write to these paths
// do not see: devices, the running services of system and user, and these folders.
func machine(write []string, folders ...string) Hidden {
	h := Hidden{Paths: append(folders, "/dev", "/run")}
	if real := Resolve("/var/run"); !inside("/run", real) {
		h.Paths = append(h.Paths, real)
	}
	left := slices.Concat(devices, services, write)
	if dir := filepath.Dir(Resolve("/etc/resolv.conf")); dir != "/run" {
		left = append(left, dir)
	}
	return h.without(left...)
}

// and is h with what o hides, too.
func (h Hidden) and(o Hidden) Hidden {
	h.Paths, h.Except = slices.Concat(h.Paths, o.Paths), slices.Concat(h.Except, o.Except)
	return h
}

// gatherings are folders in which programs of the user's put sockets and nothing
// else. They are covered as a whole, so that what comes later is, too.
func gatherings() (dirs []string) {
	agents, _ := filepath.Glob("/tmp/ssh-*")
	for _, dir := range append(agents, tmuxFolder(), fmt.Sprintf("/tmp/noused-%d", os.Geteuid()), "/tmp/.X11-unix",
		"/tmp/.ICE-unix", "/tmp/.XIM-unix", "/tmp/.font-unix") {
		if info, err := os.Lstat(dir); err == nil && info.IsDir() { // no link, which may be somebody's
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// temporary is what others keep in the folder for temporary files that is theirs alone:
// what all programs in sandboxes have there, but for what is written to, and tickets of
// Kerberos.
func temporary(write []string) (paths []string) {
	for _, path := range write {
		if dir := filepath.Dir(path); strings.HasPrefix(filepath.Base(dir), scratchPrefix) {
			all, _ := os.ReadDir(filepath.Dir(dir))
			for _, e := range all {
				if e.IsDir() && strings.HasPrefix(e.Name(), scratchPrefix) {
					paths = append(paths, filepath.Join(filepath.Dir(dir), e.Name()))
				}
			}
		}
	}
	tickets, _ := filepath.Glob(fmt.Sprintf("/tmp/krb5cc_%d*", os.Geteuid()))
	for _, path := range tickets {
		if info, err := os.Lstat(path); err == nil && (info.IsDir() || info.Mode().IsRegular()) {
			paths = append(paths, path)
		}
	}
	return paths
}

func tmuxFolder() string { return fmt.Sprintf("/tmp/tmux-%d", os.Geteuid()) }

// furnish puts into the covered /dev or /run what a program finds there beside the
// exceptions.
func furnish(dir string, links map[string]string) error {
	for path, to := range links {
		if filepath.Dir(path) == dir {
			if err := os.Symlink(to, path); err != nil {
				return err
			}
		}
	}
	if dir != "/dev" {
		return nil
	}
	for path, to := range map[string]string{
		"/dev/fd": "/proc/self/fd", "/dev/stdin": "/proc/self/fd/0", "/dev/stdout": "/proc/self/fd/1",
		"/dev/stderr": "/proc/self/fd/2",
		"/dev/ptmx":   "pts/ptmx",
	} {
		if err := os.Symlink(to, path); err != nil {
			return err
		}
	}
	if err := errors.Join(os.Mkdir("/dev/pts", 0o755), os.Mkdir("/dev/shm", 0o755)); err != nil {
		return err
	}
	return errors.Join(
		mountNew("devpts", "/dev/pts", "newinstance,ptmxmode=0666,mode=0620"),
		mountNew("tmpfs", "/dev/shm", "mode=1777,size=64m"),
	)
}

// linksOf are those of the services that are links.
func linksOf(paths []string) map[string]string {
	links := map[string]string{}
	for _, path := range paths {
		if to, err := os.Readlink(path); err == nil {
			links[path] = to
		}
	}
	return links
}

func mountNew(kind, on, data string) error {
	if err := unix.Mount(kind, on, kind, unix.MS_NOSUID|unix.MS_NOEXEC, data); err != nil {
		return &os.PathError{Op: "mount " + kind, Path: on, Err: err}
	}
	return nil
}

// maxSockets is how many sockets of others can be covered.
const maxSockets = 4096

// sockets are the sockets in the file system that somebody listens on, and that
// neither the machine's covers hide nor are for a program that may write to these
// paths. Those in a folder of these are, unless that has something hidden below it,
// as the home has: its sockets are the user's. A socket that was made by a relative
// path cannot be found.
func sockets(hidden, machine Hidden, write []string) (paths []string, err error) {
	f, err := os.Open("/proc/net/unix")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	open := slices.DeleteFunc(slices.Concat(services, lookups, write), hidden.leadsTo)
	seen := map[string]bool{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		path := socketPath(lines.Text())
		if path == "" || seen[path] || machine.Covers(path) {
			continue
		}
		seen[path] = true
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrPermission) && !outOfReach(path) { // or it has gone meanwhile, with its folder
			info, err = os.Lstat(path)
		}
		switch {
		case errors.Is(err, fs.ErrPermission) && !outOfReach(path):
			return nil, err
		case err != nil || info.Mode()&os.ModeSocket == 0:
			continue
		}
		if path = Resolve(path); machine.Covers(path) {
			continue
		}
		if slices.ContainsFunc(open, func(dir string) bool { return inside(dir, path) }) {
			continue
		}
		if paths = append(paths, path); len(paths) > maxSockets {
			return nil, fmt.Errorf("/proc/net/unix has more than %d sockets that are to be covered", maxSockets)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths), lines.Err()
}

// socketPath is the absolute path in a line of /proc/net/unix, "" for none:
// Num RefCount Protocol Flags Type St Inode Path.
func socketPath(line string) string {
	const listening, datagrams = "00010000", "0002"
	fields := strings.Fields(line)
	if len(fields) < 8 || !strings.HasPrefix(fields[7], "/") || fields[3] != listening && fields[4] != datagrams {
		return ""
	}
	_, path, _ := strings.Cut(line, " /") // it may have spaces
	return filepath.Clean("/" + path)
}
