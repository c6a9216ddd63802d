package proc

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"noused/internal/testenv"
	"noused/internal/tool/tooltest"
)

// jail is a Supervisor's view for a sandbox around work, beside which outside
// has a file that is nobody's business.
type jail struct {
	fixture
	view                *Supervisor
	work, outside, home string
}

func needLandlock(t *testing.T) {
	t.Helper()
	if abi, err := ll.LandlockGetABIVersion(); err != nil || abi < neededABI {
		t.Skipf("this kernel has Landlock version %d, %v", abi, err)
	}
}

func imprison(t *testing.T, write ...string) *jail {
	t.Helper()
	needLandlock(t)
	base := t.TempDir()
	j := &jail{
		fixture: supervise(t),
		work:    filepath.Join(base, "work"), outside: filepath.Join(base, "outside"), home: filepath.Join(base, "home"),
	}
	for _, dir := range []string{j.work, j.outside, j.home} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(j.outside, "file"), []byte("keep"), 0o600); err != nil {
		t.Fatal(err)
	}
	box := Sandbox{Workdir: j.work, Write: write}
	if len(write) == 0 {
		box.Cache = true
	}
	check(t, j.KeepCaches(filepath.Join(base, "caches")))
	var err error
	if j.view, err = j.Sandboxed(box); err != nil {
		t.Fatal(err)
	}
	return j
}

// run runs a shell script in the sandbox, and returns how it ended and what it
// said.
func (j *jail) run(script string) (Exit, string) {
	j.t.Helper()
	p, err := j.view.Start(j.t.Context(), Command{
		Name: "jailed", Path: "/bin/sh", Args: []string{"sh", "-c", script}, Dir: j.work, MaxLine: 1 << 16,
		Env: []string{"HOME=" + j.home, "PATH=" + os.Getenv("PATH"), "OUT=" + j.outside},
	})
	if err != nil {
		j.t.Fatal(err)
	}
	p.CloseInput()
	var out strings.Builder
	for line, err := p.Next(); err == nil; line, err = p.Next() {
		out.Write(line)
		out.WriteByte('\n')
	}
	exit := p.Wait()
	return exit, out.String() + p.Stderr(1<<10)
}

// untouched fails the test where anything outside is not as it was.
func (j *jail) untouched(what string) {
	j.t.Helper()
	entries, err := os.ReadDir(j.outside)
	if err != nil || len(entries) != 1 {
		j.t.Fatalf("%s: got %v, %v outside, want the one file", what, entries, err)
	}
	text, err := os.ReadFile(filepath.Join(j.outside, "file"))
	if err != nil || string(text) != "keep" {
		j.t.Fatalf("%s: got %q, %v outside, want it untouched", what, text, err)
	}
}

func TestASandboxedToolCannotWriteOutside(t *testing.T) {
	j := imprison(t)
	for what, script := range map[string]string{
		"a new file":                  `echo x > "$OUT/new"`,
		"an old file":                 `echo x > "$OUT/file"`,
		"appending":                   `echo x >> "$OUT/file"`,
		"a path with dots":            `echo x > ../outside/new`,
		"a symbolic link":             `ln -s "$OUT/file" link && echo x > link`,
		"a linked directory":          `ln -s "$OUT" dir && echo x > dir/new`,
		"the root in /proc":           `echo x > "/proc/self/root$OUT/new"`,
		"the directory in /proc":      `echo x > /proc/self/cwd/../outside/new`,
		"a shell of its own":          `sh -c 'sh -c "echo x > \"$OUT/new\""'`,
		"a process in the background": `setsid sh -c 'echo x > "$OUT/new"; echo $? > status'; read s < status; exit $s`,
		"a hard link in":              `ln "$OUT/file" hard && echo x > hard`,
		"a hard link out":             `echo x > a; ln a "$OUT/new"`,
		"moving in":                   `mv "$OUT/file" moved`,
		"moving out":                  `echo x > b; mv b "$OUT/new"`,
		"truncating":                  `: > "$OUT/file"`,
		"truncating by name":          `truncate -s 0 "$OUT/file"`,
		"removing":                    `rm -f "$OUT/file"`,
		"a directory":                 `mkdir "$OUT/new"`,
		"a FIFO":                      `mkfifo "$OUT/new"`,
		"a link":                      `ln -s x "$OUT/new"`,
		"a change of mode first":      `chmod 777 "$OUT" "$OUT/file"; echo x > "$OUT/file"`,
		"copying over":                `echo x > c; cp c "$OUT/file"`,
		"other temporary files":       `echo x > "$TMPDIR/../new"`,
	} {
		if exit, said := j.run(script); exit.OK() {
			t.Errorf("%s: it worked, and said %q", what, said)
		}
		j.untouched(what)
	}
}

func TestASandboxedToolCanDoItsWork(t *testing.T) {
	j := imprison(t)
	for what, script := range map[string]string{
		"reading elsewhere":      `cat "$OUT/file" && ls / /proc/self/`,
		"writing":                `mkdir -p a/b && echo x > a/b/c && echo y >> a/b/c && : > a/b/c && rm -r a`,
		"links and moves":        `mkdir d && echo x > e && mv e d/f && ln d/f g && ln -s g h && cat h`,
		"modes":                  `echo x > m && chmod 700 m`,
		"temporary files":        `echo x > "$TMPDIR/t" && mv "$TMPDIR/t" t && test "$(stat -c %a "$TMPDIR")" = 700`,
		"the cache":              `mkdir -p "$XDG_CACHE_HOME/tool" && echo x > "$XDG_CACHE_HOME/tool/x"`,
		"nowhere":                `echo x > /dev/null && head -c 9 /dev/zero > /dev/null 2> /dev/null`,
		"its own output by name": `echo x > /dev/stdout && echo x > /dev/stderr`,
		"programs":               `sh -c 'test -x /bin/sh && sort < /dev/null'`,
	} {
		if exit, said := j.run(script); !exit.OK() {
			t.Errorf("%s: %v, it said %q", what, exit, said)
		}
	}
	j.untouched("all of it")
}

func TestASandboxedToolCannotReachOtherProcesses(t *testing.T) {
	j := imprison(t)
	if exit, _ := j.run(fmt.Sprintf(`cat < /proc/%d/mem`, os.Getpid())); exit.OK() {
		t.Error("it could open the daemon's memory")
	}
	if abi, _ := ll.LandlockGetABIVersion(); abi < 6 {
		t.Skip("this kernel does not keep signals in")
	}
	if exit, _ := j.run(fmt.Sprintf(`kill -0 %d`, os.Getpid())); exit.OK() {
		t.Error("it could send the daemon a signal")
	}
	if exit, said := j.run(`sleep 1000 & kill $!`); !exit.OK() {
		t.Errorf("it could not end a child of its own: %s", said)
	}
}

func TestASandboxWithoutTheNetwork(t *testing.T) {
	if abi, _ := ll.LandlockGetABIVersion(); abi < networkABI {
		t.Skip("this kernel cannot close it")
	}
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("needs bash")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer listener.Close()
	script := fmt.Sprintf(`bash -c 'exec 3<>/dev/tcp/127.0.0.1/%d'`, listener.Addr().(*net.TCPAddr).Port)
	j := imprison(t)
	if exit, said := j.run(script); !exit.OK() {
		t.Fatalf("with a network: %v: %s", exit, said)
	}
	j.CloseNetwork()
	j.view, err = j.Sandboxed(Sandbox{Workdir: j.work})
	check(t, err)
	if exit, said := j.run(script); exit.OK() || !strings.Contains(said, "ermission denied") {
		t.Errorf("without a network: %v: %s", exit, said)
	}
	if exit, said := j.run("setsid -w env -i " + script); exit.OK() || !strings.Contains(said, "ermission denied") {
		t.Errorf("without a network, in a session of its own: %v: %s", exit, said)
	}
}

// Landlock knows of no TCP but the plain one, and of that only connecting and binding.
// Without the network there are no sockets but those that stay on the machine.
func TestWithoutTheNetworkNoSocketLeadsToIt(t *testing.T) {
	if abi, _ := ll.LandlockGetABIVersion(); abi < networkABI {
		t.Skip("this kernel cannot close it")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).Port
	var ways []string
	for _, protocol := range []int{unix.IPPROTO_TCP, unix.IPPROTO_MPTCP} {
		for _, do := range []string{"connect", "send", "bind", "listen"} {
			to := port
			if do == "bind" {
				to = 0
			}
			ways = append(ways, fmt.Sprint(unix.AF_INET, unix.SOCK_STREAM, protocol, " ", do, " ", to))
		}
	}
	for _, s := range [][3]int{
		{unix.AF_INET, unix.SOCK_DGRAM, 0},
		{unix.AF_INET6, unix.SOCK_DGRAM, 0},
		{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE},
		{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP},
		{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP},
		{unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_TCP},
		{unix.AF_VSOCK, unix.SOCK_STREAM, 0},
		{unix.AF_PACKET, unix.SOCK_RAW, 0},
		{unix.AF_TIPC, unix.SOCK_RDM, 0},
		{unix.AF_ALG, unix.SOCK_SEQPACKET, 0},
	} {
		ways = append(ways, fmt.Sprint(s[0], s[1], s[2], " make 0"))
	}
	inBoth(t, func(t *testing.T, set func(*jail) *jail, _ bool) {
		j := set(imprison(t))
		j.CloseNetwork()
		var err error
		j.view, err = j.Sandboxed(Sandbox{Workdir: j.work})
		check(t, err)
		for i, line := range j.try("socket", ways...) {
			if line != "no: permission denied" {
				t.Errorf("%s: got %q", ways[i], line)
			}
		}
		j.none("socketpair", fmt.Sprint(unix.AF_TIPC, unix.SOCK_RDM))
		j.all("socketpair", fmt.Sprint(unix.AF_UNIX, unix.SOCK_STREAM), fmt.Sprint(unix.AF_UNIX, unix.SOCK_DGRAM))
		j.all("socket", fmt.Sprint(unix.AF_UNIX, unix.SOCK_STREAM, 0, " make 0"), fmt.Sprint(unix.AF_NETLINK, unix.SOCK_RAW,
			0, " make 0"))
	})
}

// A disk may be full, or the folder of caches be removed while the daemon lives.
func TestACacheThatCannotBeHadIsNotMissed(t *testing.T) {
	j := imprison(t)
	for range 2 {
		if exit, said := j.run("echo x > file"); !exit.OK() {
			t.Errorf("%v, it said %q", exit, said)
		}
		check(t, os.RemoveAll(filepath.Join(filepath.Dir(j.home), "caches")))
	}
}

func TestSandboxWriteTakesThePlaceOfTheCache(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	j := imprison(t, file)
	if exit, said := j.run("echo x > " + file); !exit.OK() {
		t.Errorf("it could not write the file: %s", said)
	}
	for _, path := range []string{
		filepath.Join(dir, "other"), filepath.Join(j.home, ".cache", "x"),
		"${XDG_CACHE_HOME:-/}/x",
	} {
		if exit, _ := j.run("mkdir -p ~/.cache; echo x > " + path); exit.OK() {
			t.Errorf("it could write %s", path)
		}
	}
}

func TestTemporaryFilesArePrivateAndGoWithTheProcess(t *testing.T) {
	j := imprison(t)
	script := `echo $TMPDIR; mkdir -p $TMPDIR/a/b; touch $TMPDIR/a/b/c; chmod 000 $TMPDIR/a/b $TMPDIR/a`
	_, one := j.run(script)
	_, two := j.run(script)
	if one == two || !filepath.IsAbs(one) {
		t.Errorf("got %q and %q, want a directory each", one, two)
	}
	for _, dir := range []string{one, two} {
		if _, err := os.Lstat(strings.TrimSpace(dir)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%q is still there: %v", dir, err)
		}
	}
	base := filepath.Dir(one)
	j.Close()
	if _, err := os.Lstat(base); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%q is still there: %v", base, err)
	}
}

func TestASandboxedProcessDoesNotOutliveADaemonThatIsKilled(t *testing.T) {
	needLandlock(t)
	cmd, lines := startDaemon(t, "jail")
	guardian, said := ready(t, lines)
	if len(said) != 1 || !filepath.IsAbs(said[0]) {
		t.Fatalf("got %q, want the tool's temporary directory", said)
	}
	cmd.Process.Kill()
	gone(t, guardian)
	if _, err := os.Lstat(filepath.Dir(said[0])); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its temporary files are still there: %v", err)
	}
}

func TestTemporaryFilesThatADaemonLeftAreSweptByTheNext(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	j := imprison(t) // another daemon, that lives
	_, said := j.run("echo $TMPDIR")
	lives := filepath.Dir(strings.TrimSpace(said))
	check(t, os.MkdirAll(filepath.Join(tmp, scratchPrefix+"dead", "1", "x"), 0o700))
	check(t, os.Chmod(filepath.Join(tmp, scratchPrefix+"dead", "1"), 0))
	check(t, os.Mkdir(filepath.Join(tmp, "noused-1000"), 0o700)) // that of the sockets
	check(t, os.Symlink(j.outside, filepath.Join(tmp, scratchPrefix+"link")))
	NewSupervisor("/proc/self/exe", zap.NewNop()).Close()
	if _, err := os.Lstat(filepath.Join(tmp, scratchPrefix+"dead")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what a dead daemon left is still there: %v", err)
	}
	for _, path := range []string{lives, filepath.Join(tmp, "noused-1000"), filepath.Join(j.outside, "file")} {
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("what is in use is gone: %v", err)
		}
	}
}

func TestTheSandboxIsNotSeenByTheProgram(t *testing.T) {
	j := imprison(t)
	p, err := j.view.Start(t.Context(), Command{
		Name: "whoami", Path: tooltest.Self(t), Args: []string{"my-own-name"}, Dir: j.work, MaxLine: 1 << 16,
		Env: []string{tooltest.Mode + "=whoami", "COLOUR=blue"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want(t, p, "my-own-name "+j.work+" blue true")
	p.Wait()
}

// Every daemon knows a tool in a sandbox by this: a hard limit below the one of who
// started it. What it is told by outside the sandbox stays among its limits, too.
func TestAToolInASandboxShowsIt(t *testing.T) {
	var limit unix.Rlimit
	check(t, unix.Getrlimit(unix.RLIMIT_LOCKS, &limit))
	for own, want := range map[string]string{
		"": strconv.FormatUint(limit.Max-1, 10),
		"prlimit --locks=5000000:5000000 -p $$; ": "4999999",
	} {
		if own != "" && exec.Command("prlimit", "--version").Run() != nil {
			continue
		}
		cmd, lines := startDaemonAfter(t, own, "signs")
		guardian, said := ready(t, lines)
		fields := strings.Fields(strings.Join(said, " "))
		if len(fields) < 5 || fields[4] != want {
			t.Errorf("%s: got %q, want the hard limit %s", own, said, want)
		}
		if m := limitsMark([]byte(strings.Join(said, "\n"))); own == "" && m == 0 {
			t.Errorf("got %q, want a mark", said)
		}
		cmd.Process.Kill()
		gone(t, guardian)
	}
}

func TestRootKeepsFewCapabilitiesAsRoot(t *testing.T) {
	testenv.AsRoot(t)
	exit, said := imprison(t).run(`grep -E '^Cap(Eff|Prm|Bnd|Inh|Amb):' /proc/self/status`)
	if !exit.OK() {
		t.Fatal(exit, said)
	}
	mask := uint64(0)
	for _, c := range kept {
		mask |= 1 << c
	}
	for line := range strings.Lines(said) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), ":\t")
		if got, err := strconv.ParseUint(text, 16, 64); err != nil || got&^mask != 0 {
			t.Errorf("%s: got %#x, %v, want none but %#x", name, got, err, mask)
		}
	}
}

// Where no lower limit can be had, nothing runs that would not show it.
func TestNoSandboxWhereItCouldNotBeShown(t *testing.T) {
	needLandlock(t)
	if exec.Command("prlimit", "--version").Run() != nil {
		t.Skip("needs prlimit")
	}
	cmd, lines := startDaemonAfter(t, "prlimit --locks=0:0 -p $$; ", "signs")
	var said []string
	for lines.Scan() {
		said = append(said, lines.Text())
	}
	if got := strings.Join(said, "\n"); !strings.Contains(got, "hard limit on file locks is 0") {
		t.Errorf("got %q", got)
	}
	_ = cmd.Wait()
}

func TestASandboxedProcessDiesWithTheDaemonsThread(t *testing.T) {
	fifo, held := tooltest.NewFIFO(t)
	j := imprison(t, fifo)
	j.guardian.close(true)
	j.spawner.guardian = nil
	p, err := j.view.Start(t.Context(), Command{
		Name: "deaf", Path: tooltest.Self(t), Args: []string{"deaf"}, Dir: j.work, MaxLine: 1 << 16,
		Env: []string{tooltest.Mode + "=holder", tooltest.FIFO + "=" + fifo},
	})
	if err != nil {
		t.Fatal(err)
	}
	number(t, must(p.Next()), nil)
	released := held()
	j.Close()
	released()
	p.Wait()
}

func TestWhatCannotBeSandboxedSaysWhy(t *testing.T) {
	j := imprison(t)
	badly, err := j.Sandboxed(Sandbox{Workdir: j.work, Write: []string{filepath.Join(j.work, "missing")}})
	if err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, []byte("#!/no/such/thing\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		in        *Supervisor
		path      string
		forbidden bool
		reason    string
	}{
		{j.view, filepath.Join(j.work, "missing"), false, "no such file"},
		{j.view, broken, false, "its interpreter is missing"},
		{j.view, j.work, false, "permission denied"},
		{badly, "/bin/sh", true, "missing: no such file"},
	} {
		_, err := c.in.Start(t.Context(), Command{Name: "broken", Path: c.path, Args: []string{"x"}, Dir: j.work})
		var e *Error
		if !errors.As(err, &e) || e.Forbidden != c.forbidden || !strings.Contains(e.Reason, c.reason) ||
			!strings.HasPrefix(e.Reason, "cannot start broken: ") {
			t.Errorf("%s: got %v, want …%s…, forbidden: %t", c.path, err, c.reason, c.forbidden)
		}
	}
}

func TestWithoutLandlockAToolIsRefusedUnlessTheUserAccepts(t *testing.T) {
	for _, c := range []struct {
		abi               int
		offline, required bool
		helper, refusal   string
		warned            bool
	}{
		{0, false, true, "x", "no Landlock", false},
		{2, false, true, "x", "version 2", false},
		{3, false, true, "x", "", false},
		{9, false, true, "x", "", false},
		{0, false, false, "x", "", true},
		{2, false, false, "x", "", true},
		{3, false, false, "x", "", false},
		{9, false, false, "", "not supported", false},
		{3, true, true, "x", "close the network, as network = false in [sandbox] wants it", false},
		{3, true, false, "x", "", true},
		{4, true, true, "x", "", false},
	} {
		core, logs := observer.New(zapcore.WarnLevel)
		err := Sandbox{Workdir: "/w", Write: []string{"/x"}, Weak: !c.required}.possible(c.helper, c.abi, c.offline,
			zap.New(core))
		what := strconv.Itoa(c.abi) + " " + strconv.FormatBool(c.required)
		var e *Error
		switch {
		case c.refusal == "" && err != nil:
			t.Errorf("%s: got %v, want it accepted", what, err)
		case c.refusal != "" && (!errors.As(err, &e) || !e.Forbidden || e.Weak != (c.helper != "") ||
			!strings.Contains(e.Reason, c.refusal)):
			t.Errorf("%s: got %v, want forbidden: …%s…", what, err, c.refusal)
		}
		if (logs.Len() > 0) != c.warned {
			t.Errorf("%s: got %d warnings, want one: %t", what, logs.Len(), c.warned)
		}
	}
}

// A folder without links that somebody has replaced by a link is another one: a
// program that is started there gets neither of them, even where the link is only
// there while it starts.
func TestAFolderThatBecameALinkIsNotWritten(t *testing.T) {
	j := imprison(t)
	for what, box := range map[string]Sandbox{
		"the workdir":      {Workdir: j.work, Fixed: []string{j.work}},
		"a folder above":   {Workdir: filepath.Join(j.work, "sub"), Fixed: []string{filepath.Join(j.work, "sub")}},
		"beside the other": {Workdir: j.home, Write: []string{j.work}, Fixed: []string{j.work}},
	} {
		if err := os.MkdirAll(filepath.Join(j.work, "sub"), 0o700); err != nil {
			t.Fatal(err)
		}
		view, err := j.Sandboxed(box)
		if err != nil {
			t.Fatal(err)
		}
		command := Command{
			Name: "jailed", Path: "/bin/sh", Args: []string{"sh", "-c", `echo x > "$OUT/new"`}, Dir: j.home,
			MaxLine: 1 << 16, Env: []string{"OUT=" + j.outside},
		}
		if err := errors.Join(os.RemoveAll(j.work), os.Mkdir(filepath.Join(j.outside, "sub"), 0o700),
			os.Symlink(j.outside, j.work)); err != nil {
			t.Fatal(err)
		}
		p, err := view.Start(t.Context(), command)
		if err == nil {
			p.CloseInput()
			p.Wait()
			t.Errorf("%s: a program was started", what)
		} else if e := (*Error)(nil); !errors.As(err, &e) || !e.Forbidden || !strings.Contains(err.Error(), "link") {
			t.Errorf("%s: got %v", what, err)
		}
		if err := errors.Join(os.Remove(filepath.Join(j.outside, "sub")), os.Remove(j.work)); err != nil {
			t.Fatal(err)
		}
		j.untouched(what)
	}
}

// A process that starts while the daemon ends leaves no directory behind.
func TestNoScratchAfterTheEnd(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	var s scratch
	s.remove()
	if dir, err := s.make(); err == nil {
		t.Errorf("got %s after the end", dir)
	}
	left, err := os.ReadDir(tmp)
	if check(t, err); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
