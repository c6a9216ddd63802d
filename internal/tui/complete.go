package tui

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"noused/internal/tui/settings"
	"noused/internal/tui/slash"

	tea "charm.land/bubbletea/v2"
)

const menuRows = 6

// menu are the candidates for the word before the cursor.
type menu struct {
	query   string // what they are for: kind, line and word
	word    string
	rows    []slash.Candidate
	at      int
	moved   bool
	loose   bool // Enter sends what is written unless the user moved in the menu
	runs    bool // what was taken last runs at once
	problem string
	shut    string // the query that the user closed the menu at
}

// completed is a job's answer to a query.
type completed struct {
	query string
	rows  []slash.Candidate
	err   error
}

func (m *menu) open() bool { return len(m.rows) > 0 }

func (m *menu) close() { *m = menu{shut: m.shut} }

// dismiss closes the menu until the word changes.
func (m *menu) dismiss() { *m = menu{shut: m.query} }

func (m *menu) fill(c completed) {
	if c.query != m.query {
		return
	}
	m.rows, m.at, m.problem = c.rows, 0, ""
	if c.err != nil {
		m.problem = c.err.Error()
	}
}

// press moves in the menu.
func (m *menu) press(key string) bool {
	if !m.open() {
		return false
	}
	switch key {
	case "up", "ctrl+p":
		m.at = (m.at + len(m.rows) - 1) % len(m.rows)
	case "down", "ctrl+n":
		m.at = (m.at + 1) % len(m.rows)
	default:
		return false
	}
	m.moved = true
	return true
}

// done tells whether Enter has nothing to take from the menu.
func (m *menu) done(word string) bool {
	return m.rows[m.at].Text == word || m.loose && !m.moved
}

// takeChoice puts the chosen candidate in the place of the word.
func (m *model) takeChoice() {
	c, word := m.menu.rows[m.menu.at], m.menu.word
	m.menu.close()
	m.input.replaceWord(word, c.Text)
	m.menu.runs = c.Runs
	if !c.Runs {
		if slash.SkillOf(c.Text) != "" || slash.PromptCall().MatchString(c.Text) || strings.HasPrefix(c.Text, "/") &&
			slash.Named(c.Text[1:]) != nil {
			m.input.area.InsertString(" ")
		}
		m.complete()
	}
}

// complete opens, changes or closes the menu after the input has changed.
func (m *model) complete() {
	line, word := m.input.beforeCursor(), m.input.word()
	switch {
	case m.input.area.Line() == 0 && strings.HasPrefix(line, "/") && line == word:
		m.completeCommand(word)
	case m.input.area.Line() == 0 && strings.HasPrefix(line, "/") && !strings.HasPrefix(line, "//"):
		m.completeArgument(line, word)
	case strings.HasPrefix(word, "@") && m.opts.Host == "":
		m.completeFile("@", word)
	default:
		m.menu.close()
	}
}

// completePath is for Tab where no menu is open.
func (m *model) completePath() {
	m.menu.shut = ""
	if m.complete(); m.menu.query != "" || m.menu.open() || m.opts.Host != "" {
		return // the files that are meant may be the daemon's
	}
	if word := m.input.word(); word != "" {
		m.completeFile("", word)
	}
}

// ask begins a query unless it is the one that is answered, or was shut.
func (m *model) askMenu(query, word string, loose bool) bool {
	if query == m.menu.query || query == m.menu.shut {
		return false
	}
	m.menu = menu{query: query, word: word, loose: loose, rows: nil}
	return true
}

func (m *model) completeCommand(word string) {
	query := "command " + word
	if !m.askMenu(query, word, false) {
		return
	}
	if strings.HasPrefix(word, slash.SkillPrefix) {
		m.offerFrom(query, word, slash.SkillCandidates)
		return
	}
	if strings.Contains(word, ".") {
		m.offerFrom(query, word, slash.PromptCandidates)
		return
	}
	if strings.HasPrefix(slash.SkillPrefix, word) {
		defer func() {
			m.menu.rows = append(m.menu.rows,
				slash.Candidate{Text: slash.SkillPrefix, About: "NAME [TEXT]  send what a skill says, and the text behind it"})
		}()
	}
	for _, c := range slash.Commands {
		if strings.HasPrefix(c.Name, strings.ToLower(word[1:])) {
			m.menu.rows = append(m.menu.rows, slash.Candidate{
				Text: "/" + c.Name, About: strings.TrimSpace(c.Args + "  " + c.About), Runs: c.Args == "",
			})
		}
	}
	if len(m.menu.rows) == 0 && !strings.HasPrefix(slash.SkillPrefix, word) {
		m.offerFrom(query, word, slash.PromptCandidates) // a server's, whose name is begun
	}
}

// completeArgument offers what a command takes.
func (m *model) completeArgument(line, word string) {
	name, before, _ := strings.Cut(line[1:], " ")
	c := slash.Named(strings.ToLower(name))
	if c == nil || c.Takes == "" {
		m.menu.close()
		return
	}
	before = strings.TrimSpace(strings.TrimSuffix(before, word))
	query := c.Takes + " " + before + "\x00" + word
	switch {
	case c.Takes == "format" && before != "":
		m.completeFile("", word)
	case !m.askMenu(query, word, true):
	case c.Takes == "path":
		m.menu.query = ""
		m.completeFile("", word)
	case c.Takes == "mode" && before == "":
		m.menu.rows = slash.Starting(word, slash.Words("steering", "follow-up"))
	case c.Takes == "mode" && !strings.Contains(before, " "):
		m.menu.rows = slash.Starting(word, slash.Words("one", "all"))
	case c.Takes == "theme":
		m.menu.rows = slash.Starting(word, slash.Words(settings.Themes...))
	case c.Takes == "approvals" && before == "":
		m.menu.rows = slash.Starting(word, slash.Words(slash.ApprovalModes...))
	case c.Takes == "format":
		m.menu.rows = slash.Starting(word, slash.Words(slash.ExportFormats...))
	case c.Takes == "session" && before == "":
		m.offerFrom(query, word, slash.SessionCandidates)
	case c.Takes == "model" && before == "":
		m.offerFrom(query, word, slash.ModelCandidates)
	case c.Takes == "tool":
		m.offerFrom(query, word, slash.ToolCandidates)
	}
}

// offerFrom asks the daemon for candidates. That it cannot say is no matter:
// what is written is sent all the same.
func (m *model) offerFrom(query, word string, find func(context.Context, slash.Place) ([]slash.Candidate, error)) {
	p := m.place()
	m.jobs.start(func(ctx context.Context) tea.Msg {
		all, err := find(ctx, p)
		if err != nil {
			return completed{query: query}
		}
		return completed{query: query, rows: slash.Starting(word, all)}
	})
}

// completeFile offers paths, each behind what the word begins with.
func (m *model) completeFile(mark, word string) {
	query := "path " + word
	if !m.askMenu(query, word, false) {
		return
	}
	workdir, home := m.state.Workdir, m.opts.Getenv("HOME")
	if m.opts.Host != "" { // what is read and written here is named from here
		workdir = "."
	}
	m.jobs.start(func(ctx context.Context) tea.Msg {
		ctx, cancel := context.WithTimeout(ctx, maxSearch)
		defer cancel()
		paths, err := findFiles(ctx, workdir, home, strings.TrimPrefix(word, mark))
		rows := make([]slash.Candidate, len(paths))
		for i, path := range paths {
			rows[i] = slash.Candidate{Text: mark + path}
		}
		return completed{query, rows, err}
	})
}

// sortPaths puts folders first, each kind by name.
func sortPaths(paths []string) {
	slices.SortFunc(paths, func(a, b string) int {
		folderA, folderB := strings.HasSuffix(a, "/"), strings.HasSuffix(b, "/")
		if folderA != folderB {
			if folderA {
				return -1
			}
			return 1
		}
		return cmp.Compare(a, b)
	})
}

// appendNew appends what is not among them yet.
func appendNew(have, more []string) []string {
	for _, path := range more {
		if !slices.Contains(have, path) {
			have = append(have, path)
		}
	}
	return have
}
