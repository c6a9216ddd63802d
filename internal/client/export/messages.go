package export

import (
	"context"

	"github.com/go-json-experiment/json"

	"noused/internal/client"
	"noused/internal/client/plain"
	"noused/internal/protocol"
)

// Messages prints a conversation page by page, and as JSON as the one reply that all pages
// are together. session is whose it is, where all of it was read.
func Messages(ctx context.Context, daemon client.Sender, to *plain.Printer, p protocol.GetMessagesParams, full bool) (
	session string, err error,
) {
	if to.JSON {
		return wholeMessages(ctx, daemon, to, p)
	}
	printed := false
	for page, err := range client.Pages(p, client.Messages(ctx, daemon)) {
		if err != nil {
			return "", err
		}
		session = page.SessionID
		for _, entry := range page.Messages {
			if printed {
				to.Println("")
			}
			printed = true
			if err := to.Entry(entry, full); err != nil {
				return session, err
			}
		}
	}
	return session, nil
}

// wholeMessages prints a conversation as JSON: a reply of one page as it came.
func wholeMessages(ctx context.Context, daemon client.Sender, to *plain.Printer, p protocol.GetMessagesParams) (
	session string, err error,
) {
	var only []byte
	pages := 0
	all, err := client.AllMessages(p, func(p protocol.GetMessagesParams) (page protocol.Messages, err error) {
		pages++
		if only, err = client.Raw(ctx, daemon, protocol.GetMessages, p); err == nil {
			err = json.Unmarshal(only, &page)
		}
		return page, err
	})
	switch {
	case err != nil:
		return "", err
	case pages > 1:
		return all.SessionID, to.Encoded(all)
	}
	to.JSONLine(only)
	return all.SessionID, nil
}
