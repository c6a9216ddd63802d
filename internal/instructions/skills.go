package instructions

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	skillName = "SKILL.md"

	maxSkill       = 64 << 10 // bytes of a SKILL.md that are read
	maxEntries     = 1000     // entries of a folder of skills
	maxSkills      = 200      // of all folders together
	maxDescription = 1024     // bytes of a description that a model is told
	maxList        = 32 << 10 // bytes of all skills that a model is told
	// listPercent of a model's window may be filled with skills; a token has about
	// four bytes.
	listPercent   = 2
	bytesPerToken = 4
	usualWindow   = 128_000
)

// Skill is a folder with a SKILL.md: instructions for one kind of task. Path is
// that file's.
type Skill struct{ Name, Description, Path string }

// skillFile is a SKILL.md that was read, or what is wrong with it.
type skillFile struct {
	Skill
	err error
}

// ErrNoSkill says that there is no skill of that name.
var ErrNoSkill = errors.New("there is no such skill")

// Skills returns all skills, those that are nearest first, and the files that were
// left out, each with the reason.
func (in *Instructions) Skills() (skills []Skill, problems []string) {
	return in.find(repository(in.Workdir))
}

// Skill returns a skill and what its file says behind the front matter, cut where
// it is too long. ErrNoSkill where there is none of that name.
func (in *Instructions) Skill(name string) (Skill, string, error) {
	folders := repository(in.Workdir)
	skills, _ := in.find(folders)
	i := slices.IndexFunc(skills, func(s Skill) bool { return s.Name == name })
	if i < 0 {
		return Skill{}, "", ErrNoSkill
	}
	s := skills[i]
	r := in.readFile(in.rootOf(s.Path, folders), s.Path, maxSkill)
	if r.err != nil {
		return Skill{}, "", fmt.Errorf("%s: %w", s.Path, r.err)
	}
	_, body, err := split(r.text)
	if err != nil {
		return Skill{}, "", fmt.Errorf("%s: %w", s.Path, err)
	}
	body = strings.TrimSpace(body)
	if r.cut {
		body += fmt.Sprintf("\n[cut after %d bytes; the rest is in %s]", maxSkill, s.Path)
	}
	return s, body, nil
}

// rootOf is the folder of a repository that a skill's path must not lead out of,
// "" for one of the user's own.
func (in *Instructions) rootOf(path string, folders []string) string {
	for _, place := range in.places(folders) {
		if filepath.Dir(filepath.Dir(path)) == place.dir {
			return place.root
		}
	}
	return ""
}

// place is a folder of skills, and the folder that they must not lead out of.
type place struct{ dir, root string }

// places are where skills are looked for, the nearest first. A place is the
// repository's before it is the user's own.
func (in *Instructions) places(folders []string) []place {
	var all []place
	add := func(dir, root string) {
		if !slices.ContainsFunc(all, func(p place) bool { return p.dir == dir }) {
			all = append(all, place{dir, root})
		}
	}
	for _, folder := range slices.Backward(folders) {
		add(filepath.Join(folder, ".agents", "skills"), folder)
		add(filepath.Join(folder, ".claude", "skills"), folder)
	}
	add(filepath.Join(in.Home, ".agents", "skills"), "")
	add(SkillsDir(in.ConfigDir), "")
	return all
}

func (in *Instructions) find(folders []string) (skills []Skill, problems []string) {
	for _, p := range in.places(folders) {
		list, _ := in.listings.get(p.root, p.dir, readListing)
		if list.err != nil {
			problems = append(problems, p.dir+": "+reason(list.err))
		}
		for _, name := range list.names {
			path := filepath.Join(p.dir, name, skillName)
			file, ok := in.skills.get(p.root, path, in.readSkill)
			switch {
			case !ok || slices.ContainsFunc(skills, func(s Skill) bool { return s.Name == file.Name }):
			case len(skills)+len(problems) >= maxSkills:
				return skills, append(problems, fmt.Sprintf("%s: there are more than %d skills", p.dir, maxSkills))
			case file.err != nil:
				problems = append(problems, path+": "+reason(file.err))
			default:
				skills = append(skills, file.Skill)
			}
		}
	}
	return skills, problems
}

// listing are the names in a folder, sorted, of those that may be folders; or why
// it cannot be read.
type listing struct {
	names []string
	err   error
}

func readListing(root, dir string) listing {
	names, err := entries(root, dir)
	return listing{names, err}
}

func entries(root, dir string) (names []string, err error) {
	real, err := inside(root, dir)
	if err != nil {
		return nil, err
	}
	d, err := os.OpenFile(real, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }()
	list, err := d.ReadDir(maxEntries + 1)
	switch {
	case errors.Is(err, io.EOF): // it is empty
		return nil, nil
	case err != nil:
		return nil, err
	case len(list) > maxEntries:
		return nil, fmt.Errorf("has more than %d entries", maxEntries)
	}
	for _, e := range list {
		if (e.IsDir() || e.Type()&fs.ModeSymlink != 0) && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// readSkill reads the front matter of a SKILL.md.
func (in *Instructions) readSkill(root, path string) skillFile {
	r := in.readFile(root, path, maxSkill)
	if r.err != nil {
		return skillFile{err: r.err}
	}
	front, _, err := split(r.text)
	if err != nil {
		return skillFile{err: err}
	}
	name, description, err := parse(front)
	if err == nil {
		err = valid(name, filepath.Base(filepath.Dir(path)), description)
	}
	if err != nil {
		return skillFile{err: err}
	}
	return skillFile{Skill: Skill{name, description, path}}
}

// listSkills tells a model of skills, in what it may learn of them, and of how
// many more there are; and returns the files of those it tells.
func listSkills(skills []Skill, window int64) (text string, files []string) {
	if len(skills) == 0 {
		return "", nil
	}
	if window <= 0 {
		window = usualWindow
	}
	left := int(min(window*bytesPerToken*listPercent/100, maxList)) - len(skillsPrompt) -
		len(fmt.Sprintf(moreSkills, len(skills)))
	var b strings.Builder
	b.WriteString(skillsPrompt)
	for _, s := range skills {
		line := fmt.Sprintf("\n- %s: %s (%s)", s.Name, s.Description, s.Path)
		if len(line) > left {
			continue
		}
		left -= len(line)
		b.WriteString(line)
		files = append(files, s.Path)
	}
	if n := len(skills) - len(files); n > 0 {
		fmt.Fprintf(&b, moreSkills, n)
	}
	return b.String(), files
}

const (
	skillsPrompt = `# Skills

A skill is instructions for one kind of task. When a task fits a description, read the file behind it before you begin. Paths in it start at its folder.
`
	moreSkills = "\n[%d more do not fit here]"
)

// reason is an error without the path that it is about.
func reason(err error) string {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err.Error()
	}
	return err.Error()
}
