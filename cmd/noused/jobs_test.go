package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"noused/internal/client"
	"noused/internal/protocol"
	"noused/internal/testenv"
)

// A job is listed while it runs, outlives the abort of the run that started it,
// and ends when the daemon is killed or its session is deleted.
func TestJobsOfADaemon(t *testing.T) {
	d := newDaemon(t)
	ctx := context.Background()
	// held waits until a process holds a FIFO in the workdir, gone until none does.
	held := func(name string) *os.File {
		f, err := os.Open(filepath.Join(d.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	gone := func(f *os.File) {
		_, err := io.Copy(io.Discard, f)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"pipe", "begun"} {
		if err := unix.Mkfifo(filepath.Join(d.Dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	state := func(session string) protocol.State {
		t.Helper()
		st, err := client.Call(ctx, d.dial(), protocol.GetState,
			protocol.GetStateParams{Scope: protocol.Scope{SessionID: session}})
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	const serve = `!bash {"background":true,"command":"echo up; exec 9>pipe; exec sleep 1000"}`
	ended := make(chan error, 1)
	go func() {
		_, err := client.Call(ctx, d.dial(), protocol.Prompt,
			protocol.PromptParams{Text: serve + "\n" + `!bash {"command":"exec 9>begun; exec sleep 1000"}`})
		ended <- err
	}()
	begun, first := held("begun"), held("pipe")
	session := state("").SessionID
	if _, err := client.Call(ctx, d.dial(), protocol.Abort,
		protocol.AbortParams{Scope: protocol.Scope{SessionID: session}}); err != nil {
		t.Fatal(err)
	}
	gone(begun)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	jobs := state(session).Jobs
	if len(jobs) != 1 || jobs[0].ID != "job-1" || jobs[0].Status != "running" ||
		!strings.HasPrefix(jobs[0].Command, "echo up") {
		t.Fatalf("got %+v", jobs)
	}

	d.Kill()
	gone(first)
	d.Start()
	if now := state(session).Jobs; len(now) != 1 || now[0].Status != "stopped" || now[0].OutputPath != jobs[0].OutputPath {
		t.Errorf("the next daemon tells %+v", now)
	}
	if _, err := client.Call(ctx, d.dial(), protocol.Prompt,
		protocol.PromptParams{Scope: protocol.Scope{SessionID: session}, Text: serve}); err != nil {
		t.Fatal(err)
	}
	second := held("pipe")
	if now := state(session).Jobs; len(now) != 2 || now[1].ID != "job-2" || now[1].Status != "running" {
		t.Errorf("got %+v", now)
	}
	if _, err := client.Call(ctx, d.dial(), protocol.DeleteSession,
		protocol.DeleteSessionParams{SessionID: session}); err != nil {
		t.Fatal(err)
	}
	gone(second)
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(jobs[0].OutputPath), "job-*")); len(left) > 0 {
		t.Errorf("the deleted session left %v", left)
	}
}

// How a job has ended is told by the next daemon, too.
func TestHowAJobHasEndedSurvivesAKill(t *testing.T) {
	d := newDaemon(t)
	session := d.session("")
	if _, err := client.Call(t.Context(), d.dial(), protocol.Prompt, protocol.PromptParams{
		Scope: protocol.Scope{SessionID: session}, Text: `!bash {"background":true,"command":"exit 3"}`,
	}); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, "the journal has how it ended", func() bool {
		text, err := os.ReadFile(filepath.Join(d.Dir, "state", "sessions", session+".jsonl"))
		return err == nil && strings.Contains(string(text), `"exit_code":3`)
	})
	d.Kill()
	d.Start()
	st, err := client.Call(t.Context(), d.dial(), protocol.GetState,
		protocol.GetStateParams{Scope: protocol.Scope{SessionID: session}})
	if err != nil || len(st.Jobs) != 1 || st.Jobs[0].Status != "exited" || st.Jobs[0].ExitCode == nil ||
		*st.Jobs[0].ExitCode != 3 {
		t.Errorf("got %+v, %v; want a job that ended with 3", st.Jobs, err)
	}
}
