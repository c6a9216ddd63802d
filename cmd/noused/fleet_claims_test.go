package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"noused/internal/client"
	"noused/internal/fleet/job"
	"noused/internal/protocol"
	"noused/internal/testenv"
)

// instance is what the claims of a daemon have, which anybody can read there.
func (d *daemon) instance() string {
	d.t.Helper()
	text, err := os.ReadFile(filepath.Join(d.Dir, "state", instanceFile))
	if err != nil {
		d.t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// forge writes a claim that says it is the daemon's.
func (f *jobFleet) forge(d *daemon, id string) {
	f.t.Helper()
	if _, ok, err := f.Take(f.t.Context(), id, job.Claim{Host: "box", Instance: d.instance(), At: time.Now()}); !ok ||
		err != nil {
		f.t.Fatalf("a claim of %s: %t, %v", id, ok, err)
	}
}

// givenUp waits until a job has no claim.
func (f *jobFleet) givenUp(id string) {
	f.t.Helper()
	testenv.Until(f.t, id+" has no claim", func() bool {
		_, _, ok, err := f.Claimed(f.t.Context(), id)
		if err != nil {
			f.t.Fatal(err)
		}
		return !ok
	})
}

// A claim that somebody else has written has a daemon do no more jobs at a time than it has
// slots, and none that its labels do not fit: it gives the claim up.
func TestForgedClaimsAreGivenUp(t *testing.T) {
	f := newJobFleet(t, job.DefaultTimeout)
	d := f.daemon("box", never)
	f.submit(job.Job{ID: "runs", Prompt: "hello there"})
	f.claimed("runs", runs)
	f.submit(job.Job{ID: "misfit", Labels: map[string]string{"gpu": "h100"}, Prompt: "hello there"})
	f.submit(job.Job{ID: "later", Prompt: "hello there"})
	for _, id := range []string{"later", "misfit", "later", "no-such-job"} {
		f.forge(d, id)
		if id != "no-such-job" {
			f.givenUp(id)
		}
	}
	f.claimed("no-such-job", func(c job.Claim) bool { return c.Ended })
	c := d.dial()
	runsNow := func() int {
		state, err := client.Call(t.Context(), c, protocol.GetState, protocol.GetStateParams{Daemon: true})
		if err != nil {
			t.Fatal(err)
		}
		return len(state.Runs)
	}
	if n := runsNow(); n != 1 {
		t.Errorf("with one slot %d jobs run", n)
	}
	if _, _, err := f.Cancel(t.Context(), "runs", jobPatience); err != nil {
		t.Fatal(err)
	}
	f.claimed("later", runs) // the slot is free
	f.forge(d, "misfit")
	f.givenUp("misfit")
	if n := runsNow(); n != 1 {
		t.Errorf("with one slot %d jobs run", n)
	}
	for _, id := range []string{"later", "misfit"} {
		if _, waits, err := f.Get(t.Context(), id); !waits || err != nil {
			t.Errorf("%s is in the queue: %t, %v", id, waits, err)
		}
	}
}

// A daemon may be killed at any moment between its claim and its record. When it is back
// the job is done once, in one session, and anyone who calls a session of theirs as the job's
// is called keeps it, and what they allowed there.
func TestADaemonIsKilledBetweenClaimAndRecord(t *testing.T) {
	f := newJobFleet(t, job.DefaultTimeout)
	const more = "slots = 4\n[policy]\nask = [\"bash\"]\n"
	d := f.daemon("box", "slots = 0\n[policy]\nask = [\"bash\"]\n")
	const asks = `!bash {"command":"echo it was run"}`
	c := d.dial()
	session := func(title string) protocol.Scope {
		s, err := client.Call(t.Context(), c, protocol.NewSession, protocol.NewSessionParams{Title: title})
		if err != nil {
			t.Fatal(err)
		}
		scope := protocol.Scope{SessionID: s.SessionID}
		if _, err := client.Call(t.Context(), c, protocol.SetApprovalMode, protocol.SetApprovalModeParams{
			Scope: scope,
			Mode:  protocol.ApprovalsAuto,
		}); err != nil {
			t.Fatal(err)
		}
		return scope
	}
	prompt := func(p protocol.PromptParams) {
		if _, err := client.Call(t.Context(), c, protocol.Prompt, p); err != nil {
			t.Fatal(err)
		}
	}
	made := map[string]protocol.Scope{"made": session("job made"), "accepted": session("job accepted")}
	prompt(protocol.PromptParams{
		Scope: made["accepted"], Text: asks, IdempotencyKey: "accepted",
		Approvals: protocol.ApprovalsDeny,
	})
	foreign := session("job foreign")
	prompt(protocol.PromptParams{Scope: foreign, Text: "mine"})
	d.Kill()
	ids := []string{"claimed", "made", "accepted", "foreign"}
	for _, id := range ids {
		f.submit(job.Job{ID: id, Prompt: asks})
		f.forge(d, id)
	}
	f.configure(d, "box", more)
	d.Start()
	for _, id := range ids {
		e := f.end(id)
		if e.StopReason != protocol.StopCompleted || !strings.Contains(e.Output, "denied") {
			t.Errorf("%s: got %+v %+v, want a call that was denied", id, e, e.Error)
		}
		if want := made[id].SessionID; want != "" && e.SessionID != want || e.SessionID == foreign.SessionID {
			t.Errorf("%s: done in the session %s, want %s, and not %s", id, e.SessionID, want, foreign.SessionID)
		}
		f.over(id)
	}
	f.once(map[string]*daemon{"box": d}, ids...)
}

// A daemon that has no slots gives up what a claim says it has.
func TestADaemonWithoutSlotsTakesNoClaims(t *testing.T) {
	f := newJobFleet(t, job.DefaultTimeout)
	d := f.daemon("box", "slots = 0")
	f.submit(job.Job{ID: "one", Prompt: "hello"})
	f.forge(d, "one")
	f.givenUp("one")
	f.daemon("second", "")
	if e := f.end("one"); e.Host != "second" {
		t.Errorf("got %+v", e)
	}
}

// What cannot be read of a job, and a job_timeout that is not what counts, are said in the
// log. The daemon runs on, and does the job.
func TestWhatADaemonSaysOfItsJobs(t *testing.T) {
	f := newJobFleet(t, 7*time.Minute)
	d := f.daemon("box", never)
	f.submit(job.Job{ID: "one", Prompt: "hello there"})
	c := f.claimed("one", runs)
	d.Kill()
	record := filepath.Join(d.Dir, "state", "fleet-jobs", "one.json")
	if err := os.WriteFile(record, []byte(`{"job":`), 0o600); err != nil {
		t.Fatal(err)
	}
	f.configure(d, "box", "")
	d.Start()
	if e := f.end("one"); e.RunID != c.RunID || e.StopReason != protocol.StopCompleted {
		t.Errorf("got %+v, want the end of %s", e, c.RunID)
	}
	f.over("one")
	f.once(map[string]*daemon{"box": d}, "one")
	d.Stop()
	log := d.Log.String()
	for _, want := range []string{
		record, "what the daemon knew of a job cannot be read", "job_timeout does not count",
		"noused_CLAIMS", fmt.Sprint((7 * time.Minute).Seconds()), fmt.Sprint((10 * time.Minute).Seconds()),
	} {
		if !strings.Contains(log, want) {
			t.Errorf("the log does not say %q", want)
		}
	}
}
