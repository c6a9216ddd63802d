package protocol_test

import (
	"context"
	"fmt"
	"io"
	"strings"

	"noused/internal/protocol"
)

// A server binds a handler to each command, decodes the lines of a connection,
// and appends each outcome to what it sends. An error names the field that is
// wrong.
func ExampleMux() {
	mux := new(protocol.Mux)
	protocol.HandleFunc(mux, protocol.Ping, func(context.Context, protocol.PingParams) (protocol.Pong, error) {
		return protocol.Pong{Message: "pong"}, nil
	})
	protocol.HandleFunc(mux, protocol.SetSteeringMode,
		func(_ context.Context, p protocol.SetModeParams) (protocol.ModeAccepted, error) {
			return protocol.ModeAccepted{Command: "set_steering_mode", Mode: p.Mode}, nil
		})
	lines := protocol.NewLineReader(strings.NewReader(`{"v":"1","id":"a","type":"ping"}
{"v":"1","id":"b","type":"set_steering_mode","payload":{"mode":"some"}}
`), protocol.DefaultMaxLine)
	for {
		line, err := lines.Next()
		if err == io.EOF {
			break
		}
		cmd, wrong := protocol.DecodeCommand(line)
		if wrong != nil {
			fmt.Print(string(protocol.AppendError(nil, cmd.ID, wrong)))
			continue
		}
		fmt.Print(string(mux.Run(context.Background(), cmd).Append(nil, cmd.ID)))
	}
	// Output:
	// {"v":"1","id":"a","type":"pong","payload":{"message":"pong"},"ok":true}
	// {"v":"1","id":"b","type":"error","payload":{},"ok":false,"error":{"code":"invalid_payload","message":"mode: got \"some\", want one of \"one-at-a-time\" \"all\""}}
}
