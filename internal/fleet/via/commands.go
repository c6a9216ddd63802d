package via

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"noused/internal/client"
	"noused/internal/fleet"
	"noused/internal/protocol"
)

const (
	maxReplies = 64 << 20 // bytes of replies that nobody has read
	spare      = 1 << 10  // of what the server carries, for headers
	hello      = "hello"
)

// commands is a connection to a host's command subject.
type commands struct {
	*conn
	subject string
	inbox   string // with the dot before a request's number
	order   string // what the daemon knows requests of one connection by
	replies *nats.Subscription

	mu      sync.Mutex
	last    uint64
	waiting map[string]string // numbers of requests without a reply, and their ids
}

func (h *Host) commands(l *link) (c *commands, err error) {
	c = &commands{subject: h.fleet.o.Prefix.Command(h.name), inbox: l.nc.NewInbox() + ".", order: rand.Text(), waiting: map[string]string{}}
	if c.replies, err = l.nc.SubscribeSync(c.inbox + "*"); err != nil {
		return nil, &AwayError{l.server, err}
	}
	_ = c.replies.SetPendingLimits(-1, maxReplies)
	c.conn = h.open(l, `"`+c.subject+`"`)
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
	stop := context.AfterFunc(c.ctx, cancel)
	defer stop()
	msg, err := c.replies.NextMsgWithContext(ctx)
	switch {
	case c.ctx.Err() != nil:
		return c.why()
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, nats.ErrNoResponders), err == nil && nobody(msg):
		return &NoHostError{Name: c.host.name, Server: c.link.server}
	case err != nil:
		return &AwayError{c.link.server, err}
	}
	return nil
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

// pump hands the replies on until the connection ends.
func (c *commands) pump() {
	for {
		msg, err := c.replies.NextMsgWithContext(c.ctx)
		if err != nil {
			c.end(&AwayError{c.link.server, err})
			return
		}
		if nobody(msg) {
			c.end(&NoHostError{Name: c.host.name, Server: c.link.server})
			return
		}
		if line := c.reply(msg); line != nil && !c.put(c.ctx, line) {
			return
		}
	}
}

// reply is the line of a reply; nil: nobody waits for it.
func (c *commands) reply(msg *nats.Msg) []byte {
	number := strings.TrimPrefix(msg.Subject, c.inbox)
	c.mu.Lock()
	id, waits := c.waiting[number]
	delete(c.waiting, number)
	c.mu.Unlock()
	switch {
	case !waits:
		return nil
	case len(msg.Data) == 0: // what answers there is no daemon, or does not want to
		why := msg.Header.Get("Nats-Service-Error")
		return refusal(id, protocol.Errorf(protocol.InternalError, "the daemon's part in the fleet refuses the command: %.200s", why))
	}
	return append(msg.Data, '\n')
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
	return c.close()
}
