package host

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go"

	"noused/internal/fleet"
	"noused/internal/fleet/fleettest"
	"noused/internal/protocol"
	"noused/internal/testenv"
)

// reply is a response as a client reads it.
type reply struct {
	ID      string          `json:"id"`
	Type    string          `json:"type"`
	OK      bool            `json:"ok"`
	Payload jsontext.Value  `json:"payload"`
	Error   *protocol.Error `json:"error"`
}

// sendCommand sends a command line to the host called box, which takes commands a moment after
// it has joined.
func sendCommand(t testing.TB, nc *nats.Conn, line string) (r reply) {
	t.Helper()
	var msg *nats.Msg
	testenv.Until(t, "commands are taken", func() bool {
		var err error
		msg, err = nc.Request(fleet.DefaultPrefix.Command("box"), []byte(line), patience)
		if err != nil && !errors.Is(err, nats.ErrNoResponders) {
			t.Fatalf("%.200s: %v", line, err)
		}
		return err == nil
	})
	if bytes.HasSuffix(msg.Data, []byte("\n")) {
		t.Errorf("the reply has the end of a line: %.200q", msg.Data)
	}
	if err := json.Unmarshal(msg.Data, &r); err != nil {
		t.Fatalf("%.200q: %v", msg.Data, err)
	}
	return r
}

func TestCommandsAreAnswered(t *testing.T) {
	server := fleettest.Start(t, "")
	d := newDaemon(t, server.URL(), func(o *Options) { o.MaxLine = 4 << 10 })
	long := strings.Repeat("x", 2<<20)
	protocol.Handle(d.mux, protocol.Prompt,
		func(_ context.Context, p protocol.PromptParams) (protocol.Answer[protocol.PromptReply], error) {
			return protocol.Answer[protocol.PromptReply]{Later: func(context.Context) (protocol.PromptReply, error) {
				return protocol.PromptReply{Result: &protocol.PromptResult{
					Output: p.Text,
					Events: []jsontext.Value{jsontext.Value(`"` + long + `"`)},
				}}, nil
			}}, nil
		})
	protocol.HandleFunc(d.mux, protocol.GetMessages, func(context.Context, protocol.GetMessagesParams) (protocol.Messages,
		error,
	) {
		return protocol.Messages{Messages: []jsontext.Value{jsontext.Value(`"` + long + `"`)}}, nil
	})
	protocol.HandleFunc(d.mux, protocol.SetTitle, func(context.Context, protocol.SetTitleParams) (protocol.TitleAccepted,
		error,
	) {
		panic("a handler's")
	})
	d.Start()
	t.Cleanup(d.end)
	d.isJoined()
	nc := dial(t, server.URL())
	for _, c := range []struct{ line, typ, want string }{
		{`{"id":"1","type":"ping"}`, "pong", ""},
		{"{\"id\":\"1\",\"type\":\"ping\"}\n", "pong", ""},
		{`{"id":"1","type":"prompt","payload":{"text":"hello"}}`, "result", `"events_truncated":true`},
		{`{"id":"1","type":"get_messages"}`, "error", "line_too_long: the command has run, but its reply of 2097243 bytes"},
		{`{"id":"1","type":"set_title","payload":{"title":"x"}}`, "error", "internal error"},
		{`{"id":"1","type":"nonsense"}`, "error", "unknown_command"},
		{`{"id":"1","type":`, "error", "invalid_json"},
		{
			`{"id":"1","type":"ping","payload":{"x":"` + strings.Repeat("x", 5<<10) + `"}}`, "error",
			"line_too_long: line is longer than 4096 bytes",
		},
	} {
		r := sendCommand(t, nc, c.line)
		got := string(r.Payload)
		if r.Error != nil {
			got = r.Error.Error()
		}
		if r.Type != c.typ || !strings.Contains(got, c.want) {
			t.Errorf("%.60s: got %s %.300s, want %s %s", c.line, r.Type, got, c.typ, c.want)
		}
	}
	// a moment after the reply is sent
	testenv.Until(t, "the budget is given back", func() bool { return d.o.Held.Used() == 0 })
}

// A command that takes long holds no other up, and learns of a stop.
func TestLongCommandsHoldNobodyUp(t *testing.T) {
	server := fleettest.Start(t, "")
	d := newDaemon(t, server.URL(), nil)
	begun := make(chan struct{})
	protocol.Handle(d.mux, protocol.Prompt,
		func(context.Context, protocol.PromptParams) (protocol.Answer[protocol.PromptReply], error) {
			return protocol.Answer[protocol.PromptReply]{Later: func(ctx context.Context) (protocol.PromptReply, error) {
				close(begun)
				<-ctx.Done()
				return protocol.PromptReply{}, ctx.Err()
			}}, nil
		})
	d.Start()
	t.Cleanup(d.end)
	d.isJoined()
	nc := dial(t, server.URL())
	sendCommand(t, nc, `{"id":"0","type":"ping"}`)
	answer := make(chan string, 1)
	go func() {
		msg, err := nc.Request(fleet.DefaultPrefix.Command("box"),
			[]byte(`{"id":"p","type":"prompt","payload":{"text":"x"}}`), patience)
		if err != nil {
			answer <- err.Error()
		} else {
			answer <- string(msg.Data)
		}
	}()
	<-begun
	if r := sendCommand(t, nc, `{"id":"1","type":"ping"}`); !r.OK {
		t.Errorf("ping: %+v", r)
	}
	d.end()
	if got := <-answer; !strings.Contains(got, "shutting_down") {
		t.Errorf("the prompt's answer: %s", got)
	}
}

// What only people may do is refused, unless the configuration says that people send.
func TestCallers(t *testing.T) {
	for _, approve := range []bool{false, true} {
		server := fleettest.Start(t, "")
		d := newDaemon(t, server.URL(), func(o *Options) { o.Approve = approve })
		callers := make(chan protocol.Caller, 1)
		protocol.HandleFunc(d.mux, protocol.Approve,
			func(ctx context.Context, _ protocol.ApproveParams) (protocol.ApproveAccepted, error) {
				c, known := protocol.CallerOf(ctx)
				if !known {
					t.Error("nobody knows who calls")
				}
				callers <- c
				return protocol.ApproveAccepted{}, nil
			})
		d.Start()
		d.isJoined()
		nc := dial(t, server.URL())
		sendCommand(t, nc, `{"id":"1","type":"approve","payload":{"approval_id":"apr-1","option":"once"}}`)
		c := <-callers
		if c.Peer != "unknown" || (c.Refused == "") != approve {
			t.Errorf("approve = %t: got %+v", approve, c)
		}
		d.end()
		d.mu.Lock()
		if n := len(d.audits); n != 1 || !strings.Contains(string(d.audits[0].Data), `"command":"approve","peer":"unknown"`) {
			t.Errorf("the audit has %+v", d.audits)
		}
		d.mu.Unlock()
	}
}

// teamAccounts are those of a team whose people may command box.
const teamAccounts = `accounts {
  HOSTS { jetstream: enabled, users: [{user: box, password: box}], exports: [{service: "noused.box.cmd", accounts: [TEAM]}] }
  TEAM { users: [{user: alice, password: alice}], imports: [{service: {account: HOSTS, subject: "noused.box.cmd"}, share: true}] }
}
no_auth_user: box`

// The server says who sends, where a team's account imports the service and shares that.
func TestPeerIsWhoTheServerSays(t *testing.T) {
	server := fleettest.Start(t, teamAccounts)
	d := newDaemon(t, server.URL(), func(o *Options) { o.Approve = true })
	peers := make(chan string, 1)
	protocol.HandleFunc(d.mux, protocol.Approve,
		func(ctx context.Context, _ protocol.ApproveParams) (protocol.ApproveAccepted, error) {
			c, _ := protocol.CallerOf(ctx)
			peers <- c.Peer
			return protocol.ApproveAccepted{}, nil
		})
	d.Start()
	t.Cleanup(d.end)
	d.isJoined()
	nc := dial(t, server.Direct(), nats.UserInfo("alice", "alice"))
	sendCommand(t, nc, `{"id":"1","type":"approve","payload":{"approval_id":"apr-1","option":"once"}}`)
	if got := <-peers; got != "alice@TEAM" {
		t.Errorf("got %q, want alice@TEAM", got)
	}
}

// Whatever a header has, a peer is a short text without control characters.
func FuzzPeer(f *testing.F) {
	for _, seed := range []string{
		"", "{}", `{"user":"alice","acc":"TEAM"}`, `{"user":"a\u0000\u001b[31m","name_tag":"x"}`,
		`{"user":7}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		peer := peerOf(header)
		if peer == "" || len(peer) > maxPeer || !utf8.ValidString(peer) || strings.ContainsFunc(peer, unicode.IsControl) {
			t.Errorf("%q: got %q", header, peer)
		}
	})
}
