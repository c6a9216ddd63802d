package tui

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	tea "charm.land/bubbletea/v2"
	"golang.org/x/sys/unix"

	"noused/internal/protocol"
	"noused/internal/tui/cell"
)

const (
	daemonPatience = 20 * time.Second
	lookAgain      = 25 * time.Millisecond
	logLimit       = 8 << 20 // bytes of the log before it begins anew
	logTail        = 4 << 10 // bytes of it that a failure shows
)

// offer is what nous proposes where no daemon runs.
type offer struct {
	asked   bool   // whether the user's systemd has the units
	service bool   // it has
	doing   string // "" is waiting for the user
	problem string
	child   child
}

// offered says whether the user's systemd knows the daemon's units, started
// what came of starting it.
type (
	offered bool
	started struct {
		child child
		err   error
	}
)

func (m *model) askForService() {
	if m.offer.asked || m.opts.Socket != protocol.DefaultSocket(m.opts.Getenv) {
		return // the unit's socket is the default one
	}
	m.offer.asked = true
	m.jobs.start(func(ctx context.Context) tea.Msg {
		_, err := systemctl(ctx, 3*time.Second, "cat", "noused.socket")
		return offered(err == nil)
	})
}

func (m *model) offerLines() []string {
	width := m.width
	var lines []string
	add := func(text string) { lines = append(lines, cell.Wrap(text, width)...) }
	add(m.theme.Title.Render("no daemon runs at " + cell.Line(m.opts.Socket, 200)))
	switch {
	case m.offer.doing != "":
		add(m.theme.Accent.Render(m.offer.doing))
	default:
		add(m.theme.Accent.Render("s") + "  start one; it goes on when nous ends")
		if m.offer.service {
			add(m.theme.Accent.Render("u") + "  enable the user service, which starts one whenever it is needed")
		}
		add(m.theme.Accent.Render("q") + "  leave")
	}
	if m.offer.problem != "" {
		lines = append(lines, "")
		for line := range strings.SplitSeq(m.offer.problem, "\n") {
			add(m.theme.Error.Render(cell.Line(line, 1000)))
		}
	}
	return lines
}

// offerKey acts on the keys of the offer.
func (m *model) offerKey(key string) (cmd tea.Cmd, done bool) {
	switch key {
	case "s":
		m.startDaemon()
	case "u":
		if !m.offer.service {
			return nil, false
		}
		m.enableService()
	case "q":
		return tea.Quit, true
	default:
		return nil, false
	}
	return nil, true
}

// startDaemon starts one that does not depend on this terminal.
func (m *model) startDaemon() {
	switch {
	case m.offline == nil:
		m.talk.Notice("info", "a daemon runs at "+m.opts.Socket)
		return
	case m.offer.doing != "":
		return
	}
	m.offer.doing, m.offer.problem = "starting a daemon …", ""
	o := m.opts
	m.jobs.start(func(ctx context.Context) tea.Msg {
		c, err := startDaemon(ctx, o)
		return started{c, err}
	})
}

func (m *model) enableService() {
	if m.offer.doing != "" {
		return
	}
	m.offer.doing, m.offer.problem = "enabling the user service …", ""
	m.jobs.start(func(ctx context.Context) tea.Msg {
		out, err := systemctl(ctx, daemonPatience, "enable", "--now", "noused.socket", "noused-events.socket")
		if err != nil {
			err = fmt.Errorf("systemctl --user enable --now noused.socket: %w\n%s", err, out)
		}
		return started{err: err}
	})
}

func (m *model) started(s started) tea.Cmd {
	m.offer.doing = ""
	if s.child != 0 {
		m.offer.child = s.child
	}
	switch {
	case s.err == nil:
	case m.known:
		m.talk.Notice("error", s.err.Error())
	default:
		m.offer.problem = s.err.Error()
	}
	return nil
}

func systemctl(ctx context.Context, patience time.Duration, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "systemctl", append([]string{"--user", "--no-pager"}, args...)...)
	cmd.WaitDelay = time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	text := out.String()
	return strings.TrimSpace(text[max(0, len(text)-logTail):]), err
}

// child is the process id of a daemon that was started here, 0 if none was.
type child int

// exited takes a child that has ended off the system's table.
func (c child) exited() (unix.WaitStatus, bool) {
	var status unix.WaitStatus
	if c == 0 {
		return status, false
	}
	pid, err := unix.Wait4(int(c), &status, unix.WNOHANG, nil)
	return status, err == nil && pid == int(c)
}

func (c *child) reap() {
	if _, ended := c.exited(); ended {
		*c = 0
	}
}

// startDaemon starts the noused that lies beside this program, else the one in
// PATH, in a session of its own, and waits until it listens. It works in the
// folder nous was started in. What it says goes to noused.log in the daemon's
// state folder; the end of that is part of the error.
func startDaemon(ctx context.Context, o Options) (child, error) {
	program, err := findDaemon()
	if err != nil {
		return 0, err
	}
	log, from, err := openLog(filepath.Join(stateDir(o.Getenv, "noused"), "noused.log"))
	if err != nil {
		return 0, err
	}
	defer log.Close()
	cmd := exec.Command(program, "--socket", o.Socket)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start %s: %w", program, err)
	}
	c := child(cmd.Process.Pid)
	if err := cmd.Process.Release(); err != nil {
		return c, fmt.Errorf("start %s: %w", program, err)
	}
	return c.awaitListening(ctx, o.Socket, log, from)
}

func (c child) awaitListening(ctx context.Context, socket string, log *os.File, from int64) (child, error) {
	ctx, cancel := context.WithTimeout(ctx, daemonPatience)
	defer cancel()
	for {
		if status, ended := c.exited(); ended {
			return 0, fmt.Errorf("the daemon ended with %s; %s says:\n%s", exitText(status), log.Name(), tail(log, from))
		}
		if conn, err := net.Dial("unix", socket); err == nil {
			return c, conn.Close()
		}
		if !pause(ctx, lookAgain) {
			return c, fmt.Errorf("the daemon does not listen yet; %s says:\n%s", log.Name(), tail(log, from))
		}
	}
}

func exitText(s unix.WaitStatus) string {
	if s.Signaled() {
		return "signal " + s.Signal().String()
	}
	return fmt.Sprintf("status %d", s.ExitStatus())
}

func findDaemon() (string, error) {
	if own, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(own), "noused")
		if info, err := os.Stat(beside); err == nil && info.Mode()&0o111 != 0 && !info.IsDir() {
			return beside, nil
		}
	}
	path, err := exec.LookPath("noused")
	if err != nil {
		return "", errors.New("noused is neither beside nous nor in PATH")
	}
	return path, nil
}

// openLog opens the log to append, and says how long it is already.
func openLog(path string) (*os.File, int64, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, 0, fmt.Errorf("the daemon's log: %w", err)
	}
	flags := os.O_RDWR | os.O_CREATE | os.O_APPEND
	if info, err := os.Stat(path); err == nil && info.Size() > logLimit {
		flags |= os.O_TRUNC
	}
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return nil, 0, fmt.Errorf("the daemon's log: %w", err)
	}
	from, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		f.Close()
		return nil, 0, fmt.Errorf("the daemon's log: %w", err)
	}
	return f, from, nil
}

func tail(log *os.File, from int64) string {
	info, err := log.Stat()
	if err != nil {
		return err.Error()
	}
	from = max(from, info.Size()-logTail)
	text, err := io.ReadAll(io.NewSectionReader(log, from, logTail))
	if err != nil {
		return err.Error()
	}
	return cmp.Or(strings.TrimSpace(string(text)), "(nothing)")
}
