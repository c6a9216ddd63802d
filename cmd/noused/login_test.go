package main

import (
	"bufio"
	"bytes"
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"noused/internal/client"
	"noused/internal/oauth/oauthtest"
	"noused/internal/protocol"
)

// mcpTool is an MCP server over HTTP with one tool, protected by a login.
func mcpTool(t *testing.T) *oauthtest.Server {
	s := sdk.NewServer(&sdk.Implementation{Name: "s", Version: "1"}, nil)
	sdk.AddTool(s, &sdk.Tool{Name: "run"}, func(context.Context, *sdk.CallToolRequest, struct{}) (*sdk.CallToolResult, any,
		error,
	) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "did it"}}}, nil, nil
	})
	return oauthtest.Start(t, sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, nil))
}

// mcp runs `noused mcp` in the daemon's folders. page gets the page that a
// person is to open.
func (d *daemon) mcp(page func(string), args ...string) (out string, status int) {
	d.t.Helper()
	cmd := exec.Command("noused", append(append([]string{"mcp"}, args...),
		"--socket", d.Socket, "--state-dir", filepath.Join(d.Dir, "state"), "--workdir", d.Dir, "--tools-dir",
		filepath.Join(d.Dir, "tools"))...)
	cmd.Env, cmd.Dir = append(os.Environ(), "XDG_CONFIG_HOME="+d.Dir, "XDG_RUNTIME_DIR="+d.Dir), d.Dir
	said, err := cmd.StdoutPipe()
	if err != nil {
		d.t.Fatal(err)
	}
	var text, wrong bytes.Buffer
	cmd.Stderr = &wrong
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	for lines := bufio.NewScanner(said); lines.Scan(); {
		text.WriteString(lines.Text() + "\n")
		if address := strings.TrimSpace(lines.Text()); strings.HasPrefix(address, "http") {
			page(address)
		}
	}
	_ = cmd.Wait()
	return text.String() + wrong.String(), cmd.ProcessState.ExitCode()
}

// A server in mcp.json that wants a login says what to do, works in the daemon that
// runs as soon as somebody has logged in, and does not after a logout.
func TestALoginAtAnMCPServer(t *testing.T) {
	s := mcpTool(t)
	d := unstarted(t, "noused", "--model", "offline")
	d.write("noused/mcp.json", `{"mcpServers":{"docs":{"type":"http","url":"`+s.Resource+
		`","trust":"all"},"git":{"command":"true"}}}`, 0o600)
	d.Start()
	session := d.session(d.Dir)
	state := func(want string) (message string) {
		t.Helper()
		list, err := client.Call(t.Context(), d.dial(), protocol.ListTools,
			protocol.ListToolsParams{Scope: protocol.Scope{SessionID: session}})
		if err != nil {
			t.Fatal(err)
		}
		for _, server := range list.Servers {
			if server.Name == "docs" {
				if server.State != want {
					t.Errorf("the server is %s: %s; want %s", server.State, server.Message, want)
				}
				return server.Message
			}
		}
		t.Errorf("%+v has no docs", list.Servers)
		return ""
	}
	if r := d.extension(session, "docs.run", `{}`); r.OK {
		t.Errorf("got %+v before a login", r)
	}
	if said := state("needs_login"); !strings.Contains(said, `say "nous mcp login docs"`) {
		t.Errorf("it says %q", said)
	}
	yes := func(page string) {
		if _, err := oauthtest.Say(page); err != nil {
			t.Error(err)
		}
	}
	if out, status := d.mcp(yes, "login", "docs"); status != 0 ||
		!strings.Contains(out, "Logged in at docs, by "+s.Issuer) {
		t.Fatalf("login: %d\n%s", status, out)
	}
	if r := d.extension(session, "docs.run", `{}`); !r.OK || r.Result != "did it" {
		t.Errorf("got %+v after a login", r)
	}
	state("ready")
	if out, status := d.mcp(nil, "logout", "docs"); status != 0 || !strings.Contains(out, "the token was taken back") ||
		s.Alive() != 0 {
		t.Errorf("logout: %d\n%s", status, out)
	}
	if r := d.extension(session, "docs.run", `{}`); r.OK || r.Error.Code != "needs_login" {
		t.Errorf("got %+v after a logout", r)
	}
	s.Refuses = true
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"logout", "docs"}, 0, "There was no login at docs."},
		{[]string{"login", "docs"}, 1, `the authorization server says no: "access_denied"`},
		{[]string{"login", "git"}, 1, "git is a program on this machine"},
		{[]string{"login", "nobody"}, 1, "there is no MCP server nobody"},
		{[]string{"login"}, 2, "NAME"},
		{[]string{"login", "docs", "--client-secret-env", "UNSET_1"}, 2, "--client-secret-env UNSET_1"},
	} {
		if out, status := d.mcp(yes, c.args...); status != c.status || !strings.Contains(out, c.want) {
			t.Errorf("%v: %d %s, want %d %q", c.args, status, out, c.status, c.want)
		}
	}
}

// A stranger's file does not name where somebody logs in.
func TestALoginAtAnUntrustedServer(t *testing.T) {
	d := unstarted(t, "noused")
	d.write(".mcp.json", `{"mcpServers":{"docs":{"url":"https://127.0.0.1:1/mcp"}}}`, 0o600)
	if out, status := d.mcp(nil, "login", "docs"); status != 1 ||
		!strings.Contains(out, "docs of this folder is not trusted") {
		t.Errorf("%d %s", status, out)
	}
}

// The page is opened where there is a browser.
func TestALoginOpensTheBrowser(t *testing.T) {
	s := mcpTool(t)
	d := unstarted(t, "noused")
	d.write("noused/mcp.json", `{"mcpServers":{"docs":{"url":"`+s.Resource+`"}}}`, 0o600)
	d.write("bin/xdg-open", "#!/bin/sh\necho \"$1\" >"+filepath.Join(d.Dir, "opened")+"\n", 0o700)
	t.Setenv("PATH", filepath.Join(d.Dir, "bin")+":"+os.Getenv("PATH"))
	t.Setenv("DISPLAY", ":0")
	if err := syscall.Mkfifo(filepath.Join(d.Dir, "opened"), 0o600); err != nil {
		t.Fatal(err)
	}
	opened := func(page string) { // as the browser does, once it is there
		text, err := os.ReadFile(filepath.Join(d.Dir, "opened"))
		said := strings.TrimSpace(string(text))
		if err != nil || said != page {
			t.Errorf("the browser was sent to %s, the person to %s", said, page)
		}
		if _, err := oauthtest.Say(said); err != nil {
			t.Error(err)
		}
	}
	if out, status := d.mcp(opened, "login", "docs"); status != 0 {
		t.Errorf("%d %s", status, out)
	}
}
