package work

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"noused/internal/fleet"
	"noused/internal/fleet/job"
	"noused/internal/protocol"
	"noused/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.M{M: m}) }

// worker does no jobs: it has a folder, and a log that can be read.
func worker(t *testing.T) (*Worker, *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zap.DebugLevel)
	w := New(Options{
		Prefix: fleet.DefaultPrefix, Name: "box", Instance: "in-1", Slots: 1,
		Dir: filepath.Join(t.TempDir(), "fleet-jobs"), Log: zap.New(core),
	})
	t.Cleanup(w.Close)
	if all := load(t, w); len(all) != 0 { // it makes the folder
		t.Errorf("got %v of a folder that is missing", all)
	}
	return w, logs
}

func load(t *testing.T, w *Worker) []record {
	t.Helper()
	all, err := w.load()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func write(t *testing.T, w *Worker, name, text string) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(w.o.Dir, name), []byte(text), 0o600))
}

// What is known of a job is known again after the daemon was killed, as it was last kept,
// until it is dropped.
func TestRecordsAreKept(t *testing.T) {
	w, logs := worker(t)
	end := job.Failed("c", "box", "internal_error", "why \x00 \xff")
	end.Output, end.SessionID = strings.Repeat("\x01", 9*job.MaxOutput), "ses-1"
	end = end.Bounded()
	var want []record
	for _, r := range []record{
		{Job: job.Job{
			ID: "a", Prompt: "hello", Labels: map[string]string{"gpu": "a100"}, Workdir: "/src", Model: "m/n",
			Approvals: protocol.ApprovalsDeny,
		}},
		{
			Job: job.Job{ID: "b", Prompt: strings.Repeat("\x01", fleet.MaxJob/6)}, SessionID: "ses-1", RunID: "run-1",
			Folder: "/w",
		},
		{Job: job.Job{ID: "c", Prompt: "hello"}, SessionID: "ses-1", RunID: "run-1", End: &end},
	} {
		before := r
		before.SessionID, before.RunID, before.End = "", "", nil
		if err := w.keep(before); err != nil {
			t.Fatal(err)
		}
		if err := w.keep(r); err != nil {
			t.Fatal(err)
		}
		r.Again = true
		want = append(want, r)
	}
	write(t, w, tempPrefix+"d", "half a rec")
	got := load(t, w)
	if len(got) != len(want) || logs.Len() != 0 {
		t.Fatalf("got %d records, want %d; the log has %v", len(got), len(want), logs.All())
	}
	for i := range got {
		if want[i].End != nil { // what no JSON can have was replaced when it was kept
			want[i].End.Error.Message, want[i].End.Usage = got[i].End.Error.Message, got[i].End.Usage
		}
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Errorf("got %.300v\nwant %.300v", got[i], want[i])
		}
	}
	if _, err := os.Stat(filepath.Join(w.o.Dir, tempPrefix+"d")); !os.IsNotExist(err) {
		t.Errorf("what was half written is still there: %v", err)
	}
	for _, id := range []string{"a", "a", "never"} {
		if err := w.drop(id); err != nil {
			t.Error(err)
		}
	}
	if got := load(t, w); len(got) != 2 || got[0].ID != "b" {
		t.Errorf("after one was dropped: got %.100v", got)
	}
}

// A record that cannot be read is logged with its file and why, and stays; the others are
// read.
func TestRecordsThatCannotBeRead(t *testing.T) {
	for name, c := range map[string]struct {
		make func(t *testing.T, w *Worker, path string)
		why  string
	}{
		"syntax":     {text(`{"job":{"id":"bad",`), "EOF"},
		"no object":  {text(`[]`), "record"},
		"empty":      {text(``), "EOF"},
		"other job":  {text(`{"job":{"id":"good","prompt":"x"}}`), `it is of the job "good"`},
		"no prompt":  {text(`{"job":{"id":"bad"}}`), "prompt"},
		"asks":       {text(`{"job":{"id":"bad","prompt":"x","approvals":"auto"}}`), "want deny"},
		"relative":   {text(`{"job":{"id":"bad","prompt":"x","workdir":"src"}}`), "absolute"},
		"no session": {text(`{"job":{"id":"bad","prompt":"x"},"run_id":"run-1"}`), "no session_id"},
		"other end":  {text(`{"job":{"id":"bad","prompt":"x"},"end":{"id":"good"}}`), `its end is of the job "good"`},
		"too long": {
			text(`{"job":{"id":"bad","prompt":"` + strings.Repeat("x", maxRecord) + `"}}`),
			"is too long: more than",
		},
		"a link": {link, "is a symbolic link"},
		"a folder": {func(t *testing.T, _ *Worker, path string) {
			must(t, os.Mkdir(path, 0o700))
		}, "is not a regular file"},
		"of no reader":  {unreadable, "permission denied"},
		"of a stranger": {foreign, "belongs to another user"},
	} {
		t.Run(name, func(t *testing.T) {
			w, logs := worker(t)
			must(t, w.keep(record{Job: job.Job{ID: "x-good", Prompt: "hello"}}))
			path := w.path("bad")
			c.make(t, w, path)
			if got := load(t, w); len(got) != 1 || got[0].ID != "x-good" {
				t.Errorf("got %.200v, want the other one", got)
			}
			said := logs.FilterMessage("what the daemon knew of a job cannot be read").All()
			if len(said) != 1 || said[0].ContextMap()["file"] != path ||
				!strings.Contains(said[0].ContextMap()["error"].(string), c.why) {
				t.Errorf("the log has %v, want %s and %q", logs.All(), path, c.why)
			}
			if _, err := os.Lstat(path); err != nil {
				t.Errorf("it is gone: %v", err)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func text(s string) func(*testing.T, *Worker, string) {
	return func(t *testing.T, w *Worker, path string) { write(t, w, filepath.Base(path), s) }
}

func link(t *testing.T, w *Worker, path string) {
	to := filepath.Join(t.TempDir(), "elsewhere")
	must(t, os.WriteFile(to, []byte(`{"job":{"id":"bad","prompt":"x"}}`), 0o600))
	must(t, os.Symlink(to, path))
}

func unreadable(t *testing.T, w *Worker, path string) {
	if os.Geteuid() == 0 {
		t.Skip("root may read everything")
	}
	write(t, w, filepath.Base(path), `{"job":{"id":"bad","prompt":"x"}}`)
	must(t, os.Chmod(path, 0))
}

func foreign(t *testing.T, w *Worker, path string) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file away")
	}
	write(t, w, filepath.Base(path), `{"job":{"id":"bad","prompt":"x"}}`)
	must(t, os.Chown(path, 4711, 4711))
}

// Records without room for them are logged, and not continued.
func TestThereIsRoomForSoManyRecords(t *testing.T) {
	w, logs := worker(t)
	long := "]" + strings.Repeat(" ", maxRecord-1)
	files := maxKnown/len(long) + 3
	for i := range files {
		write(t, w, strings.Repeat("a", i+1)+fileSuffix, long)
	}
	must(t, w.keep(record{Job: job.Job{ID: "z", Prompt: "hello"}}))
	if got := load(t, w); len(got) != 0 {
		t.Errorf("got %d records", len(got))
	}
	said := logs.FilterMessageSnippet("too many").All()
	if len(said) != 1 || said[0].ContextMap()["folder"] != w.o.Dir || said[0].ContextMap()["left"] == 0 {
		t.Errorf("the log has %d lines, and %v", logs.Len(), said)
	}
}

// A folder that is not the daemon's own is an error.
func TestTheFolderOfRecords(t *testing.T) {
	w, _ := worker(t)
	must(t, os.Remove(w.o.Dir))
	must(t, os.Symlink(t.TempDir(), w.o.Dir))
	if _, err := w.load(); err == nil || !strings.Contains(err.Error(), "is a symbolic link") {
		t.Errorf("got %v", err)
	}
	must(t, os.Remove(w.o.Dir))
	must(t, os.WriteFile(w.o.Dir, nil, 0o600))
	if _, err := w.load(); err == nil || !strings.Contains(err.Error(), "is no folder") {
		t.Errorf("got %v", err)
	}
}

// What is read is whole, whatever is in the file, and can be kept and read again.
func FuzzRecord(f *testing.F) {
	f.Add(
		[]byte(
			`{"job":{"id":"j","prompt":"hello","labels":{"a":"b"}},"session_id":"ses-1","run_id":"run-1","end":{"id":"j","stop_reason":"completed"}}`))
	f.Add([]byte(`{"job":{"id":"j","prompt":"hello"},"end":null}`))
	w := New(Options{Dir: f.TempDir(), Log: zap.NewNop()})
	f.Cleanup(w.Close)
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(w.path("j"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		r, n, err := w.read("j")
		if err != nil {
			if len(err.Error()) > 2000 || slices.Contains([]byte(err.Error()), 0) {
				t.Errorf("the error is %q", err)
			}
			return
		}
		if n != len(text) || r.ID != "j" || r.Check() != nil {
			t.Fatalf("%q was taken: %+v", text, r)
		}
		if err := w.keep(r); err != nil {
			t.Fatal(err)
		}
		if again, _, err := w.read("j"); err != nil || again.SessionID != r.SessionID || again.RunID != r.RunID ||
			(again.End == nil) != (r.End == nil) {
			t.Errorf("%q is read again as %+v, %v", text, again, err)
		}
	})
}
