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
// which may be empty: the sessions in their order, without the blank ones, then those that only the
// search found. Ages are as of now; home is shown as ~, "" as nothing.
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
	for _, s := range list {
		if listed[s.SessionID] || s.Blank() {
			continue
		}
		listed[s.SessionID] = true
		detail := []string{format.Age(s.UpdatedAt, now), format.Count(s.Messages, "message")}
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
		items = append(items, Item{
			ID: s.SessionID, Title: title(s.Title), Mark: mark(s),
			Detail: strings.Join(detail, "\t"), Search: sessionSearch(s.SessionID, found),
		})
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
