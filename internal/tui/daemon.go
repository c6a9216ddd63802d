package tui

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"noused/internal/tui/cell"
)

const (
	daemonPatience = 20 * time.Second
	logTail        = 4 << 10 // bytes of what systemd says that a failure shows
)

// offer is what nous proposes where no daemon runs.
type offer struct {
	asked   bool   // whether the user's systemd has the units
	service bool   // it has
	doing   string // "" is waiting for the user
	problem string
}

// offered says whether the user's systemd knows the daemon's units, started
// what came of starting it.
type (
	offered bool
	started struct {
		opts *Options // of the daemon that was to be started
		err  error
	}
)

func (ds *daemons) askForService() {
	if ds.offer.asked || !ds.opts.Unit {
		return
	}
	ds.offer.asked = true
	ds.jobs.Start(func(ctx context.Context) tea.Msg {
		_, err := systemctl(ctx, 3*time.Second, "cat", "noused.socket")
		return offered(err == nil)
	})
}

func (m *model) offerLines() []string {
	width := m.width
	var lines []string
	add := func(text string) { lines = append(lines, cell.Wrap(text, width)...) }
	add(m.theme.Title.Render("no daemon runs at " + cell.Line(m.opts.Place, 200)))
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
		m.talk.Notice("info", "a daemon runs at "+m.opts.Place)
		return
	case m.offer.doing != "":
		return
	}
	m.offer.doing, m.offer.problem = "starting a daemon …", ""
	o := m.opts
	m.jobs.Start(func(ctx context.Context) tea.Msg { return started{o, o.Start(ctx)} })
}

func (ds *daemons) enableService() {
	if ds.offer.doing != "" {
		return
	}
	ds.offer.doing, ds.offer.problem = "enabling the user service …", ""
	o := ds.opts
	ds.jobs.Start(func(ctx context.Context) tea.Msg {
		out, err := systemctl(ctx, daemonPatience, "enable", "--now", "noused.socket", "noused-events.socket")
		if err != nil {
			err = fmt.Errorf("systemctl --user enable --now noused.socket: %w\n%s", err, out)
		}
		return started{o, err}
	})
}

func (m *model) started(s started) tea.Cmd {
	if s.opts != m.opts {
		if s.err != nil {
			m.talk.Notice("error", s.opts.Host+": "+s.err.Error())
		}
		return nil
	}
	m.offer.doing = ""
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
