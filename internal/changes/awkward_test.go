package changes

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const identity = `
export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
committed() { git init -q; echo a > a; mkdir -p d; echo b > d/b; git add -A; git commit -qm x; }
up() { mkdir ../up; (cd ../up; committed; git config uploadpack.allowFilter true); }
`

// Repositories of all kinds: a turn's changes are told, and taken back byte for byte; git fsck and
// git status say the same as before.
func TestAwkwardRepositories(t *testing.T) {
	for name, test := range map[string]struct{ make, turn, want string }{
		"no commits":   {"git init -q; echo a > a; git add a; echo b > b", "echo 2 >> a; rm b; git add -A", "M a, D b"},
		"unborn index": {"git init -q; echo a > a", "echo 2 >> a", "M a"},
		"detached":     {"committed; git checkout -q --detach", "echo 2 >> a; git add a; git commit -qm y", "M a"},
		"sparse checkout": {
			"committed; git sparse-checkout set --cone e; mkdir -p e; echo e > e/e",
			"echo 2 >> e/e; mkdir d; echo 2 > d/b", "M e/e, A d/b",
		},
		"shallow": {
			"up; (cd ../up; echo 2 > a; git commit -qam y); git clone -q --depth 1 file://$PWD/../up .",
			"echo 3 >> a; git rm -q d/b", "M a, D d/b",
		},
		"partial clone": {
			"up; git clone -q --filter=blob:none file://$PWD/../up .; rm -rf ../up", "echo 3 >> a; rm d/b", "M a, D d/b",
		},
		"borrowed objects": {"up; git clone -q -s ../up .", "echo 3 >> a; rm d/b", "M a, D d/b"},
		"worktree":         {"up; git -C ../up worktree add -q --force $PWD", "echo 3 >> a; rm d/b", "M a, D d/b"},
		"submodule": {
			"up; git init -q; echo m > m; git -c protocol.file.allow=always submodule --quiet add ../up sub; git commit -qm x",
			"echo 3 >> sub/a; echo 2 > m", "M m",
		},
		"nested repository": {
			"git init -q; mkdir in; (cd in; committed); echo m > m", "echo 3 >> in/a; echo 2 > m", "M m",
		},
		"idents": {
			"git init -q; printf '$Id: %040d $\\n' 0 > x; git add x; git commit -qm x; echo 'x ident' > .gitattributes; " +
				"rm x .git/index; git read-tree -u --reset HEAD; touch -d tomorrow .git/index",
			"echo 2 >> x", "M x",
		},
		"below a bare one": {"git init -q --bare .; mkdir w; echo a > w/a", "echo 2 > w/a", "M w/a"},
		"merge conflict": {
			"committed; git checkout -qb o; echo o > a; git commit -qam o; git checkout -q -; echo m > a; " +
				"git commit -qam m; git merge o || true", "echo solved > a; git add a", "M a",
		},
		"pointers of large files": {
			"git init -q; echo '*.bin filter=lfs diff=lfs merge=lfs -text' > .gitattributes; " +
				"printf 'version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n' > x.bin; " +
				"git add -A; git commit -qm x; git config filter.lfs.clean 'touch ../ran'; " +
				"git config filter.lfs.required true; printf large > x.bin",
			"printf larger > x.bin", "M x.bin",
		},
		"line ends": {
			"git init -q; git config core.autocrlf true; printf 'a\r\n' > a; git add a; git commit -qm x",
			"printf 'b\r\n' >> a", "M a",
		},
		"a name in another case": {"committed; git config core.ignorecase true", "mv a A", "R A"},
		"what is no file": {
			"committed; mkfifo pipe", "mkfifo other; rm pipe; ln -s /dev/zero dev; echo 2 > a", "M a, A dev",
		},
		"names with every letter": {
			"committed; echo 1 > ./-rf; printf 1 > 'n\nl'", "echo 2 > ./-rf; echo 2 > 'n\nl'; echo 3 > ':(top)x'",
			"M -rf, M n\nl, A :(top)x",
		},
	} {
		t.Run(name, func(t *testing.T) {
			u := newFolder(t, false)
			u.top = filepath.Join(u.top, "top")
			u.f.Workdir = u.top
			if err := os.Mkdir(u.top, 0o755); err != nil {
				t.Fatal(err)
			}
			u.sh(identity + test.make)
			const check = "git fsck --no-progress 2>&1 | sort"
			was, fsck := u.tree(), u.says(check)
			u.turnOf(func() { u.sh(identity + test.turn) })
			want, got := strings.Split(test.want, ", "), u.show().Files
			for _, f := range got {
				is := strings.ToUpper(f.Status[:1]) + " " + f.Path
				if i := slices.Index(want, is); i >= 0 {
					want = slices.Delete(want, i, i+1)
				} else if !strings.HasSuffix(f.Path, "/") {
					t.Errorf("it is told: %q", is)
				}
			}
			if len(want) > 0 {
				t.Errorf("it is not told: %q of %+v", want, got)
			}
			if plan := u.back(0); len(plan.Conflicts) > 0 {
				t.Fatalf("conflicts: %v", plan.Conflicts)
			}
			for f := range strings.SplitSeq(test.want, ", ") {
				u.wasAt(was, f[2:])
			}
			if now := u.says(check); now != fsck && !strings.Contains(test.turn, "git ") {
				t.Errorf("git fsck says\n%s\nand said\n%s", now, fsck)
			}
			if _, err := os.Lstat(filepath.Join(filepath.Dir(u.top), "ran")); err == nil {
				t.Error("a filter ran")
			}
		})
	}
}

// says is what a script prints.
func (u *folderUnder) says(script string) string {
	u.t.Helper()
	u.sh("{ " + script + "; } > ../said 2>&1 || true")
	text, err := os.ReadFile(filepath.Join(filepath.Dir(u.top), "said"))
	if err != nil {
		u.t.Fatal(err)
	}
	return string(text)
}

// wasAt checks that what is at a path is as a tree of before has it.
func (u *folderUnder) wasAt(tree, rel string) {
	u.t.Helper()
	name := `"` + strings.ReplaceAll(rel, "\n", `\n`) + `" `
	line := func(tree string) string {
		for line := range strings.Lines(tree) {
			if strings.HasPrefix(line, name) {
				return line
			}
		}
		return "none"
	}
	if is, was := line(u.tree()), line(tree); is != was {
		u.t.Errorf("%q is %q and was %q", rel, is, was)
	}
}

// A folder that is shut holds up nothing. One that may not be written to refuses the rewind, and all stays as
// it was until it is opened again.
func TestShutFoldersAndFiles(t *testing.T) {
	if unix.Geteuid() == 0 {
		t.Skip("nothing is shut to root")
	}
	u := newFolder(t, true)
	u.write("shut/a", "1\n")
	u.write("locked/b", "1\n")
	u.write("c", "1\n")
	u.sh("chmod 000 shut; chmod 555 locked")
	t.Cleanup(func() { u.sh("chmod -R u+rwx .") })
	u.turnOf(func() { u.write("c", "2\n"); u.sh("chmod 755 locked; echo 2 > locked/b; chmod 555 locked") })
	if plan := u.back(0, "locked", "locked/b"); len(plan.Conflicts) != 1 || plan.Conflicts[0].Path != "locked/" {
		t.Errorf("conflicts: %v", plan.Conflicts)
	}
	u.sh("grep -q 2 c && grep -q 2 locked/b && test $(stat -c %a locked) = 555")
	u.sh("chmod 755 locked")
	if plan := u.back(0, "locked"); len(plan.Conflicts) > 0 {
		t.Fatalf("conflicts: %v", plan.Conflicts)
	}
	u.sh("grep -q 1 c && grep -q 1 locked/b")
}

// told are the files that the session's turns have changed.
func (u *folderUnder) told() string {
	u.t.Helper()
	var got []string
	for _, f := range u.show().Files {
		text := f.Status + " " + f.Path
		if f.LeftOut {
			text += " (left out)"
		}
		got = append(got, text)
	}
	return strings.Join(got, ", ")
}

// A turn is recorded whatever its new files are called: nothing in a name has a meaning for git.
func TestANewFileMayHaveAnyName(t *testing.T) {
	bothKinds(t, func(t *testing.T, u *folderUnder) {
		u.turnOf(func() {})
		u.turnOf(func() {
			for _, name := range []string{":", ":(glob)a", ":!b", ":^c", ":d", ":(attr:x)e", "[f]"} {
				u.write(name, "1\n")
			}
		})
		const want = "added :, added :!b, added :(attr:x)e, added :(glob)a, added :^c, added :d, added [f]"
		if got := u.told(); got != want {
			t.Errorf("told: %s", got)
		}
	})
}

// A repository inside the folder that is none any more is a folder like others.
func TestWhatWasARepositoryInsideIsRecorded(t *testing.T) {
	bothKinds(t, func(t *testing.T, u *folderUnder) {
		u.write("in/a", "1\n")
		u.sh("cd in && git init -q")
		u.turnOf(func() {})
		u.turnOf(func() { u.sh("rm -rf in/.git") })
		if got := u.told(); got != "modified in/ (left out)" {
			t.Errorf("told: %s", got)
		}
		was := u.tree()
		u.turnOf(func() { u.write("in/a", "2\n"); u.write("in/b", "2\n") })
		if got := u.told(); got != "modified in/ (left out), modified in/a, added in/b" {
			t.Errorf("told: %s", got)
		}
		if plan := u.back(2); len(plan.Conflicts) > 0 {
			t.Fatalf("conflicts: %v", plan.Conflicts)
		}
		u.same(was, "rewound")
	})
}

// A file is gone where something is in its place that is not recorded, and comes back.
func TestWhatTookAFilesPlaceHidesNothing(t *testing.T) {
	bothKinds(t, func(t *testing.T, u *folderUnder) {
		u.write(".gitignore", "build/\n")
		u.write("a", "1\n")
		u.write("build", "1\n")
		was := u.tree()
		u.turnOf(func() { u.sh("rm a build; mkfifo a; mkdir build; touch build/x") })
		if got := u.told(); got != "deleted a, deleted build" {
			t.Errorf("told: %s", got)
		}
		if plan := u.back(0, "a", "build"); len(plan.Conflicts) != 2 {
			t.Errorf("conflicts: %v", plan.Conflicts)
		}
		u.turnOf(func() { u.sh("rm -r a build") })
		if plan := u.back(0); len(plan.Conflicts) > 0 {
			t.Fatalf("conflicts: %v", plan.Conflicts)
		}
		u.same(was, "rewound")
	})
}
