package composer

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestPasteIsSentWholeAndNeverByItself(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := newInput()
		in.Resize(40, 5)
		var want strings.Builder
		for range rapid.IntRange(1, 4).Draw(t, "pastes") {
			text := rapid.StringMatching(`[a-zé漢\n\t ]{0,200}`).Draw(t, "text") +
				strings.Repeat("line\n", rapid.SampledFrom([]int{0, 3, 50}).Draw(t, "lines"))
			if err := in.Paste(text); err != nil {
				t.Fatal(err)
			}
			want.WriteString(text)
		}
		if got := in.Text(); got != want.String() {
			t.Errorf("got %q, want %q", got, want.String())
		}
	})
}

func TestLongPasteIsOneWord(t *testing.T) {
	in := newInput()
	in.Resize(40, 5)
	if err := in.Paste("see " + strings.Repeat("a line\r\n", 300)); err != nil {
		t.Fatal(err)
	}
	if got, want := in.area.Value(), "[paste 1: 300 lines]"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	err := in.Paste(strings.Repeat("x", MaxText))
	if err == nil || !strings.Contains(err.Error(), "too long") || !strings.Contains(err.Error(), strconv.Itoa(MaxText)) {
		t.Errorf("got %v, want the limit named", err)
	}
	if got := len(in.Text()); got != 4+300*7 {
		t.Errorf("got %d bytes after a paste that was refused", got)
	}
}

// What would drive the terminal or reorder its line is folded, and sent as it is.
func TestPasteThatMayNotReachTheTerminalIsFolded(t *testing.T) {
	for _, text := range []string{"a\x1b[2Jb", "a\u202eb", "a\ufeffb", "a\tb"} {
		in := newInput()
		in.Resize(40, 5)
		if err := in.Paste(text); err != nil {
			t.Fatal(err)
		}
		if got := in.area.Value(); got != "[paste 1: 1 line]" || in.Text() != text {
			t.Errorf("%q is shown as %q and sent as %q", text, got, in.Text())
		}
	}
}

func TestTextsComeBackBeforeWhatIsWritten(t *testing.T) {
	in := newInput()
	in.Resize(40, 5)
	long := strings.Repeat("folded\n", 100)
	_ = in.Paste(long)
	in.Before("first", "second")
	if got, want := in.Text(), "first\n\nsecond\n\n"+long; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestHistoryIsKeptAcrossProgramsAndBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nous", "history")
	one, err := LoadHistory(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"a", "two\nlines", "two\nlines", strings.Repeat("x", historyText+1)} {
		if err := one.add(text); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v, want a file for the user only", info.Mode(), err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("not JSON\n"); err != nil {
		t.Fatal(err)
	}
	f.Close()
	two, err := LoadHistory(path)
	if diff := cmp.Diff([]string{"a", "two\nlines"}, two.Texts); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for i := range 3 * historyTexts {
		if err := two.add(strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	three, err := LoadHistory(path)
	if err != nil || len(three.Texts) != historyTexts || three.lines > 2*historyTexts ||
		three.Texts[historyTexts-1] != strconv.Itoa(3*historyTexts-1) {
		t.Errorf("got %d texts of %d lines, %v", len(three.Texts), three.lines, err)
	}
}

func TestHistoryKeepsTheDraft(t *testing.T) {
	h := &history{}
	_ = h.add("old")
	_ = h.add("new")
	var got []string
	for _, step := range []func() (string, bool){
		func() (string, bool) { return h.older("draft") }, func() (string, bool) { return h.older("") },
		func() (string, bool) { return h.older("") }, h.newer, h.newer, h.newer,
	} {
		text, ok := step()
		if !ok {
			text = "-"
		}
		got = append(got, text)
	}
	if diff := cmp.Diff([]string{"new", "old", "-", "new", "draft", "-"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
