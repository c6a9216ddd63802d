// Package tool runs the daemon's tools: it loads their Module Descriptors,
// knows their operations, checks arguments, supervises their processes and
// turns whatever happens into one result that a model can read.
//
// A [Registry] holds one [Host] per descriptor. A host speaks one protocol and
// is made by a [Dialect]; the dialects live in packages of their own
// (narratoria, gevals), which main hands in. Child processes are started by
// one [Supervisor], whatever they speak.
//
// # Concurrency properties
//
// A Registry, its hosts and the Supervisor may be used from any goroutine. The
// progress function of a call is called from one goroutine at a time and never
// after the call returned; while it blocks, the tool is not read, and stops at
// its full pipe. Descriptors and manifests are never changed once handed over.
// Every goroutine is waited for by [Registry.Close].
//
// # What it refuses to do
//
// It knows no session, no model and no wire: patches and assets are handed on,
// not applied. It does not decide what may be called. It never runs a tool
// with less isolation than its descriptor asks for, and it never gives a tool
// the daemon's own environment.
package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"noused/internal/model"
)

// Wire codes of a failed call: the reserved ones of the Amplifier error schema
// (§4) and those of tools.md. A gevals JSON-RPC error has its number as code.
const (
	Timeout       = "timeout"
	OOM           = "oom"
	Unreachable   = "unreachable"
	BadRequest    = "bad_request"
	Forbidden     = "forbidden"
	Internal      = "internal"
	UnsupportedOp = "unsupported_op"
	ProtocolError = "protocol_error"
	ToolFailed    = "tool_failed"
	Crashed       = "crashed"
	Aborted       = "aborted"
)

// InvalidEvent is the warning code of something a tool said that was refused
// without ending the call (tools.md §2).
const InvalidEvent = "invalid_tool_event"

// Operation is one thing a module can do. Params is a JSON Schema; empty means
// any object.
type Operation struct {
	Name        string
	Description string
	Params      json.RawMessage
}

// Manifest is what a module can do.
type Manifest struct {
	Operations []Operation
}

// Host runs the operations of one module. All methods may be called at the
// same time from several goroutines.
type Host interface {
	// Describe returns the manifest, asking the module when it is not known yet,
	// within a deadline of its own. The pointer stays the same for as long as
	// what the module can do does. An error says why no operation can be called
	// now; a manifest may come with it, and Call is then left to fail by itself.
	Describe(ctx context.Context) (*Manifest, error)
	// Call runs an operation of the manifest. inv.Arguments is a JSON object that
	// satisfies the operation's schema. Cancelling ctx ends the call; its result
	// then has the code that [Interrupted] finds.
	Call(ctx context.Context, op string, inv model.Invocation, progress func(model.ToolUpdate)) model.ToolResult
	// Close ends the module's processes, in order while ctx lasts, by force then.
	// Calls still running are aborted.
	Close(ctx context.Context)
}

// Invoker is a Host whose module the daemon itself has work for: the Amplifier
// kinds provider, context, orchestrator and hook (amplifier-protocols §2).
type Invoker interface {
	// Invoke runs an operation that no manifest has, within the descriptor's
	// timeout, and returns its result, any JSON value. Errors are Faults: of the
	// module's own making, or with one of the reserved codes.
	Invoke(ctx context.Context, op string, args json.RawMessage, sessionID string) (json.RawMessage, error)
}

// Dialect makes the host of a descriptor. It starts nothing.
type Dialect func(d *Descriptor, s *Supervisor, log *zap.Logger) Host

// Fault is an error that has a wire code.
type Fault struct {
	Code    string
	Message string
	Details json.RawMessage // a JSON object, or nil
}

func (f *Fault) Error() string { return f.Message }

// Faultf returns a Fault with a formatted message.
func Faultf(code, format string, args ...any) *Fault {
	return &Fault{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Failure is the result of a call that ended with err. An error that is no
// [Fault] has the code internal.
func Failure(err error) model.ToolResult {
	var f *Fault
	if !errors.As(err, &f) {
		return model.Failed(Internal, err.Error())
	}
	r := model.Failed(f.Code, err.Error())
	r.Error.Details = f.Details
	return r
}

// errTimeout is the cause of a context that [WithTimeout] ended.
type errTimeout time.Duration

func (e errTimeout) Error() string { return fmt.Sprintf("no result within %v", time.Duration(e)) }

// WithTimeout bounds a call, so that [Interrupted] can tell its end from an
// abort.
func WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, errTimeout(d))
}

// Interrupted returns the fault of a call whose ctx is done, from its cause:
// timeout where [WithTimeout] ended it, aborted in every other case.
func Interrupted(ctx context.Context) *Fault {
	cause := context.Cause(ctx)
	if t := errTimeout(0); errors.As(cause, &t) {
		return &Fault{Code: Timeout, Message: t.Error()}
	}
	if cause == nil || errors.Is(cause, context.Canceled) {
		return &Fault{Code: Aborted, Message: "the call was aborted"}
	}
	return Faultf(Aborted, "%v", cause)
}
