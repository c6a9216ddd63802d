// Package hosts has several daemons as one: it lists what they have, watches it change and
// finds one thing among them, whether ssh leads to them or a fleet.
//
// Each host is asked for itself, within a limit of time; what they say is merged in one
// order that does not depend on who answered first, and a host that fails costs its own
// part only: the answer says which one, and why.
//
// Concurrency: a Host is a value, whose functions must be safe for concurrent use. A Watch
// belongs to the goroutine that follows it. What the package starts has ended when the
// function that started it returns.
//
// It refuses to connect, to know what leads to a host, to print, and to keep more sessions
// than there is Room for.
package hosts

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/errgroup"

	"noused/internal/client"
	"noused/internal/client/follow"
	"noused/internal/protocol"
)

// Host is one of the daemons. Sessions and State send one command and return the payload of
// its reply; Events tells what happens until ctx ends, or the host does not come back.
type Host struct {
	Name     string
	Sessions func(context.Context, protocol.ListSessionsParams) (jsontext.Value, error)
	State    func(context.Context, protocol.GetStateParams) (jsontext.Value, error)
	Events   func(context.Context, func(follow.Line) error) error
}

// AskWithin is how long a host has for all that it is asked at a time.
const AskWithin = 2 * time.Minute

func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, AskWithin, &client.SilentError{For: AskWithin})
}

// Answer is what one host said, or why it said nothing.
type Answer[T any] struct {
	Host  Host
	Value T
	Err   error
}

// Ask asks every host for something, at most so many at a time, and returns what they said
// in the order of the hosts. One that has not answered within AskWithin has failed with a
// *client.SilentError.
func Ask[T any](ctx context.Context, all []Host, atOnce int, ask func(context.Context, Host) (T, error)) []Answer[T] {
	answers := make([]Answer[T], len(all))
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, h := range all {
		group.Go(func() error {
			ctx, cancel := bounded(ctx)
			defer cancel()
			v, err := ask(ctx, h)
			answers[i] = Answer[T]{h, v, err}
			return nil
		})
	}
	_ = group.Wait()
	return answers
}

// Said are the answers of those that have not failed.
func Said[T any](answers []Answer[T]) []Answer[T] {
	return slices.DeleteFunc(slices.Clone(answers), func(a Answer[T]) bool { return a.Err != nil })
}

// Follow tells the events of all hosts as they come, one after the other, until ctx ends or
// tell has an error, which is returned. A host that does not come back ends, and the others
// go on: ended is called at once.
func Follow(ctx context.Context, all []Host, tell func(Host, follow.Line) error, ended func(Host, error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var telling sync.Mutex
	var failed error
	var following sync.WaitGroup
	each := func(h Host) {
		err := h.Events(ctx, func(line follow.Line) error {
			telling.Lock()
			defer telling.Unlock()
			if err := tell(h, line); err != nil && failed == nil {
				failed = err
				cancel(err)
			}
			return nil
		})
		telling.Lock()
		defer telling.Unlock()
		if ctx.Err() == nil {
			ended(h, err)
		}
	}
	for _, h := range all {
		following.Go(func() { each(h) })
	}
	following.Wait()
	return failed
}

// Line is a thing of a host's in one line of JSON, the same for all that several daemons are
// asked for: its host, and under the name of its kind what the daemon says of it. Deleted:
// it is no more.
func Line(host, kind string, value []byte, deleted bool) []byte {
	name, _ := jsontext.AppendQuote(nil, host) // it was read as UTF-8
	line := slices.Concat([]byte(`{"host":`), name, []byte(`,"`+kind+`":`), value)
	if deleted {
		line = append(line, `,"deleted":true`...)
	}
	return append(line, '}')
}

// shortID is how many characters of an id's end lists show.
const shortID = 8

// Find are the sessions that a name may mean: the one of that id, else those whose id begins
// so, else the one whose id ends in these eight characters or more, else of that
// title, else those whose title begins so.
func Find(name string, all []protocol.SessionInfo) (found []protocol.SessionInfo) {
	for _, fits := range []func(protocol.SessionInfo) bool{
		func(s protocol.SessionInfo) bool { return s.SessionID == name },
		func(s protocol.SessionInfo) bool { return begins(name, s.SessionID) },
		func(s protocol.SessionInfo) bool { return ends(name, s.SessionID) },
		func(s protocol.SessionInfo) bool { return s.Title == name },
		func(s protocol.SessionInfo) bool { return strings.HasPrefix(s.Title, name) },
	} {
		for _, s := range all {
			if fits(s) {
				found = append(found, s)
			}
		}
		if len(found) > 0 {
			break
		}
	}
	return found
}

func begins(name, id string) bool {
	return strings.HasPrefix(id, name) || strings.HasPrefix(id, "ses-"+name)
}

func ends(name, id string) bool { return len(name) >= shortID && strings.HasSuffix(id, name) }

// MeansID reports that a name is an id, or a part of it that Find takes for it.
func MeansID(name, id string) bool { return begins(name, id) || ends(name, id) }

// Approval is one that waits on a host.
type Approval struct {
	Host string
	protocol.Approval
	Raw     jsontext.Value       // as its daemon tells it
	Session protocol.SessionInfo // that it is of, where that was asked for
}

// Oldest merges the approvals of all hosts, the oldest first.
func Oldest(answers []Answer[[]Approval]) (all []Approval) {
	for _, a := range answers {
		all = append(all, a.Value...)
	}
	slices.SortStableFunc(all, func(x, y Approval) int {
		return cmp.Or(x.CreatedAt.Compare(y.CreatedAt), strings.Compare(x.Host, y.Host))
	})
	return all
}

// Approvals are those of a host that wait.
func (h Host) Approvals(ctx context.Context) ([]Approval, error) {
	some, err := h.List(ctx, protocol.ListSessionsParams{Limit: new(1)}, 1, nil)
	if err != nil || len(some) == 0 { // get_state would make one
		return nil, err
	}
	payload, err := h.State(ctx, protocol.GetStateParams{Scope: protocol.Scope{SessionID: some[0].SessionID}})
	if err != nil {
		return nil, err
	}
	var state struct {
		Pending []jsontext.Value `json:"pending_approvals"`
	}
	if err := decode(payload, &state); err != nil {
		return nil, fmt.Errorf("get_state: decode reply: %w", err)
	}
	all := make([]Approval, len(state.Pending))
	for i, raw := range state.Pending {
		all[i] = Approval{Host: h.Name, Raw: raw}
		if err := decode(raw, &all[i].Approval); err != nil {
			return nil, fmt.Errorf("get_state: decode pending_approvals: %w", err)
		}
	}
	return all, nil
}
