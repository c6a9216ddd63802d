package session

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// streaming is a store with a session whose model is answering.
func streaming(t *testing.T, dir string) (*Store, *State, *Journal) {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now()
	state, j, err := s.Create("ses-1", []Record{
		{at, Created{SessionID: "ses-1"}},
		{at, RunStarted{RunID: "run-1"}},
		{at, MessageStarted{ID: "msg-1", RunID: "run-1"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s, state, j
}

// reopened is what the next daemon finds.
func reopened(t *testing.T, dir string) (*Store, *State, *Journal) {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	state, j, _, err := s.Load(t.Context(), "ses-1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return s, state, j
}

// files are those of streaming/ that have anything in them.
func files(t *testing.T, dir string) (n int) {
	t.Helper()
	entries, _ := os.ReadDir(filepath.Join(dir, streamingName))
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Size() > 0 {
			n++
		}
	}
	return n
}

func announced(t *testing.T, j *Journal, id string, pieces ...Piece) {
	t.Helper()
	if err := j.Announced(id, pieces); err != nil {
		t.Fatal(err)
	}
}

func TestWhatWasAnnouncedIsThereAfterAKill(t *testing.T) {
	dir := t.TempDir()
	s, _, j := streaming(t, dir)
	announced(t, j, "msg-1", Piece{Thinking: "hm"}, Piece{Text: "half \"a\" "})
	announced(t, j, "msg-1", Piece{Text: "\xffword"})
	if _, err := j.stream.f.WriteString(`{"text":"not anno`); err != nil { // torn, as the kill came in the middle
		t.Fatal(err)
	}
	_ = s.lock.Release() // and nothing else

	s2, state, j2 := reopened(t, dir)
	want := Piece{Text: "half \"a\" \uFFFDword", Thinking: "hm"}
	if state.Run.Said != want {
		t.Errorf("got %+v, want %+v", state.Run.Said, want)
	}
	_ = j2.Close() // a disk fails: it is there once more
	_, j2, _, err := s2.Load(t.Context(), "ses-1")
	if err != nil {
		t.Fatal(err)
	}
	ended := MessageAdded{ID: "msg-1", RunID: "run-1"}
	ended.Message.Role, ended.Message.Text = "assistant", want.Text
	if err := j2.Append([]Record{{time.Now(), ended}}); err != nil {
		t.Fatal(err)
	}
	announced(t, j2, "msg-1")
	if n := files(t, dir); n != 0 {
		t.Errorf("%d files have something after the message's end", n)
	}
}

// Files are used for one message after the other, and a message that ended has nothing to
// be found.
func TestFilesOfStreamsAreUsedAgain(t *testing.T) {
	dir := t.TempDir()
	s, _, j := streaming(t, dir)
	for _, id := range []string{"msg-1", "msg-2", "msg-3"} {
		announced(t, j, id, Piece{Text: id})
	}
	entries, err := os.ReadDir(filepath.Join(dir, streamingName))
	if err != nil || len(entries) > 2 { // of the one that ended, and of the next
		t.Errorf("got %d files, %v", len(entries), err)
	}
	_ = s.lock.Release()
	_, state, j2 := reopened(t, dir) // of which the journal knows msg-1 alone
	if state.Run.Said != (Piece{}) || j2.stream != nil || files(t, dir) != 0 {
		t.Errorf("got %+v, %d files", state.Run.Said, files(t, dir))
	}
}

func TestADeletedSessionLeavesNothingOfAStream(t *testing.T) {
	dir := t.TempDir()
	s, _, j := streaming(t, dir)
	announced(t, j, "msg-1", Piece{Text: "secret"})
	_ = j.Close()
	if err := s.Delete("ses-1", time.Now()); err != nil {
		t.Fatal(err)
	}
	if n := files(t, dir); n != 0 {
		t.Errorf("%d files", n)
	}
	_ = s.Close()
}

// What was announced is found again after an error that passes, as of too many open files.
func TestWhatWasAnnouncedOutlastsAnError(t *testing.T) {
	dir := t.TempDir()
	s, _, j := streaming(t, dir)
	announced(t, j, "msg-1", Piece{Text: "half"})
	_ = s.lock.Release() // and nothing else
	s2, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s2.Close() }()
	entries, err := os.ReadDir(s2.streams.dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("got %v, %v", entries, err)
	}
	path := filepath.Join(s2.streams.dir, entries[0].Name())
	s2.streams.mu.Lock()
	err = s2.streams.scan()
	s2.streams.mu.Unlock()
	if err = errors.Join(err, os.Rename(path, path+".x"), os.Symlink(path+".x", path)); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := s2.Load(t.Context(), "ses-1"); err == nil {
		t.Fatal("the session was opened without what was announced")
	}
	if err := os.Rename(path+".x", path); err != nil {
		t.Fatal(err)
	}
	state, j2, _, err := s2.Load(t.Context(), "ses-1")
	if err != nil || state.Run.Said.Text != "half" {
		t.Fatalf("got %+v, %v", state, err)
	}
	_ = j2.Close()
}
