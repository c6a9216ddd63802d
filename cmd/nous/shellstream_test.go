package main

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"noused/internal/daemontest"
	"noused/internal/testenv"
	"noused/internal/tui/tuitest"
)

// What a shell line says is printed as it arrives, once, also without the screen.
func TestShellLinesStreamWithoutTheScreen(t *testing.T) {
	testenv.Long(t)
	const line = "echo first; cat go; exit 3"
	for name, c := range map[string]struct {
		args  []string
		typed string
	}{
		"plain":       {[]string{"--plain"}, "!" + line + "\r"},
		"plain aside": {[]string{"--plain"}, "!!" + line + "\r"},
		"ext":         {[]string{"ext", "bash", "command=" + line}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := daemontest.Start(t, program(t, "noused"), "")
			d.Fifo("go")
			cmd := exec.Command(program(t, "nous"), c.args...)
			cmd.Dir, cmd.Env = d.Dir, d.Env()
			s := tuitest.Start(t, cmd, 100, 40, false)
			if c.typed != "" {
				s.Wait(", idle")
				s.Type(c.typed)
			}
			s.WaitFor("its first line", func(screen string) bool {
				return slices.Contains(strings.Fields(strings.ReplaceAll(screen, line, "")), "first")
			})
			if out, err := exec.Command("sh", "-c", "echo second >"+filepath.Join(d.Dir, "go")).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			s.Wait("second", "exit status 3")
			if c.typed != "" {
				s.Type("/quit\r")
			}
			s.Exit()
			if text := s.Output(); strings.Count(text, "second") != 1 {
				t.Errorf("it is printed again:\n%s", text)
			}
		})
	}
}
