package tool

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=n", "-c", "user.email=e@example.org"},
		args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// worktree makes a repository and a linked worktree of it.
func worktree(t *testing.T) (top, repo, tree string) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git")
	}
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	repo, tree = filepath.Join(top, "repo"), filepath.Join(top, "tree")
	git(t, top, "init", "-q", "repo")
	git(t, repo, "commit", "-q", "--allow-empty", "-m", "first")
	git(t, repo, "worktree", "add", "-q", tree)
	return top, repo, tree
}

// In a linked worktree the repository's git folder may be written, in no other
// folder anything beside it.
func TestTheGitFolderOfAWorktree(t *testing.T) {
	_, repo, tree := worktree(t)
	common := filepath.Join(repo, ".git")
	if got := gitFolder(tree); got != common {
		t.Errorf("got %q for a worktree, want %q", got, common)
	}
	for _, dir := range []string{repo, common, filepath.Join(tree, "sub"), "/", t.TempDir()} {
		if got := gitFolder(dir); got != "" {
			t.Errorf("got %q for %s", got, dir)
		}
	}
	d := &Descriptor{Workdir: tree, SandboxWrite: []string{"/x"}}
	if got := d.Writable(); !slices.Equal(got, []string{tree, "/x", common}) {
		t.Errorf("the tool may write %q", got)
	}
	if d.OwnWorkdir = true; slices.Contains(d.Writable(), common) {
		t.Error("a tool with a folder of its own may write a repository")
	}
}

// A .git file that a tool has written opens nothing: not the user's keys, not a
// repository that knows nothing of the folder, not what only looks like one.
func TestAHostileGitFileOpensNothing(t *testing.T) {
	top, repo, tree := worktree(t)
	common, admin := filepath.Join(repo, ".git"), filepath.Join(repo, ".git", "worktrees", "tree")
	ssh := filepath.Join(top, ".ssh")
	put(t, filepath.Join(ssh, "id_ed25519"), "key")
	other := filepath.Join(top, "other")
	put(t, filepath.Join(other, "x"), "")
	// A folder that looks like a repository, but is not a worktree's: as a tool might
	// make it where it may write, with a link to where it may not.
	fake := filepath.Join(other, "fake")
	put(t, filepath.Join(fake, "worktrees", "w", "gitdir"), filepath.Join(other, ".git")+"\n")
	put(t, filepath.Join(fake, "worktrees", "w", "commondir"), ssh+"\n")
	put(t, filepath.Join(fake, "HEAD"), "ref: refs/heads/main\n")
	for _, dir := range []string{"objects", "refs"} {
		put(t, filepath.Join(fake, dir, "x"), "")
	}
	if err := os.Symlink(ssh, filepath.Join(other, "keys")); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"keys":                   "gitdir: " + ssh + "\n",
		"keys by a link":         "gitdir: keys\n",
		"below the keys":         "gitdir: " + filepath.Join(ssh, "worktrees", "x") + "\n",
		"root":                   "gitdir: /\n",
		"another's worktree":     "gitdir: " + admin + "\n",
		"the repository itself":  "gitdir: " + common + "\n",
		"worktrees itself":       "gitdir: " + filepath.Dir(admin) + "\n",
		"a common dir elsewhere": "gitdir: " + filepath.Join(fake, "worktrees", "w") + "\n",
		"up and up":              "gitdir: ../../../../../../..\n",
		"two lines":              "gitdir: " + admin + "\ngitdir: " + ssh + "\n",
		"nothing":                "", "no path": "gitdir: \n", "noise": "\x00\xff",
	} {
		put(t, filepath.Join(other, ".git"), text)
		if got := gitFolder(other); got != "" {
			t.Errorf("%s: %q is opened", name, got)
		}
	}
	if err := os.Remove(filepath.Join(other, ".git")); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{filepath.Join(tree, ".git"), ssh, "/dev/zero"} {
		if err := os.Symlink(to, filepath.Join(other, ".git")); err != nil {
			t.Fatal(err)
		}
		if got := gitFolder(other); got != "" {
			t.Errorf("a link to %s: %q is opened", to, got)
		}
		_ = os.Remove(filepath.Join(other, ".git"))
	}
	// What it made inside of its own folder it may write anyway, and no more.
	put(t, filepath.Join(fake, "worktrees", "w", "commondir"), "../..\n")
	put(t, filepath.Join(other, ".git"), "gitdir: fake/worktrees/w\n")
	if got := gitFolder(other); got != "" && got != fake {
		t.Errorf("%q is opened", got)
	}
	// A worktree whose repository has become another is none.
	put(t, filepath.Join(admin, "gitdir"), filepath.Join(other, ".git")+"\n")
	if got := gitFolder(tree); got != "" {
		t.Errorf("%q is opened for a folder that the repository does not name", got)
	}
}
