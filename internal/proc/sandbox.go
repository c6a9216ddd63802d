package proc

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

const (
	// neededABI is the Landlock version that a sandbox needs: the first that
	// keeps a process from truncating a file it may not write. The one before it
	// brought renames between directories, without which nothing can be built.
	neededABI = 3
	// networkABI is the first version that can close TCP.
	networkABI = 4
	// reportTime is how long the shim has to execute the program.
	reportTime = 10 * time.Second
	maxReport  = 4 << 10
	// reportFD is where the shim finds its end of the report's pipe.
	reportFD = 3
)

// devices can be written by everybody and keep nothing. Not among them:
// terminals, which are the user's, and /dev/shm, which is shared with every
// other program; sandbox_write can name them.
var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}

// sandbox confines the processes of one [Sandbox] (tools.md §1, sandbox workdir):
// they and all they start may write only some paths and a private TMPDIR.
// Landlock restricts the process that asks and is inherited, so a shim, this
// program again, restricts itself and then executes the real one.
//
// Out of the kernel's reach, as of Landlock ABI 9: the mode, owner, times and
// extended attributes of files that the user owns. Where the kernel offers it,
// signals and abstract sockets (ABI 6) and sockets in the file system (ABI 9)
// of processes outside are protected; tracing them is always refused. UDP and
// sockets in the file system stay open where TCP is closed.
type sandbox struct {
	write   []string // absolute
	fixed   []string // of those: to be reached without any link
	cache   string   // also written to where it can be had, "" for none
	hidden  Hidden
	offline bool // TCP is closed
	// cover reports whether what is hidden is covered, rather than left out of
	// what may be read; nil: it is not. It starts a process when first asked.
	cover func() bool
}

func (b *sandbox) covers() bool { return b.cover != nil && b.cover() }

// Sandbox says what sandboxed processes may write: their workdir, what is named
// beside it, and a private TMPDIR. Reading is not restricted but for what is
// hidden, see [Supervisor.Hide], and TCP only after [Supervisor.CloseNetwork].
type Sandbox struct {
	Name    string   // whose it is, for messages
	Workdir string   // absolute; nothing of it may be hidden but what lies below
	Write   []string // absolute; what may be written beside it
	Cache   string   // also written to where it can be had, "" for none
	// Fixed are those of all these that have no link on the way. One that has one when
	// a program starts is refused: somebody else may have put it there.
	Fixed []string
	// Weak accepts what a kernel can do that cannot do all of it.
	Weak bool
}

// Sandboxed returns a view of the Supervisor that starts processes in a sandbox.
// An *[Error], forbidden, says why that cannot be done.
func (s *Supervisor) Sandboxed(b Sandbox) (*Supervisor, error) {
	abi, err := ll.LandlockGetABIVersion()
	if err != nil {
		abi = 0
	}
	if err := b.possible(s.helper, abi, s.offline, s.log); err != nil {
		return nil, err
	}
	box := &sandbox{write: append([]string{b.Workdir}, b.Write...), fixed: b.Fixed, cache: b.Cache, offline: s.offline}
	if box.hidden = s.hidden; s.hidden.resolved().Covers(box.real(b.Workdir)) {
		if box.hidden = s.hidden.resolved().without(box.real(b.Workdir)); box.hidden.Covers(box.real(b.Workdir)) {
			return nil, forbidden("the workdir %s is hidden, as the daemon's own folders and those of [sandbox] hide are, which tools may not read", b.Workdir)
		}
	}
	if h := box.hidden.resolved(); slices.ContainsFunc(box.write, func(dir string) bool { return h.leadsTo(box.real(dir)) }) {
		box.cover = sync.OnceValue(func() bool {
			if s.canCover() {
				return true
			}
			s.log.Warn("the working directory holds folders that the daemon hides from tools, and this system lets only root hide them there: "+
				"tools can write only to the folders beside them; choose a workdir that does not hold them",
				zap.String("module", b.Name), zap.Strings("folders", box.write))
			return false
		})
	}
	return &Supervisor{s.nursery, box}, nil
}

// real is one of the sandbox's paths without links.
func (b *sandbox) real(path string) string {
	if slices.Contains(b.fixed, path) {
		return path // were there one by now, it would not count
	}
	return Resolve(path)
}

func forbidden(format string, args ...any) *Error {
	return &Error{Reason: fmt.Sprintf(format, args...), Forbidden: true}
}

// View tells what the processes of a sandbox can see of the file system: one that
// was started when it said something else may lack what came later, or see what
// was hidden later.
func (s *Supervisor) View() string {
	switch {
	case s.box == nil:
		return ""
	case s.box.covers():
		return s.box.hidden.resolved().identity()
	}
	return s.box.hidden.resolved().view()
}

// possible tells why a sandbox cannot be had of a kernel with that version of
// Landlock.
func (b Sandbox) possible(helper string, abi int, offline bool, log *zap.Logger) error {
	lack := shortcoming(abi, offline)
	switch {
	case helper == "":
		return forbidden("sandbox workdir is not supported by this version")
	case lack != "" && !b.Weak:
		return &Error{Reason: lack, Forbidden: true, Weak: true}
	case lack != "":
		log.Warn("tool runs with a weaker sandbox than it asks for", zap.String("module", b.Name),
			zap.String("reason", lack))
	}
	return nil
}

// shortcoming is what such a kernel cannot do of a sandbox, "" where it can do all
// of it.
func shortcoming(abi int, offline bool) string {
	switch {
	case abi < 1:
		return "the kernel has no Landlock, or it is switched off"
	case abi < neededABI:
		return fmt.Sprintf("the kernel's Landlock has version %d, and only from %d on can it keep a tool from truncating files", abi, neededABI)
	case abi < networkABI && offline:
		return fmt.Sprintf("the kernel's Landlock has version %d, and only from %d on (Linux 6.7) can it close the network, as network = false in [sandbox] wants it", abi, networkABI)
	}
	return ""
}

// confine has the shim run the command, with tmp for its temporary files.
func (b *sandbox) confine(cmd *exec.Cmd, helper, tmp string) {
	write := slices.Clip(b.write)
	// Nobody asked for the cache by name: where it cannot be, it is not missed.
	if b.cache != "" && os.MkdirAll(b.cache, 0o700) == nil {
		write = append(write, b.cache)
	}
	mode := uncovered
	if b.covers() {
		mode = coverer()
		inNamespace(cmd.SysProcAttr)
	}
	network := "open"
	if b.offline {
		network = closed
	}
	args := []string{"noused", sandboxCommand, mode, network, tmp}
	except := []string{Resolve(tmp)}
	for _, path := range write {
		except = append(except, b.real(path))
		if slices.Contains(b.fixed, path) {
			path = fixedMark + path
		}
		args = append(args, path)
	}
	args = slices.Concat(args, []string{"--", cmd.Path}, cmd.Args)
	cmd.Path, cmd.Args = helper, args
	cmd.Env = append(cmd.Env, "TMPDIR="+tmp)
	if len(b.hidden.Paths) > 0 {
		cmd.Env = append(cmd.Env, HiddenVariable+"="+b.hidden.resolved().without(except...).String())
	}
}

// fixedMark is before a path that is to be reached without a link.
const fixedMark = "="

// closed is the shim's second argument where it is to close TCP.
const closed = "closed"

// execSandboxed is the shim: COVERER NETWORK [=]PATH… -- PROGRAM ARGV0 ARG…. It does not return
// but with a failure, which it has reported.
func execSandboxed(args []string) int {
	if len(args) == 2 && args[0] == "probe" {
		return probe(args[1])
	}
	unix.CloseOnExec(reportFD)
	end := slices.Index(args, "--")
	if end < 2 || len(args) < end+3 {
		fmt.Fprintln(os.Stderr, "noused exec-sandboxed: started by the daemon only")
		return 2
	}
	// The thread that executes the program becomes it, and only its own
	// parent-death signal survives.
	runtime.LockOSThread()
	err := error(nil)
	code := refused
	if err = sign(); err != nil {
		err = fmt.Errorf("sandbox: the daemon itself can gain no privileges, and its tools cannot be told by another sign: %w", err)
	} else if err = errors.Join(confineSelf(args[0], args[1] == closed, args[2:end], ParseHidden(os.Getenv(HiddenVariable))), renounce()); err == nil {
		code = broken
		if err = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err == nil {
			err = plain(&os.PathError{Op: "exec", Path: args[end+1], Err: unix.Exec(args[end+1], args[end+2:], os.Environ())})
		}
	}
	_, _ = unix.Write(reportFD, []byte(code+" "+err.Error()))
	return 126
}

// confineSelf restricts this process, for good, to writing to these paths, and
// to reading files that are not hidden. Landlock only knows what is allowed, and
// with a folder all that is in it: what is not hidden is allowed entry by entry.
// The names in a hidden folder can be listed. With who, it is covered. Offline, it
// neither connects nor listens over TCP.
func confineSelf(who string, offline bool, paths []string, hidden Hidden) error {
	paths, fixed := unmarked(paths)
	if who != uncovered {
		if err := errors.Join(cover(who, hidden, paths), uncap()); err != nil {
			return fmt.Errorf("sandbox: %w", err)
		}
		hidden = Hidden{}
	}

	const (
		reading = ll.AccessFSExecute | ll.AccessFSReadFile | ll.AccessFSReadDir
		onFile  = landlock.AccessFSSet(ll.AccessFSWriteFile | ll.AccessFSTruncate)
	)
	config := landlock.V9.BestEffort()
	if !offline {
		config.HandledAccessNet = 0
	}
	config.HandledAccessFS &^= reading
	rules := []landlock.Rule{landlock.PathAccess(onFile, devices...).IgnoreIfMissing()}
	if len(hidden.Paths) > 0 {
		config.HandledAccessFS |= ll.AccessFSReadFile
		rules = append(rules, landlock.PathAccess(ll.AccessFSReadFile, hidden.readable()...).IgnoreIfMissing())
	}
	for i, path := range slices.Concat(paths, hidden.beneath(paths)) {
		at, real := path, Resolve(path)
		if i < len(paths) && fixed[i] {
			var err error
			if at, err = pinned(path); err != nil {
				return fmt.Errorf("sandbox: %w", err)
			}
			real = path
		}
		info, err := os.Stat(at)
		if i >= len(paths) && errors.Is(err, fs.ErrNotExist) { // gone meanwhile
			continue
		}
		if err != nil {
			return fmt.Errorf("sandbox: %w", err)
		}
		if hidden.leadsTo(real) {
			continue
		}
		rights := onFile
		if info.IsDir() {
			// All there is, but for devices: no driver's ioctl, no new node.
			rights = config.HandledAccessFS &^ (ll.AccessFSReadFile | ll.AccessFSIoctlDev | ll.AccessFSMakeBlock | ll.AccessFSMakeChar)
		}
		rules = append(rules, landlock.PathAccess(rights, at))
	}
	if err := config.Restrict(rules...); err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	return nil
}

// unmarked are the shim's paths, and which of them are to be reached without a link.
func unmarked(marked []string) (paths []string, fixed []bool) {
	for _, path := range marked {
		path, mark := strings.CutPrefix(path, fixedMark)
		paths, fixed = append(paths, path), append(fixed, mark)
	}
	return paths, fixed
}

// pinned names what is at a path for as long as this process does not execute
// another program, whatever is put there meanwhile. The error says that a link is on
// the way.
func pinned(path string) (string, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", &os.PathError{Op: "open", Path: path, Err: err}
	}
	at := fmt.Sprintf("/proc/self/fd/%d", fd)
	switch real, err := os.Readlink(at); {
	case err != nil:
		return "", err
	case real != path:
		return "", fmt.Errorf("%s is reached through a link by now, and leads to %s", path, real)
	}
	return at, nil
}

// How a report begins.
const (
	refused = "forbidden"   // the sandbox cannot be had
	broken  = "unreachable" // the program cannot be executed
)

// readReport returns what the shim has to say: nothing, once it has become the
// program. It closes the pipe.
func readReport(r *os.File) *Error {
	defer r.Close()
	r.SetReadDeadline(time.Now().Add(reportTime))
	text, err := io.ReadAll(io.LimitReader(r, maxReport))
	if err != nil {
		return &Error{Reason: fmt.Sprintf("the sandbox was not ready within %v: %v", reportTime, err)}
	}
	if len(text) == 0 {
		return nil
	}
	code, reason, _ := strings.Cut(string(text), " ")
	return &Error{Reason: reason, Forbidden: code == refused}
}

// removeAll is os.RemoveAll for a tree whose owner may have locked parts of it.
func removeAll(dir string) error {
	err := os.RemoveAll(dir)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	_ = os.Chmod(dir, 0o700)
	root, e := os.OpenRoot(dir) // so that no link leads out of it
	if e != nil {
		return err
	}
	defer root.Close()
	_ = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			_ = root.Chmod(path, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}
