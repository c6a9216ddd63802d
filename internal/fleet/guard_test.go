package fleet_test

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"noused/internal/fleet"
)

// A server that breaks NATS's protocol ends the connection, and says why: a size that it
// names is not believed.
func TestAServerThatBreaksTheProtocol(t *testing.T) {
	long := strings.Repeat("x", 65<<10)
	for name, c := range map[string]struct{ sent, want string }{
		"a message of no size on earth": {
			"MSG a 1 9000000000000000000\r\nxx",
			"a message of \"9000000000000000000\" bytes: at most 100663296",
		},
		"a message too large":       {"MSG a 1 100663297\r\nxx", "at most 100663296"},
		"one with headers":          {"HMSG a 1 10 900000000000\r\nxx", "at most 100663296"},
		"one over the number's end": {"MSG a 1 18446744073709551617\r\nxx", "at most 100663296"},
		"a negative one":            {"MSG a 1 -1\r\nxx", "at most 100663296"},
		"without a size":            {"MSG a 1\r\nxx", "a message with 2 arguments"},
		"a line in a line":          {"MSG \na 1 9000000000000000000\r\nxx", "does not end in CR and LF"},
		"a CR in a line":            {"MSG a\r 1 99\r\n", "does not end in CR and LF"},
		"longer than it says":       {"MSG a 1 1\r\nxx\r\n", "longer than it says"},
		"an empty error":            {"-ERR \nMSG a 1 9\r\n", "says nothing"},
		"no line of the protocol":   {"HTTP/1.1 400 Bad Request\r\n", "begins with \"HTTP/1.1"},
		"a line without an end":     {"-ERR '" + long, "a line of more than 65536 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := badServer(t, "INFO {\"max_payload\":1048576,\"headers\":true}\r\n", c.sent)
			closed := make(chan struct{})
			nc, err := fleet.Connect{URLs: []string{url}}.Dial(t.Context(), "test", nats.ClosedHandler(func(*nats.Conn) {
				close(closed)
			}))
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			_ = nc.FlushTimeout(2 * time.Minute) // has it sent
			<-closed
			if err := nc.LastError(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// What greets without being a NATS server is none, and costs a line of memory at most.
func TestAServerThatIsNone(t *testing.T) {
	for greeting, want := range map[string]string{
		"SSH-2.0-OpenSSH_10.0\r\n": `no NATS server: it begins with "SSH-2.0-OpenSSH`,
		"INFO [\r\n":               `no NATS server`,
		"INFO {\"x\":\"" + strings.Repeat("x", 1<<17): "a line of more than 65536 bytes",
	} {
		nc, err := fleet.Connect{URLs: []string{badServer(t, greeting, "")}}.Dial(t.Context(), "test")
		if err == nil {
			nc.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// badServer greets, lets a client in, and answers its next ping with what is sent.
func badServer(t *testing.T, greeting, sent string) (url string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
			go func() {
				fmt.Fprint(conn, greeting)
				answer := "PONG\r\n"
				for lines := bufio.NewScanner(conn); lines.Scan(); {
					if lines.Text() == "PING" {
						fmt.Fprint(conn, answer)
						answer = sent
					}
				}
			}()
		}
	}()
	return "nats://" + ln.Addr().String()
}
