package slash

import (
	"context"
	"slices"
	"strings"

	"noused/internal/protocol"
	"noused/internal/tui/cell"
)

// Candidate is one row of the menu.
type Candidate struct {
	Text  string // what stands in the place of the word
	About string
	Runs  bool // taken with Enter, the command is done at once
}

func Words(texts ...string) []Candidate {
	all := make([]Candidate, len(texts))
	for i, t := range texts {
		all[i] = Candidate{Text: t}
	}
	return all
}

// MaxCandidates is how many are offered at most.
const MaxCandidates = 100

// Starting are the candidates that begin with a word.
func Starting(word string, all []Candidate) []Candidate {
	all = slices.DeleteFunc(all, func(c Candidate) bool { return !strings.HasPrefix(c.Text, word) })
	return all[:min(len(all), MaxCandidates)]
}

func SessionCandidates(ctx context.Context, p Place) ([]Candidate, error) {
	list, err := ListSessions(ctx, p)
	all := make([]Candidate, len(list))
	for i, s := range list {
		all[i] = Candidate{Text: s.SessionID, About: cell.Line(s.Title, 200)}
	}
	return all, err
}

func ModelCandidates(ctx context.Context, p Place) ([]Candidate, error) {
	r, err := Ask(ctx, p, protocol.ListModels, protocol.ListModelsParams{SessionID: hostedID(p)})
	all := Words("default", "probe")
	for _, m := range r.Models {
		all = append(all, Candidate{Text: m.Model, About: m.Source})
	}
	return all, err
}

func ToolCandidates(ctx context.Context, p Place) ([]Candidate, error) {
	r, err := Ask(ctx, p, protocol.ListTools, protocol.ListToolsParams{Scope: p.Scope()})
	all := Words("all", "none")
	for _, t := range r.Tools {
		all = append(all, Candidate{Text: t.Name, About: cell.Line(t.Description, 200)})
	}
	return all, err
}
