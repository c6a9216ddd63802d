package terminal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/charmbracelet/x/term"

	"noused/internal/regular"
)

// Lent is the terminal while another program has it. Signals may come from any
// goroutine.
type Lent struct {
	mu   sync.Mutex
	end  context.CancelFunc // of that program; nil: there is none
	back time.Time          // when the last one ended
}

// lateSignal is how long after another program has ended a signal may come that the
// terminal sent to both: of one that ends by it nous may hear first.
const lateSignal = 2 * time.Second

// Keeps tells whether a signal from the terminal is for the other program
// alone; one that ends nous ends that first.
func (l *Lent) Keeps(sig os.Signal) bool {
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

func (l *Lent) to(end context.CancelFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.end = end; end == nil {
		l.back = time.Now()
	}
}

// Edit has a text edited in a file of a folder that only this user can enter,
// and that is gone afterwards.
func (l *Lent) Edit(ctx context.Context, editor, text string, most int) (string, error) {
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
	if err := l.Run(ctx, "sh", "-c", line, "sh", path); err != nil {
		return "", fmt.Errorf("%s: %w", editor, err)
	}
	text, err = readEdited(path, most)
	if errors.Is(err, regular.ErrLong) { // what was written there is nowhere else
		kept := dir + ".md"
		return "", errors.Join(fmt.Errorf("%w; it is kept in %s", err, kept), os.Rename(path, kept))
	}
	return text, err
}

func readEdited(path string, most int) (string, error) {
	f, err := regular.Open(path, os.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	switch {
	case err != nil:
		return "", err
	case len(text) > most:
		return "", fmt.Errorf("the text %w: a message has at most %d bytes", regular.ErrLong, most)
	}
	return strings.TrimSuffix(strings.ToValidUTF8(string(text), "\ufffd"), "\n"), nil
}

// Run runs a program in the terminal, and gives that back as it was before.
func (l *Lent) Run(ctx context.Context, args ...string) error {
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

// RunAsked is Run with one more argument: the path of an empty file, in which the program may write why
// it fails. That is the error then.
func (l *Lent) RunAsked(ctx context.Context, args ...string) error {
	why, err := os.CreateTemp("", "nous-why-")
	if err != nil {
		return err
	}
	defer os.Remove(why.Name())
	defer func() { _ = why.Close() }()
	err = l.Run(ctx, append(slices.Clone(args), why.Name())...)
	if text, _ := io.ReadAll(io.LimitReader(why, maxWhy)); err != nil && len(text) > 0 {
		return errors.New(strings.ToValidUTF8(string(text), "\ufffd"))
	}
	return err
}

// maxWhy is how much of a reason is read, in bytes.
const maxWhy = 4 << 10

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
			if Stoppable() {
				Stop()
			}
			_ = p.Signal(syscall.SIGCONT)
		}
	}
}
