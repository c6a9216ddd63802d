package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"noused/internal/daemontest"
)

// serving is nous mcp serve of a daemon, with the SDK's client in front.
func serving(t *testing.T, d *daemontest.Daemon, o *sdk.ClientOptions) *sdk.ClientSession {
	t.Helper()
	cmd := exec.Command(program(t, "nous"), "mcp", "serve")
	cmd.Dir, cmd.Env, cmd.Stderr = d.Dir, d.Env(), os.Stderr
	c := sdk.NewClient(&sdk.Implementation{Name: "tester", Version: "1"}, o)
	s, err := c.Connect(t.Context(), &sdk.CommandTransport{Command: cmd}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func names(t *testing.T, s *sdk.ClientSession) (names []string) {
	t.Helper()
	all, err := s.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range all.Tools {
		names = append(names, tool.Name)
	}
	return names
}

func textOf(res *sdk.CallToolResult) (text string) {
	for _, c := range res.Content {
		if c, ok := c.(*sdk.TextContent); ok {
			text += c.Text
		}
	}
	return text
}

// An agent that noused does not host lists a session's tools and calls them, hears of their
// progress and of changes, and takes a call back.
func TestServeToolsOverMCP(t *testing.T) {
	d := startDaemon(t, "")
	changed, said := make(chan struct{}, 100), make(chan string, 100)
	s := serving(t, d, &sdk.ClientOptions{
		ToolListChangedHandler: func(context.Context, *sdk.ToolListChangedRequest) {
			select {
			case changed <- struct{}{}:
			default:
			}
		},
		ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) {
			said <- r.Params.Message
		},
	})
	if got := names(t, s); !slices.Contains(got, "bash") {
		t.Fatalf("got %q, want bash among them", got)
	}
	p := &sdk.CallToolParams{Name: "bash", Arguments: map[string]any{"command": "echo on; sleep 1; echo done"}}
	p.SetProgressToken("p")
	res, err := s.CallTool(t.Context(), p)
	if err != nil || res.IsError || textOf(res) != "on\ndone" {
		t.Errorf("got %+v, %v, want what it printed", res, err)
	}
	if got := <-said; !strings.Contains(got, "on") {
		t.Errorf("got progress %q, want what it printed first", got)
	}
	if res, err = s.CallTool(t.Context(), &sdk.CallToolParams{Name: "bash"}); err != nil || !res.IsError {
		t.Errorf("without arguments: got %+v, %v, want a result that says what is wrong", res, err)
	}
	if _, err = s.CallTool(t.Context(), &sdk.CallToolParams{Name: "nope"}); err == nil {
		t.Error("an unknown tool is called")
	}

	ctx, cancel := context.WithCancel(t.Context())
	began := filepath.Join(d.Dir, "began")
	failed := make(chan error, 1)
	go func() {
		_, err := s.CallTool(ctx, &sdk.CallToolParams{Name: "bash", Arguments: map[string]any{
			"command": "touch began; sleep 1000",
		}})
		failed <- err
	}()
	for {
		if _, err := os.Stat(began); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-failed; err == nil {
		t.Error("a call that was taken back succeeds")
	}
	p = &sdk.CallToolParams{Name: "bash", Arguments: map[string]any{"command": "echo next"}}
	res, err = s.CallTool(t.Context(), p)
	if err != nil || textOf(res) != "next" { // it waits for the end of the other
		t.Errorf("got %+v, %v, want the next call made", res, err)
	}

	d.Tool("later", "exit 1")
	succeeds(t, d, "tools", "reload")
	succeeds(t, d, "set-tools", "ls", "read")
	for !slices.Equal(names(t, s), []string{"ls", "read"}) {
		<-changed
	}
}

// succeeds is a command of nous's that succeeds.
func succeeds(t *testing.T, d *daemontest.Daemon, args ...string) {
	t.Helper()
	cmd := exec.Command(program(t, "nous"), args...)
	cmd.Dir, cmd.Env = d.Dir, d.Env()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("nous %q: %v\n%s", args, err, out)
	}
}

// The protocol's own inspector lists the tools and calls one.
func TestTheInspectorCallsATool(t *testing.T) {
	dir := os.Getenv("NOUSED_TEST_MCP_INSPECTOR")
	if dir == "" {
		t.Skip("NOT RUN: the inspector is not here. make conformance fetches it and runs this; so does\n" +
			"npm install --prefix DIR @modelcontextprotocol/inspector && NOUSED_TEST_MCP_INSPECTOR=DIR go test " +
			"-run Inspector ./cmd/nous")
	}
	d := startDaemon(t, "")
	inspect := func(args ...string) []byte {
		t.Helper()
		cmd := exec.Command(filepath.Join(dir, "node_modules/.bin/mcp-inspector"),
			append([]string{"--cli", program(t, "nous"), "mcp", "serve"}, args...)...)
		cmd.Dir, cmd.Env = d.Dir, d.Env()
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return out
	}
	var list struct{ Tools []struct{ Name string } }
	if err := json.Unmarshal(inspect("--method", "tools/list"), &list); err != nil || len(list.Tools) == 0 {
		t.Errorf("got %+v, %v, want tools", list, err)
	}
	var res struct{ Content []struct{ Text string } }
	out := inspect("--method", "tools/call", "--tool-name", "bash", "--tool-arg", "command=echo inspected")
	err := json.Unmarshal(out, &res)
	if err != nil || len(res.Content) != 1 || res.Content[0].Text != "inspected" {
		t.Errorf("got %+v, %v, want what it printed", res, err)
	}
}
