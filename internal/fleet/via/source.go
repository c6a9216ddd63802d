package via

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"noused/internal/client"
	"noused/internal/fleet"
	"noused/internal/protocol"
)

const (
	ahead     = 256             // messages that are on their way to a reader
	aheadSize = 1 << 20         // and about their bytes
	forgotten = 1 * time.Minute // without a sign of the reader, the server does
	lookPause = time.Second     // between two looks at who the daemon is

	partsSize    = 8 << 20 // bytes that the parts of an event take beside its text
	envelopeSize = 256     // of one of them, beside its payload
)

var errLeftOut = fmt.Errorf("%w: the fleet's server has left out a message", client.ErrLost)

// source is a host's events from the stream, as the daemon's own socket would tell
// them: those of one epoch, in order, each once, what is missing told.
type source struct {
	host  *Host
	link  *link
	want  protocol.SubscribeParams
	epoch string
	last  uint64 // the newest event that was told, or not asked for
	gap   bool

	messages jetstream.MessagesContext
	count    uint64 // the server's own, of what it has sent
	looked   time.Time
	noted    bool
}

// source begins where p says. It blocks until the server has answered.
func (h *Host) source(ctx context.Context, l *link, p protocol.SubscribeParams) (*source, error) {
	s := &source{host: h, link: l, want: p}
	who, err := h.presence(ctx, l)
	if errors.Is(err, errNotListed) {
		return nil, h.named(ctx, &NoHostError{Name: h.name, Server: l.server})
	}
	if err != nil {
		return nil, err
	}
	s.epoch = who.Epoch
	err = l.store(ctx, "stream "+h.fleet.o.Prefix.EventStream(), s.locate)
	return s, err
}

// locate finds where in the stream the events are, and has them sent from there.
func (s *source) locate(ctx context.Context) error {
	stream, err := s.link.js.Stream(ctx, s.host.fleet.o.Prefix.EventStream())
	if err != nil {
		return err
	}
	pattern := s.host.fleet.o.Prefix.Events(s.host.name)
	f := &finder{stream: stream, pattern: pattern, epoch: s.epoch}
	start, err := f.find(ctx, s.want)
	if err != nil {
		return err
	}
	s.last, s.gap = f.after, f.gap
	consumer, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: start, AckPolicy: jetstream.AckNonePolicy,
		FilterSubject: pattern, InactiveThreshold: forgotten, MemoryStorage: true, Replicas: 1,
	})
	if err != nil {
		return err
	}
	s.messages, err = consumer.Messages(s.link.ahead())
	return err
}

// ahead bounds what is on its way to a reader. Less than a message would stop it.
func (l *link) ahead() jetstream.PullMessagesOpt {
	return jetstream.PullMaxMessagesWithBytesLimit(ahead, max(aheadSize, 2*int(l.nc.MaxPayload())))
}

func (s *source) close() { s.messages.Stop() }

// next blocks until there are lines, or the source is broken.
func (s *source) next(ctx context.Context) (lines [][]byte, err error) {
	for len(lines) == 0 {
		msg, err := s.messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return nil, s.link.broken(err)
		}
		meta, err := msg.Metadata()
		if err != nil || meta.Sequence.Consumer != s.count+1 {
			return nil, errLeftOut
		}
		s.count++
		if lines, err = s.linesOf(ctx, msg); err != nil {
			return nil, err
		}
	}
	return lines, nil
}

// linesOf makes lines of a message: none, where it was told already or is not asked for.
func (s *source) linesOf(ctx context.Context, msg jetstream.Msg) (lines [][]byte, err error) {
	epoch, seq, ok := fleet.OfMessageID(msg.Headers().Get(jetstream.MsgIDHeader))
	switch {
	case !ok:
		s.note(msg, "it has no number")
		return nil, nil
	case epoch != s.epoch:
		return nil, s.checkEpoch(ctx)
	case seq <= s.last:
		return nil, nil
	}
	e, why := readEvent(msg.Data(), seq)
	if why != "" {
		s.note(msg, why)
		return nil, nil // its number is missing, which is told
	}
	first := e.first()
	if first > s.last+1 {
		lines = append(lines, missing(s.last+1, first-1))
	}
	for _, part := range e.parts() {
		if part.Seq > s.last && s.wants(part) {
			lines = append(lines, part.line)
		}
	}
	s.last = seq
	return lines, nil
}

// checkEpoch ends the source if the daemon has been started anew. What is of another epoch
// is older otherwise, or nobody's.
func (s *source) checkEpoch(ctx context.Context) error {
	if time.Since(s.looked) < lookPause {
		return nil
	}
	s.looked = time.Now()
	who, err := s.host.presence(ctx, s.link)
	if err == nil && who.Epoch != s.epoch {
		return fmt.Errorf("%w: the daemon was started anew", client.ErrLost)
	}
	return nil
}

func (s *source) note(msg jetstream.Msg, why string) {
	if !s.noted {
		s.host.fleet.note(fmt.Sprintf("a message on %.200s is passed over: %s", msg.Subject(), why))
	}
	s.noted = true
}

// wants tells whether an event was asked for. An event that reports others as missing
// always was.
func (s *source) wants(e event) bool {
	if e.dropped || s.want.SessionID == "" && s.want.Types == nil {
		return true
	}
	return (len(s.want.Types) == 0 || slices.Contains(s.want.Types, e.Type)) &&
		(s.want.SessionID == "" || e.session() == s.want.SessionID)
}

// event is a message's envelope and its line, with the LF.
type event struct {
	protocol.EventEnvelope
	line    []byte
	dropped bool // it reports missing events
}

// readEvent takes nothing for an event that is not one whole line, with the number that
// its message has.
func readEvent(data []byte, seq uint64) (e event, why string) {
	switch {
	case bytes.IndexByte(data, '\n') >= 0:
		return e, "it is more than a line"
	case json.Unmarshal(data, &e.EventEnvelope) != nil || e.V != protocol.Version || e.Type == "" ||
		e.Payload.Kind() != '{':
		return e, "it is no event"
	case e.Seq != seq || e.FromSeq > seq:
		return e, "its numbers do not fit"
	}
	e.line = append(bytes.Clone(data), '\n')
	if e.Type == (protocol.Warning{}).Type() {
		var w protocol.Warning
		e.dropped = json.Unmarshal(e.Payload, &w) == nil && w.Code == protocol.WarningEventsDropped
	}
	return e, ""
}

func (e event) first() uint64 {
	if e.FromSeq > 0 {
		return e.FromSeq
	}
	return e.Seq
}

// parts are the events that one stands for, as the daemon has numbered them: a reader that has
// seen the first of them elsewhere is told the others alone.
func (e event) parts() []event {
	var all protocol.MessageUpdate
	if e.FromSeq == 0 || uint64(len(e.Parts)) != e.Seq-e.FromSeq+1 || json.Unmarshal(e.Payload, &all) != nil {
		return []event{e}
	}
	text, thought := all.Delta, all.ThinkingDelta
	if !partsFit(all, e.Parts) {
		return []event{e}
	}
	var parts []event
	for i, n := range e.Parts {
		if n < 0 || n > len(text)+len(thought) || text != "" && thought != "" {
			return []event{e}
		}
		part := event{EventEnvelope: protocol.EventEnvelope{Type: e.Type, Seq: e.FromSeq + uint64(i)}}
		all.Delta, text = cut(text, n)
		all.ThinkingDelta, thought = cut(thought, n)
		payload, err := protocol.EncodePayload(all)
		if err != nil {
			return []event{e}
		}
		part.Payload, part.line = payload, protocol.AppendEvent(nil, e.Type, payload, e.TS, part.Seq)
		parts = append(parts, part)
	}
	return parts
}

// partsFit tells whether parts are those of a text, and do not say the rest of its event
// so often that they take the memory of their reader.
func partsFit(all protocol.MessageUpdate, parts []int) bool {
	left := len(all.Delta) + len(all.ThinkingDelta)
	for _, n := range parts {
		if n < 0 || n > left {
			return false
		}
		left -= n
	}
	all.Delta, all.ThinkingDelta = "", ""
	each, err := protocol.EncodePayload(all)
	return err == nil && left == 0 && len(parts)*(len(each)+envelopeSize) <= partsSize
}

func cut(text string, n int) (head, rest string) {
	return text[:min(n, len(text))], text[min(n, len(text)):]
}

func (e event) session() string {
	var ref protocol.Ref
	_ = json.Unmarshal(e.Payload, &ref) // it is an object; one without is nobody's
	return ref.SessionID
}

// missing is the line that reports events that the stream does not have.
func missing(from, to uint64) []byte {
	payload, _ := protocol.EncodePayload(protocol.Warning{
		Code: protocol.WarningEventsDropped, FromSeq: from, ToSeq: to,
		Message: "the fleet's stream does not have some events",
	})
	return protocol.AppendEvent(nil, protocol.Warning{}.Type(), payload, time.Now(), to)
}
