package tui

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"noused/internal/tui/slash"

	tea "charm.land/bubbletea/v2"
	"github.com/google/uuid"

	"noused/internal/client/actions"
	"noused/internal/protocol"
	"noused/internal/tui/board"
)

// carryOut does what the user wants of a session, beside the screen.
func (v *boardView) carryOut(c board.Choice) {
	d := v.daemon(c.ID.Host)
	p := v.m.at(d.site)
	p.State = protocol.State{SessionID: c.ID.Session}
	if info, ok := v.Selected(); ok && v.SelectedID() == c.ID {
		p.State.RunState = info.RunState
	}
	key, as := v.key(c), v.m.sentIn(d.site, c.ID.Session)
	v.m.keep(p, func(ctx context.Context, p slash.Place) tea.Msg {
		info, err := actOn(ctx, p, c, slash.Unsent{Text: c.Text, Key: key, As: as})
		return boardTold(func() { v.did(c, info, err) })
	})
}

// key makes a second try to say a text the same as the first, should that have
// been accepted all the same.
func (v *boardView) key(c board.Choice) string {
	if v.retry.Choice != c || v.retry.key == "" {
		v.retry.Choice, v.retry.key = c, uuid.NewString()
	}
	return v.retry.key
}

func actOn(ctx context.Context, p slash.Place, c board.Choice, u slash.Unsent) (info string, err error) {
	switch c.Action {
	case board.Say:
		return "sent", slash.Say(ctx, p, u).Err
	case board.Later:
		return "queued as a follow-up", slash.QueueFollowUp(ctx, p, u).Err
	case board.Abort:
		r, err := slash.Ask(ctx, p, protocol.Abort, protocol.AbortParams{Scope: p.Scope()})
		if err == nil && len(r.Discarded) > 0 {
			return "", undelivered(r.Discarded)
		}
		return "aborted", err
	case board.Rename:
		_, err := actions.Rename(ctx, p, p.Scope(), c.Text)
		return "renamed", err
	case board.Delete:
		_, err := actions.Delete(ctx, p, c.ID.Session, c.Children)
		return "deleted", err
	}
	return "", nil
}

func (v *boardView) did(c board.Choice, info string, err error) {
	var wire *protocol.Error
	var back undelivered
	switch {
	case errors.As(err, &wire) && wire.Code == protocol.SessionNotFound:
		v.Remove(c.ID)
		v.failed(c, "the session was deleted elsewhere")
		return
	case errors.As(err, &back):
		v.handBack(c, back)
		return
	case err != nil:
		v.failed(c, slash.Describe(err))
		return
	}
	v.retry.key = ""
	v.Tell(info, false)
	if c.Action == board.Delete {
		v.Remove(c.ID)
	}
}

// failed says why something was not done. The text is in its line again, or, where that cannot be, in the history
// of the input.
func (v *boardView) failed(c board.Choice, why string) {
	v.Tell(why, true)
	if c.Text == "" || v.asks(c) || c.Action == board.Rename {
		return
	}
	const where = "; the text is in the history of the input"
	v.Tell(why+where, true)
	v.m.remember(c.Text)
	text := "not sent to " + sessionAt(c.ID) + ": " + why + where
	v.m.talk.Notice("error", text)
	if v.m.goal != nil { // the notes go with the session that is left
		v.m.notices = append(v.m.notices, text)
	}
}

// asks puts a text into the line again, unless that is not to be seen, or has another one.
func (v *boardView) asks(c board.Choice) bool { return v.m.shownBoard() == v && v.Ask(c) }

// sessionAt names a session in a message.
func sessionAt(id board.ID) string { return strings.TrimSpace(id.Host + " " + id.Session) }

// undelivered are the texts that an abort handed back.
type undelivered []protocol.DiscardedInput

func (u undelivered) Error() string { return "aborted; " + u.count() + " not delivered" }

func (u undelivered) count() string {
	if len(u) == 1 {
		return "a queued text was"
	}
	return fmt.Sprintf("%d queued texts were", len(u))
}

// handBack puts what an abort handed back where the user can have it again. The
// conversation that is shown has it already, in its input or among its notices.
// Of another session it goes into the line that is said to it, else into the history of the
// input, and stays in the conversation of this screen, should that line be left.
func (v *boardView) handBack(c board.Choice, texts undelivered) {
	if v.isShown(c.ID) {
		v.Tell(texts.Error()+": see the conversation", false)
		return
	}
	var all []string
	where := sessionAt(c.ID)
	for _, d := range texts {
		all = append(all, d.Text)
		v.m.talk.Notice("warning", "not delivered to "+where+": "+d.Text)
	}
	back := board.Choice{Action: board.Say, ID: c.ID, Text: strings.Join(all, "\n\n")}
	if !v.asks(back) {
		v.m.remember(back.Text)
		v.Tell(texts.Error()+": it is in the history of the input, and in the conversation", false)
		return
	}
	v.Tell(texts.Error()+": Enter says it again; it is in the conversation, too", false)
}
