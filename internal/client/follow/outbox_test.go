package follow

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"noused/internal/protocol"
)

// What the reader has not seen cannot be lost to it: it hears why the session is lost that it has, and the one that
// it asked for.
func TestWhatIsLostBeforeItIsSeen(t *testing.T) {
	first, second := errors.New("first"), errors.New("second")
	snapshot := func(id string, lost error, asked bool) Snapshot {
		return Snapshot{State: protocol.State{SessionID: id}, Lost: lost, asked: asked}
	}
	for name, c := range map[string]struct{ put, want []Update }{
		"one is deleted, and what is shown instead, too": {
			[]Update{snapshot("b", first, false), snapshot("c", second, false)},
			[]Update{snapshot("c", first, false)},
		},
		"the one asked for is deleted": {
			[]Update{snapshot("b", nil, true), snapshot("c", second, false)},
			[]Update{Refused{"b", second}, snapshot("c", nil, false)},
		},
		"so it is after another snapshot of it": {
			[]Update{snapshot("b", nil, true), snapshot("b", nil, false), snapshot("c", second, false)},
			[]Update{Refused{"b", second}, snapshot("c", nil, false)},
		},
		"one is deleted, and then the one asked for": {
			[]Update{snapshot("b", first, false), snapshot("c", nil, true), snapshot("d", second, false)},
			[]Update{Refused{"c", second}, snapshot("d", first, false)},
		},
		"an answer is told before what is shown instead": {
			[]Update{Refused{"b", first}, snapshot("c", second, false), snapshot("d", second, false)},
			[]Update{Refused{"b", first}, snapshot("d", second, false)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOutbox()
			for _, u := range c.put {
				if s, ok := u.(Snapshot); ok {
					o.snapshot(s)
				} else {
					o.put(u)
				}
			}
			if !reflect.DeepEqual(o.queue, c.want) {
				t.Errorf("got  %+v\nwant %+v", o.queue, c.want)
			}
		})
	}
}

func TestPanicIsToldAndStays(t *testing.T) {
	l := &Session{out: newOutbox()}
	l.guarded(func() { panic("what a mess") })()
	l.out.snapshot(Snapshot{})
	ctx, cancel := context.WithCancel(context.Background())
	l.wg.Go(func() { l.out.deliver(ctx) })
	defer l.wg.Wait()
	defer cancel()
	if broken, ok := (<-l.Updates()).(Broken); !ok || !strings.Contains(broken.Err.Error(), "what a mess") {
		t.Errorf("got %#v, want what broke", broken)
	}
}
