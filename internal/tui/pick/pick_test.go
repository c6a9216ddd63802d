package pick

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"noused/internal/protocol"
	"noused/internal/testenv"
	"noused/internal/tui/cell"
	"noused/internal/tui/theme"
)

var update = flag.Bool("update", false, "write the golden views")

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.M{M: m}) }

// overlay is what all of them have in common.
type overlay interface {
	Update(msg tea.Msg) (Choice, bool)
	View(width, height int) string
	Cursor() (x, y int, ok bool)
	SetLook(l Look)
}

var special = map[string]rune{
	"up": tea.KeyUp, "down": tea.KeyDown, "left": tea.KeyLeft, "right": tea.KeyRight,
	"pgup": tea.KeyPgUp, "pgdown": tea.KeyPgDown, "home": tea.KeyHome, "end": tea.KeyEnd,
	"enter": tea.KeyEnter, "esc": tea.KeyEscape, "tab": tea.KeyTab, "backspace": tea.KeyBackspace, "delete": tea.KeyDelete,
	"space": tea.KeySpace,
}

// press is the message of a key as the terminal sends it.
func press(name string) tea.KeyPressMsg {
	var k tea.KeyPressMsg
	for {
		mod, rest, ok := strings.Cut(name, "+")
		if !ok || rest == "" {
			break
		}
		k.Mod |= map[string]tea.KeyMod{"ctrl": tea.ModCtrl, "alt": tea.ModAlt, "shift": tea.ModShift}[mod]
		name = rest
	}
	if code, ok := special[name]; ok {
		k.Code = code
		if code == tea.KeySpace {
			k.Text = " "
		}
		return k
	}
	k.Code = []rune(name)[0]
	if k.Mod == 0 {
		k.Text = name
	}
	return k
}

// keys presses keys that choose nothing and leave the overlay open.
func keys(t *testing.T, o overlay, names ...string) {
	t.Helper()
	for _, name := range names {
		if c, done := o.Update(press(name)); done || c.Action != "" {
			t.Fatalf("key %s: got %+v, done %v, want nothing", name, c, done)
		}
	}
}

// typed types a text, character by character.
func typed(t *testing.T, o overlay, text string) {
	t.Helper()
	for _, r := range text {
		keys(t, o, string(r))
	}
}

// chooses presses a key and wants a choice.
func chooses(t *testing.T, o overlay, key string, want Choice, wantDone bool) {
	t.Helper()
	got, done := o.Update(press(key))
	if diff := cmp.Diff(want, got); diff != "" || done != wantDone {
		t.Fatalf("key %s: done %v, want %v; choice (-want +got):\n%s", key, done, wantDone, diff)
	}
}

// golden compares a View, without styles and without the spaces at the ends of
// its lines, with the one on file.
func golden(t *testing.T, o overlay, name string, width, height int) {
	t.Helper()
	view := o.View(width, height)
	if x, y, ok := o.Cursor(); ok {
		view += fmt.Sprintf("\ncursor %d,%d", x, y)
	}
	lines := strings.Split(view, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(cell.Sanitize(lines[i]), " ")
	}
	got := strings.Join(lines, "\n") + "\n"
	file := filepath.Join("testdata", fmt.Sprintf("%s-%dx%d.txt", name, width, height))
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// sgr are the sequences of styles.
var sgr = regexp.MustCompile("\x1b\\[[0-9;:]*m")

var sizes = [][2]int{{30, 8}, {80, 24}, {120, 30}}

// nasty are texts that would break a layout, or the terminal.
func nasty() *rapid.Generator[string] {
	word := rapid.SampledFrom([]string{
		"a", "session", "日本語", "👩‍👩‍👧", "é", " ", "\n", "\t", "\x1b[31m", "\x1b]0;x\x07", "\x1b[2J", "\r", "\u202e", "\x00",
		"\xff",
		"a-very-long-word-without-a-break-in-it-anywhere", "🇩🇪", "❤️", "ß", "İ",
	})
	return rapid.Map(rapid.SliceOfN(word, 0, 8), func(w []string) string { return strings.Join(w, "") })
}

// overlays makes any overlay of any data.
func overlays(t *rapid.T, l Look) overlay {
	text := func(name string) string { return nasty().Draw(t, name) }
	items := func() []Item {
		list := make([]Item, rapid.IntRange(0, 20).Draw(t, "items"))
		for i := range list {
			list[i] = Item{
				ID: fmt.Sprint(i), Title: text("title"), Mark: text("mark"), Detail: text("detail"), Search: text("search"),
				Bad: i%3 == 0, Checked: i%2 == 0,
			}
		}
		return list
	}
	switch rapid.SampledFrom([]string{"picker", "several", "tree", "help", "changes", "rewind"}).Draw(t, "overlay") {
	case "picker":
		p := New(text("title"), items(), With(l), Current("3"), Deletes("session"), Previews())
		p.SetPreview("3", []string{text("preview"), text("preview"), text("preview")})
		return p
	case "several":
		return New(text("title"), items(), With(l), Several())
	case "help":
		b := make([]Binding, rapid.IntRange(0, 10).Draw(t, "bindings"))
		for i := range b {
			b[i] = Binding{text("keys"), text("what"), rapid.SampledFrom([]string{"", "one", "two"}).Draw(t, "group")}
		}
		return NewHelp(text("title"), b, l)
	case "changes":
		return anyChanges(t, l)
	case "rewind":
		return anyRewind(t, l)
	}
	tree := protocol.Tree{Nodes: make([]protocol.Node, rapid.IntRange(0, 30).Draw(t, "nodes"))}
	for i := range tree.Nodes {
		parent := fmt.Sprint(rapid.IntRange(-1, i).Draw(t, "parent")) // itself and none among them
		role := rapid.SampledFrom([]string{"user", "assistant", "tool", "compaction", "other\n"}).Draw(t, "role")
		tree.Nodes[i] = protocol.Node{ID: fmt.Sprint(i), ParentID: parent, Role: role, Snippet: text("snippet")}
	}
	tree.LeafID = fmt.Sprint(rapid.IntRange(-1, 30).Draw(t, "leaf"))
	return NewTree(text("title"), tree, l)
}

func syntaxOf(dark bool) *theme.Syntax {
	syntax := theme.NewSyntax(dark)
	return &syntax
}

var looks = map[string]Look{
	"no colour, no weight": {},
	"plain":                {Plain: true},
	"dark":                 {Theme: theme.New(true, true), Syntax: syntaxOf(true)},
	"light":                {Theme: theme.New(false, true), Syntax: syntaxOf(false)},
	"no colour":            {Theme: theme.New(true, false)},
}

// Whatever is shown, whatever was pressed: a View has its size, no control
// character but what styles it, and its cursor within it.
func TestEveryViewHasItsSize(t *testing.T) {
	names := []string{
		"up", "down", "pgup", "pgdown", "home", "end", "tab", "backspace", "delete", "left", "right",
		"ctrl+d", "ctrl+u", "ctrl+w", "a", "s", "t", "c", "d", "n", "p", "enter", "esc", "/", "日", " ", "k", "j", "G",
	}
	rapid.Check(t, func(t *rapid.T) {
		look := looks[rapid.SampledFrom(slices.Sorted(maps.Keys(looks))).Draw(t, "look")]
		o := overlays(t, look)
		for _, k := range rapid.SliceOfN(rapid.SampledFrom(names), 0, 8).Draw(t, "keys") {
			o.Update(press(k))
			if rapid.Bool().Draw(t, "draw between") {
				o.View(80, 24)
			}
		}
		if rapid.Bool().Draw(t, "paste") {
			o.Update(tea.PasteMsg{Content: nasty().Draw(t, "pasted")})
		}
		width, height := rapid.IntRange(0, 130).Draw(t, "width"), rapid.IntRange(0, 40).Draw(t, "height")
		view := o.View(width, height)
		if height == 0 {
			return
		}
		lines := strings.Split(view, "\n")
		if len(lines) != height {
			t.Fatalf("%d lines, want %d:\n%s", len(lines), height, view)
		}
		for i, line := range lines {
			if w := cell.Width(line); w != width {
				t.Fatalf("line %d is %d wide, want %d: %q", i, w, width, line)
			}
			if clean := cell.Sanitize(sgr.ReplaceAllString(line, "")); clean != sgr.ReplaceAllString(line, "") {
				t.Fatalf("line %d: %q would drive the terminal", i, line)
			}
			if look.Plain && sgr.MatchString(line) {
				t.Fatalf("line %d of the plain look is styled: %q", i, line)
			}
		}
		if x, y, ok := o.Cursor(); ok && (x < 0 || x >= width || y < 0 || y >= height) {
			t.Fatalf("cursor at %d,%d in %d×%d", x, y, width, height)
		}
	})
}
