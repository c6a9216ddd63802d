package changes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"noused/internal/worktree"
)

// slowGit is a git that waits until it may go on.
type slowGit struct{ begun, goOn chan struct{} }

func (g slowGit) run(ctx context.Context, c worktree.Command, out io.Writer) error {
	g.begun <- struct{}{}
	<-g.goOn
	return worktree.Directly(ctx, c, out)
}

// A turn that could not wait for the record of a very large folder ends without waiting for it
// either, and what it has changed is not the next turn's.
func TestATurnEndsWhileTheFolderIsStillRecorded(t *testing.T) {
	u := newFolder(t, false)
	u.write("a", "1\n")
	git := slowGit{make(chan struct{}, 100), make(chan struct{})}
	u.e.o.Git = git.run
	warm := make(chan struct{})
	go func() { defer close(warm); u.e.Warm(context.Background(), u.f) }()
	<-git.begun
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := u.e.Before(ctx, u.f, "run/1"); !errors.Is(err, context.Canceled) {
		t.Fatalf("before: %v", err)
	}
	u.write("a", "2\n")
	u.e.Settle(u.f) // it waits for nothing
	close(git.goOn)
	<-warm
	u.write("a", "3\n") // still what is left of the first turn
	if s := u.e.sessions[u.f.SessionID]; s != nil {
		s.took = time.Hour // it was so large
	}
	u.turnOf(func() { u.write("b", "1\n") })
	if files := u.show().Files; len(files) != 1 || files[0].Path != "b" {
		t.Errorf("the second turn's: %v", fmt.Sprint(files))
	}
}

// What is kept of a session is removed when nothing is written to it any more, and what has been
// waiting meanwhile makes nothing anew.
func TestWhatIsHeldCanBeRemoved(t *testing.T) {
	u := newFolder(t, false)
	u.write("a", "1\n")
	git := slowGit{make(chan struct{}, 100), make(chan struct{})}
	u.e.o.Git = git.run
	ctx, cancel := context.WithCancel(context.Background())
	warm := make(chan struct{})
	go func() { defer close(warm); u.e.Warm(ctx, u.f) }()
	<-git.begun
	short, over := context.WithCancel(context.Background())
	over()
	if _, err := u.e.Hold(short, u.f.SessionID); !errors.Is(err, context.Canceled) {
		t.Fatalf("held while the folder is recorded: %v", err)
	}
	held := make(chan func())
	go func() {
		release, err := u.e.Hold(context.Background(), u.f.SessionID)
		if err != nil {
			t.Error(err)
		}
		held <- release
	}()
	close(git.goOn)
	release := <-held
	<-warm
	dir := u.e.o.Dir(u.f.SessionID)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	late := make(chan struct{})
	go func() { defer close(late); u.e.Warm(ctx, u.f) }()
	cancel()
	release()
	<-late
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it was made anew: %v", err)
	}
	if len(u.e.sessions) != 0 {
		t.Errorf("%d sessions are known still", len(u.e.sessions))
	}
}

// What was written long after the end of a turn, while that was still recorded, may be somebody
// else's.
func TestWhatIsWrittenDuringALongRecordIsShared(t *testing.T) {
	u := newFolder(t, false)
	u.write("dir/gone", "1\n")
	u.write("a", "1\n")
	list := []Change{{Path: "a", After: State{Mode: 0o100644}}, {Path: "dir/gone", Before: State{Mode: 0o100644}}}
	u.sh("rm -r dir")
	for when, want := range map[time.Duration]bool{-time.Hour: true, time.Hour: false} {
		for i := range list {
			list[i].Shared = false
		}
		if err := shareLate(list, u.top, time.Now().Add(when)); err != nil {
			t.Fatal(err)
		}
		for _, c := range list {
			if c.Shared != want {
				t.Errorf("%s: shared is %t, at the end %v from now", c.Path, c.Shared, when)
			}
		}
	}
}
