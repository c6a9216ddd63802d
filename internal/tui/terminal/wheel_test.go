package terminal

import (
	"bytes"
	"os"
	"strings"
	"sync/atomic"
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

// However a terminal's sequences are cut as they are read, each comes whole, and keys come at
// once.
func TestSequencesAreReadWhole(t *testing.T) {
	many := strings.Repeat("\x1b[<64;100;25M", 100)
	for _, tc := range []struct {
		written []string
		want    []string
	}{
		{[]string{"\x1b[<64;", "100;25M"}, []string{"", "\x1b[<64;100;25M"}},
		{[]string{"ab\x1b[200", "~text"}, []string{"ab", "\x1b[200~text"}},
		{[]string{"\x1b", "[", "\x1b[", "x"}, []string{"\x1b", "[", "\x1b[", "x"}},
		{[]string{"\x1b[1;5A", "\x1b[?1;2c"}, []string{"\x1b[1;5A", "\x1b[?1;2c"}},
		{[]string{many + "\x1b", "[<0;1;1M"}, []string{many, "\x1b[<0;1;1M"}},
		{[]string{"\x1b[" + strings.Repeat("1", 100)}, []string{"\x1b[" + strings.Repeat("1", 100)}},
	} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		in := Input(r, new(atomic.Bool))
		for i, text := range tc.written {
			if _, err := w.WriteString(text); err != nil {
				t.Fatal(err)
			}
			p := make([]byte, 4096)
			n, err := in.Read(p)
			if got := string(p[:n]); err != nil || got != tc.want[i] {
				t.Errorf("%q: the read of %q came to %q, %v; want %q", tc.written, text, got, err, tc.want[i])
			}
		}
		_, _ = r.Close(), w.Close()
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
