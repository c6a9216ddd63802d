package instructions

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// place is a repository with a folder in it, and what is the user's own.
type world struct {
	t          testing.TB
	root, dir  string
	home, conf string
	outside    string
	in         *Instructions
}

func newWorld(t testing.TB) *world {
	t.Helper()
	top := t.TempDir()
	w := &world{
		t: t, root: filepath.Join(top, "repo"), dir: filepath.Join(top, "repo", "a", "b"), home: filepath.Join(top, "home"),
		conf: filepath.Join(top, "home", ".config", "noused"), outside: filepath.Join(top, "outside"),
	}
	w.write(filepath.Join(w.root, ".git", "HEAD"), "ref: refs/heads/main\n")
	w.write(filepath.Join(w.dir, "x.go"), "")
	w.write(filepath.Join(w.outside, "keys"), "secret")
	var err error
	w.in, err = New(Options{
		Workdir: w.dir, Home: w.home, ConfigDir: w.conf, Scratch: filepath.Join(top, "scratch"),
		Getenv: os.Getenv,
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) write(path, text string) string {
	w.t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		w.t.Fatal(err)
	}
	return path
}

func (w *world) link(to, path string) {
	w.t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.Symlink(to, path)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) fifo(path string) string {
	w.t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), unix.Mkfifo(path, 0o600)); err != nil {
		w.t.Fatal(err)
	}
	return path
}

// want checks which files the model learns of.
func (w *world) want(files ...string) (text string) {
	w.t.Helper()
	text, got, _ := w.in.System("", 0)
	if !slices.Equal(got, files) {
		w.t.Errorf("got the files %q, want %q", got, files)
	}
	if strings.Contains(text, "secret") {
		w.t.Errorf("the model is told what is outside: %s", text)
	}
	return text
}

func inOrder(t *testing.T, text string, parts ...string) {
	t.Helper()
	at := 0
	for _, part := range parts {
		i := strings.Index(text[at:], part)
		if i < 0 {
			t.Fatalf("no %.60q in its place in %s", part, text)
		}
		at += i
	}
}

func TestInstructionsAreTheUsersThenTheRepositorysFromItsRootDown(t *testing.T) {
	w := newWorld(t)
	w.in.Extra = "of the configuration"
	own := w.write(filepath.Join(w.conf, "AGENTS.md"), "of the user")
	root := w.write(filepath.Join(w.root, "AGENTS.md"), "of the root")
	w.write(filepath.Join(w.root, "CLAUDE.md"), "not read: there is an AGENTS.md")
	between := w.write(filepath.Join(w.root, "a", "CLAUDE.md"), "of the folder between")
	w.write(filepath.Join(w.root, "..", "AGENTS.md"), "secret: above the root")
	here := w.write(filepath.Join(w.dir, "AGENTS.md"), "of the folder")
	text := w.want(own, root, between, here)
	inOrder(t, text, "You are noused", "of the user", "of the root", "of the folder between", "of the folder",
		"of the configuration")
	if strings.Contains(text, "not read") {
		t.Error("a CLAUDE.md is told beside an AGENTS.md")
	}
}

func TestInstructionsOfAHostileRepository(t *testing.T) {
	w := newWorld(t)
	w.link(filepath.Join(w.outside, "keys"), filepath.Join(w.root, "AGENTS.md"))
	w.link("/etc/passwd", filepath.Join(w.root, "CLAUDE.md"))
	w.fifo(filepath.Join(w.root, "a", "AGENTS.md"))
	w.write(filepath.Join(w.dir, "CLAUDE.md"), strings.Repeat("x", maxAgents)+"secret")
	w.link("CLAUDE.md", filepath.Join(w.dir, "AGENTS.md"))
	text := w.want(filepath.Join(w.dir, "AGENTS.md"))
	if !strings.Contains(text, "[cut after 32768 bytes; the rest is in "+filepath.Join(w.dir, "AGENTS.md")) ||
		strings.Contains(text, "root:") {
		t.Errorf("got %.300q…", text)
	}
}

// A folder of the user's may have the daemon's own in it: a home that is a
// repository. A link from there leads out of nothing, and yet to the keys.
func TestWhatToolsMayNotReadIsNotTold(t *testing.T) {
	w := newWorld(t)
	own := filepath.Join(w.root, ".config")
	keys := w.write(filepath.Join(own, "environment"), "secret")
	w.write(filepath.Join(own, "SKILL.md"), "---\nname: planted\ndescription: secret\n---\nsecret")
	w.in.Hidden = func(_, path string) bool { return strings.HasPrefix(path, own+"/") }
	w.link(keys, filepath.Join(w.root, "AGENTS.md"))
	w.link("../../.config/environment", filepath.Join(w.dir, "CLAUDE.md"))
	w.link(own, filepath.Join(w.root, ".agents", "skills", "planted"))
	w.want()
	if _, text, err := w.in.Skill("planted"); !errors.Is(err, ErrNoSkill) {
		t.Errorf("got %q, %v", text, err)
	}
}

// A tool may put a link in the place of a folder just when its file is read.
func TestALinkThatComesLateLeadsNowhere(t *testing.T) {
	w := newWorld(t)
	f, err := os.Open(filepath.Join(w.outside, "keys")) // what would be opened then
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := w.in.mayTell(w.root, f); !errors.Is(err, errOutside) {
		t.Errorf("got %v", err)
	}
}

func TestInstructionsAreBoundedTogether(t *testing.T) {
	w := newWorld(t)
	dir := w.root
	for range 6 {
		w.write(filepath.Join(dir, "AGENTS.md"), strings.Repeat("é", maxAgents/2-100))
		dir = filepath.Join(dir, "d")
	}
	w.in.Workdir = filepath.Dir(dir)
	text, _, _ := w.in.System("", 0)
	if len(text) > maxTold+8<<10 || !strings.Contains(text, "[cut after ") {
		t.Errorf("got %d bytes, want %d and a little", len(text), maxTold)
	}
}

func TestInstructionsAreReadAgainWhenTheyChange(t *testing.T) {
	w := newWorld(t)
	path := w.write(filepath.Join(w.dir, "AGENTS.md"), "first")
	if !strings.Contains(w.want(path), "first") {
		t.Error("not told")
	}
	w.write(path, "other") // of the same length, perhaps in the same tick of the clock
	if !strings.Contains(w.want(path), "other") {
		t.Error("the file has changed, and the model is told what it said before")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	w.want()
}

func TestTheBuiltInPromptIsShortAndComplete(t *testing.T) {
	w := newWorld(t)
	w.in.Writable = func(workdir string) []string { return []string{workdir, filepath.Join(w.home, ".cache")} }
	text, _, _ := w.in.System(w.in.Environment(t.Context()), 0)
	if len(text) < 2<<10 || len(text) > 4<<10 {
		t.Errorf("it has %d bytes, want 2 to 4 KiB:\n%s", len(text), text)
	}
	inOrder(t, text, "You are noused", "# Conduct", "path:line", "# Tools", "# Sandbox", w.dir, "# Environment",
		"date: 20", "shell of bash: ", w.dir, "branch main")
	again, _, _ := w.in.System("", 0)
	if !strings.HasPrefix(text, again) {
		t.Error("what differs from session to session does not come last")
	}
}

func BenchmarkSystem(b *testing.B) {
	w := newWorld(b)
	w.write(filepath.Join(w.root, "AGENTS.md"), strings.Repeat("Run make check.\n", 500))
	w.write(filepath.Join(w.dir, "AGENTS.md"), strings.Repeat("Tabs.\n", 200))
	time.Sleep(unchangedFor) // as files are that were not written just now
	for b.Loop() {
		w.in.System("", 0)
	}
}

func BenchmarkSystemWith50Skills(b *testing.B) {
	w := newWorld(b)
	for i := range 50 {
		w.skill(filepath.Join(w.root, ".agents", "skills"), "skill-"+string(rune('a'+i/26))+string(rune('a'+i%26)),
			"Does something useful with files.")
	}
	time.Sleep(unchangedFor) // as files are that were not written just now
	for b.Loop() {
		w.in.System("", 0)
	}
}

func BenchmarkEnvironment(b *testing.B) {
	w := newWorld(b)
	dir, err := os.Getwd()
	if err != nil {
		b.Fatal(err)
	}
	w.in.Workdir = dir
	for b.Loop() {
		w.in.Environment(b.Context())
	}
}
