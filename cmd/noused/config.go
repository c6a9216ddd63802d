package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap/zapcore"

	"noused/internal/agent"
	"noused/internal/detach"
	"noused/internal/hookfile"
	"noused/internal/model"
	"noused/internal/model/credentials"
	"noused/internal/notify"
	"noused/internal/protocol"
	"noused/internal/regular"
	"noused/internal/runloop"
	"noused/internal/xdg"
)

// Config is everything the daemon can be told (wire-v1 §8). Paths are
// absolute. resolveConfig makes it.
type Config struct {
	Socket       string // of commands; that of events has ".events" behind it
	StateDir     string
	Workdir      string
	WorkdirNamed bool // a setting names Workdir; else it is the folder that the daemon was started in
	ToolsDirs    []string
	Model        ModelConfig
	Providers    map[string]ProviderConfig // by name; nil: none
	Facts        map[string]fact           // of models.toml, by provider/name; nil: none
	Keys         map[string]string         // saved ones, by provider
	Problems     []error                   // with keys and variables; they keep no daemon from starting
	Limits       runloop.Limits
	Children     runloop.Bounds
	Agents       []agent.Spec   // one for each name
	DefaultAgent string         // of sessions that name none; "": the daemon's own loop
	Notify       notify.Options // as far as the file says
	MaxLine      int            // bytes
	EventBuffer  int            // bytes
	DrainTimeout time.Duration
	LogLevel     zapcore.Level
	DebugSocket  string // "": none
	Policy       policySettings
	BuiltinTools bool
	CacheDir     string   // has what sandboxed tools can make again
	LogDir       string   // has the logs of daemons that nous has started
	ConfigDir    string   // has the user's instructions and skills, and what is private
	Home         string   // of the user
	Private      []string // no sandboxed tool can read them: configuration, state, keys
	Sandbox      sandboxSettings
	Retention    retention
	ChangesMax   int64         // bytes of content that is kept of what a session changes
	Fleet        fleetSettings // no URL: none
	Hooks        []hookfile.Hook
}

// ModelConfig says which model answers prompts. APIKeyEnv names a variable: the
// key itself is never in a file. Delay is the offline model's, between deltas.
type ModelConfig struct {
	Provider, Name  string
	Wire            string // of openai: "chat" or "responses"; "": as its server has it
	BaseURL         string
	APIKeyEnv       string
	System          string // said to the model after what AGENTS.md says
	MaxOutputTokens int
	ContextWindow   int64          // tokens; 0: not said
	Effort          string         // how hard to think; "": as the model does by itself
	Fallback        []model.Choice // in place of a model that cannot answer
	Small           model.Choice   // for what needs no better one; the zero Choice: none
	MaxSteps        int            // model calls in one turn; 0: the run loop's default
	Timeout         time.Duration  // of silence
	Extra           map[string]any
	Delay           time.Duration
}

// Limits and defaults. A watchdog or a stop timeout of systemd's must outlast
// the drain.
const (
	minMaxLine, maxMaxLine         = 1 << 10, 1 << 30
	minEventBuffer, maxEventBuffer = 64 << 10, 16 << 30
	maxDrainTimeout                = time.Hour
	maxDelay                       = 24 * time.Hour
	maxTokens                      = 10_000_000
	maxMaxSteps                    = 10_000
	defaultEventBuffer             = 16 << 20
	defaultDrainTimeout            = 10 * time.Second
)

// registerFlags adds the daemon's flags. None has a default of its own: an
// absent flag leaves the say to the environment and the file.
func registerFlags(fs *pflag.FlagSet) {
	fs.String("socket", "", "the command socket's `path` (default $XDG_RUNTIME_DIR/noused/noused.sock)")
	fs.String("state-dir", "", "`folder` that sessions are kept in (default $XDG_STATE_HOME/noused)")
	fs.String("workdir", "", "`folder` that tools work in (default the current one)")
	fs.StringArray("tools-dir", nil,
		"`folder` of tool descriptors; repeatable (default tools.d in the configuration folder)")
	fs.String("config", "", "configuration `file` (default config.toml in the configuration folder)")
	fs.String("config-dir", "",
		"`folder` of what configures it: config.toml, tools.d, mcp.json and others (default $XDG_CONFIG_HOME/noused)")
	fs.String("model", "", "the model, as `provider[/name]` ")
	fs.String("effort", "", "how hard the model is to think: `level` none, minimal, low, medium, high, xhigh or max")
	fs.String("max-line", "", "`size` of the longest line a client may send: 4194304, 4096KiB or 4MiB (default 16MiB)")
	fs.String("event-buffer", "", "`size` of the event log, from which slow readers catch up (default 16MiB)")
	fs.String("drain-timeout", "", "`time` that runs get to reach a boundary when the daemon stops (default 10s)")
	fs.String("debug-socket", "",
		"answer expvar and pprof over HTTP on a socket at `path`, in a folder with mode 0700 (default none)")
	fs.String("log-level", "", "`level` of the log: debug, info, warn or error (default info)")
}

// resolveConfig puts the configuration together: a flag beats the environment,
// the environment beats the file, the file beats the default. An error names
// the flag, the variable, or the file with line and key that it is about.
func resolveConfig(fs *pflag.FlagSet, getenv func(string) string) (Config, error) {
	r := &resolver{flags: fs, getenv: getenv}
	r.readFile()
	cfg := Config{
		Socket:    r.path("socket", func() string { return protocol.DefaultSocket(r.getenv) }),
		StateDir:  r.path("state-dir", r.defaultStateDir),
		Workdir:   r.path("workdir", func() string { return "." }),
		ToolsDirs: r.toolsDirs(),
		Providers: r.providers(),
		MaxLine:   r.size("max-line", minMaxLine, maxMaxLine, protocol.DefaultMaxLine),
		EventBuffer: r.size("event-buffer", minEventBuffer, maxEventBuffer,
			defaultEventBuffer),
		DrainTimeout: r.duration("drain-timeout", maxDrainTimeout, defaultDrainTimeout),
		LogLevel:     r.level("log-level"),
		BuiltinTools: r.boolean("builtin_tools", true),
	}
	named, _ := r.find("workdir")
	cfg.WorkdirNamed = named != nil
	cfg.DebugSocket = r.debugSocket(cfg.Socket)
	cfg.ConfigDir, cfg.Home, cfg.LogDir = r.configDir(), r.home(), detach.LogDir(r.getenv)
	cfg.CacheDir = filepath.Join(xdg.Cache(r.getenv), "noused", "sandbox")
	var err error
	if cfg.Keys, err = credentials.Read(cfg.ConfigDir); err != nil {
		cfg.Problems = append(cfg.Problems, err)
	}
	cfg.Facts = r.facts(cfg.vendors(r.getenv))
	cfg.Model = r.model(cfg.vendors(r.getenv))
	cfg.Limits = r.limits()
	cfg.Children = r.children()
	cfg.Notify = r.notify()
	cfg.Agents = r.agents()
	cfg.DefaultAgent = r.defaultAgent(cfg.Agents)
	cfg.Fleet = r.fleet()
	cfg.Private = append(r.private(cfg.StateDir), cfg.Fleet.keyFiles()...)
	cfg.Sandbox = r.sandbox(cfg.Workdir, append(slices.Clip(cfg.Private), cfg.LogDir))
	cfg.Retention = r.retention()
	cfg.ChangesMax = r.changesMax()
	cfg.Policy = r.policy()
	cfg.Hooks = r.hooks()
	if info, err := os.Stat(cfg.Workdir); r.err == nil && (err != nil || !info.IsDir()) {
		_, from := r.find("workdir")
		r.fail(from, "%s is not a folder", cfg.Workdir)
	}
	return cfg, r.err
}

// resolver looks settings up where they may be set. Its error is the first.
type resolver struct {
	flags  *pflag.FlagSet
	getenv func(string) string
	file   configFile
	used   string // the configuration file, if it is there
	err    error
}

// origin is where a value was found, to be named in errors, and the folder its
// relative paths start from.
type origin struct{ name, dir string }

func (r *resolver) fail(from origin, format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%s: "+format, append([]any{from.name}, args...)...)
	}
}

// find returns a setting as the flag, the variable or the file has it: a
// string, or what TOML makes of the file's value. nil means that it is nowhere.
func (r *resolver) find(name string) (any, origin) {
	if f := r.flags.Lookup(name); f != nil && f.Changed {
		if list, ok := f.Value.(pflag.SliceValue); ok {
			return list.GetSlice(), origin{name: "--" + name}
		}
		return f.Value.String(), origin{name: "--" + name}
	}
	variable := "NOUSED_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
	if text := r.getenv(variable); text != "" {
		return text, origin{name: variable}
	}
	if v, from := r.file.find(strings.ReplaceAll(name, "-", "_")); v != nil {
		return v, from
	}
	return nil, origin{name: "--" + name}
}

// text is a setting that must be a string; ok is false where it is not set, or
// wrong.
func (r *resolver) text(name string) (text string, from origin, ok bool) {
	v, from := r.find(name)
	return r.asText(v, from)
}

func (r *resolver) asText(v any, from origin) (string, origin, bool) {
	text, isText := v.(string)
	switch {
	case v == nil:
		return "", from, false
	case !isText:
		r.fail(from, "got %v, want a string", v)
	case text == "":
		r.fail(from, "is empty")
	}
	return text, from, isText && text != ""
}

func (r *resolver) path(name string, otherwise func() string) string {
	text, from, ok := r.text(name)
	if !ok {
		text = otherwise()
	}
	return r.absolute(text, from)
}

// debugSocket is "" where none is named.
func (r *resolver) debugSocket(socket string) string {
	text, from, ok := r.text("debug-socket")
	if !ok {
		return ""
	}
	path := r.absolute(text, from)
	if path == socket || path == protocol.EventSocket(socket) {
		r.fail(from, "%s is the socket of commands or of events", path)
	}
	return path
}

// absolute makes a path absolute: from the current folder, or for one in the
// file from the file's. A leading ~/ is the home folder.
func (r *resolver) absolute(path string, from origin) string {
	abs, err := filepath.Abs(regular.Named(path, r.home(), from.dir))
	if err != nil {
		r.fail(from, "%v", err)
	}
	return abs
}

func (r *resolver) toolsDirs() (dirs []string) {
	v, from := r.find("tools-dir")
	if v == nil {
		return []string{filepath.Join(r.configDir(), "tools.d")}
	}
	if text, ok := v.(string); ok && from.dir == "" { // the variable
		var list []any
		for _, dir := range filepath.SplitList(text) {
			if dir != "" {
				list = append(list, dir)
			}
		}
		v = list
	}
	for _, dir := range r.asTexts(v, from) {
		dirs = append(dirs, r.absolute(dir, from))
	}
	return dirs
}

// asTexts is a list of strings, or one alone.
func (r *resolver) asTexts(v any, from origin) []string {
	texts := []string{}
	var list []any
	switch v := v.(type) {
	case []string:
		for _, text := range v {
			list = append(list, text)
		}
	case []any:
		list = v
	case string:
		list = []any{v}
	default:
		r.fail(from, "got %v, want an array of strings", v)
	}
	for _, element := range list {
		if text, _, ok := r.asText(element, from); ok {
			texts = append(texts, text)
		}
	}
	return texts
}

func (r *resolver) boolean(key string, otherwise bool) bool {
	v, from := r.file.find(key)
	switch v := v.(type) {
	case nil:
	case bool:
		return v
	default:
		r.fail(from, "got %v, want true or false", v)
	}
	return otherwise
}

// count is a number of the file's, 0 where it is not set.
func (r *resolver) count(key string, least, most int64) int64 {
	v, from := r.file.find(key)
	return r.asCount(v, from, least, most)
}

func (r *resolver) asCount(v any, from origin, least, most int64) int64 {
	n, ok := v.(int64)
	if v != nil && (!ok || n < least || n > most) {
		r.fail(from, "got %v, want %d to %d", v, least, most)
	}
	return n
}

// named is text for a setting whose name in the file is a section.
func (r *resolver) named(name string) (string, origin, bool) {
	v, from := r.find(name)
	if _, isSection := v.(map[string]any); isSection {
		return "", from, false
	}
	return r.asText(v, from)
}

var units = []struct {
	suffix string
	bytes  int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"", 1}}

func (r *resolver) size(name string, least, most, otherwise int64) int {
	v, from := r.find(name)
	return int(r.asSize(v, from, least, most, otherwise))
}

func (r *resolver) asSize(v any, from origin, least, most, otherwise int64) (n int64) {
	switch v := v.(type) {
	case nil:
		return otherwise
	case int64:
		n = v
	case string:
		var ok bool
		if n, ok = parseSize(v); !ok {
			r.fail(from, "%q is no size, want bytes as in 4194304, 4096KiB or 4MiB", v)
			return 0
		}
	default:
		r.fail(from, "got %v, want a size", v)
		return 0
	}
	if n < least || n > most {
		r.fail(from, "%v is out of bounds, want %s to %s", v, formatSize(least), formatSize(most))
	}
	return n
}

func parseSize(text string) (n int64, ok bool) {
	for _, u := range units {
		if digits, found := strings.CutSuffix(text, u.suffix); found {
			n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
			if err != nil || n > (1<<62)/u.bytes || n < 0 {
				return 0, false
			}
			return n * u.bytes, true
		}
	}
	return 0, false
}

func formatSize(n int64) string {
	best := units[len(units)-1]
	for _, u := range units {
		if n%u.bytes == 0 && u.bytes > best.bytes {
			best = u
		}
	}
	return strconv.FormatInt(n/best.bytes, 10) + best.suffix
}

func (r *resolver) duration(name string, most, otherwise time.Duration) time.Duration {
	v, from := r.find(name)
	return r.asDuration(v, from, most, otherwise)
}

func (r *resolver) asDuration(v any, from origin, most, otherwise time.Duration) time.Duration {
	text, _, ok := r.asText(v, from)
	if !ok {
		return otherwise
	}
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		r.fail(from, "%q is no duration, want one like 500ms, 10s or 1m30s", text)
	case d < 0 || d > most:
		r.fail(from, "%s is out of bounds, want 0s to %s", text, most)
	}
	return d
}

func (r *resolver) level(name string) zapcore.Level {
	text, from, ok := r.text(name)
	if !ok {
		return zapcore.InfoLevel
	}
	for _, level := range []zapcore.Level{zapcore.DebugLevel, zapcore.InfoLevel, zapcore.WarnLevel, zapcore.ErrorLevel} {
		if text == level.String() {
			return level
		}
	}
	r.fail(from, "there is no level %q, only debug, info, warn and error", text)
	return zapcore.InfoLevel
}

// private lists the paths that sandboxed tools must not read: the daemon's folders with keys
// and conversations, and the files with keys and configuration themselves, which may be links
// or lie elsewhere. The default folders are always among them, as they hold the files of all
// instances (deploy/systemd/noused@.service).
func (r *resolver) private(stateDir string) []string {
	paths := []string{r.configDir(), filepath.Join(r.configDir(), "environment"), stateDir, r.rulesFile()}
	for _, dir := range []string{r.defaultConfigDir(), r.defaultStateDir()} {
		if !slices.Contains(paths, dir) {
			paths = append(paths, dir)
		}
	}
	if r.file.path != "" {
		paths = append(paths, r.file.path)
	}
	if dir := r.getenv(credentialsVariable); filepath.IsAbs(dir) {
		paths = append(paths, filepath.Clean(dir))
	}
	return paths
}

// configDir is known before the configuration file is, which lies in it.
func (r *resolver) configDir() string {
	if text, from, ok := r.text("config-dir"); ok {
		return r.absolute(text, from)
	}
	return r.defaultConfigDir()
}

func (r *resolver) defaultConfigDir() string {
	return filepath.Join(xdg.Config(r.getenv), "noused")
}

func (r *resolver) defaultStateDir() string {
	return filepath.Join(xdg.State(r.getenv), "noused")
}

func (r *resolver) home() string { return xdg.Home(r.getenv) }
