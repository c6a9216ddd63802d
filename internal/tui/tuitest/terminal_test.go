package tuitest_test

import (
	"os/exec"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"noused/internal/testenv"
	"noused/internal/tui/tuitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.M{M: m}) }

// sh starts a shell in a terminal of 40 by 6.
func sh(t *testing.T, script string) *tuitest.Terminal {
	t.Helper()
	return tuitest.Start(t, exec.Command("sh", "-c", script), 40, 6, false)
}

func TestWhatTheProgramWroteLastIsOnTheScreen(t *testing.T) {
	for range 20 {
		term := sh(t, `printf '%09000d\033[?1049h\033[Hend' 7; exit 3`)
		if got := term.Exit(); got != 3 {
			t.Errorf("got exit status %d, want 3", got)
		}
		if got := strings.TrimSpace(term.Screen()); got != "end" || !term.Mode(1049) {
			t.Fatalf("got screen %q, other screen %t", got, term.Mode(1049))
		}
	}
}

func TestKeysReachTheProgramAndTheSizeToo(t *testing.T) {
	term := sh(t, `trap 'stty size' WINCH; echo ready; while ! read line; do :; done; echo "got $line"`)
	term.Wait("ready")
	if !term.Cooked() {
		t.Error("a new terminal does not edit lines")
	}
	term.Resize(30, 9)
	term.Wait("9 30")
	term.Type("hello")
	term.Press("backspace", "p", "enter")
	term.Wait("got hellp")
	if got := term.Exit(); got != 0 {
		t.Errorf("got exit status %d", got)
	}
}

func TestQuestionsToTheTerminalAreAnswered(t *testing.T) {
	term := sh(t,
		`stty raw -echo; printf '\033]11;?\033\\\033[c'; dd bs=1 count=34 2>/dev/null | tr '\033' '^'; stty sane`)
	term.Wait(`^]11;rgb:0000/0000/0000^\^[?62;22c`)
}

func TestStyledNamesLooks(t *testing.T) {
	term := sh(t,
		`printf '\033[>4;1m\033[1;38;2;1;2;200mred\033[m \033[4:3m\344\270\255x\033[0m\033[>1u e\314\201-\033[3b|'`)
	term.Exit()
	want := "{bold #0102c8|red} {underline|\u4e2dx} e\u0301----|"
	if got, _, _ := strings.Cut(term.Styled(), "\n"); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestAFrameIsSeenWhole(t *testing.T) {
	term := sh(t, `printf 'before\033[?2026h\r\033[Khalf'; read x; printf ' and half\033[?2026l'; read x`)
	term.Wait("before")
	if strings.Contains(term.Screen(), "half") {
		t.Error("half a frame is on the screen")
	}
	term.Type("\n")
	term.Wait("half", "and half")
}
