// Package live shows the sessions of a daemon, or of several, as they change: a table on a terminal,
// and in a pipe a line for each change.
//
// A List and a Board belong to the goroutine that runs them. The package refuses to start a daemon,
// and to decide when a person has seen enough: its functions go on until their context ends.
package live

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"noused/internal/client"
	"noused/internal/client/follow"
	"noused/internal/client/hosts"
	"noused/internal/client/plain"
	"noused/internal/fleet"
	"noused/internal/fleet/via"
	"noused/internal/plaintext"
	"noused/internal/protocol"
)

const (
	drawEvery  = 50 * time.Millisecond // at most, where drawing takes long
	retryPause = 500 * time.Millisecond
	restFor    = 4 // times as long as drawing took, the terminal is left alone
)

// AtOnce is how many hosts of a fleet are asked at a time.
const AtOnce = 16

// Board shows what is known of the sessions of several hosts. Make it with NewFleet or NewHosts.
type Board struct {
	*plain.Printer
	out   *plain.Output // where the Printer writes to
	fleet *via.Fleet    // nil of hosts that are named
	named []hosts.Host
	watch *hosts.Watch

	late bool      // what is on the terminal is not what is known
	rest time.Time // nothing is drawn before
	rows []string  // on the terminal
	size [2]int    // of the terminal
	lost string    // what was said of the connection, while it is lost
}

// NewFleet shows the hosts of a fleet, or those of only. They come and go.
func NewFleet(p *plain.Printer, out *plain.Output, f *via.Fleet, only []string) *Board {
	b := &Board{Printer: p, out: out, fleet: f}
	b.watch = hosts.NewWatch(hosts.Options{
		Host: func(name string) hosts.Host { return f.Host(name).AsHost() }, Only: only, Raw: p.JSON,
		AtOnce: AtOnce, Stays: fleet.PresenceTTL, Every: fleet.PresenceEvery, View: b,
	})
	return b
}

// NewHosts shows hosts that are named: those stay, whatever happens.
func NewHosts(p *plain.Printer, out *plain.Output, all []hosts.Host) *Board {
	b := &Board{Printer: p, out: out, named: all}
	b.watch = hosts.NewWatch(hosts.Options{
		Host: func(name string) hosts.Host {
			return all[slices.IndexFunc(all, func(h hosts.Host) bool { return h.Name == name })]
		}, Raw: p.JSON, AtOnce: len(all), Every: listAgain, View: b,
	})
	return b
}

// Run shows them until ctx ends, or until nobody reads any more.
func (b *Board) Run(ctx context.Context) error {
	if b.fleet == nil {
		return b.runNamed(ctx)
	}
	return b.runFleet(ctx)
}

func (b *Board) runNamed(ctx context.Context) error {
	news := make(chan hosts.News, len(b.named))
	for _, h := range b.named {
		news <- hosts.News{Host: h.Name, Here: true}
	}
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	defer following.Wait()
	defer cancel()
	following.Go(func() { sendNews(ctx, b.named, news) })
	return b.watch.Follow(ctx, func(ctx context.Context) (hosts.News, error) {
		select {
		case n := <-news:
			return n, nil
		case <-ctx.Done():
			return hosts.News{}, context.Cause(ctx)
		}
	})
}

// sendNews says which hosts may have other sessions now, until ctx ends. A host whose events
// do not come back is listed now and then.
func sendNews(ctx context.Context, all []hosts.Host, news chan<- hosts.News) {
	_ = hosts.Follow(ctx, all, func(h hosts.Host, line follow.Line) error {
		if changesSessions(line.Type) {
			select {
			case news <- hosts.News{Host: h.Name, MayHaveChanged: true}:
			case <-ctx.Done():
			}
		}
		return nil
	}, func(hosts.Host, error) {})
}

func (b *Board) runFleet(ctx context.Context) error {
	for first := true; ; first = false {
		err := b.connected(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case b.out.Failure() != nil:
			return b.out.Failure()
		case first && b.watch.Hosts() == 0 || !mayComeBack(err):
			return err
		}
		if text := err.Error(); text != b.lost {
			b.lost = text
			b.Notef("%s; trying again", err)
		}
		select {
		case <-time.After(retryPause):
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
func (b *Board) connected(ctx context.Context) error {
	w, err := b.fleet.Watch(ctx)
	if err != nil {
		return err
	}
	defer w.Close()
	if b.lost != "" {
		b.lost = ""
		b.Notef("connected again")
	}
	return b.watch.Follow(ctx, func(ctx context.Context) (hosts.News, error) {
		n, err := w.Next(ctx)
		return hosts.News{Host: n.Host, Gone: n.Gone, Here: n.Seen != nil, MayHaveChanged: changesSessions(n.Type)}, err
	})
}

// changesSessions tells whether a list of sessions may be another one after an event.
func changesSessions(typ string) bool {
	return typ != (protocol.MessageUpdate{}).Type() && typ != (protocol.ToolUpdate{}).Type()
}

// Failed is hosts.View.
func (b *Board) Failed(host string, err error) {
	b.late = true
	if !b.onScreen() {
		b.Complain(host + ": " + protocol.ErrorText(err))
	}
}

func (b *Board) onScreen() bool { return b.OutStyle.Terminal && !b.JSON }

// Listed is hosts.View: in a pipe it writes what has changed of a host's sessions.
func (b *Board) Listed(before, now []hosts.Session) {
	b.late = true
	if b.onScreen() {
		return
	}
	changed, gone := hosts.Changes(before, now, func(x, y *hosts.Session) bool {
		return b.lineOf(*x, false) == b.lineOf(*y, false)
	})
	var text []byte
	for _, s := range changed {
		text = append(append(text, b.lineOf(s, false)...), '\n')
	}
	for _, s := range gone {
		text = append(append(text, b.lineOf(s, true)...), '\n')
	}
	if len(text) > 0 {
		_, _ = b.out.Write(text) // its failure is remembered
	}
}

// lineOf is a session's line without its end.
func (b *Board) lineOf(s hosts.Session, deleted bool) string {
	if b.JSON {
		return string(plaintext.JSON(s.Line(deleted)))
	}
	state := plain.StateWord(s.SessionInfo)
	if deleted {
		state = "deleted"
	}
	return b.Fit(strings.TrimRight(fmt.Sprintf("%s  %-9s  %s  %s  %s", s.Host, state, s.SessionID,
		plain.OneLine(s.Workdir, 4096), plain.OneLine(s.Title, 60)), " "))
}

// Show is hosts.View: it draws what has changed on the terminal.
func (b *Board) Show() (again time.Duration, err error) {
	now := time.Now()
	switch {
	case !b.late || !b.onScreen():
	case now.Before(b.rest):
		again = b.rest.Sub(now)
	default:
		b.redraw(now)
	}
	return again, b.out.Failure()
}

func (b *Board) redraw(now time.Time) {
	b.late = false
	width, height := plain.SizeOf(b.out.W)
	var rows []string
	for _, line := range b.lines(height - 1) {
		rows = append(rows, b.OutStyle.Paint(line.Look, plain.CutLine(line.Text, width)))
	}
	b.draw(rows, [2]int{width, height})
	b.rest = time.Now().Add(min(drawEvery, time.Since(now)*restFor))
}

// draw writes the rows that are not there already.
func (b *Board) draw(rows []string, size [2]int) {
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
	io.WriteString(b.out, text.String())
}

// lines are at most so many: the status, the hosts with a problem, and sessions.
func (b *Board) lines(most int) []plain.Span {
	var problems []string
	b.watch.Problems(func(host, why string) { problems = append(problems, host+": "+plain.OneLine(why, 200)) })
	some, count, waiting := b.watch.First(max(most-len(problems)-2, 0))
	lines := []plain.Span{{
		Text: fmt.Sprintf("%d hosts, %d sessions, %d need you", b.watch.Hosts(), count, waiting), Look: plain.Bold,
	}}
	for _, p := range problems {
		lines = append(lines, plain.Span{Text: p, Look: plain.Red})
	}
	for i, line := range plain.Table(Rows(some)) {
		look := plain.Span{Text: line}
		if i == 0 {
			look.Look = plain.Dim
		}
		lines = append(lines, look)
	}
	return lines[:min(len(lines), most)]
}

// Rows are the sessions of several hosts as a table has them, with its header.
func Rows(all []hosts.Session) [][]string {
	rows := [][]string{{"HOST", "STATE", "SESSION", "UPDATED", "FOLDER", "TITLE"}}
	for _, s := range all {
		rows = append(rows, []string{
			s.Host, plain.StateWord(s.SessionInfo), s.SessionID, plain.Stamp(s.UpdatedAt),
			plain.OneLine(s.Workdir, 40), plain.OneLine(s.Title, 60),
		})
	}
	return rows
}
