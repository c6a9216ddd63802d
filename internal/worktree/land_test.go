package worktree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// bench is a repository with a main checkout and a worktree of ours.
type bench struct {
	t          *testing.T
	main, home string
	tree       Tree
}

// newBench has the files a, b and dir/c in main.
func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, main: repo(t, "shop"), home: filepath.Join(folder(t), "worktrees")}
	run(t, b.main, "config", "user.name", "A")
	run(t, b.main, "config", "user.email", "a@example.com")
	for name, text := range map[string]string{
		"a": "1\n2\n3\n4\n5\n", "b": "b\n", "dir/c": "c\n", ".gitignore": "*.ignored\n",
	} {
		b.put(b.main, name, text)
	}
	run(t, b.main, "add", "-A")
	run(t, b.main, "commit", "-q", "-m", "files")
	b.tree = add(t, b.main, b.home, "topic")
	return b
}

func (b *bench) put(dir, name, text string) {
	b.t.Helper()
	path := filepath.Join(dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) work(name, text string) { b.t.Helper(); b.put(b.tree.Dir, name, text) }

func (b *bench) commit(dir, subject string) {
	b.t.Helper()
	run(b.t, dir, "add", "-A")
	run(b.t, dir, "commit", "-q", "-m", subject)
}

func (b *bench) request(mode Mode) LandRequest {
	return LandRequest{Dir: b.tree.Dir, Home: b.home, Mode: mode, Message: "the title"}
}

func (b *bench) land(mode Mode) Landing {
	b.t.Helper()
	l, err := Land(b.t.Context(), b.request(mode))
	if err != nil {
		b.t.Fatal(err)
	}
	return l
}

// picture is all that a person can see: files, what git says of both checkouts, and the refs.
func (b *bench) picture() map[string]string {
	b.t.Helper()
	all := map[string]string{}
	for _, dir := range []string{b.main, b.tree.Dir} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Name() == ".git" && d.IsDir() {
				return fs.SkipDir
			}
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil || d.IsDir() {
				all[path] = "folder"
				return err
			}
			text, err := []byte(nil), error(nil)
			if info.Mode().IsRegular() {
				text, err = os.ReadFile(path)
			}
			all[path] = fmt.Sprintf("%v %v %s", info.Mode(), info.ModTime(), text)
			return err
		})
		if err != nil {
			b.t.Fatal(err)
		}
		all["status "+dir] = run(b.t, dir, "status", "--porcelain", "--ignored")
		all["index "+dir] = run(b.t, dir, "ls-files", "--stage")
	}
	all["refs"] = run(b.t, b.main, "for-each-ref")
	all["fsck"] = run(b.t, b.main, "fsck", "--no-progress", "--dangling")
	return all
}

// refuses: Land fails with these words, and nothing is as much as touched.
func (b *bench) refuses(r LandRequest, want string) {
	b.t.Helper()
	before := b.picture()
	_, err := Land(b.t.Context(), r)
	wantError(b.t, err, want)
	if diff := cmp.Diff(before, b.picture()); diff != "" {
		b.t.Errorf("%v: something changed (-before +after):\n%s", err, diff)
	}
}

// clean: the checkouts are as their commits, and nothing of ours is left.
func (b *bench) clean() {
	b.t.Helper()
	for _, dir := range []string{b.main, b.tree.Dir} {
		if out := run(b.t, dir, "status", "--porcelain"); out != "" {
			b.t.Errorf("git status in %s says %q", dir, out)
		}
	}
	for _, pattern := range []string{
		b.main + "/.git/*.lock", b.main + "/.git/nous*", b.main + "/.git/worktrees/*/*.lock",
		b.main + "/.git/worktrees/*/nous*",
		b.main + "/.git/objects/tmp*", stateHome(b.home) + "/*/[a-qs-z]*",
	} {
		if left, _ := filepath.Glob(pattern); len(left) > 0 {
			b.t.Errorf("left behind: %q", left)
		}
	}
}

func (b *bench) has(dir, name, want string) {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil || string(text) != want {
		b.t.Errorf("%s has %q, %v, want %q", filepath.Join(dir, name), text, err, want)
	}
}

// Committed and uncommitted work comes to the branch that the worktree was made from, in its
// checkout too, where other changes stay as they are.
func TestLandingBringsAllThatIsThere(t *testing.T) {
	for _, mode := range []Mode{Squash, Merge, Rebase} {
		t.Run(string(mode), func(t *testing.T) {
			b := newBench(t)
			b.work("a", "one\n2\n3\n4\n5\n")
			b.commit(b.tree.Dir, "change a")
			b.work("new/file", "new\n")
			b.work("x.ignored", "stays\n")
			if err := errors.Join(os.Remove(filepath.Join(b.tree.Dir, "dir/c")),
				os.Symlink("a", filepath.Join(b.tree.Dir, "link")),
				os.Chmod(filepath.Join(b.tree.Dir, "b"), 0o755)); err != nil {
				t.Fatal(err)
			}
			b.put(b.main, "a", "1\n2\n3\n4\nfive\n")
			b.commit(b.main, "main goes on")
			b.put(b.main, "first", "not committed, and not concerned")
			b.put(b.main, "own", "of the user's")
			before := run(t, b.main, "rev-parse", "main")

			l := b.land(mode)
			if l.Into != "main" || l.Branch != "topic" || l.Checkout != b.main || l.Commits != 1 || l.Uncommitted != 4 ||
				l.As != run(t, b.main, "rev-parse", "main") {
				t.Errorf("got %+v", l)
			}
			b.has(b.main, "a", "one\n2\n3\n4\nfive\n")
			b.has(b.main, "new/file", "new\n")
			b.has(b.main, "first", "not committed, and not concerned")
			if _, err := os.Lstat(filepath.Join(b.main, "dir")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the emptied folder: %v", err)
			}
			if to, err := os.Readlink(filepath.Join(b.main, "link")); to != "a" {
				t.Errorf("the link leads to %q, %v", to, err)
			}
			if got := run(t, b.main, "status", "--porcelain"); got != "M first\n?? own" {
				t.Errorf("git status says %q", got)
			}
			subjects := run(t, b.main, "log", "--format=%s|%an|%P", before+"..main")
			head := run(t, b.tree.Dir, "rev-parse", "topic")
			want := map[Mode]string{
				Squash: "the title|A|" + before,
				Merge: fmt.Sprintf("Merge branch 'topic'|A|%s %s\nthe title|A|%s\nchange a|A|%s", before, head,
					run(t, b.main, "rev-parse", "topic~1"), run(t, b.main, "rev-parse", "topic~2")),
				Rebase: "the title|A|" + run(t, b.main, "rev-parse", "main~1") + "\nchange a|A|" + before,
			}[mode]
			if subjects != want {
				t.Errorf("main has\n%s\nwant\n%s", subjects, want)
			}
			run(t, b.main, "checkout", "-q", "--", "first")
			if err := os.Remove(filepath.Join(b.main, "own")); err != nil {
				t.Fatal(err)
			}
			b.clean()
			b.has(b.tree.Dir, "x.ignored", "stays\n")
		})
	}
}

// What was landed is not landed again, and work that goes on is landed without a conflict
// with what came of the first.
func TestLandingAgain(t *testing.T) {
	for _, mode := range []Mode{Squash, Merge, Rebase} {
		t.Run(string(mode), func(t *testing.T) {
			b := newBench(t)
			b.work("a", "one\n2\n3\n4\n5\n")
			b.land(mode)
			if _, err := Land(t.Context(), b.request(mode)); !errors.Is(err, ErrNothingToLand) {
				t.Errorf("landing again: got %v", err)
			}
			b.put(b.main, "b", "main\n")
			b.commit(b.main, "main goes on")
			b.work("a", "ONE\n2\n3\n4\n5\n")
			b.land(mode)
			b.has(b.main, "a", "ONE\n2\n3\n4\n5\n")
			b.has(b.main, "b", "main\n")
			b.clean()
			if err := Remove(t.Context(), b.tree.Dir, b.home); err != nil {
				t.Errorf("a landed worktree is not removed: %v", err)
			}
		})
	}
}

func TestAConflictChangesNothing(t *testing.T) {
	for _, mode := range []Mode{Squash, Merge, Rebase} {
		b := newBench(t)
		b.work("a", "topic\n")
		b.work("more", "not committed")
		b.put(b.main, "a", "main\n")
		b.commit(b.main, "main")
		b.refuses(b.request(mode), `topic conflicts with main; nothing was changed. Both change "a"`)
		_, err := Plan(t.Context(), b.request(mode))
		var e *ConflictError
		if !errors.As(err, &e) || len(e.Files) != 1 || e.Files[0] != "a" {
			t.Errorf("got %#v", err)
		}
	}
}

// What only the main checkout has is never lost.
func TestNothingInTheOtherCheckoutIsOverwritten(t *testing.T) {
	for what, c := range map[string]struct {
		work, put func(b *bench)
		want      string
	}{
		"a change": {
			func(b *bench) { b.work("a", "topic\n") },
			func(b *bench) { b.put(b.main, "a", "mine\n") },
			`has changes that are not committed in files which the landing changes: "a"; commit them there, or put them aside ` +
				`with git stash there, and land again`,
		},
		"a staged change": {
			func(b *bench) { b.work("a", "topic\n") },
			func(b *bench) { b.put(b.main, "a", "mine\n"); run(b.t, b.main, "add", "a") }, `not committed`,
		},
		"a hidden change": {
			func(b *bench) { b.work("a", "topic\n") },
			func(b *bench) {
				run(b.t, b.main, "update-index", "--assume-unchanged", "a")
				b.put(b.main, "a", "mine\n")
			}, `not committed`,
		},
		"a removed file": {
			func(b *bench) { b.work("a", "topic\n") },
			func(b *bench) { os.Remove(filepath.Join(b.main, "a")) }, `not committed`,
		},
		"an untracked file": {
			func(b *bench) { b.work("new", "topic\n") },
			func(b *bench) { b.put(b.main, "new", "mine\n") },
			`has files that git does not know, where the landing would put others: "new"; move them away, and land again`,
		},
		"an ignored file": {
			func(b *bench) { b.work("x.ignored", "topic\n"); run(b.t, b.tree.Dir, "add", "-f", "x.ignored") },
			func(b *bench) { b.put(b.main, "x.ignored", "mine\n") }, `"x.ignored"`,
		},
		"a file for a folder": {
			func(b *bench) { b.work("new/deep/file", "topic\n") },
			func(b *bench) { b.put(b.main, "new", "mine\n") }, `"new"`,
		},
		"a folder for a file": {
			func(b *bench) { b.work("new", "topic\n") },
			func(b *bench) { b.put(b.main, "new/x.ignored", "mine\n") }, `"new/x.ignored"`,
		},
		"an empty folder for a file": {
			func(b *bench) { b.work("new", "topic\n") },
			func(b *bench) { os.Mkdir(filepath.Join(b.main, "new"), 0o755) }, `"new/"`,
		},
		"a tracked folder that becomes a file": {
			func(b *bench) { os.RemoveAll(filepath.Join(b.tree.Dir, "dir")); b.work("dir", "topic\n") },
			func(b *bench) { b.put(b.main, "dir/x.ignored", "mine\n") }, `"dir/x.ignored"`,
		},
		"a link out of it": {
			func(b *bench) { b.work("new/file", "topic\n") },
			func(b *bench) { os.Symlink(b.t.TempDir(), filepath.Join(b.main, "new")) }, `"new"`,
		},
		"a merge under way": {
			func(b *bench) { b.work("new", "topic\n") },
			func(b *bench) { b.put(b.main, ".git/MERGE_HEAD", run(b.t, b.main, "rev-parse", "HEAD")+"\n") },
			`has not ended: MERGE_HEAD; git status there says how to end it, or give it up`,
		},
		"another git": {
			func(b *bench) { b.work("new", "topic\n") },
			func(b *bench) { b.put(b.main, ".git/index.lock", "") }, `index.lock is there: another git works there`,
		},
		"a rebase of it": {
			func(b *bench) { b.work("new", "topic\n") },
			func(b *bench) { b.put(b.main, ".git/rebase-merge/head-name", "refs/heads/main\n") }, `a rebase of main goes on: git status ` +
				`there says how to end it, or give it up`,
		},
	} {
		t.Run(what, func(t *testing.T) {
			b := newBench(t)
			c.work(b)
			c.put(b)
			before, _ := Plan(t.Context(), b.request(Squash))
			if before.As != "" {
				t.Errorf("a plan has landed: %+v", before)
			}
			want := c.want
			if strings.Contains(want, "index.lock") { // git status says it, too
				if _, err := Land(t.Context(), b.request(Squash)); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v", err)
				}
				b.has(b.main, ".git/index.lock", "")
				return
			}
			b.refuses(b.request(Squash), want)
		})
	}
}

// A tracked folder can become a file, and a file a folder, where nothing is in the way.
func TestFilesAndFoldersTradePlaces(t *testing.T) {
	b := newBench(t)
	if err := errors.Join(os.RemoveAll(filepath.Join(b.tree.Dir, "dir")),
		os.Remove(filepath.Join(b.tree.Dir, "b"))); err != nil {
		t.Fatal(err)
	}
	b.work("dir", "a file\n")
	b.work("b/deep", "in a folder\n")
	b.work("odd \n\t\"name\xff", "odd\n")
	b.work("odd./file", "odd\n")
	b.land(Squash)
	b.has(b.main, "dir", "a file\n")
	b.has(b.main, "b/deep", "in a folder\n")
	b.has(b.main, "odd \n\t\"name\xff", "odd\n")
	b.has(b.main, "odd./file", "odd\n")
	b.clean()
}

func TestWhatCannotBeLandedIsSaid(t *testing.T) {
	b := newBench(t)
	if _, err := Land(t.Context(), b.request(Squash)); !errors.Is(err, ErrNothingToLand) {
		t.Errorf("nothing was changed: got %v", err)
	}
	b.work("a", "topic\n")
	r := b.request(Squash)
	r.Into = "gone"
	b.refuses(r, "there is no branch gone")
	r.Into = "topic"
	b.refuses(r, "topic is the worktree's own branch")
	r.Into = "--force"
	b.refuses(r, `"--force" cannot be the name of a branch`)
	r = b.request(Squash)
	r.Message = " \n"
	b.refuses(r, "the message of the commit is empty")
	r = b.request(Squash)
	r.Home = filepath.Join(folder(t), "worktrees")
	b.refuses(r, "name the one to land on with --into")
	r = b.request(Squash)
	r.Dir = b.main
	b.refuses(r, "is not a worktree that git worktree add has made: the session changes its files directly, so there is "+
		"nothing to land; nous new --worktree makes a session whose work is landed")
	run(t, b.main, "commit-tree", "-m", "x", "HEAD^{tree}")
	run(t, b.main, "branch", "unrelated", run(t, b.main, "commit-tree", "-m", "x", "HEAD^{tree}"))
	r = b.request(Squash)
	r.Into = "unrelated"
	b.refuses(r, "topic and unrelated have no commit in common")
	run(t, b.tree.Dir, "checkout", "-q", "--detach")
	b.refuses(b.request(Squash), "no branch is checked out in the worktree")
	run(t, b.tree.Dir, "checkout", "-q", "topic")
	run(t, b.tree.Dir, "init", "-q", "own")
	b.work("own/file", "x")
	b.refuses(b.request(Squash), `has a repository of its own in "own/"`)
	if err := os.RemoveAll(b.tree.Dir); err != nil {
		t.Fatal(err)
	}
	_, err := Land(t.Context(), b.request(Squash))
	wantError(t, err, "is gone: what was committed there is still on its branch")
}

// A branch that is checked out nowhere is moved, if nobody has moved it meanwhile.
func TestABranchWithoutACheckout(t *testing.T) {
	b := newBench(t)
	run(t, b.main, "checkout", "-q", "-b", "other")
	b.work("a", "topic\n")
	before := b.picture()
	l := b.land(Squash)
	if l.Checkout != "" {
		t.Errorf("got the checkout %q", l.Checkout)
	}
	if got := run(t, b.main, "show", "main:a"); got != "topic" {
		t.Errorf("main has %q", got)
	}
	after := b.picture()
	for name, text := range before {
		if strings.HasPrefix(name, b.main) && text != after[name] {
			t.Errorf("%s has become %q", name, after[name])
		}
	}
	run(t, b.main, "checkout", "-q", "--detach", "main")
	b.work("a", "topic 2\n")
	b.land(Rebase)
	b.clean()
}

// Another worktree has the branch checked out.
func TestLandingOnABranchOfAnotherWorktree(t *testing.T) {
	b := newBench(t)
	other := add(t, b.main, b.home, "other")
	b.work("new", "topic\n")
	r := b.request(Squash)
	r.Into = "other"
	if _, err := Land(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	b.has(other.Dir, "new", "topic\n")
	b.clean()
	if err := os.RemoveAll(other.Dir); err != nil {
		t.Fatal(err)
	}
	b.work("new", "topic 2\n")
	b.refuses(r, "git worktree prune forgets a worktree whose folder is gone")
}

// A session can write to the repository's git folder, and so name any folder as a checkout.
func TestAFolderThatIsNoCheckoutIsNotWrittenTo(t *testing.T) {
	b := newBench(t)
	run(t, b.main, "checkout", "-q", "-b", "other")
	victim := folder(t)
	b.put(victim, "a", "1\n2\n3\n4\n5\n")
	b.put(b.main, ".git/worktrees/fake/gitdir", victim+"/.git\n")
	b.put(b.main, ".git/worktrees/fake/commondir", "../..\n")
	b.put(b.main, ".git/worktrees/fake/HEAD", "ref: refs/heads/main\n")
	b.work("a", "evil\n")
	_, err := Land(t.Context(), b.request(Squash))
	wantError(t, err, "which is no checkout of this repository that nous knows")
	b.has(victim, "a", "1\n2\n3\n4\n5\n")
}

// Nothing that the repository names is run.
func TestLandingRunsNothingOfTheRepository(t *testing.T) {
	b := newBench(t)
	ran := filepath.Join(folder(t), "ran")
	evil := filepath.Join(folder(t), "evil")
	write(t, evil, "#!/bin/sh\necho \"$0 $*\" >>"+ran+"\ncat\n")
	for _, hook := range []string{
		"pre-commit", "post-commit", "commit-msg", "prepare-commit-msg", "post-merge", "post-checkout",
		"reference-transaction",
		"post-index-change", "pre-merge-commit", "post-rewrite", "pre-rebase", "update", "pre-auto-gc",
	} {
		write(t, filepath.Join(b.main, ".git/hooks", hook), "#!/bin/sh\necho "+hook+" >>"+ran+"\n")
	}
	run(t, b.main, "config", "core.fsmonitor", evil)
	run(t, b.main, "config", "merge.evil.driver", evil+" %A")
	run(t, b.main, "config", "filter.evil.clean", evil)
	run(t, b.main, "config", "filter.evil.smudge", evil)
	run(t, b.main, "config", "diff.evil.textconv", evil)
	run(t, b.main, "config", "diff.evil.command", evil)
	run(t, b.main, "config", "gpg.program", evil)
	run(t, b.main, "config", "core.editor", evil)
	b.put(b.main, ".git/info/attributes", "a diff=evil\nb merge=evil\nfiltered filter=evil\n")
	if err := os.RemoveAll(ran); err != nil { // git config may have run fsmonitor
		t.Fatal(err)
	}
	b.work("a", "one\n2\n3\n4\n5\n")
	b.land(Squash)
	quiet := func() {
		t.Helper()
		if text, err := os.ReadFile(ran); err == nil {
			t.Errorf("this was run:\n%s", text)
		}
	}
	quiet()
	b.work("filtered", "x")
	_, err := Land(t.Context(), b.request(Squash))
	wantError(t, err, `"filtered" goes through the filter "evil", which the repository's own configuration names`)
	quiet()
	if err := os.Remove(filepath.Join(b.tree.Dir, "filtered")); err != nil {
		t.Fatal(err)
	}
	// each side changes b, which a driver of the repository's would merge
	commitBare := func(dir, text string) {
		b.put(dir, "b", text)
		run(t, dir, "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "commit", "-q", "-m", "b", "b")
	}
	commitBare(b.main, "b\nmain\n")
	commitBare(b.tree.Dir, "topic\nb\n")
	_, err = Land(t.Context(), b.request(Squash))
	var conflict *ConflictError
	if !errors.As(err, &conflict) {
		t.Errorf("got %v, want a conflict", err)
	}
	quiet()
	run(t, b.main, "-c", "core.fsmonitor=false", "config", "commit.gpgSign", "true")
	run(t, b.tree.Dir, "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "reset", "-q", "--hard", "HEAD~1")
	b.work("c", "c")
	_, err = Land(t.Context(), b.request(Squash))
	wantError(t, err, "commits are signed, and the repository's own configuration sets gpg.program")
	quiet()
}

func TestSubmodulesAndSparseCheckouts(t *testing.T) {
	b := newBench(t)
	sub := repo(t, "sub")
	run(t, b.main, "-c", "protocol.file.allow=always", "submodule", "add", "-q", sub, "sub")
	b.commit(b.main, "with a submodule")
	run(t, b.tree.Dir, "merge", "-q", "main")
	b.work("a", "topic\n")
	b.land(Squash) // nobody has checked it out in the worktree
	run(t, b.tree.Dir, "-c", "protocol.file.allow=always", "submodule", "--quiet", "update", "--init")
	b.work("a", "topic 2\n")
	b.refuses(b.request(Squash), `the submodule "sub" is checked out in the worktree`)

	b = newBench(t)
	run(t, b.main, "sparse-checkout", "set", "--cone", "only")
	run(t, b.tree.Dir, "sparse-checkout", "set", "--cone", "only")
	b.work("a", "topic\n")
	b.work("only/x", "x\n")
	b.land(Squash)
	b.has(b.main, "a", "topic\n")
	b.has(b.main, "only/x", "x\n")
	b.clean()
	run(t, b.tree.Dir, "sparse-checkout", "disable")
	b.work("dir/c", "topic\n")
	b.land(Squash)
	if _, err := os.Lstat(filepath.Join(b.main, "dir/c")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that the sparse checkout leaves out: %v", err)
	}
	if got := run(t, b.main, "show", "main:dir/c"); got != "topic" {
		t.Errorf("main has %q", got)
	}
	b.clean()
}

// The user's own signing counts.
func TestCommitsAreSignedAsTheUserHasIt(t *testing.T) {
	keygen, err := exec.LookPath("ssh-keygen")
	if err != nil {
		t.Skip("no ssh-keygen")
	}
	b := newBench(t)
	key := filepath.Join(folder(t), "key")
	if out, err := exec.Command(keygen, "-q", "-t", "ed25519", "-N", "", "-f", key).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	global := filepath.Join(folder(t), "gitconfig")
	t.Setenv("GIT_CONFIG_GLOBAL", global)
	b.put(filepath.Dir(global), "gitconfig", "[commit]\n\tgpgSign = true\n[gpg]\n\tformat = ssh\n"+
		"[user]\n\tsigningKey = "+key+".pub\n")
	b.work("a", "topic\n")
	b.land(Squash)
	for _, branch := range []string{"main", "topic"} {
		if out := run(t, b.main, "cat-file", "commit", branch); !strings.Contains(out, "BEGIN SSH SIGNATURE") {
			t.Errorf("%s is not signed:\n%s", branch, out)
		}
	}
}

// A branch that somebody moves between the look and the deed stays as it is.
func TestABranchThatMovesMeanwhile(t *testing.T) {
	b := newBench(t)
	b.work("a", "topic\n")
	commit := run(t, b.main, "commit-tree", "-p", "main", "-m", "meanwhile", "main^{tree}")
	before := b.picture()
	l, err := open(t.Context(), b.request(Squash))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.plan(t.Context()); err != nil {
		t.Fatal(err)
	}
	run(t, b.main, "update-ref", "refs/heads/main", commit)
	wantError(t, l.apply(t.Context()), "main or topic has changed meanwhile; nothing was landed, try again")
	l.close()
	after := b.picture()
	for _, other := range []string{"fsck", "refs"} { // what was to be landed dangles
		delete(before, other)
		delete(after, other)
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("something changed (-before +after):\n%s", diff)
	}
	b.land(Squash)
	b.clean()
}

// A filter of the user's own configuration runs both ways, as that of Git LFS does.
func TestTheUsersOwnFiltersRun(t *testing.T) {
	b := newBench(t)
	global := filepath.Join(folder(t), "gitconfig")
	t.Setenv("GIT_CONFIG_GLOBAL", global)
	b.put(filepath.Dir(global), "gitconfig",
		"[filter \"up\"]\n\tclean = tr a-z A-Z\n\tsmudge = tr A-Z a-z\n\trequired = true\n")
	b.work(".gitattributes", "*.big filter=up\n")
	b.work("x.big", "text\n")
	b.land(Squash)
	b.has(b.main, "x.big", "text\n")
	if got := run(t, b.main, "show", "main:x.big"); got != "TEXT" {
		t.Errorf("main has %q, want what the filter makes of it", got)
	}
	b.clean()
	b.put(filepath.Dir(global), "gitconfig", "[filter \"lfs\"]\n\tclean = cat\n")
	run(t, b.main, "config", "lfs.Extension.x.clean", "evil") // which Git LFS would run
	b.work(".gitattributes", "*.big filter=lfs\n")
	b.work("y.big", "text\n")
	b.refuses(b.request(Squash), `.big" goes through the filter "lfs", which the repository's own configuration names`) // x or y
}

// A bare repository has no checkout, and its worktrees land like all others.
func TestLandingInABareRepository(t *testing.T) {
	b := newBench(t)
	bare := filepath.Join(folder(t), "bare.git")
	run(t, ".", "clone", "-q", "--bare", b.main, bare)
	run(t, bare, "config", "user.name", "A")
	run(t, bare, "config", "user.email", "a@example.com")
	b.tree = add(t, bare, b.home, "work")
	b.work("a", "topic\n")
	if l := b.land(Merge); l.Into != "main" || l.Checkout != "" {
		t.Errorf("got %+v", l)
	}
	if got := run(t, bare, "show", "main:a"); got != "topic" {
		t.Errorf("main has %q", got)
	}
}
