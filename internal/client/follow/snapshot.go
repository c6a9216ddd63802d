package follow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"noused/internal/client"
	"noused/internal/protocol"
)

// sendSnapshot sends a snapshot of the session to the reader. If the daemon refuses it, it
// tries the session before, then what is there instead of that, then the active one. If the reader
// asked for the session, it is sent a Refused.
func (c *conn) sendSnapshot(id string, asked bool) error {
	c.after = nil
	for i, id := range slices.Compact([]string{id, c.s.session}) {
		if i > 0 && id == "" {
			break
		}
		c.asked = asked && i == 0
		err := c.snapshot(id)
		answers := c.asked
		c.asked = false
		switch {
		case err == nil, id == "", !refuses(err):
			return err
		case answers:
			c.s.out.put(Refused{id, err})
		case c.s.known:
			c.s.lost = err
		}
	}
	for try := 1; ; try++ { // what is tried may be deleted meanwhile
		if c.showInstead() {
			return nil
		}
		if err := c.snapshot(""); try == maxTries || !refuses(err) {
			return err
		}
	}
}

// refuses reports that a session cannot be shown. Where the daemon is stopping, the next one shows it.
func refuses(err error) bool {
	var wire *protocol.Error
	return errors.As(err, &wire) && wire.Reason() != protocol.ShuttingDown
}

// showInstead sends a snapshot of what is followed where the session that was cannot be. False: there is none.
func (c *conn) showInstead() bool {
	if c.s.other == nil || !c.s.known {
		return false
	}
	ctx, cancel := context.WithTimeout(c.ctx, callTimeout)
	defer cancel()
	id, err := c.s.other(ctx, c.commands, c.s.shown)
	return err == nil && c.snapshot(id) == nil
}

// snapshot reads a consistent state and list of messages, although these take two
// requests. The messages are asked for between two get_state, whose last_seq
// say which events fell in between; those are read, and where one of them
// changed the messages it is all asked again. Events that only add to what is
// being said do not: that text is in the second state. So the snapshot is the
// second state's moment, and the events up to its last_seq are thrown away.
//
// A session that changes faster than it can be read is told as of the first
// state, and all events since: some of them say what the messages have already,
// which their ids show.
//
// Where the daemon does not number its events nobody can tell whether the two fit, and some
// events may be told twice.
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
		s := Snapshot{State: first, Messages: all.Messages, Runs: all.Runs, Lacks: c.commands.Lacks()}
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
			c.deliver(s, nil)
			return nil
		case try >= maxTries && between != nil:
			c.deliver(s, between)
			return nil
		}
		first = second
	}
}

// enter asks for the session's state. An older daemon works in its active session only: it
// is switched to this one.
func (c *conn) enter(id string) (protocol.State, error) {
	state, err := c.state(id)
	var other *client.OlderError
	if !errors.As(err, &other) {
		return state, err
	}
	p := protocol.SwitchSessionParams{SessionID: id}
	ctx, cancel := client.Bounded(c.ctx, p, callTimeout)
	defer cancel()
	if _, err := client.Call(ctx, c.commands, protocol.SwitchSession, p); err != nil {
		return state, err
	}
	if state, err = c.state(id); errors.As(err, &other) {
		err = protocol.Errorf(protocol.SessionError, "the daemon shows %s instead", other.Active)
	}
	return state, err
}

// deliver sends a snapshot and the events behind it.
func (c *conn) deliver(snap Snapshot, behind []incoming) {
	s := c.s
	snap.New = s.known && c.Epoch != s.epoch
	snap.asked, snap.Lost, s.lost = c.asked, s.lost, nil
	s.shown = protocol.State{SessionID: snap.State.SessionID, Workdir: snap.State.Workdir, Parent: snap.State.Parent}
	s.session, s.epoch, s.known, s.synced = snap.State.SessionID, c.Epoch, true, true
	c.told, c.incomplete = comparable(snap.State), snap.State.ApprovalsIncomplete
	s.out.snapshot(snap)
	if behind == nil {
		behind = s.tail.of(s.session)
	}
	for _, next := range behind {
		if c.ours(next) && !s.out.event(next.Event, next.size) {
			s.synced = false
		}
	}
}

// readTo reads events up to number to. It returns those after number from, and
// whether one of them changed the session's messages; nil where there are holes.
func (c *conn) readTo(to, from uint64, id string) (between []incoming, moved bool, err error) {
	between = []incoming{}
	wait := time.NewTimer(callTimeout)
	defer wait.Stop()
	size := 0
	for holes := false; c.s.last < to; {
		select {
		case next := <-c.in:
			if next.err != nil {
				return nil, false, next.err
			}
			c.s.last = max(c.s.last, next.Seq)
			if next.gap {
				holes = true
				c.s.tail.clear()
			}
			c.s.tail.see(next)
			if next.Seq <= from || next.Event.Event == nil {
				break
			}
			moved = moved || next.Where().SessionID == id && changesMessages(next.Event.Event)
			between = append(between, next)
			size += next.size
		case <-wait.C:
			return nil, false, fmt.Errorf("the daemon's events end at %d, its state is of %d", c.s.last, to)
		case <-c.ctx.Done():
			return nil, false, context.Cause(c.ctx)
		}
		if holes || len(between) > maxEvents || size > maxBytes {
			between, moved, from, size = nil, true, to, 0
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
