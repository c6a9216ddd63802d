package tui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"noused/internal/client"
	"noused/internal/client/actions"
	"noused/internal/protocol"
)

func newSession(ctx context.Context, p place, title string) outcome {
	r, err := ask(ctx, p, protocol.NewSession, protocol.NewSessionParams{
		Title: title, Workdir: p.state.Workdir,
		Activate: new(bool),
	})
	if err != nil {
		return failed(err)
	}
	return following(r.SessionID, "")
}

func switchSession(ctx context.Context, p place, arg string) outcome {
	if arg == "" && len(p.opts.Others) > 0 {
		return outcome{show: sessionList{}} // which each of the daemons is asked for
	}
	list, err := listSessions(ctx, p)
	if err != nil && !(arg != "" && errors.Is(err, client.ErrUnsupported)) {
		return failed(explain(err, "to see the sessions; /switch ID works"))
	}
	id := arg
	if err == nil {
		if arg == "" {
			return outcome{show: sessionList{sessions: hereFirst(list, p.state.Workdir)}}
		}
		found := matching(list, arg)
		switch len(found) {
		case 0:
			if len(p.opts.Others) > 0 {
				return outcome{show: sessionList{query: arg}}
			}
			return failed(fmt.Errorf("no session has the id %q, or has it in its title", arg))
		case 1:
			id = found[0].SessionID
		default:
			return outcome{show: sessionList{sessions: hereFirst(list, p.state.Workdir), query: arg}}
		}
	}
	return enterSession(ctx, p, id)
}

func enterSession(ctx context.Context, p place, id string) outcome {
	r, err := actions.Switch(ctx, p, id)
	if err != nil {
		return failed(err)
	}
	return following(r.SessionID, "")
}

// maxSessions is how many are listed, of all daemons together.
const maxSessions = 10_000

func listSessions(ctx context.Context, p place) ([]protocol.SessionInfo, error) {
	limit := maxSessions / (len(p.opts.Others) + 1)
	limit = min(limit, 1000)
	r, err := ask(ctx, p, protocol.ListSessions, protocol.ListSessionsParams{Limit: &limit})
	return r.Sessions, err
}

// hereFirst orders sessions: those of a folder, then the others; what needs
// somebody first.
func hereFirst(list []protocol.SessionInfo, folder string) []protocol.SessionInfo {
	elsewhere := map[bool]int{false: 1}
	slices.SortStableFunc(list, func(x, y protocol.SessionInfo) int {
		return cmp.Or(elsewhere[x.Workdir == folder]-elsewhere[y.Workdir == folder], protocol.ByNeed(x, y))
	})
	return list
}

// matching are the sessions meant by a text: the one of that id, else those
// whose id or title contains it.
func matching(list []protocol.SessionInfo, text string) []protocol.SessionInfo {
	var found []protocol.SessionInfo
	text = strings.ToLower(text)
	for _, s := range list {
		if s.SessionID == text {
			return []protocol.SessionInfo{s}
		}
		if strings.Contains(s.SessionID, text) || strings.Contains(strings.ToLower(s.Title), text) {
			found = append(found, s)
		}
	}
	return found
}

func branchSession(ctx context.Context, p place, entry string) outcome {
	r, err := actions.Branch(ctx, p, p.state.SessionID, entry, false)
	if err != nil {
		return failed(err)
	}
	return following(r.SessionID, "this is a branch of %s", cmp.Or(r.ParentID, p.state.SessionID))
}

func showTree(ctx context.Context, p place, _ string) outcome {
	r, err := actions.ReadTree(ctx, p, p.scope())
	if err != nil {
		return failed(explain(err, "to draw the tree; /branch works"))
	}
	return outcome{show: r}
}

func setLeaf(ctx context.Context, p place, entry string) outcome {
	r, err := actions.SetLeaf(ctx, p, p.scope(), entry)
	if err != nil {
		return failed(explain(err, "to move within a session; /branch works"))
	}
	return following(r.SessionID, "the session goes on from %s", r.LeafID)
}

func searchSessions(ctx context.Context, p place, text string) outcome {
	if len(p.opts.Others) > 0 {
		return outcome{show: sessionList{query: text}} // what is typed there is looked for
	}
	limit := 200
	r, err := ask(ctx, p, protocol.SearchSessions, protocol.SearchSessionsParams{Text: text, Limit: &limit})
	switch {
	case err != nil:
		return failed(explain(err, "to search"))
	case len(r.Matches) == 0:
		return informed("no session says %q", text)
	}
	sessions, err := listSessions(ctx, p)
	if err != nil {
		return failed(err)
	}
	sessions = slices.DeleteFunc(sessions, func(s protocol.SessionInfo) bool {
		return !slices.ContainsFunc(r.Matches, func(m protocol.SearchMatch) bool { return m.SessionID == s.SessionID })
	})
	return outcome{show: sessionList{sessions: sessions, matches: r.Matches}}
}
