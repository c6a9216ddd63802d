package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"noused/internal/client"
	"noused/internal/fleet"
	"noused/internal/fleet/fleettest"
	"noused/internal/fleet/job"
	"noused/internal/protocol"
	"noused/internal/testenv"
)

// jobPatience is how long a job may take that is certain to end.
const jobPatience = 3 * time.Minute

// jobFleet is a NATS server, and the jobs on it as a client sees them.
type jobFleet struct {
	t      testing.TB
	server *fleettest.Server
	at     string // the URL, as the configuration of daemons has it
	js     jetstream.JetStream
	*job.Queue
}

// newJobFleet starts a server whose claims live for so long.
func newJobFleet(t testing.TB, timeout time.Duration) *jobFleet {
	t.Helper()
	f := &jobFleet{t: t, server: fleettest.Start(t, "")}
	f.at = fmt.Sprintf("%q", f.server.URL())
	f.connect(timeout)
	return f
}

// connect connects as a client, again after the server was down.
func (f *jobFleet) connect(timeout time.Duration) {
	f.t.Helper()
	f.js = fleettest.JetStream(f.t, fleettest.Dial(f.t, f.server.Direct()))
	var err error
	if f.Queue, err = job.Open(f.t.Context(), f.js, fleet.DefaultPrefix, timeout); err != nil {
		f.t.Fatal(err)
	}
}

// daemon starts one that is in the fleet. more are lines of its section [fleet], and
// other sections.
func (f *jobFleet) daemon(name, more string, args ...string) *daemon {
	f.t.Helper()
	d := unstarted(f.t, "noused", append([]string{"--model", "offline"}, args...)...)
	f.configure(d, name, more)
	d.Start()
	return d
}

func (f *jobFleet) configure(d *daemon, name, more string) {
	f.t.Helper()
	if err := os.MkdirAll(filepath.Join(d.Dir, "noused"), 0o700); err != nil {
		f.t.Fatal(err)
	}
	config := fmt.Sprintf("[fleet]\nurl = %s\nname = %q\n%s\n", f.at, name, more)
	if err := os.WriteFile(filepath.Join(d.Dir, "noused", "config.toml"), []byte(config), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// over waits until a job is out of the queue, and its claim says so.
func (f *jobFleet) over(id string) {
	f.t.Helper()
	testenv.Until(f.t, id+" is out of the queue", func() bool {
		_, waits, err := f.Get(f.t.Context(), id)
		if err != nil {
			f.t.Fatal(err)
		}
		return !waits
	})
}

// once checks that each job's end was told once, and that all daemons together have
// accepted its prompt once.
func (f *jobFleet) once(daemons map[string]*daemon, ids ...string) {
	f.t.Helper()
	accepted := map[string]int{}
	for _, d := range daemons {
		files, err := filepath.Glob(filepath.Join(d.Dir, "state", "sessions", "*.jsonl"))
		if err != nil {
			f.t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				f.t.Fatal(err)
			}
			for _, key := range jobKey.FindAllStringSubmatch(string(text), -1) {
				accepted[key[1]]++
			}
		}
	}
	stream, err := fleet.DefaultPrefix.OpenEvents(f.t.Context(), f.js)
	if err != nil {
		f.t.Fatal(err)
	}
	info, err := stream.Info(f.t.Context(), jetstream.WithSubjectFilter(fleet.DefaultPrefix.JobDone("*")))
	if err != nil {
		f.t.Fatal(err)
	}
	for _, id := range ids {
		if told := info.State.Subjects[fleet.DefaultPrefix.JobDone(id)]; told != 1 || accepted[id] != 1 {
			f.t.Errorf("%s: its end was told %d times and its prompt accepted %d times, want 1 and 1", id, told, accepted[id])
		}
	}
}

// jobKey is the idempotency key of an accepted prompt in a journal.
var jobKey = regexp.MustCompile(`"key":"([^"]+)"`)

func (f *jobFleet) submit(j job.Job) {
	f.t.Helper()
	if again, err := f.Submit(f.t.Context(), j); again || err != nil {
		f.t.Fatalf("submit %s: got again %t, %v", j.ID, again, err)
	}
}

// end waits for a job's end.
func (f *jobFleet) end(id string) job.End {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), jobPatience)
	defer cancel()
	e, err := f.Wait(ctx, id)
	if err != nil {
		f.t.Fatalf("the job %s: %v", id, err)
	}
	return e
}

// claimed waits until a claim is as it should be.
func (f *jobFleet) claimed(id string, is func(job.Claim) bool) job.Claim {
	f.t.Helper()
	var c job.Claim
	testenv.Until(f.t, "the claim of "+id+" is as it should be", func() bool {
		var ok bool
		var err error
		if c, _, ok, err = f.Claimed(f.t.Context(), id); err != nil {
			f.t.Fatal(err)
		}
		return ok && is(c)
	})
	return c
}

func runs(c job.Claim) bool { return c.RunID != "" }

func TestJobsGoWhereTheirLabelsFit(t *testing.T) {
	f := newJobFleet(t, job.DefaultTimeout)
	f.submit(job.Job{ID: "nobody", Labels: map[string]string{"gpu": "h100"}, Prompt: "hello"})
	f.submit(job.Job{ID: "gpu-1", Labels: map[string]string{"gpu": "a100"}, Prompt: "hello from the queue"})
	f.daemon("plain", "")
	f.daemon("box", `labels = { gpu = "a100", os = "linux" }`)
	f.submit(job.Job{ID: "gpu-2", Labels: map[string]string{"gpu": "a100", "os": "linux"}, Prompt: "hello"})
	for _, id := range []string{"gpu-1", "gpu-2"} {
		e := f.end(id)
		if e.Host != "box" || e.StopReason != protocol.StopCompleted || e.Output == "" || e.RunID == "" ||
			!strings.Contains(string(e.Usage), "tokens") {
			t.Errorf("%s: got %+v, want an end of the host box", id, e)
		}
	}
	if _, waits, err := f.Get(t.Context(), "nobody"); !waits || err != nil {
		t.Errorf("the job for labels that nobody has: got waiting %t, %v", waits, err)
	}
	if _, waits, _ := f.Get(t.Context(), "gpu-1"); waits {
		t.Error("a job that is over is still in the queue")
	}
	if again, err := f.Submit(t.Context(), job.Job{ID: "gpu-1", Prompt: "hello"}); !again || err != nil {
		t.Errorf("a job that is over, again: got again %t, %v", again, err)
	}
}

func runState(d *daemon, session string) protocol.RunState {
	d.t.Helper()
	c := d.dial()
	defer c.Close()
	state, err := client.Call(d.t.Context(), c, protocol.GetState,
		protocol.GetStateParams{Scope: protocol.Scope{SessionID: session}})
	if err != nil {
		d.t.Fatal(err)
	}
	return state.RunState
}

// becomesIdle waits until a session's run is aborted.
func becomesIdle(d *daemon, session string) {
	d.t.Helper()
	events := d.events(protocol.SubscribeParams{SessionID: session})
	if runState(d, session) != protocol.StateIdle {
		await(d.t, events, func(ev protocol.Event) bool { _, ok := ev.(protocol.AgentEnd); return ok })
	}
}

// never is a model that does not come to an end.
const never = "[model]\nprovider = \"offline\"\ndelay = \"1h\"\n"

// A daemon that is killed in the middle of a job goes on with it when it is back: it is
// the same run, and the end is told once.
func TestAJobSurvivesAKill(t *testing.T) {
	f := newJobFleet(t, job.DefaultTimeout)
	d := f.daemon("box", never)
	f.submit(job.Job{ID: "one", Prompt: "hello there"})
	c := f.claimed("one", runs)
	d.Kill()
	f.configure(d, "box", "")
	d.Start()
	e := f.end("one")
	if e.RunID != c.RunID || e.SessionID != c.SessionID || e.StopReason != protocol.StopCompleted ||
		e.Output != "hello there" {
		t.Errorf("got %+v, want the end of the run %s of session %s", e, c.RunID, c.SessionID)
	}
	f.over("one")
	f.once(map[string]*daemon{"box": d}, "one")
}

// A job whose daemon stays away is another's. The first, when it is back, aborts its
// run, and tells no end.
func TestAJobIsAnothersAfterTheTimeout(t *testing.T) {
	f := newJobFleet(t, job.DefaultTimeout)
	first := f.daemon("first", never)
	f.submit(job.Job{ID: "one", Prompt: "hello there"})
	c := f.claimed("one", runs)
	first.Kill()
	f.runOut("one")
	f.daemon("second", "")
	if e := f.end("one"); e.Host != "second" || e.StopReason != protocol.StopCompleted {
		t.Fatalf("got %+v, want the end of the host second", e)
	}
	first.Start()
	becomesIdle(first, c.SessionID)
	f.over("one")
	if e := f.end("one"); e.Host != "second" {
		t.Errorf("the end has become %+v", e)
	}
}

// A daemon that waits for another's claim to run out takes the job then, though nobody tells
// it of that.
func TestAJobIsTakenWhenItsClaimRunsOut(t *testing.T) {
	testenv.Long(t)
	f := newJobFleet(t, time.Second)
	f.submit(job.Job{ID: "one", Prompt: "hello there"})
	if _, ok, err := f.Take(t.Context(), "one", job.Claim{Host: "gone"}); !ok || err != nil {
		t.Fatalf("a claim: %t, %v", ok, err)
	}
	f.daemon("box", "")
	if e := f.end("one"); e.Host != "box" || e.StopReason != protocol.StopCompleted {
		t.Errorf("got %+v, want the end of the host box", e)
	}
}

// runOut is what the server does with a claim that nobody has written for long: there is
// nothing left of it.
func (f *jobFleet) runOut(id string) {
	f.t.Helper()
	bucket := fleet.DefaultPrefix.ClaimBucket()
	claims, err := f.js.Stream(f.t.Context(), fleet.BucketStream(bucket))
	if err == nil {
		err = claims.Purge(f.t.Context(), jetstream.WithPurgeSubject(fleet.EntrySubject(bucket, id)))
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

func TestJobsAreCancelled(t *testing.T) {
	f := newJobFleet(t, job.DefaultTimeout)
	d := f.daemon("box", never)
	f.submit(job.Job{ID: "runs", Prompt: "hello there"})
	f.claimed("runs", runs)
	f.submit(job.Job{ID: "waits", Prompt: "hello"}) // there is one slot
	for _, c := range []struct {
		id   string
		did  job.Cancelling
		host string
	}{
		{"waits", job.Removed, ""},
		{"runs", job.Asked, "box"},
		{"runs", job.Over, ""},
		{"waits", job.Over, ""},
		{"what", job.Unknown, ""},
	} {
		did, host, err := f.Cancel(t.Context(), c.id, jobPatience)
		if did != c.did || host != c.host || err != nil {
			t.Fatalf("cancel %s: got %s on %q, %v; want %s on %q", c.id, did, host, err, c.did, c.host)
		}
	}
	if e := f.end("runs"); e.StopReason != protocol.StopAborted || e.Host != "box" || e.RunID == "" {
		t.Errorf("the one that ran: got %+v, want its run aborted", e)
	}
	if e := f.end("waits"); e.StopReason != protocol.StopAborted || e.RunID != "" {
		t.Errorf("the one that waited: got %+v, want no run", e)
	}

	// Its host is away, and hears of it when it is back.
	f.submit(job.Job{ID: "away", Prompt: "hello there"})
	c := f.claimed("away", runs)
	d.Kill()
	if did, _, err := f.Cancel(t.Context(), "away", time.Millisecond); did != job.Away || err != nil {
		t.Fatalf("cancel of a job whose host is away: got %s, %v", did, err)
	}
	d.Start()
	f.submit(job.Job{ID: "next", Prompt: "hello"})
	f.claimed("next", runs) // the slot is free
	becomesIdle(d, c.SessionID)
	f.over("away")
}

func TestBadJobsEndAtOnce(t *testing.T) {
	f := newJobFleet(t, job.DefaultTimeout)
	stream, err := f.js.Stream(t.Context(), fleet.DefaultPrefix.JobStream())
	if err != nil {
		t.Fatal(err)
	}
	config := stream.CachedInfo().Config
	if _, err := f.js.Publish(t.Context(), fleet.DefaultPrefix.JobQueue("long"), make([]byte, fleet.MaxJob+1)); err ==
		nil {
		t.Error("the server takes a job that is too long")
	}
	config.MaxMsgSize = -1 // as somebody else may have made it
	if _, err := f.js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	for id, text := range map[string]string{
		"syntax":   `{"id":`,
		"field":    `{"id":"field","prompt":"hello","shell":"sh"}`,
		"other":    `{"id":"else","prompt":"hello"}`,
		"empty":    `{"id":"empty","prompt":""}`,
		"asks":     `{"id":"asks","prompt":"hello","approvals":"ask"}`,
		"folder":   `{"id":"folder","prompt":"hello","workdir":"/no/such/folder"}`,
		"relative": `{"id":"relative","prompt":"hello","workdir":"src"}`,
		"repo":     `{"id":"repo","prompt":"hello","repo":"/no/such/repository"}`,
		"model":    `{"id":"model","prompt":"hello","model":"nobody/has-it"}`,
		"label":    `{"id":"label","prompt":"hello","labels":{"a.b":"c"}}`,
		"both":     `{"id":"both","prompt":"hello","workdir":"/","repo":"/"}`,
		"long":     `{"id":"long","prompt":"` + strings.Repeat("x", fleet.MaxJob) + `"}`,
	} {
		if _, err := f.js.Publish(t.Context(), fleet.DefaultPrefix.JobQueue(id), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	f.submit(job.Job{ID: "good", Prompt: "hello"})
	f.daemon("box", "")
	for id, want := range map[string]string{
		"syntax": "no job", "field": `no field "shell"`, "other": `it is "else"`, "empty": "prompt", "asks": "approvals",
		"folder": "workdir", "relative": "workdir", "repo": "repo", "model": "nobody",
		"label": "labels", "both": "want one of the two", "long": "at most 262144",
	} {
		e := f.end(id)
		if e.StopReason != protocol.StopError || e.Error == nil || !strings.Contains(e.Error.Message, want) {
			t.Errorf("%s: got %+v %+v, want an error with %q", id, e, e.Error, want)
		}
		f.over(id)
	}
	if e := f.end("good"); e.StopReason != protocol.StopCompleted {
		t.Errorf("the job behind them: got %+v", e)
	}
}

// Whenever a job is cancelled, it ends once, and nothing of it is left running.
func TestJobsAreCancelledWhileTheyStart(t *testing.T) {
	f := newJobFleet(t, job.DefaultTimeout)
	d := f.daemon("box", "slots = 4\n"+never)
	var ids []string
	for i := range 24 {
		id := fmt.Sprint("job-", i)
		f.submit(job.Job{ID: id, Prompt: "hello there"})
		if did, _, err := f.Cancel(t.Context(), id, jobPatience); err != nil || did != job.Removed && did != job.Asked {
			t.Fatalf("cancel %s: got %s, %v", id, did, err)
		}
		ids = append(ids, id)
	}
	for _, id := range ids {
		if e := f.end(id); e.StopReason != protocol.StopAborted {
			t.Errorf("%s: got %+v, want it aborted", id, e)
		}
		f.over(id)
	}
	c := d.dial()
	defer c.Close()
	state, err := client.Call(t.Context(), c, protocol.GetState, protocol.GetStateParams{Daemon: true})
	if err != nil || len(state.Runs) != 0 {
		t.Errorf("got the runs %+v, %v; want none", state.Runs, err)
	}
}

// What the rules ask about is denied: nobody is there to answer.
func TestAJobsQuestionsAreDenied(t *testing.T) {
	f := newJobFleet(t, job.DefaultTimeout)
	f.daemon("box", "[policy]\nask = [\"bash\"]\n")
	f.submit(job.Job{ID: "asks", Prompt: `!bash {"command":"echo it was run"}`, Approvals: protocol.ApprovalsDeny})
	if e := f.end("asks"); e.StopReason != protocol.StopCompleted || !strings.Contains(e.Output, "denied") {
		t.Errorf("got %+v, want a call that was denied", e)
	}
}

// A server that is restarted loses no job, and holds up no run.
func TestJobsSurviveTheServersRestart(t *testing.T) {
	f := newJobFleet(t, job.DefaultTimeout)
	d := f.daemon("box", "[model]\nprovider = \"offline\"\ndelay = \"20ms\"\n")
	for i := range 4 {
		f.submit(job.Job{ID: fmt.Sprint("job-", i), Prompt: "one two three four five six seven eight"})
	}
	f.claimed("job-0", runs)
	f.server.Down()
	f.server.Up()
	f.connect(job.DefaultTimeout)
	var ids []string
	for i := range 4 {
		id := fmt.Sprint("job-", i)
		if e := f.end(id); e.StopReason != protocol.StopCompleted {
			t.Errorf("%s: got %+v", id, e)
		}
		f.over(id)
		ids = append(ids, id)
	}
	f.once(map[string]*daemon{"box": d}, ids...)
}

// A job in a repository gets a worktree of it.
func TestAJobHasAWorktreeOfItsRepository(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	repo := t.TempDir()
	for _, args := range [][]string{{"init", "-q"}, {
		"-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-q",
		"--allow-empty", "-m", "begin",
	}} {
		if out, err := exec.Command("git", append([]string{"-C", repo}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	f := newJobFleet(t, job.DefaultTimeout)
	d := f.daemon("box", "")
	f.submit(job.Job{ID: "one", Repo: repo, Prompt: "hello"})
	e := f.end("one")
	if e.StopReason != protocol.StopCompleted {
		t.Fatalf("got %+v %+v", e, e.Error)
	}
	c := d.dial()
	defer c.Close()
	list, err := client.Call(t.Context(), c, protocol.ListSessions, protocol.ListSessionsParams{})
	if err != nil || len(list.Sessions) != 1 || !strings.HasSuffix(list.Sessions[0].Workdir,
		filepath.Join(filepath.Base(repo), "job-one")) {
		t.Errorf("got the sessions %+v, %v; want one in a worktree of %s", list.Sessions, err, repo)
	}
}
