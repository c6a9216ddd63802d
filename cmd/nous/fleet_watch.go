package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"noused/internal/client"
	"noused/internal/cmdline"
	"noused/internal/fleet"
	"noused/internal/fleet/via"
	"noused/internal/plaintext"
	"noused/internal/protocol"
)

const (
	drawEvery  = 50 * time.Millisecond  // at most, where drawing takes long
	hostsEvery = 100 * time.Millisecond // between looks at who has not said for long that it is there
	hostsOf    = 100                    // looks: in so many all hosts are asked again
	pauseFleet = 500 * time.Millisecond
	restFor    = 4 // times as long as a host took to answer, it is left alone, for each that is asked; and the terminal
)

func (a *app) fleetWatchCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "watch",
		Short: "Show the sessions of all hosts as they change",
		Long: `Show the sessions of all hosts of the fleet, or with --on of one, as they change, until
Ctrl-C: on a terminal the table, those that need somebody first, and in a pipe a line for
each change. A host that does not answer has a line, and is asked again. With --json a line
is a session as its daemon tells it, in "session", with its "host", and with "deleted":true
when it is no more, or its host has left.`,
		Example: "  nous fleet watch\n  nous fleet watch --json",
		Args:    cmdline.Wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := a.openFleet()
			if err != nil {
				return err
			}
			return a.watchFleet(cmd.Context(), f)
		},
	}
}

// watchFleet goes on until Ctrl-C, or until nobody reads any more.
func (a *app) watchFleet(ctx context.Context, f *via.Fleet) error {
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE) // a write tells it
	defer signal.Stop(broken)
	keys := watchInterrupts(ctx)
	defer keys.stop()
	defer debug.SetGCPercent(debug.SetGCPercent(25)) // lists come and go all the time
	b := &fleetBoard{a: a, f: f, hosts: map[string]*watchedHost{}, listed: make(chan listedHost)}
	err := b.run(keys.soft)
	switch {
	case errors.Is(a.out.failure(), syscall.EPIPE):
		return &quietExit{exitOK}
	case errors.Is(err, errInterrupted):
		return nil
	}
	return err
}

// fleetBoard is what is known of a fleet's sessions. One goroutine owns it.
type fleetBoard struct {
	a      *app
	f      *via.Fleet
	hosts  map[string]*watchedHost
	asking int // hosts that are being asked
	listed chan listedHost

	late bool      // what is on the terminal is not what is known
	rest time.Time // nothing is drawn before
	rows []string  // on the terminal
	size [2]int    // of the terminal
	lost string    // what was said of the connection, while it is lost
}

// watchedHost is a host of the fleet's.
type watchedHost struct {
	seen     time.Time
	sessions []fleetSession // those that need somebody first
	problem  string
	dirty    bool // something has happened since it was asked
	asking   bool
	left     bool
	asked    time.Time
	rest     time.Time // it is not asked before
}

type listedHost struct {
	name     string
	sessions []fleetSession
	err      error
}

func (b *fleetBoard) run(ctx context.Context) error {
	for first := true; ; first = false {
		err := b.connected(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case b.a.out.failure() != nil:
			return b.a.out.failure()
		case first && len(b.hosts) == 0 || !mayComeBack(err):
			return err
		}
		if text := err.Error(); text != b.lost {
			b.lost = text
			b.a.notef("%s; trying again", err)
		}
		select {
		case <-time.After(pauseFleet):
		case <-ctx.Done():
		}
	}
}

// mayComeBack tells whether it helps to try again. A server that was started anew has not
// the bucket of hosts until a daemon has joined.
func mayComeBack(err error) bool {
	refused := (*via.RefusedError)(nil)
	return errors.Is(err, client.ErrLost) || errors.As(err, &refused) && refused.Missing
}

// connected watches for as long as the connection lasts.
func (b *fleetBoard) connected(ctx context.Context) error {
	w, err := b.f.Watch(ctx)
	if err != nil {
		return err
	}
	defer w.Close()
	if b.lost != "" {
		b.lost = ""
		b.a.notef("connected again")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	news := make(chan via.News)
	defer func() { // what is being asked ends, too
		cancel(nil)
		for ; b.asking > 0; b.asking-- {
			b.hosts[(<-b.listed).name].asking = false
		}
	}()
	go func() { // ends with ctx
		for {
			n, err := w.Next(ctx)
			if err != nil {
				cancel(err)
				return
			}
			select {
			case news <- n:
			case <-ctx.Done():
				return
			}
		}
	}()
	return b.follow(ctx, news)
}

func (b *fleetBoard) follow(ctx context.Context, news <-chan via.News) error {
	look, soon := time.NewTicker(hostsEvery), time.NewTimer(0)
	defer look.Stop()
	defer soon.Stop()
	for _, h := range b.hosts {
		h.dirty = true
	}
	for {
		select {
		case n := <-news:
			b.applyNews(n)
		case l := <-b.listed:
			b.list(l)
		case <-look.C:
			b.age()
		case <-soon.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		b.askSome(ctx)
		if b.show(); b.a.out.failure() != nil {
			return b.a.out.failure()
		}
		soon.Reset(b.next())
	}
}

// next is how long it is until there is something to do that nobody tells.
func (b *fleetBoard) next() time.Duration {
	next := hostsEvery
	if b.late && b.onScreen() {
		next = min(next, time.Until(b.rest))
	}
	for _, h := range b.hosts {
		if h.dirty && !h.asking && b.asking < atOnce {
			next = min(next, time.Until(h.rest))
		}
	}
	return next
}

func (b *fleetBoard) applyNews(n via.News) {
	h := b.hosts[n.Host]
	switch {
	case len(b.a.via.on) > 0 && !slices.Contains(b.a.via.on, n.Host):
	case n.Gone:
		b.forget(n.Host)
	case n.Seen != nil && h == nil:
		b.hosts[n.Host] = &watchedHost{seen: time.Now(), dirty: true}
	case n.Seen != nil:
		h.seen, h.left = time.Now(), false
	case h != nil && n.Type != (protocol.MessageUpdate{}).Type() && n.Type != (protocol.ToolUpdate{}).Type():
		h.dirty = true
	}
}

// age forgets hosts that have not said for long that they are there, and has the others
// asked now and then, not all of them at a time: of some changes no event tells.
func (b *fleetBoard) age() {
	most := 1 + len(b.hosts)/hostsOf
	for name, h := range b.hosts {
		switch {
		case time.Since(h.seen) > fleet.PresenceTTL:
			b.forget(name)
		case h.problem != "" && time.Since(h.asked) > listAgain:
			h.dirty = true
		case most > 0 && !h.dirty && time.Since(h.asked) > fleet.PresenceEvery:
			h.dirty = true
			most--
		}
	}
}

func (b *fleetBoard) forget(name string) {
	h := b.hosts[name]
	switch {
	case h == nil:
	case h.asking:
		h.left = true // what it says is waited for
	default:
		delete(b.hosts, name)
		b.late = true
		b.printChanges(h.sessions, nil)
	}
}

// askSome asks hosts that have news, some at a time.
func (b *fleetBoard) askSome(ctx context.Context) {
	now := time.Now()
	for name, h := range b.hosts {
		if b.asking == atOnce {
			return
		}
		if !h.dirty || h.asking || now.Before(h.rest) {
			continue
		}
		h.dirty, h.asking, h.asked = false, true, now
		b.asking++
		go func() { // ends with ctx; connected takes what comes
			sessions, err := sessionsOf(ctx, b.f.Host(name), name, listRoom(maxListOfHost))
			if !b.a.json {
				for i := range sessions {
					sessions[i].raw = nil
				}
			}
			slices.SortFunc(sessions, func(x, y fleetSession) int { return byHostNeed(&x, &y) })
			b.listed <- listedHost{name, sessions, err}
		}()
	}
}

func (b *fleetBoard) list(l listedHost) {
	h := b.hosts[l.name]
	now := time.Now()
	h.rest = now.Add(min(listEvery, now.Sub(h.asked)*restFor*time.Duration(b.asking)))
	b.asking--
	h.asking = false
	if h.left {
		b.forget(l.name)
		return
	}
	if l.err != nil {
		if h.problem != l.err.Error() && !b.onScreen() {
			b.a.complain(l.name + ": " + l.err.Error())
		}
		h.problem = l.err.Error()
	} else {
		b.printChanges(h.sessions, l.sessions)
		h.problem, h.sessions = "", l.sessions
	}
	b.late = true
}

func (b *fleetBoard) onScreen() bool { return b.a.outStyle.terminal && !b.a.json }

// printChanges writes what has changed of a host's sessions, in a pipe.
func (b *fleetBoard) printChanges(before, now []fleetSession) {
	if b.onScreen() {
		return
	}
	was := make(map[string]int, len(before))
	for i, s := range before {
		was[s.SessionID] = i
	}
	var text []byte
	for _, s := range now {
		line := b.lineOf(s, stateWord(s.SessionInfo), "")
		if i, known := was[s.SessionID]; !known || b.lineOf(before[i], stateWord(before[i].SessionInfo), "") != line {
			text = append(append(text, line...), '\n')
		}
		delete(was, s.SessionID)
	}
	for _, s := range before {
		if _, gone := was[s.SessionID]; gone {
			text = append(append(text, b.lineOf(s, "deleted", `,"deleted":true`)...), '\n')
		}
	}
	if len(text) > 0 {
		_, _ = b.a.out.Write(text) // its failure is remembered
	}
}

// lineOf is a session's line without its end.
func (b *fleetBoard) lineOf(s fleetSession, state, more string) string {
	if b.a.json {
		return string(plaintext.JSON(s.line(more)))
	}
	return b.a.fit(strings.TrimRight(fmt.Sprintf("%s  %-9s  %s  %s  %s", s.host, state, s.SessionID, oneLine(s.Workdir, 4096), oneLine(s.Title, 60)), " "))
}

// show draws what has changed on the terminal.
func (b *fleetBoard) show() {
	now := time.Now()
	if !b.late || !b.onScreen() || now.Before(b.rest) {
		return
	}
	b.late = false
	width, height := b.a.terminalSize()
	var rows []string
	for _, line := range b.lines(height - 1) {
		rows = append(rows, b.a.outStyle.paint(line.look, oneWide(line.text, width)))
	}
	b.draw(rows, [2]int{width, height})
	b.rest = time.Now().Add(min(drawEvery, time.Since(now)*restFor))
}

// draw writes the rows that are not there already.
func (b *fleetBoard) draw(rows []string, size [2]int) {
	var text strings.Builder
	if size != b.size {
		b.rows, b.size = nil, size
		text.WriteString("\x1b[H\x1b[J")
	}
	for i, row := range rows {
		if i >= len(b.rows) || b.rows[i] != row {
			fmt.Fprintf(&text, "\x1b[%dH\x1b[K%s", i+1, row)
		}
	}
	switch {
	case len(rows) < len(b.rows):
		fmt.Fprintf(&text, "\x1b[%dH\x1b[J", len(rows)+1)
	case text.Len() > 0:
		fmt.Fprintf(&text, "\x1b[%dH", len(rows)+1)
	}
	b.rows = rows
	io.WriteString(b.a.out, text.String())
}

// lines are at most so many: the status, the hosts with a problem, and sessions.
func (b *fleetBoard) lines(most int) []span {
	var problems []string
	for name, h := range b.hosts {
		if h.problem != "" {
			problems = append(problems, name+": "+oneLine(h.problem, 200))
		}
	}
	slices.Sort(problems)
	some, count, waiting := b.first(max(most-len(problems)-2, 0))
	lines := []span{{fmt.Sprintf("%d hosts, %d sessions, %d need you", len(b.hosts), count, waiting), asBold}}
	for _, p := range problems {
		lines = append(lines, span{p, asRed})
	}
	for i, line := range table(fleetRows(some)) {
		look := span{text: line}
		if i == 0 {
			look.look = asDim
		}
		lines = append(lines, look)
	}
	return lines[:min(len(lines), most)]
}

// first are at most so many sessions, those that need somebody first, and how many there
// are and wait.
func (b *fleetBoard) first(most int) (some []fleetSession, count, waiting int) {
	var best []*fleetSession
	for _, h := range b.hosts {
		count += len(h.sessions)
		for i := range h.sessions {
			s := &h.sessions[i]
			full := len(best) == most && (most == 0 || byHostNeed(s, best[most-1]) >= 0)
			if s.Need() == protocol.NeedAnswer {
				waiting++
			} else if full {
				break
			}
			if !full {
				at, _ := slices.BinarySearchFunc(best, s, byHostNeed)
				best = slices.Insert(best[:min(len(best), most-1)], at, s)
			}
		}
	}
	for _, s := range best {
		some = append(some, *s)
	}
	return some, count, waiting
}
