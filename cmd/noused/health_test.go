package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"noused/internal/protocol"
)

func TestTheLastErrorsAreKept(t *testing.T) {
	last := new(lastErrors)
	core := zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(io.Discard),
		zap.InfoLevel)
	log := zap.New(&errorCore{Core: core, last: last})
	log.Warn("no error")
	for n := range maxErrors + 2 {
		log.Error(fmt.Sprintf("error %d", n))
	}
	log.With(zap.String("session_id", "ses-1")).Named("x").Error("it broke", zap.Error(errors.New("no space left")),
		zap.Int("n", 1))
	log.Error(strings.Repeat("ü", maxErrorText))
	got := last.list()
	if len(got) != maxErrors || got[0].Message != "error 4" {
		t.Errorf("got %+v, want the last %d", got, maxErrors)
	}
	if e := got[maxErrors-2]; e.Message != "it broke: no space left" || e.SessionID != "ses-1" || e.At.IsZero() {
		t.Errorf("got %+v", e)
	}
	if e := got[maxErrors-1]; len(e.Message) > maxErrorText || !utf8.ValidString(e.Message) ||
		!strings.HasSuffix(e.Message, "ü…") {
		t.Errorf("got %d bytes, %q", len(e.Message), e.Message)
	}
}

// What the state folder takes is counted when somebody asks, and not again at once.
func TestDiskUseIsCountedBesideWhoeverAsks(t *testing.T) {
	dir := t.TempDir()
	for path, size := range map[string]int{
		"sessions/ses-1.jsonl": 1 << 20, "sessions/ses-1/image.png": 10,
		"sessions/ses-2.jsonl": 1, "audit.jsonl": 5000,
	} {
		path = filepath.Join(dir, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, make([]byte, size), 0o600)); err !=
			nil {
			t.Fatal(err)
		}
	}
	d := newDiskUse(dir)
	counted := d.get()
	for counted.CountedAt.IsZero() { // the machine is slow
		counted = d.get()
	}
	if counted.Sessions != 2 || counted.Path != dir || counted.FreeBytes <= 0 {
		t.Errorf("got %+v, want two sessions in %s", counted, dir)
	}
	d.close()
	if err := os.RemoveAll(filepath.Join(dir, "sessions")); err != nil {
		t.Fatal(err)
	}
	if again := d.get(); again.Bytes != counted.Bytes || again.Sessions != 2 || !again.CountedAt.Equal(counted.CountedAt) {
		t.Errorf("after it was closed: got %+v, want %+v", again, counted)
	}
}

// A clock that was wrong, and is set back by a year, leaves no figure of the past.
func TestDiskUseIsCountedWhateverTheClockSays(t *testing.T) {
	d := newDiskUse(t.TempDir())
	defer d.close()
	ahead := time.Now().AddDate(1, 0, 0)
	d.known = protocol.DiskUse{CountedAt: ahead.UTC(), Sessions: 7}
	d.get()
	d.mu.Lock()
	counting := d.counting
	d.mu.Unlock()
	if counting != nil { // the machine is slow
		<-counting
	}
	if got := d.get(); !got.CountedAt.Before(ahead) || got.Sessions != 0 {
		t.Errorf("got %+v, want it counted again", got)
	}
}

// Folders in folders, and links, take what they take, and no end of them is followed.
func TestDiskUseFollowsNoLinks(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(other, "much"), make([]byte, 1<<20), 0o600),
		os.Symlink(other, filepath.Join(dir, "away")),
		os.Symlink(dir, filepath.Join(dir, "sessions"))); err != nil {
		t.Fatal(err)
	}
	deep := filepath.Join(dir, strings.Repeat("d/", diskDepth+3))
	if err := errors.Join(os.MkdirAll(deep, 0o700), os.WriteFile(filepath.Join(deep, "much"), make([]byte, 1<<20),
		0o600)); err != nil {
		t.Fatal(err)
	}
	c := counter{ctx: t.Context(), sessions: filepath.Join(dir, "sessions")}
	info, err := os.Lstat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if c.add(dir, info, diskDepth); c.use.Bytes >= 1<<20 || c.files != diskDepth+2 {
		t.Errorf("got %+v after %d files", c.use, c.files)
	}
}

// A state of the daemon alone makes no session, and says how the daemon is.
func TestStateOfTheDaemonAlone(t *testing.T) {
	d := newDaemon(t)
	w := d.commands()
	for range 2 {
		st := into[protocol.State](t, w.request(`{"v":"1","id":"1","type":"get_state","payload":{"daemon":true}}`))
		if st.SessionID != "" || st.Daemon.PID != d.Cmd.Process.Pid || st.Disk == nil || st.Readers == nil ||
			st.EventBuffer == nil || st.EventBuffer.Limit != defaultEventBuffer {
			t.Errorf("got %+v", st)
		}
	}
	tools := into[protocol.Tools](t, w.request(`{"v":"1","id":"1","type":"list_tools","payload":{"daemon":true}}`))
	if len(tools.Tools) == 0 {
		t.Error("got no tools")
	}
	if sessions := into[protocol.Sessions](t, w.request(`{"v":"1","id":"1","type":"list_sessions"}`)); len(
		sessions.Sessions) != 0 || sessions.ActiveSessionID != "" {
		t.Errorf("got %+v, want no session", sessions)
	}
	for _, command := range []string{"get_state", "list_tools"} {
		r := w.request(`{"v":"1","id":"1","type":"` + command + `","payload":{"daemon":true,"session_id":"ses-1"}}`)
		if r.OK || r.Error.Code != protocol.InvalidPayload {
			t.Errorf("%s of both: got %+v, want it refused", command, r)
		}
	}
	// Anyone who asks about a session learns of that, as ever.
	if st := into[protocol.State](t, w.request(`{"v":"1","id":"1","type":"get_state"}`)); st.SessionID == "" ||
		st.Disk != nil || st.Readers != nil {
		t.Errorf("got %+v", st)
	}
}
