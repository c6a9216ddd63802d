package main

import (
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"go.uber.org/zap/zapcore"

	"noused/internal/agent"
	"noused/internal/fleet"
	"noused/internal/protocol"
)

// resolve runs resolveConfig on a command line, an environment and a file,
// with the folders of a user whose name is no matter.
func resolve(t *testing.T, args []string, env map[string]string, file string) (Config, string, error) {
	t.Helper()
	home := t.TempDir()
	cfg, err := resolveIn(t, home, args, env, file)
	return cfg, home, err
}

// resolveIn is resolve in a home that is there.
func resolveIn(t *testing.T, home string, args []string, env map[string]string, file string) (Config, error) {
	t.Helper()
	path := filepath.Join(home, ".config", "noused", "config.toml")
	if file != "" {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fs := pflag.NewFlagSet("noused", pflag.ContinueOnError)
	registerFlags(fs)
	for i, arg := range args {
		args[i] = strings.ReplaceAll(arg, "HOME", home)
	}
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return resolveConfig(fs, func(name string) string {
		if name == "HOME" {
			return home
		}
		return strings.ReplaceAll(env[name], "HOME", home)
	})
}

func workdir(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestConfigDefaults(t *testing.T) {
	got, home, err := resolve(t, nil, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		Socket:       "/tmp/noused-" + strconv.Itoa(os.Getuid()) + "/noused.sock",
		StateDir:     home + "/.local/state/noused",
		Workdir:      workdir(t),
		ToolsDirs:    []string{home + "/.config/noused/tools.d"},
		MaxLine:      16 << 20,
		EventBuffer:  16 << 20,
		DrainTimeout: 10 * time.Second,
		LogLevel:     zapcore.InfoLevel,
		ChangesMax:   1 << 30,
		Policy: policySettings{Config: home + "/.config/noused/config.toml", Rules: home +
			"/.config/noused/rules.toml"},
		BuiltinTools: true, Agents: agent.Known, Children: defaultChildren,
		ConfigDir: home + "/.config/noused", LogDir: home + "/.local/state/noused/log", CacheDir: home +
			"/.cache/noused/sandbox", Home: home,
		Private: []string{
			home + "/.config/noused", home + "/.config/noused/environment", home + "/.local/state/noused",
			home + "/.config/noused/rules.toml",
		},
		Sandbox: got.Sandbox,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestConfigFollowsXDG(t *testing.T) {
	got, home, err := resolve(t, nil, map[string]string{
		"XDG_RUNTIME_DIR": "/run/user/7", "XDG_STATE_HOME": "/s", "XDG_CONFIG_HOME": "relative/is/ignored",
	}, "")
	if err != nil {
		t.Fatal(err)
	}
	paths := []string{got.Socket, got.StateDir, got.ToolsDirs[0]}
	want := []string{"/run/user/7/noused/noused.sock", "/s/noused", home + "/.config/noused/tools.d"}
	if diff := cmp.Diff(want, paths); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestKeysStateAndConfigurationArePrivate(t *testing.T) {
	got, _, err := resolve(t, []string{"--state-dir", "/elsewhere"}, map[string]string{
		"XDG_CONFIG_HOME": "/c", "XDG_STATE_HOME": "/s", "CREDENTIALS_DIRECTORY": "/run/credentials/noused.service",
	}, "")
	want := []string{
		"/c/noused", "/c/noused/environment", "/elsewhere", "/c/noused/rules.toml", "/s/noused",
		"/run/credentials/noused.service",
	}
	if diff := cmp.Diff(want, got.Private); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestConfigOfRetention(t *testing.T) {
	got, _, err := resolve(t, nil, nil, "[retention]\nsessions_older = \"1d12h\"\nsessions_larger = "+
		"\"2GiB\"\ntool_output_older = \"30d\"\ntool_output_larger = 1048576\naudit_larger = \"16MiB\"\n")
	want := retention{
		SessionsOlder: 36 * time.Hour, SessionsLarger: 2 << 30, ToolOutputOlder: 30 * 24 * time.Hour,
		ToolOutputLarger: 1 << 20, AuditLarger: 16 << 20,
		Said: protocol.PruneLimits{
			SessionsOlder: "1d12h", SessionsLarger: "2GiB", ToolOutputOlder: "30d",
			ToolOutputLarger: "1MiB", AuditLarger: "16MiB",
		},
	}
	if got.Retention != want || err != nil {
		t.Errorf("got %+v, %v", got.Retention, err)
	}
	if got, _, err := resolve(t, nil, nil, ""); got.Retention != (retention{}) || err != nil {
		t.Errorf("nothing said: got %+v, %v", got.Retention, err)
	}
}

func TestFleetSettings(t *testing.T) {
	got, home, err := resolve(t, nil, nil,
		"[fleet]\nurl = [\"nats://a\", \"tls://b\"]\ncreds = \"fleet.creds\"\nname = \"box\"\nsubject = \"team\"\n"+
			"labels = { gpu = \"a100\" }\napprove = true\nslots = 0\njob_timeout = \"2m\"\n")
	want := fleetSettings{
		Connect: fleet.Connect{
			URLs:  []string{"nats://a", "tls://b"},
			Creds: filepath.Join(home, ".config/noused/fleet.creds"),
		}, Name: "box", Prefix: "team",
		Labels: map[string]string{"gpu": "a100"}, Approve: true, JobTimeout: 2 * time.Minute,
	}
	if diff := cmp.Diff(want, got.Fleet); diff != "" || err != nil {
		t.Errorf("error %v, (-want +got):\n%s", err, diff)
	}
	got, _, err = resolve(t, nil, nil, "[fleet]\nurl = \"nats://a\"\nname = \"box\"\n")
	if f := got.Fleet; f.Approve || f.Slots != 1 || f.JobTimeout != 10*time.Minute || f.Prefix != "noused" || err != nil {
		t.Errorf("got %+v, error %v", f, err)
	}
	if got, _, err := resolve(t, nil, nil, ""); got.Fleet.URLs != nil || err != nil {
		t.Errorf("without a section: got %+v, error %v", got.Fleet, err)
	}
}

// A second instance has all that configures it in a folder of its own, and its tools
// read the first one's keys as little as its own.
func TestTheConfigurationFolder(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"config.toml": "log_level = \"warn\"\n",
		"environment": "OPENAI_API_KEY=x\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, env := range map[string]map[string]string{
		"by the flag":     nil,
		"by the variable": {"NOUSED_CONFIG_DIR": dir},
	} {
		args := []string{"--config-dir", dir}
		if env != nil {
			args = nil
		}
		got, home, err := resolve(t, args, env, "log_level = \"debug\"\n")
		if err != nil || got.LogLevel != zapcore.WarnLevel || got.ConfigDir != dir ||
			got.Policy.Rules != filepath.Join(dir, "rules.toml") ||
			!slices.Equal(got.ToolsDirs, []string{filepath.Join(dir, "tools.d")}) {
			t.Errorf("%s: got %v, %+v, want it all from %s", name, err, got, dir)
		}
		for _, path := range []string{dir + "/environment", home + "/.config/noused/environment", home +
			"/.config/noused/instances/other/environment", home + "/.local/state/noused/instances/other/audit.jsonl"} {
			if !hidden(got).Covers(path) {
				t.Errorf("%s: tools in a sandbox can read %s", name, path)
			}
		}
	}
	if _, _, err := resolve(t, []string{"--config-dir", ""}, nil, ""); err == nil ||
		!strings.Contains(err.Error(), "--config-dir") {
		t.Errorf("an empty --config-dir: %v", err)
	}
}

func TestConfigOfTheSandbox(t *testing.T) {
	for _, c := range []struct {
		file              string
		hidden, canBeRead []string // below the home, or absolute
	}{
		{
			"",
			[]string{
				".ssh/id", ".unheard-of/key", ".config/unheard-of", ".local/share/new", ".cargo/credentials.toml",
				".config/git/credentials",
			},
			[]string{"src/x", ".bashrc", ".config/git/config", ".cargo/bin/cargo", ".tools/bin/tool"},
		},
		{`hide = ["~/src", "/srv/x/", "~/.cargo"]`, []string{
			".ssh/id", "src/x", "/srv/x/y", ".cargo/bin/cargo",
		}, []string{"go/x"}},
		{`hide = []`, []string{".ssh/id"}, nil},
		{
			`read = ["~/.ssh/config", "~/.aws", "~/.docker"]`,
			[]string{".ssh/id", ".docker/config.json", ".kube/config"},
			[]string{".ssh/config", ".aws/credentials", ".docker/x"},
		},
		{"hide = [\"~/.aws\"]\nread = [\"~/.aws\"]", []string{".aws/credentials"}, nil},
		{
			`read = ["~/.config", "~/.local/state"]`,
			[]string{".config/gh/hosts.yml", ".config/nous/key"},
			[]string{".config/unheard-of"},
		},
	} {
		got, home, err := resolve(t, nil, map[string]string{"PATH": "/bin:HOME/.tools/bin"}, "[sandbox]\n"+c.file+"\n")
		if err != nil || !got.Sandbox.Network {
			t.Fatalf("%s: %v", c.file, err)
		}
		at := func(path string) string {
			if filepath.IsAbs(path) {
				return path
			}
			return filepath.Join(home, path)
		}
		own := []string{".config/noused/x", ".config/noused/environment", ".local/state/noused/sessions"}
		for _, path := range slices.Concat(own, c.hidden) {
			if !hidden(got).Covers(at(path)) {
				t.Errorf("%s: %s is not hidden", c.file, path)
			}
		}
		for _, path := range c.canBeRead {
			if hidden(got).Covers(at(path)) {
				t.Errorf("%s: %s is hidden", c.file, path)
			}
		}
	}
}

// A configuration file may lie anywhere, and be a link.
func TestTheConfigurationFileInUseIsPrivate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agents.toml")
	if err := os.WriteFile(file, []byte("log_level = \"warn\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, env := range map[string]map[string]string{"by the flag": nil, "by the variable": {"NOUSED_CONFIG": file}} {
		args := []string{"--config", file}
		if env != nil {
			args = nil
		}
		got, home, err := resolve(t, args, env, "")
		rules := filepath.Join(filepath.Dir(file), "rules.toml")
		want := []string{
			home + "/.config/noused", home + "/.config/noused/environment", home + "/.local/state/noused", rules,
			file,
		}
		if diff := cmp.Diff(want, got.Private); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

func TestConfigWithoutAHome(t *testing.T) {
	fs := pflag.NewFlagSet("noused", pflag.ContinueOnError)
	registerFlags(fs)
	got, err := resolveConfig(fs, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	u, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(u.HomeDir, ".local/state/noused"); got.StateDir != want {
		t.Errorf("got state in %s, want %s", got.StateDir, want)
	}
}

const wholeFile = `
socket = "file.sock"
state_dir = "/file/state"
workdir = "/"
tools_dir = ["tools", "/file/tools", "~/tools"]
max_line = 2097152
event_buffer = "1MiB"
drain_timeout = "3s"
log_level = "warn"
builtin_tools = false

[model]
provider = "offline"
name = "script"
delay = "20ms"

[policy]
allow = ["files.*", "read"]
deny = "bash"
`

var wholeEnv = map[string]string{
	"NOUSED_SOCKET": "env.sock", "NOUSED_STATE_DIR": "/env/state", "NOUSED_WORKDIR": "/usr",
	"NOUSED_TOOLS_DIR": "/env/a::b:",
	"NOUSED_MAX_LINE":  "3MiB", "NOUSED_EVENT_BUFFER": "131072", "NOUSED_DRAIN_TIMEOUT": "4s", "NOUSED_LOG_LEVEL": "error",
	"NOUSED_MODEL": "offline",
}

func TestConfigFile(t *testing.T) {
	got, home, err := resolve(t, nil, nil, wholeFile)
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		Socket:       home + "/.config/noused/file.sock",
		StateDir:     "/file/state",
		Workdir:      "/",
		WorkdirNamed: true,
		ToolsDirs:    []string{home + "/.config/noused/tools", "/file/tools", home + "/tools"},
		ChangesMax:   1 << 30,
		Model:        ModelConfig{Provider: "offline", Name: "script", Delay: 20 * time.Millisecond},
		Agents:       agent.Known,
		Children:     defaultChildren,
		MaxLine:      2 << 20,
		EventBuffer:  1 << 20,
		DrainTimeout: 3 * time.Second,
		LogLevel:     zapcore.WarnLevel,
		Policy:       got.Policy,
		Private:      got.Private, LogDir: got.LogDir, CacheDir: got.CacheDir, ConfigDir: home + "/.config/noused",
		Home: home, Sandbox: got.Sandbox,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEnvironmentBeatsFile(t *testing.T) {
	got, _, err := resolve(t, nil, wholeEnv, wholeFile)
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		Socket:       workdir(t) + "/env.sock",
		StateDir:     "/env/state",
		Workdir:      "/usr",
		WorkdirNamed: true,
		ToolsDirs:    []string{"/env/a", workdir(t) + "/b"},
		Model:        ModelConfig{Provider: "offline", Name: "script", Delay: 20 * time.Millisecond},
		Agents:       agent.Known,
		Children:     defaultChildren,
		MaxLine:      3 << 20,
		EventBuffer:  128 << 10,
		DrainTimeout: 4 * time.Second,
		LogLevel:     zapcore.ErrorLevel,
		ChangesMax:   1 << 30,
		Policy:       got.Policy,
		Private:      got.Private, LogDir: got.LogDir, CacheDir: got.CacheDir, ConfigDir: got.ConfigDir, Home: got.Home,
		Sandbox: got.Sandbox,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFlagsBeatEnvironment(t *testing.T) {
	got, _, err := resolve(t, []string{
		"--socket=flag.sock", "--state-dir", "/flag/state", "--workdir", "/tmp", "--tools-dir", "/flag/a", "--tools-dir",
		"b:c",
		"--max-line", "4096KiB", "--event-buffer", "1GiB", "--drain-timeout", "0s", "--log-level", "debug", "--model",
		"offline/script",
	}, wholeEnv, wholeFile)
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		Socket:       workdir(t) + "/flag.sock",
		StateDir:     "/flag/state",
		Workdir:      "/tmp",
		WorkdirNamed: true,
		ToolsDirs:    []string{"/flag/a", workdir(t) + "/b:c"},
		Model:        ModelConfig{Provider: "offline", Name: "script", Delay: 20 * time.Millisecond},
		Agents:       agent.Known,
		Children:     defaultChildren,
		MaxLine:      4 << 20,
		EventBuffer:  1 << 30,
		LogLevel:     zapcore.DebugLevel,
		ChangesMax:   1 << 30,
		Policy:       got.Policy,
		Private:      got.Private, LogDir: got.LogDir, CacheDir: got.CacheDir, ConfigDir: got.ConfigDir, Home: got.Home,
		Sandbox: got.Sandbox,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestConfigOfAModel(t *testing.T) {
	got, _, err := resolve(t, nil, nil, `[model]
provider = "openai"
name = "qwen3:8b"
base_url = "http://localhost:11434/v1"
api_key_env = "MY_KEY"
system = "Be brief."
max_output_tokens = 4096
timeout = "90s"
[model.extra]
temperature = 0.2
`)
	want := ModelConfig{
		Provider: "openai", Name: "qwen3:8b", BaseURL: "http://localhost:11434/v1", APIKeyEnv: "MY_KEY", System: "Be brief.",
		MaxOutputTokens: 4096, Timeout: 90 * time.Second, Extra: map[string]any{"temperature": 0.2},
	}
	if diff := cmp.Diff(want, got.Model); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestConfigFileByName(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "other.toml")
	if err := os.WriteFile(other, []byte("log_level = \"debug\"\nsocket = \"here.sock\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		args []string
		env  map[string]string
	}{
		{"flag", []string{"--config", other}, nil},
		{"environment", nil, map[string]string{"NOUSED_CONFIG": other}},
		{"flag over environment", []string{"--config", other}, map[string]string{"NOUSED_CONFIG": "/nowhere"}},
	} {
		got, _, err := resolve(t, c.args, c.env, wholeFile)
		if err != nil || got.LogLevel != zapcore.DebugLevel || got.Socket != filepath.Join(dir, "here.sock") {
			t.Errorf("%s: got level %s, socket %s, error %v, want those of %s", c.name, got.LogLevel, got.Socket, err, other)
		}
	}
}

func TestConfigErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		env  map[string]string
		file string
		want string
	}{
		{
			"a named file that is missing",
			[]string{"--config", "/nowhere/c.toml"},
			nil, "",
			"--config: open /nowhere/c.toml: no such file or directory",
		},
		{
			"a named file that is a folder", nil,
			map[string]string{"NOUSED_CONFIG": "/"},
			"",
			"NOUSED_CONFIG: open /: is not a regular file",
		},
		{"broken TOML", nil, nil, "\nsocket = \"x\n", "FILE:2: "},
		{"a key twice", nil, nil, "socket = \"x\"\nsocket = \"y\"\n", "FILE:2: socket: key socket is already defined"},
		{
			"a retention that is no duration", nil, nil, "[retention]\nsessions_older = \"90 days\"\n",
			`FILE:2: retention.sessions_older: "90 days" is no duration, want one like 90d, 12h or 1d12h`,
		},
		{
			"a retention without a unit", nil, nil, "[retention]\ntool_output_older = 90\n",
			"FILE:2: retention.tool_output_older: got 90, want a string",
		},
		{
			"minutes for months", nil, nil, "[retention]\n\nsessions_older = \"3m\"\n",
			"FILE:3: retention.sessions_older: 3m is out of bounds, want 1h to 36500d; m are minutes",
		},
		{"less than nothing", nil, nil, "[retention]\nsessions_older = \"1d-20h\"\n", "FILE:2: retention.sessions_older: "},
		{"too many days", nil, nil, "[retention]\nsessions_older = \"2000000000d\"\n", "FILE:2: retention.sessions_older: "},
		{
			"a retention that is no size", nil, nil, "[retention]\nsessions_larger = \"2 GB\"\n",
			`FILE:2: retention.sessions_larger: "2 GB" is no size, want bytes as in 4194304, 4096KiB or 4MiB`,
		},
		{
			"a retention of next to nothing", nil, nil, "[retention]\naudit_larger = 1000\n",
			"FILE:2: retention.audit_larger: 1000 is out of bounds, want 1MiB to ",
		},
		{
			"an unknown retention", nil, nil, "[retention]\nsessions = \"90d\"\n",
			"FILE:2: retention.sessions: there is no such key",
		},
		{"a fleet without a URL", nil, nil, "[fleet]\nname = \"box\"\n", "FILE: fleet: has no url"},
		{
			"a fleet's URL of another kind", nil, nil, "[fleet]\nurl = \"http://box\"\n",
			`FILE:2: fleet.url: "http://box": want nats://, tls:// or wss://`,
		},
		{
			"a password in a fleet's URL", nil, nil, "[fleet]\nurl = \"nats://a:b@box\"\n",
			"FILE:2: fleet.url: nats URL of box: keys and passwords belong into the file",
		},
		{
			"two ways into a fleet", nil, nil, "[fleet]\nurl = \"nats://box\"\ncreds = \"a\"\nnkey = \"b\"\n",
			"FILE:4: fleet.nkey: there is a fleet.creds too",
		},
		{
			"a fleet name with a dot", nil, nil, "[fleet]\nurl = \"nats://box\"\nname = \"a.b\"\n",
			`FILE:3: fleet.name: "a.b" has '.'`,
		},
		{
			"a fleet name that stands for jobs", nil, nil, "[fleet]\nurl = \"nats://box\"\nname = \"jobs\"\n",
			`FILE:3: fleet.name: "jobs" stands for`,
		},
		{
			"a fleet's subject for all", nil, nil, "[fleet]\nurl = \"nats://box\"\nsubject = \">\"\n",
			`FILE:3: fleet.subject: ">" has '>'`,
		},
		{
			"a label that is no text", nil, nil, "[fleet]\nurl = \"nats://box\"\n[fleet.labels]\nram = 64\n",
			"FILE:3: fleet.labels: ram: got 64, want a string",
		},
		{
			"too many slots", nil, nil, "[fleet]\nurl = \"nats://box\"\nslots = 65\n",
			"FILE:3: fleet.slots: got 65, want 0 to 64",
		},
		{
			"a job_timeout of no time", nil, nil, "[fleet]\nurl = \"nats://box\"\njob_timeout = \"1s\"\n",
			"FILE:3: fleet.job_timeout: 1s is out of bounds",
		},
		{
			"an unknown key of a fleet", nil, nil, "[fleet]\nurl = \"nats://box\"\nhost = \"box\"\n",
			"FILE:3: fleet.host: there is no such key",
		},
		{"a retention that is no section", nil, nil, "retention = 7\n", "FILE:1: "},
		{"an unknown key", nil, nil, "socket = \"x\"\ncolour = 1\n", "FILE:2: colour: there is no such key"},
		{"an unknown section", nil, nil, "\n[sandboxes]\nallow = []\n", "FILE:2: sandboxes: there is no such key"},
		{
			"an unknown key of a section", nil, nil, "[model]\nprovider = \"offline\"\napi_key = \"x\"\n",
			"FILE:3: model.api_key: there is no such key",
		},
		{"the flag's spelling in the file", nil, nil, "max-line = 5000\n", "FILE:1: max-line: there is no such key"},
		{"the file's own name in the file", nil, nil, "config = \"x\"\n", "FILE:1: config: there is no such key"},
		{"no pattern", nil, nil, "[policy]\ndeny = [\"a\", \"[\"]\n", `FILE:2: policy.deny: "[" is no pattern`},
		{"a provider without a model", []string{"--model", "openai"}, nil, "", "--model: want openai/NAME"},
		{
			"tokens out of bounds", nil, nil, "[model]\nmax_output_tokens = 0\n",
			"FILE:2: model.max_output_tokens: got 0, want 1 to 10000000",
		},
		{"extra is no table", nil, nil, "[model]\nextra = 1\n", "FILE:2: model.extra: got 1, want a table"},
		{
			"no such wire", nil, nil, "[model]\nwire = \"messages\"\n",
			"FILE:2: model.wire: there is no wire messages, only chat and responses",
		},
		{
			"a rule with another key", nil, nil, "[[policy.rule]]\ntool = \"bash\"\ndecison = \"deny\"\n",
			"FILE:3: rule 1: decison: there is no such key",
		},
		{
			"a rule against its example", nil, nil,
			"[[policy.rule]]\ntool = \"bash\"\ndecision = \"allow\"\ncommand = [\"git\"]\nmatch = [\"ls\"]\n",
			"FILE:5: rule 1: match",
		},
		{
			"a wait that is none", nil, nil, "[policy]\napproval_timeout = \"soon\"\n",
			"FILE:2: policy.approval_timeout: got soon, want a time",
		},
		{"no patterns", nil, nil, "[policy]\nallow = 1\n", "FILE:2: policy.allow: got 1, want an array of strings"},
		{"hiding nothing", nil, nil, "[sandbox]\nhide = [\"\"]\n", "FILE:2: sandbox.hide: is empty"},
		{
			"hiding what lies nowhere", nil, nil, "[sandbox]\nhide = [\"~/a\", \"secrets\"]\n",
			"FILE:2: sandbox.hide: got secrets, want a path that begins with / or ~/",
		},
		{
			"hiding by a variable", nil, nil, "[sandbox]\nhide = [\"$HOME/secret\"]\n",
			"FILE:2: sandbox.hide: got $HOME/secret, want a path that begins with / or ~/",
		},
		{
			"hiding another user's", nil, nil, "[sandbox]\nhide = [\"~else/x\"]\n",
			"FILE:2: sandbox.hide: got ~else/x, want a path that begins with / or ~/",
		},
		{
			"reading all", nil, nil, "[sandbox]\nread = [\"/\"]\n",
			"FILE:2: sandbox.read: / has all that is hidden in the home folder: name the paths in it that tools may read",
		},
		{
			"reading what is the daemon's", nil, nil, "[sandbox]\nread = [\"tools.d\"]\n",
			"FILE:2: sandbox.read: DIR/tools.d is the daemon's own, which no tool in the sandbox reads",
		},
		{
			"hiding everything", nil, nil, "[sandbox]\nhide = [\"/\"]\n",
			"FILE:2: sandbox.hide: nothing could be read without /",
		},
		{"no network", nil, nil, "[sandbox]\nnetwork = 0\n", "FILE:2: sandbox.network: got 0, want true or false"},
		{"a key of the sandbox", nil, nil, "[sandbox]\nwrite = []\n", "FILE:2: sandbox.write: there is no such key"},
		{"no boolean", nil, nil, "builtin_tools = \"no\"\n", "FILE:1: builtin_tools: got no, want true or false"},
		{
			"a module without a name",
			[]string{"--model", "module"},
			nil, "",
			"--model: want module/NAME, the name of a provider module's descriptor",
		},
		{"no section", nil, nil, "model = \"offline\"\n", "FILE:1: model: want a section"},
		{"another type", nil, nil, "socket = 5\n", "FILE:1: socket: got 5, want a string"},
		{"another type in a list", nil, nil, "tools_dir = [\"a\", 5]\n", "FILE:1: tools_dir: got 5, want a string"},
		{"no list", nil, nil, "tools_dir = true\n", "FILE:1: tools_dir: got true, want an array of strings"},
		{"empty in the file", nil, nil, "\nstate_dir = \"\"\n", "FILE:2: state_dir: is empty"},
		{"empty flag", []string{"--socket", ""}, nil, "", "--socket: is empty"},
		{"empty flag in a list", []string{"--tools-dir", ""}, nil, "", "--tools-dir: is empty"},
		{
			"no size",
			[]string{"--max-line", "16 megs"},
			nil, "",
			`--max-line: "16 megs" is no size, want bytes as in 4194304, 4096KiB or 4MiB`,
		},
		{"a negative size", []string{"--max-line", "-1"}, nil, "", `--max-line: "-1" is no size`},
		{"a size without number", nil, map[string]string{"NOUSED_MAX_LINE": "MiB"}, "", `NOUSED_MAX_LINE: "MiB" is no size`},
		{"a size of the wrong suffix", []string{"--max-line", "16MB"}, nil, "", `--max-line: "16MB" is no size`},
		{
			"a size beyond counting",
			[]string{"--max-line", "9999999999GiB"},
			nil, "",
			`--max-line: "9999999999GiB" is no size`,
		},
		{"a small size", []string{"--max-line", "1023"}, nil, "", "--max-line: 1023 is out of bounds, want 1KiB to 1GiB"},
		{
			"a large size", nil,
			map[string]string{"NOUSED_MAX_LINE": "2GiB"},
			"",
			"NOUSED_MAX_LINE: 2GiB is out of bounds, want 1KiB to 1GiB",
		},
		{
			"a small size in the file", nil, nil, "event_buffer = 1\n",
			"FILE:1: event_buffer: 1 is out of bounds, want 64KiB to 16GiB",
		},
		{"a fraction for a size", nil, nil, "event_buffer = 1.5\n", "FILE:1: event_buffer: got 1.5, want a size"},
		{
			"no duration",
			[]string{"--drain-timeout", "10"},
			nil, "",
			`--drain-timeout: "10" is no duration, want one like 500ms, 10s or 1m30s`,
		},
		{"a number for a duration", nil, nil, "drain_timeout = 10\n", "FILE:1: drain_timeout: got 10, want a string"},
		{
			"a long duration", nil,
			map[string]string{"NOUSED_DRAIN_TIMEOUT": "2h"},
			"",
			"NOUSED_DRAIN_TIMEOUT: 2h is out of bounds, want 0s to 1h0m0s",
		},
		{
			"a negative delay", nil, nil, "[model]\ndelay = \"-1s\"\n",
			"FILE:2: model.delay: -1s is out of bounds, want 0s to 24h0m0s",
		},
		{
			"no level",
			[]string{"--log-level", "loud"},
			nil, "",
			`--log-level: there is no level "loud", only debug, info, warn and error`,
		},
		{
			"no provider",
			[]string{"--model", "opnai/gpt"},
			nil, "",
			`--model: there is no provider "opnai"; near it are openai, `,
		},
		{
			"no provider in the file", nil, nil, "[model]\nprovider = \"nobody\"\n",
			`FILE:2: model.provider: there is no provider "nobody"; near it are `,
		},
		{"another name", nil, nil, "[model]\nname = \"gpt\"\n", `FILE:2: model.name: there is no model.provider that has it`},
		{"a workdir that is missing", []string{"--workdir", "/nowhere"}, nil, "", "--workdir: /nowhere is not a folder"},
		{
			"a workdir that is a file", nil, nil, "workdir = \"config.toml\"\n",
			"FILE:1: workdir: DIR/config.toml is not a folder",
		},
		{"two errors: the first", []string{"--max-line", "x"}, nil, "socket = 5\n", "FILE:1: socket: got 5, want a string"},
	} {
		cfg, home, err := resolve(t, c.args, c.env, c.file)
		dir := filepath.Join(home, ".config", "noused")
		want := strings.NewReplacer("FILE", filepath.Join(dir, "config.toml"), "DIR", dir).Replace(c.want)
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %+v, error %v\nwant error %s", c.name, cfg, err, want)
		}
	}
}

func TestUnreadableDefaultConfig(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "noused", "config.toml")
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
	_, _, err := resolve(t, nil, map[string]string{"XDG_CONFIG_HOME": dir}, "")
	if want := "configuration: open " + path + ": is not a regular file"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// A file that is none would be waited for at every start, or read for ever.
func TestAConfigurationThatIsNoFileHoldsNothingUp(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "noused", "config.toml")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err := resolve(t, nil, map[string]string{"XDG_CONFIG_HOME": dir}, "")
	if want := "configuration: open " + path + ": is not a regular file"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/zero", path); err != nil {
		t.Fatal(err)
	}
	if _, _, err := resolve(t, nil, map[string]string{"XDG_CONFIG_HOME": dir}, ""); err == nil ||
		!strings.Contains(err.Error(), "is not a regular file") {
		t.Errorf("got %v for a link to /dev/zero", err)
	}
}

// What is wrong with [notify] is said with its place.
func TestConfigOfNotify(t *testing.T) {
	for text, want := range map[string]string{
		`command = "notify-send"`:                 "notify.command: got notify-send, want an array",
		`command = []`:                            "notify.command: got [], want an array",
		`command = ["x"]` + "\n" + `on = ["end"]`: `notify.on: there is no event "end", only approval, run_end, run_error`,
		`command = ["x"]` + "\n" + `after = "1"`:  `notify.after: "1" is no duration`,
		`shell = "x"`:                             "notify.shell: there is no such key",
	} {
		path := filepath.Join(t.TempDir(), "config.toml")
		if err := os.WriteFile(path, []byte("[notify]\n"+text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		fs := pflag.NewFlagSet("noused", pflag.ContinueOnError)
		registerFlags(fs)
		if err := fs.Parse([]string{"--config", path}); err != nil {
			t.Fatal(err)
		}
		if _, err := resolveConfig(fs, func(string) string {
			return ""
		}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

// Nobody is warned of what a daemon has by itself, in the home folder: there tools can
// change none of its files.
func TestFilesThatToolsCanChange(t *testing.T) {
	for args, want := range map[string]string{
		"":                          "",
		"--tools-dir HOME/my/tools": "my/tools",
		"--socket HOME/s --debug-socket HOME/d/s":          "s d/s",
		"--workdir HOME/.config":                           "",
		"--workdir HOME/.config/noused":                    ".config/noused/tools.d",
		"--workdir HOME/.config --tools-dir HOME/my/tools": "",
	} {
		cfg, home, err := resolve(t, append([]string{"--workdir", "HOME"}, strings.Fields(args)...),
			map[string]string{"XDG_RUNTIME_DIR": "/run/user/4711"}, "log_level = 'info'\n")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, path := range exposed(cfg) {
			got = append(got, strings.TrimPrefix(path, home+"/"))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: got %q, want %q", args, got, want)
		}
	}
}
