package tui

import (
	"cmp"
	"context"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"noused/internal/protocol"
	"noused/internal/tui/cell"
)

const menuRows = 6

// candidate is one row of the menu.
type candidate struct {
	text  string // what stands in the place of the word
	about string
	runs  bool // taken with Enter, the command is done at once
}

// menu are the candidates for the word before the cursor.
type menu struct {
	query   string // what they are for: kind, line and word
	word    string
	rows    []candidate
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
	rows  []candidate
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
	m.rows, m.at, m.problem = c.rows, min(m.at, max(0, len(c.rows)-1)), ""
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
	return m.rows[m.at].text == word || m.loose && !m.moved
}

// takeChoice puts the chosen candidate in the place of the word.
func (m *model) takeChoice() {
	c, word, isCommand := m.menu.rows[m.menu.at], m.menu.word, strings.HasPrefix(m.menu.query, "command ")
	m.menu.close()
	m.input.replaceWord(word, c.text)
	m.menu.runs = c.runs
	if !c.runs {
		if isCommand && c.text != skillPrefix {
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
	if strings.HasPrefix(word, skillPrefix) {
		m.offerFrom(query, word, skillCandidates)
		return
	}
	if strings.Contains(word, ".") {
		m.offerFrom(query, word, promptCandidates)
		return
	}
	if strings.HasPrefix(skillPrefix, word) {
		defer func() {
			m.menu.rows = append(m.menu.rows,
				candidate{text: skillPrefix, about: "NAME [TEXT]  send what a skill says, and the text behind it"})
		}()
	}
	for _, c := range commands {
		if strings.HasPrefix(c.name, strings.ToLower(word[1:])) {
			m.menu.rows = append(m.menu.rows, candidate{
				text: "/" + c.name, about: strings.TrimSpace(c.args + "  " + c.about), runs: c.args == "",
			})
		}
	}
	own, p := slices.Clone(m.menu.rows), m.place()
	m.jobs.start(func(ctx context.Context) tea.Msg { // what the daemon has is offered behind it
		found, _ := fileCandidates(ctx, p)
		if len(own) == 0 && !strings.HasPrefix(skillPrefix, word) { // a server's, whose name is begun
			prompts, _ := promptCandidates(ctx, p)
			found = append(found, prompts...)
		}
		return completed{query: query, rows: append(own, starting(word, found)...)}
	})
}

// completeArgument offers what a command takes.
func (m *model) completeArgument(line, word string) {
	name, before, _ := strings.Cut(line[1:], " ")
	c := commandNamed(strings.ToLower(name))
	if c == nil || c.takes == "" {
		m.menu.close()
		return
	}
	before = strings.TrimSpace(strings.TrimSuffix(before, word))
	query := c.takes + " " + before + "\x00" + word
	switch {
	case c.takes == "format" && before != "":
		m.completeFile("", word)
	case !m.askMenu(query, word, true):
	case c.takes == "path":
		m.menu.query = ""
		m.completeFile("", word)
	case c.takes == "mode" && before == "":
		m.menu.rows = starting(word, words("steering", "follow-up"))
	case c.takes == "mode" && !strings.Contains(before, " "):
		m.menu.rows = starting(word, words("one", "all"))
	case c.takes == "theme":
		m.menu.rows = starting(word, words(themes...))
	case c.takes == "approvals" && before == "":
		m.menu.rows = starting(word, words(approvalModes...))
	case c.takes == "format":
		m.menu.rows = starting(word, words(exportFormats...))
	case c.takes == "session" && before == "":
		m.offerFrom(query, word, sessionCandidates)
	case c.takes == "model" && before == "":
		m.offerFrom(query, word, modelCandidates)
	case c.takes == "tool":
		m.offerFrom(query, word, toolCandidates)
	}
}

func words(texts ...string) []candidate {
	all := make([]candidate, len(texts))
	for i, t := range texts {
		all[i] = candidate{text: t}
	}
	return all
}

// starting are the candidates that begin with a word.
func starting(word string, all []candidate) []candidate {
	all = slices.DeleteFunc(all, func(c candidate) bool { return !strings.HasPrefix(c.text, word) })
	return all[:min(len(all), maxCandidates)]
}

// offerFrom asks the daemon for candidates. That it cannot say is no matter:
// what is written is sent all the same.
func (m *model) offerFrom(query, word string, find func(context.Context, place) ([]candidate, error)) {
	p := m.place()
	m.jobs.start(func(ctx context.Context) tea.Msg {
		all, err := find(ctx, p)
		if err != nil {
			return completed{query: query}
		}
		return completed{query: query, rows: starting(word, all)}
	})
}

func sessionCandidates(ctx context.Context, p place) ([]candidate, error) {
	list, err := listSessions(ctx, p)
	all := make([]candidate, len(list))
	for i, s := range list {
		all[i] = candidate{text: s.SessionID, about: cell.Line(s.Title, 200)}
	}
	return all, err
}

func modelCandidates(ctx context.Context, p place) ([]candidate, error) {
	r, err := ask(ctx, p, protocol.ListModels, protocol.ListModelsParams{})
	all := words("default", "probe")
	for _, m := range r.Models {
		all = append(all, candidate{text: m.Model, about: m.Source})
	}
	return all, err
}

func toolCandidates(ctx context.Context, p place) ([]candidate, error) {
	r, err := ask(ctx, p, protocol.ListTools, protocol.ListToolsParams{Scope: p.scope()})
	all := words("all", "none")
	for _, t := range r.Tools {
		all = append(all, candidate{text: t.Name, about: cell.Line(t.Description, 200)})
	}
	return all, err
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
		rows := make([]candidate, len(paths))
		for i, path := range paths {
			rows[i] = candidate{text: mark + path}
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
