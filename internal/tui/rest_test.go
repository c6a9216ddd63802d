package tui

import (
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	tea "charm.land/bubbletea/v2"
)

// A screen on which nothing happens is looked at once a second; the first message
// brings back the usual speed, and many messages do not hold the clock back.
func TestTheClockRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClock()
		defer c.stop()
		c.ticker.Reset(frame) // as bubbletea does
		ticks := func(d time.Duration) (n int) {
			for end := time.After(d); ; {
				select {
				case <-c.ticker.C:
					n++
				case <-end:
					return n
				}
			}
		}
		ticks(restAfter)
		if n := ticks(60 * time.Second); n < 59 || n > 61 {
			t.Errorf("%d ticks in an idle minute", n)
		}
		c.wake(nil, nil)
		if n := ticks(frame + time.Millisecond); n != 1 {
			t.Errorf("%d ticks in the first frame after a message", n)
		}
		n := 0
		for range 300 {
			c.wake(nil, nil)
			n += ticks(10 * time.Millisecond)
		}
		if n < 80 || n > 95 {
			t.Errorf("%d ticks in 3 s of messages", n)
		}
	})
}

// The library takes the clock, and what is shown when the clock rests is drawn.
func TestTheScreenIsDrawnByTheClock(t *testing.T) {
	out, in := io.Pipe()
	c := newClock()
	defer c.stop()
	p := tea.NewProgram(saying{}, tea.WithInput(nil), tea.WithOutput(in), tea.WithWindowSize(40, 5),
		tea.WithoutSignalHandler(), tea.WithFilter(c.wake))
	c.drive(p)
	if reflect.ValueOf(p).Elem().FieldByName("ticker").Pointer() != reflect.ValueOf(c.ticker).Pointer() {
		t.Error("bubbletea has another ticker")
	}
	ended := make(chan error, 1)
	go func() { _, err := p.Run(); in.Close(); ended <- err }()
	c.mu.Lock()
	c.last = c.last.Add(-restAfter)
	c.mu.Unlock()
	c.relax()
	p.Send(saying{"hello"})
	var shown strings.Builder
	for buf := make([]byte, 1<<10); !strings.Contains(shown.String(), "hello"); {
		n, err := out.Read(buf)
		if err != nil {
			t.Fatalf("%v after %q", err, shown.String())
		}
		shown.Write(buf[:n])
	}
	go func() { _, _ = io.Copy(io.Discard, out) }() // ends with the program
	p.Quit()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// saying is a screen that shows the last message of its kind.
type saying struct{ text string }

func (saying) Init() tea.Cmd { return nil }

func (s saying) View() tea.View { return tea.NewView(s.text) }

func (s saying) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	if msg, ok := msg.(saying); ok {
		s = msg
	}
	return s, nil
}
