package follow

import (
	"context"
	"strings"
	"testing"
)

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
