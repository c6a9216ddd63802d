package mcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/zap"

	"noused/internal/format"
	"noused/internal/model"
	"noused/internal/tool"
)

// Bounds of the prompts of one server.
const (
	maxPrompts     = 200
	maxPromptText  = 64 << 10 // bytes of what they all say of themselves
	maxPromptAbout = 1 << 10
	maxPromptArgs  = 20
)

// prompts are those of the server, sorted by name. A server that cannot say them
// in time has none, and its tools all the same. That time is half of a call's timeout at
// most: a call that waits for the start is not lost for it.
func (l *link) prompts() (list []model.ServerPrompt) {
	caps := l.session.InitializeResult().Capabilities
	if caps == nil || caps.Prompts == nil {
		return nil
	}
	ctx, cancel := tool.WithTimeout(l.h.ctx, min(l.h.waits.ping, l.h.desc.Timeout/2))
	defer cancel()
	var take replyGate
	defer take.end()
	ctx = take.with(ctx)
	size, seen, params := 0, 0, &sdk.ListPromptsParams{}
	for page := 0; page < maxPages; page++ {
		answer, err := l.session.ListPrompts(ctx, params)
		if err != nil {
			l.log.Warn("the prompts of the server cannot be listed", zap.Error(err))
			break
		}
		if seen += len(answer.Prompts); seen > 2*maxPrompts {
			l.log.Warn("the server lists more prompts than are looked at", zap.Int("most", 2*maxPrompts))
			break
		}
		for _, p := range answer.Prompts {
			one, n, err := prompt(p)
			if size += n; err == nil && (len(list) == maxPrompts || size > maxPromptText) {
				err = fmt.Errorf("at most %d are taken, of %d KiB together", maxPrompts, maxPromptText>>10)
			}
			if err != nil {
				l.log.Warn("a prompt of the server is left out", zap.String("prompt", one.Name), zap.Error(err))
				continue
			}
			list = append(list, one)
		}
		if params.Cursor = answer.NextCursor; params.Cursor == "" {
			break
		}
	}
	slices.SortStableFunc(list, func(a, b model.ServerPrompt) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(list, func(a, b model.ServerPrompt) bool { return a.Name == b.Name })
}

// prompt is a prompt of the server in our form, and the size of its description, in bytes.
func prompt(p *sdk.Prompt) (one model.ServerPrompt, size int, err error) {
	switch {
	case p == nil:
		return one, 0, errors.New("it is null")
	case !nameable(p.Name):
		return one, 0, errors.New("its name cannot be typed")
	case len(p.Arguments) > maxPromptArgs:
		return one, 0, fmt.Errorf("it has more than %d arguments", maxPromptArgs)
	}
	one.Name, one.Description = p.Name, format.Clip(p.Description, maxPromptAbout)
	size = len(one.Name) + len(one.Description)
	for _, a := range p.Arguments {
		if a == nil || !nameable(a.Name) {
			return one, 0, errors.New("the name of an argument cannot be typed")
		}
		arg := model.PromptArgument{
			Name: a.Name, Description: format.Clip(a.Description, maxPromptAbout),
			Required: a.Required,
		}
		size += len(arg.Name) + len(arg.Description)
		one.Arguments = append(one.Arguments, arg)
	}
	return one, size, nil
}

// nameable reports that a name can stand in a line that somebody types.
func nameable(name string) bool {
	return name != "" && len(name) <= maxToolName && !strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r == '=' || r >= 0x7f
	})
}

// Prompt is [tool.Teller].
func (h *host) Prompt(ctx context.Context, name string, args map[string]string) (parts []tool.Part, err error) {
	err = h.consult(ctx, func(ctx context.Context, l *link) error {
		r, err := l.session.GetPrompt(ctx, &sdk.GetPromptParams{Name: name, Arguments: args})
		if err != nil {
			return err
		}
		for _, m := range r.Messages {
			if m == nil {
				return errNull
			}
			p := part(m.Content)
			p.Assistant = m.Role == "assistant"
			parts = append(parts, p)
		}
		return nil
	})
	return parts, err
}

// Resource is [tool.Teller].
func (h *host) Resource(ctx context.Context, uri string) (parts []tool.Part, err error) {
	err = h.consult(ctx, func(ctx context.Context, l *link) error {
		r, err := l.session.ReadResource(ctx, &sdk.ReadResourceParams{URI: uri})
		if err != nil {
			return err
		}
		for _, c := range r.Contents {
			if c == nil {
				return errNull
			}
			parts = append(parts, resource(c))
		}
		return nil
	})
	return parts, err
}

var errNull = tool.Faultf(tool.ProtocolError, "the server's answer has null where content should be")

// consult asks the server something that is no call, within its timeout. The error
// is a [tool.Fault].
func (h *host) consult(ctx context.Context, ask func(context.Context, *link) error) error {
	ctx, cancel := tool.WithTimeout(ctx, h.desc.Timeout)
	defer cancel()
	l, err := h.use(ctx)
	if err != nil {
		return err
	}
	defer h.leave(l)
	var take replyGate
	defer take.end()
	ctx = take.with(ctx)
	switch err := l.guarded(func() error { return ask(ctx, l) }); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return tool.Interrupted(ctx)
	default:
		return l.fault(err)
	}
}

// part is some content as ours.
func part(c sdk.Content) tool.Part {
	switch c := c.(type) {
	case *sdk.TextContent:
		return tool.Part{Text: c.Text}
	case *sdk.ImageContent:
		return tool.Part{MediaType: c.MIMEType, Data: c.Data}
	case *sdk.EmbeddedResource:
		if c.Resource != nil {
			return resource(c.Resource)
		}
	case *sdk.ResourceLink:
		return tool.Part{Text: c.URI}
	}
	return tool.Part{Text: "(something that is no text and no image)"}
}

func resource(c *sdk.ResourceContents) tool.Part {
	return tool.Part{URI: c.URI, MediaType: c.MIMEType, Text: c.Text, Data: c.Blob}
}
