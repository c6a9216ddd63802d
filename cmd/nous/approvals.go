package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"noused/internal/client"
	"noused/internal/client/actions"
	"noused/internal/client/approval"
	"noused/internal/client/lookup"
	"noused/internal/client/plain"
	"noused/internal/client/runs"
	"noused/internal/cmdline"
	"noused/internal/format"
	"noused/internal/plaintext"
	"noused/internal/protocol"
)

var allowing = []string{
	protocol.OptionOnce, protocol.OptionSession, protocol.OptionAlways, protocol.OptionContinue,
	protocol.OptionAccept, protocol.OptionDecline, protocol.OptionCancel,
}

func (a *app) approvalsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "approvals [ID]",
		Short: "List the approvals that wait for you, or show one in full",
		Long: `List the approvals of all runs that wait for an answer, the oldest first. With
an ID, or a beginning of it, show that one: its arguments in full, and what
would change. --session lists one session's. --json prints each approval as it
is on the wire.

nous approve and nous deny answer. An approval waits for as long as its run does,
over nights and restarts.`,
		Example: `  nous approvals
  nous approvals apr-1-ses-0198c5f2`,
		Args:              cmdline.Wants(0, 1, "ID, the id of an approval, or nothing"),
		ValidArgsFunction: a.approvalIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.several() {
				return a.approvalsOfHosts(cmd.Context(), args)
			}
			q, err := a.waitingApprovals(cmd.Context())
			if err != nil {
				return err
			}
			q = q.of(a.session)
			if len(args) == 0 {
				a.printApprovals(q, time.Now())
				return nil
			}
			one, err := q.one(args[0])
			if one.Shortened {
				q, err = a.waitingIn(cmd.Context(), one.SessionID)
				one, _ = q.one(one.ApprovalID)
			}
			switch {
			case err != nil:
				return err
			case one.ApprovalID == "":
				return noApproval(args[0])
			case a.JSON:
				a.JSONLine(q.raw[slices.IndexFunc(q.list, func(o protocol.Approval) bool {
					return o.ApprovalID == one.ApprovalID
				})])
			default:
				a.printApproval(one, time.Now())
			}
			return nil
		},
	}
	return cmd
}

func (a *app) approveCommand() *cobra.Command {
	var content string
	cmd := &cobra.Command{
		Use:   "approve [ID] [once|session|always|accept|decline|cancel]",
		Short: "Say yes to what a run asks",
		Long: `Say yes to what a run asks. ID is the approval's, or a beginning of it; nous
approvals lists them. Where --session, $NOUS_SESSION, --active or --workdir names a
session, its approval is meant. Where none does, nous approve without an ID answers
the only approval that waits, and only if it is of a session of this folder. A
whole ID always says which. The run goes on at once, and the first answer counts,
wherever it comes from.

once allows this call, and is what you say without saying it. session allows
from now on in this session what the approval says; always keeps that as a rule
in rules.toml. nous prints what was allowed. A run that has reached a limit goes
on with continue, which is what approve means there.

A form of a tool is filled in with accept: with --content, a JSON object, or, on a
terminal, field by field; what is left out has its default. decline says no, and
cancel neither. The tool's call goes on with the answer.`,
		Example: `  nous approve
  nous approve apr-1-ses-0198c5f2 session
  nous approve apr-2-ses-0198c5f2 accept --content '{"guests":3}'`,
		Args: cmdline.Wants(0, 2,
			"ID, the id of an approval, and then once, session, always, continue, accept, decline or cancel"),
		ValidArgsFunction: a.approveWords,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, option, err := approveArgs(args)
			if err != nil {
				return err
			}
			return a.answerApproval(cmd.Context(), id, option, "", content)
		},
	}
	cmd.Flags().StringVar(&content, "content", "", "what fills in a form: a `JSON` object")
	return cmd
}

// approveArgs tells ids from options: a word that is an option is never an id.
func approveArgs(args []string) (id, option string, err error) {
	if len(args) > 0 && !slices.Contains(allowing, args[0]) {
		id, args = args[0], args[1:]
	}
	switch {
	case len(args) == 0:
		return id, "", nil
	case len(args) > 1:
		return "", "", cmdline.Errorf("%s %s: the ID comes first", args[0], args[1])
	case !slices.Contains(allowing, args[0]):
		return "", "", cmdline.Errorf(
			"%s: want once, session, always or continue, of a form accept, decline or cancel; nous deny says no", args[0])
	}
	return id, args[0], nil
}

func (a *app) denyCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "deny [ID]",
		Short: "Say no to what a run asks",
		Long: `Say no to what a run asks. ID is the approval's, or a beginning of it; without it
the same approval is meant as by nous approve. The call is not made and the run goes on;
the model reads the reason. A run that has reached a limit ends.`,
		Example:           "  nous deny apr-1-ses-0198c5f2\n  nous deny --reason 'push to a branch'",
		Args:              cmdline.Wants(0, 1, "ID, the id of an approval, or nothing"),
		ValidArgsFunction: a.approvalIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.answerApproval(cmd.Context(), strings.Join(args, ""), protocol.OptionDeny, reason, "")
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "what the model reads: `text` of at most 4096 bytes")
	return cmd
}

func (a *app) setApprovalModeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "set-approval-mode ask|auto|deny",
		Short: "Ask, allow or deny approvals in a session",
		Long: `Ask, allow or deny approvals in a session, from the next one on. ask waits for a
person, auto allows each one, deny denies each one. auto never lifts what a rule
denies, nor a limit.`,
		Example:   "  nous set-approval-mode deny",
		Args:      cmdline.Wants(1, 1, "ask, auto or deny"),
		ValidArgs: actions.ApprovalModes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(actions.ApprovalModes, args[0]) {
				return cmdline.Errorf("%s: want ask, auto or deny", args[0])
			}
			scope, err := a.scope(cmd.Context(), needOne)
			if err != nil {
				return err
			}
			_, err = act(a, func(c client.Sender) (protocol.ApprovalModeAccepted, error) {
				return actions.SetApprovalMode(cmd.Context(), c, scope, args[0])
			}, func(r protocol.ApprovalModeAccepted) { a.Println(string(r.Mode)) })
			return err
		},
	}
}

// waitingApprovals are those that wait, the oldest first, and the sessions they are of.
type waitingApprovals struct {
	list       []protocol.Approval
	raw        []jsontext.Value // as they are on the wire
	sessions   map[string]protocol.SessionInfo
	active     string // the session of the state
	incomplete bool   // a daemon that has just started knows of no more yet
}

// mostStates are asked for while a daemon that has just started still reads what its
// runs have asked. Each comes when all is read, or after some seconds.
const mostStates = 5

const incomplete = "the daemon has just started and still reads sessions, which may ask something, too"

// waitingApprovals asks for those of the daemon, or with --session of one session. It waits
// for a daemon that still reads them, for a while.
func (a *app) waitingApprovals(ctx context.Context) (q waitingApprovals, err error) {
	q, err = a.waitingNow(ctx)
	if q.incomplete {
		a.Notef(incomplete + "; waiting for them")
	}
	for n := 1; q.incomplete && err == nil && n < mostStates; n++ {
		q, err = a.waitingNow(ctx)
	}
	return q, err
}

// waitingNow are those that the daemon knows.
func (a *app) waitingNow(ctx context.Context) (q waitingApprovals, err error) {
	all, err := lookup.Sessions(ctx, a.daemonSender(), "")
	if err != nil || len(all) == 0 { // get_state would make one
		return q, err
	}
	if q, err = a.waitingIn(ctx, ""); err != nil {
		return q, err
	}
	q.sessions = map[string]protocol.SessionInfo{}
	for _, s := range all {
		q.sessions[s.SessionID] = s
	}
	return q, nil
}

// waitingIn are those in the state of a session, "" the active one. Its own is
// there in full.
func (a *app) waitingIn(ctx context.Context, session string) (q waitingApprovals, err error) {
	p := protocol.GetStateParams{Scope: protocol.Scope{SessionID: session}}
	payload, err := client.Raw(ctx, a.daemonSender(), protocol.GetState, p)
	if err != nil {
		return q, err
	}
	var state struct {
		SessionID  string                `json:"session_id"`
		Mode       protocol.ApprovalMode `json:"approval_mode"`
		Pending    []jsontext.Value      `json:"pending_approvals"`
		Incomplete bool                  `json:"approvals_incomplete"`
	}
	if err := json.Unmarshal(payload, &state); err != nil {
		return q, fmt.Errorf("get_state: decode reply: %w", err)
	}
	if err := client.AsksApprovals(protocol.State{ApprovalMode: state.Mode}); err != nil {
		return q, err
	}
	q.active, q.incomplete = state.SessionID, state.Incomplete
	return q, q.addPending(state.Pending)
}

func (q *waitingApprovals) addPending(pending []jsontext.Value) error {
	for _, raw := range pending {
		var one protocol.Approval
		if err := json.Unmarshal(raw, &one); err != nil {
			return fmt.Errorf("get_state: decode pending_approvals: %w", err)
		}
		q.list, q.raw = append(q.list, one), append(q.raw, raw)
	}
	return nil
}

// one is the approval that an id or the beginning of one means, "" the only one. It
// is empty where none of those that wait is meant.
func (q waitingApprovals) one(id string) (protocol.Approval, error) {
	var found []protocol.Approval
	for _, one := range q.list {
		if one.ApprovalID == id {
			return one, nil
		}
		if id == "" || means(id, one.ApprovalID) {
			found = append(found, one)
		}
	}
	switch {
	case q.incomplete && (id == "" || len(found) > 0):
		return protocol.Approval{}, errors.New(incomplete + ": give the whole id, or try again")
	case len(found) == 1:
		return found[0], nil
	case len(found) == 0 && id == "":
		return protocol.Approval{}, errors.New("no approval waits")
	case len(found) == 0:
		return protocol.Approval{}, nil
	case id == "":
		return protocol.Approval{}, fmt.Errorf("%d approvals wait: say which, %s", len(found), idsOf(found))
	}
	return protocol.Approval{}, fmt.Errorf("%q may be any of %d approvals: %s", id, len(found), idsOf(found))
}

// means reports that the beginning of an id means that one: apr-1 is not apr-12.
func means(beginning, id string) bool {
	rest, ok := strings.CutPrefix(id, beginning)
	numbered := strings.Count(beginning, "-") > 1
	return ok && (rest == "" || numbered || strings.HasPrefix(rest, "-"))
}

func noApproval(id string) error {
	return protocol.Rejectf(protocol.NoSuchApproval, "approval_id: no approval that waits has the id %.80q", id)
}

func idsOf(list []protocol.Approval) string {
	const most = 4
	var ids []string
	for i, one := range list {
		if i == most {
			ids = append(ids, "…")
			break
		}
		ids = append(ids, one.ApprovalID)
	}
	return strings.Join(ids, ", ")
}

// answerApproval sends an answer and prints what it allows. An id that is
// none of those that wait goes to the daemon as it is: it knows the answered ones.
func (a *app) answerApproval(ctx context.Context, id, option, reason, content string) error {
	one, err := a.approvalToAnswer(ctx, id, option)
	if err != nil {
		return err
	}
	p := protocol.ApproveParams{ApprovalID: one.ApprovalID, Option: cmp.Or(option, approval.Yes(one)), Reason: reason}
	if approval.IsForm(one) && option == protocol.OptionDeny {
		p.Option = protocol.OptionDecline
	}
	switch {
	case content != "":
		p.Content = jsontext.Value(content)
		if !p.Content.IsValid() || p.Content.Kind() != '{' {
			return cmdline.Errorf("--content: want a JSON object")
		}
	case approval.IsForm(one) && p.Option == protocol.OptionAccept && a.personThere():
		if p.Content, err = runs.FillIn(ctx, a.Printer, a.in, one); err != nil {
			return err
		}
	}
	_, err = act(a, func(c client.Sender) (protocol.ApproveAccepted, error) { return actions.Answer(ctx, c, p) },
		func(r protocol.ApproveAccepted) { a.Println(approval.AllowedText(one, p.Option, r.Outcome)) })
	return err
}

// approvalToAnswer is the approval that an id, or the beginning of one, means: of the
// session that the command names, where it names one. Where none is named and the id is not
// whole it has to be the only one that waits, and of a session of this folder: nobody
// answers another session's approval without having said so.
func (a *app) approvalToAnswer(ctx context.Context, id, option string) (one protocol.Approval, err error) {
	named := a.session != "" || a.active || a.workdir != "" || os.Getenv("NOUS_SESSION") != ""
	what := needIfAny
	if named {
		what = needOne
	}
	scope, unknown := a.scope(ctx, what) // first: to ask for the state may make a session
	if unknown != nil && (named || id == "") {
		return one, unknown
	}
	q, err := a.waitingApprovals(ctx)
	if err != nil {
		return one, err
	}
	if i := slices.IndexFunc(q.list, func(one protocol.Approval) bool { return one.ApprovalID == id }); i >= 0 {
		return q.list[i], nil
	}
	if unknown != nil { // a whole id needs no session
		return one, unknown
	}
	if named {
		session := cmp.Or(scope.SessionID, q.active)
		if q = q.of(session); id == "" && len(q.list) == 0 && !q.incomplete {
			return one, fmt.Errorf("no approval waits in session %s", session)
		}
	}
	if one, err = q.one(id); err != nil {
		return one, err
	}
	if one.ApprovalID == "" { // the daemon knows the answered ones
		one.ApprovalID = a.wholeApproval(ctx, id)
		return one, nil
	}
	if named {
		return one, nil
	}
	here := scope.SessionID
	if dir, _ := a.folder(); dir == "" { // on another machine, where nobody stands anywhere
		here = cmp.Or(here, q.active)
	}
	switch {
	case here == one.SessionID:
	case q.sessions[here].Workdir == one.Workdir:
		a.Notef("of session %s", one.SessionID)
	default:
		verb := "approve"
		if option == protocol.OptionDeny {
			verb = "deny"
		}
		err = fmt.Errorf("the approval that waits is of another session, %s in %s: nous%s %s %s answers it",
			one.SessionID, plaintext.RevealLine(one.Workdir), a.flags(), verb, one.ApprovalID)
	}
	return one, err
}

// of are the approvals of one session, all of them with "".
func (q waitingApprovals) of(session string) waitingApprovals {
	if session == "" {
		return q
	}
	only := q
	only.list, only.raw = nil, nil
	for i, one := range q.list {
		if one.SessionID == session {
			only.list, only.raw = append(only.list, one), append(only.raw, q.raw[i])
		}
	}
	return only
}

// wholeApproval is the id of an approval of this folder's session that apr-N, or
// more of it, means; the daemon knows what was answered there.
func (a *app) wholeApproval(ctx context.Context, id string) string {
	scope, err := a.scope(ctx, needIfAny)
	number, ok := strings.CutPrefix(id, "apr-")
	if err != nil || scope.SessionID == "" || !ok {
		return id
	}
	number, _, _ = strings.Cut(number, "-")
	if whole := "apr-" + number + "-" + scope.SessionID; strings.HasPrefix(whole, id) {
		return whole
	}
	return id
}

func (a *app) approvalIDs(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return completions(nil, nil)
	}
	q, err := a.waitingNow(cmd.Context())
	var words []string
	for _, one := range q.of(a.session).list {
		words = append(words, one.ApprovalID+"\t"+approval.Summary(one, 40))
	}
	return completions(words, err)
}

// approveWords offers ids, and behind one its options.
func (a *app) approveWords(cmd *cobra.Command, args []string, start string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return a.approvalIDs(cmd, args, start)
	}
	if len(args) > 1 {
		return completions(nil, nil)
	}
	q, err := a.waitingNow(cmd.Context())
	one, _ := q.of(a.session).one(args[0])
	var words []string
	for _, o := range one.Options {
		if o.Decision == protocol.DecisionAllow || approval.IsForm(one) {
			words = append(words, o.ID+"\t"+o.Pattern)
		}
	}
	return completions(words, err)
}

// approvalsOf is what a prompt says of its run's approvals: where nobody sees them,
// they are denied unless the flag says otherwise. "" is ask.
func (a *app) approvalsOf(flag string) (protocol.ApprovalMode, error) {
	switch mode := protocol.ApprovalMode(flag); {
	case mode == protocol.ApprovalsAsk, mode == protocol.ApprovalsDeny:
		return mode, nil
	case flag == allowAll:
		return protocol.ApprovalsAsk, nil
	case flag != "":
		return "", cmdline.Errorf("--approvals %s: want allow, ask or deny", flag)
	case a.personThere():
		return "", nil
	}
	return protocol.ApprovalsDeny, nil
}

// mustAsk refuses a daemon that would make every call without asking, where somebody
// reports how approvals end.
func (a *app) mustAsk(ctx context.Context, scope protocol.Scope) error {
	state, err := request(ctx, a, protocol.GetState, protocol.GetStateParams{Scope: scope})
	if err == nil {
		err = client.AsksApprovals(state)
	}
	return err
}

// What an approval looks like.

// printApprovals lists approvals, each in a few lines, or as they are on the wire.
func (a *app) printApprovals(q waitingApprovals, now time.Time) {
	switch {
	case q.incomplete:
		defer a.Notef(incomplete + ": list them again")
	case len(q.list) == 0 && !a.JSON:
		a.Notef("no approval waits")
	}
	if a.JSON {
		for _, raw := range q.raw {
			a.JSONLine(raw)
		}
		return
	}
	for i, one := range q.list {
		if i > 0 {
			a.Println("")
		}
		a.printWaiting("", one, q.sessions[one.SessionID], now)
	}
}

// printWaiting prints an approval of a list; where is the host that it is of, or "".
func (a *app) printWaiting(where string, one protocol.Approval, s protocol.SessionInfo, now time.Time) {
	a.Spans(plain.Span{Text: plain.Cell(where)}, plain.Span{Text: plain.Cell(one.ApprovalID), Look: plain.Bold},
		plain.Span{Text: "  " + format.Age(one.CreatedAt, now), Look: plain.Dim})
	a.Println("  " + strings.Join(slices.DeleteFunc([]string{
		one.SessionID, plain.OneLine(s.Title, 40),
		plaintext.RevealLine(one.Workdir),
	}, empty), "  "))
	a.Println(a.fold("  " + approval.Summary(one, plain.LineWidth)))
	a.Spans(plain.Span{Text: a.fold("  " + approval.WhyAsked(one)), Look: plain.Dim})
	a.Spans(plain.Span{Text: a.fold("  " + approval.OptionIDs(one)), Look: plain.Dim})
}

func empty(text string) bool { return text == "" }

// fold is folded for standard output, where that is a terminal.
func (a *app) fold(text string) string {
	if !a.OutStyle.Terminal {
		return text
	}
	return strings.TrimSuffix(plain.Fold(text, plain.WidthOf(a.out.W)), "\n")
}

// printApproval prints an approval in full.
func (a *app) printApproval(q protocol.Approval, now time.Time) {
	text := approval.Text(q)
	a.Pairs([][2]string{
		{"id", plain.Cell(q.ApprovalID)},
		{"session", plain.Cell(q.SessionID)},
		{"folder", plaintext.RevealLine(q.Workdir)},
		{"asked", q.CreatedAt.Local().Format(time.DateTime) + ", " + format.Age(q.CreatedAt, now)},
	})
	a.Println(a.fold(strings.TrimSuffix(text, "\n")))
	if approval.Hides(text) {
		a.Notef(approval.Hidden)
	}
	for _, o := range q.Options {
		a.Println(a.answerLine(q, o))
	}
}

// answerLine is the command that gives an answer, and what it allows.
func (a *app) answerLine(q protocol.Approval, o protocol.ApprovalOption) string {
	nous := "nous" + a.flags()
	text := nous + " approve " + q.ApprovalID
	switch {
	case o.ID == protocol.OptionCancel:
		text += " " + o.ID
	case o.Decision == protocol.DecisionDeny:
		text = nous + " deny " + q.ApprovalID
	case o.ID != approval.Yes(q):
		text += " " + o.ID
	}
	if o.Pattern != "" {
		text += "    # " + plaintext.RevealLine(o.Pattern)
	}
	return text
}
