// Package keymap is what the keys of the screen do: the actions, their keys by default, and
// how help lists them. It is pure; a Map is not changed after New.
package keymap

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// action is something that keys do. The keys of an action are what the user has
// written in [keys] of the config, else these.
type action struct {
	Name string // in the config
	Keys []string
	What string // as the palette shows it
}

// Actions are all that keys do, in the order of the palette.
var Actions = []action{
	{"send", []string{"enter"}, "send; while a run is active, steer it"},
	{"queue", []string{"tab"}, "take the menu's choice; while a run is active, queue as a follow-up"},
	{"newline", []string{"alt+enter", "shift+enter", "ctrl+j"}, "a new line"},
	{"editor", []string{"ctrl+g"}, "write in $VISUAL or $EDITOR, pastes whole"},
	{"open-paste", []string{"alt+p"}, "show the folded paste before the cursor"},
	{"paste-image", []string{"ctrl+v"}, "take the clipboard's image along with the next text"},
	{"clear", []string{"ctrl+c"}, "empty the input; twice: leave, a run goes on"},
	{"leave", []string{"ctrl+d"}, "leave, when the input is empty"},
	{"stop", []string{"esc"}, "close the menu; abort the run; twice: edit the last message, or rewind to one in focus"},
	{"steering-mode", []string{"f2"}, "deliver steers one at a time or all at once"},
	{"follow-up-mode", []string{"f3"}, "deliver follow-ups one at a time or all at once"},
	{"answer", []string{"f5"}, "turn to the approval that the run asks; Esc goes back to the input"},
	{"next-approval", []string{"f6"}, "the session that has the next approval"},
	{"page-up", []string{"pgup"}, "scroll a page up"},
	{"page-down", []string{"pgdown"}, "scroll a page down"},
	{"line-up", []string{"shift+up"}, "scroll a line up"},
	{"line-down", []string{"shift+down"}, "scroll a line down"},
	{"top", []string{"ctrl+home"}, "the beginning; Home, too, when the input is empty"},
	{"end", []string{"ctrl+end"}, "the end; End, too, when the input is empty"},
	{"unfold-all", []string{"ctrl+o"}, "unfold or fold all thinking and tools"},
	{"block-before", []string{"alt+up"}, "go to the block before"},
	{"block-after", []string{"alt+down"}, "go to the block after"},
	{"unfold", []string{"alt+o"}, "unfold or fold that block"},
	{"copy", []string{"alt+c"}, "copy that block"},
	{"plan", []string{"alt+t"}, "unfold or fold the plan above the input"},
	{"diff", []string{"f7"}, "what the session has changed"},
	{"find", []string{"ctrl+f"}, "find a text in the conversation"},
	{"sessions", []string{"ctrl+r"}, "sessions"},
	{"board", []string{"f4"}, "the board: all sessions of the daemon, by what they need"},
	{"tree", []string{"ctrl+t"}, "the session's tree"},
	{"palette", []string{"ctrl+p"}, "all commands and keys, to choose from"},
	{"help", []string{"f1"}, "help; ? too, when the input is empty"},
	{"redraw", []string{"ctrl+l"}, "draw the screen again"},
	{"suspend", []string{"ctrl+z"}, "suspend"},
	{"quit", []string{"ctrl+\\"}, "leave at once"},
}

func ActionNamed(name string) *action {
	for i := range Actions {
		if Actions[i].Name == name {
			return &Actions[i]
		}
	}
	return nil
}

// Map says what each key does.
type Map struct {
	Does map[string]string   // an action's name, by key
	Keys map[string][]string // of an action
}

// New gives actions the keys that the user has chosen, and the others
// those of theirs that are left.
func New(chosen map[string][]string) Map {
	m := Map{Does: map[string]string{}, Keys: map[string][]string{}}
	bind := func(name string, keys []string) {
		for _, key := range keys {
			if m.Does[key] == "" {
				m.Does[key] = name
				m.Keys[name] = append(m.Keys[name], key)
			}
		}
	}
	for name, keys := range chosen {
		bind(name, keys)
	}
	for _, a := range Actions {
		if _, ok := chosen[a.Name]; !ok {
			bind(a.Name, a.Keys)
		}
	}
	return m
}

// Shown are an action's keys as people write them: "Ctrl+O".
func (m Map) Shown(name string) string {
	shown := make([]string, len(m.Keys[name]))
	for i, key := range m.Keys[name] {
		shown[i] = showKey(key)
	}
	return strings.Join(shown, ", ")
}

func showKey(key string) string {
	parts := strings.Split(key, "+")
	if strings.HasSuffix(key, "++") {
		parts = append(parts[:len(parts)-2], "+")
	}
	for i, part := range parts {
		switch {
		case part == "pgup":
			parts[i] = "PgUp"
		case part == "pgdown":
			parts[i] = "PgDn"
		default:
			r, size := utf8.DecodeRuneInString(part)
			parts[i] = string(unicode.ToUpper(r)) + part[size:]
		}
	}
	return strings.Join(parts, "+")
}

var (
	modifiers = []string{"ctrl", "alt", "shift", "meta", "hyper", "super"} // in bubbletea's order
	keyNames  = []string{
		"enter", "tab", "backspace", "esc", "space", "up", "down", "left", "right", "insert", "delete", "pgup", "pgdown",
		"home", "end",
	}
	otherNames = map[string]string{
		"escape": "esc", "return": "enter", "pageup": "pgup", "pagedown": "pgdown",
		"del": "delete", "ins": "insert",
	}
)

// KeyNamed is a key as bubbletea names it. One that writes a character is the
// input's.
func KeyNamed(text string) (string, error) {
	rest := strings.ToLower(strings.TrimSpace(text))
	held := map[string]bool{}
	for {
		name, after, ok := strings.Cut(rest, "+")
		if !ok || after == "" || !slices.Contains(modifiers, name) {
			break
		}
		held[name], rest = true, after
	}
	if other, ok := otherNames[rest]; ok {
		rest = other
	}
	var f int
	_, err := fmt.Sscanf(rest, "f%d", &f)
	function := err == nil && f >= 1 && f <= 24 && rest == fmt.Sprintf("f%d", f)
	single := utf8.RuneCountInString(rest) == 1
	switch {
	case !function && !single && !slices.Contains(keyNames, rest):
		return "", fmt.Errorf(`%.40q is no key: want one such as "ctrl+f", "alt+enter" or "f5"`, text)
	case (single || rest == "space") && !held["ctrl"] && !held["alt"] && !held["meta"] && !held["hyper"] && !held["super"]:
		return "", fmt.Errorf("%.40q writes a character: want one with ctrl or alt", text)
	}
	key := ""
	for _, name := range modifiers {
		if held[name] {
			key += name + "+"
		}
	}
	return key + rest, nil
}
