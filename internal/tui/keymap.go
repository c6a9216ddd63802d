package tui

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"noused/internal/tui/pick"
)

// action is something that keys do. The keys of an action are what the user has
// written in [keys] of the config, else these.
type action struct {
	name        string // in the config
	keys        []string
	what, group string // as help shows them
}

// actions are all that keys do, in the order of help.
var actions = []action{
	{"send", []string{"enter"}, "send; while a run is active, steer it", "Input"},
	{"queue", []string{"tab"}, "take the menu's choice; while a run is active, queue as a follow-up", "Input"},
	{"newline", []string{"alt+enter", "shift+enter", "ctrl+j"}, "a new line", "Input"},
	{"editor", []string{"ctrl+g"}, "write in $VISUAL or $EDITOR, pastes whole", "Input"},
	{"open-paste", []string{"alt+p"}, "show the folded paste before the cursor", "Input"},
	{"paste-image", []string{"ctrl+v"}, "take the clipboard's image along with the next text", "Input"},
	{"clear", []string{"ctrl+c"}, "empty the input; twice: leave, a run goes on", "Input"},
	{"leave", []string{"ctrl+d"}, "leave, when the input is empty", "Input"},
	{"stop", []string{"esc"}, "close the menu; abort the run, queued texts come back; twice: edit the last message", "Run"},
	{"steering-mode", []string{"f2"}, "deliver steers one at a time or all at once", "Run"},
	{"follow-up-mode", []string{"f3"}, "deliver follow-ups one at a time or all at once", "Run"},
	{"answer", []string{"f5"}, "turn to the question that the run asks; Esc goes back to the input", "Run"},
	{"next-question", []string{"f6"}, "the session that has the next question", "Run"},
	{"page-up", []string{"pgup"}, "scroll a page up", "Conversation"},
	{"page-down", []string{"pgdown"}, "scroll a page down", "Conversation"},
	{"line-up", []string{"shift+up"}, "scroll a line up", "Conversation"},
	{"line-down", []string{"shift+down"}, "scroll a line down", "Conversation"},
	{"top", []string{"ctrl+home"}, "the beginning; Home, too, when the input is empty", "Conversation"},
	{"end", []string{"ctrl+end"}, "the end; End, too, when the input is empty", "Conversation"},
	{"unfold-all", []string{"ctrl+o"}, "unfold or fold all thinking and tools", "Conversation"},
	{"block-before", []string{"alt+up"}, "go to the block before", "Conversation"},
	{"block-after", []string{"alt+down"}, "go to the block after", "Conversation"},
	{"unfold", []string{"alt+o"}, "unfold or fold that block", "Conversation"},
	{"copy", []string{"alt+c"}, "copy that block", "Conversation"},
	{"find", []string{"ctrl+f"}, "find a text in the conversation", "Conversation"},
	{"sessions", []string{"ctrl+r"}, "sessions", "Sessions"},
	{"board", []string{"f4"}, "the board: all sessions of the daemon, by what they need", "Sessions"},
	{"tree", []string{"ctrl+t"}, "the session's tree", "Sessions"},
	{"palette", []string{"ctrl+p"}, "all commands and keys, to choose from", "Terminal"},
	{"help", []string{"f1"}, "help; ? too, when the input is empty", "Terminal"},
	{"redraw", []string{"ctrl+l"}, "draw the screen again", "Terminal"},
	{"suspend", []string{"ctrl+z"}, "suspend", "Terminal"},
	{"quit", []string{"ctrl+\\"}, "leave at once", "Terminal"},
}

// fixed are keys that always do the same.
var fixed = []pick.Binding{
	{Keys: "Up, Down", What: "move; in the first and last row, bring back earlier inputs, or a queued text", Group: "Input"},
	{Keys: "@", What: "the path of a file", Group: "Input"},
	{Keys: "/", What: "a command; // sends a text that begins with a slash", Group: "Input"},
	{Keys: "!", What: "a line for the shell, whose output joins the conversation; !! keeps it out; a space before ! sends a text", Group: "Input"},
	{Keys: "/skill:NAME", What: "send what a skill says, and the text behind it", Group: "Input"},
	{Keys: "Wheel", What: "scroll; Shift selects text, /mouse leaves the mouse to the terminal", Group: "Conversation"},
}

func actionNamed(name string) *action {
	for i := range actions {
		if actions[i].name == name {
			return &actions[i]
		}
	}
	return nil
}

// keymap says what each key does.
type keymap struct {
	does map[string]string   // an action's name, by key
	keys map[string][]string // of an action
}

// newKeymap gives actions the keys that the user has chosen, and the others
// those of theirs that are left.
func newKeymap(chosen map[string][]string) keymap {
	m := keymap{does: map[string]string{}, keys: map[string][]string{}}
	bind := func(name string, keys []string) {
		for _, key := range keys {
			if m.does[key] == "" {
				m.does[key] = name
				m.keys[name] = append(m.keys[name], key)
			}
		}
	}
	for name, keys := range chosen {
		bind(name, keys)
	}
	for _, a := range actions {
		if _, ok := chosen[a.name]; !ok {
			bind(a.name, a.keys)
		}
	}
	return m
}

// shown are an action's keys as people write them: "Ctrl+O".
func (m keymap) shown(name string) string {
	shown := make([]string, len(m.keys[name]))
	for i, key := range m.keys[name] {
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

// bindings are the keys as help lists them.
func (m keymap) bindings() []pick.Binding {
	var all []pick.Binding
	for _, a := range actions {
		if keys := m.shown(a.name); keys != "" {
			all = append(all, pick.Binding{Keys: keys, What: a.what, Group: a.group})
		}
	}
	return append(all, fixed...)
}

var (
	modifiers = []string{"ctrl", "alt", "shift", "meta", "hyper", "super"} // in bubbletea's order
	keyNames  = []string{
		"enter", "tab", "backspace", "esc", "space", "up", "down", "left", "right", "insert", "delete", "pgup", "pgdown", "home", "end",
	}
	otherNames = map[string]string{"escape": "esc", "return": "enter", "pageup": "pgup", "pagedown": "pgdown", "del": "delete", "ins": "insert"}
)

// keyNamed is a key as bubbletea names it. One that writes a character is the
// input's.
func keyNamed(text string) (string, error) {
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
