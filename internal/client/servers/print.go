package servers

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"

	"noused/internal/client/plain"
	"noused/internal/mcpfile"
)

// Print lists the servers, notes what is worth knowing, and complains of files.
func (v View) Print(p *plain.Printer) {
	rows := make([][]string, len(v.Servers))
	for i, s := range v.Servers {
		if p.JSON {
			_ = p.Encoded(s)
		}
		rows[i] = []string{
			s.Name, s.State, strconv.Itoa(s.Tools), cmp.Or(s.Workdir, "-"),
			plain.OneLine(cmp.Or(s.Message, s.Runs), plain.AboutServer),
		}
	}
	switch {
	case p.JSON:
	case len(rows) > 0:
		p.Table([]string{"SERVER", "STATE", "TOOLS", "FOLDER", "ABOUT"}, rows)
	case len(v.Problems) == 0:
		p.Notef("there is none; nous mcp add and nous mcp import add some")
	}
	for _, note := range v.Notes {
		p.Notef("%s", note)
	}
	for _, problem := range v.Problems {
		p.Complain(problem)
	}
}

// Print shows all that is known of a server, but for what may be secret.
func (s Row) Print(p *plain.Printer) error {
	if p.JSON {
		return p.Encoded(s)
	}
	pairs := [][2]string{
		{"server", s.Name},
		{"state", strings.TrimSuffix(s.State+": "+plain.OneLine(s.Message, plain.AboutServer), ": ")},
	}
	for _, p := range [][2]string{
		{"runs", plain.OneLine(s.Runs, plain.AboutServer)},
		{"file", strings.TrimSuffix(fmt.Sprintf("%s:%d", s.File, s.Line), ":0")},
		{"folder", s.Workdir},
		{"starts in", s.Entry.Cwd},
		{"variables", keysOf(s.Entry.Env)},
		{"headers", keysOf(s.Entry.Headers)},
		{"timeout", s.Entry.Timeout},
		{"trust", s.Entry.Trust},
		{"only", strings.Join(s.Entry.Tools, ", ")},
		{"sandbox", s.Entry.Sandbox},
		{"tools", strings.Join(s.Named, ", ")},
		{"left out", plain.OneLine(strings.Join(s.LeftOut, "; "), 4*plain.AboutServer)},
		{"prompts", s.promptWords()},
	} {
		if p[1] != "" {
			pairs = append(pairs, p)
		}
	}
	p.Pairs(pairs)
	return nil
}

// PrintTaken says whether a server of another program's file was taken.
func PrintTaken(p *plain.Printer, one mcpfile.Taken) {
	why := ""
	if one.Err != nil {
		why = one.Err.Error()
	}
	if p.JSON {
		line, err := json.Marshal(struct {
			From  string   `json:"from"`
			Name  string   `json:"name"`
			Taken bool     `json:"taken"`
			Why   string   `json:"why,omitzero"`
			Notes []string `json:"notes,omitzero"`
		}{one.From, one.Server.Name, one.Err == nil, why, one.Notes})
		if err == nil {
			p.JSONLine(line)
		}
		return
	}
	if one.Err != nil {
		p.Println("not taken " + plain.OneLine(one.From, 70) + ": " + plain.OneLine(why, plain.AboutServer))
		return
	}
	p.Println("taken     " + one.Server.Name + ": " + plain.OneLine(Runs(one.Server), plain.AboutServer))
	for _, note := range one.Notes {
		p.Println("          " + plain.OneLine(note, plain.AboutServer))
	}
}

// keysOf are the keys of pairs, sorted and in one line.
func keysOf(pairs map[string]string) string {
	return strings.Join(slices.Sorted(maps.Keys(pairs)), ", ")
}
