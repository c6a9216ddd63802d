package slash

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

func newSession(ctx context.Context, p Place, title string) Outcome {
	r, err := Ask(ctx, p, protocol.NewSession, protocol.NewSessionParams{
		Title: title, Workdir: p.State.Workdir,
		Activate: new(bool),
	})
	if err != nil {
		return Failed(err)
	}
	return following(r.SessionID, "")
}

func switchSession(ctx context.Context, p Place, arg string) Outcome {
	if arg == "" && p.Sites > 1 {
		return Outcome{Show: SessionList{}} // which each of the daemons is asked for
	}
	list, err := ListSessions(ctx, p)
	if err != nil && !(arg != "" && errors.Is(err, client.ErrUnsupported)) {
		return Failed(Explain(err, "to see the sessions; /switch ID works"))
	}
	id := arg
	if err == nil {
		if arg == "" {
			return Outcome{Show: SessionList{Sessions: hereFirst(list, p.State.Workdir)}}
		}
		found := matching(list, arg)
		switch len(found) {
		case 0:
			if p.Sites > 1 {
				return Outcome{Show: SessionList{Query: arg}}
			}
			return Failed(fmt.Errorf("no session has the id %q, or has it in its title", arg))
		case 1:
			id = found[0].SessionID
		default:
			return Outcome{Show: SessionList{Sessions: hereFirst(list, p.State.Workdir), Query: arg}}
		}
	}
	return EnterSession(ctx, p, id)
}

func EnterSession(ctx context.Context, p Place, id string) Outcome {
	r, err := actions.Switch(ctx, p, id)
	if err != nil {
		return Failed(err)
	}
	return following(r.SessionID, "")
}

const (
	boardPage  = 1000                    // sessions of one list_sessions
	boardPages = maxSessions / boardPage // at most, of all daemons together
)

// maxSessions is how many are listed, of all daemons together.
const maxSessions = 10_000

func ListSessions(ctx context.Context, p Place) ([]protocol.SessionInfo, error) {
	limit := maxSessions / p.Sites
	limit = min(limit, 1000)
	r, err := Ask(ctx, p, protocol.ListSessions, protocol.ListSessionsParams{Limit: &limit})
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

func BranchSession(ctx context.Context, p Place, entry string) Outcome {
	r, err := actions.Branch(ctx, p, p.State.SessionID, entry, false)
	if err != nil {
		return Failed(err)
	}
	return following(r.SessionID, "this is a branch of %s", cmp.Or(r.ParentID, p.State.SessionID))
}

func showTree(ctx context.Context, p Place, _ string) Outcome {
	r, err := actions.ReadTree(ctx, p, p.Scope())
	if err != nil {
		return Failed(Explain(err, "to draw the tree; /branch works"))
	}
	return Outcome{Show: r}
}

func SetLeaf(ctx context.Context, p Place, entry string) Outcome {
	r, err := actions.SetLeaf(ctx, p, p.Scope(), entry)
	if err != nil {
		return Failed(Explain(err, "to move within a session; /branch works"))
	}
	return following(r.SessionID, "the session goes on from %s", r.LeafID)
}

func searchSessions(ctx context.Context, p Place, text string) Outcome {
	if p.Sites > 1 {
		return Outcome{Show: SessionList{Query: text}} // what is typed there is looked for
	}
	limit := 200
	r, err := Ask(ctx, p, protocol.SearchSessions, protocol.SearchSessionsParams{Text: text, Limit: &limit})
	switch {
	case err != nil:
		return Failed(Explain(err, "to search"))
	case len(r.Matches) == 0:
		return informed("no session says %q", text)
	}
	sessions, err := ListSessions(ctx, p)
	if err != nil {
		return Failed(err)
	}
	sessions = slices.DeleteFunc(sessions, func(s protocol.SessionInfo) bool {
		return !slices.ContainsFunc(r.Matches, func(m protocol.SearchMatch) bool { return m.SessionID == s.SessionID })
	})
	return Outcome{Show: SessionList{Sessions: sessions, Matches: r.Matches}}
}

// AllSessions lists them by pages. More: there are others.
func AllSessions(ctx context.Context, p Place) (all []protocol.SessionInfo, more bool, err error) {
	daemons := p.Sites
	page := min(boardPage, maxSessions/daemons)
	params := protocol.ListSessionsParams{Limit: &page}
	for range max(boardPages/daemons, 1) {
		r, err := Ask(ctx, p, protocol.ListSessions, params)
		if err != nil {
			return nil, false, err
		}
		all = append(all, r.Sessions...)
		if len(r.Sessions) < page {
			return all, false, nil
		}
		params.Before = r.Sessions[len(r.Sessions)-1].SessionID
	}
	return all, true, nil
}

// Children lists the child sessions of one, the newest of them. More: there are others. Ids are in the order of
// their times, so that no child comes after its parent.
func Children(ctx context.Context, p Place, parent string, most int) (all []protocol.SessionInfo, more bool,
	err error,
) {
	params := protocol.ListSessionsParams{Limit: new(boardPage)}
	for range boardPages {
		r, err := Ask(ctx, p, protocol.ListSessions, params)
		if err != nil {
			return nil, false, err
		}
		for _, s := range r.Sessions {
			switch {
			case s.Parent == nil || s.Parent.SessionID != parent:
			case len(all) == most:
				return all, true, nil
			default:
				all = append(all, s)
			}
		}
		n := len(r.Sessions)
		if n < boardPage || r.Sessions[n-1].SessionID < parent {
			return all, false, nil
		}
		params.Before = r.Sessions[n-1].SessionID
	}
	return all, true, nil
}

// BoardList are the sessions of a board that is printed.
type BoardList []protocol.SessionInfo

func ListBoard(ctx context.Context, p Place) Outcome {
	list, _, err := AllSessions(ctx, p)
	if err != nil {
		return Failed(Explain(err, "to list its sessions"))
	}
	return Outcome{Show: BoardList(list)}
}
