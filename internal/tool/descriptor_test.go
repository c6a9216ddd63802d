package tool

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"noused/internal/proc"
	"noused/internal/tool/tooltest"
)

const minimal = `"name":"t","kind":"tool","capabilities":[],"transport":{"type":"stdio","command":["./t"]}`

func parse(text string, environ ...string) (*Descriptor, error) {
	return ParseDescriptor([]byte(text), "/etc/tools", "/work", environ)
}

func TestABrokenDescriptorNamesItsField(t *testing.T) {
	narratoria := `"name":"t","kind":"tool","protocol":"narratoria","capabilities":[],"transport":{"type":"stdio","command":["t"]},`
	for _, c := range []struct{ text, want string }{
		{`{`, "not valid JSON"},
		{`[]`, "JSON array"},
		{`{"name":"a","name":"b"}`, "duplicate"},
		{`{"kind":"tool"}`, "name: missing"},
		{`{"name":7}`, "name: cannot be a JSON number"},
		{`{"name":"a b"}`, "name: "},
		{`{"name":"t"}`, "kind: missing"},
		{`{"name":"t","kind":"spoon"}`, `kind: got "spoon", want one of provider, tool`},
		{`{"name":"t","kind":"tool","protocol":"smoke"}`, `protocol: got "smoke"`},
		{`{"name":"t","kind":"agent","protocol":"narratoria"}`, `kind: got "agent"`},
		{`{"name":"t","kind":"hook","protocol":"gevals"}`, `kind: got "hook"`},
		{`{"name":"t","kind":"tool"}`, "transport: missing"},
		{`{"name":"t","kind":"tool","transport":"stdio"}`, "transport: cannot be a JSON string"},
		{`{"name":"t","kind":"tool","transport":{}}`, "transport.type: missing"},
		{`{"name":"t","kind":"tool","transport":{"type":"pigeon"}}`, `transport.type: got "pigeon"`},
		{`{"name":"t","kind":"tool","transport":{"type":"stdio"}}`, "transport.command: missing"},
		{
			`{"name":"t","kind":"tool","transport":{"type":"stdio","command":"t"}}`,
			"transport.command: cannot be a JSON string",
		},
		{
			`{"name":"t","kind":"tool","transport":{"type":"stdio","command":["t",1]}}`,
			"transport.command.1: cannot be a JSON number",
		},
		{`{"name":"t","kind":"tool","transport":{"type":"stdio","command":[""]}}`, "transport.command[0]: "},
		{`{"name":"t","kind":"tool","transport":{"type":"http"}}`, "transport.url: missing"},
		{`{"name":"t","kind":"tool","transport":{"type":"http","url":"ftp://x"}}`, "transport.url scheme: got"},
		{`{"name":"t","kind":"tool","protocol":"gevals","headers":{}}`, "headers: belongs to protocol mcp"},
		{`{"name":"t","kind":"agent","protocol":"mcp"}`, `kind: got "agent"`},
		{
			`{"name":"t","kind":"tool","protocol":"mcp","transport":{"type":"sse","url":"https://a/sse"}}`,
			`transport.type: "sse" is the older transport`,
		},
		{
			`{"name":"t","kind":"tool","protocol":"mcp","transport":{"type":"http","url":"unix:/a"}}`,
			`transport.url scheme: got "unix"`,
		},
		{`{"name":"t","kind":"tool","protocol":"mcp","trust":"some"}`, `trust: got "some"`},
		{`{"name":"t","kind":"tool","protocol":"mcp","headers":{"a b":"c"}}`, `headers: "a b" is no name`},
		{`{"name":"t","kind":"tool","protocol":"mcp","headers":{"a":"c\nd"}}`, `headers.a: has a control character`},
		{
			`{"name":"t","kind":"tool","protocol":"gevals","transport":{"type":"http","url":"http://x"}}`,
			"transport.type: protocol gevals",
		},
		{`{"name":"t","kind":"tool","transport":{"type":"stdio","command":["t"]}}`, "capabilities: missing"},
		{`{` + minimal + `,"capabilities":1}`, "capabilities"},
		{`{` + strings.TrimSuffix(narratoria, ",") + `}`, "operations: missing"},
		{`{` + narratoria + `"operations":{}}`, "operations: missing"},
		{`{` + narratoria + `"operations":[]}`, "operations: cannot be a JSON array"},
		{
			`{` + narratoria + `"operations":{"x":{"params":{"type":"strng"}}}}`,
			"operations.x.params: not a JSON Schema: /type",
		},
		{`{` + narratoria + `"operations":{"x":{"params":{"$ref":"file:///etc/passwd"}}}}`, "operations.x.params"},
		{`{` + minimal + `,"env":{"A":1}}`, "env.A: cannot be a JSON number"},
		{`{` + minimal + `,"env":{"A=B":"x"}}`, "env: "},
		{`{` + minimal + `,"env":{"NOTIFY_SOCKET":"x"}}`, "env.NOTIFY_SOCKET: "},
		{`{` + minimal + `,"env":{"LISTEN_FDS":"x"}}`, "env.LISTEN_FDS: "},
		{`{` + minimal + `,"config":[]}`, "config: want an object"},
		{`{` + minimal + `,"timeout":30}`, "timeout: cannot be a JSON number"},
		{`{` + minimal + `,"timeout":"soon"}`, `timeout: got "soon"`},
		{`{` + minimal + `,"timeout":"-1s"}`, "timeout: "},
		{`{` + minimal + `,"concurrency":0}`, "concurrency: got 0"},
		{`{` + minimal + `,"max_output":"1"}`, "max_output: "},
		{`{` + minimal + `,"framing":"xml"}`, "framing: "},
		{`{` + minimal + `,"sandbox":"chroot"}`, "sandbox: "},
		{`{` + minimal + `,"sandbox_write":"x"}`, "sandbox_write: "},
	} {
		d, err := parse(c.text)
		if err == nil {
			t.Errorf("%s: got %+v, want an error with %q", c.text, d, c.want)
		} else if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %q, want %q in it", c.text, err, c.want)
		}
	}
}

func TestADescriptorsDefaults(t *testing.T) {
	d, err := parse(`{`+minimal+`,"unknown":{"future":1},"config":null,"env":{"T":"a{env.KEY}b{env.NONE}"}}`,
		"KEY=secret", "PATH=/bin", "LC_ALL=C", "OPENAI_API_KEY=x")
	if err != nil {
		t.Fatal(err)
	}
	if d.Protocol != Amplifier || d.Timeout != 30*time.Second || d.MaxOutput != 1<<20 || d.Concurrency != 1 ||
		d.Framing != FramingFlat || d.Sandbox != SandboxNone || d.Workdir != "/work" || !d.SandboxRequired {
		t.Errorf("got %+v, want the defaults", d)
	}
	if got := d.Transport.Command[0]; got != "/etc/tools/t" {
		t.Errorf("got command %q, want it relative to the descriptor's file", got)
	}
	if got, want := d.Environ(), []string{"LC_ALL=C", "PATH=/bin", "T=asecretb"}; !slices.Equal(got, want) {
		t.Errorf("got environment %q, want %q", got, want)
	}
}

// A descriptor may have more than we know (amplifier-protocols §1), and each such field is named: it
// may be a misspelt one that guards something.
func TestFieldsThatDoNothingAreNamed(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
	}{
		{`{` + minimal + `}`, nil},
		{`{` + minimal + `,"$schema":"https://x","config":{"sandbx":1},"env":{"sandbx":"1"},"operations":{"sandbx":` +
			`{"params":{"type":"object","x-mine":1}}}}`, nil},
		{`{` + minimal + `,"zeal":1,"Sandbox":"workdir","sandbx":"workdir"}`, []string{
			"Sandbox does nothing: there is no such field, did you mean sandbox or sandbox_write or sandbox_required?",
			"sandbx does nothing: there is no such field, did you mean sandbox?",
			"zeal does nothing: there is no such field",
		}},
		{`{"name":"t","kind":"tool","capabilities":[],"transport":{"type":"stdio","command":["./t"],"sandbox":"workdir"},` +
			`"operations":{"a":{"param":{}},"b":null}}`, []string{
			"operations.a.param does nothing: there is no such field, did you mean params?",
			"transport.sandbox does nothing: there is no such field",
		}},
	} {
		d, err := parse(c.text)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(d.Ignored, c.want) {
			t.Errorf("%s: got %q, want %q", c.text, d.Ignored, c.want)
		}
	}
}

func TestCommandsAreFoundInTheModulesOwnPath(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "gadget"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "text"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	load := func(command string) (proc.Command, error) {
		d, err := ParseDescriptor([]byte(
			`{"name":"t","kind":"tool","capabilities":[],"transport":{"type":"stdio","command":["`+
				command+`"]},"env":{"PATH":"`+dir+`"}}`), dir, dir, []string{"PATH=/bin"})
		if err != nil {
			t.Fatal(err)
		}
		return d.Command()
	}
	for _, name := range []string{"gadget", "./gadget"} {
		if c, err := load(name); err != nil || c.Path != filepath.Join(dir, "gadget") {
			t.Errorf("%s: got %q, %v", name, c.Path, err)
		}
	}
	for name, reason := range map[string]string{
		"sh": "not found in PATH", "./text": "is not executable",
		"./none": "no such file",
	} {
		if _, err := load(name); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: got %v, want %q", name, err, reason)
		}
	}
}

// Outside the sandbox no program is found where sandboxed ones may write, unless the
// user has written that PATH; in it all are.
func TestAPlantedProgramIsNoModules(t *testing.T) {
	folder, own := t.TempDir(), t.TempDir()
	for _, dir := range []string{folder, own} {
		if err := os.WriteFile(filepath.Join(dir, "gadget"), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	command := func(path, more string) (path2, env string) {
		t.Helper()
		d, err := ParseDescriptor([]byte(`{"name":"t","kind":"tool","capabilities":[],"transport":{"type":"stdio",`+
			`"command":["gadget"]}`+more+`}`), own, own, []string{"PATH=" + path})
		if err != nil {
			t.Fatal(err)
		}
		c, err := d.In(folder).Command()
		if err != nil {
			return err.Error(), ""
		}
		return filepath.Dir(c.Path), lookup(c.Env, "PATH")
	}
	both := folder + ":bin:" + own
	for what, c := range map[string]struct{ path, more, from, env string }{
		"outside":        {path: both, from: own, env: own},
		"nowhere else":   {path: folder, from: "which tools in the sandbox can write to"},
		"in the sandbox": {path: both, more: `,"sandbox":"workdir"`, from: folder, env: both},
		"its own PATH":   {path: "/bin", more: `,"env":{"PATH":"` + both + `"}`, from: folder, env: both},
	} {
		if from, env := command(c.path, c.more); !strings.Contains(from, c.from) || env != c.env {
			t.Errorf("%s: runs %s with PATH=%s, want %s with %s", what, from, env, c.from, c.env)
		}
	}
}

func TestALinkedDescriptorFindsItsProgram(t *testing.T) {
	home, tools := t.TempDir(), t.TempDir()
	tooltest.New(t, "linked", "narratoria", "early").
		Set("transport", map[string]any{"type": "stdio", "command": []string{"./program"}}).Write(t, home)
	if err := os.Symlink(filepath.Join(home, "linked.json"), filepath.Join(tools, "linked.json")); err != nil {
		t.Fatal(err)
	}
	d, err := LoadDescriptor(filepath.Join(tools, "linked.json"), home, nil)
	if err != nil || d.Transport.Command[0] != filepath.Join(home, "program") {
		t.Errorf("got %+v, %v, want the program beside the real file", d, err)
	}
}

func TestAToolSeesOnlyTheAllowedEnvironment(t *testing.T) {
	d, err := parse(`{`+minimal+`,"env":{"`+tooltest.Mode+`":"env"}}`,
		"ANTHROPIC_API_KEY=sk-secret", "NOTIFY_SOCKET=/run/x", "LISTEN_FDS=2", "WATCHDOG_USEC=1",
		"HOME=/root", "PATH=/bin:/usr/bin", "LC_TIME=C", "XDG_DATA_HOME=/d", "SSH_AUTH_SOCK=/x")
	if err != nil {
		t.Fatal(err)
	}
	self, s := tooltest.Self(t), proc.NewSupervisor("", zap.NewNop())
	defer s.Close()
	p, err := s.Start(t.Context(), proc.Command{
		Name: "env", Path: self, Args: []string{self}, Env: d.Environ(),
		MaxLine: 1 << 16,
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line, err := p.Next(); err == nil; line, err = p.Next() {
		if !strings.HasPrefix(string(line), marked+"=") {
			got = append(got, string(line))
		}
	}
	p.Wait()
	slices.Sort(got)
	want := []string{"HOME=/root", "LC_TIME=C", tooltest.Mode + "=env", "PATH=/bin:/usr/bin", "XDG_DATA_HOME=/d"}
	if !slices.Equal(got, want) {
		t.Errorf("the tool got %q, want %q", got, want)
	}
}
