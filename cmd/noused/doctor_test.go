package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"noused/internal/buildinfo"
	"noused/internal/client"
	"noused/internal/doctor"
	"noused/internal/fleet/fleettest"
	"noused/internal/protocol"
)

// doctor looks at what the daemon uses and returns what it says, and its exit
// status.
func (d *daemon) doctor(flags ...string) (out string, status int) {
	d.t.Helper()
	cmd := exec.Command("noused", append(append([]string{"doctor"}, flags...), append([]string{
		"--socket", d.Socket, "--state-dir", filepath.Join(d.Dir, "state"), "--workdir", d.Dir, "--tools-dir",
		filepath.Join(d.Dir, "tools"),
	}, d.Args...)...)...)
	cmd.Env = append(os.Environ(), d.Model(), "XDG_CONFIG_HOME="+d.Dir, "XDG_RUNTIME_DIR="+d.Dir, "XDG_DATA_HOME="+d.Dir)
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		d.t.Fatal(err)
	}
	return text.String(), cmd.ProcessState.ExitCode()
}

// A file's name must not drive the terminal that doctor is read on, and it is
// the whole name for a program that reads the JSON.
func TestDoctorPrintsNoControls(t *testing.T) {
	const name = "a\x1b[2J\u009b1m\u202e\x07\nb"
	for _, tc := range []struct {
		json bool
		want string
	}{
		{false, "warn  state          a b\n      fix:  mend a b\n"},
		{
			true,
			`{"status":"warn","area":"state","what":"a\u001b[2J\u009b1m\u202e\u0007\nb","fix":"mend a\u001b[2J\u009b1m\u202e\u0007\nb"}` + "\n",
		},
	} {
		var out bytes.Buffer
		r := &report{out: &out, json: tc.json}
		r.printFinding(doctor.Finding{Status: doctor.Warn, Area: doctor.State, What: name, Fix: "mend " + name})
		if got := out.String(); got != tc.want || r.err != nil {
			t.Errorf("json %t: got %q, %v, want %q", tc.json, got, r.err, tc.want)
		}
	}
}

func wantLines(t *testing.T, out string, want ...string) {
	t.Helper()
	for _, line := range want {
		if !strings.Contains(out, line) {
			t.Errorf("doctor does not say %q:\n%s", line, out)
		}
	}
}

// A daemon at work does not notice that it is looked at: no event, no session,
// no tool's process comes of it, and what it holds is not mended.
func TestDoctorDisturbsNoDaemon(t *testing.T) {
	d := newDaemon(t)
	d.write("noused/config.toml", "builtin_tools = false\n", 0o600) // not every kernel has a sandbox for them
	lastSeq := func() uint64 { return d.events(protocol.SubscribeParams{}).Last() }
	sessions := func() int {
		return len(into[protocol.Sessions](t, d.commands().request(`{"id":"1","type":"list_sessions"}`)).Sessions)
	}
	for round := range 2 {
		before := lastSeq()
		for _, flag := range []string{"--json=false", "--fix"} {
			out, status := d.doctor(flag)
			if status != 0 {
				t.Errorf("got exit status %d, want 0:\n%s", status, out)
			}
			wantLines(t, out,
				d.Socket+": a daemon answers, protocol 1\n", d.Socket+".events: a daemon sends its events, epoch ep-",
				"the daemon is process "+strconv.Itoa(d.Cmd.Process.Pid)+", version "+buildinfo.Version()+"\n", strconv.Itoa(round)+
					" session",
				"ok    state          process "+strconv.Itoa(d.Cmd.Process.Pid)+" uses it\n")
			if strings.Contains(out, "done:") {
				t.Errorf("something was changed:\n%s", out)
			}
		}
		if got := lastSeq(); got != before {
			t.Errorf("got %d events of it, want none", got-before)
		}
		if got := sessions(); got != round {
			t.Errorf("got %d sessions, want %d", got, round)
		}
		if r := d.commands().request(`{"id":"2","type":"prompt","payload":{"text":"hello"}}`); !r.OK {
			t.Errorf("got %+v, want the daemon to go on", r.Error)
		}
	}
}

// A daemon has the environment that it was started with, which is seldom that
// of the shell where doctor is called: nothing is said to be well of a model
// that nobody uses.
func TestDoctorKnowsTheDaemonsModel(t *testing.T) {
	d := newDaemon(t)
	out, _ := d.doctor("--model=module/other")
	wantLines(t, out, "warn  model          the running daemon has offline, ", "which has module/other\n",
		"nous models --probe")
	out, _ = d.doctor()
	wantLines(t, out, "ok    model          offline: ")
}

// The models that would answer in another's place are listed, with what keeps one from it, and
// the hooks of the project that doctor is started in.
func TestDoctorListsFallbacksAndHooks(t *testing.T) {
	d := unstarted(t, "noused")
	d.write("noused/config.toml", "fallback = [\"mistral/large\", \"ollama/qwen3\", \"offline\"]\n", 0o600)
	d.write(".noused/config.toml", "[[hook]]\non = \"after_tool\"\ncommand = [\"true\"]\n", 0o600)
	out, status := d.doctor()
	wantLines(t, out, "warn  model          fallback 1, mistral/large, is passed over: ", "MISTRAL_API_KEY",
		"nous login mistral", "ok    model          fallback 2, ollama/qwen3: can be asked\n",
		"ok    model          fallback 3, offline", "warn  hooks ", "has 1 hook that you do not trust: it does not run\n",
		"fix:  nous trust, in ")
	if strings.Count(out, "mistral/large") != 1 || status != 0 {
		t.Errorf("got exit status %d, want 0, and the model named once:\n%s", status, out)
	}
}

// The agents that the configuration names are started, and say themselves what is wrong with
// them. Those that noused only knows are not.
func TestDoctorTriesTheAgentsOfTheConfiguration(t *testing.T) {
	d := unstarted(t, "noused")
	d.write("noused/config.toml", `default_agent = "codex"
[agent.good]
command = ["scripted-agent"]
[agent.boxed]
command = ["scripted-agent"]
sandbox = true
[agent.old]
command = ["scripted-agent"]
env = { AGENTTEST_CAN = "old" }
[agent.broken]
command = ["/bin/sh", "-c", "echo no licence for this machine >&2; exit 7"]
[agent.lost]
command = ["no-such-agent"]
[agent.claude]
command = ["`+filepath.Join(d.Dir, "claude-agent-acp")+`"]
`, 0o600)
	d.write("claude-agent-acp", "#!/bin/sh\nexec scripted-agent\n", 0o700)
	t.Setenv("HOME", t.TempDir())
	out, status := d.doctor()
	wantLines(t, out, "ok    agents         good answers as agenttest 1\n",
		"ok    agents         boxed answers as agenttest 1\n",
		"FAIL  agents         old: it speaks version 0 of the Agent Client Protocol, and noused speaks version 1",
		"FAIL  agents         broken ended before it answered: exit status 7: no licence for this machine\n",
		"FAIL  agents         lost cannot be started: no-such-agent: it is not in the daemon's PATH\n",
		"FAIL  agents         codex cannot be started: ", "npm install -g @agentclientprotocol/codex-acp\n",
		"warn  agents         claude answers as agenttest 1, and is not signed in\n      fix:  claude /login\n",
	)
	if status != 1 || strings.Contains(out, "opencode") {
		t.Errorf("got exit status %d:\n%s", status, out)
	}
}

// What doctor says of tools holds for the daemon: it hides the same from them, and
// knows the policy.
func TestDoctorLooksAtToolsAsTheDaemonStartsThem(t *testing.T) {
	d := newDaemon(t)
	d.write("noused/config.toml", "[policy]\ndeny = [\"bash\", \"bsh\", \"say.*\", \"sey.*\"]\n", 0o600)
	d.write("tools/say.json",
		`{"name":"say","kind":"tool","protocol":"narratoria","capabilities":[],"sandbox":"workdir","workdir":"../noused",
		"transport":{"type":"stdio","command":["/bin/true"]},"operations":{"x":{}}}`, 0o600)
	out, status := d.doctor()
	wantLines(t, out,
		`warn  tools          the policy's pattern "bsh" fits no tool`,
		`warn  tools          the policy's pattern "sey.*" fits no tool`,
		"is hidden, as the daemon's own folders")
	if strings.Contains(out, `"bash" fits`) || strings.Contains(out, `"say.*" fits`) {
		t.Errorf("it reports a pattern that fits:\n%s", out)
	}
	if status != 1 {
		t.Errorf("got exit status %d, want 1", status)
	}
}

// After a crash doctor says what is left over, --fix clears it away, and the
// next daemon takes the run up as ever.
func TestDoctorAfterACrash(t *testing.T) {
	d := newDaemon(t)
	d.write("config.toml", "builtin_tools = false\n[model]\ndelay = \"1h\"\n", 0o600)
	d.Args = []string{"--config", filepath.Join(d.Dir, "config.toml")}
	d.Stop()
	d.Start()
	acc := into[protocol.PromptAccepted](t,
		d.commands().request(`{"id":"1","type":"prompt","payload":{"text":"a b c","wait":false}}`))
	d.Kill()

	out, status := d.doctor()
	if status != 0 {
		t.Errorf("got exit status %d, want 0: a daemon gets over all of it\n%s", status, out)
	}
	wantLines(t, out,
		"warn  sockets        "+d.Socket+" is left over", "fix:  rm "+d.Socket+" (", d.Socket+".events is left over",
		"no daemon uses it", "1 run has not ended and will be resumed by a daemon", "0 failed\n")
	out, status = d.doctor("--fix")
	if status != 0 {
		t.Errorf("got exit status %d, want 0:\n%s", status, out)
	}
	wantLines(t, out, "is left over: nobody listens on it\n      done: removed\n", " 0 warnings, 0 failed\n")

	d.write("config.toml", "", 0o600)
	d.Start()
	events, err := client.Subscribe(t.Context(), d.Socket, protocol.SubscribeParams{After: new(uint64)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = events.Close() }()
	await(t, events, endOf(acc.RunID))
}

// doctor says whether the daemon could join its fleet, and why not.
func TestDoctorLooksAtTheFleet(t *testing.T) {
	s := fleettest.Start(t, "")
	d := unstarted(t, "noused")
	config := func(more string) {
		d.write("noused/config.toml", fmt.Sprintf("[fleet]\nurl = %q\nname = \"box\"\n%s", s.URL(), more), 0o600)
	}
	for _, tc := range []struct{ more, want string }{
		{"", "ok    fleet          the NATS server at " + s.URL() + " lets the daemon in\n"},
		{"nkey = \"none.nk\"\n", "FAIL  fleet          the daemon cannot join the NATS server at " + s.URL() +
			": nkey: open "},
	} {
		config(tc.more)
		out, _ := d.doctor()
		wantLines(t, out, tc.want)
	}
	config("")
	s.Down()
	out, _ := d.doctor()
	wantLines(t, out, "warn  fleet          the NATS server at "+s.URL()+" does not answer: ")
}

// Where namespaces are forbidden, doctor says what therefore does not hold, and that
// tools cannot work in a home folder.
func TestDoctorTellsOfASystemWithoutNamespaces(t *testing.T) {
	without := []string{"unshare", "--user", "--map-root-user", "setpriv", "--bounding-set=-all", "--"}
	if err := exec.Command(without[0], append(without[1:], "true")...).Run(); err != nil {
		t.Skip("needs unshare and setpriv, and a system that allows namespaces: ", err)
	}
	if abi, err := landlockVersion(); err != nil || abi < 3 {
		t.Skip("the kernel has no Landlock")
	}
	home := t.TempDir()
	for dir, want := range map[string][]string{
		filepath.Join(home, "project"): {"0 failed", "alone, because this system forbids user namespaces", "      fix:  "},
		home: {
			"FAIL  tools          tools cannot create files in the working folder " + home,
			"      fix:  allow user namespaces",
		},
	} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		args := append(without[1:], "noused", "doctor", "--workdir", dir, "--socket", filepath.Join(home, "run/s"),
			"--state-dir", filepath.Join(home, "state"), "--tools-dir", filepath.Join(home, "tools"))
		cmd := exec.Command(without[0], args...)
		cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+filepath.Join(home, ".config"), "XDG_RUNTIME_DIR=",
			"XDG_DATA_HOME="+home)
		out, _ := cmd.CombinedOutput()
		wantLines(t, string(out), want...)
	}
}

// An agent's program may be a script of another one that has to be found, too.
func TestProgramsThatAnAgentNeeds(t *testing.T) {
	dir := t.TempDir()
	for begin, want := range map[string]string{
		"#!/usr/bin/env node\n": "it node", "#!/usr/bin/env -S A=b deno run\n": "it deno", "#!/bin/sh\n": "it",
		"\x7fELF": "it", "#!/usr/bin/env": "it", "": "it",
	} {
		path := filepath.Join(dir, "it")
		if err := os.WriteFile(path, []byte(begin), 0o700); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(lookedUp("it", path), " "); got != want {
			t.Errorf("%q: got %q, want %q", begin, got, want)
		}
	}
	if got := lookedUp("/opt/it", filepath.Join(dir, "gone")); len(got) > 0 {
		t.Errorf("of a path: got %q", got)
	}
}
