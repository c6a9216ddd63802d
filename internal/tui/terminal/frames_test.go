package terminal

import (
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	tea "charm.land/bubbletea/v2"
)

// What changes is drawn at once, many changes at the rate of a fast terminal, and
// a screen on which nothing changes costs nothing.
func TestAScreenIsDrawnWhenItChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFrames()
		defer f.Stop()
		ticks := func(d time.Duration) (n int) {
			for end := time.After(d); ; {
				select {
				case <-f.ticker.C:
					n++
				case <-end:
					return n
				}
			}
		}
		if n := ticks(time.Hour); n != 0 {
			t.Errorf("%d ticks before anything was shown", n)
		}
		f.changed()
		if n := ticks(drawAfter + time.Microsecond); n != 1 {
			t.Errorf("%d ticks in the first millisecond after a change", n)
		}
		if n := ticks(time.Hour); n != 1 {
			t.Errorf("%d ticks in an idle hour, want one that makes sure", n)
		}
		n := 0
		for range 3000 {
			f.changed()
			n += ticks(time.Millisecond)
		}
		if n < 300 || n > 3*120 {
			t.Errorf("%d ticks in 3 s of changes", n)
		}
	})
}

// The library takes the ticker, and draws by it.
func TestTheScreenIsDrawnByTheFrames(t *testing.T) {
	out, in := io.Pipe()
	f := NewFrames()
	defer f.Stop()
	p := tea.NewProgram(painted{saying{}, f}, tea.WithInput(nil), tea.WithOutput(in), tea.WithWindowSize(40, 5),
		tea.WithoutSignalHandler(), tea.WithFPS(1))
	f.Drive(p)
	if reflect.ValueOf(p).Elem().FieldByName("ticker").Pointer() != reflect.ValueOf(f.ticker).Pointer() {
		t.Error("bubbletea has another ticker")
	}
	ended := make(chan error, 1)
	go func() { _, err := p.Run(); in.Close(); ended <- err }()
	var seen strings.Builder
	for _, word := range []string{"hello", "again"} {
		p.Send(saying{word})
		for buf := make([]byte, 1<<10); !strings.Contains(seen.String(), word); {
			n, err := out.Read(buf)
			if err != nil {
				t.Fatalf("%v after %q", err, seen.String())
			}
			seen.Write(buf[:n])
		}
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
