// Package daemontest starts a real noused for tests: a program that was built, in a
// folder of its own, which is ready when Start returns and gone when the test ends.
//
// Concurrency: a [Daemon] belongs to one goroutine; Gone may be waited for from any.
//
// It refuses to play a daemon: clienttest does, line by line.
package daemontest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"noused/internal/testenv"
)

// Build compiles a command of this module into dir and returns its path: as make build
// does, so that it finds compiled packages, and without what a debugger needs. Where make
// has built them for all packages, it is that in NOUSED_TEST_PROGRAMS.
func Build(dir, command string) (string, error) {
	if built := os.Getenv("NOUSED_TEST_PROGRAMS"); built != "" {
		return filepath.Join(built, command), nil
	}
	path := filepath.Join(dir, command)
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", path, "noused/cmd/"+command)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", command, err, out)
	}
	return path, nil
}

// Main is TestMain of packages that need a noused: it is built first, as *noused, and no
// goroutine may be left behind.
func Main(m *testing.M, noused *string) {
	dir, err := os.MkdirTemp("", "daemontest")
	if err == nil {
		*noused, err = Build(dir, "noused")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(testenv.M{M: m}, goleak.Cleanup(func(code int) {
		os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// Daemon is a real noused with a folder of its own, which it works in.
type Daemon struct {
	Dir     string
	Socket  string
	Program string
	Args    []string // after those that keep it to Dir

	Modelless bool            // nothing chooses a model for it
	Here      bool            // it works in the folder that it is started in
	Environ   func() []string // nil: Env
	Stderr    io.Writer       // nil: Log
	Log       bytes.Buffer    // for those who saw it end

	*Process // the last; nil before the first

	t testing.TB
}

// Start starts a daemon that New made.
func Start(t testing.TB, program, config string) *Daemon {
	t.Helper()
	d := New(t, program, config)
	d.Start()
	return d
}

// New prepares a daemon that is not started yet. Its configuration is what stands in
// config, its tools are those of Dir/tools. The test ends it.
func New(t testing.TB, program, config string, args ...string) *Daemon {
	t.Helper()
	d := Bare(t, program)
	d.Args = append([]string{"--config", filepath.Join(d.Dir, "noused.toml")}, args...)
	for _, name := range []string{"tools", "config/nous"} {
		if err := os.MkdirAll(filepath.Join(d.Dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	d.Write("noused.toml", config)
	d.Write("config/nous/config.toml", "autostart = false\n") // nobody would end it
	return d
}

// Bare prepares a daemon whose folder is empty. The test ends it.
func Bare(t testing.TB, program string, args ...string) *Daemon {
	t.Helper()
	dir, err := os.MkdirTemp("", "nous") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	d := &Daemon{t: t, Dir: dir, Socket: filepath.Join(dir, "s"), Program: program, Args: args}
	t.Cleanup(func() {
		d.Kill()
		if t.Failed() {
			t.Logf("the daemon's log:\n%s", d.Log.Bytes())
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return d
}

// Tool makes a tool with the one operation run, without parameters, out of a
// shell script. It works in the daemon's folder and speaks the protocol
// narratoria on its standard streams.
func (d *Daemon) Tool(name, script string) {
	d.t.Helper()
	d.Write("tools/"+name+".json", `{"name":"`+name+
		`","kind":"tool","protocol":"narratoria","version":"1","timeout":"10m","capabilities":["run"],
"transport":{"type":"stdio","command":["./`+name+`.sh"]},"operations":{"run":{"description":"`+name+`","params":{"type":"object"}}}}`)
	d.Write("tools/"+name+".sh", "#!/bin/sh\n"+script)
	if err := os.Chmod(filepath.Join(d.Dir, "tools", name+".sh"), 0o700); err != nil {
		d.t.Fatal(err)
	}
}

// Asker makes an MCP server with the one tool run, which asks its caller to fill in
// a form and returns what it was answered, as JSON. message is put into a JSON string.
func (d *Daemon) Asker(name, message, schema string) {
	d.t.Helper()
	d.Write("tools/"+name+".json", `{"name":"`+name+
		`","kind":"tool","protocol":"mcp","version":"1","trust":"all","capabilities":["run"],
"transport":{"type":"stdio","command":["./`+name+`.sh"]}}`)
	d.Write("form.json", schema)
	d.Write("tools/"+name+".sh", `#!/bin/sh
say() { printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$1" "$2"; }
while read -r line; do
	id=${line#*\"id\":}
	id=${id%%[,\}]*}
	case $line in
	*'"initialize"'*) say "$id" '"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"prompts":{},"resources":{}},"serverInfo":{"name":"form","version":"1"}}' ;;
	*'"tools/list"'*) say "$id" '"result":{"tools":[{"name":"run","inputSchema":{"type":"object"}}]}' ;;
	*'"tools/call"'*) call=$id
		say '"form"' '"method":"elicitation/create","params":{"message":"`+message+`","requestedSchema":'"$(tr -d '\n' <'`+
		d.Dir+`/form.json')"'}' ;;
	*'"form"'*) say "$call" '"result":{"content":[{"type":"text","text":"'"$(printf '%s' "$line" | sed 's/"/\\"/g')"'"}]}' ;;
	*'"prompts/list"'*) say "$id" '"result":{"prompts":[{"name":"review","description":"Looks at a file.","arguments":[{"name":"file"}]}]}' ;;
	*'"prompts/get"'*'"main.go"'*) say "$id" '"result":{"messages":[{"role":"user","content":{"type":"text","text":"Review it kindly."}}]}' ;;
	*'"prompts/get"'*) say "$id" '"error":{"code":-32602,"message":"not that file"}' ;;
	*'"resources/read"'*) say "$id" '"result":{"contents":[{"uri":"memo://a","text":"alpha and omega"}]}' ;;
	*'"ping"'*) say "$id" '"result":{}' ;;
	esac
done
`)
	if err := os.Chmod(filepath.Join(d.Dir, "tools", name+".sh"), 0o700); err != nil {
		d.t.Fatal(err)
	}
}

// Write writes a file of the daemon's folder, or into a Fifo there.
func (d *Daemon) Write(name, text string) {
	d.t.Helper()
	if err := os.WriteFile(filepath.Join(d.Dir, name), []byte(text), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

// Fifo makes a pipe with a name in the daemon's folder. A Write to it waits for
// its reader.
func (d *Daemon) Fifo(name string) {
	d.t.Helper()
	if err := syscall.Mkfifo(filepath.Join(d.Dir, name), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

// Env is the environment that keeps a program to the daemon's folder.
func (d *Daemon) Env(more ...string) []string {
	var env []string
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		switch {
		case strings.HasPrefix(name, "NOUSED_"), strings.HasPrefix(name, "XDG_"), strings.HasPrefix(name, "LC_"),
			strings.HasSuffix(name, "_API_KEY"):
		case name == "NO_COLOR", name == "COLORTERM", name == "COLORFGBG", name == "TMUX", name == "TERM_PROGRAM",
			name == "LANG", name == "CI":
		default:
			env = append(env, v)
		}
	}
	env = append(env, d.Model())
	return append(env, append([]string{
		"HOME=" + d.Dir, "XDG_CONFIG_HOME=" + filepath.Join(d.Dir, "config"), "XDG_STATE_HOME=" +
			filepath.Join(d.Dir, "xdgstate"),
		"XDG_RUNTIME_DIR=" + d.Dir, "NOUSED_SOCKET=" + d.Socket, "LANG=C.UTF-8", "TZ=UTC", "TERM=xterm-256color",
		"GORACE=atexit_sleep_ms=0",
	}, more...)...)
}

// Model is the variable that has the daemon answer with the offline model where nothing
// else chooses one.
func (d *Daemon) Model() string {
	if d.Modelless {
		return "NOUSED_MODEL="
	}
	path := filepath.Join(d.Dir, "noused", "config.toml")
	if i := slices.Index(d.Args, "--config"); i >= 0 {
		path = d.Args[i+1]
	}
	config, _ := os.ReadFile(path)
	return testenv.Model(string(config), d.Args...)
}

// Command is what Start runs: with these arguments, the program works in the daemon's
// folder, and on its state.
func (d *Daemon) Command(args ...string) *exec.Cmd {
	own := []string{
		"--socket", d.Socket, "--state-dir", filepath.Join(d.Dir, "state"), "--tools-dir", filepath.Join(d.Dir, "tools"),
	}
	if !d.Here {
		own = append(own, "--workdir", d.Dir)
	}
	cmd := exec.Command(d.Program, append(own, args...)...)
	if d.Environ != nil {
		cmd.Env = d.Environ()
	} else {
		cmd.Env = d.Env()
	}
	return cmd
}

// Start starts the daemon and returns when it is ready.
func (d *Daemon) Start() {
	d.t.Helper()
	cmd := d.Command(d.Args...)
	cmd.Stdout, cmd.Stderr = &d.Log, &d.Log
	if d.Stderr != nil {
		cmd.Stderr = d.Stderr
	}
	var err error
	if d.Process, err = Run(cmd); err != nil {
		d.t.Fatalf("%v\n%s", err, d.Log.Bytes())
	}
}

// Kill ends the daemon as a crash does, Stop as systemd does. Both return when it is
// gone.
func (d *Daemon) Kill() { d.end(syscall.SIGKILL) }

// Stop ends the daemon as systemd does.
func (d *Daemon) Stop() { d.end(syscall.SIGTERM) }

func (d *Daemon) end(sig os.Signal) {
	if d.Process == nil {
		return
	}
	var exit *exec.ExitError // is the business of those who start it with Run
	if err := d.End(sig); err != nil && !errors.As(err, &exit) {
		d.t.Error(err)
	}
}
