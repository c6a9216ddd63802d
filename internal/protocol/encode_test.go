package protocol

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
)

func TestEncodeResponse(t *testing.T) {
	got, err := AppendResponse(nil, `a "b"`, "pong", Pong{"pong", "1.0.0", 7})
	want := `{"v":"1","id":"a \"b\"","type":"pong","payload":{"message":"pong","version":"1.0.0","pid":7},"ok":true}` +
		"\n"
	if string(got) != want || err != nil {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}

// Lists that have been encoded already are not encoded again, and nobody can
// tell the difference.
func TestRepliesAreAppendedAsTheyAreMarshalled(t *testing.T) {
	for _, r := range append(sampleReplies(), PromptReply{Accepted: &PromptAccepted{RunID: "run-1"}},
		PromptReply{Result: &PromptResult{
			Output: string(placeholder()),
			Events: []jsontext.Value{placeholder(), jsontext.Value(`{"v":"1"}`)},
		}},
		PromptReply{Result: &PromptResult{}}, Messages{SessionID: string(placeholder())},
		Messages{Messages: []jsontext.Value{jsontext.Value(`1`), jsontext.Value(`[]`)}},
	) {
		want, err := json.Marshal(r, jsontext.AllowInvalidUTF8(true))
		if err != nil {
			t.Fatal(err)
		}
		got, err := AppendResponse([]byte("before"), "c1", r.replyType(), r)
		if line := `before{"v":"1","id":"c1","type":"` + r.replyType() + `","payload":` + string(want) +
			",\"ok\":true}\n"; string(got) != line || err != nil {
			t.Errorf("got  %s, %v\nwant %s", got, err, line)
		}
	}
}

// A tool may say anything; its reply must come all the same, in one line that
// every client can read.
func TestReplyMendsBadUTF8(t *testing.T) {
	got, err := AppendResponse(nil, "c1", "extension_result", ExtensionResult{
		OK: true, Result: "caf\xe9\n", Outputs: map[string]string{"\xff": "\xff"}, Value: jsontext.Value("\"\xff\""),
	})
	want :=
		`{"v":"1","id":"c1","type":"extension_result","payload":{"ok":true,"result":"caf�\n","outputs":{"�":"�"},"value":"�"},"ok":true}` + "\n"
	if string(got) != want || err != nil {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}

func TestEncodeEvent(t *testing.T) {
	payload, err := EncodePayload(MessageUpdate{Ref: Ref{"run-1", "ses-1", "1"}, MessageID: "msg-1", Delta: "caf\xe9\n"})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 2, 12, 1, 2, 3, 4000, time.FixedZone("east", 3600))
	got := string(AppendEvent([]byte("before\n"), "message_update", payload, at, 17))
	want := "before\n" +
		`{"v":"1","id":"evt-17","type":"message_update","payload":{"run_id":"run-1","session_id":"ses-1","turn_id":"1",` +
		`"message_id":"msg-1","delta":"caf�\n"},"ts":"2026-02-12T00:02:03.000004Z","seq":17}` + "\n"
	if got != want {
		t.Errorf("got  %swant %s", got, want)
	}
}

func TestErrorReplies(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{
			"a wire error", &Error{Code: SessionError, Message: "no", Cause: "disk"},
			`{"code":"session_error","message":"no","cause":"disk"}`,
		},
		{
			"a wrapped one", fmt.Errorf("open: %w", Errorf(SessionNotFound, "no %s", "ses-1")),
			`{"code":"session_not_found","message":"no ses-1"}`,
		},
		{
			"a deadline", fmt.Errorf("ask: %w", context.DeadlineExceeded),
			`{"code":"timeout","message":"the command took too long"}`,
		},
		{
			"anything else keeps its detail", errors.New("secret"),
			`{"code":"internal_error","message":"internal error; the daemon's log has the detail"}`,
		},
		{"bad UTF-8", &Error{Code: SessionError, Message: "\xff"}, `{"code":"session_error","message":"�"}`},
		{
			"a rejection", Rejectf(NoActiveRun, "session %s", "s"),
			`{"code":"command_rejected","message":"no_active_run: session s"}`,
		},
	} {
		got := string(Failure(c.err).Append(nil, "c1"))
		want := `{"v":"1","id":"c1","type":"error","payload":{},"ok":false,"error":` + c.want + "}\n"
		if got != want {
			t.Errorf("%s: got %swant %s", c.name, got, want)
		}
	}
}

func TestPanicIsAnInternalError(t *testing.T) {
	now, later := &Mux{}, &Mux{}
	HandleFunc(now, Ping, func(context.Context, PingParams) (Pong, error) { panic("now") })
	Handle(later, CompactSession, func(context.Context, CompactSessionParams) (Answer[Compaction], error) {
		return Answer[Compaction]{Later: func(context.Context) (Compaction, error) { panic("later") }}, nil
	})
	ping := Command{ID: "c1", Type: "ping", Payload: jsontext.Value("{}")}
	compact := Command{ID: "c1", Type: "compact_session", Payload: jsontext.Value("{}")}
	for _, c := range []struct {
		name    string
		command string
		outcome Outcome
	}{
		{"now", "ping", now.Run(context.Background(), ping)},
		{"later", "compact_session", later.Run(context.Background(), compact).Later()(context.Background())},
	} {
		var p *PanicError
		if !errors.As(c.outcome.Err(), &p) || p.Value != c.name || p.Command != c.command {
			t.Errorf("%s: got error %v, want the panic", c.name, c.outcome.Err())
		}
		if line := c.outcome.Append(nil, "c1"); !bytes.Contains(line, []byte(`"code":"internal_error"`)) ||
			bytes.Contains(line, []byte("panic")) {
			t.Errorf("%s: got reply %s, want an internal_error without detail", c.name, line)
		}
	}
}

// Which commands may be answered out of order is said once: a handler for any
// other one cannot be bound so, and the page for clients names them.
func TestLongCommandsAreThoseOfTheTable(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("ping can be answered later")
		}
	}()
	page, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rule, _ := strings.Cut(string(page), "Replies come in the order of the commands")
	rule, _, _ = strings.Cut(rule, "\n- ")
	for _, row := range Table() {
		if named := strings.Contains(rule, "`"+row.Name+"`"); named != row.Long || Long(row.Name) != row.Long {
			t.Errorf("%s: long is %t, and docs/protocol.md says %t", row.Name, row.Long, named)
		}
	}
	Handle(&Mux{}, Ping, func(context.Context, PingParams) (Answer[Pong], error) { return Answer[Pong]{}, nil })
}

func TestPromptReplyComesBack(t *testing.T) {
	for _, want := range []PromptReply{
		{Accepted: &PromptAccepted{Command: "prompt", RunID: "run-1", SessionID: "ses-1", InputID: "in-1"}},
		{Result: &PromptResult{
			Output: "hi", Events: []jsontext.Value{jsontext.Value(`{}`)}, SessionID: "ses-1",
			RunID: "run-1",
		}},
		{Result: &PromptResult{Events: []jsontext.Value{}, SessionID: "ses-1", RunID: "run-1"}},
	} {
		line, err := AppendResponse(nil, "c1", want.replyType(), want)
		if err != nil {
			t.Fatal(err)
		}
		cmd, bad := DecodeCommand(line) // an envelope like any other
		if bad != nil {
			t.Fatal(bad)
		}
		var got PromptReply
		if err := json.Unmarshal(cmd.Payload, &got); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", line, diff)
		}
	}
}

func TestTooLongEchoesTheID(t *testing.T) {
	for _, c := range []struct{ prefix, id string }{
		{`{"v":"1","id":"c1","type":"prompt","payload":{"text":"aaaa`, "c1"},
		{`{"v":"1","payload":{"text":"aaaa`, ""},
		{`{"v":"1","id":"cut in two`, ""},
	} {
		id, o := TooLong(&LineTooLongError{Limit: 9, Prefix: []byte(c.prefix)})
		want := &Error{Code: InvalidCommand, Message: "line_too_long: line is longer than 9 bytes"}
		if diff := cmp.Diff(want, AsError(o.Err())); diff != "" || id != c.id {
			t.Errorf("%s: got id %q, want %q; (-want +got):\n%s", c.prefix, id, c.id, diff)
		}
	}
}
