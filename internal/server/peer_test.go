package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"noused/internal/protocol"
	"noused/internal/testenv"
)

// What makes the test binary another process, and what it is told then.
const (
	modeVar   = "SERVER_TEST_MODE"
	socketVar = "SERVER_TEST_SOCKET"
	triesVar  = "SERVER_TEST_TRIES"
)

// self is what the fakes start: again this binary, without the race detector.
func self() string { return testenv.Self() }

// fakes are the processes that the test binary can be.
var fakes = map[string]func() int{
	"daemon":  fakeDaemon,
	"limited": func() int { limit(5_000_000); return again("daemon") },
	"boxed":   func() int { limit(ownLocks() - 1); return again(os.Getenv(wayVar)) },
	"leave":   func() int { return abandon("boxed") },
	"inside":  judge,
	"outside": func() int { // another sandbox
		limit(5_000_000)
		cmd := exec.Command(self())
		cmd.Env = append(os.Environ(), modeVar+"=inside")
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		check(cmd.Run())
		return 0
	},
	"equal":    func() int { limit(5_000_000); return judgeFiltered() },
	"filtered": func() int { filterNothing(); return again("idle") },
	"idle":     func() int { fmt.Println("ready"); _, _ = os.Stdin.Read(make([]byte, 1)); return 0 },
	"raise":    func() int { limit(ownLocks() - 1); return raise() },
}

func init() {
	for name, way := range ways {
		fakes[name] = func() int { return try(way) }
	}
}

// What it is told besides.
const (
	startVar = "SERVER_TEST_START" // the fake that the daemon starts
	wayVar   = "SERVER_TEST_WAY"   // how a tool tries to get in

	namespaceVar = "SERVER_TEST_NAMESPACE"
)

// ways are how a tool in a sandbox may try to get in. Each returns a descriptor
// that something has connected to the socket.
var ways = map[string]func() int{
	"it connects":                     func() int { fd := stream(); connect(fd); return fd },
	"its child connects and ends":     func() int { fd := stream(); reap(fork(connect, fd)); return fd },
	"its child connects and executes": func() int { return unreaped(connectAndExecute) },
	"its child is a zombie":           func() int { return unreaped(connect) },
	"an orphan connects and ends":     func() int { fd := stream(); reap(fork(orphan, fd)); hear(); return fd },
	"an orphan connects and stays":    func() int { fd := stream(); reap(fork(stayingOrphan, fd)); hear(); return fd },
	"its child hands a connection on": func() int {
		fd := stream()
		rights = unix.UnixRights(fd)
		reap(fork(connectAndSend, fd))
		unix.Close(fd)
		oob := make([]byte, unix.CmsgSpace(4))
		_, n, _, _, err := unix.Recvmsg(rendezvous[0], make([]byte, 1), oob, unix.MSG_CMSG_CLOEXEC)
		check(err)
		messages, err := unix.ParseSocketControlMessage(oob[:n])
		check(err)
		fds, err := unix.ParseUnixRights(&messages[0])
		check(err)
		return fds[0]
	},
}

// What a forked child needs: it has one thread, and may do nothing but system
// calls: not even be asked to let another goroutine run, hence nosplit.
var (
	address    unix.RawSockaddrUnix
	program    *byte
	nothing    [1]*byte
	rights     []byte
	one        [1]byte
	rendezvous [2]int // what the child hands on
	told       [2]int // a byte of it says that an orphan has connected
	stay       [2]int // an orphan stays until it is closed
	zombies    []int
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func stream() int {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	check(err)
	return fd
}

func hear() {
	for {
		if _, err := unix.Read(told[0], make([]byte, 1)); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

//go:norace
//go:nosplit
func raw(call, a, b, c uintptr) uintptr {
	r, _, _ := unix.RawSyscall6(call, a, b, c, 0, 0, 0)
	return r
}

//go:norace
//go:nosplit
func connect(fd int) {
	raw(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&address)), unsafe.Sizeof(address))
}

//go:norace
//go:nosplit
func connectAndExecute(fd int) {
	connect(fd)
	raw(unix.SYS_EXECVE, uintptr(unsafe.Pointer(program)), uintptr(unsafe.Pointer(&nothing)),
		uintptr(unsafe.Pointer(&nothing)))
}

//go:norace
//go:nosplit
func connectAndSend(fd int) {
	connect(fd)
	iov := unix.Iovec{Base: &one[0], Len: 1}
	msg := unix.Msghdr{Iov: &iov, Iovlen: 1, Control: &rights[0], Controllen: uint64(len(rights))}
	raw(unix.SYS_SENDMSG, uintptr(rendezvous[1]), uintptr(unsafe.Pointer(&msg)), 0)
}

//go:norace
//go:nosplit
func orphan(fd int) {
	if raw(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0) != 0 {
		return
	}
	raw(unix.SYS_SETSID, 0, 0, 0)
	connect(fd)
	raw(unix.SYS_WRITE, uintptr(told[1]), uintptr(unsafe.Pointer(&one)), 1)
}

//go:norace
//go:nosplit
func stayingOrphan(fd int) {
	if raw(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0) != 0 {
		return
	}
	raw(unix.SYS_CLOSE, uintptr(stay[1]), 0, 0)
	raw(unix.SYS_SETSID, 0, 0, 0)
	connect(fd)
	raw(unix.SYS_WRITE, uintptr(told[1]), uintptr(unsafe.Pointer(&one)), 1)
	raw(unix.SYS_READ, uintptr(stay[0]), uintptr(unsafe.Pointer(&one)), 1)
}

// fork returns the child, which does something and ends.
//
//go:norace
//go:nosplit
func fork(do func(int), fd int) int {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pid := raw(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0)
	if pid == 0 {
		do(fd)
		raw(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	return int(pid)
}

func reap(pid int) {
	for {
		if _, err := unix.Wait4(pid, nil, 0, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

func unreaped(do func(int)) int {
	fd := stream()
	pid := fork(do, fd)
	zombies = append(zombies, pid)
	for errors.Is(unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
	return fd
}

// try tries to get in, and says how often it did, and connected.
func try(way func() int) int {
	path := os.Getenv(socketVar)
	address.Family = unix.AF_UNIX
	for i := range len(path) {
		address.Path[i] = int8(path[i])
	}
	program, _ = unix.BytePtrFromString("/bin/true")
	rendezvous, _ = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	check(unix.Pipe(told[:]))
	tries, err := strconv.Atoi(os.Getenv(triesVar))
	check(err)
	in, connected := 0, 0
	for range tries {
		check(unix.Pipe(stay[:]))
		fd := way()
		if speaks(fd, &connected) {
			in++
		}
		for _, fd := range []int{fd, stay[0], stay[1]} {
			unix.Close(fd)
		}
		for _, pid := range zombies {
			reap(pid)
		}
		zombies = nil
	}
	fmt.Println("result", in, connected)
	return 0
}

// speaks reports whether a command is answered. It counts the connections that
// could be made.
func speaks(fd int, connected *int) bool {
	if _, err := unix.Getpeername(fd); err == nil {
		*connected++
	}
	const ping = `{"v":"1","id":"1","type":"ping","payload":{}}` + "\n"
	for sent := 0; sent < len(ping); {
		n, err := unix.SendmsgN(fd, []byte(ping[sent:]), nil, nil, unix.MSG_NOSIGNAL)
		if err != nil && !errors.Is(err, unix.EINTR) {
			break
		}
		sent += max(n, 0)
	}
	for {
		n, err := unix.Read(fd, make([]byte, 1024))
		if !errors.Is(err, unix.EINTR) {
			return n > 0
		}
	}
}

func ownLocks() uint64 {
	var own unix.Rlimit
	check(unix.Getrlimit(unix.RLIMIT_LOCKS, &own))
	return own.Max
}

// limit sets the hard limit by which a sandbox is told: what the shim of package proc
// does, one below the daemon's. It gives away what could raise it again.
func limit(locks uint64) {
	check(unix.Setrlimit(unix.RLIMIT_LOCKS, &unix.Rlimit{Max: locks}))
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_RESOURCE, 0, 0, 0)
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	check(unix.Capget(&header, &data[0]))
	data[0].Permitted &^= 1 << unix.CAP_SYS_RESOURCE
	data[0].Effective &^= 1 << unix.CAP_SYS_RESOURCE
	check(unix.Capset(&header, &data[0]))
}

// judge says, from a sandbox in a sandbox's limit, who of these it takes for sandboxed:
// the process that started it, which has the same limit and is outside, one of its
// own, and one of its own with a lower limit.
func judge() int {
	runtime.LockOSThread() // each thread gets a sandbox of its own, which the others are not in
	check(landlock.V1.RestrictPaths(landlock.RODirs("/"), landlock.RWFiles("/dev/null")))
	start := func(locks uint64) int {
		pid, _ := idle("idle")
		check(unix.Prlimit(pid, unix.RLIMIT_LOCKS, &unix.Rlimit{Max: locks}, nil))
		return pid
	}
	var said []string
	for _, pid := range []int{os.Getppid(), start(ownLocks()), start(ownLocks() - 1)} {
		boxed, err := sandboxed(pid)
		said = append(said, fmt.Sprint(boxed, err))
	}
	fmt.Println(strings.Join(said, ", "))
	return 0
}

// judgeFiltered says, from no sandbox but with a limit of its own, who of these it takes
// for sandboxed: a process with the same limit, and one with a filter of system calls
// as well, as a tool has that has lowered its limit to this one.
func judgeFiltered() int {
	var said []string
	for _, mode := range []string{"idle", "filtered"} {
		pid, end := idle(mode)
		boxed, err := sandboxed(pid)
		said = append(said, fmt.Sprint(boxed, err))
		end()
	}
	fmt.Println(strings.Join(said, ", "))
	return 0
}

// idle starts a fake that waits for its end, which is that of this process at the latest,
// and waits until it is what it is to be.
func idle(mode string) (pid int, end func()) {
	cmd := exec.Command(self())
	cmd.Env = append(os.Environ(), modeVar+"="+mode)
	stdin, err := cmd.StdinPipe()
	check(err)
	stdout, err := cmd.StdoutPipe()
	check(err)
	check(cmd.Start())
	_, err = bufio.NewReader(stdout).ReadString('\n')
	check(err)
	return cmd.Process.Pid, func() { check(stdin.Close()); check(cmd.Wait()) }
}

// filterNothing has a filter of system calls that allows all.
func filterNothing() {
	runtime.LockOSThread() // which executes what comes next
	check(unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
	filter := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}
	check(unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER,
		uintptr(unsafe.Pointer(&unix.SockFprog{Len: 1, Filter: &filter})), 0, 0))
}

// raise tries to be rid of the limit, as itself and as root of a user namespace.
func raise() int {
	if os.Getenv(namespaceVar) == "" {
		cmd := exec.Command(self())
		cmd.Env = append(os.Environ(), namespaceVar+"=1")
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		}
		if cmd.Run() == nil {
			return 0
		} // else: namespaces are not to be had
	}
	free := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	_ = unix.Setrlimit(unix.RLIMIT_LOCKS, &free)
	_ = unix.Prlimit(os.Getppid(), unix.RLIMIT_LOCKS, &free, nil)
	return again(os.Getenv(wayVar))
}

// again becomes another fake.
func again(mode string) int {
	_ = os.Setenv(modeVar, mode)
	panic(unix.Exec(self(), []string{mode}, os.Environ()))
}

// abandon starts a fake in a session of its own and ends.
func abandon(mode string) int {
	cmd := exec.Command(self())
	cmd.Env = append(os.Environ(), modeVar+"="+mode)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	return 0
}

// fakeDaemon serves the socket and runs a tool with nothing but our own
// variables, until that has said how it ended.
func fakeDaemon() int {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	path := filepath.Join(os.TempDir(), "s")
	sockets, err := Listen(path)
	if err != nil {
		panic(err)
	}
	defer sockets.Close()
	mux := new(protocol.Mux)
	protocol.HandleFunc(mux, protocol.Ping, func(ctx context.Context, _ protocol.PingParams) (protocol.Pong, error) {
		// Anyone who is served here is a tool, and must not pass for a person.
		if who, known := protocol.CallerOf(ctx); !known || !who.Descendant || who.UID != os.Getuid() {
			fmt.Fprintf(os.Stderr, "%+v is taken for a person\n", who)
			os.Exit(1)
		}
		return protocol.Pong{Message: "pong"}, nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- ServeCommands(ctx, sockets.Commands, mux, Lines{Max: maxLine}, zap.NewNop()) }()
	r, w, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	if os.Getenv(startVar) == "" { // anyone who comes is another daemon's
		fmt.Println("ready", path)
		_, _ = os.Stdin.Read(make([]byte, 1))
		cancel()
		<-done
		return 0
	}
	cmd := exec.Command(self())
	cmd.Stdout, cmd.Stderr = w, os.Stderr
	cmd.Env = []string{modeVar + "=" + os.Getenv(startVar), socketVar + "=" + path}
	for _, name := range []string{wayVar, triesVar, "GORACE"} {
		cmd.Env = append(cmd.Env, name+"="+os.Getenv(name))
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	w.Close()
	for lines := bufio.NewScanner(r); lines.Scan(); {
		if fmt.Println(lines.Text()); strings.HasPrefix(lines.Text(), "result") {
			break
		}
	}
	_ = cmd.Wait()
	cancel()
	<-done
	return 0
}

// attack runs a daemon and a tool of its, in a process that is started so, and
// returns how many of the tries got in, and could connect.
func attack(t *testing.T, daemon, start, way string, tries, uid int) (in, connected int) {
	t.Helper()
	cmd := as(t, uid)
	cmd.Env = append(cmd.Env, modeVar+"="+daemon, startVar+"="+start, wayVar+"="+way, triesVar+"="+strconv.Itoa(tries))
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return result(t, out)
}

// other says that the tool that attacks is another daemon's.
const other = ""

// attackOther is attack by a tool of another daemon: of this process.
func attackOther(t *testing.T, start, way string, tries, uid int) (in, connected int) {
	t.Helper()
	daemon := as(t, uid)
	daemon.Env = append(daemon.Env, modeVar+"=daemon", startVar+"=")
	stdin, err := daemon.StdinPipe()
	check(err)
	stdout, err := daemon.StdoutPipe()
	check(err)
	check(daemon.Start())
	defer func() {
		_ = stdin.Close()
		_ = daemon.Wait()
	}()
	var path string
	if _, err := fmt.Fscanf(stdout, "ready %s\n", &path); err != nil {
		t.Fatal(err)
	}
	tool := as(t, uid)
	tool.Env = append(tool.Env, modeVar+"="+start, wayVar+"="+way, socketVar+"="+path, triesVar+"="+strconv.Itoa(tries))
	out, err := tool.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return result(t, out)
}

// as is a fake of a user's, with a temporary folder.
func as(t *testing.T, uid int) *exec.Cmd {
	t.Helper()
	dir, err := os.MkdirTemp("", "peer")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chown(dir, uid, uid); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self())
	cmd.Env = []string{"TMPDIR=" + dir, "GORACE=" + os.Getenv("GORACE")}
	cmd.Dir, cmd.Stderr = "/", os.Stderr
	if uid != os.Getuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	return cmd
}

func result(t *testing.T, out []byte) (in, connected int) {
	t.Helper()
	if _, err := fmt.Sscanf(string(out), "result %d %d", &in, &connected); err != nil {
		t.Fatalf("%v: %q", err, out)
	}
	return in, connected
}

// users are who the daemon is in a test: ourselves, and as root an ordinary
// user, too.
func users() map[string]int {
	if os.Getuid() == 0 {
		return map[string]int{"root": 0, "an ordinary user": 54321}
	}
	return map[string]int{"an ordinary user": os.Getuid()}
}

func TestNoToolInASandboxGetsIn(t *testing.T) {
	tries := testenv.Tries(1000)
	for user, uid := range users() {
		try := func(name, daemon, start, way string) {
			t.Run(user+", "+name+"/"+way, func(t *testing.T) {
				t.Parallel()
				var in, connected int
				if daemon == other {
					in, connected = attackOther(t, start, way, tries, uid)
				} else {
					in, connected = attack(t, daemon, start, way, tries, uid)
				}
				if in != 0 {
					t.Errorf("%d of %d got in", in, tries)
				}
				t.Logf("%d of %d got in, %d connected", in, tries, connected)
			})
		}
		for way := range ways {
			try("", "daemon", "boxed", way)
			try("left by its parent", "daemon", "leave", way)
			try("of another daemon", other, "boxed", way)
			try("of another daemon, left by its parent", other, "leave", way)
		}
		try("of a daemon with a limit", "limited", "boxed", "it connects")
		try("that raises its limits", "daemon", "raise", "it connects")
		try("of another daemon, that raises its limits", other, "raise", "it connects")
	}
}

// A daemon that is itself in a sandbox serves who is in the same one, and nobody in
// another, whose limit may be the same.
func TestADaemonInASandboxTellsItsOwn(t *testing.T) {
	if _, err := ll.LandlockGetABIVersion(); err != nil {
		t.Skip("this kernel has no Landlock")
	}
	for user, uid := range users() {
		cmd := as(t, uid)
		cmd.Env = append(cmd.Env, modeVar+"=outside")
		out, err := cmd.Output()
		if got, want := string(out), "true <nil>, false <nil>, true <nil>\n"; err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", user, got, err, want)
		}
	}
}

// A daemon that has such a limit for another reason, and is in no sandbox, knows a tool of
// another daemon that has taken the same.
func TestAToolDoesNotTakeTheDaemonsLimit(t *testing.T) {
	if own, err := filters(os.Getpid()); err != nil {
		t.Skip(own, err)
	}
	for user, uid := range users() {
		cmd := as(t, uid)
		cmd.Env = append(cmd.Env, modeVar+"=equal")
		out, err := cmd.Output()
		if got, want := string(out), "false <nil>, true <nil>\n"; err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", user, got, err, want)
		}
	}
}

// A process that ends while it is looked at shows no parent for an instant. Its
// child may have another one already by then, or only soon after.
func TestAnEndingParentIsNoFirstProcess(t *testing.T) {
	const tool, parent = 5_000_002, 5_000_001
	for adopted := range 3 {
		looks := 0 // at the parent
		ours, err := descends(tool, func(pid int) (link, error) {
			if pid == tool && looks < adopted {
				return link{parent, 20}, nil
			}
			if pid == tool {
				return link{os.Getpid(), 20}, nil // which adopts orphans
			}
			if looks++; looks == 1 {
				return link{0, 10}, nil
			}
			return link{}, os.ErrNotExist
		})
		if err != nil || !ours {
			t.Errorf("adopted after %d looks at its parent: got %t, %v, want a descendant", adopted, ours, err)
		}
	}
}

// A process whose number was another's before, or that has another parent by now,
// is looked at anew; the process that connected must not have ended.
func TestAncestorsThatChangeAreLookedAtAnew(t *testing.T) {
	const tool, parent, other = 5_000_003, 5_000_002, 5_000_001
	for name, c := range map[string]struct {
		links map[int][]link // by look; the last stays
		ours  bool
		err   error
	}{
		"it has ended": {map[int][]link{tool: {{parent, 30}, {parent, 31}}, parent: {{1, 20}}}, false, errGone},
		"its parent's number is another's": {map[int][]link{
			tool: {{parent, 30}, {parent, 30}, {os.Getpid(), 30}}, parent: {{other, 20}, {1, 99}}, other: {{1, 10}}, 1: {{0, 1}},
		}, true, nil},
		"its parent has another parent": {map[int][]link{
			tool: {{parent, 30}}, parent: {{other, 20}, {os.Getpid(), 20}}, other: {{1, 10}}, 1: {{0, 1}},
		}, true, nil},
		"a stranger": {map[int][]link{tool: {{parent, 30}}, parent: {{1, 20}}, 1: {{0, 1}}}, false, nil},
	} {
		looks := map[int]int{}
		ours, err := descends(tool, func(pid int) (link, error) {
			all := c.links[pid]
			looks[pid]++
			return all[min(looks[pid], len(all))-1], nil
		})
		if ours != c.ours || !errors.Is(err, c.err) {
			t.Errorf("%s: got %t, %v", name, ours, err)
		}
	}
}

// The same tries tell something only if they can succeed.
func TestAToolWithoutASandboxGetsIn(t *testing.T) {
	const tries = 20
	for user, uid := range users() {
		for _, daemon := range []string{"daemon", "limited"} {
			for _, way := range []string{"it connects", "an orphan connects and stays"} {
				if in, _ := attack(t, daemon, way, way, tries, uid); in != tries {
					t.Errorf("%s, %s: %s: %d of %d got in", user, daemon, way, in, tries)
				}
			}
		}
	}
}
