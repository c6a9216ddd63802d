package composer

import (
	"context"
	"slices"
	"strings"

	"noused/internal/client/actions"
	"noused/internal/tui/settings"
	"noused/internal/tui/slash"

	tea "charm.land/bubbletea/v2"
)

// TakeChoice puts the chosen candidate in the place of the word.
func (w *Composer) TakeChoice() {
	c, word, isCommand := w.Menu.Rows[w.Menu.at], w.Menu.word, strings.HasPrefix(w.Menu.Query, "command ")
	w.Menu.Close()
	w.replaceWord(word, c.Text)
	w.Menu.Runs = c.Runs
	if !c.Runs {
		if isCommand && c.Text != slash.SkillPrefix {
			w.area.InsertString(" ")
		}
		if strings.HasPrefix(c.Text, "@") && !strings.HasSuffix(c.Text, "/") {
			w.area.InsertString(" ")
		}
		w.Complete()
	}
}

// Complete opens, changes or closes the menu after the input has changed.
func (w *Composer) Complete() {
	line, word := w.beforeCursor(), w.Word()
	switch {
	case w.area.Line() == 0 && strings.HasPrefix(line, "/") && line == word:
		w.completeCommand(word)
	case w.area.Line() == 0 && strings.HasPrefix(line, "/") && !strings.HasPrefix(line, "//"):
		w.completeArgument(line, word)
	case strings.HasPrefix(word, "@") && w.place().Site.Host == "":
		w.completeFile("@", word)
	default:
		w.Menu.Close()
	}
}

// CompletePath is for Tab where no menu is open.
func (w *Composer) CompletePath() {
	w.Menu.shut = ""
	if w.Complete(); w.Menu.Query != "" || w.Menu.Open() || w.place().Site.Host != "" {
		return // the files that are meant may be the daemon's
	}
	if word := w.Word(); word != "" {
		w.completeFile("", word)
	}
}

// ask begins a query unless it is the one that is answered, or was shut.
func (w *Composer) askMenu(query, word string, loose bool) bool {
	if query == w.Menu.Query || query == w.Menu.shut {
		return false
	}
	w.Menu = menu{Query: query, word: word, loose: loose, Rows: nil}
	return true
}

func (w *Composer) completeCommand(word string) {
	query := "command " + word
	if !w.askMenu(query, word, false) {
		return
	}
	if strings.HasPrefix(word, slash.SkillPrefix) {
		w.offerFrom(query, word, slash.SkillCandidates)
		return
	}
	if strings.Contains(word, ".") {
		w.offerFrom(query, word, slash.PromptCandidates)
		return
	}
	for _, c := range slash.Commands {
		if strings.HasPrefix(c.Name, strings.ToLower(word[1:])) {
			w.Menu.Rows = append(w.Menu.Rows, slash.Candidate{
				Text: "/" + c.Name, About: strings.TrimSpace(c.Args + "  " + c.About), Runs: c.Args == "",
			})
		}
	}
	if strings.HasPrefix(slash.SkillPrefix, word) {
		w.Menu.Rows = append(w.Menu.Rows, slash.Candidate{
			Text: slash.SkillPrefix, About: "NAME [TEXT]  send what a skill says, and the text behind it",
		})
	}
	own, p := slices.Clone(w.Menu.Rows), w.place()
	w.start(func(ctx context.Context) tea.Msg { // what the daemon has is offered behind it
		found, _ := slash.CommandCandidates(ctx, p)
		if len(own) == 0 { // a server's, whose name is begun
			prompts, _ := slash.PromptCandidates(ctx, p)
			found = append(found, prompts...)
		}
		return Completed{query: query, rows: append(own, slash.Starting(word, found)...)}
	})
}

// completeArgument offers what a command takes.
func (w *Composer) completeArgument(line, word string) {
	name, before, _ := strings.Cut(line[1:], " ")
	c := slash.Named(strings.ToLower(name))
	if c == nil || c.Takes == "" {
		w.Menu.Close()
		return
	}
	before = strings.TrimSpace(strings.TrimSuffix(before, word))
	query := c.Takes + " " + before + "\x00" + word
	switch {
	case c.Takes == "format" && before != "":
		w.completeFile("", word)
	case !w.askMenu(query, word, true):
	case c.Takes == "path":
		w.Menu.Query = ""
		w.completeFile("", word)
	case c.Takes == "mode" && before == "":
		w.Menu.Rows = slash.Starting(word, slash.Words("steering", "follow-up"))
	case c.Takes == "mode" && !strings.Contains(before, " "):
		w.Menu.Rows = slash.Starting(word, slash.Words("one", "all"))
	case c.Takes == "theme":
		w.Menu.Rows = slash.Starting(word, slash.Words(settings.Themes...))
	case c.Takes == "approvals" && before == "":
		w.Menu.Rows = slash.Starting(word, slash.Words(actions.ApprovalModes...))
	case c.Takes == "format":
		w.Menu.Rows = slash.Starting(word, slash.Words(slash.ExportFormats...))
	case c.Takes == "session" && before == "":
		w.offerFrom(query, word, slash.SessionCandidates)
	case c.Takes == "model" && before == "":
		w.offerFrom(query, word, slash.ModelCandidates)
	case c.Takes == "agent" && before == "":
		w.offerFrom(query, word, slash.AgentCandidates)
	case c.Takes == "named" && before == "":
		w.offerFrom(query, word, slash.NamedCandidates)
	case c.Takes == "option" && !strings.Contains(before, " "):
		w.Menu.Rows = slash.Starting(word, slash.OptionCandidates(w.place(), before))
	case c.Takes == "tool":
		w.offerFrom(query, word, slash.ToolCandidates)
	}
}

// offerFrom asks the daemon for candidates. That it cannot say is no matter:
// what is written is sent all the same.
func (w *Composer) offerFrom(query, word string, find func(context.Context, slash.Place) ([]slash.Candidate, error)) {
	p := w.place()
	w.start(func(ctx context.Context) tea.Msg {
		all, err := find(ctx, p)
		if err != nil {
			return Completed{query: query}
		}
		return Completed{query: query, rows: slash.Starting(word, all)}
	})
}

// completeFile offers paths, each behind what the word begins with.
func (w *Composer) completeFile(mark, word string) {
	query := "path " + word
	if !w.askMenu(query, word, false) {
		return
	}
	at := w.place()
	workdir, home := at.State.Workdir, at.Getenv("HOME")
	if at.Site.Host != "" { // what is read and written here is named from here
		workdir = "."
	}
	w.start(func(ctx context.Context) tea.Msg {
		ctx, cancel := context.WithTimeout(ctx, maxSearch)
		defer cancel()
		paths, err := findFiles(ctx, workdir, home, strings.TrimPrefix(word, mark))
		rows := make([]slash.Candidate, len(paths))
		for i, path := range paths {
			rows[i] = slash.Candidate{Text: mark + path}
		}
		return Completed{query, rows, err}
	})
}
