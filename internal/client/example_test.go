package client_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"noused/internal/client"
	"noused/internal/protocol"
)

// The types of a command's payload and of its reply come from the command
// table. The daemon of this example is one goroutine that knows one answer.
func ExampleCall() {
	dir, err := os.MkdirTemp("", "nous")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "noused.sock")
	daemon, err := net.Listen("unix", socket)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer daemon.Close()
	go func() { // ends with the client's connection
		conn, err := daemon.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			cmd, _ := protocol.DecodeCommand(lines.Bytes())
			reply, _ := protocol.AppendResponse(nil, cmd.ID, "pong", protocol.Pong{Message: "pong"})
			_, _ = conn.Write(reply)
		}
	}()

	c, err := client.Dial(context.Background(), socket)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	pong, err := client.Call(context.Background(), c, protocol.Ping, protocol.PingParams{})
	fmt.Println(pong.Message, err)
	// Output: pong <nil>
}
