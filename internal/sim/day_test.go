//go:build sim

package sim

import (
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"time"

	"noused/internal/protocol"
	"noused/internal/session"
)

// In some worlds a day may cost so much, of all sessions together, and runs ask a person then. Midnight comes in the
// middle of these.

// day is what is known of it.
type day struct {
	dayLimit int64            // billionths of a dollar; 0: any
	costs    map[string]int64 // by day
	answers  map[string][2]price
}

// price is what a day had cost when the model of a run began to answer.
type price struct {
	day  string
	cost int64
}

func newDay(seed uint64) day {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte("day"))
	rng := rand.New(rand.NewPCG(seed, sum.Sum64()))
	d := day{costs: map[string]int64{}, answers: map[string][2]price{}}
	if rng.IntN(3) == 0 {
		d.dayLimit = int64(40*(1+rng.IntN(3))) * perToken
		y, m, today := time.Now().Date()
		midnight := time.Date(y, m, today+1, 0, 0, 0, 0, time.Local)
		time.Sleep(time.Until(midnight) - time.Duration(2_000+rng.IntN(16_000))*time.Millisecond)
	}
	return d
}

func dayOf(at time.Time) string { return at.Local().Format(time.DateOnly) }

// noteDay holds an event against the limit of the day. w.mu is held.
func (w *world) noteDay(ev protocol.Event) {
	switch ev := ev.(type) {
	case protocol.MessageStart:
		if ev.Role == "assistant" {
			w.onItsDay(ev.SessionID, ev.RunID)
		}
	case protocol.Status:
		if ev.Code == protocol.StatusApprovalRequested {
			w.dayIsUp(ev.RunID, ev.Approval.Reason)
		}
	case protocol.AgentEnd:
		if ev.Error != nil && ev.Error.Code == protocol.OverBudget {
			w.dayIsUp(ev.RunID, ev.Error.Message)
		}
	}
}

// costSoFar is what the day of that time has cost so far, as the daemon's ledger has it.
func (w *world) costSoFar(at time.Time) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.costs[dayOf(at)]
}

// paid is the most that a day has cost on which something may have been seen that is told now. w.mu is held.
func (w *world) paid() int64 {
	now := time.Now()
	return max(w.costs[dayOf(now)], w.costs[dayOf(now.AddDate(0, 0, -1))])
}

// onItsDay holds a run whose model begins to answer against what the day had cost two answers before: the next may have
// been asked for before one is announced, but not the one after it. w.mu is held.
func (w *world) onItsDay(in, run string) {
	if w.dayLimit == 0 || w.hosted[in] != "" || w.holed(in) {
		return
	}
	now := time.Now()
	is := price{dayOf(now), w.costs[dayOf(now)]}
	last := w.answers[run]
	w.answers[run] = [2]price{last[1], is}
	if before := last[0]; before.day == is.day && before.cost-w.grantedFor(in, run, is.day) >= w.dayLimit {
		w.fail("run %s asks its model: its day had cost %d, of which %d were granted, and %d is the limit",
			run, before.cost, w.grantedFor(in, run, is.day), w.dayLimit)
	}
}

// grantedFor is what a day had cost when a run asked that somebody let go on last. w.mu is held.
func (w *world) grantedFor(in, run, day string) (cost int64) {
	text, asked := w.journal(in), map[string]int64{}
	for _, f := range recordsOf[session.ApprovalAsked](text, "approval_asked") {
		if f.Data.RunID == run && f.Data.Kind == protocol.ApprovalBudget && dayOf(f.At) == day {
			asked[f.Data.ApprovalID] = f.Data.Used.DayCost
		}
	}
	for _, f := range factsOf[session.ApprovalDecided](text, "approval_decided") {
		if f.Outcome == protocol.OutcomeAllowed {
			cost = max(cost, asked[f.ApprovalID])
		}
	}
	return cost
}

// dayIsUp holds a run that asks or ends for what its day has cost against that. w.mu is held.
func (w *world) dayIsUp(run, why string) {
	if !strings.Contains(why, "today has cost") {
		return
	}
	w.sometimes("a run is at the limit of the day")
	if w.dayLimit == 0 || w.paid() < w.dayLimit {
		w.fail("run %s may not go on today, which has cost %d of %d: %s", run, w.paid(), w.dayLimit, why)
	}
}
