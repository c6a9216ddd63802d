package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"noused/internal/client"
	"noused/internal/mcpfile"
	"noused/internal/protocol"
)

// shellServer is an MCP server with one tool that says a word and where it runs.
const shellServer = `#!/bin/sh
reply() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
[ ! -w . ] || echo start >>started
while read -r line; do
	id=${line#*\"id\":}
	id=${id%%[,\}]*}
	case $line in
	*'"method":"initialize"'*) reply '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"say","version":"1"}}' ;;
	*'"method":"tools/list"'*) reply '{"tools":[{"name":"word","description":"says a word","inputSchema":{"type":"object"}}]}' ;;
	*'"method":"tools/call"'*) reply '{"content":[{"type":"text","text":"'"$WORD in $PWD"'"}]}' ;;
	*'"method":"ping"'*) reply '{}' ;;
	esac
done
`

// withServers writes an mcp.json with so many servers for a daemon that is not started.
func (d *daemon) withServers(n int) {
	d.t.Helper()
	d.write("server", shellServer, 0o700)
	var entries []string
	for i := range n {
		entries = append(entries, fmt.Sprintf(
			`"server-%d": {"command": %q, "args": ["--flag", "value"], "env": {"WORD": "${HOME}"}}`, i,
			filepath.Join(d.Dir, "server")))
	}
	if err := os.MkdirAll(filepath.Join(d.Dir, "noused"), 0o700); err != nil {
		d.t.Fatal(err)
	}
	d.write("noused/mcp.json", "{\"mcpServers\": {\n"+strings.Join(entries, ",\n")+"\n}}\n", 0o600)
}

// A daemon with the three kinds of servers: the user's, which every session sees; a
// project's, which no session starts before it is trusted; and those that a client gave
// to a session, over a kill too, until the session is deleted.
func TestServersOfADaemon(t *testing.T) {
	d := unstarted(t, "noused")
	d.withServers(1)
	d.Start()
	c := d.dial()
	theirs := filepath.Join(d.Dir, "project")
	if err := os.Mkdir(theirs, 0o700); err != nil {
		t.Fatal(err)
	}
	entry := `{"mcpServers":{"theirs":{"command":"../server","env":{"WORD":"t"}}}}`
	d.write("project/"+mcpfile.ProjectName, entry, 0o600)
	made, err := client.Call(context.Background(), c, protocol.NewSession, protocol.NewSessionParams{
		Workdir: theirs,
		MCPServers: []protocol.MCPServer{{
			Name: "editors", Command: filepath.Join(d.Dir, "server"),
			Env: map[string]string{"WORD": "e"},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	says := func(session, name, want string) {
		t.Helper()
		if r := d.extension(session, name, "{}"); !strings.Contains(r.Result, want) ||
			r.OK == strings.Contains(want, "not trusted") {
			t.Errorf("%s: got %+v, want %s", name, r, want)
		}
	}
	states := func(c *client.Client, session string) string {
		r, err := client.Call(context.Background(), c, protocol.ListTools,
			protocol.ListToolsParams{Scope: protocol.Scope{SessionID: session}})
		var all []string
		for _, s := range r.Servers {
			all = append(all, s.Name+" "+s.State)
		}
		if err != nil {
			t.Error(err)
		}
		return strings.Join(all, ", ")
	}
	other := d.session(d.Dir)
	empty := filepath.Join(d.Dir, "state", "empty")
	says(made.SessionID, "editors.word", "e in "+empty)
	says(made.SessionID, "server-0.word", " in "+empty)
	says(other, "server-0.word", " in "+empty)
	says(made.SessionID, "theirs.word", "the server theirs is not trusted")
	if got := states(c, made.SessionID); !strings.Contains(got, "editors ready") ||
		!strings.Contains(got, "theirs untrusted") {
		t.Errorf("got %s", got)
	}
	if got := states(c, other); strings.Contains(got, "editors") || strings.Contains(got, "theirs") {
		t.Errorf("another session sees %s", got)
	}
	text, err := mcpfile.ReadProject(theirs)
	if err != nil {
		t.Fatal(err)
	}
	if err := mcpfile.Trust(filepath.Join(d.Dir, "noused"), theirs, mcpfile.Hash(text), time.Now()); err != nil {
		t.Fatal(err)
	}
	says(made.SessionID, "theirs.word", "t in "+theirs)

	d.Kill()
	d.Start()
	c = d.dial()
	says(made.SessionID, "editors.word", "e in "+empty)
	says(made.SessionID, "theirs.word", "t in "+theirs)
	d.write("project/"+mcpfile.ProjectName, entry+" ", 0o600)
	says(made.SessionID, "theirs.word", "the server theirs is not trusted")
	if _, err := client.Call(context.Background(), c, protocol.DeleteSession,
		protocol.DeleteSessionParams{SessionID: made.SessionID}); err != nil {
		t.Fatal(err)
	}
	if running := processesOf(t, filepath.Join(d.Dir, "server"), empty); len(running) > 0 {
		t.Errorf("of the session is left: %v", running)
	}
}

// processesOf are the command lines of those that run a script for the editor in a
// folder.
func processesOf(t *testing.T, script, folder string) (lines []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		environ, _ := os.ReadFile(path)
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		cwd, _ := os.Readlink(filepath.Join(filepath.Dir(path), "cwd"))
		if strings.Contains(string(line), script) && cwd == folder && strings.Contains(string(environ), "WORD=e") {
			lines = append(lines, string(line))
		}
	}
	return lines
}

// A repository's file runs nothing by itself: not when a session begins in it, not when
// its tools are listed, and not when a model calls one.
func TestAProjectsServersAreNotStarted(t *testing.T) {
	d := newDaemon(t)
	d.write("server", shellServer, 0o700)
	folder := filepath.Join(d.Dir, "project")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	d.write("project/"+mcpfile.ProjectName,
		`{"mcpServers":{"theirs":{"command":"../server"},"evil":{"command":"sh","args":["-c","echo >started"],"trust":"all"}}}`, 0o600)
	session := d.session(folder)
	c := d.dial()
	if _, err := client.Call(context.Background(), c, protocol.ListTools,
		protocol.ListToolsParams{Scope: protocol.Scope{SessionID: session}}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Call(context.Background(), c, protocol.ReloadTools, protocol.ReloadToolsParams{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Call(context.Background(), c, protocol.Prompt,
		protocol.PromptParams{Scope: protocol.Scope{SessionID: session}, Text: "!theirs.word"}); err != nil {
		t.Fatal(err)
	}
	d.Stop() // runs are led to their end
	if _, err := os.Stat(filepath.Join(folder, "started")); err == nil {
		t.Error("a server of the repository was started")
	}
}
