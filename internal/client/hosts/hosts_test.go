package hosts_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"noused/internal/client"
	"noused/internal/client/follow"
	"noused/internal/client/hosts"
	"noused/internal/protocol"
)

// having is a host with sessions, each in the words of its daemon.
func having(name string, sessions ...string) hosts.Host {
	return hosts.Host{
		Name: name,
		Sessions: func(_ context.Context, p protocol.ListSessionsParams) (jsontext.Value, error) {
			page := sessions
			if p.Before != "" {
				for i, s := range sessions {
					if strings.Contains(s, `"`+p.Before+`"`) {
						page = sessions[i+1:]
					}
				}
			}
			if p.Limit != nil && len(page) > *p.Limit {
				page = page[:*p.Limit]
			}
			return jsontext.Value(`{"sessions":[` + strings.Join(page, ",") + `]}`), nil
		},
		State: func(_ context.Context, p protocol.GetStateParams) (jsontext.Value, error) {
			at := strings.TrimPrefix(p.SessionID, "ses-")
			return jsontext.Value(fmt.Sprintf(
				`{"pending_approvals":[{"approval_id":"apr-%s","created_at":"2026-01-01T00:00:0%sZ"}]}`, at, at)), nil
		},
	}
}

func idle(n int) string {
	return fmt.Sprintf(`{"session_id":"ses-%d","run_state":"idle","updated_at":"2026-01-01T00:00:0%dZ","title":"t%d"}`, n,
		n, n)
}

func waits(n int) string {
	return strings.TrimSuffix(idle(n), "}") + `,"waiting_for":"approval"}`
}

func broken(name string) hosts.Host {
	return hosts.Host{Name: name, Sessions: func(context.Context, protocol.ListSessionsParams) (jsontext.Value, error) {
		return nil, errors.New("it is down")
	}}
}

func list(ctx context.Context, h hosts.Host) ([]hosts.Session, error) {
	return h.List(ctx, protocol.ListSessionsParams{Limit: new(2)}, 10, nil)
}

// The sessions of all hosts are one list, no matter who answers first; a host that fails is told
// with why, and keeps no other.
func TestSessionsOfAllHostsAreOneList(t *testing.T) {
	all := []hosts.Host{having("tower", idle(5), idle(4), waits(1)), broken("down"), having("box", idle(5))}
	answers := hosts.Ask(t.Context(), all, 1, list)
	var got []string
	for _, s := range hosts.Sorted(hosts.Said(answers)) {
		got = append(got, s.Host+" "+s.SessionID)
	}
	if diff := cmp.Diff([]string{"tower ses-1", "box ses-5", "tower ses-5", "tower ses-4"}, got); diff != "" {
		t.Error(diff)
	}
	if err := answers[1].Err; answers[1].Host.Name != "down" || err == nil || err.Error() != "it is down" {
		t.Errorf("got %v, want why down has failed", err)
	}
}

func TestAHostThatDoesNotAnswerHasFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mute := hosts.Host{Name: "mute", Sessions: func(ctx context.Context, _ protocol.ListSessionsParams) (jsontext.Value,
			error,
		) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}}
		answers := hosts.Ask(t.Context(), []hosts.Host{mute, having("box", idle(1))}, 2, list)
		var silent *client.SilentError
		if !errors.As(answers[0].Err, &silent) || answers[1].Err != nil || len(answers[1].Value) != 1 {
			t.Errorf("got %+v, want that one has not answered, and what the other said", answers)
		}
	})
}

func TestListsAreBounded(t *testing.T) {
	h := having("box", idle(3), idle(2), idle(1))
	if _, err := h.List(t.Context(), protocol.ListSessionsParams{}, 1, hosts.NewRoom(10)); err == nil ||
		!strings.Contains(err.Error(), "no room") {
		t.Errorf("got %v, want that there is no room", err)
	}
	if all, err := h.List(t.Context(), protocol.ListSessionsParams{Limit: new(1)}, 2, nil); err != nil || len(all) != 2 {
		t.Errorf("got %d sessions, %v; want those of two pages", len(all), err)
	}
	again := having("box", idle(1))
	again.Sessions = func(context.Context, protocol.ListSessionsParams) (jsontext.Value, error) {
		return jsontext.Value(`{"sessions":[` + idle(1) + `]}`), nil
	}
	if _, err := again.List(t.Context(), protocol.ListSessionsParams{Limit: new(1)}, 10, nil); err == nil ||
		!strings.Contains(err.Error(), "does not go on") {
		t.Errorf("got %v, want that the list does not go on", err)
	}
}

func TestWhatWaitsLongestComesFirst(t *testing.T) {
	all := []hosts.Host{having("tower", idle(7)), having("box", idle(3)), having("empty")}
	var got []string
	for _, one := range hosts.Oldest(hosts.Ask(t.Context(), all, 3,
		func(ctx context.Context, h hosts.Host) ([]hosts.Approval, error) {
			return h.Approvals(ctx)
		})) {
		got = append(got, one.Host+" "+one.ApprovalID)
	}
	if diff := cmp.Diff([]string{"box apr-3", "tower apr-7"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestALineHasItsHostFirst(t *testing.T) {
	if got, want := string(hosts.Line("a\"b", "session", []byte(`{"x":1}`), true)),
		`{"host":"a\"b","session":{"x":1},"deleted":true}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAHostThatEndsLeavesTheOthers(t *testing.T) {
	told := errors.New("enough")
	gone := hosts.Host{Name: "gone", Events: func(context.Context, func(follow.Line) error) error {
		return client.ErrLost
	}}
	left := make(chan struct{})
	stays := hosts.Host{Name: "stays", Events: func(ctx context.Context, tell func(follow.Line) error) error {
		<-left
		_ = tell(follow.Line{})
		<-ctx.Done()
		return context.Cause(ctx)
	}}
	var ended []string
	err := hosts.Follow(t.Context(), []hosts.Host{gone, stays}, func(h hosts.Host, _ follow.Line) error {
		return told
	}, func(h hosts.Host, err error) {
		ended = append(ended, h.Name+": "+err.Error())
		close(left)
	})
	if diff := cmp.Diff([]string{"gone: " + client.ErrLost.Error()}, ended); diff != "" || !errors.Is(err, told) {
		t.Errorf("got %v, want %v: %s", err, told, diff)
	}
}

func TestFind(t *testing.T) {
	all := []protocol.SessionInfo{
		{SessionID: "ses-12", Title: "parser"},
		{SessionID: "ses-13", Title: "ses-1"},
		{SessionID: "ses-1", Title: "parsers"},
	}
	for name, want := range map[string]int{"ses-1": 1, "ses-": 3, "12": 1, "parser": 1, "par": 2, "x": 0} {
		if got := hosts.Find(name, all); len(got) != want {
			t.Errorf("%s: got %d sessions, want %d", name, len(got), want)
		}
	}
}

// seen is what a Watch has told.
type seen struct {
	watch *hosts.Watch
	lines []string
	until int // so many lines
}

var errSeen = errors.New("all was seen")

func (s *seen) Listed(before, now []hosts.Session) {
	changed, gone := hosts.Changes(before, now, func(x, y *hosts.Session) bool { return x.Title == y.Title })
	for _, c := range changed {
		s.lines = append(s.lines, c.Host+" "+c.SessionID)
	}
	for _, g := range gone {
		s.lines = append(s.lines, g.Host+" "+g.SessionID+" deleted")
	}
}

func (s *seen) Failed(host string, err error) {
	s.lines = append(s.lines, host+": "+err.Error())
}

func (s *seen) Show() (time.Duration, error) {
	if len(s.lines) >= s.until {
		return 0, errSeen
	}
	return 0, nil
}

// A host that comes is listed, one that changes again, one that leaves, or says no more that
// it is there, takes its sessions along; one that fails is told once.
func TestAWatchFollowsHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		box := []string{idle(1)}
		v := &seen{}
		v.watch = hosts.NewWatch(hosts.Options{
			Host: func(name string) hosts.Host {
				if name == "box" {
					return having("box", box...)
				}
				return broken(name)
			},
			AtOnce: 4, Stays: 30 * time.Second, Every: 10 * time.Second, View: v,
		})
		news := make(chan hosts.News)
		next := func(ctx context.Context) (hosts.News, error) {
			select {
			case n := <-news:
				return n, nil
			case <-ctx.Done():
				return hosts.News{}, context.Cause(ctx)
			}
		}
		step := func(want []string, all ...hosts.News) {
			t.Helper()
			v.until += len(want)
			at := len(v.lines)
			go func() {
				for _, n := range all {
					news <- n
				}
			}()
			if err := v.watch.Follow(t.Context(), next); !errors.Is(err, errSeen) {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, v.lines[at:]); diff != "" {
				t.Error(diff)
			}
		}
		step([]string{"box ses-1"}, hosts.News{Host: "box", Here: true})
		box = append(box, waits(2))
		step([]string{"box ses-2"}, hosts.News{Host: "box", MayHaveChanged: true})
		if some, count, waiting := v.watch.First(1); len(some) != 1 || some[0].SessionID != "ses-2" || count != 2 ||
			waiting != 1 {
			t.Errorf("got %v, %d, %d; want the one that waits, of two", some, count, waiting)
		}
		step([]string{"down: it is down"}, hosts.News{Host: "down", Here: true})
		v.watch.Problems(func(host, why string) {
			if host != "down" || why != "it is down" {
				t.Errorf("got a problem of %s: %s", host, why)
			}
		})
		step([]string{"box ses-2 deleted", "box ses-1 deleted"}) // it says no more that it is there
		if n := v.watch.Hosts(); n > 1 {
			t.Errorf("%d hosts are there still", n)
		}
	})
}
