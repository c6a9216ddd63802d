package builtin

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	jsonx "github.com/go-json-experiment/json"

	"noused/internal/model"
	"noused/internal/tool"
	"noused/internal/tool/registry"
	"noused/internal/tool/tooltest"
)

// asked calls a tool for a session.
func asked(t *testing.T, ctx context.Context, r *registry.Registry, session, name string,
	args map[string]any,
) model.ToolResult {
	t.Helper()
	text, err := jsonx.Marshal(args)
	must(t, err)
	inv := tooltest.Invocation(name, string(text))
	inv.SessionID = session
	return r.Call(ctx, inv, new(tooltest.Log).Add)
}

func background(t *testing.T, r *registry.Registry, session, command string) model.ToolResult {
	t.Helper()
	return asked(t, t.Context(), r, session, "bash", map[string]any{"command": command, "background": true})
}

func jobStatus(t *testing.T, r *registry.Registry, session, id, action string) string {
	t.Helper()
	return asked(t, t.Context(), r, session, "job", map[string]any{"id": id, "action": action, "timeout": 60}).Text
}

// fifo makes a FIFO where jobs can write. The second function waits until one
// holds it, and returns one that waits until none does.
func fifo(t *testing.T, dir, name string) (path string, held func() (released func())) {
	t.Helper()
	path = filepath.Join(dir, name)
	must(t, syscall.Mkfifo(path, 0o600))
	return path, func() func() {
		f, err := os.Open(path)
		must(t, err)
		return func() {
			defer f.Close()
			if _, err := io.Copy(io.Discard, f); err != nil {
				t.Error(err)
			}
		}
	}
}

// A server goes on after the call that started it, and after its abort; it is
// asked and stopped, with all that it has started.
func TestAJobOutlivesItsCall(t *testing.T) {
	dir := t.TempDir()
	r := newRegistry(t, dir)
	pipe, held := fifo(t, dir, "pipe")
	ctx, abort := context.WithCancel(t.Context())
	text := asked(t, ctx, r, "ses-1", "bash", map[string]any{
		"background": true, "command": "echo up; pwd; exec 9>" + pipe +
			"; (setsid sleep 1000 &) ; echo go >went; trap '' HUP; while :; do sleep 1000; done",
	}).Text
	expect(t, text, "job-1 was started and goes on. …")
	released := held()
	abort()
	list := r.Jobs("ses-1")
	if len(list) != 1 || list[0].Status != model.JobRunning || list[0].ExitCode != nil ||
		!strings.HasPrefix(list[0].Command, "echo up; pwd") || !strings.Contains(text, list[0].OutputPath) {
		t.Fatalf("got %+v", list)
	}
	expect(t, jobStatus(t, r, "ses-1", "job-1", "output"), "job-1 is running; …")
	const past = ". Jobs end with the daemon: what one wrote that ended so is in the file that was named as it began"
	for _, session := range []string{"ses-2", ""} {
		expect(t, jobStatus(t, r, session, "job-1", "stop"),
			`bad_request: id: there is no job "job-1" in this session; there is none`+past)
	}
	expect(t, jobStatus(t, r, "ses-1", "job-7", "stop"),
		`bad_request: id: there is no job "job-7" in this session; there is job-1`+past)
	expect(t, jobStatus(t, r, "ses-1", "job-1", "stop"), "job-1 was stopped; what it has printed, also in "+
		list[0].OutputPath+":\nup\n"+dir+"\n")
	released()
	if list := r.Jobs("ses-1"); list[0].Status != model.JobStopped || list[0].ExitCode != nil {
		t.Errorf("got %+v", list)
	}
}

// A job that ends by itself says how, and its output is whole and in order.
func TestAJobEnds(t *testing.T) {
	r := newRegistry(t, t.TempDir())
	for i, c := range []struct{ command, want string }{
		{
			"echo 1; echo 2 >&2; echo 3; exit 4",
			"job-1 has ended with exit status 4; what it has printed, also in PATH:\n1\n2\n3\n",
		},
		{"true", "job-2 has ended with exit status 0; it has printed nothing"},
		{"kill -KILL $$", "job-3 has ended with exit status 137; it has printed nothing"},
		{
			"test -p /dev/stdin || echo 'no pipe'",
			"job-4 has ended with exit status 0; what it has printed, also in PATH:\nno pipe\n",
		},
		{
			"cat; test -t 0 || echo \"no 'terminal'\"",
			"job-5 has ended with exit status 0; what it has printed, also in PATH:\nno 'terminal'\n",
		},
	} {
		id := fmt.Sprint("job-", i+1)
		if res := background(t, r, "ses-1", c.command); !res.OK {
			t.Fatalf("%s: %s", c.command, res.Text)
		}
		got := jobStatus(t, r, "ses-1", id, "wait")
		expect(t, got, strings.ReplaceAll(c.want, "PATH", r.Jobs("ses-1")[i].OutputPath))
	}
	if res := background(t, r, "ses-1", "a\x00b"); res.OK || res.Error.Code != tool.BadRequest {
		t.Errorf("got %+v", res)
	}
	for _, args := range []string{
		`{"id":"job-1","action":"look"}`, `{"id":"job-1"}`,
		`{"id":"job-1","action":"wait","timeout":601}`,
	} {
		if res := invoke(t, r, "job", args, new(tooltest.Log)); res.OK || res.Error.Code != tool.BadRequest {
			t.Errorf("%s: got %+v", args, res)
		}
	}
	expect(t, do(t, t.TempDir(), "bash", `{"command":"true","background":true}`).text(),
		"failed: jobs and lists are for a daemon to keep; …")
}

// Of a job that prints without end the beginning and the last are kept, in a file
// that does not grow, and no memory but that.
func TestAJobThatFloods(t *testing.T) {
	r := newRegistry(t, t.TempDir())
	background(t, r, "ses-1", "echo first; seq 1000000 2000000; echo last")
	got := jobStatus(t, r, "ses-1", "job-1", "wait")
	path := r.Jobs("ses-1")[0].OutputPath
	text := content(t, path)
	if len(text) > 4<<20 || !strings.HasPrefix(text, "first\n1000000\n") ||
		!strings.HasSuffix(text, "\n2000000\nlast\n") || strings.Count(text, "bytes left out") != 1 {
		t.Errorf("kept %d bytes, %q … %q", len(text), text[:20], text[len(text)-20:])
	}
	if !strings.HasPrefix(got,
		"job-1 has ended with exit status 0; the last of the 8000019 bytes that it has printed, more is in "+path+":\n") ||
		len(got) > maxText+1000 || !strings.HasSuffix(got, "\n2000000\nlast\n") {
		t.Errorf("got %d bytes: %.200s", len(got), got)
	}
	inv := tooltest.Invocation("job", `{"id":"job-1","action":"output"}`)
	inv.SessionID, inv.MaxResult = "ses-1", 4096
	if got := r.Call(t.Context(), inv, new(tooltest.Log).Add).Text; len(got) > 4096 ||
		!strings.HasSuffix(got, "\n2000000\nlast\n") {
		t.Errorf("for a small model: got %d bytes", len(got))
	}
}

// The jobs of a session end with it, and their files go; another session's go on.
// A session has no more than its share.
func TestJobsEndWithTheirSession(t *testing.T) {
	work := t.TempDir()
	r := newRegistry(t, work)
	pipe, held := fifo(t, work, "pipe")
	other, otherHeld := fifo(t, work, "other")
	background(t, r, "ses-1", "true")
	jobStatus(t, r, "ses-1", "job-1", "wait")
	for range 15 {
		background(t, r, "ses-1", "exec sleep 1000")
	}
	background(t, r, "ses-1", "trap '' TERM; exec 9>"+pipe+"; sleep 1000") // in place of the one that has ended
	background(t, r, "ses-2", "exec 9>"+other+"; exec sleep 1000")
	released, otherReleased := held(), otherHeld()
	if res := background(t, r, "ses-1", "true"); res.OK || res.Error.Code != tool.Forbidden ||
		!strings.Contains(res.Text, "this session has 16 jobs that run") {
		t.Errorf("got %+v", res)
	}
	list := r.Jobs("ses-1")
	if len(list) != 16 || list[0].ID != "job-2" || list[15].ID != "job-17" {
		t.Errorf("got %+v", list)
	}
	dir := filepath.Dir(list[0].OutputPath)
	r.EndSession(t.Context(), "ses-1")
	released()
	if list := r.Jobs("ses-1"); len(list) > 0 {
		t.Errorf("got %+v", list)
	}
	left, err := os.ReadDir(filepath.Dir(dir))
	if other := r.Jobs("ses-2"); err != nil || len(left) != 1 || len(other) != 1 || other[0].Status != model.JobRunning ||
		filepath.Base(filepath.Dir(other[0].OutputPath)) != left[0].Name() {
		t.Errorf("got %+v, %v, %+v", left, err, other)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r.Close(ctx)
	otherReleased()
}
