package mcp

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"noused/internal/model"
	"noused/internal/tool/tooltest"
)

// everything is the reference server of the protocol's makers, in the folder that
// was fetched into it, or the test is skipped and says how to fetch it.
func everything(t *testing.T) string {
	t.Helper()
	const pkg = "@modelcontextprotocol/server-everything"
	dir := os.Getenv("NOUSED_TEST_MCP_SERVERS")
	if dir == "" {
		t.Skipf("NOT RUN: the reference server is not here. make conformance fetches it and runs this; so does\n"+
			"npm install --prefix DIR %s && NOUSED_TEST_MCP_SERVERS=DIR go test -run Everything ./internal/tool/mcp", pkg)
	}
	program := filepath.Join(dir, "node_modules", pkg, "dist", "index.js")
	if _, err := os.Stat(program); err != nil {
		t.Fatal(err)
	}
	return program
}

// serveEverything starts the server over streamable HTTP and returns its address.
func serveEverything(t *testing.T, program string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	_ = l.Close() // the server takes no listener
	cmd := exec.Command("node", program, "streamableHttp")
	cmd.Env = append(os.Environ(), fmt.Sprint("PORT=", port))
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for lines := bufio.NewScanner(said); lines.Scan(); {
		if strings.Contains(lines.Text(), fmt.Sprint("port ", port)) {
			go func() { // else it would wait for its reader
				for lines.Scan() {
				}
			}()
			return fmt.Sprintf("http://127.0.0.1:%d/mcp", port)
		}
	}
	t.Fatal("the server ended before it listened")
	return ""
}

// Every tool of the reference server that offers one of each kind, over HTTP.
func TestEverythingOverHTTPToolByTool(t *testing.T) {
	program := everything(t)
	b := mount(t, at(serveEverything(t, program)))
	b.Ready(t.Context(), model.Scope{})
	tools := map[string]struct {
		args, text string
		updates    int // at least
	}{
		"echo": {args: `{"message":"hello ✓"}`, text: "Echo: hello ✓"},
		"get-annotated-message": {
			args: `{"messageType":"success","includeImage":true}`,
			text: "Operation completed successfully",
		},
		"get-env":            {args: `{}`, text: `"PORT"`},
		"get-resource-links": {args: `{"count":2}`, text: "demo://resource/dynamic/blob/1"},
		"get-resource-reference": {
			args: `{"resourceType":"Text","resourceId":3}`,
			text: "demo://resource/dynamic/text/3",
		},
		"get-structured-content": {args: `{"location":"Chicago"}`, text: "temperature"},
		"get-sum":                {args: `{"a":20,"b":22}`, text: "42"},
		"get-tiny-image":         {args: `{}`, text: "image/png"},
		"gzip-file-as-resource": {
			args: `{"name":"a.gz","data":"data:text/plain;base64,aGVsbG8=","outputType":"resource"}`, text: "a.gz",
		},
		"toggle-simulated-logging":    {args: `{}`, text: "Started simulated"},
		"toggle-subscriber-updates":   {args: `{}`, text: "Started simulated"},
		"trigger-elicitation-request": {args: `{}`, text: "User provided the requested information"},
		"trigger-long-running-operation": {
			args: `{"duration":1,"steps":4}`, text: "Long running operation completed",
			updates: 4,
		},
	}
	var names []string
	for _, tool := range b.List(t.Context(), model.Scope{}) {
		names = append(names, strings.TrimPrefix(tool.Name, "x."))
	}
	for name, want := range tools {
		t.Run(name, func(t *testing.T) {
			if !slices.Contains(names, name) {
				t.Fatalf("it is not among %q", names)
			}
			inv := tooltest.Invocation("x."+name, want.args)
			inv.Ask = func(context.Context, model.Question) (model.Answer, error) {
				return model.Answer{Action: model.Accept, Content: []byte(`{"name":"Ada","check":true}`)}, nil
			}
			var log tooltest.Log
			r := b.Call(t.Context(), inv, log.Add)
			if !r.OK || !strings.Contains(r.Text, want.text) {
				t.Errorf("got %+v %+v, want %q", r, r.Error, want.text)
			}
			if n := len(log.Updates()); n < want.updates {
				t.Errorf("heard %d updates, want %d", n, want.updates)
			}
		})
	}
	if s := b.Servers(model.Scope{}); len(s) != 1 || len(s[0].LeftOut) != 1 ||
		!strings.HasPrefix(s[0].LeftOut[0], "simulate-research-query: it can only be called as a task") {
		t.Errorf("got %+v, want the tool that needs a task left out", s)
	}
	for _, name := range names {
		if _, ok := tools[name]; !ok {
			t.Errorf("nothing is known of the tool %s", name)
		}
	}
}
