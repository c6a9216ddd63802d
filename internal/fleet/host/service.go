package host

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"go.uber.org/zap"
)

const (
	serviceName  = "noused"
	endpointName = "cmd"
	description  = "an agent daemon: each request is a command line of wire v1"
	// What has come and was not looked at yet is not in the daemon's budget, and waits
	// for no command: it is counted as soon as it is looked at. One message must fit.
	unseenSize = 1 << 20
	maxUnseen  = 1024
	smallSize  = 64 << 10 // of messages that have no more than a few words
)

// service is how the daemon describes itself to those who look for services. The words are
// those of the library's package micro, whose own answers go wherever the sender asks.
type service struct {
	identity micro.ServiceIdentity
	started  time.Time
	requests atomic.Int64
	errors   atomic.Int64
}

func newService(o Options) *service {
	return &service{started: time.Now().UTC(), identity: micro.ServiceIdentity{
		Name: serviceName, ID: rand.Text(), Version: plainVersion(o.Version),
		Metadata: map[string]string{"name": o.Name, "epoch": o.Epoch, "version": o.Version},
	}}
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

// listen has commands taken, and what else is asked of the daemon. When it returns
// without an error the server has been told so.
func (l *link) listen() error {
	p, name := l.host.o.Prefix, l.host.o.Name
	most := max(unseenSize, 2*int(l.nc.MaxPayload()))
	if err := l.subscribe(p.Command(name), micro.DefaultQueueGroup, most, l.acceptCommand); err != nil {
		return err
	}
	if err := l.subscribe(p.Rival(name), "", max(smallSize, int(l.nc.MaxPayload())), l.rival); err != nil {
		return err
	}
	for _, verb := range []micro.Verb{micro.PingVerb, micro.InfoVerb, micro.StatsVerb} {
		for _, of := range [][2]string{{}, {serviceName}, {serviceName, l.host.service.identity.ID}} {
			subject, err := micro.ControlSubject(verb, of[0], of[1])
			if err == nil {
				err = l.subscribe(subject, "", max(smallSize, int(l.nc.MaxPayload())), func(m *nats.Msg) { l.describe(verb, m) })
			}
			if err != nil {
				return err
			}
		}
	}
	ctx, cancel := context.WithTimeout(l.ctx, askTime)
	defer cancel()
	if err := l.nc.FlushWithContext(ctx); err != nil {
		return fmt.Errorf("the server does not say that it has the subscriptions: %w", err)
	}
	return nil
}

// subscribe hands each message on, one after the other. A panic costs that message.
func (l *link) subscribe(subject, queue string, most int, take func(*nats.Msg)) error {
	careful := func(m *nats.Msg) {
		defer l.host.survive(subject)
		take(m)
	}
	sub, err := l.nc.QueueSubscribe(subject, queue, careful)
	if err == nil {
		err = sub.SetPendingLimits(maxUnseen, most)
	}
	return err
}

// mayReply tells whether a reply may be sent there. The sender of a command chooses that,
// and may not have the daemon write where only daemons may, as to the server's own
// subjects, to buckets, and to a fleet's: so it must be an inbox, which begins with "_".
func (h *Host) mayReply(subject string) bool {
	return strings.HasPrefix(subject, "_") && !strings.HasPrefix(subject, string(h.o.Prefix)+".")
}

// describe answers who looks for services.
func (l *link) describe(verb micro.Verb, m *nats.Msg) {
	if !l.host.mayReply(m.Reply) {
		l.host.o.Log.Debug("a question about services has no answer, as that has nowhere to go",
			zap.String("reply", short128(m.Reply)))
		return
	}
	text, err := json.Marshal(l.host.service.describe(verb, l.host.o.Prefix.Command(l.host.o.Name)))
	if err == nil {
		_ = l.nc.Publish(m.Reply, text)
	}
}

func (s *service) describe(verb micro.Verb, subject string) any {
	switch verb {
	case micro.InfoVerb:
		return micro.Info{
			ServiceIdentity: s.identity, Type: micro.InfoResponseType, Description: description,
			Endpoints: []micro.EndpointInfo{{Name: endpointName, Subject: subject, QueueGroup: micro.DefaultQueueGroup}},
		}
	case micro.StatsVerb:
		return stats{s.identity, micro.StatsResponseType, s.started, []endpointStats{{
			Name: endpointName, Subject: subject, QueueGroup: micro.DefaultQueueGroup, Requests: s.requests.Load(),
			Errors: s.errors.Load(),
		}}}
	}
	return micro.Ping{ServiceIdentity: s.identity, Type: micro.PingResponseType}
}

// stats is micro.Stats: how long commands take is not counted.
type stats struct {
	micro.ServiceIdentity
	Type      string          `json:"type"`
	Started   time.Time       `json:"started"`
	Endpoints []endpointStats `json:"endpoints"`
}

type endpointStats struct {
	Name       string `json:"name"`
	Subject    string `json:"subject"`
	QueueGroup string `json:"queue_group"`
	Requests   int64  `json:"num_requests"`
	Errors     int64  `json:"num_errors"`
	LastError  string `json:"last_error"`
	Time       int64  `json:"processing_time"`
	Average    int64  `json:"average_processing_time"`
}
