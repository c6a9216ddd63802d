package changes

import (
	"bytes"
	"compress/zlib"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"noused/internal/worktree"
)

// A repository names programs wherever git would run one: none is run, git fsck says the
// same as before, and nothing is read or written through a link that leads outside.
func TestAHostileRepositoryRunsNothing(t *testing.T) {
	u := newFolder(t, true)
	outside := t.TempDir()
	ran := filepath.Join(outside, "ran")
	u.sh("printf '#!/bin/sh\\ntouch " + ran + "\\ncat\\n' > evil.sh; chmod 755 evil.sh")
	evil := filepath.Join(u.top, "evil.sh")
	u.write("a.txt", "a\n")
	u.write("b.bin", "b\n")
	u.git("add", "-A")
	u.git("commit", "-qm", "x")
	for key, value := range map[string]string{
		"core.fsmonitor": evil, "core.hooksPath": u.top + "/hooks", "core.pager": evil, "core.worktree": outside,
		"core.excludesFile": outside + "/x", "filter.evil.clean": evil, "filter.evil.smudge": evil,
		"filter.evil.process": evil, "filter.evil.required": "true", "diff.evil.command": evil, "diff.evil.textconv": evil,
		"diff.external": evil, "core.sshCommand": evil, "extensions.partialClone": "origin", "core.attributesFile": evil,
		"remote.origin.url": "ext::" + evil, "remote.origin.promisor": "true", "remote.origin.uploadpack": evil,
	} {
		u.git("config", key, value)
	}
	u.sh("mkdir hooks; for h in post-index-change pre-commit post-checkout; do cp evil.sh hooks/$h; done")
	u.write(".gitattributes", "* filter=evil diff=evil\n")
	if err := os.Symlink(outside, filepath.Join(u.top, "link")); err != nil {
		t.Fatal(err)
	}
	index, err := os.ReadFile(filepath.Join(u.top, ".git", "index"))
	if err != nil {
		t.Fatal(err)
	}
	was := u.tree()
	u.turnOf(func() {
		u.write("a.txt", "other\n")
		u.sh("rm b.bin; mkdir d; echo x > d/e")
	})
	if rep := u.show(); len(rep.Files) != 3 || !strings.Contains(rep.Diff, "+other") {
		t.Errorf("changes: %+v", rep)
	}
	// The folder of a file that is to come back leads outside by now.
	u.turnOf(func() { u.sh("rm -r d") })
	u.sh("rm -f d; ln -s " + outside + " d")
	if plan := u.back(1); len(plan.Conflicts) == 0 {
		t.Error("a file came back through a link")
	}
	u.sh("rm d")
	if plan := u.back(0); len(plan.Conflicts) > 0 {
		t.Fatalf("conflicts: %v", plan.Conflicts)
	}
	u.same(was, "rewound")
	if names, _ := os.ReadDir(outside); len(names) > 0 {
		t.Errorf("outside there is %v", names)
	}
	if now, err := os.ReadFile(filepath.Join(u.top, ".git", "index")); err != nil || string(now) != string(index) {
		t.Errorf("the user's index was written: %v", err)
	}
}

// What lies in the user's repository in the place of an object is taken only where it is that
// object, and is waited for by nobody.
func TestAForgedObjectIsNotTaken(t *testing.T) {
	mine, theirs := t.TempDir(), t.TempDir()
	r, err := makeRepo(worktree.Directly, filepath.Join(mine, "repo"), theirs, unbounded())
	if err != nil {
		t.Fatal(err)
	}
	r.most = 100
	forger, err := makeRepo(worktree.Directly, filepath.Join(mine, "forger"), "", unbounded())
	if err != nil {
		t.Fatal(err)
	}
	real, err := forger.put("blob", []byte("real"))
	if err == nil {
		err = forger.flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(forger.path(real))
	if err != nil {
		t.Fatal(err)
	}
	at := looseAt(theirs, real)
	write := func(text []byte) func() error { return func() error { return os.WriteFile(at, text, 0o600) } }
	for what, place := range map[string]func() error{
		"nothing":         func() error { return nil },
		"a pipe":          func() error { return unix.Mkfifo(at, 0o600) },
		"a folder":        func() error { return os.Mkdir(at, 0o700) },
		"a link":          func() error { return os.Symlink(forger.path(real), at) },
		"half of it":      write(whole[:len(whole)/2]),
		"what is no zlib": write([]byte("blob 4\x00real")),
		"an empty file":   write(nil),
	} {
		if err := errors.Join(os.RemoveAll(at), os.MkdirAll(filepath.Dir(at), 0o700), place()); err != nil {
			t.Fatal(err)
		}
		if content, ok, _ := r.loose(context.Background(), real); ok {
			t.Errorf("%s is taken for %q", what, content)
		}
	}
	if err := errors.Join(os.RemoveAll(at), write(whole)()); err != nil {
		t.Fatal(err)
	}
	if content, ok, _ := r.loose(context.Background(), real); !ok || string(content) != "real" {
		t.Errorf("the object itself is %q, %v", content, ok)
	}
	other := hashOf([]byte("another"))
	if err := os.MkdirAll(filepath.Dir(looseAt(theirs, other)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(at, looseAt(theirs, other)); err != nil {
		t.Fatal(err)
	}
	if content, ok, _ := r.loose(context.Background(), other); ok {
		t.Errorf("another object's is taken: %q", content)
	}
}

func TestWhatIsIgnoredIsNoChange(t *testing.T) {
	bothKinds(t, func(t *testing.T, u *folderUnder) {
		u.write(".gitignore", "*.log\nbuild/\n")
		u.write("old.log", "the user's\n")
		u.write("a.txt", "a\n")
		u.turnOf(func() {
			u.write("new.log", "x")
			u.write("build/out", "x")
			u.write(".gitignore", "build/\n*.txt\n") // old.log is not ignored any more, and a.txt is
			u.write("b.go", "b\n")
		})
		var got []string
		for _, f := range u.show().Files {
			got = append(got, f.Status+" "+f.Path)
		}
		if want := "modified .gitignore,added b.go"; strings.Join(got, ",") != want {
			t.Errorf("got %v, want %s", got, want)
		}
		u.back(0)
		if text, err := os.ReadFile(filepath.Join(u.top, "old.log")); err != nil || string(text) != "the user's\n" {
			t.Errorf("old.log: %q, %v", text, err)
		}
	})
}

func TestConflictsAndForce(t *testing.T) {
	u := newFolder(t, true)
	u.write("a", "1\n")
	u.write("b", "1\n")
	u.write("mine", "1\n")
	u.turnOf(func() { u.write("a", "2\n"); u.write("b", "2\n") })
	u.write("b", "the user's\n")
	u.write("mine", "2\n")
	u.turnOf(func() { u.write("b", "3\n") })
	u.write("a", "the user's\n")
	was := u.tree()
	plan := u.back(0)
	if len(plan.Conflicts) != 2 || plan.Conflicts[0].Path != "a" || plan.Conflicts[1].Path != "b" {
		t.Fatalf("conflicts: %v", plan.Conflicts)
	}
	u.same(was, "nothing was done")
	if plan := u.back(0, "a"); len(plan.Conflicts) != 1 {
		t.Fatalf("conflicts: %v", plan.Conflicts)
	}
	u.same(was, "nothing was done")
	if plan := u.back(0, "a", "b"); len(plan.Conflicts) != 0 || len(plan.Files) != 2 {
		t.Fatalf("forced: %v", plan)
	}
	u.back(len(u.steps) - 1)
	u.same(was, "undone")
}

func TestTurnsAtTheSameTimeShareWhatCannotBeToldApart(t *testing.T) {
	u := newFolder(t, true)
	u.write("a", "1\n")
	u.write("b", "1\n")
	ctx := context.Background()
	other := Folder{"ses-2", u.top}
	var theirs Recorded
	u.turnOf(func() {
		u.write("a", "before the other began\n")
		if err := u.e.Before(ctx, other, "r/1"); err != nil {
			t.Fatal(err)
		}
		u.write("b", "while both were at work\n")
		var err error
		if theirs, err = u.e.After(ctx, other, "r/1"); err != nil {
			t.Fatal(err)
		}
		u.e.Settle(other)
	})
	for _, f := range u.show().Files {
		if f.Shared != (f.Path == "b") {
			t.Errorf("%s: shared %v", f.Path, f.Shared)
		}
	}
	rep, err := u.e.Show(ctx, other, []Step{{Changes: theirs.Changes}}, "", false)
	if err != nil || len(rep.Files) != 1 || !rep.Files[0].Shared {
		t.Errorf("the other's: %+v, %v", rep, err)
	}
	if plan := u.back(0); len(plan.Conflicts) != 1 || plan.Conflicts[0].Path != "b" {
		t.Errorf("conflicts: %v", plan.Conflicts)
	}
}

// A daemon that starts in a turn knows what other sessions' turns have changed before, in the same folder (found by a
// trial: a rewind removed another session's file).
func TestATurnThatOutlivesADaemonSharesWhatOthersChanged(t *testing.T) {
	bothKinds(t, func(t *testing.T, u *folderUnder) {
		ctx, other := context.Background(), &folderUnder{t: t, e: u.e, top: u.top, f: Folder{"ses-2", u.top}}
		if err := u.e.Before(ctx, u.f, "run/1"); err != nil {
			t.Fatal(err)
		}
		other.turnOf(func() { u.write("theirs", "1\n") })
		u.e = New(u.e.o)
		u.write("ours", "1\n")
		rec, err := u.e.After(ctx, u.f, "run/1")
		if err != nil {
			t.Fatal(err)
		}
		u.e.Settle(u.f)
		u.steps = append(u.steps, Step{Changes: rec.Changes})
		files := u.show().Files
		if len(files) != 2 {
			t.Fatalf("got %+v", files)
		}
		for _, f := range files {
			if f.Shared != (f.Path == "theirs") {
				t.Errorf("%s: shared is %t", f.Path, f.Shared)
			}
		}
		u.turnOf(func() { u.write("theirs", "2\n") })
		if f := u.show().Files; f[1].Path != "theirs" || len(u.back(1).Conflicts) > 0 {
			t.Errorf("the next turn is marked, too: %+v", f)
		}
	})
}

// Two turns that both outlive a daemon share what they cannot tell apart.
func TestTurnsThatOutliveADaemonTogether(t *testing.T) {
	u := newFolder(t, true)
	ctx, both := context.Background(), []Folder{u.f, {"ses-2", u.top}}
	for _, f := range both {
		if err := u.e.Before(ctx, f, "r/1"); err != nil {
			t.Fatal(err)
		}
	}
	u.write("a", "1\n")
	u.e = New(u.e.o)
	for _, f := range both {
		u.e.Warm(ctx, f)
	}
	for _, f := range both {
		rec, err := u.e.After(ctx, f, "r/1")
		if err != nil {
			t.Fatal(err)
		}
		u.e.Settle(f)
		rep, err := u.e.Show(ctx, f, []Step{{Changes: rec.Changes}}, "", false)
		if err != nil || len(rep.Files) != 1 || !rep.Files[0].Shared {
			t.Errorf("%s: %+v, %v", f.SessionID, rep.Files, err)
		}
	}
}

// Too much to be kept of other sessions' turns is any file, and so is what cannot be read.
func TestWhatOthersChangedIsBounded(t *testing.T) {
	u := newFolder(t, false)
	if err := u.e.Before(context.Background(), u.f, "run/1"); err != nil {
		t.Fatal(err)
	}
	long, list := &window{folder: u.f}, []Change{{Path: "a"}, {Path: strings.Repeat("b", maxBeside)}}
	for _, c := range []struct {
		which []int
		want  bool
	}{{[]int{1}, true}, {nil, true}} {
		if err := u.e.leaveWord(long, u.top, list, c.which); err != nil {
			t.Fatal(err)
		}
		s, release, err := u.e.acquire(context.Background(), u.f.SessionID)
		if err != nil {
			t.Fatal(err)
		}
		list[0].Shared = false
		if err := u.e.shareBefore(context.Background(), s, u.f, list, u.top); err != nil || list[0].Shared != c.want {
			t.Errorf("shared is %t, %v", list[0].Shared, err)
		}
		release()
		u.sh("rm -r " + u.e.path(u.f, besideName) + " && mkdir " + u.e.path(u.f, besideName))
	}
}

// A folder that was recorded a while before a turn's first call is recorded again where another session's turn has
// ended since (found by a trial).
func TestAnEarlyRecordIsMadeAgainAfterOthersTurns(t *testing.T) {
	u := newFolder(t, true)
	ctx, other := context.Background(), Folder{"ses-2", u.top}
	u.e.Warm(ctx, other)
	s, release, err := u.e.acquire(ctx, other.SessionID)
	if err != nil {
		t.Fatal(err)
	}
	s.took = time.Second // as on a busy machine
	release()
	u.turnOf(func() { u.write("ours", "1\n") })
	if err := u.e.Before(ctx, other, "r/1"); err != nil {
		t.Fatal(err)
	}
	if rec, err := u.e.After(ctx, other, "r/1"); err != nil || rec.Files != 0 {
		t.Errorf("a turn that did nothing has changed %d files, %v", rec.Files, err)
	}
}

func TestLongFilesAreNamedAndNotKept(t *testing.T) {
	u := newFolder(t, false)
	u.e.o.Limits = Limits{File: 100, Bytes: 250, Files: 100, Memory: full.Memory}
	u.write("long", strings.Repeat("x", 101))
	u.write("a", strings.Repeat("a", 90))
	u.turnOf(func() {
		u.write("long", strings.Repeat("y", 101))
		u.write("b", strings.Repeat("b", 90))
		u.write("c", strings.Repeat("c", 90)) // beyond what is kept of the session
	})
	var got []string
	for _, f := range u.show().Files {
		if f.LeftOut {
			got = append(got, f.Path)
		}
	}
	if strings.Join(got, " ") != "c long" {
		t.Errorf("left out: %v", got)
	}
	if plan := u.back(0); len(plan.Conflicts) != 2 {
		t.Errorf("conflicts: %v", plan.Conflicts)
	}
	if plan := u.back(0, "c", "long"); len(plan.Conflicts) != 1 || plan.Conflicts[0].Path != "long" {
		t.Errorf("forced: %v", plan.Conflicts)
	}
}

// A long file that git tracks is no exception: nothing of it is kept, though git has it.
func TestALongFileOfTheRepositoryIsNotKept(t *testing.T) {
	u := newFolder(t, true)
	u.e.o.Limits = Limits{File: 100, Bytes: 1000, Files: 100, Memory: full.Memory}
	u.write("long", strings.Repeat("x", 101))
	u.write("short", "1\n")
	u.sh("touch -d '1 hour ago' long short")
	u.git("add", "-A")
	u.git("commit", "-qm", "x")
	u.turnOf(func() { u.write("long", "2\n"); u.write("short", "2\n") })
	for _, f := range u.show().Files {
		if f.LeftOut != (f.Path == "long") {
			t.Errorf("%s: left out %v", f.Path, f.LeftOut)
		}
	}
	if plan := u.back(0, "long"); len(plan.Conflicts) != 1 || plan.Conflicts[0].Path != "long" {
		t.Errorf("conflicts: %v", plan.Conflicts)
	}
}

// The diff is one that git takes back, with a name, a mode and a content of every kind.
func TestGitTakesTheDiffBack(t *testing.T) {
	u := newFolder(t, true)
	u.write("latin", "caf\xe9\n")
	u.write("moved", strings.Repeat("line\n", 50))
	u.write("gone", "x")
	was := u.tree()
	u.turnOf(func() {
		u.write("latin", "th\xe9\n")
		u.sh("mv moved to; rm gone; printf '\\0\\1' > bin; ln -s x l; printf y > $(printf 'n\\377'); chmod +x latin")
	})
	rep := u.show()
	patch := filepath.Join(t.TempDir(), "patch")
	if err := os.WriteFile(patch, []byte(rep.Diff), 0o600); err != nil {
		t.Fatal(err)
	}
	u.git("apply", "-R", patch)
	u.same(was, "git apply -R")
	renamed := false
	for _, f := range rep.Files {
		renamed = renamed || f.Status == Renamed && f.Path == "to" && f.Old == "moved"
	}
	if !renamed {
		t.Errorf("files: %+v", rep.Files)
	}
}

// What is only borrowed counts like what is kept: long files are left out, and what passes the most that
// is kept of a session.
func TestWhatGitHasIsBoundedToo(t *testing.T) {
	u := newFolder(t, true)
	u.e.o.Limits = Limits{File: 100, Bytes: 150, Files: 100, Memory: full.Memory}
	u.write("long", strings.Repeat("x", 101))
	u.write("a", strings.Repeat("a", 90))
	u.write("b", strings.Repeat("b", 90))
	u.sh("touch -d '1 hour ago' long a b")
	u.git("add", "-A")
	u.turnOf(func() {
		u.write("long", "y")
		u.write("a", "y")
		u.write("b", "y")
	})
	if got := u.told(); got != "modified a, modified b (left out), modified long (left out)" {
		t.Errorf("told: %s", got)
	}
	u.e.o.Limits.Bytes = 241 // what is counted stays counted
	u.write("c", strings.Repeat("c", 90))
	u.write("d", strings.Repeat("d", 90))
	u.turnOf(func() { u.sh("rm c d") })
	const want = "modified a, modified b (left out), deleted c, deleted d (left out), modified long (left out)"
	if got := u.told(); got != want {
		t.Errorf("told: %s", got)
	}
}

// An object that has more in it than it says, or than is read back, is not read to its end.
func TestAnObjectThatIsTooLongIsNotRead(t *testing.T) {
	for _, head := range []string{"blob 6\x00", "blob 100000\x00", "blob 9999999999999999999\x00", "blob -1\x00", ""} {
		var packed bytes.Buffer
		z := zlib.NewWriter(&packed)
		_, _ = z.Write([]byte(head))
		for range 64 {
			_, _ = z.Write(make([]byte, 1<<20))
		}
		_ = z.Close()
		long := packed.Len()
		if content, err := inflate(&packed, 1000, func(int) error { return nil }); err == nil || packed.Len() < long/2 {
			t.Errorf("%q: %d bytes, %v; %d of %d bytes are read", head, len(content), err, long-packed.Len(), long)
		}
	}
}

// What is no file in the place of an object of the user's keeps nobody waiting: no git opens it.
func TestAFIFOInPlaceOfAnObjectIsNotWaitedFor(t *testing.T) {
	u := newFolder(t, true)
	u.write("a", "1\n")
	u.sh("touch -d '1 hour ago' a")
	u.git("add", "-A")
	u.turnOf(func() {})
	u.sh("o=$(git rev-parse :a); cd .git/objects/${o%${o#??}}; rm -f ${o#??}; mkfifo ${o#??}")
	if err := u.e.Before(context.Background(), u.f, "run/9"); err != nil {
		t.Fatal(err)
	}
	u.write("a", "2\n")
	u.e.o.Git = func(_ context.Context, c worktree.Command, _ io.Writer) error {
		t.Errorf("it is opened by %q", c.Args)
		return errElse
	}
	if _, err := u.e.After(context.Background(), u.f, "run/9"); !errors.Is(err, errGone) {
		t.Errorf("the turn: %v", err)
	}
}
