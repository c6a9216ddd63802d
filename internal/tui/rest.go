package tui

import (
	"reflect"
	"sync"
	"time"
	"unsafe"

	tea "charm.land/bubbletea/v2"
)

// While nothing happens, bubbletea would look 30 times a second whether there is
// something to draw. A clock at rest ticks once a second: should a message take
// so long that the clock rests before its screen is made, that screen is late,
// not lost.
const (
	frame     = time.Second / framesPerSecond
	slowFrame = time.Second
	restAfter = time.Second // since the last message
)

// clock is the ticker by which bubbletea draws. It slows down while no message
// comes. Its methods may be called at once.
type clock struct {
	ticker *time.Ticker
	rest   *time.Timer

	mu   sync.Mutex
	last time.Time // the last message
	slow bool
}

func newClock() *clock {
	c := &clock{ticker: time.NewTicker(frame), last: time.Now()}
	c.ticker.Stop() // the program starts it
	c.rest = time.AfterFunc(restAfter, c.relax)
	return c
}

// drive gives the clock to a program that does not run yet. There is no other
// way to it than the library's own field. One that keeps its ticker elsewhere
// draws as it always has, and a test fails.
func (c *clock) drive(p *tea.Program) {
	field := reflect.ValueOf(p).Elem().FieldByName("ticker")
	if field.IsValid() && field.Type() == reflect.TypeFor[*time.Ticker]() {
		*(**time.Ticker)(unsafe.Pointer(field.UnsafeAddr())) = c.ticker
	}
}

// wake has the clock tick for a message. It is bubbletea's filter and lets every
// message pass.
func (c *clock) wake(_ tea.Model, msg tea.Msg) tea.Msg {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = time.Now()
	if c.slow {
		c.slow = false
		c.ticker.Reset(frame)
	}
	c.rest.Reset(restAfter)
	return msg
}

func (c *clock) relax() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.last) >= restAfter {
		c.slow = true
		c.ticker.Reset(slowFrame)
	}
}

// stop ends the clock, after the program.
func (c *clock) stop() {
	c.rest.Stop()
	c.ticker.Stop()
}
