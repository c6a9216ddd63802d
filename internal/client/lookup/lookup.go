// Package lookup finds what a person calls by a name: a session by its id, its title or the beginning
// of one, a run or an entry by its id or a beginning of it.
//
// Its functions may be called from any goroutine, and block until the daemon has answered. The
// package refuses to guess: a name that means several things is an error that says so.
package lookup

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"noused/internal/client"
	"noused/internal/client/hosts"
	"noused/internal/client/plain"
	"noused/internal/protocol"
)

// Sessions lists all sessions of a folder, of all folders with "", those that
// were made last first.
func Sessions(ctx context.Context, daemon client.Sender, dir string) ([]protocol.SessionInfo, error) {
	page := 1000
	p := protocol.ListSessionsParams{Limit: &page, Workdir: dir}
	var all []protocol.SessionInfo
	for {
		r, err := client.Call(ctx, daemon, protocol.ListSessions, p)
		if err != nil {
			return nil, err
		}
		all = append(all, r.Sessions...)
		if len(r.Sessions) < page {
			return all, nil
		}
		p.Before = r.Sessions[page-1].SessionID
	}
}

// SessionID is the id of the session that somebody calls by its id, its title,
// or a beginning of either that no other has. A daemon that lists no sessions is
// told the name as it is.
func SessionID(ctx context.Context, daemon client.Sender, name string) (string, error) {
	found, err := session(ctx, daemon, name)
	return found.SessionID, err
}

// SessionToDelete is SessionID, for what cannot be taken back: the beginning of a title is too little.
func SessionToDelete(ctx context.Context, daemon client.Sender, name string) (string, error) {
	found, err := session(ctx, daemon, name)
	if err == nil && found.Title != name && !hosts.MeansID(name, found.SessionID) {
		return "", fmt.Errorf("%s begins the title of %s, and a session is deleted for good: want its id, or its whole title",
			plain.OneLine(name, 30), found.SessionID)
	}
	return found.SessionID, err
}

func session(ctx context.Context, daemon client.Sender, name string) (protocol.SessionInfo, error) {
	asIs := protocol.SessionInfo{SessionID: name}
	if len(name) == len("ses-00000000-0000-0000-0000-000000000000") && strings.HasPrefix(name, "ses-") {
		return asIs, nil
	}
	all, err := Sessions(ctx, daemon, "")
	if errors.Is(err, client.ErrUnsupported) {
		return asIs, nil
	}
	if err != nil {
		return protocol.SessionInfo{}, err
	}
	switch found := hosts.Find(name, all); len(found) {
	case 0:
	case 1:
		return found[0], nil
	default:
		return protocol.SessionInfo{}, fmt.Errorf("%q may be any of %d sessions: %s", name, len(found), Names(found))
	}
	return protocol.SessionInfo{}, &protocol.Error{
		Code:    protocol.SessionNotFound,
		Message: "session_id: there is no session " + name,
	}
}

// Names names a few sessions, by id and title.
func Names(found []protocol.SessionInfo) string {
	const most = 4
	var names []string
	for i, s := range found {
		if i == most {
			names = append(names, "…")
			break
		}
		names = append(names, strings.TrimSpace(s.SessionID+" "+plain.OneLine(s.Title, 30)))
	}
	return strings.Join(names, ", ")
}
