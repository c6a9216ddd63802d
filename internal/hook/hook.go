// Package hook runs commands that have a say in runs: those of the user's configuration, and
// those of projects that the user trusts.
//
// A [Hook] is a program and its arguments. It gets one JSON object on its input; what it
// prints is added where it hooks in, and exit status 2 objects. Time and output are bounded. A
// project's hook runs in the project's folder, in the sandbox that the built-in tools have: a
// model can write there, and so say what it runs. The user's own runs as the user's own tools
// do, in a neutral folder.
//
// Concurrency: a [Hooks] may be used by any number of goroutines. Each hook is a process of
// the daemon's supervisor that ends with the call; nothing else runs.
//
// It refuses to run what is not trusted as it is, and to let anything pass a guard that
// failed: before_tool and on_prompt deny then.
package hook

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"noused/internal/format"
	"noused/internal/model"
	"noused/internal/policy"
	"noused/internal/tomlfile"
)

// Where a hook may hook in.
const (
	BeforeTool = "before_tool"
	AfterTool  = "after_tool"
	OnPrompt   = "on_prompt"
	OnStop     = "on_stop"
	OnEvent    = "on_event"
)

var points = []string{BeforeTool, AfterTool, OnPrompt, OnStop, OnEvent}

const (
	maxHooks    = 32
	maxArgs     = 100
	usualTime   = 30 * time.Second
	maxTime     = 10 * time.Minute
	maxInString = 4 << 10 // bytes of one argument
)

// Hook is a table [[hook]].
type Hook struct {
	On      string
	Tools   []string // patterns of their names; none: all
	Command []string
	Timeout time.Duration

	Place   string // file and line
	Project string // its folder; "": the user's own
	dir     string // a program with a slash in its name starts here
}

func (h Hook) String() string { return fmt.Sprintf("%s (%s)", filepath.Base(h.Command[0]), h.Place) }

// guards reports a hook that may keep a run from something.
func (h Hook) guards() bool { return h.On == BeforeTool || h.On == OnPrompt }

func (h Hook) fits(on, tool string) bool {
	return h.On == on && (len(h.Tools) == 0 || slices.ContainsFunc(h.Tools, func(pattern string) bool {
		return policy.Matches(model.Undotted(pattern), model.Undotted(tool))
	}))
}

type entry struct {
	On      string   `toml:"on"`
	Tools   []string `toml:"tools"`
	Command []string `toml:"command"`
	Timeout string   `toml:"timeout"`
}

// Read reads the tables [[hook]] of a configuration file; what else is in it is for others.
// The error names the file, the line and the key.
func Read(path string, text []byte) ([]Hook, error) { return read(path, text, "") }

// ReadProject reads a project's file, which has tables [[hook]] and nothing else.
func ReadProject(folder string, text []byte) ([]Hook, error) {
	return read(filepath.Join(folder, FileName), text, folder)
}

func read(path string, text []byte, project string) ([]Hook, error) {
	var file struct {
		Hook []entry `toml:"hook"`
	}
	if err := toml.Unmarshal(text, &file); err != nil {
		return nil, tomlfile.Problem(path, err, "")
	}
	unknown, err := tomlfile.Keys(text, &file)
	if err != nil {
		return nil, tomlfile.Problem(path, err, "")
	}
	for _, key := range unknown {
		if key.Path[0] == "hook" || project != "" {
			return nil, fmt.Errorf("%s:%d: %s: there is no such key; a table [[hook]] has on, tools, command and timeout", path,
				key.Line, strings.Join(key.Path, "."))
		}
	}
	lines, err := tomlfile.Keys(text, &struct{}{})
	if err != nil {
		return nil, tomlfile.Problem(path, err, "")
	}
	lines = slices.DeleteFunc(lines, func(k tomlfile.Key) bool { return strings.Join(k.Path, ".") != "hook.on" })
	if len(file.Hook) > maxHooks {
		return nil, fmt.Errorf("%s: has %d hooks, at most %d are allowed", path, len(file.Hook), maxHooks)
	}
	var all []Hook
	for i, e := range file.Hook {
		at := path
		if len(lines) == len(file.Hook) {
			at = fmt.Sprintf("%s:%d", path, lines[i].Line)
		}
		h := Hook{
			On: e.On, Tools: e.Tools, Command: e.Command, Timeout: usualTime, Place: at, Project: project,
			dir: filepath.Dir(path),
		}
		if project != "" {
			h.dir = project
		}
		if err := h.check(e.Timeout); err != nil {
			return nil, fmt.Errorf("%s: hook.%w", at, err)
		}
		all = append(all, h)
	}
	return all, nil
}

// check completes a hook. The error begins with the key.
func (h *Hook) check(timeout string) error {
	switch {
	case h.On == "":
		return errors.New("on is missing: want " + strings.Join(points, ", "))
	case !slices.Contains(points, h.On):
		return fmt.Errorf("on: there is no %.40q, only %s", h.On, strings.Join(points, ", "))
	case h.On == OnEvent && h.Project != "":
		return errors.New("on: on_event is for the user's own configuration, as it hears of all sessions")
	case len(h.Tools) > 0 && h.On != BeforeTool && h.On != AfterTool:
		return fmt.Errorf("tools: %s is about no tool", h.On)
	case len(h.Command) == 0 || h.Command[0] == "":
		return errors.New("command is missing: want a program and its arguments, as in [\"gofmt\", \"-l\", \".\"]")
	case len(h.Command) > maxArgs:
		return fmt.Errorf("command: has %d words, at most %d are allowed", len(h.Command), maxArgs)
	}
	for _, word := range h.Command {
		if len(word) > maxInString || strings.Contains(word, "\x00") {
			return fmt.Errorf("command: %.40q is too long, or has a zero byte", word)
		}
	}
	if timeout == "" {
		return nil
	}
	d, err := time.ParseDuration(timeout)
	if err != nil || d <= 0 || d > maxTime {
		return fmt.Errorf("timeout: got %.40q, want a time such as 30s, at most %v", timeout, maxTime)
	}
	h.Timeout = d
	return nil
}

// failed is a hook that did not do its work.
func (h Hook) failed(err error) error {
	return fmt.Errorf("the hook %v of %s failed: %s", h, h.On, format.Clip(err.Error(), maxSaid))
}
