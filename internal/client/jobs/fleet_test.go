package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"noused/internal/fleet/via"
)

// What the server denies is said instead of a time that has passed.
func TestWhatAServerDeniesIsSaid(t *testing.T) {
	l := &link{denied: new(atomic.Pointer[via.RefusedError])}
	late := fmt.Errorf("claims: %w", context.DeadlineExceeded)
	if err := l.why(t.Context(), late); err != late {
		t.Errorf("nothing was denied: got %v", err)
	}
	l.denied.Store(via.Denied("nats://box", nats.ErrPermissionViolation))
	err := l.why(t.Context(), late)
	var refused *via.RefusedError
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "nats://box denies it") ||
		!strings.Contains(refused.Next, "your user there needs permission") {
		t.Errorf("got %v, and what to do: %v", err, refused)
	}
	if other := errors.New("interrupted"); l.why(t.Context(), other) != other {
		t.Errorf("another error: got %v", l.why(t.Context(), other))
	}
}
