package bridge

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"noused/internal/acp"
	"noused/internal/client/approval"
	"noused/internal/plaintext"
	"noused/internal/protocol"
)

// errAnswered is why an approval is taken back from the editor.
var errAnswered = errors.New("answered elsewhere, or withdrawn")

// syncApprovals asks what waits and was not asked, and takes back what does not
// wait any more.
func (w *window) syncApprovals(waiting []protocol.Approval) {
	open := map[string]bool{}
	for _, a := range waiting {
		if a.SessionID == w.id {
			open[a.ApprovalID] = true
			w.askEditor(a)
		}
	}
	for id := range w.asks {
		if !open[id] {
			w.resolved(id)
		}
	}
}

// askEditor asks the editor for an approval. It is asked once, however often it is told.
func (w *window) askEditor(a protocol.Approval) {
	if w.asks[a.ApprovalID] != nil || w.muted() {
		return
	}
	ctx, cancel := context.WithCancelCause(w.ctx)
	w.asks[a.ApprovalID] = func() { cancel(errAnswered) }
	if approval.IsForm(a) && w.b.forms {
		w.form(ctx, a, a.Reason)
		return
	}
	ask := w.permission(a)
	away(w, func() (r acp.PermissionResult, err error) {
		raw, err := w.b.conn.Call(ctx, acp.RequestPermission, ask)
		if err == nil {
			err = json.Unmarshal(raw, &r)
		}
		return r, err
	}, func(r acp.PermissionResult, err error) {
		switch {
		case errors.Is(err, errAnswered):
		case err != nil:
			w.b.Log("%s: %v; %s waits for another client", acp.RequestPermission, err, a.ApprovalID)
		case r.Outcome.Outcome == "selected":
			w.decide(protocol.ApproveParams{ApprovalID: a.ApprovalID, Option: r.Outcome.OptionID}, nil)
		case w.aborts == 0: // else the abort withdraws it
			w.unanswered(a)
		}
	})
}

// unanswered is an approval that the editor has put away although nobody has cancelled the
// turn. Where the turn is one of its prompts nobody else may be there: the call is denied,
// and the run goes on. A turn of another client's is not its to decide about.
func (w *window) unanswered(a protocol.Approval) {
	mine := slices.ContainsFunc(w.prompts, func(p *prompt) bool { return p.run == a.RunID && p.turn != "" })
	no := approval.No(a)
	if !mine || no == nil {
		w.b.Log("%s: cancelled; %s waits for another client", acp.RequestPermission, a.ApprovalID)
		return
	}
	w.decide(protocol.ApproveParams{
		ApprovalID: a.ApprovalID, Option: no.ID, Reason: "the approval was put away in the editor without an answer",
	}, nil)
}

// resolved takes an approval back that was answered elsewhere.
func (w *window) resolved(id string) {
	if cancel := w.asks[id]; cancel != nil {
		delete(w.asks, id)
		cancel()
		if w.told.limits[id] {
			delete(w.told.limits, id)
			w.update(acp.ToolCall{Update: acp.ToolCallUpdate, ID: id, Status: acp.Completed})
		}
	}
}

// decide hands an answer on. again, if it is not nil, asks once more where the
// answer does not fit.
func (w *window) decide(p protocol.ApproveParams, again func(why string)) {
	away(w, func() (protocol.ApproveAccepted, error) {
		return persist(w.ctx, w, protocol.Approve, p)
	}, func(_ protocol.ApproveAccepted, err error) {
		var wire *protocol.Error
		known := errors.As(err, &wire)
		switch {
		case err == nil, known && wire.Reason() == protocol.ApprovalResolved: // somebody was first
		case known && wire.Code == protocol.InvalidPayload && again != nil:
			again(wire.Message)
		default:
			w.b.Log("approve %s: %v", p.ApprovalID, err)
			if !known { // no daemon was told: the next one asks again
				delete(w.asks, p.ApprovalID)
			}
			w.notice("error", err.Error())
		}
	})
}

// form has the editor show a form.
func (w *window) form(ctx context.Context, a protocol.Approval, message string) {
	ask := acp.FormParams{SessionID: w.id, ToolCallID: a.ToolCallID, Mode: "form", Message: message, Schema: a.Schema}
	away(w, func() (r acp.FormResult, err error) {
		raw, err := w.b.conn.Call(ctx, acp.CreateElicitation, ask)
		if err == nil {
			err = json.Unmarshal(raw, &r)
		}
		return r, err
	}, func(r acp.FormResult, err error) {
		p := protocol.ApproveParams{ApprovalID: a.ApprovalID, Option: r.Action}
		switch {
		case errors.Is(err, errAnswered):
		case err != nil:
			w.b.Log("%s: %v; %s waits for another client", acp.CreateElicitation, err, a.ApprovalID)
		case r.Action == "accept":
			if r.Content.Kind() == '{' {
				p.Content = r.Content
			}
			w.decide(p, func(why string) { w.form(ctx, a, a.Reason+"\n\n"+why) })
		case r.Action == "decline", r.Action == "cancel":
			w.decide(p, nil)
		}
	})
}

// permission is an approval as editors are asked it.
func (w *window) permission(a protocol.Approval) acp.PermissionParams {
	p := acp.PermissionParams{SessionID: w.id}
	if a.Kind != protocol.ApprovalBudget {
		p.ToolCall = describe(protocol.ToolCall{ID: a.ToolCallID, Name: a.ToolName, Arguments: a.Arguments}, a.Workdir)
	} else {
		p.ToolCall = w.limit(a)
	}
	p.ToolCall.Status = acp.Pending
	says := []string{approval.WhyAsked(a)}
	if a.Path != "" {
		says = append(says, "The path leads to "+plaintext.RevealLine(a.Path))
	}
	says = append(says, wholeCommand(a)...)
	p.ToolCall.Content = append(p.ToolCall.Content, acp.ToolText(strings.Join(says, "\n")))
	for _, o := range a.Options {
		if approval.IsForm(a) && o.ID == protocol.OptionAccept { // takes a form, which the editor cannot show
			continue
		}
		p.Options = append(p.Options, permissionOption(o))
	}
	return p
}

// wholeCommand is a command that its title does not show as it is: in a fence, in which
// nothing of it is taken for Markdown.
func wholeCommand(a protocol.Approval) []string {
	var args struct {
		Command string `json:"command"`
	}
	if json.Unmarshal(a.Arguments, &args) != nil || args.Command == "" || line(a.ToolName+" "+args.Command) == a.ToolName+
		" "+args.Command {
		return nil
	}
	shown, _ := plaintext.Reveal(args.Command)
	fence := "```"
	for strings.Contains(shown, fence) {
		fence += "`"
	}
	return []string{fence, shown, fence}
}

// limit is an approval that is about no call: it is shown as one of its own.
func (w *window) limit(a protocol.Approval) acp.ToolCall {
	title := "The run has reached a limit"
	if a.Reason != "" {
		title = line(a.Reason)
	}
	shown := acp.ToolCall{Update: acp.NewToolCall, ID: a.ApprovalID, Title: title, Kind: "other", Status: acp.Pending}
	w.update(shown)
	if w.told.limits == nil {
		w.told.limits = map[string]bool{}
	}
	w.told.limits[a.ApprovalID] = true
	shown.Update = ""
	return shown
}

// names are those of the options that need no pattern.
var names = map[string]string{
	"once": "Allow once", "continue": "Go on", "deny": "Deny",
	"decline": "Do not answer the form", "cancel": "Put the form away",
}

func permissionOption(o protocol.ApprovalOption) acp.PermissionOption {
	out := acp.PermissionOption{ID: o.ID, Name: names[o.ID], Kind: acp.AllowOnce}
	switch {
	case o.Decision == protocol.DecisionDeny:
		out.Kind = acp.RejectOnce
	case o.ID == "session":
		out.Kind, out.Name = acp.AllowAlways, "Allow in this session: "+plaintext.RevealLine(o.Pattern)
	case o.ID == "always":
		out.Kind, out.Name = acp.AllowAlways, "Always allow: "+plaintext.RevealLine(o.Pattern)
	}
	if out.Name == "" {
		out.Name = o.ID
	}
	return out
}
