package tuitest

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// A program that ends before its time is told with its number, its end, how long it lived and what it wrote.
func TestAProgramThatEndsIsTold(t *testing.T) {
	for script, want := range map[string]string{
		"echo oops >&2; exit 3": `exit status 3; of the 6 bytes that it wrote the last are "oops\r\n"`,
		"kill -9 $$":            `signal: killed; of the 0 bytes that it wrote the last are ""`,
	} {
		term := Start(t, exec.Command("sh", "-c", script), 40, 5, false)
		term.Exit()
		pid := fmt.Sprintf("process %d, ended after ", term.PID())
		if got := term.end(); !strings.Contains(got, want) || !strings.Contains(got, pid) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
