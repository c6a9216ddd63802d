package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/client"
	"noused/internal/client/follow"
	"noused/internal/client/hosts"
	"noused/internal/client/plain"
	"noused/internal/protocol"
)

// How often sessions are listed while they are watched.
const (
	listEvery = 200 * time.Millisecond // at most, while things happen
	listAgain = 5 * time.Second        // for what no event tells: sessions that were made or deleted
	maxList   = 1000                   // sessions
)

// List shows the sessions of one daemon as they change.
type List struct {
	*plain.Printer
	Output *plain.Output // where the Printer writes to
	Daemon client.Sender
	Params protocol.ListSessionsParams // which sessions; without a limit there are at most 1000
	All    bool                        // of all folders

	// Table is what a terminal shows of sessions, Folder a folder in a line.
	Table  func(list []protocol.SessionInfo, active string, all bool) []plain.Span
	Folder func(dir string) string

	shown  []hosts.Session
	active string
	table  string // that is on the terminal
}

// Run lists the sessions whenever something has changed, until ctx ends, or until nobody reads
// any more. It goes on where the daemon was restarted.
func (l *List) Run(ctx context.Context, f *follow.Feed) error {
	for {
		list, err := l.Sessions(ctx)
		switch {
		case errors.Is(err, client.ErrLost), errors.As(err, new(*client.NoDaemonError)):
			if _, err = f.Reconnect(ctx, err); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		if l.show(list); l.Output.Failure() != nil {
			return l.Output.Failure()
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

// Sessions asks for the sessions, those that need somebody first.
func (l *List) Sessions(ctx context.Context) ([]hosts.Session, error) {
	p := l.Params
	if p.Limit == nil {
		p.Limit = new(maxList)
	}
	payload, err := client.Raw(ctx, l.Daemon, protocol.ListSessions, p)
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

func (l *List) show(list []hosts.Session) {
	if l.OutStyle.Terminal && !l.JSON {
		l.draw(list)
		return
	}
	changed, gone := hosts.Changes(l.shown, list, func(x, y *hosts.Session) bool {
		if l.JSON {
			return string(x.Raw) == string(y.Raw)
		}
		return l.lineOf(x.SessionInfo, plain.StateWord(x.SessionInfo)) ==
			l.lineOf(y.SessionInfo, plain.StateWord(y.SessionInfo))
	})
	for _, s := range changed {
		l.line(s, plain.StateWord(s.SessionInfo), s.Raw)
	}
	slices.SortFunc(gone, func(x, y hosts.Session) int { return strings.Compare(x.SessionID, y.SessionID) })
	for _, s := range gone {
		l.line(s, "deleted", slices.Concat(s.Raw[:len(s.Raw)-1], []byte(`,"deleted":true}`)))
	}
	l.shown = list
}

func (l *List) line(s hosts.Session, state string, object jsontext.Value) {
	if l.JSON {
		l.JSONLine(object)
		return
	}
	l.Println(l.lineOf(s.SessionInfo, state))
}

// lineOf is a session in a line for a pipe.
func (l *List) lineOf(s protocol.SessionInfo, state string) string {
	line := fmt.Sprintf("%-9s  %s", state, s.SessionID)
	if l.All {
		line += "  " + l.Folder(s.Workdir)
	}
	return strings.TrimRight(line+"  "+plain.Title(s.Title), " ")
}

// draw writes the table anew if it has changed, as much of it as the terminal has
// room for.
func (l *List) draw(list []hosts.Session) {
	infos := make([]protocol.SessionInfo, len(list))
	for i, s := range list {
		infos[i] = s.SessionInfo
	}
	width, height := plain.SizeOf(l.Output.W)
	table := l.Table(infos, l.active, l.All)
	if left := len(table) - height + 1; left > 0 {
		table = append(table[:height-2], plain.Span{Text: fmt.Sprintf("… %d more lines", left+1), Look: plain.Dim})
	}
	var text strings.Builder
	for _, line := range table {
		text.WriteString(l.OutStyle.Paint(line.Look, plain.CutLine(line.Text, width)) + "\r\n")
	}
	if text.String() == l.table {
		return
	}
	l.table = text.String()
	fmt.Fprint(l.Output, "\x1b[H\x1b[J"+l.table)
}
