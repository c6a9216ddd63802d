package client

import (
	"context"
	"iter"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/protocol"
)

// Pages yields a session's conversation, root first, as many messages at a time as the
// daemon gives in one reply: no conversation is too long. What comes after the first page
// belongs to the leaf of the first, wherever the session's leaf is by then. An older daemon
// gives all in one. p has no Limit. An error is the last thing it yields. A run that goes
// over several pages is in the Runs of each.
func Pages(p protocol.GetMessagesParams, ask func(protocol.GetMessagesParams) (protocol.Messages,
	error),
) iter.Seq2[protocol.Messages, error] {
	return func(yield func(protocol.Messages, error) bool) {
		for p.After = new(""); ; {
			page, err := ask(p)
			if !yield(page, err) || err != nil || !page.More {
				return
			}
			var last struct {
				ID string `json:"id"`
			}
			if n := len(page.Messages); n > 0 {
				err = json.Unmarshal(page.Messages[n-1], &last, jsontext.AllowInvalidUTF8(true))
			}
			if err != nil || last.ID == "" || last.ID == *p.After {
				yield(protocol.Messages{}, protocol.Errorf(protocol.InternalError,
					"the daemon says that messages follow, and not after which"))
				return
			}
			p.SessionID, p.LeafID, p.After = page.SessionID, page.LeafID, &last.ID
		}
	}
}

// AllMessages is what Pages yields as one reply.
func AllMessages(p protocol.GetMessagesParams, ask func(protocol.GetMessagesParams) (protocol.Messages, error)) (
	all protocol.Messages, err error,
) {
	first := true
	for page, err := range Pages(p, ask) {
		switch {
		case err != nil:
			return protocol.Messages{}, err
		case first:
			all, first = page, false
			continue
		}
		all.Messages = append(all.Messages, page.Messages...)
		if n := len(all.Runs); n > 0 && len(page.Runs) > 0 && all.Runs[n-1].RunID == page.Runs[0].RunID {
			page.Runs = page.Runs[1:]
		}
		all.Runs = append(all.Runs, page.Runs...)
	}
	all.More = false
	return all, nil
}

// Messages asks for messages over c, as Pages and AllMessages want it.
func Messages(ctx context.Context, c Sender) func(protocol.GetMessagesParams) (protocol.Messages, error) {
	return func(p protocol.GetMessagesParams) (protocol.Messages, error) {
		return Call(ctx, c, protocol.GetMessages, p)
	}
}
