package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/client"
	"noused/internal/client/follow"
	"noused/internal/client/hosts"
	"noused/internal/client/plain"
	"noused/internal/cmdline"
	"noused/internal/protocol"
)

// How often sessions are listed while they are watched.
const (
	listEvery = 200 * time.Millisecond // at most, while things happen
	listAgain = 5 * time.Second        // for what no event tells: sessions that were made or deleted
	maxWatch  = 1000                   // sessions
)

// liveList shows sessions as they change.
type liveList struct {
	a      *app
	p      protocol.ListSessionsParams
	all    bool // of all folders
	shown  []hosts.Session
	active string
	table  string // that is on the terminal
}

// watchSessions lists sessions and then what changes, until Ctrl-C, or until
// nobody reads any more. It goes on where the daemon was restarted.
func (a *app) watchSessions(ctx context.Context, p protocol.ListSessionsParams, all bool) error {
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE) // a write tells it
	defer signal.Stop(broken)
	keys := cmdline.WatchInterrupts(ctx)
	defer keys.Stop()
	if p.Limit == nil {
		limit := maxWatch
		p.Limit = &limit
	}
	l := &liveList{a: a, p: p, all: all}
	err := l.run(keys.Soft)
	switch {
	case errors.Is(a.out.Failure(), syscall.EPIPE):
		return &quietExit{exitOK}
	case errors.Is(err, cmdline.ErrInterrupted):
		return nil
	}
	return err
}

func (l *liveList) run(ctx context.Context) error {
	if _, err := l.list(ctx); err != nil { // a daemon says here that it cannot
		return leftOr(err)
	}
	f, err := l.a.subscribe(ctx, protocol.SubscribeParams{})
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		list, err := l.list(ctx)
		switch {
		case errors.Is(err, client.ErrLost), isNoDaemon(err):
			if _, err = f.Reconnect(ctx, err); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		if l.show(list); l.a.out.Failure() != nil {
			return l.a.out.Failure()
		}
		if err := awaitChange(ctx, f); err != nil {
			return err
		}
	}
}

// awaitChange returns when sessions should be listed again: soon after something
// has happened, at once after a gap, and now and then.
func awaitChange(ctx context.Context, f *follow.Feed) error {
	begin, patience := time.Now(), listAgain
	for {
		left := patience - time.Since(begin)
		if left <= 0 {
			return nil
		}
		h, err := f.Next(ctx, left)
		if errors.Is(err, follow.ErrQuiet) {
			return nil
		}
		if err != nil {
			return err
		}
		switch h := h.(type) {
		case follow.Line:
			if changesSessions(h.Type) {
				patience = listEvery
			}
		default: // connected again, or a gap
			return nil
		}
	}
}

// list asks for the sessions, those that need somebody first.
func (l *liveList) list(ctx context.Context) ([]hosts.Session, error) {
	payload, err := client.Raw(ctx, l.a.daemonSender(), protocol.ListSessions, l.p)
	if err != nil {
		return nil, err
	}
	var r struct {
		Sessions []jsontext.Value `json:"sessions"`
		Active   string           `json:"active_session_id"`
	}
	if err := json.Unmarshal(payload, &r); err != nil {
		return nil, fmt.Errorf("decode sessions: %w", err)
	}
	l.active = r.Active
	list := make([]hosts.Session, len(r.Sessions))
	for i, raw := range r.Sessions {
		list[i].Raw = raw
		if err := json.Unmarshal(raw, &list[i].SessionInfo); err != nil {
			return nil, fmt.Errorf("decode session: %w", err)
		}
	}
	hosts.Sort(list)
	return list, nil
}

func (l *liveList) show(list []hosts.Session) {
	if l.a.outStyle.Terminal && !l.a.json {
		l.draw(list)
		return
	}
	changed, gone := hosts.Changes(l.shown, list, func(x, y *hosts.Session) bool {
		if l.a.json {
			return string(x.Raw) == string(y.Raw)
		}
		return l.lineOf(x.SessionInfo, plain.StateWord(x.SessionInfo)) ==
			l.lineOf(y.SessionInfo, plain.StateWord(y.SessionInfo))
	})
	for _, s := range changed {
		l.tell(s, plain.StateWord(s.SessionInfo), s.Raw)
	}
	slices.SortFunc(gone, func(x, y hosts.Session) int { return strings.Compare(x.SessionID, y.SessionID) })
	for _, s := range gone {
		l.tell(s, "deleted", slices.Concat(s.Raw[:len(s.Raw)-1], []byte(`,"deleted":true}`)))
	}
	l.shown = list
}

func (l *liveList) tell(s hosts.Session, state string, object jsontext.Value) {
	if l.a.json {
		l.a.printJSON(object)
		return
	}
	l.a.println(l.lineOf(s.SessionInfo, state))
}

// lineOf is a session in a line for a pipe.
func (l *liveList) lineOf(s protocol.SessionInfo, state string) string {
	line := fmt.Sprintf("%-9s  %s", state, s.SessionID)
	if l.all {
		line += "  " + l.a.folderText(s.Workdir)
	}
	return strings.TrimRight(line+"  "+plain.OneLine(s.Title, 60), " ")
}

// draw writes the table anew if it has changed, as much of it as the terminal has
// room for.
func (l *liveList) draw(list []hosts.Session) {
	infos := make([]protocol.SessionInfo, len(list))
	for i, s := range list {
		infos[i] = s.SessionInfo
	}
	width, height := l.a.terminalSize()
	table := l.a.sessionTable(infos, l.active, l.all)
	if left := len(table) - height + 1; left > 0 {
		table = append(table[:height-2], plain.Span{Text: fmt.Sprintf("… %d more lines", left+1), Look: plain.Dim})
	}
	var text strings.Builder
	for _, line := range table {
		text.WriteString(l.a.outStyle.Paint(line.Look, plain.CutLine(line.Text, width)) + "\r\n")
	}
	if text.String() == l.table {
		return
	}
	l.table = text.String()
	fmt.Fprint(l.a.out, "\x1b[H\x1b[J"+l.table)
}

// terminalSize is 80 by 24 where the terminal does not say.
func (a *app) terminalSize() (width, height int) { return plain.SizeOf(a.out.W) }
