package session

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
	"noused/internal/protocol"
)

// Bounds of what a session remembers: rules that its answers have made, and how
// questions ended.
const (
	maxAnswers = 1000
	maxDecided = 256
)

// ApprovalAsked puts a question to the first who answers; the run waits. The call
// with CallID, and its arguments, are in the message that made it; Arguments are those with
// the tool's defaults, where they differ. Path is the file that an allowed call touches, of a
// file tool; Linked: a link leads there from the path that the call names. Used is what the
// run had used when a question of kind budget was asked, Schema the form of one of
// kind question, whose call runs meanwhile. Host is the hosted agent that an allowed call of the
// tool agent has make the child's turns.
type ApprovalAsked struct {
	ApprovalID string                `json:"approval_id"`
	RunID      string                `json:"run_id"`
	Kind       protocol.ApprovalKind `json:"kind"`
	CallID     string                `json:"call_id,omitzero"`
	Arguments  jsontext.Value        `json:"arguments,omitzero"`
	Reason     string                `json:"reason,omitzero"`
	Rule       string                `json:"rule,omitzero"`
	Workdir    string                `json:"workdir,omitzero"`
	Diff       string                `json:"diff,omitzero"`
	Path       string                `json:"path,omitzero"`
	Linked     bool                  `json:"linked,omitzero"`
	Host       string                `json:"host,omitzero"`
	Schema     jsontext.Value        `json:"schema,omitzero"`
	Options    []ApprovalOption      `json:"options"`
	Used       Used                  `json:"used,omitzero"`
}

// ApprovalOption is an answer that a question takes. Rule, a rule of package
// policy as JSON, is what the option allows from then on.
type ApprovalOption struct {
	ID       string                    `json:"id"`
	Decision protocol.ApprovalDecision `json:"decision"`
	Pattern  string                    `json:"pattern,omitzero"`
	Rule     jsontext.Value            `json:"rule,omitzero"`
}

// Used is what a run, and the day, have used: tokens, and costs in billionths of a
// US dollar.
type Used struct {
	Tokens  int64 `json:"tokens,omitzero"`
	Cost    int64 `json:"cost_nano_usd,omitzero"`
	DayCost int64 `json:"day_cost_nano_usd,omitzero"`
}

// ApprovalDecided ends a question: Option is the answer's, with PID and Comm of the
// process that gave it; or By is what withdrew it, or made it late. Rule holds in
// this session from here on; Keep is one for every session, to be kept among the
// user's own. Reason is what the model reads of a denial. What fills in a form is
// the tool's alone, and not kept.
type ApprovalDecided struct {
	ApprovalID string                   `json:"approval_id"`
	RunID      string                   `json:"run_id"`
	Outcome    protocol.ApprovalOutcome `json:"outcome"`
	Option     string                   `json:"option,omitzero"`
	By         string                   `json:"by,omitzero"`
	PID        int                      `json:"pid,omitzero"`
	UID        int                      `json:"uid,omitzero"`
	Comm       string                   `json:"comm,omitzero"`
	Peer       string                   `json:"peer,omitzero"`
	Reason     string                   `json:"reason,omitzero"`
	Rule       jsontext.Value           `json:"rule,omitzero"`
	Keep       jsontext.Value           `json:"keep,omitzero"`
}

// RuleKept says that what an answer has Keep for has been done, or was tried and
// people were told that it failed.
type RuleKept struct {
	ApprovalID string `json:"approval_id"`
}

// ApprovalModeSet sets the session's approval mode.
type ApprovalModeSet struct {
	Mode protocol.ApprovalMode `json:"mode"`
}

func (ApprovalAsked) kind() string   { return "approval_asked" }
func (ApprovalDecided) kind() string { return "approval_decided" }
func (ApprovalModeSet) kind() string { return "approval_mode_set" }
func (RuleKept) kind() string        { return "rule_kept" }

func (ApprovalAsked) durable() bool   { return true }
func (ApprovalDecided) durable() bool { return true }
func (ApprovalModeSet) durable() bool { return true }
func (RuleKept) durable() bool        { return false } // to keep a rule again changes nothing

// Question is what a run has asked. It stands until what was asked about has
// begun, or will not.
type Question struct {
	ApprovalAsked
	At      time.Time
	Decided ApprovalDecided // once it is; its ApprovalID is "" before
}

// Open reports that nobody has answered yet.
func (q *Question) Open() bool { return q != nil && q.Decided.ApprovalID == "" }

// Option returns the answer with that id.
func (q *Question) Option(id string) (ApprovalOption, bool) {
	i := slices.IndexFunc(q.Options, func(o ApprovalOption) bool { return o.ID == id })
	if i < 0 {
		return ApprovalOption{}, false
	}
	return q.Options[i], true
}

// Call is what a question about a call asks for; zero where it is gone.
func (r *Run) Call(id string) model.ToolCall {
	for _, c := range r.Calls {
		if c.ID == id {
			return c
		}
	}
	return model.ToolCall{}
}

// AskedFor is the call that a question is about, as it would be made.
func (r *Run) AskedFor(q *Question) model.ToolCall {
	call := r.Call(q.CallID)
	if len(q.Arguments) > 0 {
		call.Arguments = []byte(q.Arguments)
	}
	return call
}

// Decided returns how a question of this session ended, as far as that is
// remembered.
func (s *State) Decided(approvalID string) (ApprovalDecided, bool) {
	for _, d := range s.decided {
		if d.ApprovalID == approvalID {
			return d, true
		}
	}
	return ApprovalDecided{}, false
}

func (s *State) openApproval(f ApprovalAsked, at time.Time) error {
	if s.Run.Question.Open() {
		return fmt.Errorf("approval %s is asked while %s is open", f.ApprovalID, s.Run.Question.ApprovalID)
	}
	s.Asked++
	s.Run.Question = &Question{ApprovalAsked: f, At: at}
	return nil
}

func (s *State) decide(f ApprovalDecided) error {
	q := s.Run.Question
	if !q.Open() || q.ApprovalID != f.ApprovalID {
		return fmt.Errorf("approval %s is decided and was not open", f.ApprovalID)
	}
	if f.Rule != nil {
		s.answer(f.Rule)
	}
	if f.Keep != nil {
		s.Unkept = append(slices.Clone(s.Unkept[max(0, len(s.Unkept)-maxAnswers+1):]), f)
	}
	s.decided = append(slices.Clone(s.decided[max(0, len(s.decided)-maxDecided+1):]), f)
	answered := *q // others may look at what was there
	answered.Decided = f
	s.Run.Question = &answered
	if q.Kind == protocol.ApprovalBudget && f.Outcome == protocol.OutcomeAllowed {
		s.Run.Granted, s.Run.GrantedAt, s.Run.Question = q.Used, q.At, nil
	}
	return nil
}

// kept ends what an answer has Keep for.
func (s *State) kept(approvalID string) {
	s.Unkept = slices.DeleteFunc(slices.Clone(s.Unkept), func(d ApprovalDecided) bool {
		return d.ApprovalID == approvalID
	})
}

// answer keeps a rule, the newest last.
func (s *State) answer(rule jsontext.Value) {
	same := func(old jsontext.Value) bool { return bytes.Equal(old, rule) }
	s.Answers = slices.DeleteFunc(slices.Clone(s.Answers), same)
	s.Answers = append(s.Answers[max(0, len(s.Answers)-maxAnswers+1):], rule)
}

// Form reports that it is a form that a call wants filled in while it runs.
func (q *Question) Form() bool { return q != nil && q.Kind == protocol.ApprovalQuestion }

// past forgets the question about a call that has begun, or has its result.
func (r *Run) past(callID string) {
	if r.Question != nil && r.Question.CallID == callID {
		r.Question = nil
	}
}
