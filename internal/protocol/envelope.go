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
	"crypto/rand"
	"errors"
	"iter"
	"slices"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

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

// Response is the LF-ended line of a reply: Head, Body, Values, Tail. Long data is in
// Body and Values, and is not copied.
type Response struct {
	Head    []byte
	Body    []byte           // empty where all that stands before Values is short
	Values  []jsontext.Value // not to be changed
	Tail    []byte
	Release func() // not nil: the bytes of Values are counted elsewhere; call it when the line is written
}

// Pieces are those of the line, in order. They must not be changed.
func (r Response) Pieces() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if !yield(r.Head) || len(r.Body) > 0 && !yield(r.Body) {
			return
		}
		for _, v := range r.Values {
			if !yield(v) {
				return
			}
		}
		yield(r.Tail)
	}
}

var comma = jsontext.Value{','}

// Size is how many bytes the line counts for: without Values where Release is set, since
// those are counted elsewhere.
func (r Response) Size() int {
	n := len(r.Head) + len(r.Body) + len(r.Tail)
	if r.Release == nil {
		n += r.long()
	}
	return n
}

// Len is how many bytes the line has.
func (r Response) Len() int { return len(r.Head) + len(r.Body) + r.long() + len(r.Tail) }

// Line is the line as one piece, for a way that takes no pieces.
func (r Response) Line() []byte { return r.join() }

func (r Response) long() int {
	n := 0
	for _, v := range r.Values {
		n += len(v)
	}
	return n
}

// longBody is the size from which a payload is not copied, in bytes.
const longBody = 16 << 10

// appender is a payload that is quicker at encoding itself.
type appender interface{ appendTo(out []byte) []byte }

// encodeResponse makes the line of a success, whose Head is appended to out. On
// an error it has the Release that must be called.
func encodeResponse(out []byte, id, typ string, payload any) (r Response, err error) {
	text := ""
	switch p := payload.(type) {
	case appender:
		return Response{Head: append(p.appendTo(appendHead(out, id, typ)), ending...)}, nil
	case Tools:
		return encodeTools(out, id, p)
	case Messages:
		r.Release = p.Release
		r.Values = listed(nil, p.Messages)
		if len(p.Encoded) > 0 {
			r.Values = listed(append(r.Values, jsontext.Value(`],"runs":[`)), p.Encoded)
		}
		p.Messages = []jsontext.Value{placeholder()}
		payload = p
	case PromptReply:
		if p.Result != nil {
			res := *p.Result
			r.Values, r.Release, res.Events = listed(nil, res.Events), res.Release, []jsontext.Value{placeholder()}
			text = res.Output
			payload = PromptReply{Result: &res}
		}
	}
	body, err := marshalLong(payload, text, 0)
	if err != nil {
		return Response{Release: r.Release}, err
	}
	r.Head = appendHead(out, id, typ)
	before, after, held := bytes.Cut(body, placeholder())
	switch {
	case held && len(before) > longBody:
		r.Body, r.Tail = before, append(after, ending...)
	case held:
		r.Head, r.Tail = append(r.Head, before...), append(after, ending...)
	case len(body) > longBody:
		r.Values, r.Tail = []jsontext.Value{body}, []byte(ending)
	default:
		r.Head = append(append(r.Head, body...), ending...)
	}
	return r, nil
}

// listed appends values, with commas between them.
func listed(out, values []jsontext.Value) []jsontext.Value {
	out = slices.Grow(out, 2*len(values))
	for i, v := range values {
		if i > 0 {
			out = append(out, comma)
		}
		out = append(out, v)
	}
	return out
}

// encodeTools is encodeResponse without a copy of the tools' params, which the
// daemon has once for all replies.
func encodeTools(out []byte, id string, p Tools) (Response, error) {
	var params []jsontext.Value
	p.Tools = slices.Clone(p.Tools)
	for i := range p.Tools {
		if t := &p.Tools[i]; len(t.Params) > longParams {
			params = append(params, t.Params)
			t.Params = placeholder()
		}
	}
	body, err := json.Marshal(p, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return Response{}, err
	}
	r := Response{Head: appendHead(out, id, p.replyType()), Tail: []byte(ending)}
	for i, between := range bytes.Split(body, placeholder()) {
		if i > 0 {
			r.Values = append(r.Values, params[i-1])
		}
		r.Values = append(r.Values, between)
	}
	return r, nil
}

// longParams is the size from which a tool's params are not copied, in bytes.
const longParams = 256

const ending = ",\"ok\":true}\n"

// placeholder stands for a list of values that have been encoded already, while
// what is around it is: to decode and encode thousands of them anew is most of
// the work. No text can hold it, as its quotes would be escaped, and nobody who writes
// JSON of their own, as tools and servers do, can guess it.
var placeholder = sync.OnceValue(func() jsontext.Value { return jsontext.Value(`["\u0000` + rand.Text() + `"]`) })

// AppendResponse appends the LF-ended line of a success. typ and payload are
// those of the command's table entry. Text that is not valid UTF-8 (a tool's,
// say) is mended with U+FFFD, never refused.
func AppendResponse(out []byte, id, typ string, payload any) ([]byte, error) {
	r, err := encodeResponse(out, id, typ, payload)
	if err != nil {
		return out, err
	}
	return r.join(), nil
}

// join makes one piece of the line.
func (r Response) join() []byte {
	out := slices.Grow(r.Head, len(r.Body)+r.long()+len(r.Tail))
	for piece := range (Response{Body: r.Body, Values: r.Values, Tail: r.Tail}).Pieces() {
		out = append(out, piece...)
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

// QuotedSize is how many bytes a text takes as JSON without its quotes, or a few more. It is
// six times as long where every character has to be escaped.
func QuotedSize(s string) int {
	n := len(s)
	for i := range len(s) {
		switch c := s[i]; {
		case c >= ' ' && c != '"' && c != '\\':
		case c >= ' ', c == '\n', c == '\t', c == '\r', c == '\b', c == '\f':
			n++
		default:
			n += 5
		}
	}
	if !utf8.ValidString(s) {
		n *= 3 // U+FFFD for each wrong byte
	}
	return n
}

// EncodePayload encodes an event's payload. Text that is not valid UTF-8 (a
// tool's, say) is mended with U+FFFD, never refused.
func EncodePayload(ev Event) ([]byte, error) {
	size, text := 0, ""
	switch ev := ev.(type) {
	case MessageStart:
		text = ev.Text
	case MessageUpdate:
		text = ev.Delta
	case MessageEnd:
		text = ev.Text
		for _, c := range ev.ToolCalls {
			size += len(c.Arguments)
		}
	case ToolStart:
		size = len(ev.Arguments)
	case ToolEnd:
		text = ev.Result
	}
	return marshalLong(ev, text, size)
}

// marshalLong encodes v, which holds text and about that many more bytes, into a buffer that
// is large enough from the start.
func marshalLong(v any, text string, more int) ([]byte, error) {
	if len(text)+more <= longBody {
		return json.Marshal(v, jsontext.AllowInvalidUTF8(true))
	}
	out := bytes.NewBuffer(make([]byte, 0, more+QuotedSize(text)+longBody)) // enough not to be copied
	err := json.MarshalWrite(out, v, jsontext.AllowInvalidUTF8(true))
	return out.Bytes(), err
}

// AppendEvent appends the LF-ended envelope of event number seq, published at
// ts, around an encoded payload.
func AppendEvent(out []byte, typ string, payload []byte, ts time.Time, seq uint64) []byte {
	return AppendJoined(out, typ, payload, ts, Span{To: seq})
}

var partsBegin = [2]string{`,"parts":[`, `,`}

// Span is the events that one envelope stands for: those from number From to number
// To, or with From 0 only To. Parts, which may be nil, are how many bytes of the
// joined delta are of each.
type Span struct {
	From, To uint64
	Parts    []int
}

// AppendJoined is AppendEvent for one envelope in place of several events.
func AppendJoined(out []byte, typ string, payload []byte, ts time.Time, span Span) []byte {
	out = append(out, `{"v":"1","id":"evt-`...)
	out = strconv.AppendUint(out, span.To, 10)
	out = append(out, `","type":"`...)
	out = append(out, typ...)
	out = append(out, `","payload":`...)
	out = append(out, payload...)
	out = append(out, `,"ts":"`...)
	out = ts.UTC().AppendFormat(out, "2006-01-02T15:04:05.000000Z")
	if span.From > 0 {
		out = strconv.AppendUint(append(out, `","from_seq":`...), span.From, 10)
		for i, n := range span.Parts {
			out = strconv.AppendInt(append(out, partsBegin[min(i, 1)]...), int64(n), 10)
		}
		if len(span.Parts) > 0 {
			out = append(out, ']')
		}
		out = append(out, `,"seq":`...)
	} else {
		out = append(out, `","seq":`...)
	}
	out = strconv.AppendUint(out, span.To, 10)
	return append(out, "}\n"...)
}

// SeqOf is the number of an event in the line that AppendEvent made of it, 0
// for another line.
func SeqOf(line []byte) uint64 {
	i := bytes.LastIndexByte(line, ':')
	digits, ok := bytes.CutSuffix(line[i+1:], []byte("}\n"))
	if !ok {
		return 0
	}
	seq, _ := strconv.ParseUint(string(digits), 10, 64)
	return seq
}
