package tui

import (
	"context"
	"encoding/base64"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"noused/internal/protocol"
	"noused/internal/regular"
	"noused/internal/tui/terminal"
)

// say sends a text to the model: as a prompt, or to the running run as a steer. The daemon
// does the other one where that is not so any more. The key makes a second try the same as
// the first, should that have been accepted all the same.
func say(ctx context.Context, p place, u unsent) outcome {
	if p.running() {
		r, err := ask(ctx, p, protocol.Steer, protocol.SteerParams{
			Scope: p.scope(), Text: u.text, IfIdle: protocol.KindPrompt, IdempotencyKey: u.key, Attachments: u.attachments(),
		})
		return outcome{sent: r.InputID, err: err, text: textIf(err, u.text)}
	}
	r, err := ask(ctx, p, protocol.Prompt, protocol.PromptParams{
		Scope: p.scope(), Text: u.text, Wait: new(bool), StreamingBehavior: protocol.KindSteer, IdempotencyKey: u.key,
		Attachments: u.attachments(),
	})
	out := outcome{err: err, text: textIf(err, u.text)}
	if r.Accepted != nil {
		out.sent = r.Accepted.InputID
	}
	return out
}

func (u unsent) attachments() (list []protocol.AttachmentParams) {
	for _, i := range u.images {
		list = append(list, i.params())
	}
	return list
}

// attached are the images for the next text after a command has named more, or
// none.
func attached(before, more []image) []image {
	if len(more) == 0 {
		return nil
	}
	return append(before, more...)
}

func attachImage(_ context.Context, p place, path string) outcome {
	switch {
	case path == "none":
		return outcome{images: []image{}, info: "the next text goes without images"}
	case takesNoImages(p.link) != nil:
		return failed(takesNoImages(p.link))
	case strings.HasPrefix(path, "~/"):
		path = filepath.Join(p.opts.Getenv("HOME"), path[2:])
	}
	if p.opts.Host != "" { // where the daemon has other files
		data, err := regular.Read(path, terminal.MaxImage)
		if err != nil {
			return failed(err)
		}
		return outcome{images: []image{{name: filepath.Base(path), data: string(data)}}}
	}
	return outcome{images: []image{{path: path, name: filepath.Base(path)}}}
}

func followUp(ctx context.Context, p place, text string) outcome {
	return queueFollowUp(ctx, p, unsent{text: text, key: uuid.NewString()})
}

// queueFollowUp is say for a text that waits for the end of the run.
func queueFollowUp(ctx context.Context, p place, u unsent) outcome {
	r, err := ask(ctx, p, protocol.FollowUp, protocol.FollowUpParams{
		Scope: p.scope(), Text: u.text, IfIdle: protocol.KindPrompt, IdempotencyKey: u.key, Attachments: u.attachments(),
	})
	return outcome{sent: r.InputID, err: err, text: textIf(err, u.text)}
}

func textIf(err error, text string) string {
	if err != nil {
		return text
	}
	return ""
}

func abort(ctx context.Context, p place) outcome {
	r, err := ask(ctx, p, protocol.Abort, protocol.AbortParams{Scope: p.scope()})
	if err != nil {
		return failed(err)
	}
	var out outcome
	for _, d := range r.Discarded {
		out.back = append(out.back, d.Text)
	}
	if len(out.back) > 0 {
		out.info = "your queued text is in the input again"
	}
	return out
}

// image goes with the next text: a file, or with data what was pasted.
type image struct {
	path, name string
	data       string
}

func (i image) params() protocol.AttachmentParams {
	if i.data == "" {
		return protocol.AttachmentParams{Path: i.path}
	}
	return protocol.AttachmentParams{Data: base64.StdEncoding.EncodeToString([]byte(i.data)), Name: i.name}
}
