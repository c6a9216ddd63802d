package instructions

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func (w *world) skill(dir, name, description string) string {
	w.t.Helper()
	return w.write(filepath.Join(dir, name, "SKILL.md"), "---\nname: "+name+"\ndescription: "+description+
		"\n---\n\nThe text of "+name+".\n")
}

func TestTheNearestSkillWins(t *testing.T) {
	w := newWorld(t)
	near := w.skill(filepath.Join(w.dir, ".claude", "skills"), "review", "of the folder")
	w.skill(filepath.Join(w.root, ".agents", "skills"), "review", "of the root")
	deploy := w.skill(filepath.Join(w.root, ".agents", "skills"), "deploy", "of the root")
	w.skill(filepath.Join(w.home, ".agents", "skills"), "deploy", "of the user")
	mail := w.skill(filepath.Join(w.home, ".agents", "skills"), "mail", "of the user")
	plan := w.skill(filepath.Join(w.conf, "skills"), "plan", "of the user")
	w.skill(filepath.Join(w.root, "..", ".agents", "skills"), "above", "above the repository")
	text := w.want(near, deploy, mail, plan)
	inOrder(t, text, "- review: of the folder ("+near+")", "- deploy: of the root ("+deploy+")", "- mail: of the user",
		"- plan: of the user")
	s, body, err := w.in.Skill("review")
	if err != nil || s != (Skill{"review", "of the folder", near}) || body != "The text of review." {
		t.Errorf("got %+v %q %v", s, body, err)
	}
	if _, _, err := w.in.Skill("nothing"); !errors.Is(err, ErrNoSkill) {
		t.Errorf("got %v", err)
	}
}

func TestSkillsAreFoldersWithAWellFormedFile(t *testing.T) {
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n" + strings.ReplaceAll("b: &b [*a,*a,*a,*a]\nc: [*b,*b,*b,*b]\n", "*", "*")
	for name, c := range map[string]struct{ text, problem string }{
		"fine":    {"---\r\nname: fine\r\ndescription: >-\r\n  two\r\n  lines\r\nmetadata: {a: [1]}\r\n---\r\nText", ""},
		"quoted":  {"\ufeff---\nname: \"quoted\"\ndescription: 'a: b'\n---", ""},
		"none":    {"Text", "has no front matter"},
		"endless": {"---\nname: endless\ndescription: x\n", "has no end of its front matter"},
		"long": {
			"---\nname: long\ndescription: x\nmore: " + strings.Repeat("x", maxSkill) + "\n---\n",
			"has no end of its front matter",
		},
		"broken":   {"---\nname: [broken\n---\n", "has a broken front matter"},
		"list":     {"---\n- name\n---\n", "has a front matter without fields"},
		"empty":    {"---\n---\n", "has a front matter without fields"},
		"nameless": {"---\ndescription: x\n---\n", "has no name"},
		"mute":     {"---\nname: mute\ndescription: ''\n---\n", "has no description"},
		"other":    {"---\nname: another\ndescription: x\n---\n", "its folder has another"},
		"Loud":     {"---\nname: Loud\ndescription: x\n---\n", "small letters"},
		"table":    {"---\nname: table\ndescription: {a: b}\n---\n", "has a description that is no text"},
		"bomb":     {"---\nname: bomb\ndescription: x\n" + bomb + "---\n", "has an alias"},
		"alias":    {"---\nname: &n alias\ndescription: *n\n---\n", "has an alias"},
		"deep":     {"---\nname: deep\ndescription: " + strings.Repeat("[", 50_000) + "\n---\n", "has a broken front matter"},
	} {
		w := newWorld(t)
		path := w.write(filepath.Join(w.root, ".agents", "skills", name, "SKILL.md"), c.text)
		skills, problems := w.in.Skills()
		switch {
		case c.problem == "" && (len(skills) != 1 || len(problems) != 0):
			t.Errorf("%s: got %v and %q", name, skills, problems)
		case c.problem != "" && (len(skills) != 0 || len(problems) != 1 || !strings.HasPrefix(problems[0], path+": ") ||
			!strings.Contains(problems[0], c.problem)):
			t.Errorf("%s: got %v and %q, want a problem that names %s and says %q", name, skills, problems, path, c.problem)
		}
		if len(skills) == 1 && skills[0].Description != map[string]string{"fine": "two lines", "quoted": "a: b"}[name] {
			t.Errorf("%s: got %q", name, skills[0].Description)
		}
	}
}

func TestALinkOutOfARepositoryIsNoSkill(t *testing.T) {
	w := newWorld(t)
	away := w.skill(w.outside, "away", "secret")
	skills := filepath.Join(w.root, ".agents", "skills")
	w.link(filepath.Dir(away), filepath.Join(skills, "away"))
	w.link("/etc/passwd", filepath.Join(skills, "users", "SKILL.md"))
	w.link(w.outside, filepath.Join(w.root, ".claude", "skills"))
	w.fifo(filepath.Join(skills, "pipe", "SKILL.md"))
	w.fifo(filepath.Join(w.dir, ".agents", "skills"))
	w.write(filepath.Join(skills, "README.md"), "no folder")
	inner := w.skill(filepath.Join(w.root, "shared"), "inner", "in the repository")
	w.link("../../shared/inner", filepath.Join(skills, "inner"))
	_ = inner
	w.want(filepath.Join(skills, "inner", "SKILL.md"))
	_, problems := w.in.Skills()
	for _, path := range []string{
		filepath.Join(skills, "away", "SKILL.md"), filepath.Join(skills, "users", "SKILL.md"),
		filepath.Join(skills, "pipe", "SKILL.md"),
		filepath.Join(w.root, ".claude", "skills"), filepath.Join(w.dir, ".agents", "skills"),
	} {
		if !strings.Contains(strings.Join(problems, "\n")+"\n", path+": ") {
			t.Errorf("nobody is told that %s is left out: %q", path, problems)
		}
	}
	if len(problems) != 5 {
		t.Errorf("got %q", problems)
	}
}

func TestALinkInTheHomeIsFollowed(t *testing.T) {
	w := newWorld(t)
	mine := w.skill(filepath.Join(w.home, "dotfiles"), "mine", "of the user")
	w.link(filepath.Dir(mine), filepath.Join(w.home, ".agents", "skills", "mine"))
	w.want(filepath.Join(w.home, ".agents", "skills", "mine", "SKILL.md"))
}

func TestSkillsTakeTwoPercentOfTheWindow(t *testing.T) {
	w := newWorld(t)
	for i := range 30 {
		w.skill(filepath.Join(w.conf, "skills"), fmt.Sprintf("skill-%02d", i), strings.Repeat("word ", 20))
	}
	without, _, _ := newWorld(t).in.System("", 0)
	for _, window := range []int64{8_000, 32_000, 128_000} {
		text, files, _ := w.in.System("", window)
		if got := len(text) - len(without); got > int(window)*4*2/100 {
			t.Errorf("a window of %d tokens: the list has %d bytes", window, got)
		}
		left := fmt.Sprintf("[%d more do not fit here]", 30-len(files))
		if strings.Contains(text, left) != (len(files) < 30) {
			t.Errorf("a window of %d tokens: %d skills, and what is left out is not told:\n%s", window, len(files), text)
		}
	}
	if _, files, _ := w.in.System("", 128_000); len(files) != 30 {
		t.Errorf("got %d of 30 skills in a large window", len(files))
	}
}

func TestAFolderOfTooManySkillsIsLeftOut(t *testing.T) {
	w := newWorld(t)
	dir := filepath.Join(w.root, ".agents", "skills")
	for i := range maxEntries + 1 {
		w.write(filepath.Join(dir, fmt.Sprint(i)), "")
	}
	if skills, problems := w.in.Skills(); len(skills) != 0 || len(problems) != 1 ||
		!strings.Contains(problems[0], "more than 1000 entries") {
		t.Errorf("got %v %q", skills, problems)
	}
}

func TestASkillThatDoesNotChangeIsNotReadAgain(t *testing.T) {
	w := newWorld(t)
	path := w.skill(filepath.Join(w.root, ".agents", "skills"), "review", "first")
	if w.in.Skills(); len(w.in.skills.of) != 0 {
		t.Error("a file that has just changed is kept: its next change could have the same time")
	}
	w.in.skills.put("x", kept[skillFile]{}) // so that there is a map
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	w.in.skills.put(w.root+"\x00"+path, kept[skillFile]{stampOf(info), skillFile{Skill: Skill{"review", "kept", path}}})
	if skills, _ := w.in.Skills(); len(skills) != 1 || skills[0].Description != "kept" {
		t.Errorf("got %v", skills)
	}
	if err := os.Chtimes(path, time.Now(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if skills, _ := w.in.Skills(); len(skills) != 1 || skills[0].Description != "first" {
		t.Errorf("got %v", skills)
	}
}
