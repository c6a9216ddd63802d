package plain

import (
	"cmp"
	"strconv"
	"strings"

	"noused/internal/format"
	"noused/internal/protocol"
	"noused/internal/tui/board"
	"noused/internal/tui/pick"
	"noused/internal/tui/slash"
)

// list says what the screen would let one choose from, and how to choose here.
func (p *plain) list(show any) {
	switch list := show.(type) {
	case slash.SessionList:
		p.sessions(list)
	case slash.BoardList:
		if err := board.Print(p.opts.Out, list, p.state.Workdir); err != nil {
			p.sayf("error: %s", err)
			return
		}
		p.sayf("/switch ID shows one")
	case slash.ToolList:
		p.tools(list)
	case slash.ModelList:
		for _, item := range pick.Models(list.Models) {
			p.sayf("%s: %s %s", item.Title, strings.ReplaceAll(item.Detail, "\t", ", "), item.Mark)
		}
		p.sayf("/model NAME chooses, /model NAME SERVER one at another server; /model probe asks the servers")
	case slash.AgentList:
		p.items(pick.Agents(list.Agents), "/agent NAME has one make the turns")
	case slash.NamedList:
		p.items(pick.Named(list.Agents), "/as NAME TEXT sends a text as one")
	case slash.OptionList:
		p.items(pick.Options(list.Options), "/options NAME lists what one can be, /options NAME VALUE chooses that")
	case slash.ValueList:
		p.items(pick.Values(list.Option), "/options "+list.Option.ID+" VALUE chooses")
	case protocol.Tree:
		p.tree(list)
	}
}

// items says what is in a list, by what it is called in a command, and how to choose.
func (p *plain) items(list []pick.Item, how string) {
	for _, item := range list {
		about := strings.ReplaceAll(item.Detail, "\t", ", ") + " " + item.Mark
		p.sayf("%s: %s", cmp.Or(item.ID, item.Title), strings.TrimSpace(about))
	}
	p.sayf("%s", how)
}

func (p *plain) sessions(list slash.SessionList) {
	for _, item := range pick.Sessions(list.Sessions, list.Matches, p.opts.Now(), "") {
		mark := ""
		if item.ID == p.state.SessionID {
			mark = " (this one)"
		}
		p.sayf("%s%s: %s, %s %s", item.ID, mark, item.Title, strings.ReplaceAll(item.Detail, "\t", ", "), item.Mark)
	}
	for _, m := range list.Matches {
		p.sayf("%s, %s: %s", m.SessionID, m.Role, m.Snippet)
	}
	p.sayf("/switch ID shows one")
}

func (p *plain) tools(list slash.ToolList) {
	for _, t := range list.Tools {
		state := map[bool]string{true: "on", false: "off"}[t.Active]
		if !t.Healthy {
			state += ", unhealthy: " + t.Problem
		}
		p.sayf("%s (%s): %s", t.Name, state, t.Description)
	}
	for _, s := range list.Servers {
		p.sayf("server %s (%s): %s", s.Name, strings.ReplaceAll(s.State, "_", " "),
			cmp.Or(s.Message, format.Count(s.Tools, "tool")))
	}
	p.sayf("/tools NAMES, /tools all or /tools none chooses")
}

func (p *plain) tree(t protocol.Tree) {
	depth := map[string]int{}
	for _, n := range t.Nodes {
		depth[n.ID] = depth[n.ParentID] + 1
		leaf := ""
		if n.ID == t.LeafID {
			leaf = " (the leaf)"
		}
		p.sayf("%s, level %s%s, %s: %s", n.ID, strconv.Itoa(depth[n.ID]), leaf, n.Role, n.Snippet)
	}
	p.sayf("/leaf ENTRY goes on from one, /branch ENTRY does so in a session of its own")
}

func (p *plain) help() {
	for _, c := range slash.Commands {
		if c.Screen {
			continue
		}
		p.sayf("%s: %s", strings.TrimSpace("/"+c.Name+" "+c.Args), c.About)
	}
	p.sayf("/skill:NAME [TEXT]: send what a skill says, and the text behind it")
	p.sayf("Any other line is sent; // begins one with a slash, a backslash at its end goes on in the next.\nCtrl+C " +
		"ends the run; Ctrl+D or /quit leaves, and the run goes on.")
}
