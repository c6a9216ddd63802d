package registry

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sys/unix"

	"noused/internal/mcpfile"
	"noused/internal/model"
	"noused/internal/tool"
	"noused/internal/tool/mcp"
	"noused/internal/tool/tooltest"
)

// started is the file where a server notes, in its folder, that it was started.
const started = "started"

// serveMCP is an MCP server whose tool says for which folder it runs, and what A is.
func serveMCP() int {
	if dir := os.Getenv(tool.WorkdirVariable); dir != "" {
		if err := os.Chdir(dir); err != nil {
			return 1
		}
	}
	tooltest.Append(started, "start")
	tooltest.Hold()
	s := sdk.NewServer(&sdk.Implementation{Name: "server", Version: "1"}, nil)
	sdk.AddTool(s, &sdk.Tool{Name: "where"}, func(context.Context, *sdk.CallToolRequest, struct{}) (*sdk.CallToolResult,
		any, error,
	) {
		dir, err := os.Getwd()
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: dir + " " + os.Getenv("A")}}}, nil, err
	})
	if err := s.Run(context.Background(), &sdk.StdioTransport{}); err != nil {
		return 1
	}
	return 0
}

// servers is a registry of MCP servers, with the folders that it reads.
type servers struct {
	*Registry
	t               *testing.T
	config, workdir string
}

func withServers(t *testing.T, own string) *servers {
	t.Helper()
	s := &servers{t: t, config: t.TempDir(), workdir: t.TempDir()}
	s.write(filepath.Join(s.config, mcpfile.Name), own)
	s.Registry = New(Options{
		ConfigDir: s.config, Workdir: s.workdir, OutputDir: t.TempDir(), Environ: append(os.Environ(), "SET=value"),
		Dialects: map[string]tool.Dialect{tool.MCP: mcp.Dialect(mcp.Options{Version: "test", OutputDir: t.TempDir()})},
	})
	t.Cleanup(func() { s.Close(context.Background()) })
	return s
}

func (s *servers) write(path, text string) {
	s.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// entry is one whose server is the test binary.
func (s *servers) entry(name, a string) string { return entry(s.t, name, a) }

func entry(t *testing.T, name, a string) string {
	return fmt.Sprintf(`%q: {"command": %q, "env": {%q: "server", "A": %q}}`, name, tooltest.Self(t), tooltest.Mode, a)
}

func (s *servers) call(from model.Scope, name string) model.ToolResult {
	inv := tooltest.Invocation(name, "{}")
	inv.Scope, inv.Allowed = from, true
	return s.Call(s.t.Context(), inv, nil)
}

// trust says yes to a folder's file as it is.
func (s *servers) trust(folder string) {
	s.t.Helper()
	text, err := mcpfile.ReadProject(folder)
	if err == nil {
		err = mcpfile.Trust(s.config, folder, mcpfile.Hash(text), time.Now())
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// state is what people learn of a server.
func (s *servers) state(from model.Scope, name string) (found model.ServerInfo) {
	for _, i := range s.Servers(from) {
		if i.Name == name {
			return i
		}
	}
	return found
}

func (s *servers) wasStarted(folder string) bool {
	_, err := os.Stat(filepath.Join(folder, started))
	return err == nil
}

// The user's own file: what it says of each server, what is wrong with an entry, and
// that a file which has become unusable costs nothing that is there.
func TestServersOfTheUser(t *testing.T) {
	s := withServers(t, "")
	path := filepath.Join(s.config, mcpfile.Name)
	s.write(path, "{\"mcpServers\": {\n"+s.entry("git", "${SET}")+
		",\n\"off\": {\"command\": \"x\", \"disabled\": true},\n"+
		"\"unset\": {\"command\": \"x\", \"args\": [\"${NONE}\"]},\n\"old\": {\"type\": \"sse\", \"url\": "+
		"\"https://h\"},\n\"env\": {\"command\": \"x\", \"env\": {\"NOTIFY_SOCKET\": \"y\"}}}}")
	if c := s.Reload(); !slices.Equal(c.Added, []string{"git"}) || len(c.Errors) != 3 {
		t.Fatalf("got %+v", c)
	}
	from := model.Scope{SessionID: "ses-1", Workdir: t.TempDir()}
	for name, want := range map[string]string{
		"git": "configured ", "off": " ",
		"unset": "failed " + path + ":4: /mcpServers/unset/args/0: the variable NONE is not set in the daemon's environment",
		"old":   "failed " + path + ":5: /mcpServers/old/type: sse is not spoken",
		"env": "failed " + path +
			":6: /mcpServers/env: env.NOTIFY_SOCKET: belongs to the daemon and is never handed to a tool",
	} {
		i := s.state(from, name)
		if got := i.State + " " + i.Message; !strings.HasPrefix(got, want) || i.Workdir != "" {
			t.Errorf("%s: got %+v, want %s", name, i, want)
		}
	}
	if r := s.call(from, "git.where"); r.Text != from.Workdir+" value" {
		t.Errorf("got %+v", r)
	}
	if i := s.state(from, "git"); i.State != model.ServerReady || i.Tools != 1 {
		t.Errorf("got %+v", i)
	}
	s.write(path, "{")
	if c := s.Reload(); len(c.Errors) != 1 || len(c.Added)+len(c.Changed)+len(c.Removed) > 0 {
		t.Errorf("got %+v", c)
	}
	if r := s.call(from, "git.where"); !r.OK {
		t.Errorf("got %+v", r)
	}
	s.write(path, "{\"mcpServers\": {"+s.entry("git", "other")+"}}")
	if c := s.Reload(); !slices.Equal(c.Changed, []string{"git"}) || len(c.Errors) > 0 {
		t.Errorf("got %+v", c)
	}
	if r := s.call(from, "git.where"); r.Text != from.Workdir+" other" {
		t.Errorf("got %+v", r)
	}
}

// What a folder's file names is not started before the user trusts it, is there for that
// folder alone, and not any more once the file is another: at once, no matter who reloads.
func TestServersOfAProject(t *testing.T) {
	s := withServers(t, "{\"mcpServers\": {"+entry(t, "mine", "own")+"}}")
	here, other := model.Scope{SessionID: "ses-1", Workdir: t.TempDir()},
		model.Scope{SessionID: "ses-2", Workdir: t.TempDir()}
	file := mcpfile.Project(here.Workdir)
	s.write(file, "{\"mcpServers\": {"+s.entry("theirs", "${SET}")+", "+s.entry("mine", "theirs")+"}}")
	if s.state(here, "theirs").State != model.ServerUntrusted || s.state(here, "theirs").Workdir != here.Workdir ||
		s.state(other, "theirs").Name != "" {
		t.Errorf("got %+v", s.Servers(here))
	}
	r := s.call(here, "theirs.where")
	if r.Error == nil || r.Error.Code != tool.Forbidden || !strings.Contains(r.Error.Message, "nous mcp trust") ||
		s.wasStarted(here.Workdir) {
		t.Errorf("before it is trusted: %+v", r)
	}
	s.trust(here.Workdir)
	if r := s.call(here, "theirs__where"); r.Text != here.Workdir+" value" {
		t.Errorf("trusted: %+v", r)
	}
	if r := s.call(here, "mine.where"); r.Text != here.Workdir+" own" {
		t.Errorf("the user's own server of that name is not the one: %+v", r)
	}
	if r := s.call(other, "theirs.where"); r.Error == nil || r.Error.Code != tool.UnsupportedOp ||
		s.wasStarted(other.Workdir) {
		t.Errorf("from elsewhere: %+v", r)
	}
	for _, i := range s.List(t.Context(), other) {
		if i.Module == "theirs" {
			t.Errorf("elsewhere is %+v", i)
		}
	}
	s.write(file, "{\"mcpServers\": {"+s.entry("theirs", "changed")+"}}")
	if r := s.call(here, "theirs.where"); r.Error == nil || r.Error.Code != tool.Forbidden {
		t.Errorf("the file has changed: %+v", r)
	}
	if i := s.state(here, "theirs"); i.State != model.ServerUntrusted {
		t.Errorf("the file has changed: %+v", i)
	}
	s.trust(here.Workdir)
	if r := s.call(here, "theirs.where"); r.Text != here.Workdir+" changed" {
		t.Errorf("trusted again: %+v", r)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if r := s.call(here, "theirs.where"); r.Error == nil || r.Error.Code != tool.UnsupportedOp {
		t.Errorf("the file is gone: %+v", r)
	}
}

// A server that was trusted is ended once its folder's file is another: with its last
// call, and nothing of it is left.
func TestAChangedProjectEndsItsServers(t *testing.T) {
	s := withServers(t, "")
	here := model.Scope{SessionID: "ses-1", Workdir: t.TempDir()}
	fifo, held := tooltest.NewFIFO(t)
	s.write(mcpfile.Project(here.Workdir),
		fmt.Sprintf(`{"servers": {"x": {"command": %q, "env": {%q: "server", %q: %q}}}}`, tooltest.Self(t), tooltest.Mode,
			tooltest.FIFO, fifo))
	s.trust(here.Workdir)
	done := make(chan model.ToolResult)
	go func() { done <- s.call(here, "x.where") }()
	released := held()
	if r := <-done; !r.OK {
		t.Fatalf("got %+v", r)
	}
	s.write(mcpfile.Project(here.Workdir), `{}`)
	s.List(t.Context(), here)
	released()
}

// The file of a folder is a stranger's. Whatever it is, it costs one line in a list,
// and no server, no call and no folder anything.
func TestAStrangersProject(t *testing.T) {
	s := withServers(t, "{\"mcpServers\": {"+entry(t, "mine", "own")+"}}")
	for name, put := range map[string]func(path string) error{
		"link": func(path string) error { return os.Symlink(filepath.Join(s.config, mcpfile.Name), path) },
		"fifo": func(path string) error { return unix.Mkfifo(path, 0o600) },
		"dir":  func(path string) error { return os.Mkdir(path, 0o700) },
		"huge": func(path string) error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40)) },
		"deep": func(path string) error { return os.WriteFile(path, []byte(strings.Repeat(`{"a":`, 1<<16)), 0o600) },
		"names": func(path string) error {
			return os.WriteFile(path, []byte(`{"servers":{"a.b":{"command":"x"}}}`), 0o600)
		},
		"text": func(path string) error { return os.WriteFile(path, []byte("servers: none"), 0o600) },
		"trust": func(path string) error {
			return os.WriteFile(path, []byte(`{"servers":{"x":{"command":"y","trust":"all"},"z":{"command":"${NONE}"}}}`), 0o600)
		},
	} {
		here := model.Scope{SessionID: "ses-1", Workdir: t.TempDir()}
		if err := put(mcpfile.Project(here.Workdir)); err != nil {
			t.Fatal(err)
		}
		list := s.Servers(here)
		bad := slices.ContainsFunc(list, func(i model.ServerInfo) bool {
			return (i.State == model.ServerFailed || i.State == model.ServerUntrusted) && i.Message != "" &&
				i.Workdir == here.Workdir
		})
		if !bad {
			t.Errorf("%s: got %+v", name, list)
		}
		if r := s.call(here, "mine.where"); r.Text != here.Workdir+" own" {
			t.Errorf("%s: the user's server: %+v", name, r)
		}
	}
}

// A project cannot say of itself that its tools need no approval.
func TestAProjectGivesItselfNoLeave(t *testing.T) {
	s := withServers(t, "")
	here := model.Scope{SessionID: "ses-1", Workdir: t.TempDir()}
	s.write(mcpfile.Project(here.Workdir), strings.Replace("{\"mcpServers\": {"+s.entry("x", "")+"}}", `"env"`,
		`"trust": "all", "env"`, 1))
	s.trust(here.Workdir)
	s.call(here, "x.where")
	inv := tooltest.Invocation("x.where", "{}")
	inv.Scope = here
	if v := s.Judge(inv, "ask", nil); v.Decision != model.Ask {
		t.Errorf("got %+v, want a question", v)
	}
}

// Servers that came with a session are there for it alone, and end with it.
func TestServersOfASession(t *testing.T) {
	s := withServers(t, "")
	fifo, held := tooltest.NewFIFO(t)
	server := model.Server{Name: "editors", Command: tooltest.Self(t), Env: map[string]string{
		tooltest.Mode: "server",
		"A":           "${SET}", tooltest.FIFO: fifo,
	}}
	folder := t.TempDir()
	here := model.Scope{
		SessionID: "ses-1", Workdir: folder,
		Servers: []model.Server{server, {Name: "bad name", Command: "x"}},
	}
	done := make(chan model.ToolResult)
	go func() { done <- s.call(here, "editors.where") }()
	released := held()
	if r := <-done; r.Text != folder+" ${SET}" { // as it was given
		t.Errorf("got %+v", r)
	}
	if i := s.state(here, "editors"); i.State != model.ServerReady || i.Workdir != folder || i.Tools != 1 {
		t.Errorf("got %+v", i)
	}
	other := model.Scope{SessionID: "ses-2", Workdir: folder}
	if r := s.call(other, "editors.where"); r.Error == nil || r.Error.Code != tool.UnsupportedOp {
		t.Errorf("another session in that folder: %+v", r)
	}
	s.EndSession(t.Context(), "ses-2")
	if i := s.state(here, "editors"); i.State != model.ServerReady {
		t.Errorf("another session has ended: %+v", i)
	}
	s.EndSession(t.Context(), "ses-1")
	released()
	for _, c := range []struct {
		server model.Server
		want   string
	}{
		{server, ""},
		{model.Server{Name: "a b", Command: "x"}, "name: "},
		{model.Server{Name: "a"}, "want a command, or a url"},
		{model.Server{Name: "a", Command: "x", Env: map[string]string{"NOTIFY_SOCKET": "x"}}, "env.NOTIFY_SOCKET: "},
		{model.Server{Name: "a", URL: "ftp://h"}, `url: got "ftp://h", want one that begins with https:// or http://`},
		{model.Server{Name: "a", URL: "https://h", Headers: map[string]string{"A": "b\nc"}}, "headers.A: "},
	} {
		if err := s.Check(c.server); c.want == "" && err != nil || c.want != "" &&
			(err == nil || !strings.HasPrefix(err.Error(), c.want)) {
			t.Errorf("%+v: got %v, want %s", c.server, err, c.want)
		}
	}
}

// However many folders there are, no more than so many are kept ready, and the one
// that is used stays.
func TestManyProjects(t *testing.T) {
	s := withServers(t, "")
	top := t.TempDir()
	first := model.Scope{SessionID: "ses-1", Workdir: filepath.Join(top, "first")}
	for i := range maxGroups + 20 {
		from := first
		if i > 0 {
			from.Workdir = filepath.Join(top, fmt.Sprint(i))
		}
		if err := os.Mkdir(from.Workdir, 0o700); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(map[string]any{"servers": map[string]any{"x": map[string]any{"command": "y"}}})
		if err != nil {
			t.Fatal(err)
		}
		s.write(mcpfile.Project(from.Workdir), string(text))
		if s.state(from, "x").State != model.ServerUntrusted || s.state(first, "x").State != model.ServerUntrusted {
			t.Fatalf("in %s is %+v", from.Workdir, s.Servers(from))
		}
	}
	if n := len(s.groups.of); n != maxGroups || s.groups.of[first.Workdir] == nil {
		t.Errorf("%d are kept", n)
	}
}
