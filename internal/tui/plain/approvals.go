package plain

import (
	"noused/internal/client/approval"
	"noused/internal/format"
	"noused/internal/protocol"
	"noused/internal/tui/approvals"
)

// approvalEvent says an approval, or how it ended.
func (p *plain) approvalEvent(e protocol.Status) {
	p.state.PendingApprovals = approval.Pending(p.state.PendingApprovals, e)
	if e.Code == protocol.StatusApprovalResolved && e.SessionID == p.state.SessionID {
		p.sayf("%s", approval.Resolution(e))
	}
	p.askAloud()
}

// askAloud says the approvals that were not said: the one of this session in full,
// and how many there are elsewhere.
func (p *plain) askAloud() {
	if a := approval.Of(p.state, p.state.SessionID); a != nil && a.ApprovalID != p.asked {
		p.asked = a.ApprovalID
		for _, line := range approvals.Lines(*a) {
			p.sayf("%s", line)
		}
		if approval.IsForm(*a) {
			p.sayf("/approve accept {\"NAME\":VALUE} fills it in, /deny does not")
		} else {
			p.sayf("/approve [OPTION] allows it, /deny [REASON] does not")
		}
	}
	others := approval.Elsewhere(p.state)
	if len(others) > p.others {
		p.sayf("%s in other sessions; the oldest: /switch %s", format.Count(len(others), "approval"), others[0].SessionID)
	}
	p.others = len(others)
}
