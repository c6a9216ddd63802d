// Package jobs runs what takes time beside the screen: each job is a goroutine that sends one
// message when it is done, ends with the program, and is waited for.
package jobs

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
)

// Pause waits and tells whether it was not cut short.
func Pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func panicError(r any) error { return fmt.Errorf("panic: %v\n%s", r, debug.Stack()) }

// Jobs are the goroutines of one Run.
type Jobs struct {
	Ctx  context.Context
	Send func(tea.Msg)
	WG   sync.WaitGroup
}

// Crashed is a panic in a job.
type Crashed struct{ Err error }

// Start runs f beside the screen and sends what it returns.
func (j *Jobs) Start(f func(context.Context) tea.Msg) {
	j.WG.Go(func() {
		defer func() {
			if r := recover(); r != nil {
				j.Send(Crashed{panicError(r)})
			}
		}()
		if msg := f(j.Ctx); msg != nil {
			j.Send(msg)
		}
	})
}
