package proc

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"noused/internal/tool/tooltest"
)

// inBoth runs a test in a sandbox with namespaces, and in one of Landlock alone.
func inBoth(t *testing.T, test func(t *testing.T, set func(*jail) *jail, namespaces bool)) {
	t.Run("namespaces", func(t *testing.T) {
		test(t, func(j *jail) *jail {
			if !j.canCover() {
				t.Skip("this system lets nobody have namespaces")
			}
			return j
		}, true)
	})
	t.Run("landlock alone", func(t *testing.T) {
		test(t, func(j *jail) *jail {
			j.tried, j.covers = true, false // as where the system forbids it
			return j
		}, false)
	})
}

// reached are modes of the test program: what a hostile tool tries.
func reached() map[string]func() int {
	each := func(try func(string) error) func() int {
		return func() int {
			for _, what := range os.Args[1:] {
				if err := try(what); err != nil {
					fmt.Println("no:", err)
				} else {
					fmt.Println("yes:", what)
				}
			}
			return 0
		}
	}
	return map[string]func() int{
		// NETWORK:ADDRESS, of a socket
		"connect": each(func(what string) error {
			network, address, _ := strings.Cut(what, ":")
			conn, err := net.DialTimeout(network, address, time.Minute)
			if err == nil {
				conn.Close()
			}
			return err
		}),
		// FAMILY TYPE PROTOCOL WHAT, of a socket that sends to, binds and listens on
		// 127.0.0.1, but for what has no such address
		"socket": each(func(what string) error {
			var family, kind, protocol, port int
			var do string
			if _, err := fmt.Sscan(what, &family, &kind, &protocol, &do, &port); err != nil {
				return err
			}
			fd, err := unix.Socket(family, kind, protocol)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			var to unix.Sockaddr = &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}
			switch do {
			case "connect":
				return unix.Connect(fd, to)
			case "send":
				return unix.Sendto(fd, []byte("x"), unix.MSG_FASTOPEN, to)
			case "bind":
				return unix.Bind(fd, to)
			case "listen":
				return unix.Listen(fd, 1)
			}
			return nil
		}),
		// FAMILY TYPE, of two sockets that are connected with each other
		"socketpair": each(func(what string) error {
			var family, kind int
			if _, err := fmt.Sscan(what, &family, &kind); err != nil {
				return err
			}
			pair, err := unix.Socketpair(family, kind, 0)
			if err == nil {
				unix.Close(pair[0])
				unix.Close(pair[1])
			}
			return err
		}),
		"open": each(func(path string) error {
			fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
			if err == nil {
				unix.Close(fd)
			}
			return err
		}),
		"openwrite": each(func(path string) error {
			fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
			if err == nil {
				unix.Close(fd)
			}
			return err
		}),
		// a file, by the number that its file system knows it by, past all names
		"handle": each(func(path string) error {
			number, _ := strconv.ParseUint(path, 10, 64)
			root, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY, 0)
			if err != nil {
				return err
			}
			id := make([]byte, 8) // of ext4 and its like: number, generation
			for i := range 4 {
				id[i] = byte(number >> (8 * i))
			}
			fd, err := unix.OpenByHandleAt(root, unix.NewFileHandle(1, id), unix.O_RDONLY)
			if errors.Is(err, unix.ESTALE) { // allowed, but for the generation
				return nil
			}
			if err == nil {
				unix.Close(fd)
			}
			return err
		}),
		"pty": func() int {
			master, slave, err := newTerminal()
			if err != nil {
				fmt.Println("no:", err)
				return 1
			}
			fmt.Fprintln(slave, "hello")
			line, err := bufio.NewReader(master).ReadString('\n')
			fmt.Println("yes:", strings.TrimSpace(line), err)
			return 0
		},
	}
}

// newTerminal opens a pair of pseudoterminals.
func newTerminal() (master, slave *os.File, err error) {
	master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	fd := int(master.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		master.Close()
		return nil, nil, err
	}
	return master, slave, nil
}

// With namespaces, nobody else's temporary files are seen, and one's own are.
func TestTemporaryFilesAreNobodyElses(t *testing.T) {
	j := imprison(t)
	if !j.canCover() {
		t.Skip("this system lets only root cover a folder")
	}
	other := j.self("deaf")
	want(t, other, "ready")
	dirs, err := filepath.Glob(filepath.Join(j.scratch.path(), "*"))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("got %v, %v", dirs, err)
	}
	secret := filepath.Join(dirs[0], "secret")
	put(t, secret, "secret")
	foreign := filepath.Join(filepath.Dir(j.scratch.path()), scratchPrefix+"foreign", "1", "secret")
	put(t, foreign, "secret")
	for _, path := range []string{secret, foreign} {
		if exit, said := j.run("cat " + path); exit.OK() {
			t.Errorf("%s: read %q", path, said)
		}
	}
	other.Kill()
	other.Wait()
	if exit, said := j.run(`echo mine >"$TMPDIR/x" && cat "$TMPDIR/x"`); !exit.OK() || said != "mine\n" {
		t.Errorf("its own: %v %q", exit, said)
	}
}

// try runs a mode of the test program in the sandbox, and returns a line for each
// argument.
func (j *jail) try(mode string, args ...string) []string {
	j.t.Helper()
	p, err := j.view.Start(j.t.Context(), Command{
		Name: mode, Path: tooltest.Self(j.t), Args: append([]string{mode}, args...), Dir: j.work, MaxLine: 1 << 16,
		Env: []string{tooltest.Mode + "=" + mode},
	})
	if err != nil {
		j.t.Fatal(err)
	}
	p.CloseInput()
	var lines []string
	for line, err := p.Next(); err == nil; line, err = p.Next() {
		lines = append(lines, string(line))
	}
	p.Wait()
	return lines
}

// none fails the test where the mode worked for one of them; all where it did not.
func (j *jail) none(mode string, args ...string) { j.t.Helper(); j.answers(mode, "no:", args) }
func (j *jail) all(mode string, args ...string)  { j.t.Helper(); j.answers(mode, "yes:", args) }

func (j *jail) answers(mode, want string, args []string) {
	j.t.Helper()
	lines := j.try(mode, args...)
	if len(lines) != len(args) {
		j.t.Errorf("%s: got %q of %q", mode, lines, args)
		return
	}
	for i, line := range lines {
		if !strings.HasPrefix(line, want) {
			j.t.Errorf("%s %s: got %q, want %s", mode, args[i], line, want)
		}
	}
}

// What is typed in the user's terminals is not for tools, by no name.
func TestAToolReadsNoTerminal(t *testing.T) {
	master, slave, err := newTerminal()
	if err != nil {
		t.Skip(err)
	}
	defer master.Close()
	defer slave.Close()
	_, err = master.WriteString("a password\n")
	check(t, err)
	inBoth(t, func(t *testing.T, set func(*jail) *jail, namespaces bool) {
		j := set(imprison(t))
		names := []string{
			slave.Name(), "/dev/console", "/dev/tty0", "/dev/tty1", "/dev/vcs", "/dev/vcs1", "/dev/vcsa1",
			fmt.Sprintf("/proc/%d/root%s", os.Getpid(), slave.Name()), // this process is who has it
			fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), slave.Fd()), fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), master.Fd()),
			"/proc/self/root" + slave.Name(),
		}
		if !namespaces {
			names = append(names, "/dev/tty", "/dev/ptmx", "/dev/pts/ptmx")
		}
		j.none("open", names...)
		j.none("openwrite", names...)
		var at unix.Stat_t
		check(t, unix.Fstat(int(slave.Fd()), &at))
		node := filepath.Join(j.outside, "node") // as there is in a folder that is a system of its own
		if namespaces && unix.Mknod(node, unix.S_IFCHR|0o666, int(at.Rdev)) == nil {
			j.none("open", node)
			j.none("openwrite", node)
			check(t, os.Remove(node))
		}
		if exit, said := j.run("mknod node c 136 0 || mknod $TMPDIR/node c 136 0"); exit.OK() {
			t.Errorf("a node can be made: %s", said)
		}
	})
}

// Of the machine's devices there are those that keep nothing, with the permissions that they have outside.
func TestOtherDevicesAreNotThere(t *testing.T) {
	var writable []string // some containers let only root write to /dev/zero
	for _, device := range devices {
		if unix.Access(device, unix.W_OK) == nil {
			writable = append(writable, device)
		}
	}
	inBoth(t, func(t *testing.T, set func(*jail) *jail, _ bool) {
		j := set(imprison(t))
		var others []string
		filepath.WalkDir("/dev", func(path string, e os.DirEntry, err error) error {
			switch {
			case err != nil || path == "/dev/ptmx" || path == "/dev/tty" || e.IsDir() || e.Type()&os.ModeDevice == 0 ||
				strings.HasPrefix(path, "/dev/pts/"):
			default:
				for _, device := range devices {
					if path == device {
						return nil
					}
				}
				others = append(others, path)
			}
			return nil
		})
		j.none("open", append(others, "/proc/kcore")...)
		j.all("open", devices...)
		j.all("openwrite", writable...)
		if exit,
			said := j.run(
			`echo x | cat /dev/stdin >/dev/stdout && echo y >/dev/fd/2 && sh -c 'cat <&3' 3</etc/passwd >/dev/null && head -c 9 /dev/urandom | wc -c`); !exit.OK() || !strings.Contains(said, "x\n9") {
			t.Errorf("%v: %s", exit, said)
		}
	})
}

// Programs that need a terminal make their own, where there are namespaces.
func TestAToolHasTerminalsOfItsOwn(t *testing.T) {
	inBoth(t, func(t *testing.T, set func(*jail) *jail, namespaces bool) {
		j := set(imprison(t))
		want := "yes: hello <nil>"
		if !namespaces {
			want = "no: "
		}
		if got := j.try("pty"); len(got) != 1 || !strings.HasPrefix(got[0], want) {
			t.Errorf("got %q, want %s", got, want)
		}
		if _, err := exec.LookPath("script"); err != nil || !namespaces {
			return
		}
		if exit, said := j.run(`script -qec 'tty; echo hello >/dev/tty; stty size' /dev/null`); !exit.OK() ||
			!strings.Contains(said, "/dev/pts/0") || !strings.Contains(said, "hello") {
			t.Errorf("%v: %s", exit, said)
		}
	})
}

// listening has somebody listen there until the test ends.
func listening(t *testing.T, network, address string) {
	t.Helper()
	if network == "unixgram" {
		conn, err := net.ListenUnixgram(network, &net.UnixAddr{Name: address, Net: network})
		check(t, err)
		t.Cleanup(func() { conn.Close() })
		return
	}
	ln, err := net.Listen(network, address)
	check(t, err)
	done := make(chan struct{})
	go func() { // ends with the listener
		defer close(done)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	t.Cleanup(func() { ln.Close(); <-done })
}

// Sockets of the user's other programs are not for tools.
func TestSocketsOfOthersAreOutOfReach(t *testing.T) {
	inBoth(t, func(t *testing.T, set func(*jail) *jail, namespaces bool) {
		short, err := os.MkdirTemp("", "s")
		check(t, err)
		t.Cleanup(func() { os.RemoveAll(short) })
		t.Setenv("TMPDIR", short) // names of sockets are short
		j := set(imprison(t))
		work := filepath.Join(short, "work")
		check(t, os.Mkdir(work, 0o700))
		j.work = work
		j.view, err = j.Sandboxed(Sandbox{Workdir: work})
		check(t, err)
		var others []string
		for name, network := range map[string]string{
			"stream": "unix", "packets": "unixpacket", "datagrams": "unixgram",
			"a b": "unix",
		} {
			listening(t, network, filepath.Join(short, name))
			others = append(others, network+":"+filepath.Join(short, name))
		}
		check(t, os.Symlink(filepath.Join(short, "stream"), filepath.Join(work, "link")))
		others = append(others, "unix:"+filepath.Join(work, "link"), "unix:/proc/self/root"+filepath.Join(short, "stream"))
		listening(t, "unix", filepath.Join(work, "own"))
		abi, _ := ll.LandlockGetABIVersion()
		if namespaces || abi >= socketABI {
			j.none("connect", others...)
		} else {
			j.all("connect", others...) // docs/security.md says so
		}
		j.all("connect", "unix:"+filepath.Join(work, "own"))
		if abi >= 6 {
			name := "@noused-test-" + filepath.Base(short)
			listening(t, "unix", name)
			j.none("connect", "unix:"+name)
		}
	})
}

// A folder with hidden files in it, as the home is, has sockets that are the user's,
// too: those that were there before the tool.
func TestSocketsInAHomeAreOutOfReach(t *testing.T) {
	short, err := os.MkdirTemp("", "s")
	check(t, err)
	t.Cleanup(func() { os.RemoveAll(short) })
	t.Setenv("TMPDIR", short)
	j := imprison(t)
	if !j.canCover() {
		t.Skip("this system lets nobody have namespaces")
	}
	home := filepath.Join(short, "home")
	check(t, os.MkdirAll(filepath.Join(home, ".docker"), 0o700))
	check(t, os.Mkdir(filepath.Join(home, ".ssh"), 0o700))
	j.work, j.spawner.hidden = home, Hidden{Paths: []string{filepath.Join(home, ".ssh")}}
	j.view, err = j.Sandboxed(Sandbox{Workdir: home})
	check(t, err)
	before := j.view.View()
	listening(t, "unix", filepath.Join(home, ".docker", "sock"))
	if j.view.View() == before {
		t.Error("a program that was started before is not told from one that was not")
	}
	j.none("connect", "unix:"+filepath.Join(home, ".docker", "sock"))
}

// What is in the folders of the system's services that are running is theirs.
func TestTheRunFolderIsNotThere(t *testing.T) {
	inBoth(t, func(t *testing.T, set func(*jail) *jail, namespaces bool) {
		j := set(imprison(t))
		user := "/run/user/" + strconv.Itoa(os.Getuid())
		if os.Geteuid() == 0 {
			check(t, os.MkdirAll(user, 0o700))
		}
		file := filepath.Join(user, "noused-test-"+strconv.Itoa(os.Getpid()))
		if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
			t.Skip(err)
		}
		defer os.Remove(file)
		listening(t, "unix", file+".s")
		j.none("open", file)
		if namespaces {
			j.none("connect", "unix:"+file+".s")
		}
		work := file + ".d" // who works there may
		check(t, os.Mkdir(work, 0o700))
		defer os.RemoveAll(work)
		view, err := j.Sandboxed(Sandbox{Workdir: work})
		check(t, err)
		j.view, j.work = view, work
		if exit, said := j.run("echo x >a && cat a && mv a b"); !exit.OK() {
			t.Errorf("%v: %s", exit, said)
		}
		j.none("open", file)
	})
}

// Shared memory and queues are the sandbox's own.
func TestSharedMemoryIsTheSandboxesOwn(t *testing.T) {
	id, err := unix.SysvShmGet(unix.IPC_PRIVATE, 4096, unix.IPC_CREAT|0o600)
	if err != nil {
		t.Skip(err)
	}
	defer unix.SysvShmCtl(id, unix.IPC_RMID, nil)
	inBoth(t, func(t *testing.T, set func(*jail) *jail, namespaces bool) {
		j := set(imprison(t))
		if _, said := j.run("cat /proc/sysvipc/shm"); namespaces && strings.Count(said, "\n") != 1 {
			t.Errorf("it sees %s", said)
		}
		if exit, said := j.run("echo x >/dev/shm/noused-test && cat /dev/shm/noused-test"); exit.OK() != namespaces {
			t.Errorf("%v: %s", exit, said)
		}
		if _, err := os.Lstat("/dev/shm/noused-test"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("it is there for others: %v", err)
		}
		shared, err := os.CreateTemp("/dev/shm", "noused-test") // what a descriptor names it gets
		if err != nil {
			return
		}
		defer os.Remove(shared.Name())
		defer shared.Close()
		j.view, err = j.Sandboxed(Sandbox{Workdir: j.work, Write: []string{shared.Name(), "/dev/random"}})
		check(t, err)
		if exit, said := j.run("echo x >" + shared.Name() + " && cat " + shared.Name()); !exit.OK() {
			t.Errorf("it is named, and: %v: %s", exit, said)
		}
		if text, _ := io.ReadAll(shared); string(text) != "x\n" {
			t.Errorf("got %q", text)
		}
	})
}

// What a program is to read it reads below /dev, too: that alone, and it writes nothing there.
func TestAFolderBelowDevCanBeRead(t *testing.T) {
	base, err := os.MkdirTemp("/dev/shm", "noused-test")
	if err != nil {
		t.Skip(err)
	}
	defer os.RemoveAll(base)
	for _, dir := range []string{"work", "beside"} {
		check(t, os.Mkdir(filepath.Join(base, dir), 0o755))
		check(t, os.WriteFile(filepath.Join(base, dir, "file"), []byte("text\n"), 0o644))
	}
	inBoth(t, func(t *testing.T, set func(*jail) *jail, namespaces bool) {
		j := set(imprison(t))
		var err error
		j.view, err = j.Sandboxed(Sandbox{Workdir: j.work, Read: []string{filepath.Join(base, "work")}})
		check(t, err)
		if exit, said := j.run("cd " + base + "/work && cat file && ls"); !exit.OK() || said != "text\nfile\n" {
			t.Errorf("%v: %s", exit, said)
		}
		if exit, said := j.run("cat " + base + "/beside/file"); exit.OK() {
			t.Errorf("beside it: %s", said)
		}
		if exit, said := j.run("echo x >" + base + "/work/file || echo x >" + base + "/work/new"); exit.OK() {
			t.Errorf("it writes: %s", said)
		}
		if all, err := os.ReadDir(filepath.Join(base, "work")); err != nil || len(all) != 1 {
			t.Errorf("there is %v, %v", all, err)
		}
	})
}

// Root's tools open no file by its number, past what its name lies in.
func TestNoFileIsOpenedByItsNumber(t *testing.T) {
	inBoth(t, func(t *testing.T, set func(*jail) *jail, _ bool) {
		j := set(imprison(t))
		j.none("handle", "2")
	})
}

// A link that a tool makes opens nothing: neither where it may write, nor what is
// hidden from it.
func TestALinkOfAToolOpensNothing(t *testing.T) {
	inBoth(t, func(t *testing.T, set func(*jail) *jail, _ bool) {
		for what, to := range map[string]string{
			"something hidden": "state/sessions", "what is hidden itself": "state",
			"beside": "beside",
		} {
			t.Run(what, func(t *testing.T) {
				j := set(imprison(t))
				home := j.home
				at := func(name string) string { return filepath.Join(home, name) }
				target := at(to)
				if to == "beside" {
					target = j.outside
				}
				check(t, os.MkdirAll(at("state/sessions"), 0o700))
				check(t, os.MkdirAll(at("work/out"), 0o700))
				check(t, os.WriteFile(at("state/sessions/journal"), []byte("sk-secret"), 0o600))
				check(t, os.WriteFile(at("state/journal"), []byte("sk-secret"), 0o600))
				j.Hide(Hidden{Paths: []string{at("state")}})
				j.work = at("work")
				box := Sandbox{Workdir: at("work"), Write: []string{at("work/out")}}
				before, err := j.Sandboxed(box)
				check(t, err)
				j.view = before
				if exit, said := j.run("rmdir out && ln -s " + target + " out"); !exit.OK() {
					t.Fatal(said)
				}
				views := []*Supervisor{before}
				if after, err := j.Sandboxed(box); err == nil { // another call, or another daemon
					views = append(views, after)
				}
				for i, view := range views {
					p, err := view.Start(t.Context(), Command{
						Name: "x", Path: "/bin/sh", Dir: at("work"), MaxLine: 1 << 10,
						Args: []string{
							"sh", "-c", "cat out/journal; echo planted >out/planted && echo planted",
						},
					})
					if err != nil {
						if e := (*Error)(nil); !errors.As(err, &e) || !e.Forbidden || !strings.Contains(err.Error(), "link") {
							t.Errorf("%s, view %d: %v", what, i, err)
						}
						continue
					}
					p.CloseInput()
					said, _ := io.ReadAll(p)
					if p.Wait(); strings.Contains(string(said), "secret") || strings.Contains(string(said), "planted") {
						t.Errorf("%s, view %d: it said %q", what, i, said)
					}
				}
				if _, err := os.Lstat(filepath.Join(target, "planted")); err == nil {
					t.Errorf("%s: a file was planted", what)
				}
			})
		}
	})
}

// A link on the way to what is hidden is a tool's to replace where it works in the
// home; what it led to stays hidden.
func TestWhatWasHiddenStaysHidden(t *testing.T) {
	j := imprison(t)
	at := func(name string) string { return filepath.Join(j.work, name) }
	check(t, os.MkdirAll(at("dotfiles/config"), 0o700))
	check(t, os.WriteFile(at("dotfiles/config/key"), []byte("sk-secret"), 0o600))
	check(t, os.Symlink("dotfiles", at(".config")))
	j.Hide(Hidden{Paths: []string{at(".config/config")}})
	if !j.canCover() {
		t.Skip("a tool can write nothing there")
	}
	var err error
	j.view, err = j.Sandboxed(Sandbox{Workdir: j.work})
	check(t, err)
	if exit, said := j.run("rm .config && mkdir -p evil && ln -s evil .config"); !exit.OK() {
		t.Fatal(said)
	}
	j.view, err = j.Sandboxed(Sandbox{Workdir: j.work})
	check(t, err)
	if _, said := j.run("cat dotfiles/config/key"); strings.Contains(said, "secret") {
		t.Errorf("it said %q", said)
	}
}

// The temporary folders may lie where tools work: what these put in their place is
// neither written to nor removed.
func TestTemporaryFoldersAreNotReplaced(t *testing.T) {
	inBoth(t, func(t *testing.T, set func(*jail) *jail, _ bool) {
		tmp := t.TempDir()
		t.Setenv("TMPDIR", tmp)
		j := set(imprison(t))
		view, err := j.Sandboxed(Sandbox{Workdir: tmp})
		check(t, err)
		victim := filepath.Join(j.outside, "dir")
		for i := range 9 {
			check(t, os.MkdirAll(filepath.Join(victim, strconv.Itoa(i), "full"), 0o700))
		}
		defer os.RemoveAll(victim)
		start := func(script string) *Process {
			p, err := view.Start(t.Context(), Command{
				Name: "x", Path: "/bin/sh", Dir: "/", MaxLine: 1 << 10,
				Args: []string{"sh", "-c", script},
			})
			if err != nil {
				return nil
			}
			return p
		}
		running := start("echo $TMPDIR; read x")
		line, err := running.Next()
		check(t, err)
		base := filepath.Dir(string(line))
		check(t, os.Rename(base, base+".old"))
		check(t, os.Symlink(victim, base))
		running.CloseInput()
		running.Wait()
		for range 20 {
			if p := start("touch $TMPDIR/planted"); p != nil {
				p.CloseInput()
				p.Wait()
			}
		}
		j.Close()
		entries, err := os.ReadDir(victim)
		check(t, err)
		if len(entries) != 9 {
			t.Errorf("got %d folders left of 9", len(entries))
		}
		for _, e := range entries {
			if _, err := os.Lstat(filepath.Join(victim, e.Name(), "full")); err != nil {
				t.Error(err)
			}
			if _, err := os.Lstat(filepath.Join(victim, e.Name(), "planted")); err == nil {
				t.Errorf("%s was written to", e.Name())
			}
		}
	})
}
