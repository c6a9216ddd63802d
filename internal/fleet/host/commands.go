package host

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/micro"
	"go.uber.org/zap"

	"noused/internal/model"
	"noused/internal/protocol"
)

const (
	serviceName = "noused"
	maxLong     = 256      // long commands at a time
	longCost    = 4 << 10  // bytes that one of them takes beside its payload
	maxWaiting  = 1024     // commands that wait for their turn
	waitingSize = 16 << 20 // their bytes
	maxPeer     = 200
	infoHeader  = "Nats-Request-Info"
	replySpare  = 1 << 10 // of what a server carries, for headers
)

// notPerson is why what only people may do is refused.
const notPerson = "what comes through the fleet is not taken for a person unless [fleet] approve = true in the daemon's configuration"

// commands takes commands until the link ends.
func (l *link) commands(well func()) error {
	h := l.host
	service, err := micro.AddService(l.nc.Conn, micro.Config{
		Name: serviceName, Version: plainVersion(h.o.Version), Description: "an agent daemon: each request is a command line of wire v1",
		Metadata: map[string]string{"name": h.o.Name, "epoch": h.o.Epoch, "version": h.o.Version},
	})
	if err != nil {
		return err
	}
	defer func() { _ = service.Stop() }()
	err = service.AddEndpoint("cmd", micro.HandlerFunc(l.take),
		micro.WithEndpointSubject(h.o.Prefix.Command(h.o.Name)), micro.WithEndpointPendingLimits(maxWaiting, waitingSize))
	if err != nil {
		return err
	}
	well()
	<-l.ctx.Done()
	return nil
}

// plainVersion is a version as the service framework takes it: three numbers.
func plainVersion(version string) string {
	parts := strings.Split(version, ".")
	for _, part := range parts {
		if _, err := strconv.ParseUint(part, 10, 31); err != nil || len(part) > 1 && part[0] == '0' || len(parts) != 3 {
			return "0.0.0"
		}
	}
	return version
}

// request is one command that has come over NATS.
type request struct {
	micro.Request
	link *link
	peer string
	cmd  protocol.Command
}

// take runs a command, in the order in which they come; what is long about it runs
// beside the others.
func (l *link) take(in micro.Request) {
	h := l.host
	defer h.survive()
	if !h.mayReply(in.Reply()) {
		h.o.Log.Debug("a command over the fleet is not run, as its reply has nowhere to go", zap.String("reply", short128(in.Reply())))
		return
	}
	r := &request{Request: in, link: l, peer: peerOf(in.Headers().Get(infoHeader))}
	line := bytes.TrimSpace(in.Data())
	if len(line) > h.o.MaxLine {
		id, outcome := protocol.TooLong(&protocol.LineTooLongError{Limit: h.o.MaxLine, Prefix: line[:min(len(line), 1<<10)]})
		r.answer(id, outcome)
		return
	}
	cmd, bad := protocol.DecodeCommand(line)
	r.cmd = cmd
	switch {
	case bad != nil:
		r.answer(cmd.ID, protocol.Failure(bad))
	case !h.admit():
		r.answer(cmd.ID, stopping())
	default:
		r.run()
	}
}

// mayReply tells whether a reply may be sent there. Whoever sends a command chooses that,
// and may not have the daemon write where only daemons may: to the server's own
// subjects, as those of JetStream and of buckets, and to the fleet's.
func (h *Host) mayReply(subject string) bool {
	return subject != "" && subject[0] != '$' && !strings.HasPrefix(subject, string(h.o.Prefix)+".")
}

func stopping() protocol.Outcome {
	return protocol.Failure(protocol.Rejectf(protocol.ShuttingDown, "%v", errStopping))
}

// run ends with the command's quick half; the long one goes on beside it.
func (r *request) run() {
	h := r.link.host
	done := h.under.Done
	defer func() { done() }()
	ctx := protocol.WithCaller(h.work, h.caller(r.peer))
	cost := 0
	if long := protocol.Long(r.cmd.Type); long || len(r.cmd.Payload) > longCost {
		cost = h.o.Held.Clip(longCost + len(r.cmd.Payload))
		if long && h.pending.Load() >= maxLong {
			r.finish(protocol.Failure(protocol.Rejectf(protocol.TooManyPending, "%d commands over the fleet have not ended", maxLong)))
			return
		}
	}
	if !h.o.Held.Take(cost) {
		r.finish(protocol.Failure(noRoom("command", cost)))
		return
	}
	give := sync.OnceFunc(func() { h.o.Held.Give(cost) })
	outcome := h.o.Mux.Run(ctx, r.cmd)
	later := outcome.Later()
	if later == nil {
		give()
		r.finish(outcome)
		return
	}
	r.cmd.Payload = nil
	h.pending.Add(1)
	done = func() {}
	go func() { // ends with the command, or with the host, which waits for it
		defer h.under.Done()
		defer h.survive()
		defer h.pending.Add(-1)
		defer give()
		outcome := later(ctx)
		give() // before there has to be room for the reply, which may be as long
		if errors.Is(outcome.Err(), context.Canceled) && context.Cause(ctx) == errStopping {
			outcome = stopping()
		}
		r.finish(outcome)
	}()
}

// caller is who sends a command, as handlers know it.
func (h *Host) caller(peer string) protocol.Caller {
	c := protocol.Caller{Peer: peer, Refused: notPerson}
	if h.o.Approve {
		c.Refused = ""
	}
	return c
}

// finish says how a command went, in the audit too.
func (r *request) finish(o protocol.Outcome) {
	r.audit(o.Err())
	r.answer(r.cmd.ID, o)
}

// asked are what clients ask all the time; the audit is for the rest.
var asked = map[string]bool{protocol.Ping.Name(): true, protocol.GetState.Name(): true}

func (r *request) audit(err error) {
	var wire *protocol.Error
	if err != nil && !errors.As(err, &wire) && !errors.Is(err, context.Canceled) {
		r.link.host.o.Log.Error("command failed", zap.String("command", r.cmd.Type), zap.String("id", r.cmd.ID), zap.String("peer", r.peer), zap.Error(err))
	}
	if asked[r.cmd.Type] && err == nil {
		return
	}
	ev := model.AuditEvent{Event: "fleet:command", Component: "fleet", Status: "ok", RequestID: short128(r.cmd.ID)}
	if err != nil {
		ev.Status = "error"
	}
	ev.Data, _ = json.Marshal(struct {
		Command string `json:"command"`
		Peer    string `json:"peer"`
	}{short128(r.cmd.Type), r.peer})
	r.link.host.o.Audit(ev)
}

func short128(s string) string { return strings.ToValidUTF8(s[:min(len(s), 128)], "") }

// answer sends the reply's line without its end. One that the server does not carry
// becomes an error that says so.
func (r *request) answer(id string, o protocol.Outcome) {
	h, most := r.link.host, int(r.link.nc.MaxPayload())-replySpare
	reply := o.Encode(nil, id)
	if reply.Len() > most && o.Shorten() {
		reply = o.Encode(nil, id)
	}
	size := h.o.Held.Clip(reply.Len())
	switch {
	case reply.Len() > most:
		reply = refusal(reply, id, protocol.Rejectf(protocol.LineTooLong,
			"the command has run, but its reply of %d bytes is more than the NATS server carries (max_payload, less %d: %d): ask for less, as with limit of get_messages", reply.Len(), replySpare, most))
		size = 0
	case size <= longCost:
		size = 0
	case !h.o.Held.Take(size):
		reply, size = refusal(reply, id, noRoom("reply", size)), 0
	}
	defer h.o.Held.Give(size)
	line := bytes.TrimSuffix(reply.Line(), []byte("\n"))
	if reply.Release != nil {
		reply.Release()
	}
	r.send(line)
}

// refusal takes the place of a reply.
func refusal(in protocol.Response, id string, err error) protocol.Response {
	if in.Release != nil {
		in.Release()
	}
	return protocol.Response{Head: protocol.AppendError(nil, id, protocol.AsError(err))}
}

// noRoom is the error for what the budget has not enough left for.
func noRoom(what string, size int) error {
	return protocol.Rejectf(protocol.TooManyPending, "there is no room for a %s of %d bytes now: others have taken it", what, size)
}

// send answers over the connection that the command came on, or the one that there is
// now. Without one, nobody can be told.
func (r *request) send(line []byte) {
	if !r.link.nc.IsClosed() {
		if r.Respond(line) == nil {
			return
		}
	}
	if now := r.link.host.current.Load(); now != nil && now != r.link {
		_ = now.nc.Publish(r.Reply(), line)
	}
}

// peerOf is who the server says has sent a request: it only does for a service import
// that is shared. Within one account a client may write the header itself.
func peerOf(header string) string {
	var info struct {
		User    string `json:"user"`
		NameTag string `json:"name_tag"`
		Account string `json:"acc"`
	}
	if header == "" || json.Unmarshal([]byte(header), &info) != nil || info.User == "" && info.NameTag == "" {
		return "unknown"
	}
	peer := info.User
	if info.NameTag != "" {
		peer = info.NameTag + " " + peer
	}
	if info.Account != "" {
		peer += "@" + info.Account
	}
	peer = strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return -1
		}
		return r
	}, peer)
	return cmp.Or(strings.ToValidUTF8(peer[:min(len(peer), maxPeer)], ""), "unknown")
}
