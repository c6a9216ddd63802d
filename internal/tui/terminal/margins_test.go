package terminal

import (
	"os"
	"testing"
)

// What bubbletea clears is cleared on a screen that scrolls as a whole; all else
// is written as it is. The writer is told the length of what it wrote.
func TestMarginsOfAClearedScreen(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"\x1b[?2026h\x1b[H\x1b[2Jtext": "\x1b[?2026h\x1b[r\x1b[H\x1b[2Jtext",
		"\x1b[1;20r\x1b[Htext":         "\x1b[1;20r\x1b[Htext",
		"":                             "",
	} {
		f, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if n, err := (margins{f}).Write([]byte(in)); n != len(in) || err != nil {
			t.Errorf("%q: wrote %d of %d, %v", in, n, len(in), err)
		}
		if got, _ := os.ReadFile(f.Name()); string(got) != want {
			t.Errorf("%q: wrote %q, want %q", in, got, want)
		}
	}
}
