// Package tool is the vocabulary of the daemon's tools: a [Descriptor] and its
// checks, the [Host] that runs a module's operations and the [Dialect] that makes
// one, the [Fault] that a failed call ends with, the [Policy] of what may be
// called, and how JSON from a tool is read.
//
// The registry, which knows all modules, is in the package registry; living
// processes are kept by the package worker; each protocol has a package of its
// own (narratoria, gevals, amplifier, mcp). They start processes with the package
// proc.
//
// # Concurrency properties
//
// Descriptors, manifests, schemas and policies are never changed once handed
// over, and may be read from any goroutine. A host may be used from any. The
// progress function of a call is called from one goroutine at a time and never
// after the call returned; while it blocks, the tool is not read, and stops at
// its full pipe.
//
// # What it refuses to do
//
// It knows no session, no model and no wire: patches and assets are handed on,
// not applied. It never has a tool run with less isolation than its descriptor
// asks for, and it never gives a tool the daemon's own environment.
package tool

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"go.uber.org/zap"

	"noused/internal/model"
	"noused/internal/proc"
)

// Wire codes of a failed call: the reserved ones of the Amplifier error schema
// (§4) and those of tools.md. A gevals JSON-RPC error has its number as code.
const (
	Timeout       = "timeout"
	OOM           = "oom"
	Unreachable   = "unreachable"
	BadRequest    = model.BadRequest
	Forbidden     = model.Forbidden
	Internal      = model.Internal
	UnsupportedOp = "unsupported_op"
	ProtocolError = "protocol_error"
	ToolFailed    = "tool_failed"
	Crashed       = "crashed"
	Aborted       = "aborted"
	// NeedsLogin: the server wants somebody to log in.
	NeedsLogin = "needs_login"
	// WorkdirMissing: the folder of the session is gone, or cannot be entered.
	WorkdirMissing = "workdir_missing"
)

// InvalidEvent is the warning code of something a tool said that was refused
// without ending the call (tools.md §2).
const InvalidEvent = "invalid_tool_event"

// Agent is the name of the built-in tool by which a model has child sessions.
const Agent = "agent"

// DefaultMaxText and DefaultMaxLines bound the text of a result that a model is
// given, in bytes and in lines, unless the configuration says otherwise.
const (
	DefaultMaxText  = 50 << 10
	DefaultMaxLines = 2000
)

// Operation is one thing a module can do. Params is a JSON Schema; empty means
// any object. ReadOnly: an MCP server says that it
// changes nothing.
type Operation struct {
	Name        string
	Description string
	Params      jsontext.Value
	ReadOnly    bool
}

// Manifest is what a module can do. Instructions are what an MCP server tells a
// model of itself.
type Manifest struct {
	Operations   []Operation
	Instructions string
	Prompts      []model.ServerPrompt
	LeftOut      []string // tools that cannot be used, each with the reason
}

// Teller is a Host that has texts for people to put into what they write. Both
// block as long as the module does, within its timeout; errors are Faults.
type Teller interface {
	// Prompt is what a prompt of the module's says, one part for each message.
	Prompt(ctx context.Context, name string, args map[string]string) ([]Part, error)
	// Resource is the content of a URI.
	Resource(ctx context.Context, uri string) ([]Part, error)
}

// Part is a text, with URI set that of a resource, or with Data something else of
// that media type.
type Part struct {
	Text           string
	URI, MediaType string
	Data           []byte
	Assistant      bool // says it
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
	// Close ends the module's processes, in order while ctx lasts, by force then,
	// and waits for that. By then no call is under way, and none follows. Describe
	// may still be asked, and starts nothing.
	Close(ctx context.Context)
}

// Tryer is a Host that may describe a module that was never started.
type Tryer interface {
	// Try starts one where none was, so that Describe tells whether it can be.
	Try(ctx context.Context)
}

// Invoker is a Host whose module the daemon itself has work for: the Amplifier
// kinds provider, context, orchestrator and hook (amplifier-protocols §2).
type Invoker interface {
	// Invoke runs an operation that no manifest has, within the descriptor's
	// timeout, and returns its result, any JSON value. Errors are Faults: of the
	// module's own making, or with one of the reserved codes.
	Invoke(ctx context.Context, op string, args jsontext.Value, sessionID string) (jsontext.Value, error)
}

// Watched is a Host that tells people how its server is.
type Watched interface {
	// Status returns one of the states of [model.ServerInfo], and what to
	// say of it in one line. It does not block.
	Status() (state, message string)
}

// Server is the Host of an MCP server.
type Server interface {
	Host
	Watched
	// Known reports whether Describe has its answer at hand, and need not start the
	// server for it.
	Known() bool
	// Watch has changed called after each change of the manifest that the server has
	// made by itself, from any goroutine. It is called before the first use.
	Watch(changed func())
}

// Dialect makes the host of a descriptor. It starts nothing.
type Dialect func(d *Descriptor, s *proc.Supervisor, log *zap.Logger) Host

// Fault is an error that has a wire code.
type Fault struct {
	Code    string
	Message string
	Details jsontext.Value // a JSON object, or nil
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
	r.Error.Details = []byte(f.Details)
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
