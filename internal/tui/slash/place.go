// Package slash is what a person can do with the commands that begin with a slash, and with a
// text: for the whole screen and for the plain mode alike.
//
// A command gets a Place, which is a copy, and may run in any goroutine; it blocks until its
// daemon has answered or its context ends. What it comes to is an Outcome, which the mode shows.
// The package refuses to draw anything, and to keep anything.
package slash

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/client"
	"noused/internal/client/follow"
	"noused/internal/protocol"
)

// Place is what a job knows of where it works: a copy, and safe to read in any
// goroutine.
type Place struct {
	Site   *Site
	Sites  int // how many can be shown
	Getenv func(string) string
	Link   *follow.Session // nil of a daemon that is not shown: it is dialled for each command
	Busy   *sync.WaitGroup // of link
	State  protocol.State
	RunAs  string // the named agent that makes the run that goes on, as far as it is known

	// OutputID names the output of an operation, which events tell while it runs; "": none do.
	OutputID string
}

func (p Place) Scope() protocol.Scope { return protocol.Scope{SessionID: p.State.SessionID} }

func (p Place) Running() bool {
	return p.State.RunState != "" && p.State.RunState != protocol.StateIdle
}

// Ask sends a command.
func Ask[P protocol.Params, R protocol.Reply](ctx context.Context, p Place, def protocol.Def[P, R], params P) (R,
	error,
) {
	return client.Call(ctx, p, def, params)
}

// Send is client.Sender, for the actions that a command of nous does, too.
func (p Place) Send(ctx context.Context, command string, params protocol.Params) (jsontext.Value, error) {
	if p.Link == nil {
		return follow.ByOnce{Daemon: p.Site.Daemon}.Send(ctx, command, params)
	}
	return p.Link.Send(ctx, command, params)
}

// Refusal is why the daemon that is shown cannot do a command; nil where it can, or that is
// not known.
func Refusal[P protocol.Params, R protocol.Reply](link *follow.Session, def protocol.Def[P, R], params P) error {
	if link == nil {
		return nil
	}
	return follow.Refusal(link, def, params)
}

// TakesNoImages is why no image can go with a text, or nil.
func TakesNoImages(link *follow.Session) error {
	return Refusal(link, protocol.Prompt, protocol.PromptParams{Attachments: []protocol.AttachmentParams{{}}})
}

// Explain says what was to be done with a command that the daemon does not know.
func Explain(err error, what string) error {
	var lacks *client.OlderError
	switch {
	case !errors.As(err, &lacks):
		return err
	case lacks.Command == "":
		return lacks
	}
	return &client.OlderError{What: "does not know how " + what, Err: lacks.Err}
}

// Describe is an error as the user reads it.
func Describe(err error) string {
	if errors.Is(err, client.ErrUnsupported) {
		return Explain(err, "to do this").Error()
	}
	return protocol.ErrorText(err)
}

// CannotShow says why a session cannot be shown.
func CannotShow(sessionID string, err error) string {
	return fmt.Sprintf("session %s cannot be shown: %s", sessionID, Describe(err))
}

// Lost says why the session that was shown cannot be shown any more.
func Lost(sessionID string, err error) string {
	var wire *protocol.Error
	if errors.As(err, &wire) && wire.Code == protocol.SessionNotFound {
		return "the session shown before was deleted"
	}
	return CannotShow(sessionID, err)
}

// Site is where a daemon is, and what is done there. Daemon is required.
type Site struct {
	Daemon follow.Dialer // what leads to the daemon
	Place  string        // where that is, as messages name it: a socket's path, say
	Flags  string        // the flags that name it on nous's command line, each behind a space
	Host   string        // the machine it is on, by the name the user has for it; "" is this one
	Unit   bool          // it may be one that the user's systemd starts

	// Export writes a session as a document of a format: md, json or html.
	Export func(ctx context.Context, session, format string, w io.Writer) error

	// Start has a daemon listen at Place, and returns when it does. Its error may have
	// several lines.
	Start func(context.Context) error

	// SetUp is the command that asks for a model and its key in the terminal; its last argument, the
	// path of a file that gets why it has failed, is still to come. Nil where the daemon is another
	// machine's.
	SetUp []string

	// Other, which may be nil, describes a daemon of that version,
	// in a line; "" is nothing.
	Other func(version string) string
}

// OtherVersion describes a daemon's version, "" where there is nothing to say.
func (s *Site) OtherVersion(d protocol.DaemonInfo) string {
	if s.Other == nil {
		return ""
	}
	return s.Other(d.Version)
}
