package tui

import (
	"context"
	"slices"
	"sync"
	"time"

	"noused/internal/client/follow"
	"noused/internal/protocol"
	"noused/internal/tui/jobs"
	"noused/internal/tui/terminal"
)

// boardFeed holds what happened until the screen takes it.
type boardFeed struct {
	filled chan struct{}      // cap 1
	every  chan time.Duration // cap 1: how often the screen is woken when nothing happens

	mu     sync.Mutex
	events []boardEvent
	size   int
	of     []boardNews // of each daemon
	moving bool
	listed time.Time // when relist was due last
}

// boardEvent is an event of a daemon.
type boardEvent struct {
	follow.Event
	from int
}

// boardNews is what the board knows of a daemon beside its events.
type boardNews struct {
	relist bool // something may have been missed
}

// newBoardFeed makes the feed of so many daemons. What it holds is bounded for all of
// them together.
func newBoardFeed(daemons int) *boardFeed {
	return &boardFeed{
		filled: make(chan struct{}, 1), every: make(chan time.Duration, 1), listed: time.Now(),
		of: make([]boardNews, daemons),
	}
}

// pump reads events of a daemon until ctx ends.
func (f *boardFeed) pump(ctx context.Context, from int, paced bool, s *follow.Stream) {
	defer s.Close()
	tellAll(ctx, s, paced, func(h follow.Update) {
		switch h := h.(type) {
		case follow.Connected, follow.Gap: // also for the first time
			f.missed(from)
		case follow.Line:
			f.put(from, h)
		}
	})
}

func (f *boardFeed) put(from int, l follow.Line) {
	if l.Event.Event == nil {
		return
	}
	if e, ok := l.Event.Event.(protocol.MessageUpdate); ok && e.Delta == "" {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events, f.size = append(f.events, boardEvent{l.Event, from}), f.size+len(l.Raw)
	if len(f.events) > maxBoardEvents || f.size > maxBoardBytes {
		f.events, f.size = nil, 0
		for i := range f.of {
			f.of[i].relist = true
		}
	}
	poke(f.filled)
}

// missed has all of a daemon listed again.
func (f *boardFeed) missed(from int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.of[from].relist = true
	poke(f.filled)
}

func (f *boardFeed) takeEvents() (events []boardEvent, of []boardNews) {
	f.mu.Lock()
	defer f.mu.Unlock()
	events, of = f.events, slices.Clone(f.of)
	f.events, f.size = nil, 0
	for i := range f.of {
		f.of[i].relist = false
	}
	return events, of
}

// moves says whether the board changes by itself.
func (f *boardFeed) moves(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.moving != on {
		f.moving = on
		select {
		case <-f.every:
		default:
		}
		f.every <- f.pace()
	}
}

func (f *boardFeed) pace() time.Duration {
	if f.moving {
		return workTick
	}
	return relistEvery
}

// due tells whether all is to be listed again, as that was long ago.
func (f *boardFeed) due() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if now.Sub(f.listed) < relistEvery {
		return false
	}
	f.listed = now
	return true
}

// wake wakes the screen, a frame's worth of events at a time, until ctx ends.
func (f *boardFeed) wake(ctx context.Context, woke, ticked func()) {
	clock := time.NewTicker(relistEvery)
	defer clock.Stop()
	for {
		select {
		case <-f.filled:
			woke()
			if !jobs.Pause(ctx, time.Second/terminal.FramesPerSecond) {
				return
			}
		case d := <-f.every:
			clock.Reset(d)
		case <-clock.C:
			ticked()
		case <-ctx.Done():
			return
		}
	}
}
