package worktree

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const landedFiles = 20

// manyFiles has so many changes that there is time to kill.
func manyFiles(t *testing.T) *bench {
	b := newBench(t)
	for i := range landedFiles {
		b.put(b.main, fmt.Sprintf("old/%d", i), "old\n")
		b.put(b.main, fmt.Sprintf("kept/%d", i), "old\n")
	}
	b.commit(b.main, "many")
	run(t, b.tree.Dir, "merge", "-q", "main")
	b.work("a", "committed\n")
	b.commit(b.tree.Dir, "a")
	if err := os.RemoveAll(filepath.Join(b.tree.Dir, "old")); err != nil {
		t.Fatal(err)
	}
	for i := range landedFiles {
		b.work(fmt.Sprintf("kept/%d", i), "new\n")
		b.work(fmt.Sprintf("new/%d/x", i), "new\n")
	}
	return b
}

// allLanded: both checkouts have everything, once.
func (b *bench) allLanded(before string) {
	b.t.Helper()
	for i := range landedFiles {
		b.has(b.main, fmt.Sprintf("kept/%d", i), "new\n")
		b.has(b.main, fmt.Sprintf("new/%d/x", i), "new\n")
		b.has(b.tree.Dir, fmt.Sprintf("new/%d/x", i), "new\n")
	}
	if _, err := os.Lstat(filepath.Join(b.main, "old")); !errors.Is(err, os.ErrNotExist) {
		b.t.Errorf("the removed folder: %v", err)
	}
	if n := run(b.t, b.main, "rev-list", "--count", before+"..main"); n != "1" {
		b.t.Errorf("main has %s new commits, want 1", n)
	}
	for _, dir := range []string{b.main, b.tree.Dir} {
		if out := run(b.t, dir, "status", "--porcelain"); out != "" {
			b.t.Errorf("git status in %s says\n%s", dir, out)
		}
	}
	run(b.t, b.main, "fsck", "--no-dangling", "--no-progress")
}

// A landing that is killed together with its gits has changed nothing, or the next call
// finishes it. Each round kills a little later.
func TestALandingThatIsKilled(t *testing.T) {
	if dir := os.Getenv("LAND_AND_BE_KILLED"); dir != "" {
		_, err := Land(t.Context(), LandRequest{Dir: dir, Home: os.Getenv("LAND_HOME"), Mode: Squash, Message: "the title"})
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	rounds := 5
	if n, err := strconv.Atoi(os.Getenv("LAND_KILLS")); err == nil {
		rounds = n
	}
	start := time.Now()
	b := manyFiles(t)
	b.landIn(nil)
	took := time.Since(start)
	half := 0
	for round := range rounds {
		b := manyFiles(t)
		before := run(t, b.main, "rev-parse", "main")
		b.landIn(func(cmd *exec.Cmd) {
			timer := time.NewTimer(took * time.Duration(round+1) / time.Duration(2*rounds))
			defer timer.Stop()
			<-timer.C
			killTree(cmd.Process.Pid)
		})
		if found, _ := filepath.Glob(stateHome(b.home) + "/*/landing.json"); len(found) > 0 {
			half++
		}
		if _, err := Land(t.Context(), b.request(Squash)); err != nil && !errors.Is(err, ErrNothingToLand) {
			t.Fatalf("round %d: %v", round, err)
		}
		b.allLanded(before)
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
	t.Logf("%d of %d were killed after they had begun to change something", half, rounds)
}

func (b *bench) landIn(kill func(*exec.Cmd)) {
	b.t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestALandingThatIsKilled$")
	cmd.Env = append(os.Environ(), "LAND_AND_BE_KILLED="+b.tree.Dir, "LAND_HOME="+b.home)
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	if kill != nil {
		kill(cmd)
		_ = cmd.Wait()
	} else if err := cmd.Wait(); err != nil {
		b.t.Fatal(err)
	}
}

// killTree kills a process and those that it has started.
func killTree(pid int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, thread := range threads {
		more, _ := os.ReadFile(thread)
		text = append(append(text, ' '), more...)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	for _, child := range strings.Fields(string(text)) {
		if pid, err := strconv.Atoi(child); err == nil && pid > 1 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// Whatever a landing was doing to the checkout when it ended: it is finished from there.
func TestALandingThatEndsBetweenTwoFiles(t *testing.T) {
	for n := range 8 {
		b := manyFiles(t)
		before := run(t, b.main, "rev-parse", "main")
		l, err := open(t.Context(), b.request(Squash))
		if err != nil {
			t.Fatal(err)
		}
		if err := l.plan(t.Context()); err != nil {
			t.Fatal(err)
		}
		j := b.halfway(l, n)
		l.close()
		if n == 7 { // and somebody has changed a file since
			b.put(b.main, "new/9/x", "mine\n")
			_, err := Land(t.Context(), b.request(Squash))
			wantError(t, err, `"new/9/x" was changed in `+b.main+" meanwhile")
			b.has(b.main, "new/9/x", "mine\n")
			if err := os.Remove(filepath.Join(b.main, "new/9/x")); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := Land(t.Context(), b.request(Squash)); n > 1 != errors.Is(err, ErrNothingToLand) {
			t.Errorf("ended after step %d of %s: got %v", n, j.Branch, err)
		}
		b.allLanded(before)
		b.clean()
	}
}

// halfway does the first steps of a landing.
func (b *bench) halfway(l *landing, steps int) journal {
	t, ctx := b.t, b.t.Context()
	commit, as, err := l.commits(ctx)
	if err != nil {
		t.Fatal(err)
	}
	j := l.journal(commit, as)
	do := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	do(l.stage(ctx))
	do(migrate(l.objects, filepath.Join(l.link.common, "objects")))
	do(j.begin(l.state))
	if steps > 0 && steps < 2 {
		run(t, b.main, "update-ref", "refs/heads/topic", commit) // one of two
	}
	if steps >= 2 {
		do(l.moveBranches(ctx, j))
	}
	if steps >= 3 {
		do(j.install(filepath.Join(l.state, "index-tree"), j.GitDir))
	}
	if steps >= 4 {
		part := j
		part.Files = j.Files[:len(j.Files)/2]
		do(part.place(l.state))
	}
	if steps == 5 {
		do(j.place(l.state))
	}
	if steps == 6 {
		do(j.place(l.state))
		do(j.install(filepath.Join(l.state, "index-target"), j.CheckGit))
	}
	return j
}
