package keymap

import (
	"strings"

	"noused/internal/tui/pick"
)

// helpRow is a line of help: the keys of actions that belong together, or keys
// that always do the same, and in few words what they do.
type helpRow struct {
	group string
	does  []string // actions, by name
	keys  string   // fixed ones
	what  string
}

// helpRows are all keys. With those of the config left alone they fit a page of 80
// by 24 cells.
var helpRows = []helpRow{
	{"Input", []string{"send"}, "", "send; steer the run"},
	{"Input", []string{"queue"}, "", "complete; queue a follow-up"},
	{"Input", []string{"newline"}, "", "a new line"},
	{"Input", []string{"editor"}, "", "write in your editor"},
	{"Input", []string{"open-paste"}, "", "show the folded paste"},
	{"Input", []string{"paste-image"}, "", "take the clipboard's image"},
	{"Input", []string{"clear"}, "", "empty it; twice: leave"},
	{"Input", []string{"leave", "quit"}, "", "leave; leave at once"},
	{"Input", nil, "Up, Down", "earlier and queued texts"},
	{"Input", nil, "@", "the path of a file"},
	{"Input", nil, "/", "a command: the menu has all"},
	{"Input", nil, "!, !!", "shell; !! outside the chat"},
	{"Input", nil, "/skill:NAME", "send what a skill says"},
	{"Run", []string{"stop"}, "", "abort; twice: edit the last"},
	{"Run", []string{"steering-mode", "follow-up-mode"}, "", "deliver one by one or all"},
	{"Run", []string{"answer", "next-approval"}, "", "its approval; the next"},
	{"Conversation", []string{"page-up", "page-down"}, "", "scroll a page"},
	{"Conversation", []string{"line-up", "line-down"}, "", "scroll a line"},
	{"Conversation", []string{"top", "end"}, "", "beginning, end"},
	{"Conversation", nil, "Wheel", "scroll; Shift selects text"},
	{"Conversation", []string{"unfold-all", "plan"}, "", "unfold all; the plan"},
	{"Conversation", []string{"block-before", "block-after"}, "", "block before, after"},
	{"Conversation", []string{"unfold"}, "", "unfold or fold that block"},
	{"Conversation", []string{"copy"}, "", "copy that block"},
	{"Conversation", []string{"find"}, "", "find a text"},
	{"Sessions", []string{"sessions"}, "", "sessions"},
	{"Sessions", []string{"board"}, "", "the board of all sessions"},
	{"Sessions", []string{"tree", "diff"}, "", "its tree; what it changed"},
	{"Terminal", []string{"palette"}, "", "all commands and keys"},
	{"Terminal", []string{"help"}, "", "help; ? in an empty input"},
	{"Terminal", []string{"redraw"}, "", "draw the screen again"},
	{"Terminal", []string{"suspend"}, "", "suspend"},
}

// Bindings are the keys as help lists them.
func (m Map) Bindings() (all []pick.Binding) {
	for _, row := range helpRows {
		all = append(all, m.row(row)...)
	}
	return all
}

// row is one line, or, where an action of several has no key, one for each other.
func (m Map) row(row helpRow) []pick.Binding {
	if row.keys != "" {
		return []pick.Binding{{Keys: row.keys, What: row.what, Group: row.group}}
	}
	var keys []string
	var each []pick.Binding
	for _, name := range row.does {
		if shown := m.Shown(name); shown != "" {
			keys = append(keys, shown)
			each = append(each, pick.Binding{Keys: shown, What: ActionNamed(name).What, Group: row.group})
		}
	}
	if len(keys) < len(row.does) {
		return each
	}
	return []pick.Binding{{Keys: strings.Join(keys, ", "), What: row.what, Group: row.group}}
}
