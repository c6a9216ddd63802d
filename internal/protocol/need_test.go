package protocol

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A list shows first what waits for a person, however new the rest is.
func TestByNeed(t *testing.T) {
	at := time.Unix(0, 0)
	want := []SessionInfo{
		{SessionID: "asks", RunState: StateRunning, WaitingFor: "approval", Unread: true, LastStopReason: StopError},
		{SessionID: "failed", RunState: StateIdle, Unread: true, LastStopReason: StopError},
		{SessionID: "works", RunState: StateRunning, Unread: true, LastStopReason: StopError},
		{SessionID: "stops", RunState: StateAborting},
		{SessionID: "done", RunState: StateIdle, Unread: true, LastStopReason: StopCompleted},
		{SessionID: "new", RunState: StateIdle, UpdatedAt: at.Add(time.Hour)},
		{SessionID: "failed, and seen", RunState: StateIdle, LastStopReason: StopError},
		{SessionID: "b", RunState: StateIdle, UpdatedAt: at.Add(-time.Hour)},
		{SessionID: "a", RunState: StateIdle, UpdatedAt: at.Add(-time.Hour)},
	}
	for i := range want {
		if want[i].UpdatedAt.IsZero() {
			want[i].UpdatedAt = at.Add(-time.Duration(i) * time.Minute)
		}
	}
	got := slices.Clone(want)
	rand.Shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
	slices.SortFunc(got, ByNeed)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}
