package tui

import (
	"context"
	"sync"
	"time"

	"noused/internal/client/follow"
	"noused/internal/protocol"
)

// boardFeed holds what happened until the screen takes it.
type boardFeed struct {
	filled chan struct{}      // cap 1
	every  chan time.Duration // cap 1: how often the screen is woken when nothing happens

	mu     sync.Mutex
	events []follow.Event
	size   int
	relist bool // something may have been missed
	older  bool
	moving bool
	listed time.Time // when relist was due last
}

func newBoardFeed() *boardFeed {
	return &boardFeed{filled: make(chan struct{}, 1), every: make(chan time.Duration, 1), listed: time.Now()}
}

// pump reads events until ctx ends.
func (f *boardFeed) pump(ctx context.Context, s *follow.Stream) {
	defer s.Close()
	for {
		h, err := s.Next(ctx)
		if err != nil {
			return
		}
		switch h := h.(type) {
		case follow.Connected: // also for the first time
			if h.Older {
				f.isOlder()
			}
			f.missed()
		case follow.Gap:
			f.missed()
		case follow.Line:
			f.put(h)
		}
	}
}

func (f *boardFeed) put(l follow.Line) {
	if l.Event.Event == nil {
		return
	}
	if e, ok := l.Event.Event.(protocol.MessageUpdate); ok && e.Delta == "" {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events, f.size = append(f.events, l.Event), f.size+len(l.Raw)
	if len(f.events) > maxBoardEvents || f.size > maxBoardBytes {
		f.events, f.size, f.relist = nil, 0, true
	}
	poke(f.filled)
}

// missed has all listed again.
func (f *boardFeed) missed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.relist = true
	poke(f.filled)
}

func (f *boardFeed) isOlder() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.older = true
}

func (f *boardFeed) take() (events []follow.Event, relist, older bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	events, relist = f.events, f.relist
	f.events, f.size, f.relist = nil, 0, false
	return events, relist, f.older
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
			if !pause(ctx, time.Second/framesPerSecond) {
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
