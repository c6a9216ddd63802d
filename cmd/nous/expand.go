package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"noused/internal/client"
	"noused/internal/protocol"
)

// calledPrompt is how a text begins that a command's file or a server may make,
// namedResource how a word looks that may be a server's resource.
var (
	calledPrompt  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^/[^\s/]+(\.\S|\s|$)`) })
	namedResource = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(^|\s)@[^\s:@/]+:\S`) })
)

// expanded is a text with what MCP servers have for it, and images that go with
// it. A daemon that knows none leaves it as it is.
func (a *app) expanded(ctx context.Context, scope protocol.Scope, text string, images []protocol.AttachmentParams) (
	string, []protocol.AttachmentParams, error,
) {
	if !strings.ContainsAny(text, "/@") || !calledPrompt().MatchString(text) && !namedResource().MatchString(text) {
		return text, images, nil
	}
	r, err := ask(ctx, a, protocol.Expand, protocol.ExpandParams{Scope: scope, Text: text})
	switch {
	case errors.Is(err, client.ErrUnsupported):
		return text, images, nil
	case err != nil:
		return "", nil, err
	case strings.TrimSpace(r.Text) == "":
		return "", nil, fmt.Errorf("the server made an empty text of %.60q", text)
	}
	return r.Text, append(images, r.Attachments...), nil
}
