package policy

import (
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/go-json-experiment/json"
)

// facts are a call, and what its arguments say. They belong to one Decide.
type facts struct {
	Call
	undotted string
	bad      string // why the arguments cannot be read; "": they were
	isBash   bool
	command  string
	outside  bool // of the sandbox
	isFile   bool
	changes  bool // that file
	walks    bool // looks below its path
	path     string
	places   []string // of target
	led      string   // where the path leads; "": nobody asked
	linked   bool     // over a link
	parsed   *line
}

func factsOf(c Call) *facts {
	f := &facts{Call: c, undotted: Undotted(c.Tool)}
	if c.Kind != Builtin {
		return f
	}
	f.isBash = c.Tool == bashTool
	f.walks, f.isFile = fileTools[c.Tool]
	f.changes = slices.Contains(changers, c.Tool)
	if f.isBash || f.isFile {
		f.read()
	}
	return f
}

// read takes from the arguments what rules are about. The tool reads them in the
// same way: names as they are spelled, none twice.
func (f *facts) read() {
	var a struct {
		Command string `json:"command"`
		Outside bool   `json:"outside_sandbox"`
		Path    string `json:"path"`
	}
	if err := json.Unmarshal(f.Arguments, &a); err != nil {
		f.bad, f.outside = "arguments that cannot be read", f.isBash || f.changes // for all that is known
		return
	}
	f.path = a.Path
	if f.isBash {
		f.command = a.Command
	}
	f.outside = a.Outside && (f.isBash || f.changes)
}

func (f *facts) line() *line {
	if f.parsed == nil {
		f.parsed = readLine(f.command)
	}
	return f.parsed
}

// mostPath is the longest path that is compared; the kernel takes none longer.
const mostPath = 4096

// targets is the call's path from the session's folder, cleaned, beginning with ..
// where it leaves it: as it is spelled, and as what it leads to. None where nobody
// can tell.
func (f *facts) targets() []string {
	if f.places != nil {
		return f.places
	}
	p := f.path
	if p == "~" || strings.HasPrefix(p, "~/") {
		if f.Home == "" {
			return nil
		}
		p = f.Home + p[1:]
	}
	if f.bad != "" || len(p) > mostPath || !filepath.IsAbs(f.Workdir) {
		return nil
	}
	if !filepath.IsAbs(p) {
		p = filepath.Join(f.Workdir, p)
	}
	spelled, err := filepath.Rel(f.Workdir, p)
	if err != nil {
		return nil
	}
	f.places = []string{spelled}
	if f.Resolve != nil {
		f.led = f.Resolve(p)
		f.linked = f.led != filepath.Clean(p)
		if led, err := filepath.Rel(f.Resolve(f.Workdir), f.led); err == nil && led != spelled {
			f.places = append(f.places, led)
		}
	}
	return f.places
}

// fitsPath compares a rule's globs with the path as it is spelled, and with the one
// that it leads to: a rule that allows has to fit both, one that asks or denies
// either. A path that leaves the session's folder is never allowed by one. What looks
// below its path is allowed only by a glob that has what is below, and may meet
// whatever a glob has there.
func (r *rule) fitsPath(f *facts) (best answer, why string) {
	if !f.isFile {
		return no, ""
	}
	targets, allows := f.targets(), r.Decision == Allow
	switch {
	case allows && f.outside: // its paths are those of the folder, which the sandbox keeps
		return no, ""
	case targets == nil && allows:
		return no, ""
	case targets == nil:
		return perhaps, "a path that cannot be told"
	case allows:
		best = yes
	}
	for _, rel := range targets {
		fit := no
		for _, glob := range r.Path {
			fit = max(fit, fitsGlob(glob, rel, f.walks, allows))
		}
		switch leaves := rel == ".." || strings.HasPrefix(rel, "../"); {
		case allows && leaves:
			best = no
		case allows:
			best = min(best, fit)
		default:
			best = max(best, fit)
		}
	}
	return best, "looks below that path"
}

func fitsGlob(glob, rel string, walks, allows bool) answer {
	match := doublestar.MatchUnvalidated(glob, rel)
	switch {
	case !walks && match:
		return yes
	case !walks:
		return no
	case allows && match && doublestar.MatchUnvalidated(glob, path.Join(rel, "\x01/\x01")):
		return yes
	case allows:
		return no
	case match:
		return yes
	case mayMeet(glob, rel):
		return perhaps
	}
	return no
}

// mayMeet tells whether there can be something below a path that a glob fits.
func mayMeet(glob, rel string) bool {
	base, rest := doublestar.SplitPattern(glob)
	if !strings.ContainsAny(glob, `*?[{\`) {
		base, rest = glob, ""
	}
	within := func(inner, outer string) bool {
		return outer == "." || inner == outer || strings.HasPrefix(inner, outer+"/")
	}
	return within(base, rel) || rest != "" && within(rel, base)
}
