package session

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// A journal that is one long hole is not read to its end, and what is in it is not
// copied.
func TestAJournalWithoutAnEnd(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	path := filepath.Join(dir, sessionsName, "ses-hole.jsonl")
	text := `{"v":1,"at":"2026-01-02T03:04:05Z","type":"created","data":{"session_id":"ses-hole"}}` + "\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 1<<40); err != nil {
		t.Skipf("no file of this disk can be so long: %v", err)
	}
	if _, _, _, err := s.Load(t.Context(), "ses-hole"); !errors.Is(err, errEndless) {
		t.Errorf("opened: got %v", err)
	}
	const least = 64 << 10 // bytes to read any of it
	for _, most := range []uint64{2 << 20, least / 2} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := s.Summary(t.Context(), "ses-hole"); !errors.Is(err, errEndless) {
			t.Errorf("listed: got %v", err)
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > most {
			t.Errorf("listing it took %d bytes, want at most %d", n, most)
		}
	}
	if _, ok := s.Known("ses-hole"); ok {
		t.Error("it has a summary")
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("left: %v %v", left, err)
	}
	if info, err := os.Stat(path); err != nil || info.Size() != 1<<40 {
		t.Errorf("got %v %v, want it untouched", info, err)
	}
}
