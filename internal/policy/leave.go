package policy

import (
	"path/filepath"
	"strings"
)

// leavers are how the words begin with which a program that stays in a folder runs
// something else than the folder says.
var leavers = map[string][]string{
	"git": {"--upload-pack", "--receive-pack", "--exec", "--ext-diff", "ext::"},
	"go": {
		"-exec", "-toolexec", "-vettool", "-overlay", "-modfile", "-compiler", "-ldflags", "-gcflags", "-asmflags",
		"-gccgoflags",
	},
	"make":   {"-f", "--file", "--makefile", "-E", "--eval", "-I", "--include-dir", "-C", "--directory"},
	"cargo":  {"--config", "-Z"},
	"npm":    {"--script-shell", "--node-options", "--shell"},
	"pnpm":   {"--script-shell", "--node-options", "--shell"},
	"yarn":   {"--script-shell", "--node-options", "--shell"},
	"pytest": {"-p", "-o", "-c", "--override-ini", "--pyargs", "--pdbcls"},
}

// leaves tells whether the words of a command from one on have to do with more than
// a folder and what is in it: a path that leads out of it, an option that runs
// something else. A rule for one folder does not allow it. What a script does with
// its words is the script's own.
func (c command) leaves(workdir string, from int) bool {
	name := c[0].text
	if leavers[name] == nil {
		return false
	}
	for _, w := range c[from:] {
		_, value, _ := strings.Cut(w.text, "=")
		if leads(name, w.text) || outside(workdir, w.text) || outside(workdir, value) {
			return true
		}
		if isOption(w.text) && len(w.text) > 2 && outside(workdir, w.text[2:]) {
			return true
		}
	}
	return false
}

// leads tells whether a word is one of a program's leavers, or shortened to less than
// it: many programs take --up for --upload-pack.
func leads(name, text string) bool {
	if name == "make" && !isOption(text) && strings.Contains(text, "=") { // SHELL=…
		return true
	}
	option, _, _ := strings.Cut(text, "=")
	if name == "go" {
		option = strings.Replace(option, "--", "-", 1)
	}
	for _, l := range leavers[name] {
		if strings.HasPrefix(option, l) || len(option) > 2 && strings.HasPrefix(l, option) {
			return true
		}
	}
	return false
}

// outside tells whether a text, if it is a path, leads out of a folder.
func outside(workdir, text string) bool {
	switch {
	case text == "" || text == "/dev/null":
		return false
	case filepath.IsAbs(text):
		rel, err := filepath.Rel(workdir, text)
		return err != nil || !filepath.IsLocal(rel)
	case strings.HasPrefix(text, "~"), strings.HasPrefix(text, "file:"):
		return true
	}
	return !filepath.IsLocal(text)
}
