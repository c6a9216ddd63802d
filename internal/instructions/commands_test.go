package instructions

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// library is a repository with commands, and a user's own.
func library(t *testing.T, files map[string]string) (*Instructions, string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "repo", ".git"), 0o755); err != nil {
		t.Fatal(err)
	}
	in, err := New(Options{
		Workdir: filepath.Join(dir, "repo", "sub"), Home: filepath.Join(dir, "home"), ConfigDir: filepath.Join(dir, "config"),
		Scratch: filepath.Join(dir, "scratch"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return in, dir
}

// The nearest command of a name is the one that is meant, and a front matter is no part of it.
func TestCommandsOfFiles(t *testing.T) {
	in, dir := library(t, map[string]string{
		"repo/sub/.noused/commands/fix.md": "---\ndescription: fix an issue\nallowed-tools: [a]\n---\nFix issue $1 for $2.\n",
		"repo/.claude/commands/fix.md":     "The other.",
		"repo/.claude/commands/review.md":  "Review $ARGUMENTS for $100 and $1.",
		"config/commands/plain.md":         "Be plain.",
		"config/commands/review.md":        "The user's own.",
		"config/commands/.hidden.md":       "no",
		"config/commands/no name.md":       "no",
		"config/commands/empty.md":         "---\n---\n",
		"config/commands/long.md":          strings.Repeat("x", maxCommand+1),
		"config/commands/broken.md":        "---\ndescription: x\n",
	})
	got, problems := in.Commands()
	var names []string
	for _, c := range got {
		names = append(names, c.Name+": "+c.Description)
	}
	if diff := cmp.Diff([]string{"fix: fix an issue", "review: ", "empty: ", "plain: "}, names); diff != "" {
		t.Error(diff)
	}
	if len(problems) != 2 || !strings.Contains(problems[0], "broken.md: has no end of its front matter") ||
		!strings.Contains(problems[1], "long.md: has more than 64 KiB") {
		t.Errorf("left out: %q", problems)
	}
	for written, want := range map[string]string{
		`/fix 17 "the new" parser`: "Fix issue 17 for the new.",
		"/fix":                     "Fix issue  for .",
		"/review $1 and\nthe rest": "Review $1 and\nthe rest for $100 and $1.",
		"/plain":                   "Be plain.",
		"/plain and quick":         "Be plain.\n\nand quick",
		"/nothing":                 "none",
		"/etc/passwd":              "none",
		"fix":                      "none",
		"/../commands/plain":       "none",
		"/long":                    "error: " + dir + "/config/commands/long.md: has more than 64 KiB",
		"/empty":                   "error: /empty comes to an empty text: " + dir + "/config/commands/empty.md says nothing",
		"/plain " + strings.Repeat("y", maxTextOfOne): "error: /plain comes to more than 256 KiB: write less behind it",
	} {
		text, ok, err := in.Expand(written)
		switch {
		case err != nil:
			text = "error: " + err.Error()
		case !ok:
			text = "none"
		}
		if text != want {
			t.Errorf("%.40q: got %.80q, want %q", written, text, want)
		}
	}
}

// A file that names its arguments very often is refused before its text is made.
func TestACommandThatComesToFarTooMuch(t *testing.T) {
	in, _ := library(t, map[string]string{"repo/.noused/commands/bomb.md": strings.Repeat("$1 ", maxCommand/3)})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, err := in.Expand("/bomb " + strings.Repeat("y", maxTextOfOne/8))
	runtime.ReadMemStats(&after)
	if err == nil || !strings.Contains(err.Error(), "comes to more than 256 KiB") {
		t.Errorf("got %v", err)
	}
	if made := after.TotalAlloc - before.TotalAlloc; made > 64<<20 {
		t.Errorf("it took %d MiB", made>>20)
	}
}

// A link in a repository leads nowhere, and neither does a folder that is one.
func TestCommandsAreNoLinks(t *testing.T) {
	in, dir := library(t, map[string]string{
		"secret.md": "the secret", "repo/.noused/commands/real.md": "real", "away/other.md": "other",
	})
	for link, to := range map[string]string{"repo/.noused/commands/leak.md": "secret.md", "repo/.claude": "away"} {
		if err := os.Symlink(filepath.Join(dir, to), filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(filepath.Join(dir, "away"), filepath.Join(dir, "commands")); err != nil {
		t.Fatal(err)
	}
	got, _ := in.Commands()
	if len(got) != 1 || got[0].Name != "real" {
		t.Errorf("got %+v", got)
	}
	if text, ok, err := in.Expand("/leak"); ok || err != nil {
		t.Errorf("got %q, %v", text, err)
	}
}
