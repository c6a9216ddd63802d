// Package doctor looks at everything a daemon needs before one needs it: its
// configuration, sockets, state directory, journals, tools, model and systemd
// units. Each thing it looks at is one Finding.
//
// Concurrency: one goroutine does it all, and nothing is left behind.
//
// It refuses to be noticed: it starts no tool and no daemon, and of agents only those that the
// configuration names, for no longer than until they have said what they are. It writes nothing
// unless it is told to mend, holds a lock no longer than it takes to see
// whether somebody has it, asks a running daemon nothing that would make a
// session or an event, and a model's server only for the list of its models. It mends only what costs nobody anything.
package doctor

import (
	"context"
	"fmt"
	"os"
	"syscall"

	"noused/internal/policy"
	"noused/internal/session"
	"noused/internal/tool"
)

// Status is how bad a finding is.
type Status string

// Warn is for what a daemon gets over by itself, or what is only unwise; Fail
// for what keeps it, a session or a tool from working.
const (
	OK   Status = "ok"
	Warn Status = "warn"
	Fail Status = "fail"
)

// Areas that findings are about.
const (
	Configuration = "configuration"
	Sockets       = "sockets"
	State         = "state"
	Journals      = "journals"
	Audit         = "audit"
	Tools         = "tools"
	Model         = "model"
	Hooks         = "hooks"
	Hosted        = "agents"
	Fleet         = "fleet"
	Systemd       = "systemd"
)

// Finding is one thing that was looked at. Fix says what to do, in words or as
// a command; Done what has been done about it already.
type Finding struct {
	Status Status `json:"status"`
	Area   string `json:"area"`
	What   string `json:"what"`
	Fix    string `json:"fix,omitzero"`
	Done   string `json:"done,omitzero"`
}

// Options are what the daemon would be started with. Paths are absolute.
type Options struct {
	Config        string // the configuration file in use; "" where there is none
	Socket        string // of commands
	DefaultSocket string // the one that is used where none is named
	StateDir      string
	Workdir       string
	ToolsDirs     []string
	ServersFile   string             // the user's mcp.json, which may be missing
	Builtin       []*tool.Descriptor // the daemon's own, which no file describes
	Provider      string             // of the model
	ModelName     string
	KeyVariable   string // that has the provider's key, of one over HTTP
	// Models asks the provider's server for the names of its models, of one over
	// HTTP. Errors are *wire.Error, or about the configuration. It ends soon.
	Models func(context.Context) ([]string, error)
	// Window is how many tokens the model can read, and who says so, of one over
	// HTTP. It is asked after Models.
	Window    func() (tokens int64, whence string)
	Fallbacks []Fallback // in the order in which they are asked
	Agents    []Agent
	Folders   []string // of projects whose hooks are looked at, without symlinks
	// Fleet joins the fleet's server and leaves it; nil where there is none. away: the
	// server does not answer. It ends soon.
	Fleet       func(context.Context) (away bool, err error)
	FleetServer string
	Environ     []string // the daemon's environment
	Home        string
	RuntimeDir  string   // XDG_RUNTIME_DIR; may be ""
	UnitDirs    []string // where systemd looks for a user's units, the first first
	// ServicePath is the PATH that systemd gives the daemon, "" where that is not known. It ends soon.
	ServicePath func(context.Context) string
	Linger      string // the file that is there where the user's services outlast a logout; "" where nobody can tell

	Version string // of this program
	// Sandbox says why a tool cannot have the sandbox it asks for. It starts no
	// tool and makes nothing.
	Sandbox func(*tool.Descriptor) error
	// Confinement is what sandboxed tools are confined with: the version of Landlock, 0
	// for none, and whether also namespaces.
	Confinement func() (abi int, namespaces bool)
	Hidden      []string // what sandboxed tools cannot read
	Dots        []string // folders of which they can read what begins with a dot only where that is known to be harmless
	Offline     bool     // the network is closed to them

	Policy *policy.Set

	// Fix mends what is safe to mend. While the state directory is looked at it
	// is locked, so that no daemon starts in it.
	Fix bool
}

// Run looks at everything, hands each finding to tell in a fixed order of areas,
// and returns how many are a Fail that has not been mended. It waits a few
// seconds at most for a daemon's answer, for the model's server as long as
// Models does, and for the disk. When ctx ends it
// stops early and returns ctx's error.
func Run(ctx context.Context, o Options, tell func(Finding)) (failed int, err error) {
	e := &exam{Options: o, tell: func(f Finding) {
		if f.Status == Fail {
			failed++
		}
		tell(f)
	}}
	e.configuration()
	e.state(ctx)
	for _, look := range []func(context.Context){
		e.sockets, e.tools, e.model, e.fallbacks, e.agents, e.hooks, e.fleet, e.systemd,
	} {
		if ctx.Err() != nil {
			break
		}
		look(ctx)
	}
	return failed, ctx.Err()
}

// exam is one run.
type exam struct {
	Options
	tell func(Finding)

	holder *process       // of the state directory; nil when no daemon has it
	store  *session.Store // the state directory, while it is ours to mend
	found  []*tool.Descriptor
	boxed  bool // a tool has asked for a sandbox
	// running is the model of the daemon that answers, as --model takes it; "" where it is not known.
	running string
}

func (e *exam) ok(area, format string, args ...any) {
	e.tell(Finding{Status: OK, Area: area, What: fmt.Sprintf(format, args...)})
}

func (e *exam) warn(area, fix, format string, args ...any) {
	e.tell(Finding{Status: Warn, Area: area, What: fmt.Sprintf(format, args...), Fix: fix})
}

func (e *exam) fail(area, fix, format string, args ...any) {
	e.tell(Finding{Status: Fail, Area: area, What: fmt.Sprintf(format, args...), Fix: fix})
}

// mend tells a finding and, if asked to, does something about it first.
func (e *exam) mend(f Finding, done string, do func() error) {
	if e.Fix {
		if err := do(); err != nil {
			f.Fix += fmt.Sprintf(" (not done: %v)", err)
		} else {
			f.Status, f.Fix, f.Done = OK, "", done
		}
	}
	e.tell(f)
}

// configuration looks at the file; that it can be read and says nothing wrong
// is known by now.
func (e *exam) configuration() {
	if e.Config == "" {
		e.ok(Configuration, "there is no configuration file; flags, environment and defaults apply")
		return
	}
	if e.private(Configuration, e.Config, "tells where the daemon looks for programs to start") {
		e.ok(Configuration, "%s has no errors", e.Config)
	}
}

// private reports a file that others may read or change, and returns whether
// it is the user's alone.
func (e *exam) private(area, path, why string) bool {
	info, err := os.Stat(path)
	if err != nil {
		e.fail(area, "make it readable", "%v", err)
		return false
	}
	mode := info.Mode().Perm()
	f := Finding{Area: area, Fix: "chmod 600 " + quote(path)}
	switch {
	case !mine(info) && owner(info) != 0:
		e.fail(area, "put a file of your own there", "%s belongs to user %d, and %s", path, owner(info), why)
		return false
	case mode&0o002 != 0:
		f.Status, f.What = Fail, fmt.Sprintf("everybody may write to %s (mode %04o), which %s", path, mode, why)
	case mode&0o004 != 0:
		f.Status, f.What = Warn, fmt.Sprintf("everybody may read %s (mode %04o), which %s", path, mode, why)
	default:
		return true
	}
	e.mend(f, "its mode is 0600 now", func() error { return restrict(path, 0o600) })
	return false
}

// restrict takes from a file or folder of the user's own what others may do with
// it. One of somebody else is left alone.
func restrict(path string, mode os.FileMode) error {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return err
	case info.Mode()&os.ModeSymlink != 0:
		return fmt.Errorf("it is a link")
	case !mine(info):
		return fmt.Errorf("it belongs to user %d", owner(info))
	}
	return os.Chmod(path, mode)
}

func mine(info os.FileInfo) bool { return owner(info) == os.Geteuid() }

// owner is the uid that a file belongs to.
func owner(info os.FileInfo) int {
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(sys.Uid)
	}
	return -1
}
