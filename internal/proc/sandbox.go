package proc

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"noused/internal/trust"
)

const (
	// neededABI is the Landlock version that a sandbox needs: the first that
	// keeps a process from truncating a file it may not write. The one before it
	// brought renames between directories, without which nothing can be built.
	neededABI = 3
	// networkABI is the first version that can keep from connecting over TCP.
	networkABI = 4
	// socketABI is the first that keeps from connecting to sockets by their path.
	socketABI = 9
	// reportTime is how long the shim has to execute the program.
	reportTime = 10 * time.Second
	maxReport  = 4 << 10
	// reportFD is where the shim finds its end of the report's pipe.
	reportFD = 3
)

// sandbox confines the processes of one [Sandbox] (tools.md §1, sandbox workdir):
// they and all they start may write only some paths and a private TMPDIR.
// Landlock restricts the process that asks and is inherited, so a shim, this
// program again, restricts itself and then executes the real one.
//
// Where the system allows it they have namespaces, in which devices, services and
// sockets of others are covered; see [cover].
//
// Out of the kernel's reach, as of Landlock ABI 9: the mode, owner, times and
// extended attributes of files that the user owns. Where the kernel offers it,
// signals and abstract sockets (ABI 6) and sockets in the file system (ABI 9)
// of processes outside are protected; tracing them is always refused. The
// network is closed by [filterCalls] and, what connects and listens over TCP, by
// Landlock, too.
type sandbox struct {
	write   []string // without links: a program is not started once one is on the way
	within  []string // of those: may lie in something hidden, as the user has named them there
	caches  *caches  // nil: it has no cache
	hidden  Hidden
	read    []string // what of it can be read
	offline bool     // the network is closed
	// cover reports whether the programs have namespaces; nil: they have not. It
	// starts a process when first asked.
	cover func() bool
}

func (b *sandbox) covers() bool { return b.cover != nil && b.cover() }

// Sandbox says what sandboxed processes may write: their workdir, what is named
// beside it, and a private TMPDIR. Where these lead is found when the sandbox is made:
// a program is not started where a link has come on the way since. What tools could
// have made a link themselves, and what a link leads from into something hidden, is
// refused. Reading is not restricted but for what is hidden, see [Supervisor.Hide],
// devices, and /run; the network only after [Supervisor.CloseNetwork].
type Sandbox struct {
	Name    string   // whose it is, for messages
	Workdir string   // absolute; nothing of it may be hidden but what lies below
	Write   []string // absolute; what may be written beside it
	// absolute, no links on the way: can be read, once they are there, although they are hidden
	Read  []string
	Cache bool // its programs have a cache, see [Supervisor.KeepCaches]
	// Fixed are those of all these that have no link on the way, not even when the
	// sandbox is made: somebody else may have put it there.
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
	box := &sandbox{hidden: s.hidden, read: b.Read, offline: s.offline}
	for _, path := range b.Read {
		box.hidden = box.hidden.Open(path)
	}
	if b.Cache {
		box.caches = s.caches
	}
	if err := box.pin(b); err != nil {
		return nil, err
	}
	home := slices.ContainsFunc(box.write, box.hidden.resolved().leadsTo)
	warn := sync.OnceFunc(func() {
		s.log.Warn("the working directory holds folders that the daemon hides from tools, and this system lets only root "+
			"hide them there: "+
			"tools can write only to the folders beside them; choose a workdir that does not hold them",
			zap.String("module", b.Name), zap.Strings("folders", box.write))
	})
	box.cover = func() bool {
		covers := s.canCover()
		if !covers && home {
			warn()
		}
		return covers
	}
	return &Supervisor{s.spawner, box}, nil
}

// pin finds what may be written, once: what is put in its place later is refused. A
// link that the sandboxed programs themselves could have made leads nowhere, and no
// link leads to what is hidden.
func (b *sandbox) pin(s Sandbox) error {
	hidden := b.hidden.resolved()
	paths := append([]string{s.Workdir}, s.Write...)
	var folders []string // real
	for _, path := range paths {
		folders = append(folders, realOf(path, s.Fixed))
	}
	for i, path := range paths {
		real := folders[i]
		if into := hidden.without(real); hidden.Covers(real) {
			named := Hidden{Paths: b.hidden.Paths, Dots: b.hidden.Dots}.Covers(filepath.Clean(path))
			switch {
			case named && !into.Covers(real):
				hidden, b.within = into, append(b.within, real)
			case named || real == path:
				return forbidden(
					"%s %s is hidden, as the daemon's own folders and those of [sandbox] hide are, which tools may not read", what(i),
					path)
			default:
				return forbidden("%s %s is a link to %s, which is hidden", what(i), path, real)
			}
		}
		if madeWithin(path, real, folders, s.Fixed) {
			return forbidden("%s %s leads through a link that tools can change to %s; name that instead", what(i), path, real)
		}
	}
	b.write = folders
	return nil
}

// what is what a sandbox has as its first path, and as others.
func what(i int) string {
	if i == 0 {
		return "the workdir"
	}
	return "the folder to write to"
}

// realOf is a path without links; a fixed one has none.
func realOf(path string, fixed []string) string {
	if slices.Contains(fixed, path) {
		return filepath.Clean(path) // were there one by now, it would not count
	}
	return Resolve(path)
}

// madeWithin reports whether a link on the way of a path lies in one of these folders,
// and does not lead to something in the same.
func madeWithin(path, real string, folders, fixed []string) bool {
	if slices.Contains(fixed, path) {
		return false
	}
	links, _ := trust.Links(path)
	for _, link := range links {
		for _, dir := range folders {
			if dir != real && inside(dir, link) && !inside(dir, real) {
				return true
			}
		}
	}
	return false
}

func forbidden(format string, args ...any) *Error {
	return &Error{Reason: fmt.Sprintf(format, args...), Forbidden: true}
}

// View tells what the processes of a sandbox can see of the file system: one that
// was started when it said something else may lack what came later, or see what
// was hidden later.
func (s *Supervisor) View() string {
	if s.box == nil {
		return ""
	}
	hidden := s.box.hidden.resolved()
	view := ""
	for _, path := range s.box.read {
		view += identity(path)
	}
	if !s.box.covers() {
		return view + hidden.view()
	}
	view += hidden.identity()
	if !slices.ContainsFunc(s.box.write, hidden.leadsTo) {
		view += hidden.view()
	}
	own, err := sockets(hidden, machine(s.box.write, gatherings()...), append([]string{s.scratch.path()}, s.box.write...))
	if err != nil {
		return view + err.Error()
	}
	return view + strings.Join(own, "\n")
}

// Confinement tells what sandboxed processes are confined with here: Landlock of which
// version, 0 for none, and whether also namespaces. It starts a process of the
// helper's.
func (s *Supervisor) Confinement() (abi int, namespaces bool) {
	abi, err := ll.LandlockGetABIVersion()
	if err != nil {
		return 0, false
	}
	return abi, s.helper != "" && s.canCover()
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
		return fmt.Sprintf(
			"the kernel's Landlock has version %d, and only from %d on can it keep a tool from truncating files", abi, neededABI)
	case abi < networkABI && offline:
		return fmt.Sprintf("the kernel's Landlock has version %d, and only from %d on (Linux 6.7) can it close the "+
			"network, as network = false in [sandbox] wants it", abi, networkABI)
	}
	return ""
}

// confine has the shim run the command, with tmp for its temporary files. empty is the folder of
// [Supervisor.StartIn] where the command starts in it, else "".
func (b *sandbox) confine(cmd *exec.Cmd, helper, tmp, empty string) {
	write, hidden := append(slices.Clip(b.write), tmp), b.hidden.resolved()
	except := append(slices.Clip(b.within), tmp)
	if Resolve(cmd.Path) == cmd.Path { // with a link, somebody else may say what it leads to
		except = append(except, cmd.Path)
	}
	// Nobody asked for the cache by name: where it cannot be, it is not missed.
	if b.caches != nil {
		if dir, err := b.caches.of(b.write[0]); err == nil {
			write, except = append(write, dir), append(except, dir)
			cmd.Env = withCache(cmd.Env, dir, hidden)
		}
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
	args := slices.Concat([]string{"noused", sandboxCommand, mode, network, empty}, write, []string{"--", cmd.Path},
		cmd.Args)
	cmd.Path, cmd.Args = helper, args
	// tmux and Java look at no TMPDIR, and in /tmp nothing can be written.
	cmd.Env = slices.Concat([]string{"TMUX_TMPDIR=" + tmp, "JAVA_TOOL_OPTIONS=-Djava.io.tmpdir=" + tmp}, cmd.Env,
		[]string{"TMPDIR=" + tmp})
	if len(hidden.Paths)+len(b.read) > 0 {
		hidden = hidden.without(except...)
		for _, path := range b.read { // where nobody hides it, the machine's covers may
			if Resolve(path) == path {
				hidden.Except = append(hidden.Except, path)
			}
		}
		cmd.Env = append(cmd.Env, HiddenVariable+"="+hidden.String())
	}
}

// closed is the shim's second argument where it is to close the network.
const closed = "closed"

// execSandboxed is the shim: COVERER NETWORK EMPTY PATH… -- PROGRAM ARGV0 ARG…. It does not return
// but with a failure, which it has reported.
func execSandboxed(args []string) int {
	if len(args) == 2 && args[0] == "probe" {
		return probe(args[1])
	}
	unix.CloseOnExec(reportFD)
	end := slices.Index(args, "--")
	if end < 3 || len(args) < end+3 {
		fmt.Fprintln(os.Stderr, "noused exec-sandboxed: started by the daemon only")
		return 2
	}
	// The thread that executes the program becomes it, and only its own
	// parent-death signal survives.
	runtime.LockOSThread()
	code := refused
	hidden := ParseHidden(os.Getenv(HiddenVariable))
	err := errors.Join(confineSelf(args[0], args[1] == closed, args[2], args[3:end], hidden), renounce(), sign(),
		lowerSignals())
	if err == nil {
		err = filterCalls(args[0] != uncovered, args[1] == closed)
	}
	if err == nil {
		code = broken
		if err = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err == nil {
			err = plain(&os.PathError{Op: "exec", Path: args[end+1], Err: unix.Exec(args[end+1], args[end+2:], os.Environ())})
		}
	}
	_, _ = unix.Write(reportFD, []byte(code+" "+err.Error()))
	return 126
}

// confineSelf restricts this process, for good, to writing to these paths, which no
// link is to lead to, and to reading files that are not hidden. Landlock only knows
// what is allowed, and with a folder all that is in it: what is not hidden is allowed
// entry by entry. The names in a hidden folder can be listed. With who, it is covered.
// Offline, it neither connects over TCP nor binds an address of it; [filterCalls] does the rest.
func confineSelf(who string, offline bool, empty string, paths []string, hidden Hidden) error {
	pins := make([]string, len(paths))
	for i, path := range paths {
		if hidden.Covers(path) {
			return fmt.Errorf("sandbox: %s is to be written to, and hidden by now", path)
		}
		var err error
		if pins[i], err = pinned(path); err != nil {
			return fmt.Errorf("sandbox: %w", err)
		}
	}
	if who == uncovered {
		hidden = hidden.and(machine(slices.Concat(hidden.Except, paths)))
	} else {
		if err := errors.Join(cover(who, hidden, paths, empty), uncap()); err != nil {
			return fmt.Errorf("sandbox: %w", err)
		}
		if slices.ContainsFunc(paths, hidden.leadsTo) {
			hidden = Hidden{}
		}
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
	if who != uncovered {
		own := config.HandledAccessFS &^ (ll.AccessFSReadFile | ll.AccessFSMakeBlock | ll.AccessFSMakeChar)
		rules = append(rules, landlock.PathAccess(onFile|ll.AccessFSIoctlDev, "/dev/tty", "/dev/pts").IgnoreIfMissing(),
			landlock.PathAccess(own, "/dev/shm"))
	}
	for _, path := range slices.Concat(services, lookups) {
		if _, err := os.Stat(path); err == nil { // it is there, and may be looked at
			rules = append(rules, landlock.PathAccess(ll.AccessFSResolveUnix, path))
		}
	}
	for i, path := range slices.Concat(paths, hidden.beneath(paths)) {
		at := path
		if i < len(paths) {
			at = pins[i]
		}
		info, err := os.Stat(at)
		if i >= len(paths) && errors.Is(err, fs.ErrNotExist) { // gone meanwhile
			continue
		}
		if err != nil {
			return fmt.Errorf("sandbox: %w", err)
		}
		if hidden.leadsTo(path) {
			continue
		}
		rights := onFile
		if info.Mode()&fs.ModeSocket != 0 { // to connect to it
			rights = ll.AccessFSResolveUnix
		}
		if info.IsDir() {
			// All there is, but for devices: no driver's ioctl, no new node.
			rights = config.HandledAccessFS &^ (ll.AccessFSReadFile | ll.AccessFSIoctlDev | ll.AccessFSMakeBlock |
				ll.AccessFSMakeChar)
		}
		rules = append(rules, landlock.PathAccess(rights, at))
	}
	if err := config.Restrict(rules...); err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	return nil
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
		return "", fmt.Errorf("%s %w by now, and leads to %s", path, errLink, real)
	}
	return at, nil
}

var errLink = errors.New("is reached through a link")

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
