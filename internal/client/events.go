package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/protocol"
)

const subscribeID = "s1"

// Events is a subscription on the event socket. Lines that nobody asks for
// stay with the daemon: a slow reader learns of a gap, and nothing is held in memory
// here.
type Events struct {
	conn  net.Conn
	lines chan eventLine
	stop  chan struct{}
	once  sync.Once
	wg    sync.WaitGroup

	epoch string
	last  uint64
	gap   bool
	err   error // sticky

	core *core   // of an older one, which does not number its events; else nil
	fill *Filler // of that
}

type eventLine struct {
	env protocol.EventEnvelope
	raw []byte
	err error
}

// Subscribe connects to the event socket that belongs to socket and does
// SubscribeOver. Errors are those of Connect, too.
func Subscribe(ctx context.Context, socket string, p protocol.SubscribeParams) (*Events, error) {
	conn, err := Connect(ctx, protocol.EventSocket(socket))
	if err != nil {
		return nil, err
	}
	return SubscribeOver(ctx, conn, p)
}

// SubscribeOver subscribes on a connection to an event socket, and returns once
// the daemon has confirmed it; what came before that is thrown away (wire-v1
// §5). Events published after it has returned are not missed. The connection is
// the Events' from then on, and closed where there is an error. ctx bounds the
// wait for the confirmation. Errors are ErrLost, *protocol.Error, and ctx's.
func SubscribeOver(ctx context.Context, conn net.Conn, p protocol.SubscribeParams) (*Events, error) {
	e := newEvents(conn)
	cut := context.AfterFunc(ctx, func() { conn.Close() })
	lines, err := e.subscribe(p)
	if !cut() && err == nil {
		err = ErrLost
	}
	if err != nil {
		conn.Close()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	e.wg.Go(func() { e.read(lines) })
	return e, nil
}

// LiveOver reads what a connection to an event socket says and asks for nothing:
// every event from then on, as any v1 core gives them (wire-v1 §5). It is for
// cores that know no subscribe. Those have no epoch, and their events no numbers;
// an event published just after LiveOver has returned may be missed.
func LiveOver(conn net.Conn) *Events {
	e := newEvents(conn)
	e.wg.Go(func() { e.read(protocol.NewLineReader(conn, maxReply)) })
	return e
}

func newEvents(conn net.Conn) *Events {
	return &Events{conn: conn, lines: make(chan eventLine), stop: make(chan struct{})}
}

func (e *Events) subscribe(p protocol.SubscribeParams) (*protocol.LineReader, error) {
	payload, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encode payload: %w", err)
	}
	line, err := encodeCommand(subscribeID, "subscribe", payload)
	if err != nil {
		return nil, err
	}
	// A daemon that hangs up may have said why, so a failed write still reads.
	_, wrote := e.conn.Write(line)
	lines := protocol.NewLineReader(e.conn, maxReply)
	for {
		line, err := lines.Next()
		if err != nil {
			return nil, lost(errors.Join(wrote, err))
		}
		var r response
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("%w: unreadable event: %w", ErrLost, err)
		}
		if r.ID != subscribeID && !(r.ID == "" && r.Error != nil) {
			continue
		}
		payload, err := r.result()
		if err != nil {
			return nil, err
		}
		return lines, e.startAt(payload)
	}
}

func (e *Events) startAt(payload jsontext.Value) error {
	var sub protocol.Subscribed
	if err := json.Unmarshal(payload, &sub); err != nil {
		return fmt.Errorf("decode reply: %w", err)
	}
	e.epoch, e.gap = sub.Epoch, sub.Gap
	if sub.NextSeq > 0 {
		e.last = sub.NextSeq - 1
	}
	return nil
}

// read ends with the connection or with Close.
func (e *Events) read(lines *protocol.LineReader) {
	for {
		var next eventLine
		line, err := lines.Next()
		if err != nil {
			next.err = lost(err)
		} else if err := json.Unmarshal(line, &next.env); err != nil {
			next.err = fmt.Errorf("%w: unreadable event: %w", ErrLost, err)
		} else {
			next.raw = bytes.Clone(line)
		}
		select {
		case e.lines <- next:
		case <-e.stop:
			return
		}
		if next.err != nil {
			return
		}
	}
}

// Next blocks until the next event and returns it with its line as the daemon
// wrote it, without the LF. Errors: ErrLost when the connection is gone (and
// from then on), ErrClosed after Close, or ctx's, after which Next may be
// called again and continues where it was.
func (e *Events) Next(ctx context.Context) (protocol.EventEnvelope, []byte, error) {
	if e.err != nil {
		return protocol.EventEnvelope{}, nil, e.err
	}
	select {
	case next := <-e.lines:
		if next.err != nil {
			e.err = next.err
			e.release(true)
			return protocol.EventEnvelope{}, nil, e.err
		}
		if e.core != nil {
			next.env.Seq = e.last + 1
		}
		e.last = next.env.Seq
		return next.env, next.raw, nil
	case <-e.stop:
		return protocol.EventEnvelope{}, nil, ErrClosed
	case <-ctx.Done():
		return protocol.EventEnvelope{}, nil, context.Cause(ctx)
	}
}

// Epoch names the daemon's start within which sequence numbers count.
func (e *Events) Epoch() string { return e.epoch }

// Last is the number up to which events have been read, or, before the first
// one, were not asked for. With Epoch it is where a later subscription resumes.
func (e *Events) Last() uint64 { return e.last }

// Gap reports that the daemon could not resume where it was asked to: it has
// been restarted, or no longer keeps events that old.
func (e *Events) Gap() bool { return e.gap }

// Close ends the subscription and waits for its goroutine. It may be called
// beside Next, and more than once.
func (e *Events) Close() error {
	e.once.Do(func() {
		e.release(false)
		close(e.stop)
		e.conn.Close()
	})
	e.wg.Wait()
	return nil
}

// Decode returns an event's payload as its own type. An event type that v1
// does not know is an error.
func Decode(env protocol.EventEnvelope) (protocol.Event, error) {
	decode, ok := decoders[env.Type]
	if !ok {
		return nil, fmt.Errorf("event %d: unknown type %.40q", env.Seq, env.Type)
	}
	ev, err := decode(env.Payload)
	if err != nil {
		return nil, fmt.Errorf("event %d: decode %s: %w", env.Seq, env.Type, err)
	}
	return ev, nil
}

var decoders = map[string]func(jsontext.Value) (protocol.Event, error){
	protocol.AgentStart{}.Type():    decodeAs[protocol.AgentStart],
	protocol.AgentEnd{}.Type():      decodeAs[protocol.AgentEnd],
	protocol.TurnStart{}.Type():     decodeAs[protocol.TurnStart],
	protocol.TurnEnd{}.Type():       decodeAs[protocol.TurnEnd],
	protocol.MessageStart{}.Type():  decodeAs[protocol.MessageStart],
	protocol.MessageUpdate{}.Type(): decodeAs[protocol.MessageUpdate],
	protocol.MessageEnd{}.Type():    decodeAs[protocol.MessageEnd],
	protocol.ToolStart{}.Type():     decodeAs[protocol.ToolStart],
	protocol.ToolUpdate{}.Type():    decodeAs[protocol.ToolUpdate],
	protocol.ToolEnd{}.Type():       decodeAs[protocol.ToolEnd],
	protocol.Status{}.Type():        decodeAs[protocol.Status],
	protocol.Warning{}.Type():       decodeAs[protocol.Warning],
	protocol.ErrorEvent{}.Type():    decodeAs[protocol.ErrorEvent],
}

func decodeAs[E protocol.Event](payload jsontext.Value) (protocol.Event, error) {
	var ev E
	err := json.Unmarshal(payload, &ev)
	return ev, err
}
