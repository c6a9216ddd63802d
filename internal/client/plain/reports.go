package plain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"noused/internal/format"
	"noused/internal/protocol"
)

// AboutServer is how much is said of a server in a list: what is wrong is the end of a long line.
const AboutServer = 400

// Models lists models; probed: their servers were asked.
func (p *Printer) Models(r protocol.Models, probed bool) {
	rows := make([][]string, len(r.Models))
	for i, m := range r.Models {
		mark, name, reachable := "", m.Model, "-"
		if m.Default {
			mark = "*"
		}
		if m.Name == "" {
			name += "/…"
		}
		if m.Reachable != nil {
			reachable = YesNo(*m.Reachable)
		}
		rows[i] = []string{
			mark, OneLine(name, LineWidth), m.Source, reachable, OneLine(m.BaseURL, LineWidth),
			OneLine(m.Problem, 2*LineWidth),
		}
	}
	p.Table([]string{"", "MODEL", "SOURCE", "REACHABLE", "SERVER", "PROBLEM"}, rows)
	if r.Truncated {
		p.Notef("a server has more models than are listed")
	}
	p.Notef("to use one: nous set-model MODEL --base-url SERVER, or for every session [model] in the daemon's config.toml")
	if !probed {
		p.Notef("nous models --probe asks the servers")
	}
}

// Matches lists what a search has found.
func (p *Printer) Matches(r protocol.SearchResults) {
	if len(r.Matches) == 0 {
		return
	}
	rows := make([][]string, len(r.Matches))
	for i, m := range r.Matches {
		rows[i] = []string{
			m.SessionID, m.CreatedAt.Local().Format(time.DateTime), m.Role, format.Fit(Title(m.Title), 30),
			format.Unmarked(OneLine(m.Snippet, 160)),
		}
	}
	p.Table([]string{"SESSION", "TIME", "ROLE", "TITLE", "TEXT"}, rows)
	if r.Truncated {
		p.Notef("there are more; --limit says how many to print")
	}
}

// Usage lists what sessions have used.
func (p *Printer) Usage(r protocol.UsageReport) {
	header := map[protocol.UsageBy][]string{
		protocol.ByDay: {"DAY"}, protocol.ByModel: {"MODEL"}, protocol.BySession: {"SESSION"}, protocol.ByFolder: {"FOLDER"},
	}[r.By]
	rows := [][]string{append(header, "INPUT", "CACHED", "OUTPUT", "COST", "")}
	for _, row := range r.Rows {
		name := cmp.Or(row.Day, row.Model, row.SessionID, row.Workdir)
		rows = append(rows, append([]string{OneLine(name, 4096)},
			append(UsageCells(row.UsageSum), OneLine(row.Title, 60))...))
	}
	if len(r.Rows) != 1 {
		rows = append(rows, append([]string{"total"}, append(UsageCells(r.Total), "")...))
	}
	for i, line := range Table(AlignRight(rows, 1, 5)) {
		look := ""
		if i == 0 {
			look = Dim
		}
		p.Spans(Span{Text: line, Look: look})
	}
	if r.Truncated {
		p.Notef("there are more rows; the total has them, too")
	}
	for _, sentence := range r.LeftOut {
		p.Notef("%s", sentence)
	}
}

// Pruned lists what was removed, or is to be; thenRestart says how a changed configuration is read.
func (p *Printer) Pruned(r protocol.Pruned, thenRestart string) {
	if r.Limits == (protocol.PruneLimits{}) {
		p.Notef("nothing is ever removed, as the daemon was started without a [retention] in %s, which it reads only when "+
			"it starts; for example:\n\n[retention]\nsessions_older = \"90d\"\ntool_output_larger = \"1GiB\"\n\n"+
			"Write that into it, unless it has one by now, and then%s", r.Config, thenRestart)
		return
	}
	rows := make([][]string, 0, len(r.Sessions)+len(r.ToolOutput)+len(r.Audit))
	for _, s := range r.Sessions {
		rows = append(rows, []string{
			s.SessionID, Days(time.Since(s.UsedAt)), format.Size(s.Size), OneLine(s.Title, 60),
		})
	}
	for _, f := range append(r.ToolOutput, r.Audit...) {
		rows = append(rows, []string{f.Name, Days(time.Since(f.ChangedAt)), format.Size(f.Size), ""})
	}
	if len(rows) > 0 {
		p.Table([]string{"WHAT", "AGE", "SIZE", "TITLE"}, rows)
	}
	if r.Truncated {
		p.Println("…")
	}
	word := "removed"
	if r.DryRun {
		word = "to be removed"
	}
	sum := func(s protocol.PrunedSum, thing, of string) string {
		return fmt.Sprintf("%s%s (%s)", format.Count(s.Count, thing), of, format.Size(s.Bytes))
	}
	p.Println(word + ": " + sum(r.Sums.Sessions, "session", "") + ", " +
		sum(r.Sums.ToolOutput, "file", " of tool output") + ", " +
		sum(r.Sums.Audit, "file", " of the audit journal"))
}

// Servers reports MCP servers, where there are any.
func (p *Printer) Servers(servers []protocol.ServerInfo) {
	if len(servers) == 0 {
		return
	}
	rows := make([][]string, len(servers))
	for i, s := range servers {
		rows[i] = []string{
			s.Name, s.State, strconv.Itoa(s.Tools), cmp.Or(s.Workdir, "-"), OneLine(s.Message, AboutServer),
		}
	}
	p.Println("")
	p.Table([]string{"SERVER", "STATE", "TOOLS", "FOLDER", "ABOUT"}, rows)
}

// Reloaded lists what has changed, and complains of what is wrong.
func (p *Printer) Reloaded(r protocol.ToolsReloaded) {
	for _, list := range []struct {
		what  string
		names []string
	}{{"added", r.Added}, {"changed", r.Changed}, {"removed", r.Removed}} {
		for _, name := range list.names {
			p.Println(list.what + " " + name)
		}
	}
	if len(r.Added)+len(r.Changed)+len(r.Removed) == 0 {
		p.Notef("no tool has changed")
	}
	for _, problem := range r.Errors {
		p.Complain(problem)
	}
}

// Extension prints what an operation has returned.
func (p *Printer) Extension(r protocol.ExtensionResult) {
	switch {
	case r.OK && r.Result != "":
		p.Println(strings.TrimSuffix(r.Result, "\n"))
	case r.OK:
	case r.Error != nil:
		text := protocol.Coded(r.Error.Code, r.Error.Message)
		// The result says more: what the tool reported, the end of its stderr.
		if more := strings.TrimSpace(strings.TrimPrefix(r.Result, r.Error.Code+": "+r.Error.Message)); more != "" {
			text += "\n" + more
		}
		p.Complain(text)
	default:
		p.Complain("the operation failed: " + r.Result)
	}
	if r.Result != "" {
		return // it has the outputs
	}
	var pairs [][2]string
	for _, key := range slices.Sorted(maps.Keys(r.Outputs)) {
		pairs = append(pairs, [2]string{key, r.Outputs[key]})
	}
	p.Pairs(pairs)
}
