package runloop

import (
	"context"
	"iter"
	"time"

	"noused/internal/model"
	"noused/internal/protocol"
)

// Model streams one assistant message. The stream ends with a delta that
// carries Stop, or with an error; it ends promptly when ctx does or the
// consumer breaks.
type Model interface {
	Stream(ctx context.Context, req model.Request) iter.Seq2[model.Delta, error]
}

// Models makes the daemon's own model, and those that sessions choose.
type Models interface {
	// Own is the daemon's own model now, the zero Choice where none is chosen. It does
	// not block.
	Own() model.Choice
	// Fallbacks are asked, in their order, while a session's model cannot answer. It does
	// not block.
	Fallbacks() []model.Choice
	// Choose returns what a client means by PROVIDER[/NAME], at another server if
	// baseURL is not empty, and thinking as hard as effort says, or what is wrong
	// with it. A name of "" is the daemon's own model, and so is the Choice then.
	Choose(name, baseURL, effort string) (model.Choice, error)
	// Window is the context size, in tokens, of a model whose Choice sets none, as
	// far as it is known now; 0: no limit. It does not block.
	Window(model.Choice) int64
	// Model returns a model that was chosen, now or by a former daemon. The error says
	// what is missing, of the zero Choice that none is chosen. It does not block.
	Model(model.Choice) (Model, error)
}

// Instructions are what a model is told before a conversation. None of its
// methods runs anything that a repository names.
type Instructions interface {
	// Environment describes where a conversation in that folder begins. It differs
	// from one call to the next, and may take a second, or until ctx ends.
	Environment(ctx context.Context, workdir string) string
	// System returns all that a model is told in that folder, in an environment that was described
	// before, if it reads so many tokens, 0 where that is not known. It tells which
	// files it is from, and which were left out and why.
	System(workdir, environment string, window int64) (text string, files, problems []string)
	// Expand puts what a command's file in that folder says in the place of /NAME; ok is
	// false for a text that names none. Its error is for people. It blocks for the disk.
	Expand(workdir, text string) (expanded string, ok bool, err error)
	// Named returns the named agent of that name in that folder. Its error is for people. It
	// blocks for the disk.
	Named(workdir, name string) (*model.NamedAgent, error)
	// ListNamed tells a model which there are, each on a line of its own. It blocks for the disk.
	ListNamed(workdir string) string
}

// Tools knows and runs the operations of all tools.
type Tools interface {
	// List returns every operation that is seen from there. It may wait for tools
	// that have to be asked what they can do, never past their deadline. Params are
	// compact JSON of at most 1000 levels, and shared: nobody changes them.
	List(ctx context.Context, from model.Scope) []model.ToolInfo
	// Try has List say of tools that it knows without having asked them whether they
	// can be started. It waits for that, never past their deadline.
	Try(ctx context.Context, from model.Scope)
	// Servers are the MCP servers that are seen from there, by name. It waits for
	// none of them.
	Servers(from model.Scope) []model.ServerInfo
	// Expand puts into a text what servers have for it. It waits for those that the
	// text names; its error is for people.
	Expand(ctx context.Context, from model.Scope, text string) (model.Expanded, error)
	// Check says what is wrong with a server that a session is to have. The error
	// begins with the field.
	Check(s model.Server) error
	// Ready starts the MCP servers that have never said what they can do, and waits
	// for them, as long as ctx. It returns the names of those that have not said it by
	// then; such a server is waited for once, and named each time.
	Ready(ctx context.Context, from model.Scope) (missing []string)
	// Has reports whether Call knows the name: an operation's, or one of a module
	// that cannot say what it has. It may wait for that module, and for no other.
	Has(ctx context.Context, from model.Scope, name string) bool
	// Call runs one operation and hands on what it says meanwhile, in order, from
	// one goroutine at a time. No progress follows its return, and no child
	// survives it beyond the grace. It never fails but through its result.
	Call(ctx context.Context, inv model.Invocation, progress func(model.ToolUpdate)) model.ToolResult
	// Jobs are the commands that go on in the background for a session, and those
	// that have, by age. It does not block.
	Jobs(sessionID string) []model.Job
	// EndSession ends the jobs of a session and the servers that are there for it
	// alone. It blocks until nothing is left of them, or ctx ends.
	EndSession(ctx context.Context, sessionID string)
}

// Policy decides whether calls may be made (approvals.md §1).
type Policy interface {
	// Judge says what the rules and a session's answers, rules as JSON, make of a
	// call in an approval mode of the wire's. It does not block.
	Judge(inv model.Invocation, mode string, answers [][]byte) model.Verdict
	// Guard says what orchestrators make of a call, whatever the mode is. It blocks
	// while they are asked, until ctx ends.
	Guard(ctx context.Context, inv model.Invocation) model.Verdict
	// Preview shows what a call would change in a file, "" where nobody can tell. It
	// blocks for the disk.
	Preview(inv model.Invocation) string
	// Keep adds a rule to the user's own, for good. It blocks for the disk.
	Keep(rule []byte, at time.Time, sessionID, title string) error
}

// Modules have a say in runs without being tools (tools.md §4).
type Modules interface {
	// Orchestrated reports whether BeforeTurn has anybody to ask.
	Orchestrated() bool
	// BeforeTurn returns what happens to a text that somebody wants to give to a
	// session, or why it may not have it. state is what tools have patched
	// together, a JSON object.
	BeforeTurn(ctx context.Context, sessionID, workdir, input string, state []byte) (string, error)
	// AfterTool returns a call's result with what hooks add to it, and why hooks failed. It
	// blocks until they have answered, or ctx ends.
	AfterTool(ctx context.Context, inv model.Invocation, res model.ToolResult) (model.ToolResult, []string)
	// Stops reports whether OnStop may have anybody to ask there. It does not block.
	Stops(workdir string) bool
	// OnStop returns the text that a run is sent back with, "" where it may end, and why
	// hooks failed. It blocks as AfterTool does.
	OnStop(ctx context.Context, sessionID, workdir, output string) (text string, problems []string)
	// HookProblem says why hooks of that folder do not run, "" where they do. It blocks for
	// the disk.
	HookProblem(workdir string) string
	// Transforms reports whether Transform has anybody to ask.
	Transforms() bool
	// Transform returns what a model is to read in place of the messages, which
	// it must not change. An error tells which module was passed over.
	Transform(ctx context.Context, sessionID, workdir string, messages []model.Message) ([]model.Message, error)
}

// Changes records what turns do to a session's folder, and takes it back. All of its methods
// block for the disk, and those with a ctx no longer than that. An OID is "" where nothing
// has changed.
type Changes interface {
	// Warm has the next Before be quick.
	Warm(ctx context.Context, sessionID, workdir string)
	// Before records the folder for a turn, unless that was done.
	Before(ctx context.Context, sessionID, workdir, turn string) error
	// After keeps what has changed since Before, nothing where that was not called, and says so. The
	// caller calls Settle once it has written that down.
	After(ctx context.Context, sessionID, workdir, turn string) (model.Recorded, error)
	Settle(sessionID, workdir string)
	// Hold returns once nothing goes on in a session, and keeps it so until release: what is
	// kept of it may be removed meanwhile.
	Hold(ctx context.Context, sessionID string) (release func(), err error)
	// Show tells what steps have changed together, in all files or the one at a path.
	Show(ctx context.Context, sessionID, workdir string, steps []model.ChangeStep, path string, diff bool) (
		model.ChangeReport, error)
	// Plan finds out what takes the steps back. With keep set it can be applied.
	Plan(ctx context.Context, sessionID, workdir string, steps []model.ChangeStep, force []string, keep bool) (
		model.RewindPlan, error)
	// Apply does it; after an error all is as it was, as far as the error does not say else.
	Apply(sessionID, workdir, changes, rewindID string) error
	// Recover finishes what a former daemon had begun to apply, or takes it back.
	Recover(sessionID, workdir, changes, rewindID string) (finished bool, err error)
}

// Events is the daemon's numbered event log.
type Events interface {
	// Append publishes the events in order and returns their encoded lines,
	// which must not be changed.
	Append(events ...protocol.Event) [][]byte
	// Run returns the kept lines of a run, and whether they begin at its start.
	Run(runID string) (lines [][]byte, whole bool)
	// LastSeq is the number of the newest event.
	LastSeq() uint64
}
