package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"noused/internal/testenv"
)

// What listens at the socket and speaks something else is named, with what to do, and
// nothing is started in its place.
func TestWhatSpeaksSomethingElse(t *testing.T) {
	testenv.Long(t)
	d, env := starter(t)
	listener, err := net.Listen("unix", d.Socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() { // ends with the listener
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { // ends when the client has gone
				defer conn.Close()
				_, _ = bufio.NewReader(conn).ReadString('\n')
				_, _ = io.WriteString(conn, "HTTP/1.1 400 Bad Request\n")
				_, _ = io.Copy(io.Discard, conn)
			}()
		}
	}()
	for command, who := range map[string]string{
		"ping":     "what listens at " + d.Socket,
		"sessions": "what listens at " + d.Socket,
		"stop":     fmt.Sprintf("process %d, which listens at %s,", os.Getpid(), d.Socket),
		"restart":  fmt.Sprintf("process %d, which listens at %s,", os.Getpid(), d.Socket),
	} {
		cmd := exec.Command("nous", command)
		cmd.Dir, cmd.Env = d.Dir, env
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.HasPrefix(string(out), "nous: "+who+" does not speak the protocol of noused: ") ||
			!strings.HasSuffix(string(out), "\nend it, or name another socket with --socket\n") {
			t.Errorf("nous %s: got %v %q", command, err, out)
		}
	}
}
