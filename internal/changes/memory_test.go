package changes

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"noused/internal/budget"
)

// A record that needs more memory than one may have is refused with the limit, and everything is given
// back; the next one is made.
func TestARecordIsBoundedInMemory(t *testing.T) {
	bothKinds(t, func(t *testing.T, u *folderUnder) {
		ctx := context.Background()
		u.e.o.Limits.Memory = 1 << 20
		u.e.pool = budget.NewPool(1 << 19)
		u.write("a", "1\n")
		u.turnOf(func() { u.write("a", "2\n") })
		if err := u.e.Before(ctx, u.f, "run/many"); err != nil {
			t.Fatal(err)
		}
		u.sh(`mkdir many; cd many; seq 3000 | xargs touch`)
		_, err := u.e.After(ctx, u.f, "run/many")
		if err == nil || !strings.Contains(err.Error(), "it takes more than 1.0 MiB of memory: there are too many files") {
			t.Fatalf("3000 files in 1 MiB: %v", err)
		}
		u.e.Settle(u.f)
		u.sh(`rm -r many`)
		if rec := u.turnOf(func() { u.write("a", "3\n") }); rec.Files != 1 {
			t.Errorf("after that: %+v", rec)
		}
		if used := u.e.pool.Used(); used > 0 {
			t.Errorf("%d bytes were not given back", used)
		}
	})
}

// Sessions that record at the same time share the memory: each ends, if there is not enough for all.
func TestRecordsShareTheirMemory(t *testing.T) {
	u := newFolder(t, false)
	u.e.pool = budget.NewPool(1 << 20)
	u.sh(`mkdir many; cd many; seq 2000 | xargs touch`)
	done := make(chan error)
	const sessions = 6
	for i := range sessions {
		go func() {
			f := Folder{fmt.Sprint("ses-", i+1), u.top}
			err := u.e.Before(context.Background(), f, "run/1")
			if err == nil {
				_, err = u.e.After(context.Background(), f, "run/1")
			}
			done <- err
		}()
	}
	for range sessions {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if used := u.e.pool.Used(); used > 0 {
		t.Errorf("%d bytes were not given back", used)
	}
}

// A folder whose files take more than all sessions share is recorded, with those that have to be read.
func TestAFolderThatTakesAllMemoryIsRead(t *testing.T) {
	bothKinds(t, func(t *testing.T, u *folderUnder) {
		u.e.pool = budget.NewPool(1 << 18)
		u.sh(`mkdir many; cd many; seq 2000 | xargs touch; for f in 1 2 3 4; do head -c 200000 /dev/zero > ../$f; done`)
		if err := u.e.Before(context.Background(), u.f, "run/1"); err != nil {
			t.Fatal(err)
		}
		if used := u.e.pool.Used(); used > 0 {
			t.Errorf("%d bytes were not given back", used)
		}
	})
}

// However many sessions are at work in a folder, each is recorded: what others have recorded is read by turns.
func TestARecordTakesNoMoreBesideOthers(t *testing.T) {
	u := newFolder(t, false)
	u.e.o.Limits.Memory = 2 << 20
	u.sh(`mkdir many; cd many; seq 1000 | xargs touch`)
	for i := range 12 {
		if err := u.e.Before(context.Background(), Folder{fmt.Sprint("ses-", i+2), u.top}, "run/1"); err != nil {
			t.Fatal(err)
		}
	}
	u.turnOf(func() { u.write("a", "1\n") })
}

// The record that waits for nothing reads its files, too, while others have all the memory and wait for it.
func TestTheFilesOfARecordThatWaitsForNothingDoNotEither(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 1 << 20
		ctx, pool := context.Background(), budget.NewPool(size)
		other, last := newMemory(pool, 4*size), newMemory(pool, 4*size)
		for _, m := range []*memory{&other, &last} {
			if err := m.take(ctx, size); err != nil {
				t.Fatal(err)
			}
		}
		file := last.beside()
		if err := file.take(ctx, size); err != nil {
			t.Error(err)
		}
		file.part.End()
		third := newMemory(pool, 4*size)
		if err := third.take(ctx, size); err == nil {
			t.Error("two at a time wait for nothing")
		}
		last.part.End()
		if err := third.take(ctx, size); err != nil {
			t.Error(err)
		}
		third.part.End()
		other.part.End()
		if used := pool.Used(); used > 0 {
			t.Errorf("%d bytes were not given back", used)
		}
	})
}
