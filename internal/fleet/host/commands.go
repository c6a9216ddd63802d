package host

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"go.uber.org/zap"

	"noused/internal/fleet"
	"noused/internal/format"
	"noused/internal/model"
	"noused/internal/protocol"
)

const (
	maxLong     = 256     // long commands at a time
	longCost    = 4 << 10 // bytes that one of them takes beside its payload
	requestCost = 1 << 10 // bytes that any takes beside its line
	maxPeer     = 200
	infoHeader  = "Nats-Request-Info"
	replySpare  = 1 << 10 // of what a server carries, for headers
)

// notPerson is why what only people may do is refused.
const notPerson = "what comes through the fleet is not taken for a person unless [fleet] approve = true " +
	"in the daemon's configuration"

// request is one command that has come over NATS.
type request struct {
	link    *link
	replyTo string
	peer    string
	line    []byte // nil when it is decoded
	cmd     protocol.Command
}

// acceptCommand has a command run: those of one sender in the order in which they come, and what
// is long about one beside the others.
func (l *link) acceptCommand(in *nats.Msg) {
	h := l.host
	if !h.mayReply(in.Reply) {
		h.o.Log.Debug("a command over the fleet is not run, as its reply has nowhere to go",
			zap.String("reply", short128(in.Reply)))
		return
	}
	r := &request{link: l, replyTo: in.Reply, peer: peerOf(in.Header.Get(infoHeader)), line: bytes.TrimSpace(in.Data)}
	cost := h.o.Held.Clip(requestCost + len(in.Data))
	switch {
	case !h.admit():
		r.refuse(stopping())
	case !h.o.Held.Take(cost):
		r.refuse(protocol.Failure(noRoom("command", cost)))
		h.under.Done()
	case !h.turns.add(sender(in), func() { r.serve(cost) }):
		h.o.Held.Give(cost)
		r.refuse(protocol.Failure(protocol.Rejectf(protocol.TooManyPending, "too many commands over the fleet wait for "+
			"their turn: at most %d, and %d of one sender", maxWaiting, maxOfOne)))
		h.under.Done()
	}
}

// sender is whose commands must run in their order: what a client says itself, as the
// server changes reply subjects between accounts, or else where it wants its replies.
func sender(in *nats.Msg) string {
	if text := in.Header.Get(fleet.ConnectionHeader); text != "" {
		return "c" + short128(text)
	}
	return "r" + in.Reply[:max(strings.LastIndexByte(in.Reply, '.'), 0)]
}

// refuse answers a command that is not looked at.
func (r *request) refuse(o protocol.Outcome) {
	cmd, _ := protocol.DecodeCommand(r.line[:min(len(r.line), r.link.host.o.MaxLine)])
	r.answer(cmd.ID, o)
}

// serve runs a command whose turn it is. cost is what it has of the budget.
func (r *request) serve(cost int) {
	h := r.link.host
	give := sync.OnceFunc(func() { h.o.Held.Give(cost) })
	defer func() { give() }()
	done := h.under.Done
	defer func() { done() }()
	defer r.survive()
	line := r.line
	r.line = nil
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
	case h.work.Err() != nil:
		r.answer(cmd.ID, stopping())
	default:
		if later := r.run(); later != nil {
			done = func() {}
			go later(give)
			give = func() {}
		}
	}
}

func stopping() protocol.Outcome {
	return protocol.Failure(protocol.Rejectf(protocol.ShuttingDown, "%v", errStopping))
}

// run runs the command's quick half. What is long about it is returned, and is nil where
// the command has ended. later ends with the command, or with the host, which waits for
// it; it counts the command off, and gives back what it has of the budget.
func (r *request) run() (later func(give func())) {
	h := r.link.host
	ctx := protocol.WithCaller(h.work, h.caller(r.peer))
	extra := 0
	if protocol.Long(r.cmd.Type) {
		extra = longCost
		if h.pending.Load() >= maxLong {
			r.finish(protocol.Failure(protocol.Rejectf(protocol.TooManyPending, "%d commands over the fleet have not ended",
				maxLong)))
			return nil
		}
	}
	if !h.o.Held.Take(extra) {
		r.finish(protocol.Failure(noRoom("command", extra)))
		return nil
	}
	outcome := h.o.Mux.Run(ctx, r.cmd)
	long := outcome.Later()
	if long == nil {
		h.o.Held.Give(extra)
		r.finish(outcome)
		return nil
	}
	r.cmd.Payload = nil
	h.pending.Add(1)
	return func(give func()) {
		defer h.under.Done()
		defer h.pending.Add(-1)
		defer r.survive()
		outcome := long(ctx)
		h.o.Held.Give(extra)
		give() // before there has to be room for the reply, which may be as long
		if errors.Is(outcome.Err(), context.Canceled) && context.Cause(ctx) == errStopping {
			outcome = stopping()
		}
		r.finish(outcome)
	}
}

// survive answers a command that a fault of ours has ended.
func (r *request) survive() {
	v := recover()
	if v == nil {
		return
	}
	h := r.link.host
	err := h.panicked("command "+short128(r.cmd.Type), v)
	defer h.survive("reply")
	r.answer(r.cmd.ID, protocol.Failure(err))
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
	r.link.host.service.requests.Add(1)
	if err != nil {
		r.link.host.service.errors.Add(1)
	}
	var wire *protocol.Error
	if err != nil && !errors.As(err, &wire) && !errors.Is(err, context.Canceled) {
		r.link.host.o.Log.Error("command failed", zap.String("command", r.cmd.Type), zap.String("id", r.cmd.ID),
			zap.String("peer", r.peer), zap.Error(err))
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

func short128(s string) string { return format.Cut(s, 128) }

// answer sends the reply's line without its end. One that the server does not carry
// becomes an error that says so.
func (r *request) answer(id string, o protocol.Outcome) {
	h := r.link.host
	reply, size := r.encode(id, o)
	defer h.o.Held.Give(size)
	line := bytes.TrimSuffix(reply.Line(), []byte("\n"))
	if reply.Release != nil {
		reply.Release()
	}
	r.send(line)
}

// encode makes the reply's line, or that of the error in its place, one line at a time.
// It takes size bytes of the budget.
func (r *request) encode(id string, o protocol.Outcome) (reply protocol.Response, size int) {
	h, most := r.link.host, int(r.link.nc.MaxPayload())-replySpare
	h.encoding.Lock()
	defer h.encoding.Unlock()
	reply = o.Encode(nil, id)
	if reply.Len() > most && o.Shorten() {
		reply = o.Encode(nil, id)
	}
	size = h.o.Held.Clip(reply.Len())
	switch {
	case reply.Len() > most:
		return refusal(reply, id, protocol.Rejectf(protocol.LineTooLong,
			"the command has run, but its reply of %d bytes is more than the NATS server carries (max_payload, less %d: %d): "+
				"ask for less, as with limit of get_messages", reply.Len(), replySpare, most)), 0
	case size <= longCost:
		return reply, 0
	case !h.o.Held.Take(size):
		return refusal(reply, id, noRoom("reply", size)), 0
	}
	return reply, size
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
	return protocol.Rejectf(protocol.TooManyPending, "there is no room for a %s of %d bytes now: others have taken it",
		what, size)
}

// send answers over the connection that the command came on, or the one that there is
// now. Without one, nobody can be told.
func (r *request) send(line []byte) {
	if !r.link.nc.IsClosed() && r.link.nc.Publish(r.replyTo, line) == nil {
		return
	}
	if now := r.link.host.current.Load(); now != nil && now != r.link {
		_ = now.nc.Publish(r.replyTo, line)
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
	peer = plain(peer)
	return cmp.Or(format.Cut(peer, maxPeer), "unknown")
}

// plain is another's text without control characters.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return -1
		}
		return r
	}, text)
}
