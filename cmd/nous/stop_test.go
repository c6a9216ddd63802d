package main

import (
	"bytes"
	"errors"
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
	call1(t, d.Socket, protocol.Prompt, protocol.PromptParams{
		Scope: protocol.Scope{SessionID: session}, Text: "!wait.run",
		Wait: &no,
	})
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
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitLeft ||
		!strings.HasPrefix(said.String(), "interrupted; ") {
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
