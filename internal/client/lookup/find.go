package lookup

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/client"
	"noused/internal/client/plain"
	"noused/internal/format"
	"noused/internal/protocol"
)

// Bounds of what is looked through.
const (
	maxSessions = 200 // the newest
	maxBranches = 20  // of a session, for a run
)

// Found is what a name means: a session, else a run, else an entry.
type Found struct {
	Session *protocol.SessionInfo
	Run     *plain.Run
	Entry   jsontext.Value
	In      string // the entry's session
}

// Find looks for the session, the run or the entry that a name means, by its id or by a beginning of
// the id that no other has, in the newest sessions, on all their branches; a session may be called by
// its title or the end of its id, too. With only it looks into that session alone.
func Find(ctx context.Context, daemon client.Sender, name, only string) (Found, error) {
	f := &finder{daemon: daemon, name: name, ids: map[string]bool{}, taken: map[string]bool{}}
	var err error
	if f.sessions, err = f.list(ctx, only); err != nil {
		return Found{}, err
	}
	if s, ok, err := f.session(); err != nil || ok {
		return Found{Session: &s}, err
	}
	err = f.search(ctx)
	return f.found, err
}

// finder looks for what a name means: a session, else entries and runs.
type finder struct {
	daemon   client.Sender
	name     string
	sessions []protocol.SessionInfo
	ids      map[string]bool // of what was found
	found    Found
	taken    map[string]bool // the messages of the run
}

func (f *finder) list(ctx context.Context, only string) ([]protocol.SessionInfo, error) {
	limit := maxSessions
	r, err := client.Call(ctx, f.daemon, protocol.ListSessions, protocol.ListSessionsParams{Limit: &limit})
	if err != nil || only == "" {
		return r.Sessions, err
	}
	for _, s := range r.Sessions {
		if s.SessionID == only {
			return []protocol.SessionInfo{s}, nil
		}
	}
	return []protocol.SessionInfo{{SessionID: only}}, nil
}

// session is the session that the name means.
func (f *finder) session() (protocol.SessionInfo, bool, error) {
	var found []protocol.SessionInfo
	for _, s := range f.sessions {
		switch {
		case s.SessionID == f.name:
			return s, true, nil
		case strings.HasPrefix(s.SessionID, f.name) && strings.HasPrefix(f.name, "ses-"),
			plain.Tail(s.SessionID) == f.name, s.Title == f.name:
			found = append(found, s)
			f.ids[s.SessionID] = true
		}
	}
	if len(found) == 0 && !strings.HasPrefix(f.name, "ses-") {
		return protocol.SessionInfo{}, false, nil
	}
	if err := f.one(); err != nil {
		return protocol.SessionInfo{}, false, err
	}
	return found[0], true, nil
}

// one fails unless the name means one thing.
func (f *finder) one() error {
	switch n := len(f.ids); n {
	case 0:
		return fmt.Errorf("there is no session, run or message %s in the newest %s",
			f.name, format.Count(len(f.sessions), "session"))
	case 1:
		return nil
	default:
		return fmt.Errorf("%s is the beginning of %d ids; more of it says which is meant", f.name, n)
	}
}

// search goes through the sessions' entries. A whole id ends it.
func (f *finder) search(ctx context.Context) error {
	for _, s := range f.sessions {
		scope := protocol.Scope{SessionID: s.SessionID}
		tree, err := client.Call(ctx, f.daemon, protocol.GetTree, protocol.GetTreeParams{Scope: scope})
		var wire *protocol.Error
		if errors.As(err, &wire) && !errors.Is(err, client.ErrUnsupported) {
			continue // deleted meanwhile, or its journal cannot be read
		}
		if err != nil {
			return err
		}
		if strings.HasPrefix(f.name, "run-") {
			err = f.runsIn(ctx, tree)
		} else {
			err = f.entriesIn(ctx, tree)
		}
		if err != nil || f.ids[f.name] {
			return err
		}
	}
	return f.one()
}

func (f *finder) entriesIn(ctx context.Context, tree protocol.Tree) error {
	for _, n := range tree.Nodes {
		if !strings.HasPrefix(n.ID, f.name) {
			continue
		}
		known := len(f.ids) > 0
		if f.ids[n.ID] = true; known {
			continue
		}
		if err := f.read(ctx, tree.SessionID, n.ID); err != nil {
			return err
		}
	}
	return nil
}

// read takes an entry. It is asked for as the end of its branch; an older entry
// that stands for others is not the last one there.
func (f *finder) read(ctx context.Context, session, id string) error {
	p := protocol.GetMessagesParams{Scope: protocol.Scope{SessionID: session}, LeafID: id}
	for page, err := range client.Pages(p, client.Messages(ctx, f.daemon)) {
		if err != nil {
			return err
		}
		for _, entry := range page.Messages {
			var of struct {
				ID string `json:"id"`
			}
			if err := json.Unmarshal(entry, &of, jsontext.AllowInvalidUTF8(true)); err != nil {
				return fmt.Errorf("decode entry: %w", err)
			}
			if of.ID == id {
				f.found.In, f.found.Entry = session, entry
				return nil
			}
		}
	}
	return fmt.Errorf("%s: the daemon does not tell it", id)
}

// runsIn goes through the branches of a session, the newest first.
func (f *finder) runsIn(ctx context.Context, tree protocol.Tree) error {
	tips := plain.Tips(tree)
	for i := range min(len(tips), maxBranches) {
		p := protocol.GetMessagesParams{Scope: protocol.Scope{SessionID: tree.SessionID}, LeafID: tips[len(tips)-1-i]}
		for page, err := range client.Pages(p, client.Messages(ctx, f.daemon)) {
			if err == nil {
				err = f.addMessages(page)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *finder) addMessages(r protocol.Messages) error {
	for _, entry := range r.Messages {
		var of struct {
			ID    string `json:"id"`
			RunID string `json:"run_id"`
		}
		if err := json.Unmarshal(entry, &of, jsontext.AllowInvalidUTF8(true)); err != nil {
			return fmt.Errorf("decode entry: %w", err)
		}
		if !strings.HasPrefix(of.RunID, f.name) {
			continue
		}
		f.ids[of.RunID] = true
		if f.found.Run == nil {
			f.found.Run = &plain.Run{SessionID: r.SessionID, RunID: of.RunID}
		}
		if f.found.Run.SessionID == r.SessionID && f.found.Run.RunID == of.RunID && !f.taken[of.ID] {
			f.taken[of.ID] = true
			f.found.Run.Messages = append(f.found.Run.Messages, entry)
		}
	}
	return nil
}
