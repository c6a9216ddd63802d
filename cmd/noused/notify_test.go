package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"noused/internal/client"
	"noused/internal/daemontest"
	"noused/internal/protocol"
	"noused/internal/testenv"
)

// What systemd hears from a daemon, from its start to its end.
func TestTheDaemonTellsSystemdHowItIs(t *testing.T) {
	testenv.Long(t)
	d := unstarted(t, "noused")
	heard, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(d.Dir, "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer heard.Close()
	cmd := d.Command()
	cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+heard.LocalAddr().String(), "WATCHDOG_USEC=300000")
	cmd.Stdout, cmd.Stderr = &d.Log, &d.Log
	if d.Process, err = daemontest.Launch(cmd); err != nil {
		t.Fatal(err)
	}
	hears := func(want string) {
		t.Helper()
		_ = heard.SetReadDeadline(time.Now().Add(hangTime))
		pattern := regexp.MustCompile("^" + want + "$")
		for buf := make([]byte, 4096); ; {
			n, err := heard.Read(buf)
			if err != nil {
				t.Fatalf("systemd does not hear %s: %v", want, err)
			}
			if pattern.Match(buf[:n]) {
				return
			}
		}
	}
	hears("READY=1\nSTATUS=no runs, no sessions")
	hears("WATCHDOG=1")
	c := d.dial()
	for _, want := range []string{"STATUS=no runs, 1 session", "STATUS=no runs, 2 sessions"} {
		if _, err := client.Call(t.Context(), c, protocol.NewSession, protocol.NewSessionParams{}); err != nil {
			t.Fatal(err)
		}
		hears(want)
	}
	asked := d.asks(c, d.session(d.Dir), outside("true"))
	hears("STATUS=1 run, 3 sessions")
	d.answers(c, asked, "once")
	hears("STATUS=no runs, 3 sessions")
	_ = d.Cmd.Process.Signal(syscall.SIGHUP)
	hears(`RELOADING=1\nMONOTONIC_USEC=[0-9]{4,}`)
	hears("READY=1")
	_ = d.Cmd.Process.Signal(syscall.SIGTERM)
	hears("STOPPING=1\nSTATUS=stopping")
	<-d.Gone
}

// However much happens, systemd hears of it once a second, and of the last there is;
// of nothing it hears nothing.
func TestTheStatusLineIsQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := &statusLine{sessions: func() ([]string, error) {
			return nil, nil
		}, changed: make(chan struct{}, 1), runs: map[string]struct{}{}}
		ctx, cancel := context.WithCancel(t.Context())
		var told []string
		kept := make(chan struct{})
		go func() {
			defer close(kept)
			s.keep(ctx, func(state string) { told = append(told, fmt.Sprintf("%v %s", time.Since(began), state)) })
		}()
		time.Sleep(time.Hour)
		synctest.Wait()
		for n := range 1000 { // for nine and a half seconds
			s.saw(protocol.AgentStart{Ref: protocol.Ref{RunID: fmt.Sprint(n)}})
			time.Sleep(9500 * time.Microsecond)
		}
		for n := range 999 {
			s.saw(protocol.AgentEnd{Ref: protocol.Ref{RunID: fmt.Sprint(n)}})
		}
		s.saw(protocol.Status{Ref: protocol.Ref{RunID: "999"}, Code: protocol.StatusRunResumed}) // it is known
		time.Sleep(time.Hour)
		cancel()
		<-kept
		if len(told) > 13 {
			t.Errorf("systemd was told %d times in ten seconds: %q", len(told), told)
		}
		want := []string{
			"0s READY=1\nSTATUS=no runs, no sessions", "1h0m0s STATUS=1 run, no sessions",
			"1h0m10s STATUS=1 run, no sessions",
		}
		if diff := cmp.Diff(want, []string{told[0], told[1], told[len(told)-1]}); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// While the daemon drains, its hub answers nobody any more, and that does not end it.
func TestTheWatchdogLetsADaemonDrain(t *testing.T) {
	t.Parallel()
	stopping, stop := context.WithCancel(t.Context())
	asked := make(chan struct{})
	told := make(chan error)
	go func() {
		told <- unlessStopping(t.Context(), stopping, func(ctx context.Context) error {
			close(asked)
			<-ctx.Done()
			return ctx.Err()
		})
	}()
	<-asked
	stop()
	if err := <-told; err != nil {
		t.Errorf("asked when it stops: %v", err)
	}
	hangs := errors.New("it hangs")
	if err := unlessStopping(t.Context(), t.Context(), func(context.Context) error { return hangs }); err != hangs {
		t.Errorf("got %v of a hub that hangs", err)
	}
}

// What ends a daemon under systemd is that it does not answer, and nothing else.
func TestWhatTheWatchdogTakesForAnAnswer(t *testing.T) {
	hangs := func(net.Conn) {}
	closes := func(c net.Conn) { _ = c.Close() }
	for name, c := range map[string]struct {
		hub      error
		commands func(net.Conn) // nil: there is no socket
		alive    bool
	}{
		"no sockets":                {alive: true},
		"too many connections":      {commands: closes, alive: true},
		"the command socket hangs":  {commands: hangs},
		"the hub hangs":             {commands: closes, hub: context.DeadlineExceeded},
		"the hub hangs, no sockets": {hub: context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r := roundTrip{func(context.Context) error { return c.hub }, filepath.Join(t.TempDir(), "s"), "/nonexistent/events"}
			if c.commands != nil {
				ln, err := net.Listen("unix", r.commands)
				if err != nil {
					t.Fatal(err)
				}
				defer ln.Close()
				go func() { // ends with ln
					for {
						conn, err := ln.Accept()
						if err != nil {
							return
						}
						c.commands(conn)
						if !c.alive {
							cancel() // it has been waited for long enough
						}
					}
				}()
			}
			if err := r.answers(ctx); (err == nil) != c.alive {
				t.Errorf("got %v, want it alive: %v", err, c.alive)
			} else if err != nil && c.hub == nil && !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want that it was waited for", err)
			}
		})
	}
}
