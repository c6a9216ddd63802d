package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"noused/internal/client"
	"noused/internal/daemontest"
	"noused/internal/testenv"
)

// insideVariable has the programs, in a test that runs as an ordinary user under a
// systemd of its own.
const insideVariable = "NOUSED_TEST_SYSTEMD"

// notHere is what the script below ends with where the machine cannot do it.
const notHere = 77

// namespace is what root does first, in namespaces of its own: it gives user $OWNER
// a part of the control groups, named as where systemd has booted, and goes on as that
// user. With $JOURNAL there is a journal. The last line is no exec, so that somebody is
// there to reap what the tools leave.
const namespace = `
no() { echo "$*: this machine cannot" >&2; exit 77; }
mount --make-rprivate / || no mount
mount -t proc proc /proc || no proc
mount -t cgroup2 cgroup2 /sys/fs/cgroup || no cgroup2
mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system || no /run # as where systemd has booted
group=/sys/fs/cgroup/$NAME/user@$OWNER.service
mkdir -p "$group" && chown "$OWNER:$OWNER" "$group" "$group"/cgroup.procs "$group"/cgroup.subtree_control "$group"/cgroup.threads || no cgroup
if [ "$JOURNAL" ]; then
	mount -t tmpfs -o mode=755 tmpfs /var/log && mkdir -p /var/log/journal /run/systemd/journal && : >/run/systemd/journal/flushed || no /var/log
	/lib/systemd/systemd-journald >/run/journald 2>&1 &
	until [ -S /run/systemd/journal/stdout ]; do kill -0 $! || no "systemd-journald: $(cat /run/journald)"; sleep 0.1; done
fi
echo $$ >"$group/cgroup.procs" || no cgroup.procs
cd /
chown "$OWNER:$OWNER" "$TMPDIR"
setpriv --reuid="$OWNER" --regid="$OWNER" --clear-groups "$@"
exit $?
`

// sweep removes the control groups. Where the test was killed, its processes still
// end.
const sweep = `
mount -t cgroup2 cgroup2 /sys/fs/cgroup
cd "/sys/fs/cgroup/$NAME" 2>/dev/null || exit 0
for i in 1 2 3 4 5 6 7 8 9; do
	find . -depth -mindepth 1 -type d -exec rmdir {} + 2>/dev/null
	cd .. && rmdir "$NAME" && exit 0
	sleep 1
	cd "$NAME"
done
exit 1
`

// underSystemd has the calling test run under a real `systemd --user`, which has the
// units of deploy/systemd. Where it returns nil, the test has been run, in a process
// of an ordinary user and in namespaces of its own: nothing is left of them.
func underSystemd(t *testing.T) *manager {
	t.Helper()
	return withSystemd(t, "OWNER=65534") // nobody, on every Linux
}

// withSystemd is underSystemd with variables for the script above.
func withSystemd(t *testing.T, variables ...string) *manager {
	t.Helper()
	if programs := os.Getenv(insideVariable); programs != "" {
		return newManager(t, programs)
	}
	testenv.AsRoot(t)
	if _, err := os.Stat(systemdProgram); err != nil {
		t.Skipf("systemd is not installed: %v", err)
	}
	programs, err := builtPrograms()
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("noused-%d-%s.slice", os.Getpid(), t.Name())
	ctx, cancel := context.WithTimeout(t.Context(), 4*hangTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "--pid", "--cgroup", "--fork", "--kill-child", "sh", "-c",
		namespace, "sh",
		filepath.Join(programs, "noused.test"), "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env = append(append(os.Environ(), insideVariable+"="+programs, "NAME="+name,
		"TMPDIR="+filepath.Join(programs, "homes")), variables...)
	out, err := cmd.CombinedOutput()
	defer func() { // a cgroup namespace's root is the process's own group
		sweep := exec.Command("unshare", "--mount", "--cgroup", "sh", "-c", sweep)
		sweep.Env = append(os.Environ(), "NAME="+name)
		if out, err := sweep.CombinedOutput(); err != nil && !t.Skipped() {
			t.Errorf("control groups are left: %v\n%s", err, out)
		}
	}()
	var exit *exec.ExitError
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.As(err, &exit) && exit.ExitCode() == notHere,
		bytes.HasPrefix(out, []byte("unshare: ")):
		t.Skipf("no systemd --user can be had here: %v\n%s", err, out)
	case err != nil:
		t.Errorf("%v\n%s", err, out)
	case bytes.Contains(out, []byte("--- SKIP")):
		t.Skipf("%s", out)
	case !bytes.Contains(out, []byte("--- PASS: "+t.Name())):
		t.Errorf("it did not run:\n%s", out)
	}
	return nil
}

// builtPrograms are noused, nous and this test, in a folder that every user may
// read; it goes with the tests' home.
var builtPrograms = sync.OnceValues(func() (string, error) {
	home := os.Getenv("HOME")
	dir := filepath.Join(home, "p") // short, so that sockets below it can be bound
	homes := filepath.Join(dir, "homes")
	if err := errors.Join(os.MkdirAll(homes, 0o755), os.Chmod(home, 0o755), os.CopyFS(dir, os.DirFS(unitDir))); err !=
		nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-o", dir+"/", ".", "../nous").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return dir, copyProgram("/proc/self/exe", filepath.Join(dir, "noused.test"))
})

func copyProgram(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// manager is a running systemd --user. The units are in place and nothing is
// enabled.
type manager struct {
	t    *testing.T
	home string
	run  string // XDG_RUNTIME_DIR
	log  string // of all daemons

	drops int           // files of settings
	pids  *bufio.Reader // of calls of the tool that waits
	lets  *os.File      // them go on
}

// newManager starts it, and waits until it is up.
func newManager(t *testing.T, programs string) *manager {
	t.Helper()
	m := &manager{t: t, home: os.Getenv("HOME"), run: os.Getenv("XDG_RUNTIME_DIR")}
	m.log = filepath.Join(m.home, "log")
	for _, name := range []string{"noused", "nous"} {
		link := filepath.Join(m.home, ".local/bin", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o700), os.Symlink(filepath.Join(programs, name), link)); err !=
			nil {
			t.Fatal(err)
		}
	}
	units, err := filepath.Glob(filepath.Join(programs, "noused*.s*"))
	if err != nil || len(units) == 0 {
		t.Fatalf("no units: %v", err)
	}
	for _, path := range units {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		m.write(".config/systemd/user/"+filepath.Base(path), string(text))
	}
	m.write(".config/noused/environment", "NOUSED_MODEL=offline\n") // the daemon reads it itself
	m.settings("StandardOutput=append:"+m.log, "StandardError=append:"+m.log)
	m.boot()
	return m
}

const systemdProgram = "/lib/systemd/systemd"

// boot starts systemd and waits until it says that it is ready.
func (m *manager) boot() {
	m.t.Helper()
	cmd := exec.Command(systemdProgram, "--user", "--log-target=console", "--log-level=info")
	cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, insideVariable) })
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	systemd, err := daemontest.Run(cmd)
	if err != nil {
		m.t.Skipf("systemd --user does not work here: %v\n%s", err, said.Bytes())
	}
	m.t.Cleanup(func() {
		_ = systemd.End(os.Kill)
		if m.t.Failed() {
			daemons, _ := os.ReadFile(m.log)
			m.t.Logf("systemd said:\n%s\nand the daemons:\n%s", said.Bytes(), daemons)
		}
	})
}

func (m *manager) write(name, text string) {
	m.t.Helper()
	path := filepath.Join(m.home, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		m.t.Fatal(err)
	}
}

// settings adds lines to the section [Service] of all daemons.
func (m *manager) settings(lines ...string) {
	m.t.Helper()
	for _, unit := range []string{"noused", "noused@"} {
		m.write(fmt.Sprintf(".config/systemd/user/%s.service.d/%d.conf", unit, m.drops), "[Service]\n"+
			strings.Join(lines, "\n")+"\n")
	}
	m.drops++
}

// systemctl does what it says, which must succeed.
func (m *manager) systemctl(args ...string) string {
	m.t.Helper()
	out, err := m.trySystemctl(args...)
	if err != nil {
		m.t.Fatalf("systemctl --user %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (m *manager) trySystemctl(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), hangTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, "systemctl", append([]string{"--user", "--no-pager"}, args...)...).
		CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// show is a property of a unit.
func (m *manager) show(unit, property string) string {
	m.t.Helper()
	return m.systemctl("show", "--value", "--property", property, unit)
}

// until asks for a property until it is what is wanted.
func (m *manager) until(unit, property string, want func(string) bool) string {
	m.t.Helper()
	for deadline := time.Now().Add(hangTime); ; {
		got := m.show(unit, property)
		if want(got) {
			return got
		}
		if time.Now().After(deadline) {
			m.t.Fatalf("%s of %s is still %q", property, unit, got)
		}
	}
}

// enable has systemd listen for the first daemon, as the README has it.
func (m *manager) enable() {
	m.t.Helper()
	m.systemctl("enable", "--now", "noused.socket", "noused-events.socket")
}

func (m *manager) socket() string { return filepath.Join(m.run, "noused/noused.sock") }

// dial connects to the daemon, and so starts one.
func (m *manager) dial(socket string) *client.Client {
	m.t.Helper()
	c, err := client.Dial(m.t.Context(), socket)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = c.Close() })
	return c
}
