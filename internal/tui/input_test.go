package tui

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"noused/internal/tui/slash"

	tea "charm.land/bubbletea/v2"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestCommandsAreToldFromTexts(t *testing.T) {
	for _, tc := range []struct{ text, command, rest, problem string }{
		{"hello", "", "hello", ""},
		{"//etc is a folder", "", "/etc is a folder", ""},
		{"/new a title", "new", "a title", ""},
		{"/NEW", "new", "", ""},
		{"/export  md  a file", "export", "md  a file", ""},
		{"/follow-up two\nlines", "follow-up", "two\nlines", ""},
		{"/", "", "", "no command /"},
		{"/etc/passwd is odd", "", "", "no command /etc/passwd"},
		{"/quit now", "", "", "/quit takes no argument"},
		{"/search", "", "", "want /search TEXT"},
		{"/skill:review it\nall", "", "/skill:review it\nall", ""},
		{"/skill: review", "", "", "want /skill:NAME"},
	} {
		cmd, rest, err := slash.Parse(tc.text)
		name := ""
		if cmd != nil && err == nil {
			name = cmd.Name
		}
		switch {
		case tc.problem == "" && (err != nil || name != tc.command || rest != tc.rest):
			t.Errorf("%q: got %q %q %v, want %q %q", tc.text, name, rest, err, tc.command, tc.rest)
		case tc.problem != "" && (err == nil || !strings.Contains(err.Error(), tc.problem)):
			t.Errorf("%q: got %v, want %q", tc.text, err, tc.problem)
		}
	}
}

func TestPasteIsSentWholeAndNeverByItself(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := newInput()
		in.resize(40, 5)
		var want strings.Builder
		for range rapid.IntRange(1, 4).Draw(t, "pastes") {
			text := rapid.StringMatching(`[a-zé漢\n\t ]{0,200}`).Draw(t, "text") +
				strings.Repeat("line\n", rapid.SampledFrom([]int{0, 3, 50}).Draw(t, "lines"))
			if err := in.paste(text); err != nil {
				t.Fatal(err)
			}
			want.WriteString(text)
		}
		if got := in.text(); got != want.String() {
			t.Errorf("got %q, want %q", got, want.String())
		}
	})
}

func TestLongPasteIsOneWord(t *testing.T) {
	in := newInput()
	in.resize(40, 5)
	if err := in.paste("see " + strings.Repeat("a line\r\n", 300)); err != nil {
		t.Fatal(err)
	}
	if got, want := in.area.Value(), "[paste 1: 301 lines]"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	err := in.paste(strings.Repeat("x", maxText))
	if err == nil || !strings.Contains(err.Error(), "too long") || !strings.Contains(err.Error(), strconv.Itoa(maxText)) {
		t.Errorf("got %v, want the limit named", err)
	}
	if got := len(in.text()); got != 4+300*7 {
		t.Errorf("got %d bytes after a paste that was refused", got)
	}
}

// What would drive the terminal or reorder its line is folded, and sent as it is.
func TestPasteThatMayNotReachTheTerminalIsFolded(t *testing.T) {
	for _, text := range []string{"a\x1b[2Jb", "a\u202eb", "a\ufeffb", "a\tb"} {
		in := newInput()
		in.resize(40, 5)
		if err := in.paste(text); err != nil {
			t.Fatal(err)
		}
		if got := in.area.Value(); got != "[paste 1: 1 line]" || in.text() != text {
			t.Errorf("%q is shown as %q and sent as %q", text, got, in.text())
		}
	}
}

func TestTextsComeBackBeforeWhatIsWritten(t *testing.T) {
	in := newInput()
	in.resize(40, 5)
	long := strings.Repeat("folded\n", 100)
	_ = in.paste(long)
	in.before("first", "second")
	if got, want := in.text(), "first\n\nsecond\n\n"+long; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestHistoryIsKeptAcrossProgramsAndBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nous", "history")
	one, err := loadHistory(path)
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
	two, err := loadHistory(path)
	if diff := cmp.Diff([]string{"a", "two\nlines"}, two.texts); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for i := range 3 * historyTexts {
		if err := two.add(strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	three, err := loadHistory(path)
	if err != nil || len(three.texts) != historyTexts || three.lines > 2*historyTexts ||
		three.texts[historyTexts-1] != strconv.Itoa(3*historyTexts-1) {
		t.Errorf("got %d texts of %d lines, %v", len(three.texts), three.lines, err)
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

func TestPathsAreThoseOfTheWorkdir(t *testing.T) {
	dir, home := t.TempDir(), t.TempDir()
	for _, path := range []string{"src/deep/Lantern.go", "src/main.go", "README.md", ".git/HEAD", ".hidden"} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(home, "papers"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		typed string
		want  []string
	}{
		{"", []string{"src/", "README.md"}},
		{"re", []string{"README.md"}},
		{"src/", []string{"src/deep/", "src/main.go"}},
		{"lant", []string{"src/deep/Lantern.go"}},
		{".", []string{".hidden"}},
		{"~/p", []string{"~/papers/"}},
		{dir + "/s", []string{dir + "/src/"}},
		{"nowhere", []string{}},
	} {
		got, err := findFiles(context.Background(), dir, home, tc.typed)
		if diff := cmp.Diff(tc.want, append([]string{}, got...)); err != nil || diff != "" {
			t.Errorf("%q: %v (-want +got):\n%s", tc.typed, err, diff)
		}
	}
	if _, err := findFiles(context.Background(), "", home, "re"); !errors.Is(err, errNoWorkdir) {
		t.Errorf("got %v, want errNoWorkdir where the core does not say", err)
	}
	if _, err := findFiles(context.Background(), dir, home, "gone/x"); err == nil ||
		!strings.Contains(err.Error(), "gone") {
		t.Errorf("got %v, want an error that names the folder", err)
	}
}

func TestMenuCompletesCommandsAndTheirArguments(t *testing.T) {
	h := useDaemon(t, startNoused(t, "").Socket)
	h.write("/mo")
	h.sees("/model", "/mode ", "/mouse")
	h.press("down", "tab")
	if got := h.input.text(); got != "/mode " {
		t.Fatalf("got %q, want the second candidate and a space", got)
	}
	h.sees("steering")
	h.press("tab")
	h.write(" a")
	h.press("tab", "enter")
	h.sees("steering: all")
	h.write("/tools ba")
	h.until("a tool offered", h.menu.open)
	h.press("tab")
	if got := h.input.text(); got != "/tools bash" {
		t.Errorf("got %q", got)
	}
	h.press("ctrl+c")
	h.write("/he")
	h.press("esc")
	if h.menu.open() || h.input.text() != "/he" {
		t.Errorf("Esc left the menu open, or the text %q", h.input.text())
	}
}

func TestUpAndDownAreHistoryAtTheEdgesOnly(t *testing.T) {
	h := useDaemon(t, startNoused(t, "").Socket)
	h.write("sent")
	h.press("enter")
	h.write("a")
	h.press("alt+enter")
	h.write("b")
	h.press("up")
	if got := h.input.text(); got != "a\nb" {
		t.Fatalf("got %q: Up within a text is no history", got)
	}
	h.press("up")
	if got := h.input.text(); got != "sent" {
		t.Fatalf("got %q, want what was sent", got)
	}
	h.press("down")
	if got := h.input.text(); got != "a\nb" {
		t.Errorf("got %q, want the draft", got)
	}
}

func TestPasteOfManyLinesIsNotSent(t *testing.T) {
	h := useDaemon(t, startNoused(t, "").Socket)
	h.send(tea.PasteMsg{Content: "/quit\n/quit\n"})
	if len(h.unsent) > 0 || h.quit() || h.input.text() != "/quit\n/quit\n" {
		t.Errorf("got %q in the input, want the paste", h.input.text())
	}
}
