package changes

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// lives has the session live in a folder of the one under test.
func (u *folderUnder) lives(rel string) { u.f.Workdir = filepath.Join(u.top, rel) }

// exact takes steps back, which must find nothing in the way.
func (u *folderUnder) exact(from int, want string) {
	u.t.Helper()
	if plan := u.back(from); len(plan.Conflicts) > 0 {
		u.t.Fatalf("conflicts: %v", plan.Conflicts)
	}
	u.same(want, "rewound")
}

// A turn that makes or removes the repository around its folder is not recorded: all that is in the other one would
// count as the turn's, and a rewind would move or remove files that no session has touched.
func TestATurnThatMovesTheTopIsNotRecorded(t *testing.T) {
	for what, c := range map[string]struct{ before, turn, top string }{
		"a repository is made":                     {"", "git init -q sub", "sub"},
		"a repository in another is removed":       {"git init -q sub", "rm -rf sub/.git", ""},
		"the repository around a folder is gone":   {"", "rm -rf .git", "sub"},
		"a repository is made around a plain one":  {"rm -rf .git", "git init -q", ""},
		"the repository has no HEAD for the while": {"git init -q sub", "mv sub/.git/HEAD sub/.git/away", ""},
	} {
		t.Run(what, func(t *testing.T) {
			u := newFolder(t, true)
			u.lives("sub")
			for _, name := range []string{"README", "mine.txt", "d/x"} {
				u.write(name, "the outer one's\n")
				u.write("sub/"+name, "mine, not committed\n")
			}
			u.sh(c.before)
			if err := u.e.Before(t.Context(), u.f, "run/a"); err != nil {
				t.Fatal(err)
			}
			u.sh(c.turn)
			u.write("sub/new", "1\n")
			was := u.tree()
			rec, err := u.e.After(t.Context(), u.f, "run/a")
			if err == nil || !strings.Contains(err.Error(), filepath.Join(u.top, c.top)+" is by now") {
				t.Fatalf("recorded are %d changes, %v", rec.Files, err)
			}
			u.e.Settle(u.f)
			u.steps = append(u.steps, Step{Missing: err.Error()})
			if plan := u.back(0); len(plan.Conflicts) != 1 || plan.Conflicts[0].Path != Missing || len(plan.Files) > 0 {
				t.Errorf("a rewind would do %v, with the conflicts %v", plan.Files, plan.Conflicts)
			}
			u.turnOf(func() { u.write("sub/mine.txt", "2\n") })
			if files := u.show().Files; len(files) != 1 || files[0].Status != Modified {
				t.Errorf("the next turn's: %v", files)
			}
			u.exact(1, was)
		})
	}
}

// Where the top stays the same folder a repository may come and go: git init is what many a session begins with.
func TestARepositoryMadeAtTheTopIsRecorded(t *testing.T) {
	for what, c := range map[string]struct {
		git  bool
		turn string
	}{
		"made":                   {false, "git init -q"},
		"removed":                {true, "rm -rf .git"},
		"made anew":              {true, "rm -rf .git; git init -q"},
		"moved to another place": {true, "git init -q --separate-git-dir=../elsewhere"},
	} {
		t.Run(what, func(t *testing.T) {
			u := newFolder(t, c.git)
			u.write("a", "1\n")
			u.write("sub/b", "1\n")
			was := u.tree()
			u.turnOf(func() { u.sh(c.turn); u.write("a", "2\n"); u.write("new", "1\n"); u.sh("rm sub/b") })
			u.exact(0, was)
		})
	}
}

// A rewind takes back what a session did where it did it, also once the folder belongs to another repository: a file
// of the same name and content there is somebody else's.
func TestARewindIsWhereTheTurnWas(t *testing.T) {
	u := newFolder(t, true)
	u.lives("sub")
	u.write("__init__.py", "")
	u.write("Makefile", "all:\n")
	u.write("sub/a", "1\n")
	was := u.tree()
	u.turnOf(func() { u.write("sub/a", "2\n"); u.write("sub/c", "1\n") })
	u.sh("git init -q sub") // by somebody else, as all between two turns
	second := u.tree()
	u.turnOf(func() { u.write("sub/a", "3\n"); u.sh("cp Makefile __init__.py sub; rm sub/c") })
	is := u.tree()
	u.sh("rm -rf sub/.git")

	rep := u.show()
	var got []string
	for _, f := range rep.Files {
		got = append(got, f.Status+" "+f.Path)
	}
	if want := "added sub/Makefile, added sub/__init__.py, modified sub/a"; strings.Join(got, ", ") != want ||
		rep.Folder != u.top {
		t.Errorf("in %s: %v; want %s in %s", rep.Folder, got, want, u.top)
	}
	u.exact(1, second)
	u.exact(2, is) // the undo
	for _, rest := range u.steps[1:] {
		if top, _ := u.list(rest); rest == u.steps[1] != (top == u.f.Workdir) {
			t.Errorf("the list of %v is one of %s", rest, top)
		}
	}
	u.exact(0, was)
}

// list reads what a step's object has.
func (u *folderUnder) list(s Step) (string, []Change) {
	u.t.Helper()
	_, r, release := u.opened()
	defer release()
	top, list, err := r.changes(context.Background(), s.Changes)
	if err != nil {
		u.t.Fatal(err)
	}
	return top, list
}

func (u *folderUnder) opened() (place, *repo, func()) {
	u.t.Helper()
	s, release, err := u.e.acquire(context.Background(), u.f.SessionID)
	if err != nil {
		u.t.Fatal(err)
	}
	at, r, err := u.e.open(s, u.f)
	if err != nil {
		u.t.Fatal(err)
	}
	return at, r, release
}

// A rewind that was planned is applied, and taken up by the next daemon, where it was planned.
func TestARewindIsAppliedWhereItWasPlanned(t *testing.T) {
	u := newFolder(t, true)
	u.lives("sub")
	u.write("a", "2\n")
	u.write("sub/a", "1\n")
	u.sh("git init -q sub")
	was := u.tree()
	u.turnOf(func() { u.write("sub/a", "2\n") })
	plan, err := u.e.PlanRewind(t.Context(), u.f, u.steps, nil, true)
	if err != nil || len(plan.Conflicts) > 0 {
		t.Fatalf("%v, conflicts: %v", err, plan.Conflicts)
	}
	u.sh("rm -rf sub/.git")
	if finished, err := u.e.Recover(u.f, plan.Changes, "rew-1"); err != nil || !finished {
		t.Fatalf("finished: %t, %v", finished, err)
	}
	u.same(was, "taken up")
}

// A folder of a former turn that became a link, or is gone, is a conflict: its files are not taken for removed.
func TestAFormerTopThatBecameALinkIsAConflict(t *testing.T) {
	for what, script := range map[string]string{
		"a link": "mv sub away; ln -s away sub", "gone": "mv sub away", "a file": "mv sub away; : > sub",
	} {
		u := newFolder(t, true)
		u.lives("sub")
		u.write("sub/a", "1\n")
		u.sh("git init -q sub")
		u.turnOf(func() { u.write("sub/b", "1\n") })
		u.sh("rm -rf sub/.git;" + script)
		was := u.tree()
		plan := u.back(0)
		if len(plan.Conflicts) != 1 || plan.Conflicts[0].Path != "sub/" {
			t.Errorf("%s: a rewind would do %v, with the conflicts %v", what, plan.Files, plan.Conflicts)
		}
		u.same(was, what)
	}
}

// Lists of former versions do not say where they are: that is the top as it is found.
func TestAListOfAFormerVersionIsTakenBack(t *testing.T) {
	u := newFolder(t, true)
	u.lives("sub")
	u.write("sub/a", "1\n")
	was := u.tree()
	u.turnOf(func() { u.write("sub/a", "2\n"); u.write("b", "1\n") })
	_, list := u.list(u.steps[0])
	_, r, release := u.opened()
	rec, err := keepList(r, "", list)
	release()
	if err != nil || rec.Changes == u.steps[0].Changes {
		t.Fatalf("%v is %v without a top, %v", u.steps[0].Changes, rec.Changes, err)
	}
	var text bytes.Buffer
	if err := writeList(&text, "", list); err != nil || bytes.Contains(text.Bytes(), []byte("top")) {
		t.Fatalf("%s, %v", &text, err)
	}
	u.steps[0].Changes = rec.Changes
	if files := u.show().Files; len(files) != 2 {
		t.Errorf("it shows %v", files)
	}
	u.exact(0, was)
}

// A list that names a folder which no place has is damaged.
func TestAListOfAnotherPlaceIsDamaged(t *testing.T) {
	u := newFolder(t, false)
	u.turnOf(func() { u.write("a", "1\n") })
	_, list := u.list(u.steps[0])
	for _, top := range []string{"sub", u.top + "/..", "."} {
		_, r, release := u.opened()
		rec, err := keepList(r, top, list)
		release()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := u.e.PlanRewind(t.Context(), u.f, []Step{{Changes: rec.Changes}}, nil, false); err == nil {
			t.Errorf("%q: it is planned", top)
		}
	}
	if _, err := os.Lstat(filepath.Join(u.top, "a")); err != nil {
		t.Error(err)
	}
}

// A link in the place of a session's folder, which a session in the folder above may put there, leads no record and no
// rewind elsewhere: neither in the turn, nor behind it, nor once the rewind is planned.
func TestALinkInPlaceOfTheFolderLeadsNowhere(t *testing.T) {
	const swap, back = "mv p/sub p/away; ln -s ../other p/sub", "rm p/sub; mv p/away p/sub"
	u := newFolder(t, false)
	u.lives("p/sub")
	for _, dir := range []string{"p/sub", "other"} {
		u.write(dir+"/a", "1\n")
		u.write(dir+"/d/b", "1\n")
	}
	u.write("other/mine", "1\n")
	was := u.tree()
	if err := u.e.Before(t.Context(), u.f, "run/a"); err != nil {
		t.Fatal(err)
	}
	u.sh(swap)
	if rec, err := u.e.After(t.Context(), u.f, "run/a"); err == nil {
		t.Errorf("recorded are %d changes", rec.Files)
	}
	u.e.Settle(u.f)
	u.sh(back)

	u.turnOf(func() { u.write("p/sub/a", "2\n"); u.write("p/sub/new", "1\n") })
	u.write("other/a", "2\n")
	u.write("other/new", "1\n")
	is := u.tree()
	plan, err := u.e.PlanRewind(t.Context(), u.f, u.steps, nil, true)
	if err != nil || len(plan.Conflicts) > 0 {
		t.Fatalf("%v, conflicts: %v", err, plan.Conflicts)
	}
	u.sh(swap)
	if err := u.e.Apply(u.f, plan.Changes, "rew-a"); err == nil {
		t.Error("what was planned is applied")
	}
	if plan := u.back(0); len(plan.Conflicts) == 0 || plan.Conflicts[0].Path != "p/sub/" {
		t.Errorf("a rewind would do %v, with the conflicts %v", plan.Files, plan.Conflicts)
	}
	u.sh(back)
	u.same(is, "with a link for a while")
	u.sh("cp -p p/sub/d/b other/a; rm other/new")
	u.exact(0, was)
}
