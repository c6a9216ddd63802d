package policy

import (
	"path"
	"path/filepath"
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
	walks    bool // looks below its path
	path     string
	parsed   *line
}

func factsOf(c Call) *facts {
	f := &facts{Call: c, undotted: Undotted(c.Tool)}
	if c.Kind != Builtin {
		return f
	}
	f.isBash = c.Tool == bashTool
	f.walks, f.isFile = fileTools[c.Tool]
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
		f.bad, f.outside = "arguments that cannot be read", f.isBash // for all that is known
		return
	}
	f.path = a.Path
	if f.isBash {
		f.command, f.outside = a.Command, a.Outside
	}
}

func (f *facts) line() *line {
	if f.parsed == nil {
		f.parsed = readLine(f.command)
	}
	return f.parsed
}

// mostPath is the longest path that is compared; the kernel takes none longer.
const mostPath = 4096

// target is the call's path from the session's folder, cleaned, beginning with ..
// where it leaves it; ok is false where nobody can tell.
func (f *facts) target() (rel string, ok bool) {
	p := f.path
	if p == "~" || strings.HasPrefix(p, "~/") {
		if f.Home == "" {
			return "", false
		}
		p = f.Home + p[1:]
	}
	if f.bad != "" || len(p) > mostPath || !filepath.IsAbs(f.Workdir) {
		return "", false
	}
	if !filepath.IsAbs(p) {
		p = filepath.Join(f.Workdir, p)
	}
	rel, err := filepath.Rel(f.Workdir, p)
	return rel, err == nil
}

// fitsPath compares a rule's globs with the path. A path that leaves the
// session's folder is never allowed by one. What looks below its path is allowed
// only by a glob that has what is below, and may meet whatever a glob has there.
func (r *rule) fitsPath(f *facts) (answer, string) {
	if !f.isFile {
		return no, ""
	}
	rel, ok := f.target()
	leaves := rel == ".." || strings.HasPrefix(rel, "../")
	switch {
	case !ok && r.Decision == Allow, leaves && r.Decision == Allow:
		return no, ""
	case !ok:
		return perhaps, "a path that cannot be told"
	}
	best := no
	for _, glob := range r.Path {
		best = max(best, fitsGlob(glob, rel, f.walks, r.Decision == Allow))
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
