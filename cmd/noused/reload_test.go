package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"noused/internal/client"
	"noused/internal/protocol"
)

// What a reload does not apply is known by its name, for every key of the file that has another
// value; what it applies, and what stays as it is, is not.
func TestWhatAReloadDoesNotApply(t *testing.T) {
	home := t.TempDir()
	before, err := resolveIn(t, home, nil, nil, "[limits]\nrun_cost = 1\n")
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]bool{}
	for _, c := range []struct {
		file string // beside the limits of before
		want []string
	}{
		{"", nil},
		{"limits.run_cost = 0.3", []string{"[limits]"}},
		{"limits.run_cost = 1.0\nlimits.run_tokens = 9\nlimits.day_cost = 2", []string{"[limits]"}},
		{"children.depth = 2\nchildren.parallel = 8\nchildren.total = 50", nil}, // the defaults
		{"children.depth = 1\nchildren.parallel = 3\nchildren.total = 5", []string{"[children]"}},
		{"sandbox.hide = [\"~/src\"]", []string{"[sandbox]"}},
		{"sandbox.hide = []\nsandbox.network = true", nil},
		{"sandbox.read = [\"~/.aws\"]", []string{"[sandbox]"}},
		{"sandbox.network = false", []string{"[sandbox]"}},
		{"notify.command = [\"true\"]\nnotify.on = [\"run_end\"]\nnotify.after = \"1s\"", []string{"[notify]"}},
		{"retention.sessions_older = \"90d\"", []string{"[retention]"}},
		{
			"retention.sessions_larger = \"1GiB\"\nretention.tool_output_older = \"9d\"\n" +
				"retention.tool_output_larger = \"1GiB\"\nretention.audit_larger = \"9MiB\"",
			[]string{"[retention]"},
		},
		{"changes.max = \"2MiB\"", []string{"[changes]"}},
		{
			"fleet.url = \"nats://127.0.0.1:1\"\nfleet.name = \"a\"\nfleet.labels = { gpu = \"a\" }\nfleet.subject = \"s\"\n" +
				"fleet.approve = true\nfleet.slots = 2\nfleet.job_timeout = \"2m\"",
			[]string{"[fleet]"},
		},
		{"fleet.url = \"nats://127.0.0.1:1\"\nfleet.creds = \"/c\"\nfleet.ca = \"/ca\"", []string{"[fleet]"}},
		{"fleet.url = \"nats://127.0.0.1:1\"\nfleet.nkey = \"/k\"", []string{"[fleet]"}},
		{"socket = \"/run/s\"", []string{"socket"}},
		{"debug_socket = \"/run/d\"", []string{"debug_socket"}},
		{"state_dir = \"/srv/state\"", []string{"state_dir"}},
		{"workdir = \"/\"", []string{"workdir"}},
		{"tools_dir = [\"/srv/tools\"]", []string{"tools_dir"}},
		{"max_line = \"1MiB\"\nevent_buffer = \"1MiB\"", []string{"max_line", "event_buffer"}},
		{"drain_timeout = \"1s\"\nlog_level = \"warn\"", []string{"drain_timeout", "log_level"}},
		{"builtin_tools = false", []string{"builtin_tools"}},
		{"policy.approval_timeout = \"1h\"", []string{"policy.approval_timeout"}},
		{"policy.allow = [\"read\"]\npolicy.ask = [\"bash\"]\npolicy.deny = [\"write\"]", nil},
		{"model.provider = \"openai\"\nmodel.name = \"m\"\nmodel.base_url = \"http://box/v1\"\nmodel.wire = \"chat\"\n" +
			"model.api_key_env = \"K\"\nmodel.effort = \"low\"\nmodel.context_window = 9000\nmodel.max_output_tokens = 9\n" +
			"model.timeout = \"1m\"\nmodel.extra = { temperature = 0 }\nfallback = [\"openai/x\"]\n" +
			"small_model = \"openai/x\"", nil},
		{"model.provider = \"offline\"\nmodel.delay = \"1ms\"\ndefault_agent = \"codex\"", nil},
		{"model.system = \"Be brief.\"\nmodel.max_steps = 7", []string{"model.system", "model.max_steps"}},
		{"providers.box.base_url = \"http://box/v1\"\nagent.codex.tools = false", nil},
		{"[[hook]]\non = \"on_stop\"\ncommand = [\"true\"]", nil},
	} {
		text := c.file + "\n"
		if !strings.Contains(text, "limits.") {
			text = "limits.run_cost = 1\n" + text
		}
		after, err := resolveIn(t, home, nil, nil, text)
		if err != nil {
			t.Errorf("%s: %v", c.file, err)
		}
		if diff := cmp.Diff(c.want, notApplied(before, after)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.file, diff)
		}
		for line := range strings.Lines(c.file) {
			key, _, _ := strings.Cut(line, " =")
			keys[key] = true
		}
	}
	// A new key is looked at here, too.
	for _, k := range fileKeys {
		if k.name != "model" && !keys[k.name] {
			t.Errorf("nothing was said of %s", k.name)
		}
	}
}

// A reload says which part of the file only a restart applies, until it is as it was.
func TestAReloadSaysWhatOnlyARestartApplies(t *testing.T) {
	d := newDaemon(t)
	d.write("noused/config.toml", "[limits]\nrun_cost = 0.3\n\n[sandbox]\nhide = [\"~/secret\"]\nnetwork = false\n", 0o600)
	want := []string{filepath.Join(d.Dir, "noused", "config.toml") +
		" differs in [limits] and [sandbox] from what this daemon runs with: nous restart applies it"}
	for range 2 {
		if got := d.reload(); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	d.write("noused/config.toml", "", 0o600)
	if got := d.reload(); len(got) > 0 {
		t.Errorf("with the file of before: %q", got)
	}
	d.write("noused/config.toml", "limits = ]\n", 0o600)
	if got := d.reload(); len(got) != 1 || strings.Count(got[0], "toml:") != 1 {
		t.Errorf("got %q of a file that is no TOML, want it said once", got)
	}
}

// A field of a descriptor that does nothing is told at each reload, and in the log of a start: the tool
// is there all the same.
func TestAReloadNamesFieldsThatDoNothing(t *testing.T) {
	d := newDaemon(t)
	d.write("tools/odd.json", `{"name":"odd","kind":"tool","capabilities":[],"sandbx":"workdir","author":"me",
		"transport":{"type":"stdio","command":["true"]}}`, 0o600)
	told := "tool descriptor " + filepath.Join(d.Dir, "tools", "odd.json") +
		": sandbx does nothing: there is no such field, did you mean sandbox?"
	for _, added := range [][]string{{"odd"}, nil} {
		r, err := client.Call(t.Context(), d.dial(), protocol.ReloadTools, protocol.ReloadToolsParams{})
		if err != nil || !slices.Equal(r.Added, added) || !slices.Equal(r.Errors, []string{told}) {
			t.Errorf("got %+v %v, want the error %q", r, err, told)
		}
	}
	d.Stop()
	d.Start()
	d.Stop()
	if log := d.Log.String(); strings.Count(log, told) != 3 {
		t.Errorf("the log of two reloads and a start has it %d times", strings.Count(log, told))
	}
}
