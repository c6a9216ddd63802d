package session

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A journal that ends anywhere in its last three records has all that was
// whole, and takes what comes next.
func TestCutAtEveryByteOfTheLastRecords(t *testing.T) {
	records := life()
	for n := len(records) - 3; n < len(records); n++ {
		whole, torn := lines(t, records[:n]), lines(t, records[n:n+1])
		want := foldOf(t, records[:n])
		dir := t.TempDir()
		store, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		for cut := range torn {
			if err := os.WriteFile(store.path("ses-1"), append(bytes.Clone(whole), torn[:cut]...), 0o600); err != nil {
				t.Fatal(err)
			}
			s, j, problems, err := store.Load(context.Background(), "ses-1")
			if err != nil || len(problems) != min(cut, 1) {
				t.Fatalf("record %d cut at %d: %v, %v; want it opened, and told once of the torn line", n, cut, err, problems)
			}
			if diff := cmp.Diff(want, s, private); diff != "" {
				t.Fatalf("record %d cut at %d: -want +got:\n%s", n, cut, diff)
			}
			if err := j.Append(records[n:]); err != nil {
				t.Fatal(err)
			}
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			if got, err := store.Peek(context.Background(), "ses-1"); err != nil ||
				!cmp.Equal(foldOf(t, records), got, private) {
				t.Fatalf("record %d cut at %d: what was appended afterwards is not there (%v)", n, cut, err)
			}
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// The file that remembers the active session may end anywhere: then the one
// before is the active one, and the next choice is kept.
func TestActiveSessionCutAtEveryByte(t *testing.T) {
	dir := t.TempDir()
	open := func() *Store {
		t.Helper()
		store, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		return store
	}
	store := open()
	for _, id := range []string{"ses-1", "ses-2", "ses-3"} {
		_, j, err := store.Create(id, []Record{{t0, Created{SessionID: id}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, activeName)
	var text [][]byte // after each choice
	for _, id := range []string{"ses-1", "ses-2"} {
		if err := store.SetActive(id, t0); err != nil {
			t.Fatal(err)
		}
		now, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, now)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	for cut := len(text[0]); cut < len(text[1]); cut++ {
		if err := os.WriteFile(path, text[1][:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		store := open()
		want := "ses-1"
		if cut == len(text[1])-1 { // whole but for its LF
			want = "ses-2"
		}
		if got, err := store.Active(); got != want || err != nil {
			t.Errorf("cut at %d: the active session is %q, %v; want %s", cut, got, err, want)
		}
		if err := store.SetActive("ses-3", t0); err != nil {
			t.Fatal(err)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		store = open()
		if got, err := store.Active(); got != "ses-3" || err != nil {
			t.Errorf("cut at %d: the next choice is lost: %q, %v", cut, got, err)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
