package follow

import (
	"context"
	"strings"
	"testing"

	"noused/internal/protocol"
)

// A deleted session may be asked for once more before the reader has heard that it is gone.
func TestARefusalIsToldBeforeWhatIsShownInstead(t *testing.T) {
	o := newOutbox()
	o.put(Refused{SessionID: "gone"})
	o.snapshot(Snapshot{State: protocol.State{SessionID: "other"}})
	o.put(Refused{SessionID: "gone"})
	if first, _ := o.takeUpdate(); first != (Refused{SessionID: "gone"}) {
		t.Errorf("first comes %#v", first)
	}
	then, _ := o.takeUpdate()
	if s, ok := then.(Snapshot); !ok || s.State.SessionID != "other" {
		t.Errorf("then comes %#v", then)
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
