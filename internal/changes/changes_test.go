package changes

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"noused/internal/budget"
	"noused/internal/worktree"
)

var full = Limits{File: 10 << 20, Bytes: 1 << 30, Files: 50_000, Memory: 256 << 20}

func unbounded() *memory {
	m := newMemory(budget.NewPool(1<<40), 1<<40)
	return &m
}

// folderUnder is a session's folder under test.
type folderUnder struct {
	t      testing.TB
	e      *Engine
	f      Folder
	top    string
	turn   int
	steps  []Step
	rewind int
}

func newFolder(t testing.TB, git bool) *folderUnder {
	t.Helper()
	state, top := t.TempDir(), t.TempDir()
	if real, err := filepath.EvalSymlinks(top); err == nil {
		top = real
	}
	u := &folderUnder{t: t, top: top, f: Folder{"ses-1", top}}
	u.e = New(Options{
		Dir: func(id string) string { return filepath.Join(state, id+".changes") }, Git: worktree.Directly, Limits: full,
	})
	if git {
		u.git("init", "-q")
	}
	return u
}

func (u *folderUnder) git(args ...string) string {
	u.t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@b"}, args...)...)
	cmd.Dir = u.top
	out, err := cmd.CombinedOutput()
	if err != nil {
		u.t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return string(out)
}

func (u *folderUnder) write(rel, text string) {
	u.t.Helper()
	at := filepath.Join(u.top, rel)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		u.t.Fatal(err)
	}
	if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
		u.t.Fatal(err)
	}
}

func (u *folderUnder) sh(script string) {
	u.t.Helper()
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir = u.top
	if out, err := cmd.CombinedOutput(); err != nil {
		u.t.Fatalf("%s: %v: %s", script, err, out)
	}
}

// turnOf records a turn that does something.
func (u *folderUnder) turnOf(do func()) Recorded {
	u.t.Helper()
	u.turn++
	name := fmt.Sprintf("run/%d", u.turn)
	if err := u.e.Before(context.Background(), u.f, name); err != nil {
		u.t.Fatal(err)
	}
	do()
	rec, err := u.e.After(context.Background(), u.f, name)
	if err != nil {
		u.t.Fatal(err)
	}
	u.e.Settle(u.f)
	u.steps = append(u.steps, Step{Changes: rec.Changes})
	return rec
}

func (u *folderUnder) show() Report {
	u.t.Helper()
	rep, err := u.e.Show(context.Background(), u.f, u.steps, "", true)
	if err != nil {
		u.t.Fatal(err)
	}
	return rep
}

// back rewinds to before a step, and returns the plan.
func (u *folderUnder) back(from int, force ...string) Plan {
	u.t.Helper()
	plan, err := u.e.PlanRewind(context.Background(), u.f, u.steps[from:], force, true)
	if err != nil {
		u.t.Fatal(err)
	}
	if len(plan.Conflicts) == 0 {
		u.rewind++
		if err := u.e.Apply(u.f, plan.Changes, fmt.Sprint("rew-", u.rewind)); err != nil {
			u.t.Fatal(err)
		}
		u.steps = append(u.steps, Step{Changes: plan.Changes})
	}
	return plan
}

// tree is all that is in the folder: names, modes and contents.
func (u *folderUnder) tree() string {
	u.t.Helper()
	var out strings.Builder
	if err := filepath.WalkDir(u.top, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.Name() == ".git" && d.IsDir() {
			return filepath.SkipDir
		}
		if d.Name() == ".git" {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(u.top, path)
		fmt.Fprintf(&out, "%q %v", rel, info.Mode())
		switch {
		case info.Mode().IsRegular():
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&out, " %q", text)
		case info.Mode()&os.ModeSymlink != 0:
			to, _ := os.Readlink(path)
			fmt.Fprintf(&out, " -> %q", to)
		}
		out.WriteByte('\n')
		return nil
	}); err != nil {
		u.t.Fatal(err)
	}
	return out.String()
}

func (u *folderUnder) same(want, what string) {
	u.t.Helper()
	if is := u.tree(); is != want {
		u.t.Errorf("%s: the folder is\n%s\nand was\n%s", what, is, want)
	}
}

func bothKinds(t *testing.T, run func(t *testing.T, u *folderUnder)) {
	t.Helper()
	for name, git := range map[string]bool{"git": true, "no git": false} {
		t.Run(name, func(t *testing.T) { run(t, newFolder(t, git)) })
	}
}

func TestATurnIsShownAndTakenBack(t *testing.T) {
	bothKinds(t, func(t *testing.T, u *folderUnder) {
		u.write("a.txt", "one\ntwo\n")
		u.write("sub/b.txt", "b\n")
		u.sh("chmod 600 sub/b.txt; mkdir empty; ln -s a.txt link")
		was := u.tree()
		u.turnOf(func() {
			u.write("a.txt", "one\nzwei\n")
			u.write("new/deep/c.bin", "\x00\xff")
			u.sh("rm -r sub; rmdir empty; ln -sf b link; mkdir -m 750 made; printf x > $(printf '\\377')")
		})
		is := u.tree()
		var got []string
		for _, f := range u.show().Files {
			got = append(got, fmt.Sprint(f.Status, " ", f.Path, " ", f.Added, f.Removed, f.Binary))
		}
		want := `added \xff 1 0 false
modified a.txt 1 1 false
deleted empty/ 0 0 false
modified link 1 1 false
added made/ 0 0 false
added new/deep/c.bin 0 0 true
deleted sub/b.txt 0 1 false`
		if strings.Join(got, "\n") != want {
			t.Errorf("files:\n%s\nwant\n%s", strings.Join(got, "\n"), want)
		}
		if plan := u.back(0); len(plan.Conflicts) > 0 {
			t.Fatalf("conflicts: %v", plan.Conflicts)
		}
		u.same(was, "rewound")
		if rep := u.show(); len(rep.Files) > 0 {
			t.Errorf("what was taken back shows still: %v", rep.Files)
		}
		if plan := u.back(1); len(plan.Conflicts) > 0 {
			t.Fatalf("conflicts: %v", plan.Conflicts)
		}
		u.same(is, "undone")
	})
}

// A file that somebody else changes between two turns that both write it is marked: what is shown of both has that,
// too, and git apply -R would take it back (found by a trial).
func TestWhatSomebodyElseChangedBetweenTurnsIsMarked(t *testing.T) {
	bothKinds(t, func(t *testing.T, u *folderUnder) {
		for _, name := range []string{"a", "b"} {
			u.turnOf(func() { u.write(name, "one\n") })
			u.turnOf(func() { u.write(name, "one\ntwo\n") })
		}
		u.write("b", "one\ntwo\nmine\n")
		u.turnOf(func() { u.write("b", "one\ntwo\nmine\nthree\n") })
		for _, f := range u.show().Files {
			if f.Shared != (f.Path == "b") {
				t.Errorf("%s: shared is %t", f.Path, f.Shared)
			}
		}
	})
}

// counted is a runner of gits that counts them.
func counted(gits *int) worktree.Runner {
	return func(ctx context.Context, c worktree.Command, out io.Writer) error {
		*gits++
		return worktree.Directly(ctx, c, out)
	}
}

// A turn waits for no more gits than it must: for none where it changes files that were there, and
// for one that says whether new files are ignored, and one that hands out a former content that is
// in a pack.
func TestATurnWaitsForFewGits(t *testing.T) {
	u := newFolder(t, true)
	u.write("a", "of a\n")
	u.write("p", "of p\n")
	u.write(".gitignore", "*.log\n")
	u.sh("mkdir -p empty/deep; touch -d '1 hour ago' a p")
	u.git("add", "-A")
	u.git("commit", "-qm", "x")
	u.git("gc", "-q")
	u.write("b", "1\n")
	gits := 0
	u.e.o.Git = counted(&gits)
	u.turnOf(func() {})
	u.turnOf(func() { u.write("b", "2\n") })
	for _, step := range []struct {
		what string
		do   func()
		want int
	}{
		{"changes a file in place", func() { u.write("b", "3\n") }, 0},
		{"has a file take its place", func() { u.sh("echo 4 > empty/new; mv empty/new b") }, 0},
		{"removes a file", func() { u.sh("rm b") }, 0},
		{"makes files", func() { u.write("c", "1\n"); u.write("x.log", "1\n"); u.write("empty/d", "1\n") }, 1},
		{"has an ignored file", func() { u.write("x.log", "2\n"); u.sh("echo 2 > new; mv new c") }, 0},
		{"changes a file of the repository", func() { u.write("a", "2\n") }, 1},
		{"changes one and makes one", func() { u.write("p", "2\n"); u.write("e", "1\n") }, 2},
	} {
		gits = 0
		if u.turnOf(step.do); gits != step.want {
			t.Errorf("a turn that %s waits for %d gits, not %d", step.what, gits, step.want)
		}
	}
	gits = 0
	if plan, err := u.e.PlanRewind(context.Background(), u.f, u.steps, nil, false); err != nil || gits > 0 {
		t.Errorf("%d gits for what a rewind of %d files does: %v", gits, len(plan.Files), err)
	}
}
