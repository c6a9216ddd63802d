package main

import (
	"fmt"
	"strings"
	"testing"

	"noused/internal/daemontest"
	"noused/internal/fleet/fleettest"
	"noused/internal/testenv"
)

// member is a person's machine: nous, and the key of theirs.
func member(t *testing.T, s *fleettest.Server, key fleettest.Key) *daemontest.Daemon {
	t.Helper()
	d := newDaemon(t, "")
	d.Write("config/nous/config.toml", fmt.Sprintf("autostart = false\n[fleet]\nurl = %q\nnkey = %q\n", s.URL(), key.Path))
	return d
}

// With docs/fleet-accounts.conf anyone who is in a team submits, lists, waits for and cancels
// the team's jobs, and nobody of another team sees one of them or cancels it.
func TestATeamsJobs(t *testing.T) {
	testenv.Long(t)
	t.Parallel()
	config, keys := fleettest.Accounts(t, "../../docs/fleet-accounts.conf")
	s := fleettest.Start(t, config)
	joined := func(name, key string) {
		startDaemon(t, fmt.Sprintf("[fleet]\nurl = %q\nname = %q\nnkey = %q\nlabels = { team = %q }\n", s.URL(), name,
			keys[key].Path, name))
	}
	joined("box", "A_BOX")
	joined("tower", "B_BOX")
	alice, bob := member(t, s, keys["ALICE"]), member(t, s, keys["BOB"])
	for who, name := range map[*daemontest.Daemon]string{alice: "box", bob: "tower"} { // until they take jobs
		testenv.Until(t, name+" takes jobs", func() bool {
			got := ran(t, who, "fleet", "submit", "--id", "first", "--wait", "said", "on", name)
			return got.status == exitOK && got.out == "said on "+name+"\n"
		})
	}
	for _, tc := range []struct {
		who    *daemontest.Daemon
		args   string
		status int
		want   string
	}{
		{alice, "submit --id nobodys --label team=tower --label gpu=h100 hello", exitOK, "the job nobodys waits: no host "},
		{alice, "jobs", exitOK, "nobodys  queued     -     -"},
		{alice, "jobs", exitOK, "first    completed  box"},
		{bob, "cancel nobodys", exitFailed, "there is no job nobodys"},
		{bob, "jobs", exitOK, "first  completed  tower"},
		{bob, "submit --id nobodys --wait whose", exitOK, "whose"},
		{alice, "cancel nobodys", exitOK, "nobodys is cancelled; it had not begun"},
		{alice, "submit --id nobodys --wait hello", exitAborted, "the job nobodys was cancelled; it had not begun"},
		{alice, "jobs", exitOK, "nobodys  aborted    -"},
		{bob, "jobs", exitOK, "nobodys  completed  tower"},
	} {
		got := ran(t, tc.who, append([]string{"fleet"}, strings.Fields(tc.args)...)...)
		if got.status != tc.status || !strings.Contains(got.out+got.errout, tc.want) {
			t.Errorf("nous fleet %s: got status %d, want %d and %q\n%s%s", tc.args, got.status, tc.status, tc.want, got.out,
				got.errout)
		}
		others := map[*daemontest.Daemon]string{alice: "tower ", bob: "box"}
		if tc.args == "jobs" && strings.Contains(got.out, others[tc.who]) {
			t.Errorf("the other team's jobs are listed:\n%s", got.out)
		}
	}
}
