package protocol

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Answer is what a handler says: Reply at once, or, with Later set, what Later
// returns once it is done. Later runs beside the connection's other commands
// and may block until its context ends.
type Answer[R Reply] struct {
	Reply R
	Later func(context.Context) (R, error)
}

// Outcome is an Answer without its type: Encode gives the reply's line.
type Outcome struct {
	reply Reply
	err   error
	later func(context.Context) Outcome
}

// Later returns the second half of a long command, nil when the outcome is
// there already.
func (o Outcome) Later() func(context.Context) Outcome { return o.later }

// Pending reports that the outcome is not there yet.
func (o Outcome) Pending() bool { return o.reply == nil && o.err == nil }

// Err is the Go error behind an error reply, for the log.
func (o Outcome) Err() error { return o.err }

// Shorten leaves out of the outcome what a way that carries only short replies can do
// without: the events of a prompt that was waited for, which says so. False: there is
// nothing of that kind.
func (o *Outcome) Shorten() bool {
	p, ok := o.reply.(PromptReply)
	if !ok || p.Result == nil || len(p.Result.Events) == 0 {
		return false
	}
	res := *p.Result
	if res.Release != nil {
		res.Release()
	}
	res.Events, res.EventsTruncated, res.Release = []jsontext.Value{}, true, nil
	o.reply = PromptReply{Result: &res}
	return true
}

// Short reports that the reply cannot be long, but for what is encoded already.
func (o Outcome) Short() bool {
	switch o.reply.(type) {
	case appender, Messages:
		return true
	}
	return o.err != nil
}

// Encode makes the response line for the command with that id. Its Head is
// appended to out.
func (o Outcome) Encode(out []byte, id string) Response {
	var r Response
	err := o.err
	if err == nil {
		if r, err = encodeResponse(out, id, o.reply.replyType(), o.reply); err == nil {
			return r
		}
	}
	return Response{Head: AppendError(out, id, AsError(err)), Release: r.Release}
}

// Append appends the whole response line, as one piece.
func (o Outcome) Append(out []byte, id string) []byte { return o.Encode(out, id).join() }

// PanicError is a handler's panic turned into an error.
type PanicError struct {
	Command string
	Value   any
	Stack   []byte
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("panic in %s: %v\n%s", e.Command, e.Value, e.Stack)
}

// Mux holds the handler of every command. Bind all before the first Run.
type Mux struct {
	handlers map[string]func(context.Context, jsontext.Value) Outcome
}

// Handle binds the handler of a long command. It runs on the connection's own
// goroutine, in the order of the commands; what it returns later does not hold
// the next ones up.
func Handle[P Params, R Reply](m *Mux, d Def[P, R], fn func(context.Context, P) (Answer[R], error)) {
	if !Long(d.name) {
		panic("no long command: " + d.name)
	}
	bind(m, d, fn)
}

// HandleFunc binds a handler that has its reply when it returns: the commands
// that follow on its connection wait for it.
func HandleFunc[P Params, R Reply](m *Mux, d Def[P, R], fn func(context.Context, P) (R, error)) {
	bind(m, d, func(ctx context.Context, p P) (Answer[R], error) {
		r, err := fn(ctx, p)
		return Answer[R]{Reply: r}, err
	})
}

func bind[P Params, R Reply](m *Mux, d Def[P, R], fn func(context.Context, P) (Answer[R], error)) {
	if m.handlers == nil {
		m.handlers = make(map[string]func(context.Context, jsontext.Value) Outcome)
	}
	if m.handlers[d.name] != nil {
		panic("command bound twice: " + d.name)
	}
	m.handlers[d.name] = func(ctx context.Context, payload jsontext.Value) Outcome {
		var p P
		if err := decodeParams(payload, &p); err != nil {
			return Outcome{err: err}
		}
		a, err := fn(ctx, p)
		if err != nil {
			return Outcome{err: err}
		}
		if a.Later == nil {
			return Outcome{reply: a.Reply}
		}
		return Outcome{later: func(ctx context.Context) (o Outcome) {
			defer recovered(d.name, &o)
			r, err := a.Later(ctx)
			return Outcome{reply: r, err: err}
		}}
	}
}

// Missing lists the commands of the table that have no handler.
func (m *Mux) Missing() []string {
	var names []string
	for _, row := range table {
		if m.handlers[row.Name] == nil {
			names = append(names, row.Name)
		}
	}
	return names
}

// Run executes one decoded command. A panic in its handler is an
// internal_error.
func (m *Mux) Run(ctx context.Context, cmd Command) (o Outcome) {
	h := m.handlers[cmd.Type]
	if h == nil {
		return Outcome{err: invalidf(UnknownCommand, "%.80q", cmd.Type)}
	}
	defer recovered(cmd.Type, &o)
	return h(ctx, cmd.Payload)
}

func recovered(command string, o *Outcome) {
	if v := recover(); v != nil {
		*o = Outcome{err: &PanicError{command, v, debug.Stack()}}
	}
}

// Failure is the outcome of a command that could not be run.
func Failure(err error) Outcome { return Outcome{err: err} }

// TooLong is the outcome of a line over the limit, and the id it carried where
// that can still be read.
func TooLong(e *LineTooLongError) (id string, o Outcome) {
	cmd, _ := DecodeCommand(e.Prefix)
	if e.NoRoom {
		return cmd.ID, Outcome{err: Rejectf(TooManyPending, "%s", e.Error())}
	}
	return cmd.ID, Outcome{err: invalidf(LineTooLong, "%s", e.Error())}
}

// DecodeSubscribe reads a line from an event client. The id is given also with
// an error.
func DecodeSubscribe(line []byte) (id string, p SubscribeParams, err error) {
	cmd, e := DecodeCommand(line)
	if e != nil {
		return cmd.ID, p, e
	}
	if cmd.Type != "subscribe" {
		return cmd.ID, p, invalidf(UnknownCommand, "%.80q: the event socket takes subscribe only", cmd.Type)
	}
	if e := decodeParams(cmd.Payload, &p); e != nil {
		return cmd.ID, p, e
	}
	return cmd.ID, p, nil
}

// decodeParams returns an error interface so that a nil *Error never hides in
// one.
func decodeParams[P Params](payload jsontext.Value, p *P) error {
	if len(payload) > len(emptyObject) {
		if err := json.Unmarshal(payload, p); err != nil {
			return fieldError(err)
		}
	}
	if e := (*p).validate(); e != nil {
		return e
	}
	return nil
}

// element is an attachment as a pointer names it; BadAttachment is the other way.
var element = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^attachments\.(\d+)`) })

func fieldError(err error) *Error {
	var sem *json.SemanticError
	if !errors.As(err, &sem) {
		return badField("payload", "%s", jsonProblem(err))
	}
	field := strings.ReplaceAll(strings.TrimPrefix(string(sem.JSONPointer), "/"), "/", ".")
	field = element().ReplaceAllString(field, "attachments[$1]")
	if field == "" {
		field = "payload"
	}
	want := "another type"
	if sem.GoType != nil {
		want = wireType(sem.GoType)
	}
	return badField(field, "got %s, want %s", kindName(sem.JSONKind), want)
}

func kindName(k jsontext.Kind) string {
	switch k {
	case jsontext.KindNull:
		return "null"
	case jsontext.KindTrue, jsontext.KindFalse:
		return "a boolean"
	case jsontext.KindString:
		return "a string"
	case jsontext.KindNumber:
		return "a number"
	case jsontext.KindBeginObject:
		return "an object"
	case jsontext.KindBeginArray:
		return "an array"
	default:
		return "something else"
	}
}
