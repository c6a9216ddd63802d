package tool

import (
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"
	"unicode"

	jsonx "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/mcpfile"
	"noused/internal/policy"
	"noused/internal/proc"
	"noused/internal/regular"
	"noused/internal/trust"
)

// Protocols, kinds, sandboxes and framings of a descriptor (tools.md §1).
const (
	Narratoria = "narratoria"
	Gevals     = "gevals"
	Amplifier  = "module"
	MCP        = "mcp"

	KindTool         = "tool"
	KindAgent        = "agent"
	KindProvider     = "provider"
	KindContext      = "context"
	KindOrchestrator = "orchestrator"
	KindHook         = "hook"

	SandboxNone    = "none"
	SandboxWorkdir = "workdir"

	FramingFlat    = "flat"
	FramingJSONRPC = "jsonrpc"
)

// Defaults of a descriptor.
const (
	DefaultTimeout   = 30 * time.Second
	DefaultMaxOutput = 1 << 20
	// DefaultIdle and DefaultMessage are those of an MCP server: how long it may be
	// silent, and the bytes of a line (mcp.md §2).
	DefaultIdle    = time.Minute
	DefaultMessage = 16 << 20
)

const (
	maxDescriptor  = 4 << 20
	maxConcurrency = 64
	maxName        = 128
)

// Descriptor is a Module Descriptor v1 (amplifier-protocols §1, tools.md §1),
// checked, with every default filled in and every path absolute.
type Descriptor struct {
	File         string // "" for one that was not read from a file
	Name         string
	Kind         string
	Transport    Transport
	Capabilities []string
	Version      string
	Protocol     string
	Description  string
	Operations   []Operation // sorted by name
	Env          map[string]string
	Config       jsontext.Value // a JSON object, or nil
	// Workdir is the folder that it works in, unless a session has another one; with
	// OwnWorkdir set it is the descriptor's own, and holds for all sessions.
	Workdir    string
	OwnWorkdir bool
	// Neutral has its processes start in an empty folder, and be told Workdir: they
	// are not confined, and what lies in a session's folder may be a stranger's.
	Neutral bool
	trusted string // a folder in which they start all the same
	// Fixed says that Workdir has no links on the way: where it has some later, it is
	// not that folder any more.
	Fixed        bool
	Timeout      time.Duration
	Concurrency  int
	Framing      string
	MaxOutput    int // bytes of a line
	Sandbox      string
	SandboxWrite []string // without links, as they were when it was read
	// Readable, where it is not empty, is what can be read in the sandbox although it is
	// hidden: a path without links. It is not a field of the file.
	Readable string
	// SandboxRequired is false only where the user accepts a tool without the
	// sandbox it asks for.
	SandboxRequired bool
	// Bare makes the operations known without the module's name before them. It
	// is not a field of the file.
	Bare bool
	// Jobs has the daemon itself run the operation job, and bash where it is to go
	// on in the background.
	Jobs bool
	// Headers go with each request to an MCP server over http.
	Headers map[string]string
	// Tools are the only ones of an MCP server that are known; nil: all are.
	Tools []string
	// Trust is what the user thinks of an MCP server (approvals.md §1).
	Trust policy.Trust
	// Stateless has a living process keep nothing between calls: it is replaced
	// where a new one could read more files.
	Stateless bool
	// Manifest is what a gevals extension answers to initialize, where that is known
	// before: no process is started to hear it.
	Manifest []byte
	// Ignored says of each field of the file that it does nothing. Names that begin with $
	// are for editors.
	Ignored []string

	environ []string // what the child inherits, Env included
	source  string   // the text it was made from
}

// Offers reports whether the module has operations for a model.
func (d *Descriptor) Offers() bool { return d.Kind == KindTool || d.Kind == KindAgent }

// Everywhere reports whether the module is the same in every session's folder.
func (d *Descriptor) Everywhere() bool {
	return d.OwnWorkdir || d.Transport.Type == "http"
}

// Builtin reports whether the module is the daemon's own.
func (d *Descriptor) Builtin() bool { return d.Bare && d.File == "" }

// In is the descriptor of the same module in a session's folder, whose path has no
// links. From then on that is no folder of the user's programs ([trust.Writable]).
func (d *Descriptor) In(workdir string) *Descriptor {
	trust.Writable(workdir)
	there := *d
	there.Workdir, there.Fixed = workdir, true
	return &there
}

// TrustWorkdir has processes start in the Workdir of now, which the user has named to the
// daemon. Servers do not: what they are started for need not be a call.
func (d *Descriptor) TrustWorkdir() {
	if d.Protocol != MCP {
		d.trusted = d.Workdir
	}
}

// Transport says how a module is reached.
type Transport struct {
	Type    string   `json:"type"`
	Command []string `json:"command"`
	URL     string   `json:"url"`
}

// document is the file's shape; pointers tell absent from zero.
type document struct {
	Name            string                   `json:"name"`
	Kind            string                   `json:"kind"`
	Transport       *transportDoc            `json:"transport"`
	Capabilities    []string                 `json:"capabilities"`
	Version         string                   `json:"version"`
	Protocol        *string                  `json:"protocol"`
	Description     string                   `json:"description"`
	Operations      map[string]*operationDoc `json:"operations"`
	Env             map[string]string        `json:"env"`
	Config          jsontext.Value           `json:"config"`
	Workdir         string                   `json:"workdir"`
	Cwd             string                   `json:"cwd"`
	Timeout         *string                  `json:"timeout"`
	Concurrency     *int                     `json:"concurrency"`
	Framing         *string                  `json:"framing"`
	MaxOutput       *int                     `json:"max_output"`
	Sandbox         *string                  `json:"sandbox"`
	SandboxWrite    []string                 `json:"sandbox_write"`
	SandboxRequired *bool                    `json:"sandbox_required"`
	Headers         map[string]string        `json:"headers"`
	Tools           []string                 `json:"tools"`
	Trust           *string                  `json:"trust"`
	Others          others                   `json:",embed"`

	literal bool // values have no variables
}

type transportDoc struct {
	Transport
	Others others `json:",embed"`
}

type operationDoc struct {
	Description string         `json:"description"`
	Params      jsontext.Value `json:"params"`
	Others      others         `json:",embed"`
}

// FieldError names the field of a descriptor that is wrong.
type FieldError struct {
	Field  string // dotted path, e.g. transport.command
	Reason string
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Reason }

func field(name, format string, args ...any) error {
	return &FieldError{name, fmt.Sprintf(format, args...)}
}

// LoadDescriptor reads and checks a descriptor file. workdir is the default of
// the field of that name, environ the daemon's environment. Errors name the
// file, and the field where one is wrong.
func LoadDescriptor(file, workdir string, environ []string) (*Descriptor, error) {
	d, err := loadDescriptor(file, workdir, environ)
	if err != nil {
		return nil, fmt.Errorf("tool descriptor %s: %w", file, err)
	}
	return d, nil
}

func loadDescriptor(file, workdir string, environ []string) (*Descriptor, error) {
	file, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	text, err := regular.Read(file, maxDescriptor)
	if err != nil {
		return nil, err
	}
	real, err := filepath.EvalSymlinks(file) // a linked descriptor finds its program too
	if err != nil {
		return nil, err
	}
	d, err := ParseDescriptor(text, filepath.Dir(real), workdir, environ)
	if err != nil {
		return nil, err
	}
	d.File = file
	return d, nil
}

// ParseDescriptor checks a descriptor whose relative paths are meant from dir.
func ParseDescriptor(text []byte, dir, workdir string, environ []string) (*Descriptor, error) {
	var doc document
	if err := jsonx.Unmarshal(text, &doc); err != nil {
		return nil, Readable(err)
	}
	return describe(&doc, string(text), dir, workdir, environ)
}

// describe checks what a file says, or whatever source it is from.
func describe(doc *document, source, dir, workdir string, environ []string) (*Descriptor, error) {
	d := &Descriptor{
		source: source,
		Name:   doc.Name, Kind: doc.Kind, Capabilities: doc.Capabilities, Version: doc.Version,
		Protocol: Amplifier, Description: doc.Description, Workdir: workdir,
		Timeout: DefaultTimeout, Concurrency: 1, Framing: FramingFlat, MaxOutput: DefaultMaxOutput,
		Sandbox: SandboxNone, SandboxRequired: true,
	}
	for _, step := range []func() error{
		func() error { return checkName(doc.Name) },
		func() error {
			return oneOf("kind", doc.Kind, KindProvider, KindTool, KindAgent, KindHook, KindOrchestrator, KindContext)
		},
		func() error {
			return override(&d.Protocol, "protocol", doc.Protocol, Narratoria, Gevals, Amplifier, MCP)
		},
		func() error { return d.checkKind() },
		func() error { return d.setServer(doc, environ) },
		func() error {
			if doc.Transport == nil {
				return field("transport", "missing")
			}
			return d.setTransport(&doc.Transport.Transport, dir)
		},
		func() error {
			if doc.Capabilities == nil {
				return field("capabilities", "missing")
			}
			return nil
		},
		func() error { return d.setOperations(doc.Operations) },
		func() error { return d.setEnv(doc, environ) },
		func() error { return d.setConfig(doc.Config) },
		func() error { return d.setLimits(doc) },
		func() error { return override(&d.Framing, "framing", doc.Framing, FramingFlat, FramingJSONRPC) },
		func() error { return override(&d.Sandbox, "sandbox", doc.Sandbox, SandboxNone, SandboxWorkdir) },
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	if err := d.setWorkdir(doc, dir); err != nil {
		return nil, err
	}
	d.Fixed = !d.OwnWorkdir && proc.Resolve(d.Workdir) == d.Workdir
	for _, p := range doc.SandboxWrite {
		d.SandboxWrite = append(d.SandboxWrite, proc.Resolve(within(dir, p)))
	}
	if doc.SandboxRequired != nil {
		d.SandboxRequired = *doc.SandboxRequired
	}
	d.Ignored = doc.ignored()
	return d, nil
}

// setWorkdir says where processes start. Those that cannot be without a sandbox may
// start in the session's folder: what they find there is as confined as they are.
func (d *Descriptor) setWorkdir(doc *document, dir string) error {
	switch {
	case doc.Workdir != "" && doc.Cwd != "":
		return field("cwd", "there is a workdir too: want one of the two")
	case doc.Cwd != "" && doc.Cwd != mcpfile.CwdSession:
		return field("cwd", "got %.40q, want %q; workdir names another folder", doc.Cwd, mcpfile.CwdSession)
	case doc.Workdir != "":
		d.Workdir, d.OwnWorkdir = within(dir, doc.Workdir), true
	}
	confined := d.Sandbox == SandboxWorkdir && (doc.SandboxRequired == nil || *doc.SandboxRequired)
	d.Neutral = !d.OwnWorkdir && doc.Cwd == "" && !confined
	return nil
}

func checkName(name string) error {
	switch {
	case name == "":
		return field("name", "missing")
	case len(name) > maxName:
		return field("name", "longer than %d bytes", maxName)
	case strings.ContainsFunc(name, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }):
		return field("name", "%q has a space or an unprintable character", name)
	}
	return nil
}

func (d *Descriptor) checkKind() error {
	if d.Protocol != Amplifier && d.Kind != KindTool {
		return field("kind", "got %q, protocol %s has only tools", d.Kind, d.Protocol)
	}
	return nil
}

func (d *Descriptor) setTransport(t *Transport, dir string) error {
	if d.Protocol == MCP && t.Type == "sse" {
		return field("transport.type", "%q is the older transport, which is not spoken: say \"http\", with the server's "+
			"address for streamable HTTP (it often ends in /mcp where the other ends in /sse)", t.Type)
	}
	if err := oneOf("transport.type", t.Type, "stdio", "http"); err != nil {
		return err
	}
	d.Transport = *t
	if t.Type == "http" {
		if d.Protocol != Amplifier && d.Protocol != MCP {
			return field("transport.type", "protocol %s is spoken over stdio only", d.Protocol)
		}
		u, err := url.Parse(t.URL)
		switch {
		case t.URL == "":
			return field("transport.url", "missing")
		case err != nil:
			return field("transport.url", "%v", err)
		}
		if d.Protocol == MCP {
			return oneOf("transport.url scheme", u.Scheme, "http", "https")
		}
		return oneOf("transport.url scheme", u.Scheme, "http", "https", "unix")
	}
	if len(t.Command) == 0 {
		return field("transport.command", "missing")
	}
	for i, arg := range t.Command {
		if strings.ContainsRune(arg, 0) || i == 0 && arg == "" {
			return field(fmt.Sprintf("transport.command[%d]", i), "%q cannot be executed", arg)
		}
	}
	d.Transport.Command = slices.Clone(t.Command)
	if strings.ContainsRune(t.Command[0], '/') {
		d.Transport.Command[0] = within(dir, t.Command[0])
	}
	return nil
}

func (d *Descriptor) setOperations(ops map[string]*operationDoc) error {
	if len(ops) == 0 {
		if d.Protocol == Narratoria {
			return field("operations", "missing; a narratoria tool cannot describe itself")
		}
		return nil
	}
	for name, op := range ops {
		where := "operations." + name
		if name == "" {
			return field("operations", "an operation has no name")
		}
		if op == nil {
			op = &operationDoc{}
		}
		o := Operation{Name: name, Description: op.Description}
		if op.Params != nil {
			o.Params = jsontext.Value(op.Params)
			if _, err := compileSchema(o.Params); err != nil {
				return field(where+".params", "%v", err)
			}
		}
		d.Operations = append(d.Operations, o)
	}
	sort.Slice(d.Operations, func(i, j int) bool { return d.Operations[i].Name < d.Operations[j].Name })
	return nil
}

func (d *Descriptor) setEnv(doc *document, environ []string) error {
	d.Env = make(map[string]string, len(doc.Env))
	for name, value := range doc.Env {
		switch {
		case name == "" || strings.ContainsAny(name, "=\x00"):
			return field("env", "%q is no name of a variable", name)
		case reserved(name):
			return field("env."+name, "belongs to the daemon and is never handed to a tool")
		case strings.ContainsRune(value, 0):
			return field("env."+name, "has a NUL byte")
		}
		d.Env[name] = doc.value(value, environ)
	}
	d.environ = childEnv(environ, d.Env)
	return nil
}

func (d *Descriptor) setConfig(config jsontext.Value) error {
	switch config.Kind() {
	case 0, 'n':
	case '{':
		d.Config = jsontext.Value(config)
	default:
		return field("config", "want an object")
	}
	return nil
}

func (d *Descriptor) setLimits(doc *document) error {
	if doc.Timeout != nil {
		t, err := time.ParseDuration(*doc.Timeout)
		if err != nil || t <= 0 {
			return field("timeout", "got %q, want a duration like 30s or 5m", *doc.Timeout)
		}
		d.Timeout = t
	}
	if n := doc.Concurrency; n != nil {
		if *n < 1 || *n > maxConcurrency {
			return field("concurrency", "got %d, want 1 to %d", *n, maxConcurrency)
		}
		d.Concurrency = *n
	}
	if n := doc.MaxOutput; n != nil {
		if *n < 1 || *n > 1<<30 {
			return field("max_output", "got %d, want 1 to %d bytes", *n, 1<<30)
		}
		d.MaxOutput = *n
	}
	return nil
}

// Same reports whether a descriptor was read from the same text of the same
// file.
func (d *Descriptor) Same(other *Descriptor) bool {
	return d == other || d.source == other.source && d.File == other.File
}

// Environ returns the child's whole environment, as NAME=value.
func (d *Descriptor) Environ() []string { return slices.Clone(d.environ) }

func within(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

func oneOf(name, got string, want ...string) error {
	switch {
	case got == "":
		return field(name, "missing")
	case !slices.Contains(want, got):
		return field(name, "got %q, want one of %s", got, strings.Join(want, ", "))
	}
	return nil
}

func override(dst *string, name string, got *string, want ...string) error {
	if got == nil {
		return nil
	}
	*dst = *got
	return oneOf(name, *got, want...)
}
