package main

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"noused/internal/client"
	"noused/internal/protocol"
)

// nous stop says what it waits for, and Ctrl-C ends the wait. The daemon stops all the same, when its runs
// are where they can.
func TestCtrlCEndsTheWaitForAStop(t *testing.T) {
	d := newDaemon(t, "drain_timeout = \"10m\"\n")
	d.Fifo("began")
	d.Tool("wait", "read -r request\necho >began\nread -r line <go\n")
	d.Start()
	no := false
	session := call1(t, d.Socket, protocol.NewSession, protocol.NewSessionParams{}).SessionID
	call1(t, d.Socket, protocol.Prompt, protocol.PromptParams{
		Scope: protocol.Scope{SessionID: session}, Text: "!wait.run",
		Wait: &no,
	})
	if _, err := os.ReadFile(d.Dir + "/began"); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("nous", "stop")
	cmd.Env = d.Env()
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	other := call1(t, d.Socket, protocol.NewSession, protocol.NewSessionParams{}).SessionID
	for stops := false; !stops; {
		stops = refusesWork(t, d.Socket, other)
	}
	said := bufio.NewReader(out)
	if line, err := said.ReadString('\n'); err != nil || !strings.Contains(line, "for drain_timeout at most") {
		t.Errorf("got %q, %v, want what it waits for", line, err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	line, _ := said.ReadString('\n')
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitLeft ||
		!strings.HasPrefix(line, "interrupted; ") {
		t.Errorf("got %v, want exit status %d: %s", err, exitLeft, line)
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
	_, err = client.Call(t.Context(), c, protocol.Prompt, protocol.PromptParams{
		Scope: protocol.Scope{SessionID: session},
		Text:  "still there?",
	})
	var wire *protocol.Error
	if err != nil && (!errors.As(err, &wire) || wire.Reason() != protocol.ShuttingDown) {
		t.Fatal(err)
	}
	return err != nil
}
