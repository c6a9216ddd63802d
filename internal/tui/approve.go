package tui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/client"
	"noused/internal/client/actions"
	"noused/internal/client/approval"
	"noused/internal/format"
	"noused/internal/protocol"
	"noused/internal/tui/cell"
	"noused/internal/tui/question"
)

// approved is the reply to an answer.
type approved struct {
	id  string
	err error
}

// questionOf is what a session waits for, nil if it is nothing.
func questionOf(s protocol.State, session string) *protocol.Approval {
	i := slices.IndexFunc(s.PendingApprovals, func(a protocol.Approval) bool { return a.SessionID == session })
	if i < 0 {
		return nil
	}
	return &s.PendingApprovals[i]
}

// elsewhere are the questions of other sessions.
func elsewhere(s protocol.State) []protocol.Approval {
	return slices.DeleteFunc(slices.Clone(s.PendingApprovals), func(a protocol.Approval) bool {
		return a.SessionID == s.SessionID
	})
}

// resolution says how an approval ended, and who ended it.
func resolution(e protocol.Status) string {
	text := "approval: " + string(e.Outcome)
	if e.Option != "" && e.Option != "deny" {
		text += " (" + cell.Line(e.Option, 40) + ")"
	}
	who, word := approval.ResolvedBy(e.By)
	switch {
	case word == protocol.BySteer:
		return "not run: your message was sent to the model instead"
	case word != "":
		text += map[string]string{
			protocol.ByTimeout: ": nobody answered in time", protocol.ByAbort: ": the run was aborted",
			protocol.ByDelete: ": the session was deleted",
		}[word]
	case who.PID > 0:
		text += fmt.Sprintf(" by %s, process %d", cmp.Or(cell.Line(who.Comm, 40), "another client"), who.PID)
	}
	return text
}

// tendQuestion shows what the session on the screen waits for.
func (m *model) tendQuestion() {
	m.question.Show(questionOf(m.state, m.state.SessionID))
	if m.board != nil {
		for _, d := range m.board.daemons {
			list := d.site.asked
			if d.site == m.site {
				list = m.state.PendingApprovals
			}
			m.board.SetQuestions(d.host, list)
		}
	}
}

// approvalEvent keeps the questions up to date, and says how one ended.
func (m *model) approvalEvent(e protocol.Status) {
	shown := m.question.ID()
	m.state.PendingApprovals = approval.Pending(m.state.PendingApprovals, e)
	if e.Code != protocol.StatusApprovalResolved || e.SessionID != m.state.SessionID {
		return
	}
	text := resolution(e)
	if e.ApprovalID == m.answeredHere && e.Outcome != protocol.OutcomeWithdrawn {
		text = "approval: " + string(e.Outcome)
	}
	if shown == e.ApprovalID || shown == "" {
		m.talk.Notice("info", text)
	}
}

// askedElsewhere takes in what the board hears of the questions of other sessions. Those
// of daemons that are not shown happenedAt takes in.
func (m *model) askedElsewhere(at *site, e protocol.Status) {
	switch {
	case at != m.site:
	case e.SessionID == m.state.SessionID:
		return // which the session's own events tell, in their order
	default:
		m.state.PendingApprovals = approval.Pending(m.state.PendingApprovals, e)
	}
	if e.Code == protocol.StatusApprovalResolved {
		m.board.Tell(resolution(e), false)
	}
}

// pressQuestion lets the question have a key or a paste.
func (m *model) pressQuestion(msg tea.Msg) {
	m.sendAnswer(m.site, m.question.Update(msg))
}

func (m *model) sendAnswer(at *site, a question.Answer) {
	if a.ID == "" {
		return
	}
	if at == m.site && m.offline != nil {
		m.question.Refused(a.ID)
		m.talk.Notice("error", "not connected to the daemon: the question is not answered")
		return
	}
	m.answeredHere = a.ID
	m.keep(m.at(at), func(ctx context.Context, p place) tea.Msg { return approved{a.ID, approve(ctx, p, a)} })
}

func approve(ctx context.Context, p place, a question.Answer) error {
	params := protocol.ApproveParams{ApprovalID: a.ID, Option: a.Option, Reason: a.Reason}
	if a.Content != "" {
		if params.Content = jsontext.Value(a.Content); !params.Content.IsValid() {
			return errors.New("what fills in a form has to be a JSON object")
		}
	}
	_, err := actions.Answer(ctx, p, params)
	return err
}

// approved reports an answer that was not taken. Who was first is told by the
// event.
func (m *model) approved(a approved) {
	if a.err == nil {
		return
	}
	m.question.Refused(a.id)
	if m.answeredHere == a.id {
		m.answeredHere = ""
	}
	if m.shownBoard() != nil {
		m.board.Refused(a.id, describe(a.err))
	}
	m.talk.Notice("error", describe(a.err))
}

// turnToQuestion gives the keys to the question, or, from there, to the input.
func (m *model) turnToQuestion() {
	switch {
	case m.question.Focused():
		m.question.Blur()
	case !m.question.Focus():
		m.talk.Notice("info", "nothing waits for an answer here")
	default:
		m.menu.close()
	}
}

// nextQuestion shows the session that asks next after this one, the oldest question
// first.
func (m *model) nextQuestion() {
	others := m.elsewhere()
	if len(others) == 0 {
		m.talk.Notice("info", "no other session has a question")
		return
	}
	next := others[0]
	for i, a := range m.state.PendingApprovals {
		if a.SessionID == m.state.SessionID { // which is not among the others
			next = others[i%len(others)]
			break
		}
	}
	m.move(next.site, next.SessionID)
}

// questionLines are the question above the input in at most height lines.
func (m *model) questionLines(height int) []string {
	if m.question.ID() == "" || m.over != nil || !m.known {
		return nil
	}
	key, _, _ := strings.Cut(m.keys.shown("answer"), ", ")
	return m.question.View(m.width, height, cmp.Or(key, "/approve"))
}

// questionParts are what the first line says of approvals and of the end of
// them.
func (m *model) questionParts() (parts []part) {
	if n := len(m.elsewhere()); n > 0 {
		parts = append(parts, part{m.keyed("next-question", format.Count(n, "question")+" elsewhere"), m.theme.Warn, 1})
	}
	if mode := m.state.ApprovalMode; mode != "" && mode != protocol.ApprovalsAsk {
		parts = append(parts, part{"approvals:" + cell.Line(string(mode), 10), m.theme.Warn, 1})
	}
	return parts
}

// The commands.

// showApprovals lists what waits, as nous approvals does.
func showApprovals(_ context.Context, p place, id string) outcome {
	waiting := p.state.PendingApprovals
	found := actions.PendingNamed(waiting, id)
	switch {
	case slices.Contains(actions.ApprovalModes, id):
		return failed(fmt.Errorf("/approvals lists what waits: want /set-approval-mode %s", id))
	case len(waiting) == 0:
		return informed("no approval waits")
	case len(found) == 0:
		return failed(fmt.Errorf("no approval that waits has the id %s", cell.Line(id, 80)))
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

func chooseApprovals(ctx context.Context, p place, arg string) outcome {
	if arg == "" {
		if err := client.AsksApprovals(p.state); err != nil {
			return informed("approvals: %s", err)
		}
		return informed("approvals: %s", p.state.ApprovalMode)
	}
	if !slices.Contains(actions.ApprovalModes, arg) {
		return failed(fmt.Errorf("approvals %s: want one of %s", cell.Line(arg, 20),
			strings.Join(actions.ApprovalModes, ", ")))
	}
	r, err := actions.SetApprovalMode(ctx, p, p.scope(), arg)
	if err != nil {
		return failed(explain(err, "to ask"))
	}
	return informed("approvals: %s", map[protocol.ApprovalMode]string{
		protocol.ApprovalsAsk:  "ask; what needs an answer waits for one",
		protocol.ApprovalsAuto: "auto; what would be asked is allowed, what is denied stays so",
		protocol.ApprovalsDeny: "deny; what would be asked is denied",
	}[r.Mode])
}

var errNoQuestion = errors.New("nothing waits for an answer in this session")

// approveCommand answers the question of the session with an option that allows,
// without one with that for once.
func approveCommand(ctx context.Context, p place, option string) outcome {
	a := questionOf(p.state, p.state.SessionID)
	if a == nil {
		return failed(errNoQuestion)
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
		return failed(fmt.Errorf("approve %s: this question takes %s", cell.Line(option, 20),
			cmp.Or(strings.Join(all, ", "), "no yes")))
	}
	return outcome{err: approve(ctx, p, question.Answer{
		ID: a.ApprovalID, Option: option,
		Content: strings.TrimSpace(content),
	})}
}

func denyCommand(ctx context.Context, p place, reason string) outcome {
	a := questionOf(p.state, p.state.SessionID)
	if a == nil {
		return failed(errNoQuestion)
	}
	no := approval.No(*a)
	if no == nil {
		return failed(errors.New("this question takes no denial"))
	}
	return outcome{err: approve(ctx, p, question.Answer{ID: a.ApprovalID, Option: no.ID, Reason: reason})}
}

// The plain mode.

// approvalEvent says an approval, or how it ended.
func (p *plain) approvalEvent(e protocol.Status) {
	p.state.PendingApprovals = approval.Pending(p.state.PendingApprovals, e)
	if e.Code == protocol.StatusApprovalResolved && e.SessionID == p.state.SessionID {
		p.sayf("%s", resolution(e))
	}
	p.askAloud()
}

// askAloud says the questions that were not said: the one of this session in full,
// and how many there are elsewhere.
func (p *plain) askAloud() {
	if a := questionOf(p.state, p.state.SessionID); a != nil && a.ApprovalID != p.asked {
		p.asked = a.ApprovalID
		for _, line := range question.Lines(*a) {
			p.sayf("%s", line)
		}
		if approval.IsForm(*a) {
			p.sayf("/approve accept {\"NAME\":VALUE} fills it in, /deny does not")
		} else {
			p.sayf("/approve [OPTION] allows it, /deny [REASON] does not")
		}
	}
	others := elsewhere(p.state)
	if len(others) > p.others {
		p.sayf("%s in other sessions; the oldest: /switch %s", format.Count(len(others), "question"), others[0].SessionID)
	}
	p.others = len(others)
}
