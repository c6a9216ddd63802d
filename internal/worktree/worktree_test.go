package worktree

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"noused/internal/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.M{M: m}.Run()) }

// repo is a repository with one commit, in a folder of that name.
func repo(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(folder(t), name)
	run(t, ".", "init", "-q", "-b", "main", dir)
	commit(t, dir, "first")
	return dir
}

func folder(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func run(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=A", "-c", "user.email=a@example.com"},
		args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
}

func commit(t *testing.T, dir, subject string) {
	t.Helper()
	write(t, filepath.Join(dir, subject), subject)
	run(t, dir, "add", "--", subject)
	run(t, dir, "commit", "-q", "-m", subject)
}

func add(t *testing.T, dir, home, branch string) Tree {
	t.Helper()
	tree, err := Add(t.Context(), Directly, dir, home, branch, "")
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func wantError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want an error that says %q", err, want)
	}
}

// wantEmpty: nothing that somebody would have to clear away.
func wantEmpty(t *testing.T, home string) {
	t.Helper()
	if entries, err := os.ReadDir(home); err == nil && len(entries) > 0 {
		t.Errorf("%s has %v, want nothing", home, entries)
	}
}

func TestANewBranchIsMadeFromHEAD(t *testing.T) {
	dir, home := repo(t, "shop"), folder(t)
	run(t, dir, "checkout", "-q", "--detach")
	commit(t, dir, "second")
	tree := add(t, dir, home, "feat/x")
	if want := filepath.Join(home, "shop/feat/x"); tree.Dir != want {
		t.Errorf("got folder %s, want %s", tree.Dir, want)
	}
	if got, want := run(t, tree.Dir, "rev-parse", "refs/heads/feat/x"), run(t, dir, "rev-parse", "HEAD"); got != want {
		t.Errorf("the branch is at %s, want HEAD, %s", got, want)
	}
	name, branch, ok := Of(tree.Dir)
	if name != "shop" || branch != "feat/x" || !ok {
		t.Errorf("got %q, %q, %v, want shop and feat/x", name, branch, ok)
	}
	if err := Remove(t.Context(), tree.Dir, home); err == nil {
		t.Error("second is on no other branch, and the worktree was removed")
	}
	run(t, dir, "branch", "keep")
	if err := Remove(t.Context(), tree.Dir, home); err != nil {
		t.Error(err)
	}
	wantEmpty(t, home)
	run(t, dir, "rev-parse", "--verify", "refs/heads/feat/x")
}

func TestABranchThatExistsIsTakenAsItIs(t *testing.T) {
	dir, home := repo(t, "shop"), folder(t)
	run(t, dir, "branch", "old")
	run(t, dir, "tag", "tagged")
	run(t, dir, "branch", "tagged")
	commit(t, dir, "second")
	for _, branch := range []string{"old", "tagged"} {
		tree := add(t, filepath.Dir(filepath.Join(dir, "second")), home, branch)
		if _, err := os.Stat(filepath.Join(tree.Dir, "second")); err == nil {
			t.Errorf("%s has what was committed after it", branch)
		}
		if _, on, _ := Of(tree.Dir); on != branch {
			t.Errorf("got branch %q, want %q", on, branch)
		}
		if err := tree.TakeBack(t.Context()); err != nil {
			t.Error(err)
		}
		run(t, dir, "rev-parse", "--verify", "refs/heads/"+branch)
	}
	wantEmpty(t, home)
}

// Names are made of the title, or made up, and never that of a branch.
func TestANameIsMadeUp(t *testing.T) {
	dir, home := repo(t, "shop"), folder(t)
	for _, c := range []struct{ title, prefix string }{
		{"", "nous-"},
		{"Fix the LOGIN, please!\x1b[2J", "fix-the-login-please-2j"},
		{"fix the login please 2j", "fix-the-login-please-2j-"},
		{"日本", "nous-"},
		{"--upload-pack=x", "upload-pack-x"},
	} {
		tree, err := Add(t.Context(), Directly, dir, home, "", c.title)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(tree.Branch, c.prefix) || strings.HasSuffix(c.prefix, "-") == (tree.Branch == c.prefix) {
			t.Errorf("%q: got branch %q, want one like %q", c.title, tree.Branch, c.prefix)
		}
	}
}

func TestTakeBackLeavesNothing(t *testing.T) {
	dir, home := repo(t, "shop"), folder(t)
	before := run(t, dir, "for-each-ref")
	tree := add(t, dir, home, "a/b/c")
	if err := tree.TakeBack(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantEmpty(t, home)
	if diff := cmp.Diff(before, run(t, dir, "for-each-ref")); diff != "" {
		t.Errorf("refs (-want +got):\n%s", diff)
	}
	if got := linked(filepath.Join(dir, ".git")); len(got) > 0 {
		t.Errorf("git still has the worktrees %q", got)
	}
}

func TestWhatNoWorktreeIsMadeFor(t *testing.T) {
	dir, home := repo(t, "shop"), folder(t)
	unborn := filepath.Join(folder(t), "unborn")
	run(t, ".", "init", "-q", unborn)
	for _, c := range []struct{ dir, branch, want string }{
		{folder(t), "x", "is not in a git repository"},
		{unborn, "x", "has no commit yet"},
		{dir, "main", dir}, // checked out there
		{dir, "-f", "cannot be the name of a branch"},
		{dir, "--force", "cannot be the name of a branch"},
		{dir, "a b", "cannot be the name of a branch"},
		{dir, "a\x1b[2J", `"a\x1b[2J" cannot be the name of a branch`},
		{dir, "../../x", "cannot be the name of a branch"},
		{dir, "/x", "cannot be the name of a branch"},
		{dir, "@{-1}", "cannot be the name of a branch"},
		{dir, "HEAD", "cannot be the name of a branch"},
		{dir, "main/x", "main"}, // as a branch cannot be a folder, too
	} {
		_, err := Add(t.Context(), Directly, c.dir, home, c.branch, "")
		wantError(t, err, c.want)
	}
	wantEmpty(t, home)
	t.Setenv("PATH", folder(t))
	_, err := Add(t.Context(), Directly, dir, home, "x", "")
	wantError(t, err, "git is not installed")
	if !errors.Is(err, ErrNoGit) {
		t.Errorf("got %v, want ErrNoGit", err)
	}
}

// A checkout that fails half-way, as one does that needs a filter which is not there.
func TestNothingIsLeftOfAWorktreeThatFails(t *testing.T) {
	dir, home := repo(t, "shop"), folder(t)
	run(t, dir, "branch", "old")
	before := run(t, dir, "for-each-ref")
	write(t, filepath.Join(dir, ".git/info/attributes"), "* filter=x\n")
	run(t, dir, "config", "filter.x.required", "true")
	run(t, dir, "config", "filter.x.smudge", "false")
	for _, branch := range []string{"old", "new", ""} {
		_, err := Add(t.Context(), Directly, dir, home, branch, "")
		wantError(t, err, "external filter 'false' failed")
	}
	wantEmpty(t, home)
	if diff := cmp.Diff(before, run(t, dir, "for-each-ref")); diff != "" {
		t.Errorf("refs (-want +got):\n%s", diff)
	}
	if got := linked(filepath.Join(dir, ".git")); len(got) > 0 {
		t.Errorf("git still has the worktrees %q", got)
	}
}

// The end of ctx ends a git that hangs, and what it has made is taken back.
func TestAGitThatHangsIsEnded(t *testing.T) {
	dir, home := repo(t, "shop"), folder(t)
	began := filepath.Join(home, "began")
	if err := syscall.Mkfifo(began, 0o600); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, ".git/info/attributes"), "* filter=x\n")
	run(t, dir, "config", "filter.x.smudge", "echo > "+began+"; exec sleep 1000")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = os.ReadFile(began) // blocks until the filter runs
		cancel()
	}()
	if _, err := Add(ctx, Directly, dir, home, "x", ""); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that it was cancelled", err)
	}
	if err := os.Remove(began); err != nil {
		t.Fatal(err)
	}
	wantEmpty(t, home)
	if list := run(t, dir, "branch"); strings.Contains(list, "x") {
		t.Errorf("the branch is left: %s", list)
	}
}

// A folder that was removed by hand is still git's worktree, and git says how to forget it.
func TestAFolderRemovedByHandIsRefusedWithTheRemedy(t *testing.T) {
	dir, home := repo(t, "shop"), folder(t)
	tree := add(t, dir, home, "cart")
	if err := os.RemoveAll(tree.Dir); err != nil {
		t.Fatal(err)
	}
	_, err := Add(t.Context(), Directly, dir, home, "cart", "")
	wantError(t, err, "is a missing but already registered worktree; use ")
	wantError(t, err, "'prune'")
}

// Only the worktree that is meant is forgotten, and its branch and commits stay.
func TestForgetAWorktreeWhoseFolderIsGone(t *testing.T) {
	dir, other, home := repo(t, "shop"), repo(t, "other"), folder(t)
	gone, kept := add(t, dir, home, "cart"), add(t, dir, home, "till")
	for _, tree := range []Tree{gone, kept} {
		if err := os.RemoveAll(tree.Dir); err != nil {
			t.Fatal(err)
		}
	}
	if known, err := Forget(t.Context(), gone.Dir, home, []string{folder(t), other}); known || err != nil {
		t.Errorf("a repository that has no such worktree: %t, %v", known, err)
	}
	if known, err := Forget(t.Context(), gone.Dir, home, []string{folder(t), other, dir}); !known || err != nil {
		t.Fatalf("got %t, %v", known, err)
	}
	if list := run(t, dir, "worktree", "list"); strings.Contains(list, gone.Dir) || !strings.Contains(list, kept.Dir) {
		t.Errorf("git still has\n%s", list)
	}
	if list := run(t, dir, "branch"); !strings.Contains(list, "cart") {
		t.Errorf("the branch is gone: %s", list)
	}
	if _, err := Add(t.Context(), Directly, dir, home, "cart", ""); err != nil {
		t.Error(err)
	}
}

func TestABareRepositoryHasWorktrees(t *testing.T) {
	home, bare := folder(t), filepath.Join(folder(t), "shop.git")
	run(t, ".", "clone", "-q", "--bare", repo(t, "shop"), bare)
	tree := add(t, bare, home, "x")
	if name, _, ok := Of(tree.Dir); name != "shop" || !ok || tree.Dir != filepath.Join(home, "shop/x") {
		t.Errorf("got repository %q, %v in %s, want shop", name, ok, tree.Dir)
	}
}

func TestRepositoriesOfOneNameAreKeptApart(t *testing.T) {
	one, two, home := repo(t, "shop"), repo(t, "shop"), folder(t)
	first := add(t, one, home, "x")
	for _, c := range []struct{ repo, branch, want string }{
		// from a worktree, too
		{two, "x", "shop-2/x"}, {one, "y", "shop/y"}, {two, "y", "shop-2/y"}, {first.Dir, "z", "shop/z"},
	} {
		if got := add(t, c.repo, home, c.branch).Dir; got != filepath.Join(home, c.want) {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

// A repository's name may be anything that a folder's may.
func TestHostileRepositoryNames(t *testing.T) {
	for name, want := range map[string]string{
		"a\x1b]0;x\x07\nb": "a--0-x--b", "-rf": "rf", "...": "", "bad\xff": "bad-", "a b": "a-b", "日本": "日本",
		"\u202egnp": "gnp", strings.Repeat("ü", 120): strings.Repeat("ü", 50),
	} {
		if want == "" {
			want = "repository"
		}
		dir, home := repo(t, name), folder(t)
		tree := add(t, dir, home, "x")
		if tree.Dir != filepath.Join(home, want, "x") {
			t.Errorf("%q: got %q, want %q", name, tree.Dir, want)
		}
		if got, _, ok := Of(tree.Dir); got != name || !ok {
			t.Errorf("got repository %q, %v, want %q", got, ok, name)
		}
		if err := Remove(t.Context(), tree.Dir, home); err != nil {
			t.Error(err)
		}
	}
}

// Branch a is renamed, and a/b would come into a's worktree.
func TestNoWorktreeIsMadeInAnother(t *testing.T) {
	dir, home := repo(t, "shop"), folder(t)
	tree := add(t, dir, home, "a")
	run(t, dir, "branch", "-m", "a", "c")
	_, err := Add(t.Context(), Directly, dir, home, "a/b", "")
	wantError(t, err, "there is a worktree in "+tree.Dir)
}

// Sessions may write into a repository; what they leave there is not run.
func TestNoHookIsRun(t *testing.T) {
	dir, home := repo(t, "shop"), folder(t)
	hook := "#!/bin/sh\necho ran >> " + filepath.Join(home, "ran") + "\n"
	write(t, filepath.Join(dir, ".git/hooks/post-checkout"), hook)
	write(t, filepath.Join(dir, ".git/hooks/reference-transaction"), hook)
	write(t, filepath.Join(home, "fsmonitor"), hook)
	run(t, dir, "config", "core.fsmonitor", filepath.Join(home, "fsmonitor"))
	if err := os.Remove(filepath.Join(home, "ran")); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	tree := add(t, dir, home, "x")
	if err := Remove(t.Context(), tree.Dir, home); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(home, "ran")); err == nil {
		t.Errorf("a program of the repository's was run: %s", text)
	}
}

// As in a hook of another repository, which git tells where it is.
func TestTheFolderSaysWhichRepository(t *testing.T) {
	dir, other, home := repo(t, "shop"), repo(t, "other"), folder(t)
	t.Setenv("GIT_DIR", filepath.Join(other, ".git"))
	t.Setenv("GIT_INDEX_FILE", filepath.Join(other, ".git/index"))
	tree := add(t, dir, home, "x")
	if name, _, _ := Of(tree.Dir); name != "shop" {
		t.Errorf("got a worktree of %q, want shop", name)
	}
	if err := Remove(t.Context(), tree.Dir, home); err != nil {
		t.Error(err)
	}
}

func TestRemoveLosesNothing(t *testing.T) {
	dir, home := repo(t, "shop"), folder(t)
	refuses := func(tree Tree, want ...string) {
		t.Helper()
		err := Remove(t.Context(), tree.Dir, home)
		var unsaved *UnsavedError
		if !errors.As(err, &unsaved) {
			t.Fatalf("got %v, want an UnsavedError", err)
		}
		if diff := cmp.Diff(want, unsaved.Names); diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
	tree := add(t, dir, home, "x")
	write(t, filepath.Join(tree.Dir, "new\x1b[2J"), "")
	refuses(tree, `"new\x1b[2J"`)
	run(t, tree.Dir, "add", ".")
	refuses(tree, `"new\x1b[2J"`)
	run(t, tree.Dir, "rm", "-q", "-r", "-f", ".")
	refuses(tree, `"first"`)
	run(t, tree.Dir, "reset", "-q", "--hard")
	for _, name := range []string{"1", "2", "3", "4", "5", "6"} {
		write(t, filepath.Join(tree.Dir, name), "")
	}
	refuses(tree, `"1"`, `"2"`, `"3"`, `"4"`, `"5"`, "…")
	run(t, tree.Dir, "clean", "-q", "-f")

	commit(t, tree.Dir, "one")
	one := run(t, tree.Dir, "rev-parse", "--short", "HEAD")
	refuses(tree, one+" one")
	run(t, tree.Dir, "tag", "not-a-branch")
	refuses(tree, one+" one")
	run(t, tree.Dir, "update-ref", "refs/remotes/origin/x", "HEAD")
	commit(t, tree.Dir, "two")
	refuses(tree, run(t, tree.Dir, "rev-parse", "--short", "HEAD")+" two")
	run(t, tree.Dir, "checkout", "-q", "--detach")
	run(t, tree.Dir, "branch", "-f", "x", "HEAD~")
	refuses(tree, run(t, tree.Dir, "rev-parse", "--short", "HEAD")+" two")
	run(t, dir, "merge", "-q", run(t, tree.Dir, "rev-parse", "HEAD"))

	write(t, filepath.Join(dir, ".git/info/exclude"), "ignored\n")
	write(t, filepath.Join(tree.Dir, "ignored"), "") // may go
	run(t, dir, "worktree", "lock", "--reason", "mine", tree.Dir)
	wantError(t, Remove(t.Context(), tree.Dir, home), "mine")
	run(t, dir, "worktree", "unlock", tree.Dir)
	if err := Remove(t.Context(), tree.Dir, home); err != nil {
		t.Error(err)
	}
	wantEmpty(t, home)
	run(t, dir, "rev-parse", "--verify", "refs/heads/x")
}

func TestOnlyLinkedWorktreesAreRemoved(t *testing.T) {
	dir, home := repo(t, "shop"), folder(t)
	tree := add(t, dir, home, "x")
	if err := os.Mkdir(filepath.Join(tree.Dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	module := filepath.Join(tree.Dir, "module")
	run(t, tree.Dir, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", dir, "module")
	fifo, stolen := folder(t), folder(t)
	run(t, ".", "init", "-q", filepath.Join(fifo, "x"))
	if out, err := exec.Command("mkfifo", filepath.Join(fifo, ".git")).CombinedOutput(); err != nil {
		t.Fatalf("mkfifo: %v\n%s", err, out)
	}
	// It says that it is the other folder's worktree.
	pointer, err := os.ReadFile(filepath.Join(tree.Dir, ".git"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(stolen, ".git"), string(pointer))
	for _, not := range []string{dir, filepath.Join(tree.Dir, "sub"), module, folder(t), fifo, stolen, "/nonexistent"} {
		if name, branch, ok := Of(not); ok {
			t.Errorf("%s: got %q, %q, want no worktree", not, name, branch)
		}
		if err := Remove(t.Context(), not, home); !errors.Is(err, ErrNotLinked) {
			t.Errorf("%s: got %v, want ErrNotLinked", not, err)
		}
	}
	for _, there := range []string{tree.Dir, stolen, dir} {
		if _, err := os.Stat(filepath.Join(there, ".git")); err != nil {
			t.Error(err)
		}
	}
}
