package builtin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	jsonx "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"noused/internal/proc"
	"noused/internal/protocol"
)

// maxLine is the longest request that is read, in bytes: twice the longest
// command the daemon reads, as a text can grow when it is encoded anew.
const maxLine = 2 * protocol.DefaultMaxLine

// Error codes of the protocol (gevals: Error Handling).
const (
	parseError        = -32700
	invalidRequest    = -32600
	methodNotFound    = -32601
	invalidParams     = -32602
	internalError     = -32603
	operationFailed   = -32000
	operationTimeout  = -32001
	requirementNotMet = -32002
)

// fault is an error of the protocol, told as such.
type fault struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (f *fault) Error() string { return f.Message }

func faultf(code int, format string, args ...any) *fault {
	return &fault{code, fmt.Sprintf(format, args...)}
}

// Why a call ends before its time.
var (
	errClientGone = errors.New("the client is gone")
	errNoMoreTime = errors.New("the call took longer than its context allows")
)

// Serve is the extension (gevals-extension-protocol.md): it answers the
// requests of in on out, one at a time, and returns nil after a shutdown, at
// the end of in, or when ctx ends. What has been read at the end of in is
// answered first, which makes the one-shot mode, and lets a whole session be
// piped in. Only where nobody reads out any more a command is stopped for that;
// an end of in alone says as little as that no request will follow. Errors are
// those of in and out.
//
// Relative paths are meant from dir unless the call's context has a workdir;
// environ is what commands inherit. When Serve returns nothing of a command is
// left; a goroutine may be that still waits for in.
//
// A process can have one Serve at a time: with the first command it makes the
// process adopt what a command leaves behind, and ends all that was adopted when
// the command ends. Its main must call [proc.Helper] first.
func Serve(ctx context.Context, in io.Reader, out io.Writer, dir string, environ []string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &server{out: out, dir: dir, environ: environ, cancel: cancel}
	defer s.close()
	requests := make(chan request)
	var readErr error // valid once requests is closed
	go func() {       // ends with in, or with ctx and the line after it
		defer close(requests)
		readErr = readRequests(ctx, in, requests)
	}()
	for {
		select {
		case r, ok := <-requests:
			if !ok {
				return readErr
			}
			if done := s.answer(ctx, r); done || s.failed() != nil {
				return s.failed()
			}
		case <-ctx.Done():
			return s.failed()
		}
	}
}

// failed is why a write did.
func (s *server) failed() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.err
}

// request is one line from the client. A wrong one is only a fault and, where
// it can be told, an id.
type request struct {
	id     jsontext.Value // nil for a notification
	method string
	params jsontext.Value
	fault  *fault
}

// readRequests hands each request on until in ends.
func readRequests(ctx context.Context, in io.Reader, requests chan<- request) error {
	lines := protocol.NewLineReader(in, maxLine)
	for {
		line, err := lines.Next()
		var long *protocol.LineTooLongError
		var r request
		switch {
		case errors.As(err, &long):
			r.id, r.fault = jsontext.Value("null"), faultf(invalidRequest, "%v", err)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read requests: %w", err)
		case len(bytes.TrimSpace(line)) == 0:
			continue
		default:
			r = parse(line)
		}
		select {
		case requests <- r:
		case <-ctx.Done():
			return nil
		}
	}
}

// parse reads one line, copying it.
func parse(line []byte) request {
	null := jsontext.Value("null")
	var doc struct {
		Version jsontext.Value `json:"jsonrpc"`
		ID      jsontext.Value `json:"id"`
		Method  jsontext.Value `json:"method"`
		Params  jsontext.Value `json:"params"`
	}
	if !jsontext.Value(line).IsValid() {
		return request{id: null, fault: faultf(parseError, "the line is not valid JSON")}
	}
	if jsontext.Value(line).Kind() != '{' {
		return request{id: null, fault: faultf(invalidRequest, "a request is a JSON object")}
	}
	if err := jsonx.Unmarshal(line, &doc); err != nil {
		return request{id: null, fault: faultf(invalidRequest, "%v", err)}
	}
	r := request{id: doc.ID, params: doc.Params}
	switch doc.ID.Kind() {
	case 0, 'n', '"', '0':
	default:
		return request{id: null, fault: faultf(invalidRequest, "id: want a number or a string")}
	}
	if r.method = unquote(doc.Method); r.method == "" {
		r.fault = faultf(invalidRequest, "method: want a name")
	}
	if unquote(doc.Version) != "2.0" {
		r.fault = faultf(invalidRequest, `jsonrpc: want "2.0"`)
	}
	if r.fault != nil && r.id == nil {
		r.id = null
	}
	return r
}

func unquote(v jsontext.Value) string {
	var s string
	if v.Kind() != '"' || jsonx.Unmarshal(v, &s) != nil {
		return ""
	}
	return s
}

// server is used by one goroutine, but for what write has. The first write that fails
// ends it.
type server struct {
	writing sync.Mutex // over out and err
	out     io.Writer
	err     error

	dir     string
	environ []string
	cancel  context.CancelCauseFunc

	supervisor *proc.Supervisor // nil before the first command
}

// commands starts them.
func (s *server) commands() *proc.Supervisor {
	if s.supervisor == nil {
		s.supervisor = proc.NewNested("/proc/self/exe", zap.NewNop())
	}
	return s.supervisor
}

func (s *server) close() {
	if s.supervisor != nil {
		s.supervisor.Close()
	}
}

// write sends one message as a line.
func (s *server) write(v any) {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.err != nil {
		return
	}
	line, err := jsonx.Marshal(v, jsontext.AllowInvalidUTF8(true), jsonx.Deterministic(true))
	if err == nil {
		_, err = s.out.Write(append(line, '\n'))
	}
	if err != nil {
		s.err = fmt.Errorf("write to the client: %w", err)
		s.cancel(errClientGone)
	}
}

type reply struct {
	Version string         `json:"jsonrpc"`
	ID      jsontext.Value `json:"id"`
	Result  any            `json:"result,omitzero"`
	Error   *fault         `json:"error,omitzero"`
}

type notification struct {
	Version string `json:"jsonrpc"`
	Method  string `json:"method"`
	Params  any    `json:"params"`
}

type logParams struct {
	Level   string `json:"level"`
	Message string `json:"message"`
}

type keepParams struct {
	Data []byte `json:"data"` // base64
}

// result of an operation (gevals: Result Fields).
type result struct {
	Success bool   `json:"success"`
	Message string `json:"message,omitzero"`
	Error   string `json:"error,omitzero"`
	// Images are the paths of those that a model is to see (docs/tools.md).
	Images []string `json:"images,omitempty"`
}

// answer replies to one request and reports whether it was the last.
// Notifications are not answered, and none is known.
func (s *server) answer(ctx context.Context, r request) (last bool) {
	if r.id == nil {
		return false
	}
	fail := func(f *fault) { s.write(reply{"2.0", r.id, nil, f}) }
	if r.fault != nil {
		fail(r.fault)
		return false
	}
	switch r.method {
	case "initialize":
		if f := checkInitialize(r.params); f != nil {
			fail(f)
			return false
		}
		s.write(reply{"2.0", r.id, describe(), nil})
	case "execute":
		res, err := s.execute(ctx, r.params)
		var f *fault
		if errors.As(err, &f) {
			fail(f)
			return false
		}
		s.write(reply{"2.0", r.id, res, nil})
	case "shutdown":
		s.write(reply{"2.0", r.id, struct{}{}, nil})
		return true
	default:
		fail(faultf(methodNotFound, "unknown method: %s", r.method))
	}
	return false
}

// checkInitialize wants a protocolVersion; which one is the client's matter,
// as ours is in the manifest. A config is accepted and has no meaning here.
func checkInitialize(params jsontext.Value) *fault {
	var p struct {
		ProtocolVersion *string        `json:"protocolVersion"`
		Config          jsontext.Value `json:"config"`
	}
	if err := decode(params, "", &p); err != nil {
		return err
	}
	if p.ProtocolVersion == nil {
		return faultf(invalidParams, "protocolVersion: missing")
	}
	if k := p.Config.Kind(); k != 0 && k != 'n' && k != '{' {
		return faultf(invalidParams, "config: want an object")
	}
	return nil
}

type manifest struct {
	Name            string                 `json:"name"`
	Version         string                 `json:"version"`
	ProtocolVersion string                 `json:"protocolVersion"`
	Description     string                 `json:"description"`
	Operations      map[string]manifestDoc `json:"operations"`
}

type manifestDoc struct {
	Description string         `json:"description"`
	Params      jsontext.Value `json:"params"`
}

func describe() manifest {
	m := manifest{Name, version, protocolVersion, description, map[string]manifestDoc{}}
	for _, op := range operations {
		m.Operations[op.name] = manifestDoc{op.description, op.params}
	}
	return m
}

// execParams are the params of execute (gevals: Params Fields, Context Object).
type execParams struct {
	Operation string         `json:"operation"`
	Args      jsontext.Value `json:"args"`
	Context   struct {
		Workdir string            `json:"workdir"`
		Phase   string            `json:"phase"`
		Env     map[string]string `json:"env"`
		Timeout string            `json:"timeout"`
		KeepIn  string            `json:"keep_in"` // not the protocol's; see spill
		Path    string            `json:"path"`    // nor is this; see real
	} `json:"context"`
}

// execute runs one operation. An error is a *fault.
func (s *server) execute(ctx context.Context, params jsontext.Value) (res result, err error) {
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintf(os.Stderr, "panic: %v\n%s", p, debug.Stack())
			err = faultf(internalError, "the operation failed inside the extension: %v", p)
		}
	}()
	op, c, args, f := s.prepare(params)
	if f != nil {
		return result{}, f
	}
	var cancel context.CancelFunc = func() {}
	if c.timeout > 0 {
		ctx, cancel = context.WithTimeoutCause(ctx, c.timeout, errNoMoreTime)
	}
	defer cancel()
	c.ctx = ctx
	text, err := op.run(c, args)
	switch {
	case err == nil:
		return result{Success: true, Message: text, Images: c.images}, nil
	case errors.As(err, &f):
		return result{}, f
	case errors.Is(err, errNoMoreTime):
		return result{}, faultf(operationTimeout, "%s: no result within %v", op.name, c.timeout)
	case ctx.Err() != nil && errors.Is(err, context.Cause(ctx)):
		return result{}, faultf(operationFailed, "%s was stopped: %v", op.name, err)
	}
	return result{Error: err.Error()}, nil
}

func (s *server) prepare(params jsontext.Value) (*operation, *call, jsontext.Value, *fault) {
	var p execParams
	if f := decode(params, "", &p); f != nil {
		return nil, nil, nil, f
	}
	if p.Operation == "" {
		return nil, nil, nil, faultf(invalidParams, "operation: missing")
	}
	op := lookup(p.Operation)
	if op == nil {
		return nil, nil, nil, faultf(methodNotFound, "unknown operation: %s", p.Operation)
	}
	switch p.Context.Phase {
	case "", "setup", "verify", "cleanup":
	default:
		return nil, nil, nil, faultf(invalidParams, "context.phase: got %q, want setup, verify or cleanup", p.Context.Phase)
	}
	c := &call{
		dir: s.dir, environ: s.environ, log: s.log, listen: s.listen, commands: s.commands,
		keepIn: p.Context.KeepIn, judged: p.Context.Path, keep: s.keep,
	}
	if p.Context.Timeout != "" {
		d, err := time.ParseDuration(p.Context.Timeout)
		if err != nil || d <= 0 {
			return nil, nil, nil, faultf(invalidParams, "context.timeout: got %q, want a duration like 30s or 5m",
				p.Context.Timeout)
		}
		c.timeout = d
	}
	for name, value := range p.Context.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
			return nil, nil, nil, faultf(invalidParams, "context.env: %q cannot be a variable", name)
		}
	}
	c.addEnv(p.Context.Env)
	if p.Context.Workdir != "" {
		c.dir = c.resolve(p.Context.Workdir)
		if info, err := os.Stat(c.dir); err != nil || !info.IsDir() {
			return nil, nil, nil, faultf(invalidParams, "context.workdir: %s is not a directory", p.Context.Workdir)
		}
	}
	return op, c, p.Args, nil
}

func (s *server) log(message string) {
	s.write(notification{"2.0", "log", logParams{"info", message}})
}

// keep has the daemon put some output into the call's file.
func (s *server) keep(b []byte) {
	s.write(notification{"2.0", "output", keepParams{b}})
}

// listen ends the call if nobody reads what is written any more: the other end
// of the pipe is closed.
func (s *server) listen() {
	f, ok := s.out.(*os.File)
	if !ok {
		return
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) {
		poll := []unix.PollFd{{Fd: int32(fd)}}
		if _, err := unix.Poll(poll, 0); err == nil && poll[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0 {
			s.cancel(errClientGone)
		}
	})
}

func lookup(name string) *operation {
	for i := range operations {
		if operations[i].name == name {
			return &operations[i]
		}
	}
	return nil
}
