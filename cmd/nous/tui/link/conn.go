package link

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"noused/internal/client"
	"noused/internal/protocol"
)

const (
	dialTimeout = 5 * time.Second
	callTimeout = 30 * time.Second // for a reply to what is answered at once
	stateEvery  = 2 * time.Second  // between looks for what no event tells
	maxTries    = 8                // to take a snapshot between two changes
)

// conn is one connection to both sockets.
type conn struct {
	l        *Link
	ctx      context.Context
	commands *client.Client
	events   *client.Events
	old      bool   // a daemon without epochs, numbers and subscribe
	active   string // its active session, where it does not say in its state
	epoch    string
	start    uint64 // events are told from here on, where they are not resumed
	sure     bool   // of an old daemon: no event can be missed any more
	in       chan incoming

	told  []byte          // the state told last, to see what changed
	after *protocol.State // to be told once its events have been
}

// incoming is a line of the event socket. Without an Event it is of a type that
// v1 does not have.
type incoming struct {
	Event
	size int
	lost bool // a part of what its run said
	err  error
}

var errDropped = errors.New("events were dropped")

// connect holds one connection from its beginning to its end. began: the
// session was shown, or its events went on.
func (l *Link) connect() (began bool, err error) {
	ctx, cancel := context.WithCancel(l.ctx)
	defer cancel()
	c := &conn{l: l, ctx: ctx, in: make(chan incoming)}
	if err := c.open(); err != nil {
		return false, err
	}
	var pumping sync.WaitGroup
	pumping.Go(l.guarded(c.pump))
	defer func() {
		l.use(nil)
		cancel()
		c.events.Close()
		c.commands.Close()
		pumping.Wait()
	}()
	l.use(c.commands)
	if err := c.begin(); err != nil {
		return false, err
	}
	return true, c.follow()
}

// open connects to both sockets. Whether the daemon knows subscribe is asked of
// get_state: an old one may leave a line on the event socket unanswered.
func (c *conn) open() error {
	ctx, cancel := context.WithTimeout(c.ctx, dialTimeout)
	defer cancel()
	commands, err := client.Dial(ctx, c.l.socket)
	if err != nil {
		return err
	}
	state, err := client.Call(ctx, commands, protocol.GetState, protocol.GetStateParams{})
	if err == nil {
		c.old = state.Daemon.Epoch == ""
		c.l.older.Store(c.old)
		c.events, err = c.listen(ctx, len(state.Runs) > 0)
	}
	if err != nil {
		commands.Close()
		return err
	}
	c.commands, c.epoch, c.start = commands, c.events.Epoch(), c.events.Last()
	return nil
}

// listen takes every session's events: those of the daemon as a whole come with
// no session's, and the session that is followed may change without a hole.
// While something runs it takes the old ones, too, for what they say of it.
func (c *conn) listen(ctx context.Context, busy bool) (*client.Events, error) {
	if c.old {
		return client.Live(ctx, c.l.socket)
	}
	var p protocol.SubscribeParams
	switch {
	case c.l.synced && c.l.epoch != "":
		p.Epoch, p.After = c.l.epoch, &c.l.last
	case busy:
		p.After = new(uint64)
	}
	return client.Subscribe(ctx, c.l.socket, p)
}

// pump decodes events until the connection ends.
func (c *conn) pump() {
	for {
		var next incoming
		env, raw, err := c.events.Next(c.ctx)
		if err != nil {
			next.err = err
		} else {
			next.size = len(raw)
			next.At, next.Seq = env.TS, env.Seq
			next.Event.Event = decode(env)
			if c.old && next.Event.Event != nil {
				next.Event.Event = c.l.fill.Fill(env, next.Event.Event)
				user, answer := c.l.fill.Lost()
				next.lost = user || answer
			}
		}
		select {
		case c.in <- next:
		case <-c.ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// decode returns nil for a type that v1 does not have: a later daemon's.
func decode(env protocol.EventEnvelope) protocol.Event {
	ev, err := client.Decode(env)
	switch {
	case err == nil:
		return ev
	case ev == nil:
		return nil
	default:
		return protocol.Warning{Code: "unreadable_event", Message: err.Error()}
	}
}

// begin shows the session, or goes on where the last connection ended.
func (c *conn) begin() error {
	resumed := c.l.synced && !c.old && !c.events.Gap() && c.epoch == c.l.epoch
	if !resumed {
		c.l.last = c.start
		clear(c.l.doing)
	}
	if id, ok := c.l.takeWant(); ok {
		return c.turn(id)
	}
	if !resumed {
		return c.show(c.l.session)
	}
	state, err := c.state(c.l.session)
	if err != nil {
		return c.show(c.l.session)
	}
	c.after = &state
	c.tell()
	return nil
}

// follow tells what happens until the connection ends.
func (c *conn) follow() error {
	look := time.NewTicker(stateEvery)
	defer look.Stop()
	for {
		var err error
		select {
		case next := <-c.in:
			err = c.take(next)
			if errors.Is(err, errDropped) {
				c.l.synced = false
				err = c.show(c.l.session)
			}
		case <-c.l.asked:
			if id, ok := c.l.takeWant(); ok {
				err = c.turn(id)
			}
		case <-c.l.out.emptied:
			if !c.l.synced {
				err = c.show(c.l.session)
			}
		case <-look.C:
			err = c.look()
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

// take tells an event, if it is new and the session's or the daemon's.
func (c *conn) take(next incoming) error {
	switch {
	case next.err != nil:
		return next.err
	case c.dropped(next):
		c.l.last = max(c.l.last, next.Seq)
		clear(c.l.doing)
		return errDropped
	case !c.old && next.Seq <= c.l.last:
		return nil // the snapshot has it
	case c.moved(next):
		c.l.last = next.Seq
		return errDropped
	}
	c.l.last = max(c.l.last, next.Seq)
	c.l.doing.see(next)
	if c.ours(next) && !c.l.out.event(next.Event, next.size) {
		c.l.synced = false
	}
	c.tell()
	if _, over := next.Event.Event.(protocol.AgentEnd); over && next.lost && c.ours(next) {
		return errDropped // the messages have it
	}
	return nil
}

func (c *conn) dropped(next incoming) bool {
	warning, ok := next.Event.Event.(protocol.Warning)
	return ok && warning.Code == "events_dropped" && !c.old
}

// moved tells whether the conversation goes on from another entry.
func (c *conn) moved(next incoming) bool {
	status, ok := next.Event.Event.(protocol.Status)
	return ok && status.Code == "leaf_set" && c.ours(next)
}

func (c *conn) ours(next incoming) bool {
	if next.Event.Event == nil {
		return false
	}
	id := next.Where().SessionID
	return id == "" || id == c.l.session || c.old && c.l.session == ""
}

// look asks for the state, which holds what no event tells: a mode, the tools
// or the title that another client set.
func (c *conn) look() error {
	if !c.l.synced && !c.old {
		return nil // a snapshot is on its way
	}
	touched := c.l.touched.Swap(false)
	state, err := c.state(c.l.session)
	var wire *protocol.Error
	switch {
	case errors.As(err, &wire):
		return c.show(c.l.session) // it was deleted, say
	case err != nil:
		return err
	}
	if c.old && state.SessionID != c.l.session {
		return nil // another client's
	}
	if c.old && !c.sure && state.RunState == "idle" {
		// It may not have had the event connection yet when the first snapshot was
		// taken. By now it has. While a run goes on, a snapshot would lose what the
		// model is saying.
		c.sure = true
		return c.show(c.l.session)
	}
	if touched || !bytes.Equal(c.told, comparable(state)) {
		c.after = &state
		c.tell()
	}
	return nil
}

// tell passes the state on once every event up to it has been.
func (c *conn) tell() {
	if c.after == nil || !c.old && c.l.last < c.after.LastSeq {
		return
	}
	c.told = comparable(*c.after)
	c.l.out.put(Changed{*c.after})
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
	err := c.show(id)
	if err != nil {
		c.l.wantAgain(id)
	}
	return err
}

// show tells a snapshot of the session. One that the daemon refuses to show is
// answered with a Refused and the session before, then the active one.
func (c *conn) show(id string) error {
	c.after = nil
	for _, id := range []string{id, c.l.session, ""} {
		err := c.snapshot(id)
		var wire *protocol.Error
		if err == nil || id == "" || !errors.As(err, &wire) {
			return err
		}
		c.l.out.put(Refused{id, err})
	}
	return nil
}

// snapshot reads state and messages of one moment although they are two
// questions. The messages are asked for between two get_state, whose last_seq
// say which events fell in between; those are read, and where one of them
// changed the messages it is all asked again. Events that only add to what is
// being said do not: that text is in the second state. So the snapshot is the
// second state's moment, and the events up to its last_seq are thrown away.
//
// A session that changes faster than it can be read is told as of the first
// state, and all events since: some of them say what the messages have already,
// which their ids show.
//
// A daemon that does not number has no moments: what happens meanwhile may be
// said twice, too.
func (c *conn) snapshot(id string) error {
	first, err := c.enter(id)
	if err != nil {
		return err
	}
	id = first.SessionID
	for try := 1; ; try++ {
		all, err := c.messages(id)
		if err != nil {
			return err
		}
		s := Snapshot{State: first, Messages: all.Messages}
		if c.old {
			s.Missing = added()
			c.finish(s, nil)
			return nil
		}
		second, err := c.state(id)
		if err != nil {
			return err
		}
		between, moved, err := c.readTo(second.LastSeq, first.LastSeq, id)
		if err != nil {
			return err
		}
		switch {
		case !moved:
			s.State = second
			c.finish(s, nil)
			return nil
		case try >= maxTries && between != nil:
			c.finish(s, between)
			return nil
		}
		first = second
	}
}

// enter asks for the session's state. An old daemon tells that of the active
// session whatever it is asked for: there the session is made the active one.
func (c *conn) enter(id string) (protocol.State, error) {
	if c.old && id == "" {
		c.active = "" // it may be another one by now
	}
	state, err := c.state(id)
	if err != nil || !c.old || id == "" || state.SessionID == id {
		return state, err
	}
	p := protocol.SwitchSessionParams{SessionID: id}
	ctx, cancel := client.Bounded(c.ctx, p, callTimeout)
	defer cancel()
	if _, err := client.Call(ctx, c.commands, protocol.SwitchSession, p); err != nil {
		return state, err
	}
	c.active = id
	if state, err = c.state(id); err == nil && state.SessionID != id {
		err = protocol.Errorf(protocol.SessionError, "the daemon shows %s instead", state.SessionID)
	}
	return state, err
}

// finish tells a snapshot and the events behind it.
func (c *conn) finish(s Snapshot, behind []incoming) {
	l := c.l
	s.New = l.known && c.epoch != l.epoch
	l.session, l.epoch, l.known, l.synced = s.State.SessionID, c.epoch, true, true
	c.told = comparable(s.State)
	l.out.snapshot(s)
	if behind == nil {
		behind = l.doing.of(l.session)
	}
	for _, next := range behind {
		if c.ours(next) && !l.out.event(next.Event, next.size) {
			l.synced = false
		}
	}
}

// readTo reads events up to number to. It returns those after number from, and
// whether one of them changed the session's messages; nil where there are holes.
func (c *conn) readTo(to, from uint64, id string) (between []incoming, moved bool, err error) {
	between = []incoming{}
	wait := time.NewTimer(callTimeout)
	defer wait.Stop()
	for holes := false; c.l.last < to; {
		select {
		case next := <-c.in:
			if next.err != nil {
				return nil, false, next.err
			}
			c.l.last = max(c.l.last, next.Seq)
			if c.dropped(next) {
				holes = true
				clear(c.l.doing)
			}
			c.l.doing.see(next)
			if next.Seq <= from || next.Event.Event == nil {
				break
			}
			moved = moved || next.Where().SessionID == id && changesMessages(next.Event.Event)
			between = append(between, next)
		case <-wait.C:
			return nil, false, fmt.Errorf("the daemon's events end at %d, its state is of %d", c.l.last, to)
		case <-c.ctx.Done():
			return nil, false, context.Cause(c.ctx)
		}
		if holes || len(between) > maxEvents {
			between, moved, from = nil, true, to
		}
	}
	return between, moved, nil
}

func changesMessages(ev protocol.Event) bool {
	switch ev.(type) {
	case protocol.MessageUpdate, protocol.ToolStart, protocol.ToolUpdate:
		return false
	default:
		return true
	}
}

// state asks for the state. An old daemon may leave out which session it is of:
// the one that was made the active one, or that its messages are of.
func (c *conn) state(id string) (protocol.State, error) {
	p := protocol.GetStateParams{Scope: protocol.Scope{SessionID: id}}
	ctx, cancel := client.Bounded(c.ctx, p, callTimeout)
	defer cancel()
	state, err := client.Call(ctx, c.commands, protocol.GetState, p)
	if err != nil || !c.old || state.SessionID != "" {
		return state, err
	}
	if c.active == "" {
		all, err := c.messages("")
		if err != nil {
			return state, err
		}
		c.active = all.SessionID
	}
	state.SessionID = c.active
	return state, nil
}

func (c *conn) messages(id string) (protocol.Messages, error) {
	p := protocol.GetMessagesParams{Scope: protocol.Scope{SessionID: id}}
	ctx, cancel := client.Bounded(c.ctx, p, callTimeout)
	defer cancel()
	return client.Call(ctx, c.commands, protocol.GetMessages, p)
}
