package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"noused/internal/model"
	"noused/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.M{M: m}) }

func open(t *testing.T) (*Log, string, *observer.ObservedLogs) {
	t.Helper()
	core, seen := observer.New(zap.InfoLevel)
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l, err := Open(path, 0, zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l, path, seen
}

func events(t *testing.T, path string) []map[string]any {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []map[string]any
	for line := range bytes.Lines(text) {
		var ev map[string]any
		if err := json.Unmarshal(line, &ev); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		all = append(all, ev)
	}
	return all
}

// amplifier-protocols §3: required id, ts, event, component; ts is a number.
func TestEventsHaveTheSchemasShape(t *testing.T) {
	l, path, _ := open(t)
	before := time.Now().Unix()
	l.Record(model.AuditEvent{Event: "session:start", Component: "session", SessionID: "ses-1"})
	l.Record(model.AuditEvent{
		Event: "module:invoke", Component: "tool", Module: "notes", Status: "error", Duration: 1500 * time.Millisecond,
		SessionID: "ses-1", RequestID: "call-1", Data: []byte(`{"op":"add"}`), Error: &model.ToolError{
			Code:    "timeout",
			Message: "too slow \xff",
		},
	})
	l.Close()
	all := events(t, path)
	if len(all) != 2 {
		t.Fatalf("got %d events", len(all))
	}
	for _, ev := range all {
		ts, _ := ev["ts"].(float64)
		if id, _ := ev["id"].(string); len(id) != 36 || ts < float64(before) || ts > float64(before)+60 {
			t.Errorf("id %v, ts %v", ev["id"], ev["ts"])
		}
	}
	if got := all[0]; len(got) != 5 || got["event"] != "session:start" || got["component"] != "session" ||
		got["session_id"] != "ses-1" {
		t.Errorf("got %v", got)
	}
	got := all[1]
	if got["duration_ms"] != 1500.0 || got["module"] != "notes" || got["request_id"] != "call-1" ||
		fmt.Sprint(got["data"]) != "map[op:add]" || !strings.Contains(fmt.Sprint(got["error"]), "timeout") {
		t.Errorf("got %v", got)
	}
}

func TestHooksGetEveryEventInOrder(t *testing.T) {
	l, _, seen := open(t)
	var got []string
	l.AddHook("h", func(_ context.Context, line []byte) error {
		var ev Event
		if err := json.Unmarshal(line, &ev); err != nil {
			return err
		}
		got = append(got, ev.Event)
		switch ev.Event {
		case "1":
			return errors.New("not today")
		case "2":
			panic("never")
		}
		return nil
	})
	for i := range 5 {
		l.Record(model.AuditEvent{Event: fmt.Sprint(i), Component: "test"})
	}
	l.RemoveHook("h")
	l.Record(model.AuditEvent{Event: "late", Component: "test"})
	if fmt.Sprint(got) != "[0 1 2 3 4]" {
		t.Errorf("got %v", got)
	}
	if n := seen.FilterMessage("hook h failed").Len(); n != 1 {
		t.Errorf("%d failures reached the log, want the first", n)
	}
}

// A hook that hangs delays nobody: what it has no room for is counted.
func TestAHookThatHangsDelaysNobody(t *testing.T) {
	l, path, seen := open(t)
	entered := make(chan struct{}, 1)
	l.AddHook("stuck", func(ctx context.Context, _ []byte) error {
		select {
		case entered <- struct{}{}:
		default:
		}
		<-ctx.Done()
		return ctx.Err()
	})
	l.Record(model.AuditEvent{Event: "first", Component: "test"})
	<-entered
	l.mu.Lock()
	for range queueSize + 1 {
		l.hooks["stuck"].put([]byte(`{}`))
	}
	l.mu.Unlock()
	l.Record(model.AuditEvent{Event: "last", Component: "test"})
	l.Close()
	if n := seen.FilterMessage("hook stuck is too slow: events dropped").Len(); n != 1 {
		t.Errorf("%d warnings, want one", n)
	}
	if all := events(t, path); len(all) != 2 || all[1]["event"] != "last" {
		t.Errorf("the journal has %v", all)
	}
	l.Record(model.AuditEvent{Event: "after the end", Component: "test"})
}

func TestRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	r, err := openRotated(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	r.max = 100
	for i := range 60 {
		if err := r.write(jsontext.Value(fmt.Sprintf(`{"n":%06d}`, i))); err != nil {
			t.Fatal(err)
		}
	}
	r.close()
	files, err := filepath.Glob(path + "*")
	if err != nil || len(files) != 1+maxOlder {
		t.Errorf("got %v, %v; want the file and %d older ones", files, err, maxOlder)
	}
	want := 59
	for _, file := range []string{path, path + ".1", path + ".2", path + ".3", path + ".4"} {
		text, err := os.ReadFile(file)
		if err != nil || len(text) > 100 {
			t.Fatalf("%s: %d bytes, %v", file, len(text), err)
		}
		lines := strings.Fields(string(text))
		for i := range lines {
			if got := lines[len(lines)-1-i]; got != fmt.Sprintf(`{"n":%06d}`, want) {
				t.Errorf("%s: got %s, want number %d", file, got, want)
			}
			want--
		}
	}
}

// stuckLog is a log whose output hangs, as a pipe that nobody reads does.
type stuckLog struct{ entered, leave chan struct{} }

func (w stuckLog) Write(p []byte) (int, error) {
	select {
	case <-w.entered:
	default:
		close(w.entered)
	}
	<-w.leave
	return len(p), nil
}

func (stuckLog) Sync() error { return nil }

// A log that hangs delays nobody who records.
func TestALogThatHangsDelaysNobody(t *testing.T) {
	out := stuckLog{make(chan struct{}), make(chan struct{})}
	log := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), out, zap.InfoLevel))
	l, err := Open(filepath.Join(t.TempDir(), "audit.jsonl"), 0, log)
	if err != nil {
		t.Fatal(err)
	}
	l.AddHook("broken", func(context.Context, []byte) error { return errors.New("no") })
	l.Record(model.AuditEvent{Event: "first", Component: "test"})
	<-out.entered // it complains, for ever
	for range 2 * queueSize {
		l.Record(model.AuditEvent{Event: "next", Component: "test"})
	}
	close(out.leave)
	l.RemoveHook("broken")
	l.Close()
}

// All files together have no more than somebody asked for, whatever they had before;
// the oldest go first, and the current one stays.
func TestTheJournalIsPruned(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	for i, name := range []string{path, path + ".1", path + ".2", path + ".4"} {
		if err := os.WriteFile(name, bytes.Repeat([]byte{byte('0' + i)}, 100), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l, err := Open(path, 250, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	most := []string{"audit.jsonl.4", "audit.jsonl.3"} // the full one and the others behind it were moved on
	for _, c := range []struct {
		dry  bool
		want []string
	}{{true, most}, {false, most}, {true, nil}} {
		var gone []string
		if err := l.Prune(250, c.dry, func(f fs.FileInfo) { gone = append(gone, f.Name()) }); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(gone, c.want) {
			t.Errorf("dry %t: removed %v, want %v", c.dry, gone, c.want)
		}
	}
	if left, _ := filepath.Glob(path + "*"); !slices.Equal(left, []string{path, path + ".1", path + ".2"}) {
		t.Errorf("left: %v", left)
	}
}
