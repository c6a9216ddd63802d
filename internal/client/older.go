package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/protocol"
)

// The adapter for older cores: v1 daemons that have few commands beside the frozen ones. All else in
// the program is written for today's daemon; here is what an older one lacks, what of it its
// own commands can do, and the error for the rest.

// ErrUnsupported is what every *OlderError is, for errors.Is.
var ErrUnsupported = errors.New("the daemon does not know this command")

// OlderError says that the daemon is an older core, which cannot do what was asked of it.
type OlderError struct {
	Command string // that it does not know; "" where it knows the command, and not all of it
	What    string // it does, or does not, instead
	Active  string // the session that it works in, where another one was asked for
	Err     error  // what the daemon itself said, or would have
}

func (e *OlderError) Error() string {
	if e.Command != "" {
		return fmt.Sprintf("this core is an older one and has no %s: %v", e.Command, e.Err)
	}
	return "this core is an older one and " + e.What
}

// Unwrap returns what the daemon said.
func (e *OlderError) Unwrap() error { return e.Err }

// Text is the error for people: it says that the daemon is an older one.
func (e *OlderError) Text() string { return e.Error() }

// Is reports that it is ErrUnsupported.
func (e *OlderError) Is(target error) bool { return target == ErrUnsupported }

// What an older core does with what today's commands may say.
var (
	errNoImages   = &OlderError{What: "takes no images"}
	errNoKeys     = &OlderError{What: "knows no --key: it would start another run"}
	errNoEntry    = &OlderError{What: "branches at the end only: name no entry"}
	errAsksNobody = &OlderError{What: "asks nobody"}
	errNoEvents   = &OlderError{What: "keeps no events"}
	errNoLists    = &OlderError{What: "has no list of sessions or tools, no search and no model to choose"}
)

// ErrNoFolders is what a daemon ends a list of a folder's sessions with that knows of none.
var ErrNoFolders error = &OlderError{What: "its sessions have no folders"}

// AsksApprovals is an *OlderError where the daemon of a state makes every call unasked.
func AsksApprovals(s protocol.State) error {
	if s.ApprovalMode == "" {
		return errAsksNobody
	}
	return nil
}

// Dialer opens connections to one daemon, over whatever leads there. ctx bounds the
// connecting only. Errors are those of Connect.
type Dialer interface {
	Commands(ctx context.Context) (net.Conn, error)
	Events(ctx context.Context) (net.Conn, error)
}

// Adapt puts the adapter around the connections of a dialer: what is learned of the daemon
// on one of them holds for all. A dialer that has it is returned as it is.
func Adapt(d Dialer) Dialer {
	if a, ok := d.(*adapted); ok {
		return a
	}
	return &adapted{d, &core{}}
}

// Greeter is a Dialer whose daemon has said who it is before anything was asked of it: its
// epoch, "" of an older core. False: it has not. Errors are those of connecting.
type Greeter interface {
	Dialer
	Epoch(ctx context.Context) (epoch string, said bool, err error)
}

// Current is Adapt for a daemon that is known to be none of the older ones.
func Current(d Dialer) Dialer { return &adapted{d, &core{age: current}} }

type adapted struct {
	Dialer
	core *core
}

func (a *adapted) Commands(ctx context.Context) (net.Conn, error) {
	conn, err := a.Dialer.Commands(ctx)
	if err != nil {
		return nil, err
	}
	if err := a.greet(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return &adaptedConn{conn, a.core}, nil
}

// greet learns from a Greeter what daemon it is, where that is not known.
func (a *adapted) greet(ctx context.Context) error {
	g, ok := a.Dialer.(Greeter)
	if !ok || a.core.is() != unknown {
		return nil
	}
	epoch, said, err := g.Epoch(ctx)
	if err == nil && said {
		a.core.set(ageOf(epoch == ""))
	}
	return err
}

// adaptedConn leads New to what is known of the daemon.
type adaptedConn struct {
	net.Conn
	core *core
}

// core is what is known of a daemon.
type core struct {
	mu     sync.Mutex
	age    age
	lists  bool             // it has shown that it knows more than the frozen commands
	active string           // the session of an older core, where its state does not say
	fills  map[*Filler]bool // of its readers
}

type age int

const (
	unknown age = iota
	current
	older
)

func ageOf(isOlder bool) age {
	if isOlder {
		return older
	}
	return current
}

func (k *core) is() age {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.age
}

func (k *core) set(a age) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.age = a
}

func (k *core) setActive(session string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.active = session
}

func (k *core) setLists() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lists = true
}

func (k *core) hasLists() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lists
}

func (k *core) activeKnown() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.active
}

// Meet finds out what daemon it is, where that is not known, before a command is sent, and
// returns what it would refuse of it.
func Meet[P protocol.Params, R protocol.Reply](ctx context.Context, c *Client, def protocol.Def[P, R], p P) error {
	if c.core.is() == unknown {
		if err := c.core.meet(ctx, c, sessionOf(p)); err != nil {
			return err
		}
	}
	return Refusal(c, def, p)
}

// KeepsKeys is nil where the daemon does a text once that is sent twice with one key. It
// asks where that is not known yet.
func (c *Client) KeepsKeys(ctx context.Context) error {
	if c.core.is() == unknown {
		if err := c.core.meet(ctx, c, ""); err != nil {
			return err
		}
	}
	if c.core.is() == older {
		return errNoKeys
	}
	return nil
}

// Lacks is nil, or an *OlderError that says what the daemon has not, as far as that is known.
func (c *Client) Lacks() error {
	if c.core.is() == older {
		return errNoLists
	}
	return nil
}

// meet finds out what daemon it is, by the state of a session.
func (k *core) meet(ctx context.Context, c *Client, session string) error {
	p := protocol.GetStateParams{Scope: protocol.Scope{SessionID: session}}
	ctx, cancel := Bounded(ctx, p, answerTimeout)
	defer cancel()
	if _, err := k.send(ctx, c, protocol.GetState.Name(), p); err != nil {
		return fmt.Errorf("%s: %w", protocol.GetState.Name(), err)
	}
	return nil
}

// answerTimeout is how long an answer is waited for that the adapter asks for itself.
const answerTimeout = 30 * time.Second

// send sends a command to whichever daemon it is.
func (k *core) send(ctx context.Context, c *Client, command string, p protocol.Params) (jsontext.Value, error) {
	if k.is() == unknown && (sessionOf(p) != "" || imagesOf(p)) {
		if err := k.meet(ctx, c, sessionOf(p)); err != nil {
			return nil, err
		}
	}
	if k.is() == older && command != protocol.GetState.Name() {
		return k.emulate(ctx, c, command, p)
	}
	payload, err := k.plain(ctx, c, command, p)
	if err != nil {
		return nil, err
	}
	switch p := p.(type) {
	case protocol.GetStateParams:
		return k.state(ctx, c, p, payload)
	case protocol.ListSessionsParams:
		k.set(current)
		k.setLists()
		return payload, inFolders(p, payload)
	}
	return payload, nil
}

// plain sends a command as it is.
func (k *core) plain(ctx context.Context, c *Client, command string, p protocol.Params) (jsontext.Value, error) {
	payload, err := c.roundTrip(ctx, command, p)
	if !isUnknown(err, command) {
		return payload, err
	}
	if command == protocol.ListSessions.Name() {
		k.set(older)
	}
	return nil, &OlderError{Command: command, Err: err}
}

// isAdded reports a command that an older core does not have.
func isAdded(command string) bool {
	for _, row := range protocol.Table() {
		if row.Name == command {
			return row.Since == protocol.Added
		}
	}
	return true
}

// sessionOf is the session that a command works in, "" where it says none, or where an older
// core goes by it, too.
func sessionOf(params protocol.Params) string {
	switch p := params.(type) {
	case protocol.PromptParams:
		return p.SessionID
	case protocol.SteerParams:
		return p.SessionID
	case protocol.FollowUpParams:
		return p.SessionID
	case protocol.AbortParams:
		return p.SessionID
	case protocol.SetActiveToolsParams:
		return p.SessionID
	case protocol.SetModeParams:
		return p.SessionID
	case protocol.ExtensionCommandParams:
		return p.SessionID
	case protocol.CompactSessionParams:
		return p.SessionID
	case protocol.SetLeafParams:
		return p.SessionID
	case protocol.GetTreeParams:
		return p.SessionID
	}
	return ""
}

func imagesOf(params protocol.Params) bool {
	switch p := params.(type) {
	case protocol.PromptParams:
		return len(p.Attachments) > 0
	case protocol.SteerParams:
		return len(p.Attachments) > 0
	case protocol.FollowUpParams:
		return len(p.Attachments) > 0
	}
	return false
}

// inFolders refuses a list of sessions of a folder that says of none in which it is.
func inFolders(p protocol.ListSessionsParams, payload jsontext.Value) error {
	if p.Workdir == "" {
		return nil
	}
	var r protocol.Sessions
	if json.Unmarshal(payload, &r) == nil && len(r.Sessions) > 0 && r.Sessions[0].Workdir == "" {
		return ErrNoFolders
	}
	return nil
}

// state completes a state, from which it is learned what daemon it is. Of an older core it is
// that of the active session, whatever was asked for.
func (k *core) state(
	ctx context.Context, c *Client, p protocol.GetStateParams, payload jsontext.Value,
) (jsontext.Value, error) {
	var s struct {
		SessionID string                `json:"session_id"`
		Mode      protocol.ApprovalMode `json:"approval_mode"`
		Daemon    struct {
			Epoch string `json:"epoch"`
		} `json:"daemon"`
	}
	if err := json.Unmarshal(payload, &s); err != nil {
		return payload, nil // who decodes it says so
	}
	if s.Daemon.Epoch != "" || s.Mode != "" {
		k.set(current)
		return payload, nil
	}
	k.set(older)
	if p.Daemon {
		return payload, nil
	}
	active := s.SessionID
	if active == "" {
		var err error
		if active, err = k.findActive(ctx, c, p.SessionID != ""); err != nil {
			return nil, err
		}
		payload = withMember(payload, "session_id", active)
	}
	if p.SessionID != "" && p.SessionID != active {
		what := fmt.Sprintf("works in its active session only, which is %s; switch to %s first", active, p.SessionID)
		return nil, &OlderError{What: what, Active: active}
	}
	return payload, nil
}

// findActive is the session that the messages are of.
func (k *core) findActive(ctx context.Context, c *Client, mayBeKnown bool) (string, error) {
	if active := k.activeKnown(); active != "" && mayBeKnown {
		return active, nil
	}
	payload, err := c.roundTrip(ctx, protocol.GetMessages.Name(), protocol.GetMessagesParams{})
	var all protocol.Messages
	if err == nil {
		err = json.Unmarshal(payload, &all)
	}
	if err == nil {
		k.setActive(all.SessionID)
	}
	return all.SessionID, err
}

func withMember(object jsontext.Value, name, value string) jsontext.Value {
	var members map[string]jsontext.Value
	text, err := jsontext.AppendQuote(nil, value)
	if json.Unmarshal(object, &members) != nil || err != nil {
		return object
	}
	members[name] = text
	if out, err := json.Marshal(members, json.Deterministic(true)); err == nil {
		return out
	}
	return object
}

// isUnknown reports that a daemon does not know a command, however it says so. An older
// core may say no more than the command's name.
func isUnknown(err error, command string) bool {
	var wire *protocol.Error
	if !errors.As(err, &wire) {
		return false
	}
	why := strings.ReplaceAll(strings.ToLower(wire.Message), " ", "_")
	bare := strings.Trim(strings.TrimPrefix(why, string(protocol.InvalidCommand)+":"), `_"'`)
	return wire.Code == protocol.InvalidCommand &&
		(bare == command || strings.Contains(why, string(protocol.UnknownCommand))) ||
		string(wire.Code) == string(protocol.UnknownCommand)
}

// Older asks whether a daemon is an older core. It makes no session, as get_state may.
// timeout is how long the answer is waited for, once it is connected.
func Older(ctx context.Context, daemon Dialer, timeout time.Duration) (bool, error) {
	conn, err := daemon.Commands(ctx) // which may take as long as a daemon takes to start
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, &SilentError{For: timeout})
	defer cancel()
	c := New(conn)
	defer c.Close()
	c.core.set(unknown)
	one := 1
	_, err = Call(ctx, c, protocol.ListSessions, protocol.ListSessionsParams{Limit: &one})
	if errors.Is(err, ErrUnsupported) {
		return true, nil
	}
	return false, err
}
