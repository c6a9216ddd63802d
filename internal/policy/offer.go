package policy

import "strings"

// maxOffer is the longest pattern that is offered to a person, in bytes.
const maxOffer = 200

// offer is the one rule that would allow a line together with those there are.
func (s *Set) offer(f *facts) *Rule {
	if f.line().why != "" {
		return nil
	}
	for _, c := range f.line().plain {
		if s.allowingCommand(f, c) == nil {
			return s.helpful(narrow(c, f.Workdir), f)
		}
	}
	return nil
}

// helpful is a rule that can be had, and does allow the call.
func (s *Set) helpful(r *Rule, f *facts) *Rule {
	if r == nil {
		return nil
	}
	with, err := s.With(*r)
	if err != nil || len(r.Pattern()) > maxOffer || with.allowingLine(f) == nil {
		return nil
	}
	return r
}

// runners are subcommands that run what comes next.
var runners = set("run exec x dlx shell develop eval foreach submodule bisect")

// interpreters run a file that they are told.
var interpreters = set("python python2 python3 pypy pypy3 node bun ruby perl lua php tclsh wish")

// narrow is the narrowest rule that is of use for a command: git push …, but the
// whole of rm -rf build. Where the command is a file of the folder's, or
// is told to run one, the rule is for that folder. nil: it would be too long to be read.
func narrow(c command, workdir string) *Rule {
	words := c
	if len(c) > 1 && isSubcommand(c[1].text) && !runners[c[1].text] {
		words = c[:2]
	}
	r := &Rule{Tool: bashTool, Decision: Allow}
	for length := 0; len(r.Command) < len(words); {
		text := words[len(r.Command)].text
		if length += len(text) + 1; length > maxOffer {
			return nil
		}
		r.Command = append(r.Command, Word{text})
	}
	if name := c[0].text; strings.Contains(name, "/") && name[0] != '/' || shells[base(name)] || interpreters[base(name)] && len(c) > 1 {
		r.Workdir = workdir
	}
	return r
}

// isSubcommand tells whether a word looks like one: push, not -f, a.txt or 7.
func isSubcommand(text string) bool {
	return text != "" && text[0] >= 'a' && text[0] <= 'z' &&
		!strings.ContainsFunc(text, func(r rune) bool { return (r < 'a' || r > 'z') && r != '-' })
}
