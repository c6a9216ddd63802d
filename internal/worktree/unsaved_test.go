package worktree

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What git status does not show is lost no more than what it shows.
func TestRemoveLosesNothingThatStatusDoesNotShow(t *testing.T) {
	changed := func(t *testing.T, tree Tree) { write(t, filepath.Join(tree.Dir, "first"), "FIRST") }
	// stealthily changes a file and leaves its size and times as git has seen them.
	stealthily := func(t *testing.T, tree Tree) {
		path, then := filepath.Join(tree.Dir, "first"), time.Now().Add(-time.Hour).Truncate(time.Second)
		if err := os.Chtimes(path, then, then); err != nil {
			t.Fatal(err)
		}
		run(t, tree.Dir, "update-index", "--refresh")
		changed(t, tree)
		if err := os.Chtimes(path, then, then); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		do   func(t *testing.T, tree Tree)
		want string
	}{
		"assumed unchanged": {func(t *testing.T, tree Tree) {
			run(t, tree.Dir, "update-index", "--assume-unchanged", "first")
			changed(t, tree)
		}, `"first"`},
		"skipped": {func(t *testing.T, tree Tree) {
			run(t, tree.Dir, "update-index", "--skip-worktree", "first")
			changed(t, tree)
		}, `"first"`},
		"ignored by its state": {func(t *testing.T, tree Tree) {
			run(t, tree.Dir, "config", "core.ignoreStat", "true")
			run(t, tree.Dir, "reset", "-q", "--hard")
			run(t, tree.Dir, "update-index", "--refresh")
			changed(t, tree)
		}, `"first"`},
		"with the size and times it had": {func(t *testing.T, tree Tree) {
			run(t, tree.Dir, "config", "core.trustctime", "false")
			run(t, tree.Dir, "config", "core.checkStat", "minimal")
			stealthily(t, tree)
		}, `"first"`},
		"beside a sparse checkout": {func(t *testing.T, tree Tree) {
			run(t, tree.Dir, "sparse-checkout", "set", "--no-cone", "second")
			run(t, tree.Dir, "config", "--worktree", "sparse.expectFilesOutsideOfPatterns", "true")
			changed(t, tree)
		}, `"first"`},
		"executable": {func(t *testing.T, tree Tree) {
			run(t, tree.Dir, "config", "core.fileMode", "false")
			if err := os.Chmod(filepath.Join(tree.Dir, "first"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, `"first"`},
		"behind a filter": {func(t *testing.T, tree Tree) {
			run(t, tree.Dir, "config", "filter.x.clean", "touch "+filepath.Join(tree.base, "ran")+"; printf first")
			write(t, filepath.Join(tree.common, "info/attributes"), "* filter=x\n")
			changed(t, tree)
		}, `"first"`},
		"an ignored repository": {func(t *testing.T, tree Tree) {
			write(t, filepath.Join(tree.common, "info/exclude"), "vendor\n")
			run(t, tree.Dir, "init", "-q", "vendor/lib")
			commit(t, filepath.Join(tree.Dir, "vendor/lib"), "mine")
		}, `"vendor/lib"`},
		"a submodule": {func(t *testing.T, tree Tree) {
			run(t, tree.Dir, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", filepath.Dir(tree.common),
				"module")
			run(t, tree.Dir, "commit", "-q", "-m", "module")
			run(t, filepath.Dir(tree.common), "merge", "-q", "x")
			run(t, filepath.Join(tree.Dir, "module"), "config", "core.fsmonitor", "touch "+filepath.Join(tree.base, "ran")+";:")
		}, `"module"`},
		"a ref of the worktree's own": {func(t *testing.T, tree Tree) {
			commit(t, tree.Dir, "third")
			run(t, tree.Dir, "update-ref", "refs/worktree/kept", "HEAD")
			run(t, tree.Dir, "reset", "-q", "--hard", "HEAD~")
		}, " third"},
		"stashed by a rebase": {func(t *testing.T, tree Tree) {
			changed(t, tree)
			run(t, tree.Dir, "-c", "sequence.editor=echo break >>", "rebase", "-q", "-i", "--autostash", "HEAD~")
		}, "rebase-merge"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, home := repo(t, "shop"), folder(t)
			commit(t, dir, "second")
			tree := add(t, dir, home, "x")
			c.do(t, tree)
			err := Remove(t.Context(), tree.Dir, home)
			var unsaved *UnsavedError
			if !errors.As(err, &unsaved) || len(unsaved.Names) != 1 || !strings.HasSuffix(unsaved.Names[0], c.want) {
				t.Errorf("got %v, want an UnsavedError that names %s", err, c.want)
			}
			if _, err := os.Stat(tree.Dir); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(filepath.Join(home, "ran")); err == nil {
				t.Error("a program of the repository's was run")
			}
		})
	}
}

// What is as it was committed may go, whatever git was told about it, and whatever the user's
// own configuration makes of it.
func TestRemoveOfWhatIsCommitted(t *testing.T) {
	for name, do := range map[string]func(t *testing.T, tree Tree){
		"assumed unchanged": func(t *testing.T, tree Tree) {
			run(t, tree.Dir, "update-index", "--assume-unchanged", "first")
		},
		"sparse": func(t *testing.T, tree Tree) {
			run(t, tree.Dir, "sparse-checkout", "set", "--no-cone", "second")
			if _, err := os.Stat(filepath.Join(tree.Dir, "first")); err == nil {
				t.Fatal("it is not sparse")
			}
		},
		"touched": func(t *testing.T, tree Tree) {
			if err := os.Chtimes(filepath.Join(tree.Dir, "first"), time.Now(), time.Now()); err != nil {
				t.Fatal(err)
			}
		},
		"a filter of the user's": func(t *testing.T, tree Tree) {
			write(t, filepath.Join(tree.base, "config"), "[filter \"up\"]\n\tclean = tr A-Z a-z\n\tsmudge = tr a-z A-Z\n")
			t.Setenv("GIT_CONFIG_GLOBAL", filepath.Join(tree.base, "config"))
			write(t, filepath.Join(tree.common, "info/attributes"), "* filter=up\n")
			write(t, filepath.Join(tree.Dir, "first"), "FIRST")
			t.Cleanup(func() { _ = os.Remove(filepath.Join(tree.base, "config")) })
		},
		"a filter that nothing uses": func(t *testing.T, tree Tree) {
			run(t, tree.Dir, "config", "filter.x y.z.clean", "false")
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, home := repo(t, "shop"), folder(t)
			commit(t, dir, "second")
			tree := add(t, dir, home, "x")
			do(t, tree)
			if err := Remove(t.Context(), tree.Dir, home); err != nil {
				t.Error(err)
			}
		})
	}
}

// An object that is missing is not fetched: a repository says which program does that.
func TestNothingIsFetchedForACheck(t *testing.T) {
	dir, home := repo(t, "shop"), folder(t)
	tree := add(t, dir, home, "x")
	ran := filepath.Join(home, "ran")
	run(t, dir, "config", "core.repositoryFormatVersion", "1")
	run(t, dir, "config", "extensions.partialClone", "origin")
	run(t, dir, "config", "remote.origin.url", "ext::sh -c touch% "+ran)
	run(t, dir, "config", "remote.origin.promisor", "true")
	run(t, dir, "config", "protocol.ext.allow", "always")
	id := run(t, dir, "rev-parse", "HEAD^{tree}")
	if err := os.Remove(filepath.Join(dir, ".git/objects", id[:2], id[2:])); err != nil {
		t.Fatal(err)
	}
	if err := Remove(t.Context(), tree.Dir, home); err == nil {
		t.Error("it was removed")
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("a program of the repository's was run")
	}
}
