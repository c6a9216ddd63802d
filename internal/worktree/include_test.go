package worktree

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// A new worktree gets the ignored files that .worktreeinclude names, and no others.
func TestIgnoredFilesComeAlong(t *testing.T) {
	b := newBench(t)
	outside := filepath.Join(folder(t), "secret")
	b.put(filepath.Dir(outside), "secret", "secret\n")
	b.put(b.main, ".gitignore", "*.ignored\n.env*\nnode_modules\n/build/\n")
	b.put(b.main, IncludeFile, "# what tests need\n.env*\n!.env.prod\nnode_modules/\nnot-ignored\n*.sock\nlinked/\n")
	b.commit(b.main, "include")
	for _, name := range []string{
		".env", ".env.prod", "sub/.env", "node_modules/a/x.js", "not-ignored", "x.ignored", "build/out",
	} {
		b.put(b.main, name, name+"\n")
	}
	if err := os.Chmod(filepath.Join(b.main, ".env"), 0o600); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{
		"node_modules/inside": "a/x.js", ".env.out": outside, ".env.up": "../../up", ".env.dir": filepath.Dir(outside),
	} {
		if err := os.Symlink(to, filepath.Join(b.main, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(b.main, ".env.fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	tree := add(t, b.main, b.home, "with")
	var got []string
	for line := range strings.Lines(run(t, tree.Dir, "ls-files", "--others")) {
		got = append(got, strings.TrimSpace(line))
	}
	if want := []string{".env", "node_modules/a/x.js", "node_modules/inside", "sub/.env"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	b.has(tree.Dir, ".env", ".env\n")
	if info, err := os.Stat(filepath.Join(tree.Dir, ".env")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v, want the mode of the original", info, err)
	}
	said := strings.Join(tree.Included.LeftOut, "\n")
	for _, want := range []string{
		`".env.out": is a link out of the folder`, `".env.up": is a link`, `".env.dir": is a link`,
	} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not said of what was left out:\n%s", want, said)
		}
	}
	if tree.Included.Files != 4 || tree.Source != b.main {
		t.Errorf("got %+v", tree)
	}
}

// Nothing in the worktree is written through: a branch may have links.
func TestWhatIsCopiedLeavesNoFolder(t *testing.T) {
	b := newBench(t)
	outside := folder(t)
	run(t, b.main, "checkout", "-q", "-b", "evil")
	if err := os.Symlink(outside, filepath.Join(b.main, "conf")); err != nil {
		t.Fatal(err)
	}
	b.commit(b.main, "a link")
	run(t, b.main, "checkout", "-q", "main")
	b.put(b.main, IncludeFile, "conf/\n*.ignored\n")
	b.put(b.main, "conf/x.ignored", "x\n")
	b.put(b.main, "huge.ignored", "")
	if err := os.Truncate(filepath.Join(b.main, "huge.ignored"), maxIncludedSize+1); err != nil {
		t.Fatal(err)
	}
	tree := add(t, b.main, b.home, "evil")
	wantEmpty(t, outside)
	said := strings.Join(tree.Included.LeftOut, "\n")
	for _, want := range []string{
		`"conf/x.ignored": conf is no folder in the worktree`, `"huge.ignored": would be more than 256 MiB`,
	} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not said of what was left out:\n%s", want, said)
		}
	}
	if err := os.Remove(filepath.Join(b.main, IncludeFile)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(b.main, ".gitignore"), filepath.Join(b.main, IncludeFile)); err != nil {
		t.Fatal(err)
	}
	tree = add(t, b.main, b.home, "link")
	if said := strings.Join(tree.Included.LeftOut, "\n"); !strings.Contains(said, "what .worktreeinclude names: open ") {
		t.Errorf("of a .worktreeinclude that is a link this is said: %q", said)
	}
}
