// Package protocol is the nous v1 wire (wire-v1.md): envelopes, the one table
// of commands, typed payloads, the sealed set of events, errors, and the
// bounded line reader.
//
// Concurrency: a Mux is bound before it serves and read-only afterwards; a
// LineReader belongs to one goroutine; everything else is a value.
//
// It refuses to know sessions, runs, models or sockets, to log, and to guess:
// what does not decode strictly (case-sensitive keys, no duplicate ones, valid
// UTF-8) is an error naming the field.
package protocol

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Version is the frozen protocol version.
const Version = "1"

// Command is a decoded command envelope. Payload is a JSON object.
type Command struct {
	ID      string
	Type    string
	Payload jsontext.Value
}

type commandEnvelope struct {
	V       jsontext.Value `json:"v"`
	ID      jsontext.Value `json:"id"`
	Type    jsontext.Value `json:"type"`
	Payload jsontext.Value `json:"payload"`
}

// DecodeCommand reads one line. On error the command still carries the id
// where that could be read, for the error's envelope to echo.
func DecodeCommand(line []byte) (Command, *Error) {
	if cmd, ok := decodeCanonical(line); ok {
		return cmd, nil
	}
	return decodeGeneral(line)
}

func decodeGeneral(line []byte) (Command, *Error) {
	var env commandEnvelope
	err := json.Unmarshal(line, &env)
	if err == nil && jsontext.Value(line).Kind() != jsontext.KindBeginObject {
		return Command{}, invalidf(InvalidJSON, "want an object") // a null decodes into anything
	}
	id, hasID := stringValue(env.ID)
	cmd := Command{ID: id}
	if err != nil {
		return cmd, invalidf(InvalidJSON, "%s", jsonProblem(err))
	}
	if !versionOK(env.V) {
		return cmd, invalidf(InvalidVersion, `v is %s, want "1"`, snippet(env.V))
	}
	if !hasID || id == "" {
		return cmd, invalidf(MissingID, "id: want a non-empty string")
	}
	typ, ok := stringValue(env.Type)
	if !ok || typ == "" {
		return cmd, invalidf(MissingType, "type: want a non-empty string")
	}
	cmd.Type = typ
	switch env.Payload.Kind() {
	case jsontext.KindInvalid, jsontext.KindNull:
		cmd.Payload = emptyObject
	case jsontext.KindBeginObject:
		cmd.Payload = env.Payload
	default:
		return cmd, badField("payload", "want an object")
	}
	return cmd, nil
}

func versionOK(v jsontext.Value) bool {
	if v == nil {
		return true
	}
	switch v.Kind() {
	case jsontext.KindString:
		s, _ := stringValue(v)
		return s == Version
	case jsontext.KindNumber:
		n, err := strconv.ParseFloat(string(v), 64)
		return err == nil && n == 1
	default:
		return false
	}
}

func stringValue(v jsontext.Value) (string, bool) {
	if v.Kind() != jsontext.KindString {
		return "", false
	}
	s, err := jsontext.AppendUnquote(nil, v)
	return string(s), err == nil
}

func snippet(v []byte) string {
	if len(v) > 40 {
		v = v[:40]
	}
	return string(v)
}

// jsonProblem puts a decoder's error into one short line for a person.
func jsonProblem(err error) string {
	var syn *jsontext.SyntacticError
	var sem *json.SemanticError
	switch {
	case errors.As(err, &syn):
		at := " at byte " + strconv.FormatInt(syn.ByteOffset, 10)
		if syn.JSONPointer != "" {
			at += " in " + snippet([]byte(syn.JSONPointer))
		}
		return syn.Err.Error() + at
	case errors.As(err, &sem):
		return "want an object"
	default:
		return err.Error()
	}
}

// AppendResponse appends the LF-ended line of a success. typ and payload are
// those of the command's table entry. Text that is not valid UTF-8 (a tool's,
// say) is mended with U+FFFD, never refused.
func AppendResponse(out []byte, id, typ string, payload any) ([]byte, error) {
	if pong, ok := payload.(Pong); ok { // for a ping, encoding is most of the work
		out = append(appendHead(out, id, typ), `{"message":`...)
		out, _ = jsontext.AppendQuote(out, pong.Message)
		if pong.Version != "" {
			out, _ = jsontext.AppendQuote(append(out, `,"version":`...), pong.Version)
		}
		return append(out, "},\"ok\":true}\n"...), nil
	}
	var values []jsontext.Value
	switch p := payload.(type) {
	case Messages:
		values, p.Messages = p.Messages, []jsontext.Value{placeholder}
		payload = p
	case PromptReply:
		if p.Result != nil {
			r := *p.Result
			values, r.Events = r.Events, []jsontext.Value{placeholder}
			payload = r
		}
	}
	body, err := json.Marshal(payload, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return out, err
	}
	out = slices.Grow(out, len(body)+sizeOf(values)+len(id)+256)
	out = appendHead(out, id, typ)
	before, after, held := bytes.Cut(body, placeholder)
	out = append(out, before...)
	if held {
		out = appendValues(out, values)
		out = append(out, after...)
	}
	return append(out, ",\"ok\":true}\n"...), nil
}

// placeholder stands for a list of values that have been encoded already, while
// what is around it is: to decode and encode thousands of them anew is most of
// the work. No text can hold it, as its quotes would be escaped.
var placeholder = jsontext.Value(`["\u0000"]`)

func sizeOf(values []jsontext.Value) int {
	n := 0
	for _, v := range values {
		n += len(v) + 1
	}
	return n
}

func appendValues(out []byte, values []jsontext.Value) []byte {
	for i, v := range values {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, v...)
	}
	return out
}

// AppendError appends the LF-ended line of a failure.
func AppendError(out []byte, id string, e *Error) []byte {
	out = appendHead(out, id, "error")
	out = append(out, `{},"ok":false,"error":`...)
	body, err := json.Marshal(e, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		body = []byte(`{"code":"internal_error","message":"unprintable error"}`)
	}
	out = append(out, body...)
	return append(out, "}\n"...)
}

func appendHead(out []byte, id, typ string) []byte {
	out = append(out, `{"v":"1","id":`...)
	out, _ = jsontext.AppendQuote(out, id)
	out = append(out, `,"type":"`...)
	out = append(out, typ...)
	return append(out, `","payload":`...)
}

// EncodePayload encodes an event's payload. Text that is not valid UTF-8 (a
// tool's, say) is mended with U+FFFD, never refused.
func EncodePayload(ev Event) ([]byte, error) {
	return json.Marshal(ev, jsontext.AllowInvalidUTF8(true))
}

// AppendEvent appends the LF-ended envelope of event number seq, published at
// ts, around an encoded payload.
func AppendEvent(out []byte, typ string, payload []byte, ts time.Time, seq uint64) []byte {
	out = append(out, `{"v":"1","id":"evt-`...)
	out = strconv.AppendUint(out, seq, 10)
	out = append(out, `","type":"`...)
	out = append(out, typ...)
	out = append(out, `","payload":`...)
	out = append(out, payload...)
	out = append(out, `,"ts":"`...)
	out = ts.UTC().AppendFormat(out, "2006-01-02T15:04:05.000000Z")
	out = append(out, `","seq":`...)
	out = strconv.AppendUint(out, seq, 10)
	return append(out, "}\n"...)
}
