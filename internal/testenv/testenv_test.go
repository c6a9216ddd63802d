package testenv_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"noused/internal/testenv"
)

func TestMain(m *testing.M) {
	if os.Getenv("NOUSED_TEST_UID") != "" {
		_, _ = os.Stdout.WriteString(strconv.Itoa(os.Getuid()))
		os.Exit(0)
	}
	// As for a user who has set everything.
	for name, value := range theirs {
		_ = os.Setenv(name, value)
	}
	os.Exit(testenv.M{M: m}.Run())
}

// theirs is what a user has set, in a folder that not even root can make.
var theirs = map[string]string{
	"HOME": "/proc/nonexistent", "XDG_CONFIG_HOME": "/proc/nonexistent/config",
	"XDG_STATE_HOME":  "/proc/nonexistent/state",
	"XDG_RUNTIME_DIR": "/proc/nonexistent/run", "XDG_SYNC_TOKEN": "x", "NOUSED_MODEL": "anthropic/claude",
	"NOUSED_SOCKET":  "/proc/nonexistent/s",
	"OPENAI_API_KEY": "sk", "OPENAI_BASE_URL": "http://127.0.0.1:1", "ANTHROPIC_BASE_URL": "http://127.0.0.1:1",
	"GROQ_API_KEY":  "sk",
	"NOTIFY_SOCKET": "/proc/nonexistent/notify", "LISTEN_FDS": "2",
}

func TestNothingOfTheUsersReachesATest(t *testing.T) {
	home := os.Getenv("HOME")
	for name, value := range theirs {
		switch got := os.Getenv(name); {
		case got == value:
			t.Errorf("%s is the user's own, %s", name, got)
		case got == "":
		case !strings.HasPrefix(got, home):
			t.Errorf("%s is %s, want a folder in %s", name, got, home)
		default:
			if info, err := os.Stat(got); err != nil || !info.IsDir() {
				t.Errorf("%s: %v, want a folder", name, err)
			}
		}
	}
	if entries, err := os.ReadDir(filepath.Join(home, ".config")); err != nil || len(entries) > 0 {
		t.Errorf("the configuration has %v, %v, want nothing", entries, err)
	}
}

// A test binary can be run as another user, though its folder is private.
func TestASecondUserAsRoot(t *testing.T) {
	user := testenv.SecondUser(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{"NOUSED_TEST_UID=1"}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: user}
	out, err := cmd.Output()
	if want := strconv.Itoa(int(user.Uid)); err != nil || string(out) != want {
		t.Errorf("got %q, %v, want it to run as %s", out, err, want)
	}
}
