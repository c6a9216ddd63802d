package cmdline

import (
	"context"
	"errors"
	"os"
	"os/signal"
)

// ErrInterrupted is why the contexts of [Interrupts] end.
var ErrInterrupted = errors.New("interrupted")

// Interrupts are two contexts: the first Ctrl-C ends Soft, the second Hard.
type Interrupts struct {
	Soft, Hard context.Context
	Stop       func() // gives Ctrl-C back, and must be called
}

// WatchInterrupts takes over Ctrl-C until Stop is called.
func WatchInterrupts(ctx context.Context) Interrupts {
	hard, cutHard := context.WithCancelCause(ctx)
	soft, cutSoft := context.WithCancelCause(hard)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt)
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() { // ends with Stop
		defer close(ended)
		for _, cut := range []context.CancelCauseFunc{cutSoft, cutHard} {
			select {
			case <-signals:
				cut(ErrInterrupted)
			case <-done:
				return
			}
		}
	}()
	return Interrupts{soft, hard, func() {
		signal.Stop(signals)
		close(done)
		<-ended
		cutHard(nil)
	}}
}
