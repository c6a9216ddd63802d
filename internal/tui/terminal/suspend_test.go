package terminal

import (
	"io"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
)

// lending gives the terminal back at once, and says when it has it again.
type lending struct{ saying }

type begin struct{}

func (l lending) Init() tea.Cmd { return func() tea.Msg { return begin{} } }

func (l lending) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg.(type) {
	case begin:
		return l, Release(func() {})
	case tea.ResumeMsg:
		return lending{saying{"back again"}}, nil
	}
	return l, nil
}

// bubbletea stops its ticker when the terminal is given back, perhaps only after
// the terminal is its own again. The screen goes on all the same.
func TestAScreenGoesOnAfterItsTerminalWasLent(t *testing.T) {
	for range 3 {
		out, in := io.Pipe()
		f := NewFrames()
		program := tea.NewProgram(painted{lending{}, f}, tea.WithInput(nil), tea.WithOutput(in), tea.WithWindowSize(40, 5),
			tea.WithoutSignalHandler())
		f.Drive(program)
		ended := make(chan error, 1)
		go func() { _, err := program.Run(); in.Close(); ended <- err }()
		var seen strings.Builder
		for buf := make([]byte, 1<<10); !strings.Contains(seen.String(), "back again"); {
			n, err := out.Read(buf)
			if err != nil {
				t.Fatalf("%v after %q", err, seen.String())
			}
			seen.Write(buf[:n])
		}
		go func() { _, _ = io.Copy(io.Discard, out) }() // ends with the program
		program.Quit()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		f.Stop()
	}
}
