package terminal

import (
	"reflect"
	"sync"
	"time"
	"unsafe"

	tea "charm.land/bubbletea/v2"
)

// bubbletea draws what the model shows whenever its ticker ticks, and would tick
// 30 or 60 times a second, changed or not: a key waits for half a tick, and an idle
// screen costs processor time. This one ticks when there is something to draw.
// framesPerSecond bounds how often the screen is drawn, and events are taken in while they stream.
const FramesPerSecond = 30

const (
	drawAfter = time.Millisecond              // so that one picture shows messages that come together
	drawEvery = time.Second / 120             // at most: as often as bubbletea ever draws
	drawAgain = time.Second / FramesPerSecond // in case the last tick came before its picture
)

// Frames says when bubbletea draws. Its methods may be called at once.
type Frames struct {
	ticker *time.Ticker   // what bubbletea stops and resets; nothing reads its own channel
	draw   chan time.Time // what bubbletea reads instead

	mu    sync.Mutex
	timer *time.Timer
	due   bool // the timer runs, for a picture that was not drawn
	last  time.Time
}

func NewFrames() *Frames {
	f := &Frames{draw: make(chan time.Time, 1), ticker: time.NewTicker(time.Hour)}
	f.ticker.Stop()
	f.ticker.C = f.draw
	f.timer = time.AfterFunc(time.Hour, f.tick)
	f.timer.Stop()
	return f
}

// Drive gives the ticker to a program that does not run yet. A goroutine of bubbletea's
// that ends late, after the terminal was lent, cannot stop it for the next one. There is no other
// way to it than the library's own field. One that keeps its ticker elsewhere
// draws as it always has, and a test fails.
func (f *Frames) Drive(p *tea.Program) {
	field := reflect.ValueOf(p).Elem().FieldByName("ticker")
	if field.IsValid() && field.Type() == reflect.TypeFor[*time.Ticker]() {
		*(**time.Ticker)(unsafe.Pointer(field.UnsafeAddr())) = f.ticker
	}
}

// changed has the picture drawn that the model has just made.
func (f *Frames) changed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.due {
		f.due = true
		f.timer.Reset(max(drawAfter, drawEvery-time.Since(f.last)))
	}
}

func (f *Frames) tick() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = time.Now()
	select {
	case f.draw <- f.last:
	default: // it has not drawn yet
	}
	if f.due {
		f.due = false
		f.timer.Reset(drawAgain)
	}
}

// Stop ends the ticks, after the program.
func (f *Frames) Stop() { f.timer.Stop() }

// painted is a model whose pictures are drawn as soon as they are made.
type painted struct {
	tea.Model
	frames *Frames
}

func (p painted) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	m, cmd := p.Model.Update(msg)
	return painted{m, p.frames}, cmd
}

func (p painted) View() tea.View {
	v := p.Model.View()
	p.frames.changed()
	return v
}

// Paint has the pictures of a model drawn as soon as they are made.
func (f *Frames) Paint(m tea.Model) tea.Model { return painted{m, f} }
