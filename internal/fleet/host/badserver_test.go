package host

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"noused/internal/fleet/fleettest"
	"noused/internal/testenv"
)

// A server that breaks the protocol costs its connection, and no more: the daemon says
// why, and joins when the server is well.
func TestAServerThatNamesASizeOfNoEarth(t *testing.T) {
	t.Parallel()
	real := strings.TrimPrefix(fleettest.Start(t, "").Direct(), "nats://")
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var well atomic.Bool
	serve := func(conn net.Conn) {
		defer conn.Close()
		if well.Load() {
			if to, err := net.Dial("tcp", real); err == nil {
				go func() { _, _ = io.Copy(to, conn); _ = to.Close() }()
				_, _ = io.Copy(conn, to)
			}
			return
		}
		fmt.Fprint(conn, "INFO {\"max_payload\":1048576,\"headers\":true,\"jetstream\":true}\r\n")
		answer := "PONG\r\n"
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			if lines.Text() == "PING" || answer != "PONG\r\n" {
				fmt.Fprint(conn, answer)
				answer = "MSG a 1 9000000000000000000\r\nxx"
			}
		}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for conn, err := ln.Accept(); err == nil; conn, err = ln.Accept() {
			go serve(conn) // ends with the daemon's connection
		}
	}()
	t.Cleanup(func() { _ = ln.Close(); <-ended })
	d := startDaemon(t, "nats://"+ln.Addr().String(), nil)
	testenv.Until(t, "it says why", func() bool {
		return strings.Contains(strings.Join(d.State().Problems, "\n"),
			`the server breaks the protocol: a message of "9000000000000000000" bytes`)
	})
	well.Store(true)
	d.hasPublished(d.say("ses-1", "hello"))
}
