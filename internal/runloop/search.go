package runloop

import (
	"context"
	"strings"
	"unicode/utf8"

	"noused/internal/protocol"
	"noused/internal/session"
)

const (
	searchLimit = 50  // matches, unless a client asks for another number
	maxSnippet  = 160 // characters
	snippetLead = 40  // of them before the text that was found
)

// searchSessions answers when all files have been read (protocol.md, search_sessions).
func (h *Hub) searchSessions(_ context.Context, p protocol.SearchSessionsParams) (
	a protocol.Answer[protocol.SearchResults], err error,
) {
	a.Later = func(ctx context.Context) (protocol.SearchResults, error) { return h.search(ctx, p) }
	return a, nil
}

// search reads the sessions' files one after the other, the newest first; one
// search at a time, so that many clients cannot take more than one core. An open
// session needs no asking: what it has announced is in its file (wire-v1 §7).
func (h *Hub) search(ctx context.Context, p protocol.SearchSessionsParams) (protocol.SearchResults, error) {
	out := protocol.SearchResults{Matches: []protocol.SearchMatch{}}
	select {
	case h.searching <- struct{}{}:
		defer func() { <-h.searching }()
	case <-ctx.Done():
		return out, context.Cause(ctx)
	}
	limit := searchLimit
	if p.Limit != nil {
		limit = *p.Limit
	}
	search, err := session.NewSearch(p.Text)
	if err != nil {
		return out, protocol.Errorf(protocol.InvalidPayload, "text: %v", err)
	}
	ids, err := h.env.Store.IDs()
	if err != nil {
		return out, err
	}
	for _, id := range ids {
		matches, err := h.searchOne(ctx, search, id, limit+1-len(out.Matches))
		if ctx.Err() != nil {
			return out, context.Cause(ctx)
		}
		if err != nil && !gone(err) {
			h.env.Fault(id, err)
		}
		if out.Matches = append(out.Matches, matches...); len(out.Matches) > limit {
			out.Matches, out.Truncated = out.Matches[:limit], true
			break
		}
	}
	return out, nil
}

// searchOne returns a session's matches, at most so many.
func (h *Hub) searchOne(ctx context.Context, search *session.Search, id string, most int) ([]protocol.SearchMatch,
	error,
) {
	var matches []protocol.SearchMatch
	err := h.env.Store.Find(ctx, id, search, func(hit session.Hit) bool {
		matches = append(matches, protocol.SearchMatch{
			SessionID: id, EntryID: hit.EntryID, Role: hit.Role, Snippet: around(hit.Text, hit.Start), CreatedAt: hit.At.UTC(),
		})
		return len(matches) < most
	})
	if err != nil || len(matches) == 0 {
		return nil, err
	}
	title, err := h.env.Store.Title(ctx, id, search)
	if err != nil {
		return nil, err
	}
	for i := range matches {
		matches[i].Title = title
	}
	return matches, nil
}

// around is the line on which text[start:] begins, or of a long one the part
// around that, in at most maxSnippet characters.
func around(text string, start int) string {
	from, to := strings.LastIndexByte(text[:start], '\n')+1, len(text)
	if i := strings.IndexByte(text[start:], '\n'); i >= 0 {
		to = start + i
	}
	tail := strings.TrimRight(text[start:to], " \t\r")
	short, _ := first(tail, maxSnippet)
	head, cut := last(strings.TrimLeft(text[from:start], " \t\r"),
		max(snippetLead, maxSnippet-utf8.RuneCountInString(short)))
	if cut {
		_, size := utf8.DecodeRuneInString(head)
		head = "…" + head[size:]
	}
	if tail, cut = first(tail, maxSnippet-utf8.RuneCountInString(head)); cut {
		_, size := utf8.DecodeLastRuneInString(tail)
		tail = tail[:len(tail)-size] + "…"
	}
	return strings.TrimRight(head+tail, " \t\r")
}

// first is text's first n characters, and whether there are more.
func first(text string, n int) (string, bool) {
	at := 0
	for ; n > 0 && at < len(text); n-- {
		_, size := utf8.DecodeRuneInString(text[at:])
		at += size
	}
	return text[:at], at < len(text)
}

// last is text's last n characters, and whether there are more.
func last(text string, n int) (string, bool) {
	at := len(text)
	for ; n > 0 && at > 0; n-- {
		_, size := utf8.DecodeLastRuneInString(text[:at])
		at -= size
	}
	return text[at:], at > 0
}
