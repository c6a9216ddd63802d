// Package testenv keeps the tests apart from the user who runs them, and lends
// them a second one.
//
// Concurrency: [M.Run] changes the process's environment before any test runs;
// the rest changes nothing.
//
// It refuses to let a test see the user's own configuration, sessions or keys.
package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// M runs a package's tests in a home of their own: HOME and every XDG folder are
// fresh, and removed afterwards, and what the user has set for noused, for
// providers of models or for systemd is gone. It is for TestMain, in the place of
// the [testing.M] that it holds:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.M{M: m}) }
type M struct{ *testing.M }

// Run is [testing.M.Run].
func (m M) Run() int {
	home, err := os.MkdirTemp("", "noused-test")
	if err == nil {
		defer func() { _ = os.RemoveAll(home) }()
		err = enter(home)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(unracedDir) }()
	return m.M.Run()
}

// Self is the path of the program that tests start as their children: the test binary.
// With the race detector, which makes the start of a process three times as long, it is
// the same binary built without it. It blocks while that is built, once.
func Self() string {
	if !Race {
		return "/proc/self/exe"
	}
	return unraced()
}

var (
	unracedDir string
	unraced    = sync.OnceValue(func() string {
		dir, err := os.MkdirTemp("", "noused-unraced")
		if err != nil {
			panic(err)
		}
		unracedDir = dir
		if err := os.Chmod(dir, 0o755); err != nil { // [SecondUser] runs it, too
			panic(err)
		}
		path := filepath.Join(dir, "self.test")
		cmd := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-o", path, ".")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			panic(fmt.Sprintf("%v: %s", err, out))
		}
		return path
	})
)

// folders of a home, by variable.
var folders = map[string]string{
	"HOME": "", "XDG_CONFIG_HOME": ".config", "XDG_STATE_HOME": ".local/state", "XDG_DATA_HOME": ".local/share",
	"XDG_CACHE_HOME": ".cache", "XDG_RUNTIME_DIR": "run",
}

// enter makes home the user's home.
func enter(home string) error {
	cache := keepGo()
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); foreign(name) {
			if err := os.Unsetenv(name); err != nil {
				return err
			}
		}
	}
	for name, folder := range folders {
		path := filepath.Join(home, folder)
		if err := os.MkdirAll(path, 0o700); err != nil {
			return err
		}
		if err := os.Setenv(name, path); err != nil {
			return err
		}
	}
	if cache == "" {
		return nil
	}
	return os.Symlink(cache, filepath.Join(home, folders["XDG_CACHE_HOME"], "go-build"))
}

// keepGo has the go command find its caches, which it looks for in the home.
// Tests that build programs would else build, and fetch, everything anew. It
// returns the build cache, which tools without these variables look for in the
// home; "" where there is no go, as such tests will say.
func keepGo() (cache string) {
	names := []string{"GOCACHE", "GOMODCACHE", "GOPATH", "GOENV"}
	out, err := exec.Command("go", append([]string{"env"}, names...)...).Output()
	if err != nil {
		return ""
	}
	values := strings.Split(string(out), "\n")
	for i, name := range names {
		_ = os.Setenv(name, values[i])
	}
	return values[0]
}

// foreign tells whether a variable is the user's own, and would change what the
// programs under test do. NOUSED_TEST_ and what the Makefile passes on is ours.
func foreign(name string) bool {
	switch name {
	case "NOUSED_CRASHTIME", "NOUSED_CRASHSEED", "NOUSED_FLEET_JOBS", "NOUSED_TURNS", "NOUSED_PROMPTS", "NOUSED_LONG",
		"NOUSED_REFERENCE":
		return false
	case "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "CREDENTIALS_DIRECTORY", "DBUS_SESSION_BUS_ADDRESS":
		return true
	}
	if strings.HasPrefix(name, "NOUSED_TEST_") {
		return false
	}
	for _, prefix := range []string{"NOUSED_", "OPENAI_", "ANTHROPIC_", "XDG_", "LISTEN_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return strings.HasSuffix(name, "_API_KEY")
}

// Tries is how often a test does what only many tries can show: n times, and a
// twentieth of it, at least once, in a hurry (-short) or with the race detector, which
// makes each try ten times as long and finds at the first what it finds.
func Tries(n int) int {
	if Race || testing.Short() {
		return max(1, n/20)
	}
	return n
}

// Long skips a test that takes seconds, or much of the machine, where somebody is in a
// hurry (-short).
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("long")
	}
}

// Model is the variable that has a daemon answer with the offline model, unless its
// configuration or command line chooses another.
func Model(config string, args ...string) string {
	if strings.Contains(config, "\nprovider = ") || slices.Contains(args, "--model") {
		return "NOUSED_MODEL="
	}
	return "NOUSED_MODEL=offline"
}

// SecondUser is a second real user of the machine, nobody, for a test of what
// one user may do to another: the Credential of an [syscall.SysProcAttr]. It has
// no home and no further groups; a program that it is to run, or a folder that it
// is to see, must be open to it (the test binary itself is, as /proc/self/exe).
//
// Only root can become another, so the test is skipped for anybody else. Its name
// ends in AsRoot: by that .ci/run finds the tests that it runs as root, after all
// others were run as an ordinary user.
func SecondUser(t testing.TB) *syscall.Credential {
	t.Helper()
	AsRoot(t)
	const nobody = 65534 // on every Linux
	return &syscall.Credential{Uid: nobody, Gid: nobody, Groups: []uint32{}}
}

// AsRoot skips a test that only root can do. Its name ends in AsRoot, see
// [SecondUser].
func AsRoot(t testing.TB) {
	t.Helper()
	if name, _, _ := strings.Cut(t.Name(), "/"); !strings.HasSuffix(name, "AsRoot") {
		t.Fatalf("%s needs root: end its name in AsRoot, or nobody will run it", name)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can do this: sudo make root")
	}
}

// Until waits until something is so that nothing announces: what a process of another's
// has come to, or what a server keeps. After five minutes it ends the test. What has an
// event, a channel or a line in a log is waited for there.
func Until(t testing.TB, what string, is func() bool) {
	t.Helper()
	const patience = 5 * time.Minute
	next := time.NewTicker(2 * time.Millisecond)
	defer next.Stop()
	for deadline := time.Now().Add(patience); !is(); <-next.C {
		if time.Now().After(deadline) {
			t.Fatalf("after %s it is still not so: %s", patience, what)
		}
	}
}

// Unrecorded ends a test as a turn's folder was not recorded: it is skipped where a machine is too slow for that.
func Unrecorded(t interface {
	Skip(args ...any)
	Fatal(args ...any)
}, why string,
) {
	if strings.Contains(why, "was not done within") {
		t.Skip("this machine is too slow now to record a folder: " + why)
	}
	t.Fatal("a folder is not recorded: " + why)
}
