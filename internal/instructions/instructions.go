// Package instructions puts together what a model is told before a conversation:
// the daemon's own prompt, the AGENTS.md files of the user and the repository, the
// skills there are, and where the conversation takes place (models-today.md §5).
//
// Concurrency: an Instructions may be used by any number of goroutines.
//
// It refuses to trust a repository: no link out of it is followed, no file that is
// not regular and the user's own is read, no program that it names is run, and all
// that is read of it has a limit. It writes nothing but a folder of its own for
// git, and removes that.
package instructions

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
)

// Options say where to look. Paths are absolute.
type Options struct {
	Workdir   string
	Home      string // has .agents/skills
	ConfigDir string // has AGENTS.md, skills and commands
	Scratch   string // a folder that nobody else writes to; git gets one in it
	Extra     string // said after everything else
	// Writable returns the folders that the built-in tools can write to in a session
	// that lives in workdir; nil where there are no such tools.
	Writable func(workdir string) []string
	// Hidden reports what tools in that workdir may not read, and models are not
	// told, of a path without links: a tool can put a link to it into the
	// repository. May be nil.
	Hidden func(workdir, path string) bool
	Getenv func(string) string
}

// Instructions reads what models are told. Make it with New.
type Instructions struct {
	Options
	*shared
}

// shared is what was found out for all folders.
type shared struct {
	texts    cache[reading]
	listings cache[listing]
	skills   cache[skillFile]
	commands cache[commandFile]
	named    cache[namedFile]
	release  cache[string]          // what the distribution is called
	bash     atomic.Pointer[string] // where it was found
}

// New returns Instructions. Those that a former process left in the Scratch folder
// are removed.
func New(o Options) (*Instructions, error) {
	if err := os.RemoveAll(o.Scratch); err != nil {
		return nil, fmt.Errorf("instructions: %w", err)
	}
	return &Instructions{Options: o, shared: &shared{}}, nil
}

// In returns the Instructions for conversations in another folder.
func (in *Instructions) In(workdir string) *Instructions {
	there := *in
	there.Workdir = workdir
	return &there
}

// System returns what a model is told that reads so many tokens, 0 where that is
// not known; the files that it is from; and the files that were left out, each
// with the reason. environment is what Environment returned, once for a
// conversation. The files are looked at anew; while none changes, the text does
// not.
func (in *Instructions) System(environment string, window int64) (text string, files, problems []string) {
	parts := []string{basePrompt}
	if in.Writable != nil {
		parts = append(parts, sandbox(in.Writable(in.Workdir)))
	}
	folders := repository(in.Workdir)
	told, files := in.agents(folders)
	parts = append(parts, told...)
	skills, problems := in.find(folders)
	if list, from := listSkills(skills, window); list != "" {
		parts, files = append(parts, list), append(files, from...)
	}
	for _, last := range []string{environment, in.Extra} {
		if last != "" {
			parts = append(parts, last)
		}
	}
	return strings.Join(parts, "\n\n"), files, problems
}

// maxParents is how many folders up a repository's root is looked for.
const maxParents = 64

// repository lists the folders from the repository's root down to dir; outside a
// repository dir alone.
func repository(dir string) []string {
	up := []string{dir}
	for d := dir; ; {
		if _, err := os.Lstat(filepath.Join(d, ".git")); err == nil {
			break
		}
		parent := filepath.Dir(d)
		if parent == d || len(up) == maxParents {
			return []string{dir}
		}
		d = parent
		up = append(up, d)
	}
	slices.Reverse(up)
	return up
}
