package notify

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"noused/internal/alert"
	"noused/internal/proc"
	"noused/internal/protocol"
)

func known(id string) (protocol.SessionInfo, bool) {
	return protocol.SessionInfo{SessionID: id, Title: "Fix\nit", Workdir: "/src"}, true
}

func ref(run string) protocol.Ref { return protocol.Ref{SessionID: "ses-1", RunID: run} }

// The notification of a run, by how it ended and how long it took.
func TestWhatIsTold(t *testing.T) {
	n := &Notifier{o: Options{On: alert.Kinds, After: 10 * time.Second, Session: known}}
	at, watch := time.Unix(1e9, 0), alert.Watch{}
	end := func(run string, stop protocol.StopReason, why *protocol.RunError, took time.Duration) *Word {
		if took > 0 {
			n.word(timedEvent{protocol.AgentStart{Ref: ref(run)}, at}, &watch)
		}
		return n.word(timedEvent{protocol.AgentEnd{Ref: ref(run), StopReason: stop, Error: why}, at.Add(took)}, &watch)
	}
	if w := end("run-1", protocol.StopCompleted, nil, 9*time.Second); w != nil {
		t.Errorf("a short run: got %+v", w)
	}
	if w := end("run-2", protocol.StopAborted, nil, time.Hour); w != nil {
		t.Errorf("an aborted run: got %+v", w)
	}
	want := &Word{
		Event: alert.RunEnd, SessionID: "ses-1", Title: "Fix\nit", Workdir: "/src", RunID: "run-3",
		Message: "Fix it: done (3m12s)", Count: 1,
	}
	if diff := cmp.Diff(want, end("run-3", protocol.StopCompleted, nil, 192*time.Second)); diff != "" {
		t.Errorf("a long run (-want +got):\n%s", diff)
	}
	if w := end("run-4", protocol.StopError, &protocol.RunError{Message: "no\x1b[31m key"}, 11*time.Second); w == nil ||
		w.Event != alert.RunError || w.Message != "Fix it: failed: no [31m key (11s)" {
		t.Errorf("a failed run: got %+v", w)
	}
	if w := end("run-5", protocol.StopCompleted, nil, 0); w == nil || w.Message != "Fix it: done" {
		t.Errorf("a run that began under a former daemon: got %+v", w)
	}
	question := &protocol.Approval{ApprovalID: "apr-1", ToolName: "bash", Arguments: []byte(`{"command":"make"}`)}
	asked := protocol.Status{
		Ref: ref("run-6"), Code: protocol.StatusApprovalRequested, Message: "may bash run make?",
		Approval: question,
	}
	if w := n.word(timedEvent{asked, at}, &watch); w == nil || w.Event != alert.Approval ||
		w.Message != "Fix it: may bash run make?" || w.Approval != question {
		t.Errorf("a question: got %+v", w)
	}
	question.SessionPath = []string{"Fix it", "run tests"}
	if w := n.word(timedEvent{asked, at}, &watch); w == nil || w.Message != "Fix it › run tests: may bash run make?" {
		t.Errorf("a question of a child: got %+v", w)
	}
	n.o.On = []string{alert.RunError}
	if w := end("run-7", protocol.StopCompleted, nil, time.Hour); w != nil {
		t.Errorf("what nobody wants to hear of: got %+v", w)
	}
}

// told is a notifier with a script that writes its input to a file, and the log.
func told(t *testing.T, script string) (n *Notifier, out string, log *observer.ObservedLogs) {
	t.Helper()
	return toldAfter(t, script, nil)
}

// toldAfter is told, with a limit that ends no command before begun says so.
func toldAfter(t *testing.T, script string, begun <-chan struct{}) (n *Notifier, out string,
	log *observer.ObservedLogs,
) {
	t.Helper()
	dir := t.TempDir()
	out = filepath.Join(dir, "out")
	path := filepath.Join(dir, "notifier")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(out, 0o600); err != nil {
		t.Fatal(err)
	}
	core, log := observer.New(zap.WarnLevel)
	s := proc.NewSupervisor("", zap.NewNop())
	t.Cleanup(s.Close)
	start := func(ctx context.Context, c proc.Command) (*proc.Process, error) {
		if begun == nil {
			return s.Start(ctx, c)
		}
		patient, end := context.WithCancelCause(context.WithoutCancel(ctx))
		go func() {
			<-begun
			<-ctx.Done()
			end(context.Cause(ctx))
		}()
		return s.Start(patient, c)
	}
	n = New(Options{
		Command: []string{path, out}, On: alert.Kinds, Session: known, Start: start, Log: zap.New(core),
		Environ: os.Environ(),
	})
	t.Cleanup(n.Close)
	return n, out, log
}

// A burst is one call with its count, and what happens while the command runs is
// the next one.
func TestABurstIsOneCall(t *testing.T) {
	n, out, _ := told(t, `cat > "$1"`)
	read := func() (w Word) {
		t.Helper()
		f, err := os.Open(out) // waits for the command
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		line, err := io.ReadAll(f) // until the command has closed it
		if err == nil {
			err = json.Unmarshal(line, &w)
		}
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	for _, run := range []string{"run-1", "run-2", "run-3"} {
		n.Tell(protocol.AgentEnd{Ref: ref(run), StopReason: protocol.StopCompleted})
	}
	if w := read(); w.Count != 3 || w.RunID != "run-3" {
		t.Errorf("got %+v, want one call for three", w)
	}
	n.Tell(protocol.AgentEnd{Ref: ref("run-4"), StopReason: protocol.StopError})
	if w := read(); w.Count != 1 || w.RunID != "run-4" || w.Event != alert.RunError {
		t.Errorf("got %+v", w)
	}
}

// A command that hangs, and what it forks, is ended; that is a line in the log, and
// the next one is run. Close waits for nothing else.
func TestANotifierThatHangsAndForks(t *testing.T) {
	begun := make(chan struct{})
	n, out, log := toldAfter(t, `setsid sleep 1000 > "$1" & sleep 1000 > "$1" & exec sleep 1000 > "$1"`, begun)
	n.limit = 50 * time.Millisecond
	for range 2 {
		n.Tell(protocol.AgentEnd{Ref: ref("run-1"), StopReason: protocol.StopCompleted})
		f, err := os.Open(out) // waits for one of them
		if err != nil {
			t.Fatal(err)
		}
		begun <- struct{}{}
		if _, err := io.Copy(io.Discard, f); err != nil { // until nobody has it any more
			t.Fatal(err)
		}
		_ = f.Close()
	}
	n.Close()
	if log.Len() == 0 || !strings.Contains(log.All()[0].ContextMap()["error"].(string), "longer than") {
		t.Errorf("the log has %v", log.All())
	}
}

// Telling never waits, however much there is and whatever the command does.
func TestTellNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(Options{
			Command: []string{"/bin/sh"}, On: alert.Kinds, Session: known, Log: zap.NewNop(),
			Start: func(ctx context.Context, _ proc.Command) (*proc.Process, error) {
				<-ctx.Done() // as one that hangs
				return nil, context.Cause(ctx)
			},
		})
		for range 10 * maxQueue {
			n.Tell(protocol.AgentStart{Ref: ref("run-1")})
			n.Tell(protocol.AgentEnd{Ref: ref("run-1"), StopReason: protocol.StopCompleted})
			n.Tell(protocol.TurnEnd{Ref: ref("run-1")})
		}
		time.Sleep(time.Minute)
		n.Close()
		n.Close()
		(*Notifier)(nil).Tell(protocol.AgentStart{})
		(*Notifier)(nil).Close()
	})
}

// The examples do what they say.
func TestExamples(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3")
	}
	dir := t.TempDir()
	run := func(name string, args ...string) {
		t.Helper()
		path, err := filepath.Abs("../../examples/notify/" + name)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(path, args...)
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "NTFY_TOKEN=t0ken", "no_proxy=*")
		cmd.Stdin = strings.NewReader(
			`{"event":"run_error","session_id":"ses-1","title":"t","workdir":"/src","run_id":"run-1","message":"t: failed","count":2}`)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "notify-send"), []byte("#!/bin/sh\nprintf '%s|' \"$@\" > "+dir+"/shown\n"),
		0o700); err != nil {
		t.Fatal(err)
	}
	run("desktop.py")
	if text, err := os.ReadFile(filepath.Join(dir, "shown")); err != nil ||
		string(text) != "--app-name=noused|--urgency=critical|--|t: failed (and 1 more)|/src|" {
		t.Errorf("shown is %q, %v", text, err)
	}
	terminal := filepath.Join(dir, "tty")
	if err := os.WriteFile(terminal, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	run("bell.py", terminal)
	if text, err := os.ReadFile(terminal); err != nil || string(text) != "\a" {
		t.Errorf("the terminal got %q, %v", text, err)
	}
	var got string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		got = r.Method + " " + r.URL.Path + " " + r.Header.Get("Title") + " " + r.Header.Get("Authorization") + " " +
			string(text)
	}))
	defer server.Close()
	run("ntfy.py", server.URL+"/topic")
	if got != "POST /topic noused Bearer t0ken t: failed (and 1 more)" {
		t.Errorf("the server got %q", got)
	}
}
