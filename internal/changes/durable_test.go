package changes

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"noused/internal/worktree"
)

// What is at the name of an object was flushed before it came there, so that no failure of the
// power leaves a name with something else; what a killed process has left is removed.
func TestAnObjectHasItsNameOnceItIsOnTheDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "repo")
	r, err := makeRepo(worktree.Directly, dir, "", unbounded())
	if err != nil {
		t.Fatal(err)
	}
	o, err := r.put("blob", []byte("text"))
	if err != nil || !r.has(o) {
		t.Fatalf("put: %v, it has it: %v", err, r.has(o))
	}
	if _, err := os.Lstat(r.path(o)); err == nil {
		t.Error("it is at its name before it is on the disk")
	}
	if r, err = makeRepo(worktree.Directly, dir, "", unbounded()); err != nil { // the next process
		t.Fatal(err)
	}
	if drafts, _ := os.ReadDir(r.drafts()); len(drafts) > 0 || r.has(o) {
		t.Errorf("what was never flushed is there still: %v, it has it: %v", drafts, r.has(o))
	}
	if o, err = r.put("blob", []byte("text")); err != nil {
		t.Fatal(err)
	}
	if err := r.flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(r.path(o)); err != nil {
		t.Error(err)
	}
}

// A rewind of many files, in many folders.
func TestManyFilesComeBack(t *testing.T) {
	u := newFolder(t, false)
	for i := range 200 {
		u.write(fmt.Sprintf("d%d/f%d", i, i), fmt.Sprint("text ", i))
	}
	was := u.tree()
	u.turnOf(func() { u.sh("rm -r d1*; for f in d*/*; do echo more >> $f; done") })
	if plan := u.back(0); len(plan.Conflicts) > 0 {
		t.Fatalf("conflicts: %v", plan.Conflicts)
	}
	u.same(was, "rewound")
}
