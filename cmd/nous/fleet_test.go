package main

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go"

	"noused/internal/client/hosts"
	"noused/internal/daemontest"
	"noused/internal/fleet"
	"noused/internal/fleet/fleettest"
	"noused/internal/fleet/via"
	"noused/internal/protocol"
	"noused/internal/testenv"
)

// joinFleet starts a daemon of a fleet, and waits until it takes commands there, which is
// a moment after it has joined.
func joinFleet(t *testing.T, s *fleettest.Server, name string) *daemontest.Daemon {
	t.Helper()
	d := startDaemon(t, fmt.Sprintf("[fleet]\nurl = %q\nname = %q\nlabels = { os = \"linux\" }\n", s.URL(), name))
	nc := fleettest.Dial(t, s.Direct())
	testenv.Until(t, name+" takes commands", func() bool {
		_, err := nc.Request(fleet.DefaultPrefix.Command(name), []byte(`{"id":"1","type":"ping"}`), 2*time.Minute)
		return err == nil
	})
	return d
}

// ran runs nous beside a daemon, whose own socket it does not need.
func ran(t *testing.T, d *daemontest.Daemon, args ...string) result {
	t.Helper()
	var out, errout bytes.Buffer
	cmd := exec.Command("nous", args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = d.Dir, d.Env(), &out, &errout
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errout.String()}
}

// Every command reaches the daemon of another machine through the fleet, nous fleet
// shows all of them, and what cannot be is said in a line.
func TestFleetFromTheCommandLine(t *testing.T) {
	testenv.Long(t)
	t.Parallel()
	s := fleettest.Start(t, "")
	box, _ := joinFleet(t, s, "box"), joinFleet(t, s, "tower")
	via := []string{"--via", s.URL()}
	for _, tc := range []struct {
		args, want string
		status     int
	}{
		{"--on tower ping", "pong", 0},
		{"--on tower prompt said on the tower", "said on the tower", 0},
		{"--on tower sessions", "said on the tower", 0},
		{"--on tower state", "run state:       idle", 0},
		{"--on tower status", "model:", 0},
		{"--on box sessions --json", "", 0},
		{"--on nobody ping", "no daemon called nobody answers in the fleet", exitNoDaemon},
		{"--on nobody ping", "there are: box, tower", exitNoDaemon},
		{"ping", "give --on NAME", exitUsage},
		{"--on a.b ping", "--on:", exitUsage},
		{"--on box --host other ping", "--host and --socket name a daemon without the fleet", exitUsage},
		{"--on box logs", "log in on box and run `nous logs`", exitUsage},
		{"--on box doctor", "log in there and run `nous doctor`", exitUsage},
		{"--on box new --worktree", "log in on box", exitUsage},
		{"--on tower approve x", "", exitFailed},
		{
			"--on box set-approval-mode auto --active", "do it on box itself, or let those who send commands count as people",
			exitFailed,
		},
		{"--on box --on tower ping", "nous ping is for one host: give --on once", exitUsage},
		{"--on box --on box sessions", "that host is named twice", exitUsage},
		{"--on box --on tower sessions", "HOST", 0},
		{"--on nobody --on tower sessions", "said on the tower", exitNoDaemon},
		{"--on box --on tower board", "done, unread, on tower", 0},
		{"fleet hosts --on box --on tower", "tower", 0},
		{"fleet hosts", "os=linux", 0},
		{"fleet hosts --json", `"labels":{"os":"linux"}`, 0},
		{"fleet sessions", "said on the tower", 0},
		{"fleet sessions --json --on tower", `{"host":"tower","session":{"session_id"`, 0},
		{"fleet sessions --on nobody", "there are: box, tower", exitNoDaemon},
		{"fleet approvals", "no approval waits", 0},
	} {
		got := ran(t, box, append(via, strings.Fields(tc.args)...)...)
		if got.status != tc.status || !strings.Contains(got.out+got.errout, tc.want) {
			t.Errorf("nous %s: got status %d, want %d and %q\n%s%s", tc.args, got.status, tc.status, tc.want, got.out,
				got.errout)
		}
	}
	var got result
	for range 20 { // entries run out after half a minute
		hostileHosts(t, s)
		if got = ran(t, box, append(via, "fleet", "hosts")...); strings.Contains(got.out, "evil") &&
			strings.Count(got.errout, "is passed over") == 2 {
			break
		}
	}
	if !strings.Contains(got.out, "evil") || strings.ContainsFunc(strings.ReplaceAll(got.out+got.errout, "\n", ""),
		unicode.IsControl) ||
		!strings.Contains(got.errout,
			"another daemon wants the name evil, too, and takes no commands (epoch red, version 9") ||
		strings.Count(got.errout, "is passed over") != 2 {
		t.Errorf("with hostile entries: got %q %q", got.out, got.errout)
	}
	if got := ran(t, box, "fleet", "hosts"); got.status != exitUsage ||
		!strings.Contains(got.errout, "no fleet is named") {
		t.Errorf("without a fleet: got %+v", got)
	}
	if got := ran(t, box, "--via", "nats://127.0.0.1:1", "fleet", "hosts"); got.status != exitNoDaemon ||
		!strings.Contains(got.errout, "check that the server runs") {
		t.Errorf("without a server: got %+v", got)
	}
	box.Write("config/nous/config.toml", fmt.Sprintf("autostart = false\n[fleet]\nurl = %q\non = \"tower\"\n", s.URL()))
	if got := ran(t, box, "fleet", "hosts"); !strings.Contains(got.out, "box") {
		t.Errorf("with a config: got %+v", got)
	}
}

// hostileHosts has entries among the hosts that would write to a terminal, or are no hosts.
func hostileHosts(t *testing.T, s *fleettest.Server) {
	t.Helper()
	kv, err := fleettest.JetStream(t, fleettest.Dial(t, s.Direct())).KeyValue(t.Context(),
		fleet.DefaultPrefix.HostBucket())
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{}
	for i := range 2000 {
		labels[fmt.Sprint(i)] = "x"
	}
	for key, p := range map[string]fleet.Presence{
		"evil": {Name: "evil", Version: "\x1b[2J9", Rival: &fleet.Rival{
			Epoch: "\x1b]0;title\x07red", Version: "9\n9",
			Workdir: "/\u009b31m",
		}},
		"c1":    {Name: "c1", Labels: map[string]string{"os": "\u009b31m"}},
		"lines": {Name: "lines", Labels: labels},
	} {
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := kv.Put(t.Context(), key, text); err != nil {
			t.Fatal(err)
		}
	}
}

// Whatever a person asks of a fleet that does not work, nous says the same of it.
func TestAllCommandsSayWhyAFleetDoesNotWork(t *testing.T) {
	t.Parallel()
	config, keys := fleettest.Accounts(t, "../../docs/fleet-accounts.conf")
	s, alice := fleettest.Start(t, config), keys["ALICE"]
	_, others := fleettest.Accounts(t, "../../docs/fleet-accounts.conf")
	plain := newDaemon(t, "")
	plain.Write("config/nous/config.toml", fmt.Sprintf("autostart = false\n[fleet]\nurl = %q\n",
		fleettest.StartWithout(t, "").URL()))
	commands := []string{"hosts", "sessions", "jobs", "submit hello", "cancel one"}
	for want, d := range map[string]*daemontest.Daemon{
		"no daemon has joined a fleet there":                  member(t, s, alice),
		"does not let you in: Authorization Violation\n":      member(t, s, others["ALICE"]),
		"does not let you in: nkeys not supported by the ser": member(t, fleettest.StartWithout(t, ""), alice),
		"has no JetStream for your account\n":                 plain,
	} {
		for _, command := range commands {
			got := ran(t, d, append([]string{"fleet"}, strings.Fields(command)...)...)
			if got.status == exitOK || got.out != "" || !strings.Contains(got.errout, want) ||
				strings.Contains(got.errout, "cannot be reached") || strings.Contains(got.errout, "denies it") {
				t.Errorf("nous fleet %s: got status %d and %q, want %q", command, got.status, got.errout, want)
			}
		}
	}
}

// The screen of several hosts of a fleet, and their board.
func TestScreenOfSeveralHostsOfAFleet(t *testing.T) {
	t.Parallel()
	s := fleettest.Start(t, "")
	box, tower := joinFleet(t, s, "box"), joinFleet(t, s, "tower")
	id := askDaemon(t, tower.Socket, protocol.NewSession, protocol.NewSessionParams{
		Title:    "Build it",
		Activate: new(bool),
	}).SessionID
	askDaemon(t, tower.Socket, protocol.Prompt, protocol.PromptParams{
		Scope: protocol.Scope{SessionID: id},
		Text:  "words for it",
	})
	screen := startScreen(t, box, look{cols: 140, rows: 40, args: []string{
		"--via", s.URL(), "--on", "box", "--on",
		"tower", "board",
	}})
	screen.Wait("1 done, unread", "tower", "Build it")
	screen.Type("build")
	screen.Press("enter")
	screen.Wait("● tower", "words for it", "idle")
	screen.say("said from the screen")
	screen.WaitFor("the answer", func(text string) bool { return strings.Count(text, "said from the screen") == 2 })
	screen.Press("ctrl+d")
	screen.Wait("nous --session "+id, "--on tower")
}

// A host whose list of sessions has no end, or no room, costs an error, not the memory of
// anyone who asks.
func TestAListOfSessionsWithoutAnEnd(t *testing.T) {
	t.Parallel()
	s := fleettest.Start(t, "")
	nc := fleettest.Dial(t, s.Direct())
	if _, err := fleet.DefaultPrefix.OpenHosts(t.Context(), fleettest.JetStream(t, nc)); err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int32
	_, err := nc.Subscribe(fleet.DefaultPrefix.Command("evil"), func(msg *nats.Msg) {
		asked.Add(1)
		var c struct {
			ID jsontext.Value `json:"id"`
		}
		if err := json.Unmarshal(msg.Data, &c); err != nil {
			return
		}
		page := strings.Repeat(`{"session_id":"same","title":""},`, 999) + `{"session_id":"same","title":""}`
		_ = msg.Respond([]byte(`{"v":"1","id":` + string(c.ID) + `,"ok":true,"type":"sessions","payload":{"sessions":[` +
			page + `]}}`))
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	f := via.Open(via.Options{Connect: fleet.Connect{URLs: []string{s.Direct()}}, Prefix: fleet.DefaultPrefix})
	t.Cleanup(f.Close)
	for room, want := range map[int64]string{maxLists: "does not go on where it ended", 1: "no room for its list"} {
		if _, err := f.Host("evil").AsHost().List(t.Context(), protocol.ListSessionsParams{Limit: new(1000)}, boardPages,
			hosts.NewRoom(room)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("room for %d bytes: got %v, want %q", room, err, want)
		}
	}
	if n := asked.Load(); n != 3 {
		t.Errorf("it was asked %d times, want 3", n)
	}
}
