package runloop

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"noused/internal/model"
	"noused/internal/model/offline"
	"noused/internal/protocol"
)

// Servers that a client gives to a session are there for its calls, after a restart
// too, and for no other session's: a branch has none of them.
func TestASessionBringsServers(t *testing.T) {
	seen := make(chan model.Scope, 1)
	note := func(_ context.Context, inv model.Invocation, _ func(model.ToolUpdate)) model.ToolResult {
		seen <- inv.Scope
		return model.ToolResult{OK: true}
	}
	dir := t.TempDir()
	f := newFixture(t, dir, offline.Model{}, note, newRecorder())
	want := []model.Server{
		{Name: "git", Command: "git-mcp", Args: []string{"-x"}, Env: map[string]string{"A": "b"}},
		{Name: "far", URL: "https://example.org/mcp", Headers: map[string]string{"Authorization": "Bearer x"}},
	}
	given := []protocol.MCPServer{protocol.MCPServer(want[0]), protocol.MCPServer(want[1])}
	made, err := f.newSession(nous, protocol.NewSessionParams{MCPServers: given})
	if err != nil {
		t.Fatal(err)
	}
	branch, err := f.branchSession(nous, protocol.BranchSessionParams{SessionID: made.SessionID})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for id, servers := range map[string][]model.Server{made.SessionID: want, branch.SessionID: nil} {
			_, err := f.runExtension(context.Background(), id, protocol.ExtensionCommandParams{Name: "t.x"})
			if from := <-seen; err != nil || from.SessionID != id || from.Workdir == "" ||
				!reflect.DeepEqual(from.Servers, servers) {
				t.Errorf("a call in session %s came from %+v, %v", id, from, err)
			}
		}
		f.stop()
		f = newFixture(t, dir, offline.Model{}, note, newRecorder())
	}
}

// A server is a program that runs as the user and in no sandbox: what the daemon has
// started cannot name one, nor can an unknown process.
func TestWhoMayBringServers(t *testing.T) {
	f := newFixture(t, t.TempDir(), offline.Model{}, echoTool, newRecorder())
	tool := protocol.WithCaller(context.Background(), protocol.Caller{PID: 8, Descendant: true})
	for _, ctx := range []context.Context{tool, context.Background()} {
		_, err := f.newSession(ctx, protocol.NewSessionParams{MCPServers: []protocol.MCPServer{{Name: "sh", Command: "sh"}}})
		var wire *protocol.Error
		if !errors.As(err, &wire) || wire.Reason() != protocol.Forbidden {
			t.Errorf("got %v, want forbidden", err)
		}
		if _, err := f.newSession(ctx, protocol.NewSessionParams{}); err != nil {
			t.Errorf("a session without servers: %v", err)
		}
	}
}
