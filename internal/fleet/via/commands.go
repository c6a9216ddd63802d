package via

import (
	"bytes"
	"context"
	"crypto/rand"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"noused/internal/client"
	"noused/internal/fleet"
	"noused/internal/protocol"
)

const (
	spare     = 1 << 10 // of what the server carries, for headers
	hello     = "hello"
	replyCost = 256     // bytes that one takes beside its line
	joinSize  = 4 << 10 // a line that is longer is not copied for its end
	// A reply is counted as soon as it is looked at. What was not yet is bounded by this;
	// one must fit, whatever the server carries.
	maxUnseen = 2 * maxLine
)

// commands is a connection to a host's command subject.
type commands struct {
	*conn
	subject string
	inbox   string // with the dot before a request's number
	order   string // what the daemon knows requests of one connection by
	replies *nats.Subscription
	greeted chan *nats.Msg // what the daemon says to the hello
	more    chan struct{}  // holds one: something has come

	mu      sync.Mutex
	last    uint64
	waiting map[string]string // numbers of requests without a reply, and their ids
	come    []reply
}

// reply is what has come for a request. size is what it has of the fleet's room.
type reply struct {
	line []byte // without its LF
	size int
	gone bool // nobody is there
}

func (h *Host) commands(l *link) (c *commands, err error) {
	c = &commands{
		subject: h.fleet.o.Prefix.Command(h.name), inbox: l.nc.NewInbox() + ".", order: rand.Text(),
		greeted: make(chan *nats.Msg, 1), more: make(chan struct{}, 1), waiting: map[string]string{},
	}
	c.conn = h.open(l, `"`+c.subject+`"`)
	if c.replies, err = l.nc.Subscribe(c.inbox+"*", c.receive); err == nil {
		err = c.replies.SetPendingLimits(-1, maxUnseen)
	}
	if err != nil {
		_ = c.close()
		return nil, &AwayError{l.server, err}
	}
	return c, nil
}

// hello waits until the daemon answers, or it is known that it does not.
func (c *commands) hello(ctx context.Context) error {
	line := []byte(`{"v":"1","id":"` + hello + `","type":"ping","payload":{}}`)
	if err := c.link.nc.PublishRequest(c.subject, c.inbox+hello, line); err != nil {
		return &AwayError{c.link.server, err}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, helloTime, &client.SilentError{For: helloTime})
	defer cancel()
	select {
	case msg := <-c.greeted:
		if nobody(msg) {
			return &NoHostError{Name: c.host.name, Server: c.link.server}
		}
		return nil
	case <-c.ctx.Done():
		return c.why()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// nobody is the server's word that nobody has the subject.
func nobody(msg *nats.Msg) bool {
	return len(msg.Data) == 0 && msg.Header.Get("Status") == "503"
}

// Write sends each whole line. One that is longer than the server carries is answered
// here.
func (c *commands) Write(p []byte) (int, error) { return c.write(p, c.send) }

func (c *commands) send(line []byte) error {
	id := commandID(line)
	if most := int(c.link.nc.MaxPayload()) - spare; len(line) > most {
		c.put(c.ctx, refusal(id, protocol.Rejectf(protocol.LineTooLong,
			"the command has %d bytes, and the NATS server carries at most %d (max_payload, less %d)", len(line), most, spare)))
		return nil
	}
	c.mu.Lock()
	c.last++
	number := strconv.FormatUint(c.last, 10)
	c.waiting[number] = id
	c.mu.Unlock()
	msg := &nats.Msg{Subject: c.subject, Reply: c.inbox + number, Header: nats.Header{}, Data: line}
	msg.Header.Set(fleet.ConnectionHeader, c.order)
	if err := c.link.nc.PublishMsg(msg); err != nil {
		return &AwayError{c.link.server, err}
	}
	return nil
}

// receive takes note of what has come. It does not wait for the reader.
func (c *commands) receive(msg *nats.Msg) {
	number := strings.TrimPrefix(msg.Subject, c.inbox)
	if number == hello {
		select {
		case c.greeted <- msg:
		default:
		}
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	id, waits := c.waiting[number]
	delete(c.waiting, number)
	if !waits || c.ctx.Err() != nil {
		return
	}
	c.come = append(c.come, c.reply(id, msg))
	select {
	case c.more <- struct{}{}:
	default:
	}
}

// reply is the reply to a command. One that is too long, or that there is no
// room for, is an error of that command's.
func (c *commands) reply(id string, msg *nats.Msg) reply {
	size := len(msg.Data) + replyCost
	var err error
	switch {
	case nobody(msg):
		return reply{gone: true}
	case len(msg.Data) == 0: // what answers there is no daemon, or does not want to
		err = protocol.Errorf(protocol.InternalError, "the daemon's part in the fleet refuses the command: %.200q",
			msg.Header.Get("Nats-Service-Error"))
	case len(msg.Data) > c.host.fleet.most:
		err = c.host.fleet.tooLong(len(msg.Data))
	case !c.host.fleet.held.Take(size):
		err = protocol.Rejectf(protocol.TooManyPending,
			"the reply has %d bytes, and nous holds at most %d MiB of what came from the fleet and is not read yet",
			len(msg.Data), maxHeld>>20)
	default:
		return reply{line: msg.Data, size: size}
	}
	return reply{line: bytes.TrimSuffix(refusal(id, err), []byte("\n"))}
}

func (f *Fleet) tooLong(size int) error {
	return protocol.Rejectf(protocol.LineTooLong,
		"the reply has %d bytes, and nous takes at most %d from another machine in one: ask for less, as with limit of "+
			"get_messages", size, f.most)
}

// pump hands the replies on until the connection ends.
func (c *commands) pump() {
	for {
		c.mu.Lock()
		come := c.come
		c.come = nil
		c.mu.Unlock()
		for i, r := range come {
			if r.gone {
				c.end(&NoHostError{Name: c.host.name, Server: c.link.server})
			}
			if r.gone || !c.say(r) {
				c.forget(come[i:])
				return
			}
		}
		select {
		case <-c.more:
		case <-c.ctx.Done():
			return
		}
	}
}

// say hands a reply's line on. False: the connection has ended.
func (c *commands) say(r reply) bool {
	if len(r.line) <= joinSize {
		return c.hand(c.ctx, piece{append(r.line, '\n'), r.size})
	}
	return c.put(c.ctx, r.line) && c.hand(c.ctx, piece{[]byte("\n"), r.size})
}

// forget gives back what replies have that nobody will read.
func (c *commands) forget(replies []reply) {
	for _, r := range replies {
		c.host.fleet.held.Give(r.size)
	}
}

func refusal(id string, err error) []byte {
	return protocol.AppendError(nil, id, protocol.AsError(err))
}

func commandID(line []byte) string {
	cmd, _ := protocol.DecodeCommand(line)
	return cmd.ID
}

// Close ends the connection. What the daemon was sent goes on there.
func (c *commands) Close() error {
	_ = c.replies.Unsubscribe()
	err := c.close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(c.come)
	c.come = nil
	return err
}
