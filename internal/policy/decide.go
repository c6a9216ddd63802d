package policy

// Decide decides on a call. It takes microseconds for an
// ordinary call, and some milliseconds for the most hostile arguments.
func (s *Set) Decide(c Call) Decision {
	if s == nil {
		s = &Set{}
	}
	f := factsOf(c)
	d := s.decide(f)
	if f.isFile && d.Verdict == Ask {
		f.targets()
		d.ForSession = f.inFolder()
	}
	d.Path, d.Linked = f.led, f.linked
	return d
}

func (s *Set) decide(f *facts) Decision {
	if d, found := s.strict(f); found {
		if r := s.answered(f); r != nil && d.Verdict == Ask {
			return r.decision(Allow)
		}
		return d
	}
	if r := s.allowing(f); r != nil {
		return r.decision(Allow)
	}
	if s.closed != nil && !s.lists(f) {
		return s.unnamed()
	}
	d := f.byDefault()
	if d.Verdict == Ask && f.outside && f.isBash {
		d.Why = f.line().outside()
		d.Offer = s.offer(f)
	}
	return d
}

// answered is the session's answer that allows a change of a file in its folder.
func (s *Set) answered(f *facts) *rule {
	for i := range s.rules {
		if r := &s.rules[i]; r.answer && r.Path != nil && f.changes && r.concerns(f) {
			if fit, _ := r.fitsPath(f); fit == yes {
				return r
			}
		}
	}
	return nil
}

// inFolder is the rule for every change of a file in the folder, where the call makes
// one: in the sandbox, and wherever links lead.
func (f *facts) inFolder() *Rule {
	if !f.changes || f.outside {
		return nil
	}
	r := Rule{Tool: changersPattern, Decision: Allow, Path: []string{"**"}, Workdir: f.Workdir}
	one := rule{r, Undotted(r.Tool), false, true}
	if fit, _ := one.fitsPath(f); fit != yes || r.Check() != nil {
		return nil
	}
	return &r
}

// strict is what the rules that ask or deny say, the strictest of them. One that
// may fit, and nobody can tell, asks.
func (s *Set) strict(f *facts) (d Decision, found bool) {
	for i := range s.rules {
		r := &s.rules[i]
		if r.Decision == Allow || !r.concerns(f) {
			continue
		}
		switch fit, why := r.fits(f); {
		case fit == yes && r.Decision == Deny:
			return r.decision(Deny), true
		case fit == yes && (!found || d.Why != ""):
			d, found = r.decision(Ask), true
		case fit == perhaps && !found:
			d, found = r.decision(Ask), true
			d.Rule, d.Why = "ask: perhaps "+d.Pattern, why
		}
	}
	return d, found
}

// allowing is the rule that allows a call, nil where none does. A line of shell
// may need several, one for each command: then it is the first's.
func (s *Set) allowing(f *facts) *rule {
	for i := range s.rules {
		r := &s.rules[i]
		if r.Decision != Allow || !r.concerns(f) || r.listed && f.outside {
			continue
		}
		if r.Command == nil {
			if fit, _ := r.fits(f); fit == yes {
				return r
			}
		}
	}
	if !f.isBash {
		return nil
	}
	return s.allowingLine(f)
}

// allowingLine is the rule that allows a line's first command, if each of its
// commands is allowed by one.
func (s *Set) allowingLine(f *facts) (first *rule) {
	if !s.speaksOfLines(f) || f.line().why != "" {
		return nil
	}
	for _, c := range f.line().plain {
		r := s.allowingCommand(f, c)
		if r == nil {
			return nil
		}
		if first == nil {
			first = r
		}
	}
	return first
}

func (s *Set) speaksOfLines(f *facts) bool {
	for i := range s.rules {
		if r := &s.rules[i]; r.Decision == Allow && r.Command != nil && r.concerns(f) {
			return true
		}
	}
	return false
}

func (s *Set) allowingCommand(f *facts, c command) *rule {
	for i := range s.rules {
		if r := &s.rules[i]; r.Decision == Allow && r.allowsCommand(f, c) {
			return r
		}
	}
	return nil
}

// lists tells whether policy.allow has the tool, so that a call of it is judged
// as if there were no such list.
func (s *Set) lists(f *facts) bool {
	for i := range s.rules {
		if r := &s.rules[i]; r.listed && r.Decision == Allow && r.concerns(f) {
			return true
		}
	}
	return false
}

// byDefault is what is done where no rule says anything.
func (f *facts) byDefault() Decision {
	switch {
	case f.bad != "" && f.outside:
		return Decision{Verdict: Ask, Rule: "ask: " + f.Tool + " with arguments that cannot be read", Why: f.bad}
	case f.outside:
		return Decision{Verdict: Ask, Rule: "ask: " + f.Tool + " outside the sandbox"}
	case f.Kind == Builtin:
		return Decision{Verdict: Allow, Rule: "allow: built-in tool"}
	case f.Kind == Descriptor:
		return Decision{Verdict: Allow, Rule: "allow: the user's own tool"}
	case f.Kind == MCP && f.Trust == TrustAll:
		return Decision{Verdict: Allow, Rule: "allow: MCP server that is trusted"}
	case f.Kind == MCP && f.ReadOnly && f.Trust == "":
		return Decision{Verdict: Allow, Rule: "allow: MCP tool that only reads"}
	case f.Kind == MCP:
		return Decision{Verdict: Ask, Rule: "ask: MCP tool"}
	}
	return Decision{Verdict: Ask, Rule: "ask: tool of an unknown kind"}
}

// decision is the rule's own, with another verdict where it is not sure.
func (r *rule) decision(v Verdict) Decision {
	pattern := r.Rule.Pattern()
	return Decision{Verdict: v, Rule: string(v) + ": " + pattern, Pattern: pattern, Place: r.Place}
}

// answer is whether a rule fits.
type answer int

const (
	no answer = iota
	perhaps
	yes
)

// concerns tells whether the rule is about this tool, in this folder.
func (r *rule) concerns(f *facts) bool {
	return (r.Workdir == "" || r.Workdir == f.Workdir) && r.names(f)
}

// names tells whether the rule is about this tool. What asks or denies means a
// tool however its name is spelled.
func (r *rule) names(f *facts) bool {
	if Matches(r.Tool, f.Tool) || f.Module != "" && Matches(r.Tool, f.Module) {
		return true
	}
	return r.Decision != Allow && Matches(r.undotted, f.undotted)
}

// fits tells whether a rule that concerns a call fits its arguments, and what
// makes that uncertain.
func (r *rule) fits(f *facts) (answer, string) {
	switch {
	case r.Command != nil:
		return r.fitsLine(f)
	case r.Path != nil:
		return r.fitsPath(f)
	}
	return yes, ""
}

// fitsLine holds a rule that asks or denies against every command that can be
// found in a line.
func (r *rule) fitsLine(f *facts) (best answer, why string) {
	if !f.isBash {
		return no, ""
	}
	if f.bad != "" {
		return perhaps, f.bad
	}
	found := f.line().search()
	for _, c := range found.commands {
		switch fit := r.fitsCommand(c); {
		case fit == yes:
			return yes, ""
		case fit == perhaps:
			best, why = perhaps, "a word that is not known before it runs"
		}
	}
	if found.opaque != "" {
		return perhaps, found.opaque
	}
	return best, why
}

// fitsCommand compares the words from the first. /usr/bin/git is git, too. An
// option that a rule does not have may stand before a word that it has.
func (r *rule) fitsCommand(c command) answer {
	fit := yes
	for i, want := range r.Command {
		if i == len(c) {
			return no
		}
		switch w := c[i]; {
		case w.many:
			return perhaps
		case i == 0 && !w.known && w.base != "" && !want.has(w.base):
			return no
		case !w.known:
			fit = perhaps
		case want.has(w.text) || i == 0 && want.has(base(w.text)):
		case i > 0 && isOption(w.text) && r.Command[i:].follow(c[i+1:]):
			return perhaps
		default:
			return no
		}
	}
	return fit
}

// allowsCommand tells whether the rule allows a command of a line that is plain
// throughout.
func (r *rule) allowsCommand(f *facts, c command) bool {
	if r.Command == nil || len(r.Command) > len(c) || !r.concerns(f) {
		return false
	}
	if r.Workdir != "" && (f.line().moves || c.leaves(r.Workdir, len(r.Command))) {
		return false
	}
	for i, want := range r.Command {
		if !want.has(c[i].text) {
			return false
		}
	}
	return true
}
