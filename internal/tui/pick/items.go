package pick

import (
	"cmp"
	"strings"
	"time"

	"noused/internal/format"
	"noused/internal/protocol"
	"noused/internal/tui/cell"
)

// folderMost is how much of a folder is shown, in cells.
const folderMost = 28

// noTitle stands for the title of a session in which nothing was said.
const noTitle = "(no title)"

// Sessions makes items of the answers of list_sessions and of search_sessions,
// which may be empty: the sessions in their order, without the blank ones, each child below its parent, then those
// that only the search found. Ages are as of now; home is shown as ~, "" as nothing.
func Sessions(list []protocol.SessionInfo, matches []protocol.SearchMatch, now time.Time, home string) []Item {
	found := map[string][]string{}
	var order []protocol.SearchMatch
	for _, m := range matches {
		if found[m.SessionID] == nil {
			order = append(order, m)
		}
		found[m.SessionID] = append(found[m.SessionID], format.Unmarked(cell.Line(m.Snippet, maxTitle)))
	}
	titles := map[string]string{}
	for _, s := range list {
		titles[s.SessionID] = s.Title
	}
	items := make([]Item, 0, len(list)+len(order))
	listed := map[string]bool{}
	for _, k := range kinOf(list) {
		s := k.SessionInfo
		listed[s.SessionID] = true
		item := Item{
			ID: s.SessionID, Title: title(s.Title), Mark: mark(s), Branch: k.lines, Folded: k.folded,
			Detail: strings.Join(details(s, titles, now, home), "\t"), Search: sessionSearch(s.SessionID, found),
		}
		if k.below > 0 {
			item.With = format.Count(k.below, "child session")
			item.Title += " · " + item.With
		}
		items = append(items, item)
	}
	for _, m := range order {
		if !listed[m.SessionID] {
			items = append(items, Item{
				ID: m.SessionID, Title: title(m.Title),
				Detail: format.Age(m.CreatedAt, now), Search: sessionSearch(m.SessionID, found),
			})
		}
	}
	return items
}

// details are a session's columns. A child says what it does.
func details(s protocol.SessionInfo, titles map[string]string, now time.Time, home string) []string {
	detail := []string{format.Age(s.UpdatedAt, now), format.Count(s.Messages, "message")}
	if doing := cell.Truncate(does(s), folderMost); s.Parent != nil && doing != "" {
		detail[1] = doing
	}
	if s.Workdir != "" {
		detail = append(detail, cell.Folder(s.Workdir, home, folderMost))
	}
	if s.ParentID != "" {
		parent := titles[s.ParentID]
		if parent == "" {
			parent = s.ParentID
		}
		detail = append(detail, "branch of "+cell.Truncate(title(parent), 24))
	}
	return detail
}

// does is the call that a session makes now, or the last line that it has said.
func does(s protocol.SessionInfo) string {
	if s.Working != nil && s.Working.ToolName != "" {
		return cell.Line(s.Working.ToolName, maxTitle)
	}
	return format.Unmarked(cell.Line(s.LastText, maxTitle))
}

func title(text string) string {
	return cmp.Or(format.Unmarked(cell.Line(text, maxTitle)), noTitle)
}

// mark says what a session needs of somebody, or does.
func mark(s protocol.SessionInfo) string {
	switch {
	case s.Need() == protocol.NeedAnswer:
		return "needs you"
	case s.RunState == protocol.StateIdle:
		return ""
	}
	return string(s.RunState)
}

// sessionSearch are the lines that were found in a session, and its ID.
func sessionSearch(id string, found map[string][]string) string {
	return strings.Join(append(found[id], id), "\n")
}

// Models makes items of the answer of list_models. The ID is what set_model
// takes, with the server behind a space where that was found by asking.
func Models(list []protocol.ListedModel) []Item {
	items := make([]Item, len(list))
	for i, m := range list {
		item := Item{ID: m.Model, Title: m.Model}
		about := m.BaseURL
		if m.Source == "server" {
			item.ID += " " + m.BaseURL
		}
		if item.Title == "" {
			item.Title = m.Provider
		}
		switch {
		case m.Problem != "":
			item.Mark, item.Bad, about = "problem", true, m.Problem
		case m.Reachable != nil && !*m.Reachable:
			item.Mark, item.Bad = "no answer", true
		case m.Default:
			item.Mark = "default"
		}
		item.Detail = m.Source + "\t" + about
		items[i] = item
	}
	return items
}

// Tools makes items of the answer of list_tools, on if the model may call them.
func Tools(list []protocol.ToolInfo) []Item {
	items := make([]Item, len(list))
	for i, t := range list {
		item := Item{ID: t.Name, Title: t.Name, Detail: t.Description, Checked: t.Active}
		if !t.Healthy {
			item.Mark, item.Bad = "unhealthy", true
			if t.Problem != "" {
				item.Detail, item.Search = t.Problem, t.Description
			}
		}
		items[i] = item
	}
	return items
}

// Agents makes items of the agents that a session can be made for. One that cannot be started
// says how it is installed, one that is not signed in how that is done.
func Agents(list []protocol.AgentInfo) []Item {
	items := make([]Item, len(list))
	for i, a := range list {
		item := Item{ID: a.Name, Title: a.Name, Detail: strings.Join(a.Command, " ")}
		switch {
		case !a.Found:
			item.Mark, item.Bad, item.Detail = "not found", true, a.Problem
			if a.Install != "" {
				item.Detail = "install: " + a.Install
			}
		case a.SignedIn != nil && !*a.SignedIn && a.SignIn != "":
			item.Mark, item.Detail = "not signed in", "sign in: "+a.SignIn
		case a.Default:
			item.Mark = "default"
		}
		if len(a.Command) == 0 {
			item.Detail = "the daemon's own, which asks the model of /model"
		}
		items[i] = item
	}
	return items
}

// Named makes items of named agents.
func Named(list []protocol.NamedAgent) []Item {
	items := make([]Item, len(list))
	for i, a := range list {
		items[i] = Item{ID: a.Name, Title: a.Name, Detail: a.Description}
	}
	return items
}

// Options makes items of what an agent lets people choose.
func Options(list []protocol.AgentOption) []Item {
	items := make([]Item, len(list))
	for i, o := range list {
		value := o.Value
		for _, v := range o.Values {
			if v.Value == o.Value {
				value = cmp.Or(v.Name, v.Value)
			}
		}
		items[i] = Item{ID: o.ID, Title: cmp.Or(o.Name, o.ID), Detail: value + "\t" + o.Description, Search: o.ID}
	}
	return items
}

// Values makes items of what an option can be.
func Values(o protocol.AgentOption) []Item {
	items := make([]Item, len(o.Values))
	for i, v := range o.Values {
		items[i] = Item{ID: v.Value, Title: cmp.Or(v.Name, v.Value), Detail: v.Description, Search: v.Value}
	}
	if o.Truncated {
		items = append(items, Item{
			Title: "…", Note: true, Detail: "the agent has more than are listed: /options " + o.ID + " VALUE chooses one",
		})
	}
	return items
}
