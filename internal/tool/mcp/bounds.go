package mcp

import (
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"noused/internal/format"
	"noused/internal/protocol"
	"noused/internal/tool"
)

// What is made of a message takes many times its memory where it has many small
// values (protocol.MaxValues bounds them), and descriptions and failures of a server
// are kept. So messages have bounds beside the length of a line.
const (
	// maxGreeting is the size of the answer to a handshake, in bytes, which is kept
	// with the connection.
	maxGreeting = 1 << 20
	// maxRequests is what the requests of a server take that wait for an answer, and
	// maxNotice the size of a notification, in bytes.
	maxRequests, maxNotice = 1 << 20, 256 << 10
	// maxComplaint and maxComplaintData bound an error of a server's, in bytes.
	maxComplaint, maxComplaintData = 4 << 10, 64 << 10
)

// bounded is an answer with no more in it than is taken: an error in the place of
// one with too much.
func bounded(a *jsonrpc.Response, greeting bool) *jsonrpc.Response {
	if said, ok := a.Error.(*jsonrpc.Error); ok {
		said.Message = format.Clip(said.Message, maxComplaint)
		if len(said.Data) > maxComplaintData {
			said.Data = nil
		}
		return a
	}
	switch {
	case greeting && (len(a.Result) > maxGreeting || crowded(a.Result, protocol.MaxValues/10)):
		return &jsonrpc.Response{ID: a.ID, Error: tool.Faultf(tool.ProtocolError,
			"the server's answer to the handshake is too long: at most %d KiB are taken", maxGreeting>>10)}
	case crowded(a.Result, protocol.MaxValues):
		return &jsonrpc.Response{ID: a.ID, Error: tool.Faultf(tool.ProtocolError,
			"the server's answer has more than %d values in it: ask for less at a time", protocol.MaxValues)}
	}
	return a
}

// crowded reports that a JSON text has more values than that, more or less.
func crowded(text []byte, most int) bool { return len(text) >= most && values(text, most) > most }

// values is how many a JSON text has, more or less; it does not count on beyond most.
func values(text []byte, most int) int {
	n, _ := protocol.Values(text, most)
	return n
}
