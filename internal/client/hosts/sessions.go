package hosts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/protocol"
)

// Session is a session of a host's.
type Session struct {
	Host string
	protocol.SessionInfo
	Raw jsontext.Value // as its daemon tells it; nil where nobody wants it
}

// Line is Line of the session.
func (s Session) Line(deleted bool) []byte { return Line(s.Host, "session", s.Raw, deleted) }

// ByNeed orders the sessions of several hosts as protocol.ByNeed does those of one.
func ByNeed(x, y *Session) int {
	return cmp.Or(protocol.ByNeed(x.SessionInfo, y.SessionInfo), strings.Compare(x.Host, y.Host))
}

// Sort sorts sessions by need.
func Sort(all []Session) {
	slices.SortFunc(all, func(x, y Session) int { return ByNeed(&x, &y) })
}

// Sorted merges the sessions of all hosts, those that need somebody first.
func Sorted(answers []Answer[[]Session]) []Session {
	n := 0
	for _, a := range answers {
		n += len(a.Value)
	}
	all := make([]Session, 0, n)
	for _, a := range answers {
		all = append(all, a.Value...)
	}
	Sort(all)
	return all
}

// Room bounds the bytes of lists, as their daemons tell them. Several hosts may share one.
type Room struct{ left atomic.Int64 }

// NewRoom has room for so many bytes.
func NewRoom(bytes int64) *Room {
	r := new(Room)
	r.left.Store(bytes)
	return r
}

func (r *Room) reserve(n int) bool { return r == nil || r.left.Add(-int64(n)) >= 0 }

func decode[T any](payload jsontext.Value, into *T) error { return json.Unmarshal(payload, into) }

// List lists the sessions of a host that p asks for, in so many pages of its limit at most,
// for which there is room; nil has room for all.
func (h Host) List(ctx context.Context, p protocol.ListSessionsParams, pages int, room *Room) (all []Session,
	err error,
) {
	for range pages {
		page, err := h.page(ctx, p, room)
		if err != nil {
			return nil, err
		}
		if all == nil {
			all = page
		} else {
			all = append(all, page...)
		}
		if p.Limit == nil || len(page) < *p.Limit {
			break
		}
		last := all[len(all)-1].SessionID
		if last == p.Before {
			return nil, errors.New("its list of sessions does not go on where it ended")
		}
		p.Before = last
	}
	return all, nil
}

func (h Host) page(ctx context.Context, p protocol.ListSessionsParams, room *Room) ([]Session, error) {
	payload, err := h.Sessions(ctx, p)
	if err != nil {
		return nil, err
	}
	if !room.reserve(len(payload)) {
		return nil, errors.New("there is no room for its list of sessions: those listed have too many bytes")
	}
	var r struct {
		Sessions []jsontext.Value `json:"sessions"`
	}
	if err := decode(payload, &r); err != nil {
		return nil, fmt.Errorf("list_sessions: decode reply: %w", err)
	}
	page := make([]Session, len(r.Sessions))
	for i, raw := range r.Sessions {
		page[i] = Session{Host: h.Name, Raw: raw}
		if err := decode(raw, &page[i].SessionInfo); err != nil {
			return nil, fmt.Errorf("list_sessions: decode reply: %w", err)
		}
	}
	return page, nil
}

// Changes are what is new or another one in a list of a host's sessions than in the one
// before, and what is no more.
func Changes(before, now []Session, same func(x, y *Session) bool) (changed, gone []Session) {
	was := make(map[string]*Session, len(before))
	for i := range before {
		was[before[i].SessionID] = &before[i]
	}
	for i := range now {
		if old := was[now[i].SessionID]; old == nil || !same(old, &now[i]) {
			changed = append(changed, now[i])
		}
		delete(was, now[i].SessionID)
	}
	for _, s := range before {
		if was[s.SessionID] != nil {
			gone = append(gone, s)
		}
	}
	return changed, gone
}
