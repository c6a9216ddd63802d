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
	"noused/internal/client/actions"
	"noused/internal/client/approval"
	"noused/internal/protocol"
	"noused/internal/tui/cell"
)

// Approve answers an approval.
func Approve(ctx context.Context, p Place, params protocol.ApproveParams) error {
	if params.Content != nil && !params.Content.IsValid() {
		return errors.New("what fills in a form has to be a JSON object")
	}
	_, err := actions.Answer(ctx, p, params)
	return err
}

// showApprovals lists what waits, as nous approvals does.
func showApprovals(_ context.Context, p Place, id string) Outcome {
	waiting := p.State.PendingApprovals
	found := actions.PendingNamed(waiting, id)
	switch {
	case slices.Contains(actions.ApprovalModes, id):
		return Failed(fmt.Errorf("/approvals lists what waits: want /set-approval-mode %s", id))
	case len(waiting) == 0:
		return informed("no approval waits")
	case len(found) == 0:
		return Failed(fmt.Errorf("no approval that waits has the id %s", cell.Line(id, 80)))
	case id != "" && len(found) == 1:
		return informed("%s in %s\n%s", found[0].ApprovalID, found[0].SessionID,
			strings.TrimSuffix(approval.Text(found[0]), "\n"))
	}
	lines := make([]string, len(found))
	for i, one := range found {
		lines[i] = one.ApprovalID + "  " + one.SessionID + "  " + approval.Summary(one, 100)
	}
	return informed("%s", strings.Join(lines, "\n"))
}

func chooseApprovals(ctx context.Context, p Place, arg string) Outcome {
	if arg == "" {
		if err := client.AsksApprovals(p.State); err != nil {
			return informed("approvals: %s", err)
		}
		return informed("approvals: %s", p.State.ApprovalMode)
	}
	if !slices.Contains(actions.ApprovalModes, arg) {
		return Failed(fmt.Errorf("approvals %s: want one of %s", cell.Line(arg, 20),
			strings.Join(actions.ApprovalModes, ", ")))
	}
	r, err := actions.SetApprovalMode(ctx, p, p.Scope(), arg)
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
