package session

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// forgetful is a disk one sync of which fails. It notes what is written afterwards.
type forgetful struct {
	OSDisk
	failing bool
	written strings.Builder
}

func (d *forgetful) Sync(f *os.File) error {
	if d.failing && strings.HasSuffix(f.Name(), journalExt) {
		d.failing = false
		d.written.Reset()
		return syscall.EIO
	}
	return d.OSDisk.Sync(f)
}

func (d *forgetful) Write(f *os.File, text []byte) (int, error) {
	d.written.Write(text)
	return d.OSDisk.Write(f, text)
}

// After a failed sync the kernel takes what was written for clean, and never writes it:
// what was announced since the last sync is written again, so that the next sync has it.
// What was refused is gone.
func TestWhatAFailedSyncDroppedIsWrittenAgain(t *testing.T) {
	disk := &forgetful{}
	dir := t.TempDir()
	store, err := OpenOn(disk, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	records := life()
	_, j, err := store.Create("ses-1", records[:1])
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Sync(); err != nil {
		t.Fatal(err)
	}
	title := func(text string) []Record { return []Record{{t0, TitleSet{Title: text}}} }
	if _, err := j.Write(title("announced")); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Write(title("refused")); err != nil {
		t.Fatal(err)
	}
	disk.failing = true
	if err := j.Sync(); err == nil {
		t.Fatal("the sync did not fail")
	}
	if got := disk.written.String(); !strings.Contains(got, "announced") || strings.Contains(got, "refused") {
		t.Errorf("written again was %q, want the record that was announced", got)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "sessions", "ses-1"+journalExt))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "announced") || strings.Contains(string(text), "refused") {
		t.Errorf("the journal is %s", text)
	}
}
