package slash

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

// Say sends a text to the model: as a prompt, or to the running run as a steer. The daemon
// does the other one where that is not so any more. The key makes a second try the same as
// the first, should that have been accepted all the same.
func Say(ctx context.Context, p Place, u Unsent) Outcome {
	if u.As != "" {
		return sayAs(ctx, p, u)
	}
	if p.Running() {
		r, err := Ask(ctx, p, protocol.Steer, protocol.SteerParams{
			Scope: p.Scope(), Text: u.Text, IfIdle: protocol.KindPrompt, IdempotencyKey: u.Key, Attachments: u.attachments(),
		})
		return Outcome{Sent: r.InputID, Err: err, Text: textIf(err, u.Text)}
	}
	r, err := Ask(ctx, p, protocol.Prompt, protocol.PromptParams{
		Scope: p.Scope(), Text: u.Text, Wait: new(bool), StreamingBehavior: protocol.KindSteer, IdempotencyKey: u.Key,
		Attachments: u.attachments(),
	})
	out := Outcome{Err: err, Text: textIf(err, u.Text)}
	if r.Accepted != nil {
		out.Sent = r.Accepted.InputID
	}
	return out
}

func (u Unsent) attachments() (list []protocol.AttachmentParams) {
	for _, i := range u.Images {
		list = append(list, i.Params())
	}
	return list
}

// Attached are the images for the next text after a command has named more, or
// none.
func Attached(before, more []Image) []Image {
	if len(more) == 0 {
		return nil
	}
	return append(before, more...)
}

func attachImage(_ context.Context, p Place, path string) Outcome {
	switch {
	case path == "none":
		return Outcome{Images: []Image{}, Info: "the next text goes without images"}
	case TakesNoImages(p.Link) != nil:
		return Failed(TakesNoImages(p.Link))
	case strings.HasPrefix(path, "~/"):
		path = filepath.Join(p.Getenv("HOME"), path[2:])
	}
	if p.Site.Host != "" { // where the daemon has other files
		data, err := regular.Read(path, terminal.MaxImage)
		if err != nil {
			return Failed(err)
		}
		return Outcome{Images: []Image{{Name: filepath.Base(path), Data: string(data)}}}
	}
	return Outcome{Images: []Image{{Path: path, Name: filepath.Base(path)}}}
}

func followUp(ctx context.Context, p Place, text string) Outcome {
	return QueueFollowUp(ctx, p, Unsent{Text: text, Key: uuid.NewString()})
}

// QueueFollowUp is say for a text that waits for the end of the run.
func QueueFollowUp(ctx context.Context, p Place, u Unsent) Outcome {
	if u.As != "" {
		u.FollowUp = true
		return sayAs(ctx, p, u)
	}
	r, err := Ask(ctx, p, protocol.FollowUp, protocol.FollowUpParams{
		Scope: p.Scope(), Text: u.Text, IfIdle: protocol.KindPrompt, IdempotencyKey: u.Key, Attachments: u.attachments(),
	})
	return Outcome{Sent: r.InputID, Err: err, Text: textIf(err, u.Text)}
}

func textIf(err error, text string) string {
	if err != nil {
		return text
	}
	return ""
}

func Abort(ctx context.Context, p Place) Outcome {
	r, err := Ask(ctx, p, protocol.Abort, protocol.AbortParams{Scope: p.Scope()})
	if err != nil {
		return Failed(err)
	}
	var out Outcome
	for _, d := range r.Discarded {
		out.Back = append(out.Back, d.Text)
	}
	if len(out.Back) > 0 {
		out.Info = "your queued text is in the input again"
	}
	return out
}

// Image goes with the next text: a file, or with data what was pasted.
type Image struct {
	Path, Name string
	Data       string
}

func (i Image) Params() protocol.AttachmentParams {
	if i.Data == "" {
		return protocol.AttachmentParams{Path: i.Path}
	}
	return protocol.AttachmentParams{Data: base64.StdEncoding.EncodeToString([]byte(i.Data)), Name: i.Name}
}

// Unsent is a text on its way to the daemon, or, as the zero unsent, an abort,
// which must not overtake the texts before it.
type Unsent struct {
	Text, Key string
	Skill     string // what it says goes with the text
	Call      bool   // a server makes the text
	Images    []Image
	FollowUp  bool
	As        string // the named agent that takes it, "" for none

	// Session is the one that it is meant for; "": the one that is shown when it goes. Behind counts the commands that
	// are done first and show another session: it is meant for that of the last of them.
	Session string
	Behind  int
}
