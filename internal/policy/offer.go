package policy

// maxOffer is the longest pattern that is offered to a person, in bytes.
const maxOffer = 200

// offer is the one rule that would allow a line together with those there are.
func (s *Set) offer(f *facts) *Rule {
	if f.line().why != "" {
		return nil
	}
	for _, c := range f.line().plain {
		if s.allowingCommand(f, c) == nil {
			return s.helpful(narrow(c), f)
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

// harmless are the programs that a rule is offered for. A rule allows whatever comes
// behind its words, so that of every option and argument of such a program it is known
// that it reads no file, nor the environment or the command lines of other processes,
// that it writes nothing and runs nothing. Not here for that, though they look it: ls
// (names in folders that the sandbox hides), du (--files0-from), ps (eww), pgrep (-a,
// -F), lscpu and lsblk (--sysroot), date (-f), uptime and who (FILE), docker (logs),
// nslookup (commands on its input). Nor is what runs the files of a folder, such as
// git, make, go test or a script: a tool in the sandbox can write these files.
var harmless = set("echo true false sleep uname whoami id df free nproc pidof which ping host")

// narrow is the narrowest rule that is of use for a command. nil: there is none that
// is narrow enough, or it would be too long to be read.
func narrow(c command) *Rule {
	if !harmless[c[0].text] {
		return nil
	}
	r := &Rule{Tool: bashTool, Decision: Allow}
	length := 0
	for _, w := range c {
		if length += len(w.text) + 1; length > maxOffer {
			return nil
		}
		r.Command = append(r.Command, Word{w.text})
	}
	return r
}
