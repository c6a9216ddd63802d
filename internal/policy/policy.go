// Package policy decides whether a tool may be called: allow, ask or deny, by
// rules over the tool's name, the commands of a shell line and the path of a
// file (approvals.md §1).
//
// Strictest wins, and order never matters: deny over ask over allow. What a rule
// cannot be sure of asks; nothing is allowed because it could not be read.
//
// Concurrency: a [Set] never changes; its methods may be called from any number
// of goroutines. Nothing here blocks.
//
// It refuses to do I/O, to know the time, and to keep state: who reads the files,
// asks the person and remembers the answer is the caller. It sees arguments, not
// the machine: where a symbolic link leads the caller says ([Call].Resolve), which
// file a command's name stands for, and what the environment makes of a shell
// (BASH_ENV, PATH, exported functions) is the business of the caller and of the
// sandbox.
package policy

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
)

// Verdict is the decision on a call.
type Verdict string

// The verdicts, from the mildest to the strictest. The zero value is none.
const (
	Allow Verdict = "allow"
	Ask   Verdict = "ask"
	Deny  Verdict = "deny"
)

// Mode is a session's, set by set_approval_mode.
type Mode string

// The modes. ModeAuto turns ask into allow and never lifts a deny; ModeDeny turns
// ask into deny.
const (
	ModeAsk  Mode = "ask"
	ModeAuto Mode = "auto"
	ModeDeny Mode = "deny"
)

// Kind is where a tool comes from. A call of any other kind asks.
type Kind string

// The kinds of tools: built in, of a descriptor that the user wrote, of an MCP
// server.
const (
	Builtin    Kind = "builtin"
	Descriptor Kind = "descriptor"
	MCP        Kind = "mcp"
)

// Trust is what a server's entry says of an MCP server. The zero value believes
// the server's hint that a tool only reads.
type Trust string

// TrustAll asks nothing, TrustNone ignores the hint.
const (
	TrustAll  Trust = "all"
	TrustNone Trust = "none"
)

// Call is what is known of a call before it is made.
type Call struct {
	Tool     string // as list_tools has it: "bash", "server.operation"
	Module   string // the module's own name; "": none
	Kind     Kind
	ReadOnly bool   // an MCP server's hint
	Trust    Trust  // in an MCP server
	Workdir  string // the session's folder, absolute and clean
	// Home is what a leading ~ of a path stands for; "": not known.
	Home string
	// Resolve is an absolute path without links on its way, also where its end is
	// missing; it may read folders, and is asked only where a rule with a path is
	// about the tool. nil: there are no links.
	Resolve func(path string) string
	// Arguments is the JSON object that the tool gets, as the model gave it.
	Arguments []byte
}

// Decision is what the rules say of a call.
type Decision struct {
	Verdict Verdict
	Rule    string // the verdict and what it is about: "ask: bash outside the sandbox"
	Pattern string // the rule's own [Rule.Pattern]; "" where no rule said it
	Why     string // more words for a person: "redirects input or output"; "": none
	Place   Place  // of the rule; zero where none said it
	// Offer is the narrowest rule that would allow the call, to be had for the
	// session or for always; its Pattern says it verbatim. nil: none that is
	// narrower than the whole tool, or none that would help.
	Offer *Rule
	// ForSession offers to allow, in this session, every change of a file in the
	// session's folder; nil: not offered. See [Set.Answered].
	ForSession *Rule
	// Path is where the path of a file tool led when rules were held against it, or as
	// it asks; "" else. The call may touch nothing else. Linked: it is not as it is spelled.
	Path   string
	Linked bool
}

// Apply puts a session's mode on top of what the rules say.
func (m Mode) Apply(d Decision) Decision {
	if d.Verdict != Ask || m != ModeAuto && m != ModeDeny {
		return d
	}
	d.Verdict, d.Offer, d.ForSession = Allow, nil, nil
	if m == ModeDeny {
		d.Verdict = Deny
	}
	d.Rule += " (mode " + string(m) + ")"
	return d
}

// Set is all rules together. The zero value has none, and a nil *Set is one.
type Set struct {
	rules  []rule
	closed *Place // of a list "allow": what nothing names is denied
}

// rule is a Rule with what is known of it before any call.
type rule struct {
	Rule
	undotted string
	listed   bool // in a list of tool names
	answer   bool // of a person, in this session
}

// New puts the rules of all sources together. Each is checked, with its
// examples; the error is an *Error with the rule's place.
func New(sources ...Source) (*Set, error) {
	s := &Set{}
	for _, src := range sources {
		if err := s.addLists(src); err != nil {
			return nil, err
		}
		if err := s.add(src.Rules...); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *Set) addLists(src Source) error {
	for _, list := range src.lists() {
		place := Place{File: src.File, Line: src.lines[list.name]}
		if list.verdict == Allow && list.patterns != nil {
			s.closed = &place
		}
		for _, pattern := range list.patterns {
			r := Rule{Tool: pattern, Decision: list.verdict, Place: place}
			if err := checkPattern(pattern); err != nil {
				return &Error{place, "policy." + list.name, err.Error()}
			}
			s.rules = append(s.rules, rule{r, Undotted(pattern), true, false})
		}
	}
	return nil
}

func (s *Set) add(rules ...Rule) error {
	for _, r := range rules {
		if err := r.Check(); err != nil {
			return err
		}
		s.rules = append(s.rules, rule{r, Undotted(r.Tool), false, false})
	}
	return nil
}

// With is the set with more rules. The error is New's.
func (s *Set) With(rules ...Rule) (*Set, error) {
	more := &Set{}
	if s != nil {
		more.closed, more.rules = s.closed, slices.Clip(s.rules)
	}
	return more, more.add(rules...)
}

// Answered is the set with a rule that allows, which a person has made in the session by
// an answer. One with paths also stands over what asks about a change of these files, as
// that is what the person was asked; nothing stands over a rule that denies. The error is
// New's.
func (s *Set) Answered(r Rule) (*Set, error) {
	more, err := s.With(r)
	if err == nil {
		more.rules[len(more.rules)-1].answer = true
	}
	return more, err
}

// WithAnswers adds a session's answers, rules as JSON. One that cannot be read, or does not
// allow, adds nothing.
func (s *Set) WithAnswers(answers [][]byte) *Set {
	for _, text := range answers {
		var rule Rule
		if json.Unmarshal(text, &rule) != nil || rule.Decision != Allow {
			continue
		}
		if more, err := s.Answered(rule); err == nil {
			s = more
		}
	}
	return s
}

// Has tells whether there is a rule that says the same, wherever it stands. Examples
// say nothing.
func (s *Set) Has(r Rule) bool {
	return slices.ContainsFunc(s.rules, func(have rule) bool {
		return !have.listed && have.Tool == r.Tool && have.Decision == r.Decision && have.Workdir == r.Workdir &&
			slices.EqualFunc(have.Command, r.Command, slices.Equal) && slices.Equal(have.Path, r.Path)
	})
}

// Unused returns the rules whose tool pattern fits nothing that is registered, a
// pattern once. fits says whether a pattern could mean a tool.
func (s *Set) Unused(fits func(pattern string) bool) (unused []Rule) {
	if s == nil {
		return nil
	}
	for _, r := range s.rules {
		same := func(u Rule) bool { return u.Tool == r.Tool }
		if !slices.ContainsFunc(unused, same) && !fits(r.Tool) {
			unused = append(unused, r.Rule)
		}
	}
	return unused
}

// Denies tells whether every call of a tool is denied, whatever module it turns
// out to be of, before anybody is asked what that name means: both names are
// taken in the spelling without dots.
func (s *Set) Denies(tool string) (Decision, bool) {
	if s == nil {
		return Decision{}, false
	}
	for _, r := range s.rules {
		if r.Decision == Deny && r.whole() && Matches(r.undotted, Undotted(tool)) {
			return r.decision(Deny), true
		}
	}
	return Decision{}, false
}

// Never tells whether every call of a module's tool is denied, whatever its
// arguments are and wherever it is made. tool is its name with the module's.
func (s *Set) Never(tool, module string) (Decision, bool) {
	if s == nil {
		return Decision{}, false
	}
	f := &facts{Call: Call{Tool: tool, Module: module}, undotted: Undotted(tool)}
	named := s.closed == nil
	for i := range s.rules {
		r := &s.rules[i]
		switch {
		case !r.names(f):
		case r.Decision == Deny && r.whole():
			return r.decision(Deny), true
		default:
			named = named || r.Decision != Deny
		}
	}
	if named {
		return Decision{}, false
	}
	return s.unnamed(), true
}

// Excludes tells whether every call of a module is denied, so that it need not
// be started to say what it has. bare: its operations have no prefix.
func (s *Set) Excludes(module string, bare bool) (Decision, bool) {
	if s == nil {
		return Decision{}, false
	}
	for _, r := range s.rules {
		if r.Decision == Deny && r.whole() && (Matches(r.Tool, module) || !bare && coversAll(r.Tool, module)) {
			return r.decision(Deny), true
		}
	}
	if s.closed == nil || bare || slices.ContainsFunc(s.rules, func(r rule) bool {
		return r.Decision != Deny && (Matches(r.Tool, module) || couldMean(r.Tool, module))
	}) {
		return Decision{}, false
	}
	return s.unnamed(), true
}

// coversAll tells whether a pattern fits whatever begins with a module's name and
// a dot.
func coversAll(pattern, module string) bool {
	before, star := strings.CutSuffix(pattern, "*")
	prefix := module + "."
	return star && len(before) <= len(prefix) && Matches(before, prefix[:len(before)])
}

// couldMean tells whether a pattern could fit an operation of a module.
func couldMean(pattern, module string) bool {
	literal := pattern
	if i := strings.IndexAny(pattern, `*?[\`); i >= 0 {
		literal = pattern[:i]
	}
	prefix := module + "."
	return strings.HasPrefix(literal, prefix) || strings.HasPrefix(prefix, literal)
}

func (s *Set) unnamed() Decision {
	return Decision{Verdict: Deny, Rule: "deny: not in the list policy.allow", Place: *s.closed}
}
