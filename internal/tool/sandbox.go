package tool

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

// sandbox confines the processes of one module (tools.md §1, sandbox workdir):
// they and all they start may write only some paths and a private TMPDIR.
// Landlock restricts the process that asks and is inherited, so a shim, this
// program again, restricts itself and then executes the real one.
//
// Out of the kernel's reach, as of Landlock ABI 9: the mode, owner, times and
// extended attributes of files that the user owns. Where the kernel offers it,
// signals and abstract sockets (ABI 6) and sockets in the file system (ABI 9)
// of processes outside are protected; tracing them is always refused. Reading
// and the network are not restricted.
type sandbox struct {
	write  []string // absolute
	cache  string   // also written to where it can be had, "" for none
	hidden Hidden
	cover  bool // what is hidden, rather than leave it out of what may be read
}

// Sandboxed returns a view of the Supervisor that starts processes in the
// sandbox a descriptor asks for. An error, with code forbidden, says why that
// cannot be done.
func (s *Supervisor) Sandboxed(d *Descriptor) (*Supervisor, error) {
	abi, err := ll.LandlockGetABIVersion()
	if err != nil {
		abi = 0
	}
	box, err := sandboxFor(d, s.helper, abi, s.log)
	if err != nil {
		return nil, err
	}
	if box.hidden = s.hidden; s.hidden.resolved().Covers(Resolve(d.Workdir)) {
		if box.hidden = s.hidden.resolved(d.Workdir); box.hidden.Covers(Resolve(d.Workdir)) {
			return nil, Faultf(Forbidden, "the workdir %s is a folder of the daemon's own, which tools may not read", d.Workdir)
		}
	}
	if h := box.hidden.resolved(); slices.ContainsFunc(box.write, func(dir string) bool { return h.leadsTo(Resolve(dir)) }) {
		if box.cover = s.canCover(); !box.cover {
			s.log.Warn("the working directory holds folders that the daemon hides from tools, and this system lets only root hide them there: "+
				"tools can write only to the folders beside them; choose a workdir that does not hold them",
				zap.String("module", d.Name), zap.Strings("folders", box.write))
		}
	}
	return &Supervisor{s.nursery, box}, nil
}

// View tells what the processes of a sandbox can see of the file system: one that
// was started when it said something else may lack what came later.
func (s *Supervisor) View() string {
	if s.box == nil || s.box.cover {
		return ""
	}
	return s.box.hidden.resolved().view()
}

func sandboxFor(d *Descriptor, helper string, abi int, log *zap.Logger) (*sandbox, error) {
	switch {
	case d.Sandbox != SandboxWorkdir:
		return nil, Faultf(Forbidden, "sandbox %s is not known", d.Sandbox)
	case d.Transport.Type == "http":
		return nil, Faultf(Forbidden, "a module over http runs elsewhere and cannot be put in a sandbox")
	case helper == "":
		return nil, Faultf(Forbidden, "sandbox %s is not supported by this version", d.Sandbox)
	case abi < neededABI && d.SandboxRequired:
		return nil, Faultf(Forbidden, "%s; sandbox_required=false runs the tool without", shortcoming(abi))
	case abi < neededABI:
		log.Warn("tool runs with a weaker sandbox than it asks for", zap.String("module", d.Name),
			zap.String("reason", shortcoming(abi)))
	}
	box := &sandbox{write: append([]string{d.Workdir}, d.SandboxWrite...)}
	if len(d.SandboxWrite) == 0 {
		box.cache = cacheDir(d.Environ())
	}
	return box, nil
}

// Writable are the folders that a module in the sandbox "workdir" may write to,
// beside a temporary one.
func (d *Descriptor) Writable() []string {
	write := append([]string{d.Workdir}, d.SandboxWrite...)
	if cache := cacheDir(d.Environ()); len(d.SandboxWrite) == 0 && cache != "" {
		write = append(write, cache)
	}
	return write
}

func shortcoming(abi int) string {
	if abi < 1 {
		return "the kernel has no Landlock, or it is switched off"
	}
	return fmt.Sprintf("the kernel's Landlock has version %d, and only from %d on can it keep a tool from truncating files", abi, neededABI)
}

// cacheDir is where the XDG base directories have the user's cache, "" where
// nobody can tell.
func cacheDir(environ []string) string {
	if dir := lookup(environ, "XDG_CACHE_HOME"); filepath.IsAbs(dir) {
		return dir
	}
	if home := lookup(environ, "HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".cache")
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
	if b.cover {
		mode = coverer()
		inNamespace(cmd.SysProcAttr)
	}
	args := slices.Concat([]string{"noused", sandboxCommand, mode, tmp}, write, []string{"--", cmd.Path}, cmd.Args)
	cmd.Path, cmd.Args = helper, args
	cmd.Env = append(cmd.Env, "TMPDIR="+tmp)
	if len(b.hidden.Paths) > 0 {
		cmd.Env = append(cmd.Env, HiddenVariable+"="+b.hidden.resolved(append(b.write, tmp)...).String())
	}
}

// execSandboxed is the shim: COVERER PATH… -- PROGRAM ARGV0 ARG…. It does not return
// but with a failure, which it has reported.
func execSandboxed(args []string) int {
	if len(args) == 2 && args[0] == "probe" {
		return probe(args[1])
	}
	unix.CloseOnExec(reportFD)
	end := slices.Index(args, "--")
	if end < 1 || len(args) < end+3 {
		fmt.Fprintln(os.Stderr, "noused exec-sandboxed: started by the daemon only")
		return 2
	}
	// The thread that executes the program becomes it, and only its own
	// parent-death signal survives.
	runtime.LockOSThread()
	err := error(nil)
	code := Forbidden
	if err = sign(); err != nil {
		err = fmt.Errorf("sandbox: the daemon itself can gain no privileges, and its tools cannot be told by another sign: %w", err)
	} else if err = confineSelf(args[0], args[1:end], ParseHidden(os.Getenv(HiddenVariable))); err == nil {
		code = Unreachable
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
// The names in a hidden folder can be listed. With who, it is covered.
func confineSelf(who string, paths []string, hidden Hidden) error {
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
	config.HandledAccessNet = 0
	config.HandledAccessFS &^= reading
	rules := []landlock.Rule{landlock.PathAccess(onFile, devices...).IgnoreIfMissing()}
	if len(hidden.Paths) > 0 {
		config.HandledAccessFS |= ll.AccessFSReadFile
		rules = append(rules, landlock.PathAccess(ll.AccessFSReadFile, hidden.readable()...).IgnoreIfMissing())
	}
	for i, path := range slices.Concat(paths, hidden.beneath(paths)) {
		info, err := os.Stat(path)
		if i >= len(paths) && errors.Is(err, fs.ErrNotExist) { // gone meanwhile
			continue
		}
		if err != nil {
			return fmt.Errorf("sandbox: %w", err)
		}
		if hidden.leadsTo(Resolve(path)) {
			continue
		}
		rights := onFile
		if info.IsDir() {
			// All there is, but for devices: no driver's ioctl, no new node.
			rights = config.HandledAccessFS &^ (ll.AccessFSReadFile | ll.AccessFSIoctlDev | ll.AccessFSMakeBlock | ll.AccessFSMakeChar)
		}
		rules = append(rules, landlock.PathAccess(rights, path))
	}
	if err := config.Restrict(rules...); err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	return nil
}

// readReport returns what the shim has to say: nothing, once it has become the
// program. It closes the pipe.
func readReport(r *os.File) *Fault {
	defer r.Close()
	r.SetReadDeadline(time.Now().Add(reportTime))
	text, err := io.ReadAll(io.LimitReader(r, maxReport))
	if err != nil {
		return Faultf(Unreachable, "the sandbox was not ready within %v: %v", reportTime, err)
	}
	if len(text) == 0 {
		return nil
	}
	code, message, _ := strings.Cut(string(text), " ")
	return &Fault{Code: code, Message: message}
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
