package changes

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"noused/internal/worktree"
)

var (
	sequences = flag.Int("sequences", 20, "random sequences of turns and edits")
	kills     = flag.Int("kills", 10, "kills in the middle of rewinds and records")
)

// names are those that random edits take, awkward ones among them.
var names = []string{
	"a", "b.txt", "sub/c", "sub/deep/d", "sub/e", "other/f", "sp ace", "q\"uote", "nl\nx", "back\\slash", "\xff\xfe",
	"sub/\xe9",
	"*glob", "-dash", "#hash", "é", "sub/.hidden",
}

// put writes a file, and never through a link: a random one may lead anywhere.
func put(at string, flags int, text []byte, mode os.FileMode) error {
	f, err := os.OpenFile(at, flags|os.O_WRONLY|syscall.O_NOFOLLOW, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// edit does something at random in a folder of the test's own, to names that begin so.
func edit(t testing.TB, r *rand.Rand, top, only string) {
	t.Helper()
	at := filepath.Join(top, only, names[r.IntN(len(names))])
	fail := func(err error) {
		// what is in the way may be: a file where a folder is wanted
		if err != nil && !errors.Is(err, syscall.ENOTDIR) && !errors.Is(err, os.ErrNotExist) &&
			!errors.Is(err, os.ErrExist) && !errors.Is(err, syscall.ELOOP) &&
			!errors.Is(err, syscall.EISDIR) && !errors.Is(err, syscall.ENOTEMPTY) {
			t.Fatal(err)
		}
	}
	switch r.IntN(9) {
	case 0, 1:
		if os.MkdirAll(filepath.Dir(at), 0o755) == nil {
			text := strings.Repeat(fmt.Sprintf("line %d\n", r.IntN(5)), r.IntN(20))
			fail(put(at, os.O_CREATE|os.O_TRUNC, []byte(text), 0o644))
		}
	case 2:
		if os.MkdirAll(filepath.Dir(at), 0o755) == nil {
			fail(put(at, os.O_CREATE|os.O_TRUNC, []byte{0, 0xff, byte(r.IntN(256)), '\n'}, 0o600))
		}
	case 3:
		fail(os.RemoveAll(at))
	case 4:
		to := filepath.Join(top, only, names[r.IntN(len(names))])
		if os.MkdirAll(filepath.Dir(to), 0o755) == nil {
			err := os.Rename(at, to)
			if !errors.Is(err, syscall.EINVAL) {
				fail(err)
			}
		}
	case 5:
		if info, err := os.Lstat(at); err == nil && info.Mode()&os.ModeSymlink == 0 {
			fail(os.Chmod(at, os.FileMode(0o600|r.IntN(0o200))|0o700*os.FileMode(btoi(info.IsDir()))))
		}
	case 6:
		_ = os.Remove(at)
		fail(os.Symlink([]string{"a", "../../outside", "nowhere/\xff"}[r.IntN(3)], at))
	case 7:
		fail(os.Mkdir(at, 0o711))
	default:
		fail(put(at, os.O_APPEND, []byte("more\n"), 0))
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// A session writes below mine/, the user and another session below theirs/, in turns that
// overlap as they will: rewinding restores mine/ byte for byte and mode for mode, and
// touches nothing of theirs; undoing is the inverse.
func TestARewindRestoresWhatTheTurnsChangedAndNothingElse(t *testing.T) {
	for n := range *sequences {
		seed := uint64(n) + 1
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 7))
			u := newFolder(t, seed%2 == 0)
			for range 20 {
				edit(t, r, u.top, "mine")
				edit(t, r, u.top, "theirs")
			}
			if seed%4 == 0 {
				u.git("add", "-A")
				u.git("commit", "-qm", "x")
			}
			other := *u
			other.f.SessionID = "ses-2"
			mine := []string{part(u.tree(), "mine")}
			for range 1 + r.IntN(5) {
				overlapping := r.IntN(3) == 0
				if overlapping {
					if err := u.e.Before(context.Background(), other.f, "r/1"); err != nil {
						t.Fatal(err)
					}
				}
				u.turnOf(func() {
					for range r.IntN(8) {
						edit(t, r, u.top, "mine")
					}
				})
				for range r.IntN(4) {
					edit(t, r, u.top, "theirs")
				}
				if overlapping {
					if _, err := u.e.After(context.Background(), other.f, "r/1"); err != nil {
						t.Fatal(err)
					}
					u.e.Settle(other.f)
				}
				mine = append(mine, part(u.tree(), "mine"))
			}
			is, theirs := u.tree(), part(u.tree(), "theirs")
			from := r.IntN(len(u.steps))
			var force []string
			if plan, err := u.e.PlanRewind(context.Background(), u.f, u.steps[from:], nil, false); err != nil {
				t.Fatal(err)
			} else {
				for _, c := range plan.Conflicts { // what another session's turn may have made
					force = append(force, c.Path)
				}
			}
			before := len(u.steps)
			if plan := u.back(from, force...); len(plan.Conflicts) > 0 {
				t.Fatalf("conflicts: %q", plan.Conflicts)
			}
			if got := part(u.tree(), "mine"); got != mine[from] {
				t.Errorf("rewound:\n%s\nwant\n%s", got, mine[from])
			}
			if got := part(u.tree(), "theirs"); got != theirs {
				t.Errorf("what others wrote is\n%s\nand was\n%s", got, theirs)
			}
			if plan := u.back(before); len(plan.Conflicts) > 0 {
				t.Fatalf("undo: conflicts: %q", plan.Conflicts)
			}
			u.same(is, "undone")
		})
	}
}

// part are the lines of a tree that are about a folder.
func part(tree, dir string) string {
	var out strings.Builder
	for line := range strings.Lines(tree) {
		if strings.HasPrefix(line, `"`+dir) {
			out.WriteString(line)
		}
	}
	return out.String()
}

// TestKilled is a process of TestAKillLeavesNoHalf's, which is killed.
func TestKilled(t *testing.T) {
	state, top, plan := os.Getenv("CHANGES_STATE"), os.Getenv("CHANGES_TOP"), os.Getenv("CHANGES_PLAN")
	if top == "" {
		t.Skip("it is run by another test")
	}
	e := New(Options{
		Dir: func(id string) string { return filepath.Join(state, id+".changes") }, Git: worktree.Directly, Limits: full,
	})
	f := Folder{"ses-1", top}
	fmt.Println("ready")
	if plan == "" {
		_ = e.Before(context.Background(), f, "run/9")
		_, _ = e.After(context.Background(), f, "run/9")
		return
	}
	name, err := ParseOID(plan)
	if err != nil {
		t.Fatal(err)
	}
	_ = e.Apply(f, name, "rew-1")
}

// A process is killed in the middle of a rewind: recovering finishes it, and the folder
// is what was before or what is after, never a mixture.
func TestAKillLeavesNoHalf(t *testing.T) {
	finished := 0
	for n := range *kills {
		r := rand.New(rand.NewPCG(uint64(n), 9))
		u := newFolder(t, n%2 == 0)
		for i := range 60 {
			u.write(fmt.Sprintf("d%d/f%d", i%7, i), strings.Repeat("x\n", i))
		}
		was := u.tree()
		u.turnOf(func() {
			u.sh("rm -r d1; for f in d2/*; do echo y >> $f; done; mkdir -p n/m; cp d3/* n/m; chmod 600 d4/*")
		})
		plan, err := u.e.PlanRewind(context.Background(), u.f, u.steps, nil, true)
		if err != nil || len(plan.Conflicts) > 0 {
			t.Fatal(plan.Conflicts, err)
		}
		object := plan.Changes.String()
		if n%5 == 4 {
			object = "" // it is killed while it records
		}
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilled$")
		cmd.Env = append(os.Environ(), "CHANGES_TOP="+u.top, "CHANGES_STATE="+filepath.Dir(u.e.o.Dir("ses-1")),
			"CHANGES_PLAN="+object)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_, _ = out.Read(make([]byte, 6))
		timer := time.AfterFunc(time.Duration(r.IntN(30_000))*time.Microsecond, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		timer.Stop()
		if object == "" {
			u.back(0)
			u.same(was, "recorded by one that was killed, and rewound")
			continue
		}
		done, err := u.e.Recover(u.f, plan.Changes, "rew-1")
		if err != nil || !done {
			t.Fatalf("recover: %v, %v", done, err)
		}
		finished++
		u.same(was, "recovered")
	}
	if finished == 0 {
		t.Error("no rewind was killed")
	}
}
