package tui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/term"

	"noused/internal/regular"
)

// edited is what came of an editor.
type edited struct {
	text string
	err  error
}

// edit has the user's editor write the input. Whatever happens to the editor,
// the screen comes back, and the input is as it was unless the editor ended
// well.
func (m *model) edit() tea.Cmd {
	editor := cmp.Or(m.opts.Getenv("VISUAL"), m.opts.Getenv("EDITOR"), "vi")
	was := m.input.text()
	var done edited
	run := func() {
		m.stops.ignore()
		defer m.stops.watch()
		done.text, done.err = m.lent.edit(m.jobs.ctx, editor, was)
	}
	return tea.Exec(meanwhile(run), func(err error) tea.Msg {
		done.err = cmp.Or(done.err, err)
		return done
	})
}

// edited takes in what came of the editor.
func (m *model) edited(e edited) tea.Cmd {
	if e.err != nil {
		m.talk.Notice("error", "the input is as it was: "+e.err.Error())
		m.talk.End()
	} else if e.text != m.input.text() {
		m.input.set(e.text)
		m.menu.close()
	}
	return m.resumed()
}

// wasSetUp is what came of nous setup.
type wasSetUp struct{ err error }

// setUp has nous setup ask for a model in the terminal.
func (m *model) setUp() tea.Cmd {
	if len(m.opts.SetUp) == 0 {
		m.talk.Notice("error", "keys and the daemon's model are files of its machine: run nous setup there")
		m.talk.End()
		return nil
	}
	args := m.opts.SetUp
	var failed error
	run := func() {
		m.stops.ignore()
		defer m.stops.watch()
		failed = m.lent.run(m.jobs.ctx, args...)
	}
	return tea.Exec(meanwhile(run), func(err error) tea.Msg { return wasSetUp{cmp.Or(failed, err)} })
}

// setUpDone takes in what came of it.
func (m *model) setUpDone(s wasSetUp) tea.Cmd {
	if s.err != nil {
		m.talk.Notice("error", "no model was chosen: "+s.err.Error())
		m.talk.End()
	}
	m.refresh()
	return m.resumed()
}

// lent is the terminal while another program has it. Signals may come from any
// goroutine.
type lent struct {
	mu   sync.Mutex
	end  context.CancelFunc // of that program; nil: there is none
	back time.Time          // when the last one ended
}

// lateSignal is how long after another program has ended a signal may come that the
// terminal sent to both: of one that ends by it nous may hear first.
const lateSignal = 2 * time.Second

// keeps tells whether a signal from the terminal is for the other program
// alone; one that ends nous ends that first.
func (l *lent) keeps(sig os.Signal) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if sig == syscall.SIGINT || sig == syscall.SIGQUIT {
		return l.end != nil || !l.back.IsZero() && time.Since(l.back) < lateSignal
	}
	if l.end != nil {
		l.end()
	}
	return false
}

func (l *lent) to(end context.CancelFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.end = end; end == nil {
		l.back = time.Now()
	}
}

// edit has a text edited in a file of a folder that only this user can enter,
// and that is gone afterwards.
func (l *lent) edit(ctx context.Context, editor, text string) (string, error) {
	dir, err := os.MkdirTemp("", "nous-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "message.md")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return "", err
	}
	line := editor + ` "$1"`
	if !strings.ContainsAny(editor, "=;&|<>`$(\n") { // then no shell stands between it and a signal
		line = "exec " + line
	}
	if err := l.run(ctx, "sh", "-c", line, "sh", path); err != nil {
		return "", fmt.Errorf("%s: %w", editor, err)
	}
	text, err = readEdited(path)
	if errors.Is(err, regular.ErrLong) { // what was written there is nowhere else
		kept := dir + ".md"
		return "", errors.Join(fmt.Errorf("%w; it is kept in %s", err, kept), os.Rename(path, kept))
	}
	return text, err
}

func readEdited(path string) (string, error) {
	f, err := regular.Open(path, os.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxText+1))
	switch {
	case err != nil:
		return "", err
	case len(text) > maxText:
		return "", fmt.Errorf("the text %w: a message has at most %d bytes", regular.ErrLong, maxText)
	}
	return strings.TrimSuffix(strings.ToValidUTF8(string(text), "\ufffd"), "\n"), nil
}

// run runs a program in the terminal, and gives that back as it was before.
func (l *lent) run(ctx context.Context, args ...string) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	l.to(end)
	defer l.to(nil)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGHUP) }
	before, stateErr := term.GetState(os.Stdin.Fd())
	tstp := make(chan os.Signal, 1)
	signal.Notify(tstp, syscall.SIGTSTP)
	defer signal.Stop(tstp)
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	var stopping sync.WaitGroup
	stopping.Go(func() { stopWith(cmd.Process, tstp, ended) })
	err := cmd.Wait()
	close(ended)
	stopping.Wait()
	if err != nil { // it may have had no time to put things in order
		_, _ = io.WriteString(os.Stdout, sane)
	}
	if stateErr == nil {
		_ = term.Restore(os.Stdin.Fd(), before)
	}
	return err
}

// sane undoes what a program that was killed may have left set: the mouse,
// pasting in brackets, the keys' other mode, a hidden cursor, colours.
const sane = "\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?1l\x1b>\x1b[?25h\x1b[m"

// stopWith stops nous together with a program that the terminal's user
// suspends, until a shell continues both; without one the program goes on at
// once. It ends when that has ended.
func stopWith(p *os.Process, tstp <-chan os.Signal, ended <-chan struct{}) {
	for {
		select {
		case <-ended:
			return
		case <-tstp:
			if stoppable() {
				stop()
			}
			_ = p.Signal(syscall.SIGCONT)
		}
	}
}
