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

// What a rule is offered for is a short list: a rule allows whatever comes behind
// its words, so that it must be known of a program that nothing of that runs
// something else or writes somewhere else. Others can be asked about each time, or
// be allowed by a rule that the user writes.
var (
	// lookers change nothing, and show no contents of files.
	lookers = set("echo true false sleep uname whoami id uptime df du free nproc lscpu lsblk ps pgrep pidof ls which ping host nslookup")
	// lookingSubs are the subcommands of programs that do no more than that.
	lookingSubs = map[string]map[string]bool{"docker": set("ps images logs version info")}
	// builders run what the files of a folder say: a rule for them is for that folder.
	builders = set("make pytest")
	// buildingSubs are the subcommands of programs that do so.
	buildingSubs = map[string]map[string]bool{
		"git": set(`add blame branch checkout cherry-pick commit describe diff fetch log ls-files ls-remote merge pull push restore rev-parse
			revert show stash status switch tag`),
		"go":    set("build fmt generate list mod test vet version"),
		"cargo": set("bench build check clippy fmt test"),
		"npm":   set("ci start test"), "pnpm": set("start test"), "yarn": set("start test"),
	}
	// scriptRunners run a script that the folder names: npm run build.
	scriptRunners = set("npm pnpm yarn")
	// interpreters run a file that they are told, and hand it all that follows.
	interpreters = set("python python2 python3 pypy pypy3 node ruby perl lua php tclsh wish")
)

// offerable says which words of a command a rule for it has, and whether it is for
// one folder only. ok is false for a command that no rule is offered for.
func (c command) offerable() (words command, here, ok bool) {
	name, first := c[0].text, ""
	if len(c) > 1 {
		first = c[1].text
	}
	switch {
	case lookers[name]:
		return c, false, true
	case lookingSubs[name][first]:
		return c[:2], false, true
	case buildingSubs[name][first]:
		return c[:2], true, true
	case scriptRunners[name] && first == "run" && len(c) > 2 && !isOption(c[2].text):
		return c[:3], true, true
	case builders[name], strings.Contains(name, "/"), (shells[name] || interpreters[name]) && first != "" && !isOption(first):
		return c, true, true
	}
	return nil, false, false
}

// narrow is the narrowest rule that is of use for a command: git push … in this
// folder, but the whole of make test. nil: there is none that is narrow enough, or
// it would be too long to be read.
func narrow(c command, workdir string) *Rule {
	words, here, ok := c.offerable()
	if !ok || here && c.leaves(workdir, 0) {
		return nil
	}
	r := &Rule{Tool: bashTool, Decision: Allow}
	for length := 0; len(r.Command) < len(words); {
		text := words[len(r.Command)].text
		if length += len(text) + 1; length > maxOffer {
			return nil
		}
		r.Command = append(r.Command, Word{text})
	}
	if here {
		r.Workdir = workdir
	}
	return r
}
