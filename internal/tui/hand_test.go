package tui

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"noused/internal/tui/jobs"
	"noused/internal/tui/slash"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"noused/internal/agent/agenttest"
	"noused/internal/client/follow"
	"noused/internal/daemontest"
	"noused/internal/start"
)

// patience ends a wait that is in vain.
const patience = 2 * time.Minute

var noused string

func TestMain(m *testing.M) {
	if os.Getenv(beAgent) != "" {
		agenttest.Main()
		return
	}
	daemontest.Main(m, &noused)
}

// beAgent is a variable with which this program is the agent of package agenttest.
const beAgent = "NOUSED_TEST_AGENT"

func startNoused(t *testing.T, config string) *daemontest.Daemon {
	t.Helper()
	return daemontest.Start(t, noused, config)
}

// hand is a user of the screen: it does bubbletea's part, without a terminal.
type hand struct {
	*model
	t    *testing.T
	msgs chan tea.Msg
	did  []tea.Msg // what the model asked bubbletea for

	watches bool // the connection for the events of all sessions stands
}

// use opens the screen of a daemon, which may be nowhere.
func use(t *testing.T, socket string) *hand {
	t.Helper()
	return useIn(t, socket, nil)
}

// useIn is use with more in the environment.
func useIn(t *testing.T, socket string, more map[string]string) *hand {
	t.Helper()
	return useSites(t, more, siteAt(socket))
}

// useSites opens the screen of several daemons.
func useSites(t *testing.T, more map[string]string, first Site, others ...slash.Site) *hand {
	t.Helper()
	state := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	h := &hand{t: t, msgs: make(chan tea.Msg)}
	l := follow.Open(first.Daemon, "", nil, nil)
	j := &jobs.Jobs{Ctx: ctx, Send: func(msg tea.Msg) {
		select {
		case h.msgs <- msg:
		case <-ctx.Done():
		}
	}}
	env := map[string]string{"XDG_STATE_HOME": state, "HOME": state, "TERM": "xterm"}
	maps.Copy(env, more)
	h.model = newModel(Options{
		Site: first, Others: others, Getenv: func(name string) string { return env[name] }, Now: time.Now,
	}, l, j)
	t.Cleanup(func() {
		cancel()
		j.WG.Wait()
		h.link.Close()
	})
	h.Init()
	h.send(tea.WindowSizeMsg{Width: 80, Height: 24})
	return h
}

// useDaemon is use with a daemon that answers.
func useDaemon(t *testing.T, socket string) *hand {
	t.Helper()
	h := use(t, socket)
	h.until("the session", func() bool { return h.known })
	return h
}

// send gives the model a message, and does what it asks for.
func (h *hand) send(msg tea.Msg) {
	if _, ok := msg.(unheard); ok {
		h.watches = true
	}
	if ev, ok := msg.(happened); ok && ev.site == nil { // a test's
		ev.site = h.site
		msg = ev
	}
	if _, cmd := h.Update(msg); cmd != nil {
		h.did = append(h.did, cmd())
	}
}

var named = map[string]tea.KeyPressMsg{
	"enter": {Code: tea.KeyEnter}, "tab": {Code: tea.KeyTab}, "esc": {Code: tea.KeyEscape},
	"up": {Code: tea.KeyUp}, "down": {Code: tea.KeyDown}, "f2": {Code: tea.KeyF2}, "f3": {Code: tea.KeyF3},
	"alt+enter": {Code: tea.KeyEnter, Mod: tea.ModAlt}, "alt+t": {Code: 't', Mod: tea.ModAlt},
	"ctrl+c": {Code: 'c', Mod: tea.ModCtrl},
	"ctrl+d": {Code: 'd', Mod: tea.ModCtrl}, "ctrl+r": {Code: 'r', Mod: tea.ModCtrl},
	"ctrl+p": {Code: 'p', Mod: tea.ModCtrl}, "ctrl+t": {Code: 't', Mod: tea.ModCtrl},
	"ctrl+f": {Code: 'f', Mod: tea.ModCtrl},
}

// press presses keys by name.
func (h *hand) press(keys ...string) {
	h.t.Helper()
	for _, name := range keys {
		key, ok := named[name]
		if !ok {
			h.t.Fatalf("no key %s", name)
		}
		h.send(key)
	}
}

// write types a text.
func (h *hand) write(text string) {
	for _, r := range text {
		h.send(tea.KeyPressMsg{Code: r, Text: string(r)})
	}
}

// later is when what has come to the screen by now has been there for long.
func (h *hand) later() {
	now := h.opts.Now().Add(time.Minute)
	h.opts.Now = func() time.Time { return now }
}

// screen is what the user sees, without colours.
func (h *hand) screen() string { return ansi.Strip(h.View().Content) }

// until lets the daemon and the jobs speak until something is so.
func (h *hand) until(what string, so func() bool) {
	h.t.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	for !so() {
		select {
		case msg := <-h.msgs:
			h.send(msg)
		case <-late.C:
			h.t.Fatalf("no %s; the screen is\n%s", what, h.screen())
		}
	}
}

// sees waits for texts on the screen.
func (h *hand) sees(texts ...string) {
	h.t.Helper()
	for _, text := range texts {
		h.until(fmt.Sprintf("%q on the screen", text), func() bool { return strings.Contains(h.screen(), text) })
	}
}

// reads waits for a text that may go on in the next line.
func (h *hand) reads(text string) {
	h.t.Helper()
	h.until(fmt.Sprintf("%q on the screen", text), func() bool {
		return strings.Contains(unwrapped(h.screen()), unwrapped(text))
	})
}

// unwrapped is a text without white space.
func unwrapped(text string) string { return strings.Join(strings.Fields(text), "") }

// held has a tool run until the test lets it end, which the returned func does.
func (h *hand) held(dir string) (release func()) {
	h.t.Helper()
	h.write(fmt.Sprintf(` !bash {"command":"until [ -e %s/go ]; do sleep 0.05; done; echo let go"}`, dir))
	h.press("enter")
	h.until("running tool", func() bool { return h.running() && len(h.tools) == 1 })
	return func() {
		if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
			h.t.Fatal(err)
		}
	}
}

func (h *hand) quit() bool {
	for _, msg := range h.did {
		if _, ok := msg.(tea.QuitMsg); ok {
			return true
		}
	}
	return false
}

// siteAt is a daemon of this machine.
func siteAt(socket string) Site {
	return Site{Daemon: follow.Socket(socket), Place: socket, Start: startAt(socket)}
}

// startAt starts a daemon as nous does.
func startAt(socket string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := start.Daemon(ctx, start.Options{Within: patience, Socket: socket, Named: true, Getenv: os.Getenv})
		var failed *start.Error
		if errors.As(err, &failed) {
			return errors.New(failed.Lines())
		}
		return err
	}
}
