package slash

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/client"
	"noused/internal/client/approval"
	"noused/internal/protocol"
	"noused/internal/tui/cell"
)

// Approve answers an approval.
func Approve(ctx context.Context, p Place, params protocol.ApproveParams) error {
	if params.Content != nil && !params.Content.IsValid() {
		return errors.New("what fills in a form has to be a JSON object")
	}
	_, err := Ask(ctx, p, protocol.Approve, params)
	return err
}

var ApprovalModes = []string{
	string(protocol.ApprovalsAsk), string(protocol.ApprovalsAuto),
	string(protocol.ApprovalsDeny),
}

func chooseApprovals(ctx context.Context, p Place, arg string) Outcome {
	if arg == "" {
		if err := client.AsksApprovals(p.State); err != nil {
			return informed("approvals: %s", err)
		}
		return informed("approvals: %s", p.State.ApprovalMode)
	}
	if !slices.Contains(ApprovalModes, arg) {
		return Failed(fmt.Errorf("approvals %s: want one of %s", cell.Line(arg, 20), strings.Join(ApprovalModes, ", ")))
	}
	r, err := Ask(ctx, p, protocol.SetApprovalMode, protocol.SetApprovalModeParams{
		Scope: p.Scope(),
		Mode:  protocol.ApprovalMode(arg),
	})
	if err != nil {
		return Failed(Explain(err, "to ask"))
	}
	return informed("approvals: %s", map[protocol.ApprovalMode]string{
		protocol.ApprovalsAsk:  "ask; what needs an answer waits for one",
		protocol.ApprovalsAuto: "auto; what would be asked is allowed, what is denied stays so",
		protocol.ApprovalsDeny: "deny; what would be asked is denied",
	}[r.Mode])
}

var errNoApproval = errors.New("nothing waits for an answer in this session")

// approveCommand answers the approval of the session with an option that allows,
// without one with that for once.
func approveCommand(ctx context.Context, p Place, option string) Outcome {
	a := approval.Of(p.State, p.State.SessionID)
	if a == nil {
		return Failed(errNoApproval)
	}
	var all []string
	for _, o := range a.Options {
		if o.Decision == protocol.DecisionAllow {
			all = append(all, o.ID)
		}
	}
	option, content, _ := strings.Cut(option, " ")
	if option == "" && len(all) > 0 {
		option = all[0]
	}
	if !slices.Contains(all, option) {
		return Failed(fmt.Errorf("approve %s: this approval takes %s", cell.Line(option, 20),
			cmp.Or(strings.Join(all, ", "), "no yes")))
	}
	params := protocol.ApproveParams{ApprovalID: a.ApprovalID, Option: option}
	if content = strings.TrimSpace(content); content != "" {
		params.Content = jsontext.Value(content)
	}
	return Outcome{Err: Approve(ctx, p, params)}
}

func denyCommand(ctx context.Context, p Place, reason string) Outcome {
	a := approval.Of(p.State, p.State.SessionID)
	if a == nil {
		return Failed(errNoApproval)
	}
	no := approval.No(*a)
	if no == nil {
		return Failed(errors.New("this approval takes no denial"))
	}
	return Outcome{Err: Approve(ctx, p, protocol.ApproveParams{ApprovalID: a.ApprovalID, Option: no.ID, Reason: reason})}
}
