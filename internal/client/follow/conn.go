package follow

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"noused/internal/client"
	"noused/internal/protocol"
)

const (
	lookAfter = 2 * time.Second // from an event, or a command, to a look at the state
	maxTries  = 8               // to take a snapshot between two changes
)

// conn is one connection to both sockets.
type conn struct {
	s        *Session
	ctx      context.Context
	commands *client.Client
	Connected
	sure  bool // no event can be missed any more, where that may be
	asked bool // the snapshot that is taken answers a Follow
	// incomplete: the daemon is still looking for approvals of sessions.
	incomplete bool
	in         chan incoming

	told  []byte          // the state told last, to see what changed
	after *protocol.State // to be told once its events have been
}

// incoming is a line of the event socket. Without an Event it is of a type that
// v1 does not have, or cannot be read.
type incoming struct {
	Event
	size int
	gap  bool // events before it were dropped
	lost bool // a part of what its run said
	err  error
}

var errDropped = errors.New("events were dropped")

// connect holds one connection from its beginning to its end. began: the
// session was shown, or its events went on.
func (s *Session) connect() (began bool, err error) {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	c := &conn{s: s, ctx: ctx, in: make(chan incoming)}
	if err := c.open(); err != nil {
		return false, err
	}
	var pumping sync.WaitGroup
	pumping.Go(s.guarded(c.pump))
	defer func() {
		s.use(nil)
		cancel()
		pumping.Wait()
		s.events.Close()
		c.commands.Close()
	}()
	s.use(c.commands)
	if err := c.showSession(); err != nil {
		return false, err
	}
	return true, c.follow()
}

// open connects to both sockets. get_state tells what daemon it is.
func (c *conn) open() error {
	ctx, cancel := context.WithTimeout(c.ctx, dialTimeout)
	defer cancel()
	commands, err := c.s.daemon.Commands(ctx)
	if err != nil {
		return err
	}
	c.commands = client.New(commands)
	state, err := c.s.meet(ctx, c.commands)
	if err == nil {
		c.Connected, err = c.s.events.connect(ctx, c.from(len(state.Runs) > 0))
	}
	if err != nil {
		c.commands.Close()
	}
	return err
}

// meet asks for a state, of the session that will be shown if it is known: to ask
// for the active one would make one where there is none.
func (s *Session) meet(ctx context.Context, commands *client.Client) (protocol.State, error) {
	p := protocol.GetStateParams{Scope: protocol.Scope{SessionID: s.wanted()}}
	state, err := client.Call(ctx, commands, protocol.GetState, p)
	var wire *protocol.Error
	if p.SessionID != "" && (errors.As(err, &wire) || errors.Is(err, client.ErrUnsupported)) {
		return client.Call(ctx, commands, protocol.GetState, protocol.GetStateParams{})
	}
	return state, err
}

// from asks for every session's events: those of the daemon as a whole come with
// no session's, and the session that is followed may change without a hole.
// While something runs it asks for the old ones, too, for what they say of it.
func (c *conn) from(busy bool) (p protocol.SubscribeParams) {
	switch {
	case c.s.synced && c.s.epoch != "":
		p.Epoch, p.After = c.s.epoch, &c.s.last
	case busy:
		p.After = new(uint64)
	}
	return p
}

// pump reads events until the connection ends.
func (c *conn) pump() {
	for {
		next := c.next()
		select {
		case c.in <- next:
		case <-c.ctx.Done():
			return
		}
		if next.err != nil {
			return
		}
	}
}

func (c *conn) next() incoming {
	h, err := c.s.events.read(c.ctx)
	switch h := h.(type) {
	case Line:
		return incoming{Event: h.Event, size: len(h.Raw), lost: h.Lost}
	case Gap:
		return incoming{Event: h.Event, size: len(h.Raw), gap: true}
	default:
		return incoming{err: err}
	}
}

// showSession shows the session, or goes on where the last connection ended.
func (c *conn) showSession() error {
	resumed := c.s.synced && !c.Gap && c.Epoch == c.s.epoch
	if !resumed {
		c.s.last = c.After
		c.s.tail.clear()
	}
	if id, ok := c.s.takeWant(); ok {
		return c.turn(id)
	}
	if !c.s.known && c.s.find != nil {
		return c.find()
	}
	if !resumed {
		return c.sendSnapshot(c.s.session, false)
	}
	state, err := c.state(c.s.session)
	if err != nil {
		return c.sendSnapshot(c.s.session, false)
	}
	c.after = &state
	c.publishState()
	return nil
}

// find shows the session that is found now that a daemon answers.
func (c *conn) find() error {
	id, err := c.s.find(c.ctx)
	var wire *protocol.Error
	if errors.As(err, &wire) {
		c.s.out.put(Refused{id, err})
	}
	if err != nil {
		return err
	}
	return c.sendSnapshot(id, false)
}

// follow tells what happens until the connection ends.
func (c *conn) follow() error {
	var look <-chan time.Time // nil: nothing has happened since the last one
	due := func() {
		if look == nil {
			look = time.After(lookAfter)
		}
	}
	for {
		if c.Lacks != nil || c.incomplete {
			due()
		}
		var err error
		select {
		case next := <-c.in:
			if changesState(next) {
				due()
			}
			err = c.applyIncoming(next)
			if errors.Is(err, errDropped) {
				c.s.synced = false
				err = c.sendSnapshot(c.s.session, false)
			}
		case <-c.s.asked:
			if id, ok := c.s.takeWant(); ok {
				err = c.turn(id)
			}
		case <-c.s.out.emptied:
			if !c.s.synced {
				err = c.sendSnapshot(c.s.session, false)
			}
		case <-c.s.touching:
			due()
		case <-look:
			look = nil
			err = c.refreshState()
		case <-c.commands.Gone():
			err = client.ErrLost
		case <-c.ctx.Done():
			err = context.Cause(c.ctx)
		}
		if err != nil {
			return err
		}
	}
}

// changesState reports that the state may be another one after an event.
func changesState(next incoming) bool {
	switch next.Event.Event.(type) {
	case protocol.MessageUpdate, protocol.ToolUpdate:
		return false
	}
	return true
}

// applyIncoming tells an event, if it is new and the session's or the daemon's.
func (c *conn) applyIncoming(next incoming) error {
	switch {
	case next.err != nil:
		return next.err
	case next.gap:
		c.s.last = max(c.s.last, next.Seq)
		c.s.tail.clear()
		return errDropped
	case next.Seq <= c.s.last:
		return nil // the snapshot has it
	case c.moved(next):
		c.s.last = next.Seq
		return errDropped
	}
	c.s.last = max(c.s.last, next.Seq)
	c.s.tail.see(next)
	if c.ours(next) && !c.s.out.event(next.Event, next.size) {
		c.s.synced = false
	}
	c.publishState()
	if status, ok := next.Event.Event.(protocol.Status); ok && c.ours(next) {
		switch status.Code {
		case protocol.StatusSettingChanged, protocol.StatusJobEnded, protocol.StatusSessionDeleted:
			return c.refreshState()
		}
	}
	if _, over := next.Event.Event.(protocol.AgentEnd); over && next.lost && c.ours(next) {
		return errDropped // the messages have it
	}
	return nil
}

// moved tells whether the conversation is another one now: it goes on from
// another entry, or its older part is a summary.
func (c *conn) moved(next incoming) bool {
	status, ok := next.Event.Event.(protocol.Status)
	return ok && (status.Code == protocol.StatusLeafSet || status.Code == protocol.StatusCompacted) && c.ours(next)
}

func (c *conn) ours(next incoming) bool {
	if next.Event.Event == nil {
		return false
	}
	id := next.Where().SessionID
	return id == "" || id == c.s.session
}

// refreshState asks for the state: an event says that it has changed, not how. A daemon
// whose events may be missed is asked every lookAfter.
func (c *conn) refreshState() error {
	if !c.s.synced {
		return nil // a snapshot is on its way
	}
	touched := c.s.touched.Swap(false)
	state, err := c.state(c.s.session)
	var wire *protocol.Error
	switch {
	case errors.Is(err, client.ErrUnsupported):
		return nil // another client's session is the active one
	case errors.As(err, &wire):
		return c.sendSnapshot(c.s.session, false) // it was deleted, say
	case err != nil:
		return err
	}
	c.incomplete = state.ApprovalsIncomplete
	if c.Lacks != nil && !c.sure && state.RunState == protocol.StateIdle {
		// It may not have had the event connection yet when the first snapshot was
		// taken. By now it has. While a run goes on, a snapshot would lose what the
		// model is saying.
		c.sure = true
		return c.sendSnapshot(c.s.session, false)
	}
	if touched || !bytes.Equal(c.told, comparable(state)) {
		c.after = &state
		c.publishState()
	}
	return nil
}

// publishState passes the state on once every event up to it has been.
func (c *conn) publishState() {
	if c.after == nil || c.s.last < c.after.LastSeq {
		return
	}
	c.told = comparable(*c.after)
	c.s.out.put(Changed{*c.after})
	c.after = nil
}

// comparable leaves out of a state what events tell.
func comparable(s protocol.State) []byte {
	s.LastSeq, s.Partial = 0, nil
	text, err := json.Marshal(s, json.Deterministic(true))
	if err != nil { // it came as JSON
		return nil
	}
	return text
}

// turn shows the session that Follow asked for. When the connection ends before
// that is done the next one has to.
func (c *conn) turn(id string) error {
	err := c.sendSnapshot(id, true)
	if err != nil {
		c.s.wantAgain(id)
	}
	return err
}

func (c *conn) state(id string) (protocol.State, error) {
	p := protocol.GetStateParams{Scope: protocol.Scope{SessionID: id}}
	ctx, cancel := client.Bounded(c.ctx, p, callTimeout)
	defer cancel()
	return client.Call(ctx, c.commands, protocol.GetState, p)
}

// maxWhole is how much of a conversation is read with what was summarised, in bytes.
const maxWhole = 64 << 20

var errLong = errors.New("the conversation is too long to be read with what was summarised")

// messages reads a session's conversation, also what compactions stand for, unless that
// is too much.
func (c *conn) messages(id string) (protocol.Messages, error) {
	p, size := protocol.GetMessagesParams{Scope: protocol.Scope{SessionID: id}, Whole: true}, 0
	ask := func(p protocol.GetMessagesParams) (protocol.Messages, error) {
		ctx, cancel := client.Bounded(c.ctx, p, callTimeout)
		defer cancel()
		page, err := client.Call(ctx, c.commands, protocol.GetMessages, p)
		for _, entry := range page.Messages {
			size += len(entry)
		}
		if p.Whole && size > maxWhole && err == nil {
			err = errLong
		}
		return page, err
	}
	all, err := client.AllMessages(p, ask)
	if errors.Is(err, errLong) {
		p.Whole = false
		all, err = client.AllMessages(p, ask)
	}
	return all, err
}
