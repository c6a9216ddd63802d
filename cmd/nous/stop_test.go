package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"noused/internal/client"
	"noused/internal/protocol"
)

// Ctrl-C ends nous stop while it waits. The daemon stops all the same, when its runs
// are where they can.
func TestCtrlCEndsTheWaitForAStop(t *testing.T) {
	d := newDaemon(t, "drain_timeout = \"10m\"\n")
	d.Fifo("began")
	d.Tool("wait", "read -r request\necho >began\nread -r line <go\n")
	d.Start()
	no := false
	session := call1(t, d.Socket, protocol.NewSession, protocol.NewSessionParams{}).SessionID
	call1(t, d.Socket, protocol.Prompt, protocol.PromptParams{Scope: protocol.Scope{SessionID: session}, Text: "!wait.run", Wait: &no})
	if _, err := os.ReadFile(d.Dir + "/began"); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("nous", "stop")
	var said bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = d.Env(), &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	other := call1(t, d.Socket, protocol.NewSession, protocol.NewSessionParams{}).SessionID
	for stops := false; !stops; {
		stops = refusesWork(t, d.Socket, other)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitLeft || !strings.HasPrefix(said.String(), "interrupted; ") {
		t.Errorf("got %v, want exit status %d: %s", err, exitLeft, said.Bytes())
	}
	call1(t, d.Socket, protocol.Ping, protocol.PingParams{}) // it waits for the run
}

// refusesWork tells whether the daemon takes no prompts any more.
func refusesWork(t *testing.T, socket, session string) bool {
	t.Helper()
	c, err := client.Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = client.Call(t.Context(), c, protocol.Prompt, protocol.PromptParams{Scope: protocol.Scope{SessionID: session}, Text: "still there?"})
	var wire *protocol.Error
	if err != nil && (!errors.As(err, &wire) || wire.Reason() != protocol.ShuttingDown) {
		t.Fatal(err)
	}
	return err != nil
}

// An editor that finds no daemon has one started: its sessions are there.
func TestAnEditorsAgentStartsADaemon(t *testing.T) {
	d, env := starter(t)
	cmd := exec.Command("nous", "acp")
	cmd.Dir, cmd.Env = d.Dir, env
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	lines := bufio.NewReader(out)
	for i, request := range []string{
		`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}`,
		`{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"` + d.Dir + `","mcpServers":[]}}`,
	} {
		if _, err := io.WriteString(in, request+"\n"); err != nil {
			t.Fatal(err)
		}
		for id := fmt.Sprintf(`"id":%d,"result":`, i); ; {
			line, err := lines.ReadString('\n')
			if err != nil || strings.Contains(line, `"error"`) {
				t.Fatalf("%s: got %q, %v", request, line, err)
			}
			if strings.Contains(line, id) {
				break
			}
		}
	}
	_ = in.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("nous acp: %v", err)
	}
	call1(t, d.Socket, protocol.Ping, protocol.PingParams{})
}
