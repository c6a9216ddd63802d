package keymap

import (
	"slices"
	"strings"
	"testing"

	"noused/internal/tui/cell"
	"noused/internal/tui/pick"
)

// helpView is the help of a keymap.
func helpView(chosen map[string][]string, width, height int) string {
	h := pick.NewHelp("nous", New(chosen).Bindings(), pick.Look{})
	return cell.Sanitize(h.View(width, height))
}

// All keys are on one page of a terminal of 80 by 24, whose last two lines are
// those of the status, and no line of it is cut.
func TestHelpIsOnePage(t *testing.T) {
	view := helpView(nil, 80, 22)
	if strings.Contains(view, "1-") || strings.Contains(view, "…") {
		t.Errorf("it is more than a page:\n%s", view)
	}
	for _, row := range New(nil).Bindings() {
		for _, part := range []string{row.Keys, row.What, row.Group} {
			if !strings.Contains(view, part) {
				t.Errorf("there is no %q in\n%s", part, view)
			}
		}
	}
	if narrow := helpView(nil, 40, 20); !strings.Contains(narrow, "1-17 of ") || strings.Contains(narrow, "…") {
		t.Errorf("what is narrow does not say that it scrolls:\n%s", narrow)
	}
}

// Each action has one line of help.
func TestHelpHasEveryAction(t *testing.T) {
	var does []string
	for _, row := range helpRows {
		does = append(does, row.does...)
		for _, name := range row.does {
			if ActionNamed(name) == nil {
				t.Errorf("there is no action %q", name)
			}
		}
	}
	for _, a := range Actions {
		if n := len(slices.DeleteFunc(slices.Clone(does), func(name string) bool { return name != a.Name })); n != 1 {
			t.Errorf("%s is in help %d times", a.Name, n)
		}
	}
}

func TestHelpHasTheKeysOfTheConfig(t *testing.T) {
	for name, c := range map[string]struct {
		chosen    map[string][]string
		has, none []string
	}{
		"another key": {map[string][]string{"find": {"alt+f"}}, []string{"Alt+F  "}, []string{"Ctrl+F"}},
		"one of two": {
			map[string][]string{"page-up": {"ctrl+u"}},
			[]string{"Ctrl+U, PgDn  scroll a page"},
			[]string{"PgUp"},
		},
		"no key": {map[string][]string{"tree": {}}, nil, []string{"Ctrl+T", "tree"}},
		"none for one of two": {
			map[string][]string{"page-up": {}},
			[]string{"PgDn", "scroll a page down"},
			[]string{"PgUp", "scroll a page up"},
		},
		"taken from another": {map[string][]string{"help": {"ctrl+t"}}, []string{"Ctrl+T"}, []string{"F1", "tree"}},
		"many": {
			map[string][]string{"send": {"enter", "ctrl+s", "ctrl+x", "alt+x", "alt+s"}},
			[]string{"Enter, Ctrl+S, Ctrl+X, Alt+X, Alt+S"},
			nil,
		},
	} {
		view := helpView(c.chosen, 80, 30)
		for _, want := range c.has {
			if !strings.Contains(view, want) {
				t.Errorf("%s: there is no %q in\n%s", name, want, view)
			}
		}
		for _, not := range c.none {
			if strings.Contains(view, not) {
				t.Errorf("%s: there is %q in\n%s", name, not, view)
			}
		}
	}
}
