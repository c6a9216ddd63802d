package terminal

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestArrowKeysOfAWheelAreItsReports(t *testing.T) {
	up, down := "\x1b[A", "\x1b[B"
	for _, tc := range []struct{ read, want string }{
		{up, up},
		{"a", "a"},
		{up + up, wheelUp},
		{"\x1bOA\x1bOA\x1bOA", wheelUp},
		{strings.Repeat(down, 5), wheelDown + wheelDown},
		{up + down, up + down},
		{up + down + down, wheelDown},
		{up + up + "x", up + up + "x"},
		{up + up + "\x1b[", up + up + "\x1b["},
		{"\x1b[1;2A\x1b[1;2A", "\x1b[1;2A\x1b[1;2A"},
	} {
		read := []byte(tc.read)
		if got := string(read[:asWheel(read)]); got != tc.want {
			t.Errorf("%q: got %q, want %q", tc.read, got, tc.want)
		}
	}
}

func TestWhatIsNotAllArrowKeysIsReadAsItIs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.SampledFrom([]string{"\x1b[A", "\x1b[B", "\x1bOA", "x", "\x1b", "[A"}), 1, 40).Draw(t,
			"parts")
		read := []byte(strings.Join(parts, ""))
		was := bytes.Clone(read)
		n := asWheel(read)
		if n < 1 || n > len(was) {
			t.Fatalf("%q becomes %d bytes", was, n)
		}
		if rest := arrowsOnly.Replace(string(was)); rest != "" && !bytes.Equal(read[:n], was) {
			t.Errorf("%q becomes %q", was, read[:n])
		}
	})
}

var arrowsOnly = strings.NewReplacer("\x1b[A", "", "\x1bOA", "", "\x1b[B", "")

func TestTheMouseIsTheTerminalsWhereShiftDoesNotSelect(t *testing.T) {
	for env, want := range map[string]bool{
		"TERM=xterm-256color": true, "TERM=linux": false,
		"TERM_PROGRAM=Apple_Terminal": false,
	} {
		name, value, _ := strings.Cut(env, "=")
		got := Selects(func(n string) string {
			if n == name {
				return value
			}
			return ""
		})
		if got != want {
			t.Errorf("%s: got %t", env, got)
		}
	}
}
