// Package tuitest gives tests what a terminal interface meets in real life: a
// terminal of its own that a real program draws on, keys, pictures of what is
// on the screen, and a daemon from before the wire had what was added to it.
//
// Concurrency: a Terminal may be used by one goroutine at a time; it owns one
// that reads what the program writes, which ends with the program. An OldCore
// owns a goroutine per connection.
//
// It refuses to wait for time to pass: every wait is for something on the
// screen, and fails the test with the screen after half a minute.
package tuitest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// patience ends a wait that is in vain. A loaded machine needs some seconds.
const patience = 2 * time.Minute

// lookAgain is how often a screen is looked at that does not change: what is
// waited for may be of another one, too.
const lookAgain = 50 * time.Millisecond

// maxOutput is how much of what the program wrote is kept, in bytes.
const maxOutput = 8 << 20

// Terminal is a pseudo terminal with a program in it.
type Terminal struct {
	t      testing.TB
	cmd    *exec.Cmd
	master *os.File
	began  time.Time
	took   time.Duration // how long the program lived; once it has ended
	drawn  chan struct{} // cap 1: the screen changed, or the program ended
	ended  chan struct{} // the program's, after everything it wrote was read

	mu     sync.Mutex
	screen *screen
	output []byte // what the program wrote, the last maxOutput of it
}

// Start runs a program in a terminal of that many columns and rows, with a
// light background or a dark one. The test ends the program, if it has not
// ended by then. What is not set in the environment is TERM=xterm-256color.
func Start(t testing.TB, cmd *exec.Cmd, cols, rows int, light bool) *Terminal {
	t.Helper()
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append([]string{"TERM=xterm-256color"}, cmd.Env...)
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := pty.Setsize(master, &pty.Winsize{Cols: uint16(cols), Rows: uint16(rows)}); err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	err = cmd.Start()
	slave.Close()
	if err != nil {
		master.Close()
		t.Fatal(err)
	}
	term := &Terminal{
		t: t, cmd: cmd, master: master, began: time.Now(),
		drawn: make(chan struct{}, 1), ended: make(chan struct{}), screen: newScreen(cols, rows, light),
	}
	var reading sync.WaitGroup
	reading.Go(term.read)
	go func() { // ends with the program
		_ = cmd.Wait()
		term.took = time.Since(term.began)
		reading.Wait()
		close(term.ended)
		term.changed()
	}()
	t.Cleanup(func() {
		select {
		case <-term.ended: // the number may be another process's by now
		default:
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // its session's first group
			_ = cmd.Process.Kill()
			<-term.ended
		}
		master.Close()
		if t.Failed() {
			t.Logf("the screen at the end:\n%s", term.Screen())
		}
	})
	return term
}

func (t *Terminal) read() {
	buf := make([]byte, 64<<10)
	for {
		n, err := t.master.Read(buf)
		t.mu.Lock()
		t.output = append(t.output, buf[:n]...)
		if over := len(t.output) - maxOutput; over > 0 {
			t.output = append(t.output[:0], t.output[over:]...)
		}
		answers := t.screen.write(buf[:n])
		t.mu.Unlock()
		if len(answers) > 0 {
			_, _ = t.master.Write(answers)
		}
		t.changed()
		if err != nil {
			return
		}
	}
}

func (t *Terminal) changed() {
	select {
	case t.drawn <- struct{}{}:
	default:
	}
}

// WaitFor waits until the screen is as wanted; what says how, for the failure.
func (t *Terminal) WaitFor(what string, wanted func(screen string) bool) {
	t.t.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	again := time.NewTicker(lookAgain)
	defer again.Stop()
	for {
		screen := t.Screen()
		if wanted(screen) {
			return
		}
		select {
		case <-t.drawn:
		case <-again.C:
		case <-t.ended:
			if !wanted(t.Screen()) {
				t.t.Fatalf("%s; the screen has no %s:\n%s", t.end(), what, t.Screen())
			}
			return
		case <-timeout.C:
			t.t.Fatalf("after %s the screen has no %s:\n%s", patience, what, screen)
		}
	}
}

// end says how the program has ended, and what it wrote last, as it was written: what it says to standard error as it
// ends is on a screen that it may have left.
func (t *Terminal) end() string {
	const most = 2000 // bytes
	out := t.Output()
	return fmt.Sprintf("the program, process %d, ended after %s: %s; of the %d bytes that it wrote the last are %q",
		t.PID(), t.took.Round(time.Millisecond), t.cmd.ProcessState, len(out), out[max(0, len(out)-most):])
}

// Wait waits until all the texts are on the screen, each within one line.
func (t *Terminal) Wait(texts ...string) {
	t.t.Helper()
	t.WaitFor(fmt.Sprintf("%q", texts), func(screen string) bool {
		for _, text := range texts {
			if !strings.Contains(screen, text) {
				return false
			}
		}
		return true
	})
}

// WaitGone waits until a text is not on the screen.
func (t *Terminal) WaitGone(text string) {
	t.t.Helper()
	t.WaitFor(fmt.Sprintf("end of %q", text), func(screen string) bool { return !strings.Contains(screen, text) })
}

// Type types a text as it is.
func (t *Terminal) Type(text string) {
	t.t.Helper()
	if _, err := t.master.WriteString(text); err != nil {
		t.t.Fatal(err)
	}
}

// Paste is what a terminal sends when a text is pasted: in brackets where the
// program has asked for them.
func (t *Terminal) Paste(text string) {
	t.t.Helper()
	if t.Mode(2004) {
		text = "\x1b[200~" + text + "\x1b[201~"
	}
	t.Type(text)
}

var keys = map[string]string{
	"enter": "\r", "esc": "\x1b", "tab": "\t", "shift+tab": "\x1b[Z", "backspace": "\x7f", "delete": "\x1b[3~",
	"space": " ",
	"up":    "\x1b[A", "down": "\x1b[B", "right": "\x1b[C", "left": "\x1b[D", "home": "\x1b[H", "end": "\x1b[F",
	"pgup": "\x1b[5~", "pgdown": "\x1b[6~", "alt+enter": "\x1b\r", "f1": "\x1bOP",
	"shift+up": "\x1b[1;2A", "shift+down": "\x1b[1;2B", "alt+up": "\x1b[1;3A", "alt+down": "\x1b[1;3B",
	"ctrl+home": "\x1b[1;5H", "ctrl+end": "\x1b[1;5F", "ctrl+up": "\x1b[1;5A", "ctrl+down": "\x1b[1;5B",
}

// Press presses keys: the names of bubbletea, such as "enter", "ctrl+c",
// "alt+x"; anything else is a character.
func (t *Terminal) Press(names ...string) {
	t.t.Helper()
	for _, name := range names {
		t.Type(key(name))
	}
}

func key(name string) string {
	if text, ok := keys[name]; ok {
		return text
	}
	if letter, ok := strings.CutPrefix(name, "ctrl+"); ok && len(letter) == 1 {
		return string(letter[0] & 0x1f)
	}
	if rest, ok := strings.CutPrefix(name, "alt+"); ok {
		return "\x1b" + rest
	}
	return name
}

// Resize gives the terminal another size; the program is told by its SIGWINCH.
func (t *Terminal) Resize(cols, rows int) {
	t.t.Helper()
	t.ResizeLate(cols, rows, func() {})
}

// ResizeLate is Resize of a program that hears of it late: what it writes
// meanwhile is still for the old size.
func (t *Terminal) ResizeLate(cols, rows int, meanwhile func()) {
	t.t.Helper()
	t.mu.Lock()
	t.screen.resize(cols, rows)
	t.mu.Unlock()
	meanwhile()
	if err := pty.Setsize(t.master, &pty.Winsize{Cols: uint16(cols), Rows: uint16(rows)}); err != nil {
		t.t.Fatal(err)
	}
}

// Screen is the text on the screen, a line for each row, without the blanks at
// the end of a row.
func (t *Terminal) Screen() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.screen.text()
}

// Styled is the screen with its colours and attributes as words; see Style.
func (t *Terminal) Styled() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.screen.styled()
}

// SVG is a picture of the screen.
func (t *Terminal) SVG() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.screen.svg()
}

// Output is what the program has written so far, escape sequences and all.
func (t *Terminal) Output() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.output)
}

// Mode says whether a private mode of the terminal is set: 25 the cursor is
// shown, 1049 the other screen, 1000 to 1006 the mouse, 2004 pasting in
// brackets.
func (t *Terminal) Mode(number int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.screen.modes[number]
}

// Cooked says that the terminal edits lines and echoes, as a shell leaves it to
// programs.
func (t *Terminal) Cooked() bool {
	t.t.Helper()
	settings, err := unix.IoctlGetTermios(int(t.master.Fd()), unix.TCGETS)
	if err != nil {
		t.t.Fatal(err)
	}
	const want = unix.ICANON | unix.ECHO | unix.ISIG
	return settings.Lflag&want == want
}

// PID is the program's.
func (t *Terminal) PID() int { return t.cmd.Process.Pid }

// Exit waits for the program's end and returns its exit status, -1 after a
// signal.
func (t *Terminal) Exit() int {
	t.t.Helper()
	select {
	case <-t.ended:
	case <-time.After(patience):
		t.t.Fatalf("the program goes on after %s:\n%s", patience, t.Screen())
	}
	return t.cmd.ProcessState.ExitCode()
}

// Signal sends the program a signal. One that has ended already is none the
// worse.
func (t *Terminal) Signal(sig os.Signal) {
	t.t.Helper()
	if err := t.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.t.Fatal(err)
	}
}
