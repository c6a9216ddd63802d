package registry

import (
	"bytes"
	"context"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
	"noused/internal/policy"
	"noused/internal/proc"
	"noused/internal/tool"
)

// rules are those of now. They never change; others take their place.
func (r *Registry) rules() *policy.Set {
	if r.o.Policy == nil {
		return nil
	}
	return r.o.Policy()
}

// Judge says what the rules make of a call in an approval mode, "ask", "auto" or
// "deny", with a session's answers, rules as JSON. What would be asked and cannot
// be made has its failure. The zero Verdict: no tool has that name now. It does not
// block, and asks no tool what it can do.
func (r *Registry) Judge(inv model.Invocation, mode string, answers [][]byte) model.Verdict {
	rules := r.rules().WithAnswers(answers)
	if d, denies := rules.Denies(inv.Name); denies {
		return verdict(inv.Name, d, d)
	}
	var strictest model.Verdict
	delegates, path, linked := r.delegates(inv), "", false
	for _, c := range r.candidates(inv) {
		inv, wrong := c.filled(inv)
		asked := r.decide(rules, c, inv)
		v := verdict(c.name, asked, policy.Mode(mode).Apply(asked))
		if path == "" {
			path, linked = asked.Path, asked.Linked
		}
		v.Changes = c.module.desc.Builtin() && (c.name == "edit" || c.name == "write")
		if strictness(v) > strictness(strictest) {
			// The run loop makes a call that delegates, and no tool says what is wrong with its arguments.
			strictest = c.with(v, asked.Verdict == policy.Ask || delegates && wrong != nil, inv, wrong)
		}
	}
	strictest.Reads, strictest.Delegates = r.reads(inv), delegates
	strictest.Guarded, strictest.Path, strictest.Linked = r.guarded(), path, linked
	if bytes.Equal(strictest.Arguments, inv.Arguments) {
		strictest.Arguments = nil
	}
	return strictest
}

// reads reports that a call is of a built-in tool that changes nothing, whatever its
// arguments are.
func (r *Registry) reads(inv model.Invocation) bool {
	found := r.candidates(inv)
	return len(found) > 0 && !slices.ContainsFunc(found, func(c candidate) bool {
		return !c.module.desc.Builtin() || !slices.Contains([]string{"read", "ls", "find", "grep", "todo"}, c.name)
	})
}

// delegates reports that a call is one of the built-in tool agent, also while it is not known
// yet what tools without a prefix others have.
func (r *Registry) delegates(inv model.Invocation) bool {
	return slices.ContainsFunc(r.candidates(inv), func(c candidate) bool {
		return c.module.desc.Builtin() && c.name == tool.Agent
	})
}

func strictness(v model.Verdict) int {
	return slices.Index([]string{"", model.Allow, model.Ask, model.Deny}, v.Decision)
}

// filled is the call as it is made: with its tool's defaults, which rules and people are to
// see as well. The error is what is wrong with its arguments, as far as that is known.
func (c candidate) filled(inv model.Invocation) (model.Invocation, error) {
	var schema *tool.Schema
	if c.op != nil {
		if c.op.problem != nil {
			return inv, c.op.problem
		}
		schema = c.op.schema
	}
	args, err := schema.Prepare(jsontext.Value(inv.Arguments))
	if err == nil {
		inv.Arguments = []byte(args)
	}
	return inv, err
}

// candidate is what a name means, or may mean: op is nil where the module has not
// said what it can do.
type candidate struct {
	module *module
	name   string
	op     *operation
}

// candidates are in the order in which resolve asks.
func (r *Registry) candidates(inv model.Invocation) (found []candidate) {
	name := inv.Name
	for m, spell := range meaning(r.known(inv.Scope), name) {
		ops, known := m.known()
		i := slices.IndexFunc(ops, func(op *operation) bool { return spell(m.callName(op.Name)) == name })
		switch {
		case i >= 0:
			return append(found, candidate{m, m.callName(ops[i].Name), ops[i]})
		case known, m.desc.Bare && m.desc.Capabilities != nil && !slices.Contains(m.desc.Capabilities, name):
		case m.desc.Bare:
			found = append(found, candidate{m, name, nil})
		default:
			found = append(found, candidate{m, m.callName(strings.TrimPrefix(name, spell(m.desc.Name+"."))), nil})
		}
	}
	return found
}

// known returns the operations that the module has said it has.
func (m *module) known() ([]*operation, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ops, m.ops != nil
}

// decide is what the rules say of a call of a module's operation.
func (r *Registry) decide(rules *policy.Set, of candidate, inv model.Invocation) policy.Decision {
	desc := of.module.desc
	c := policy.Call{
		Tool: of.name, Module: desc.Name, Kind: policy.Descriptor, Workdir: inv.Workdir, Home: r.home,
		Arguments: inv.Arguments,
		Resolve:   proc.Resolve,
	}
	switch {
	case desc.Builtin():
		c.Kind = policy.Builtin
	case desc.Protocol == tool.MCP:
		c.Kind, c.Trust = policy.MCP, desc.Trust
		c.ReadOnly = of.op != nil && of.op.ReadOnly
	}
	if c.Workdir == "" {
		c.Workdir = filepath.Clean(r.o.Workdir)
	}
	return rules.Decide(c)
}

// verdict is a decision as the run loop has it: what the rules say, and what the
// mode has made of it.
func verdict(name string, asked, d policy.Decision) model.Verdict {
	v := model.Verdict{Decision: string(d.Verdict), Rule: d.Rule, Pattern: d.Pattern, Why: d.Why}
	switch {
	case d.Verdict != policy.Deny:
	case asked.Verdict == policy.Deny:
		f := denied(name, d.Pattern)
		v.Code, v.Why = f.Code, f.Message
	default:
		v.Code = model.Denied // the run loop says why nobody is asked
	}
	if d.Offer != nil {
		if rule, err := json.Marshal(d.Offer); err == nil {
			v.Offer = &model.Offer{Pattern: d.Offer.Pattern(), Rule: []byte(rule)}
		}
	}
	if d.ForSession != nil {
		if rule, err := json.Marshal(d.ForSession); err == nil {
			v.ForSession = &model.Offer{Pattern: "edits in this folder", Rule: []byte(rule)}
		}
	}
	return v
}

// with adds to a verdict the call's arguments and, where rules ask about it, the model's reason for it, or what is
// wrong with it.
func (c candidate) with(v model.Verdict, asks bool, inv model.Invocation, err error) model.Verdict {
	v.Arguments = inv.Arguments
	if !asks || v.Decision == model.Allow && err == nil {
		return v
	}
	var a outsideArgs
	if err == nil && c.op != nil && c.module.leavesSandbox(c.op) {
		a, err = readOutside(inv.Arguments)
	}
	if err != nil {
		failure := tool.Failure(err)
		v.Failure = &failure
	}
	v.Reason = a.Reason
	return v
}

// leavesSandbox tells whether an operation can be made outside the sandbox.
func (m *module) leavesSandbox(op *operation) bool {
	return m.desc.Builtin() && slices.Contains([]string{"bash", "edit", "write"}, op.Name)
}

// outsideArgs are those that say where a call runs, and why there.
type outsideArgs struct {
	Outside bool   `json:"outside_sandbox"`
	Reason  string `json:"reason"`
}

// maxReason bounds what a model says for a call, in bytes.
const maxReason = 500

// readOutside reads them as the tool does. The error is a [tool.Fault].
func readOutside(arguments []byte) (a outsideArgs, err error) {
	if err := json.Unmarshal(arguments, &a); err != nil {
		return a, tool.Faultf(tool.BadRequest, "arguments: %v", err)
	}
	switch {
	case !a.Outside:
	case strings.TrimSpace(a.Reason) == "":
		return a, tool.Faultf(tool.BadRequest, "reason: missing; outside_sandbox needs one line that says why")
	case len(a.Reason) > maxReason || strings.ContainsAny(a.Reason, "\r\n"):
		return a, tool.Faultf(tool.BadRequest, "reason: want one line of at most %d bytes", maxReason)
	}
	return a, nil
}

// allowed judges a call that nobody has judged, and makes an error of all but a
// yes: there is nobody to ask.
func (r *Registry) allowed(of candidate, inv model.Invocation) error {
	if inv.Allowed {
		return nil
	}
	name, d := of.name, r.decide(r.rules(), of, inv)
	var err *tool.Fault
	switch d.Verdict {
	case policy.Allow:
	case policy.Deny:
		err = denied(name, d.Pattern)
	default:
		err = tool.Faultf(tool.Forbidden, "%s needs the user's approval, and was not known when it was called: call it "+
			"again", name)
	}
	return r.judged(name, d, err, inv)
}

// judged audits what the rules say of a call, and returns what is wrong with it.
func (r *Registry) judged(name string, d policy.Decision, fault *tool.Fault, inv model.Invocation) error {
	ev := model.AuditEvent{
		Event: "policy:decision", Component: "policy", Status: "ok", SessionID: inv.SessionID, RequestID: inv.ID,
		Data: object("tool", name, "decision", string(d.Verdict), "rule", d.Rule, "pattern", d.Pattern),
	}
	if fault != nil {
		ev.Status = "error"
	}
	r.o.Audit.Record(ev)
	if fault == nil {
		return nil
	}
	return fault
}

// outsideEnd is what a process outside the sandbox gets to end in order.
const outsideEnd = 5 * time.Second

// outside is the place of a call that is to run outside the sandbox: a process of
// its own, for this call alone. Anyone who calls has been allowed to.
func (m *module) outside(p *place, op *operation, inv model.Invocation) (*place, func(), error) {
	if !m.leavesSandbox(op) {
		return p, func() {}, nil
	}
	a, err := readOutside(inv.Arguments)
	if err != nil || !a.Outside {
		return p, func() {}, err
	}
	d := *p.desc
	d.Sandbox = tool.SandboxNone
	host := m.mount(&d)
	return &place{desc: &d, host: host}, func() {
		ctx, cancel := context.WithTimeout(context.Background(), outsideEnd)
		defer cancel()
		host.Close(ctx)
	}, nil
}
