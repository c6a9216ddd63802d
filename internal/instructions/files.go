package instructions

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"noused/internal/format"
	"noused/internal/regular"
)

const (
	agentsName = "AGENTS.md"
	claudeName = "CLAUDE.md" // read where a folder has no AGENTS.md

	maxAgents = 32 << 10 // bytes of one such file that a model is told
	maxTold   = 96 << 10 // bytes of all of them
)

// AgentsFile and SkillsDir are what a configuration folder has for models.
func AgentsFile(configDir string) string { return filepath.Join(configDir, agentsName) }

// SkillsDir has the user's own skills.
func SkillsDir(configDir string) string { return filepath.Join(configDir, "skills") }

// reading is the beginning of a file, or why there is none.
type reading struct {
	text string
	cut  bool // there is more
	err  error
}

var (
	// errOutside says that a link leads out of the folder that it may not leave.
	errOutside = errors.New("is a link that leads out of the folder where it was found")
	errHidden  = errors.New("is a link to what tools may not read")
)

// agents returns what the AGENTS.md files say, the user's own first, then those of
// the folders, which begin at the repository's root; and their paths.
func (in *Instructions) agents(folders []string) (told, files []string) {
	left := maxTold
	tell := func(root, dir string, names ...string) {
		for _, name := range names {
			path := filepath.Join(dir, name)
			r, ok := in.texts.get(root, path, in.readAgents)
			if !ok || r.err != nil || r.text == "" {
				continue
			}
			said := r.text
			if len(said) > left {
				said, r.cut = format.Cut(said, left), true
			}
			left -= len(said)
			if r.cut {
				said += fmt.Sprintf("\n[cut after %d bytes; the rest is in %s]", len(said), path)
			}
			told, files = append(told, fmt.Sprintf("# %s\n\n%s", path, said)), append(files, path)
			return
		}
	}
	tell("", in.ConfigDir, agentsName)
	for _, dir := range folders {
		tell(folders[0], dir, agentsName, claudeName)
	}
	return told, files
}

func (in *Instructions) readAgents(root, path string) reading {
	r := in.readFile(root, path, maxAgents)
	r.text = strings.TrimSpace(r.text)
	return r
}

// readFile returns the first bytes of a regular file of this user's or root's. It
// may be a link, but with a root not one that leads out of there, or to what is
// hidden: anyone who can write in a repository is not to have the daemon read for
// them.
func (in *Instructions) readFile(root, path string, most int) reading {
	real, err := inside(root, path)
	if err != nil {
		return reading{err: err}
	}
	f, err := regular.Open(real, os.O_RDONLY)
	if err != nil {
		return reading{err: err}
	}
	defer func() { _ = f.Close() }()
	if err := in.mayTell(root, f); err != nil {
		return reading{err: err}
	}
	text, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	if err != nil {
		return reading{err: err}
	}
	return reading{text: format.Cut(string(text), most), cut: len(text) > most}
}

// mayTell looks at the file that was opened: a folder on the way to it may have
// been replaced by a link since the path was resolved.
func (in *Instructions) mayTell(root string, f *os.File) error {
	if root == "" {
		return nil
	}
	real, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		return err
	}
	if in.Hidden != nil && in.Hidden(in.Workdir, real) {
		return errHidden
	}
	return within(root, real)
}

// inside resolves the links of a path. With a root it must not lead out of there.
func inside(root, path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil || root == "" {
		return real, err
	}
	return real, within(root, real)
}

// within is errOutside for a path, its links resolved, that is not in root.
func within(root, real string) error {
	root, err := filepath.EvalSymlinks(root)
	if err != nil {
		return err
	}
	if rel, err := filepath.Rel(root, real); err != nil || !filepath.IsLocal(rel) {
		return errOutside
	}
	return nil
}
