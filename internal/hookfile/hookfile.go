// Package hookfile reads the hooks of configuration files, and what prepares a new worktree of
// a project, and keeps which projects' files the user trusts.
//
// Its functions may be called from any goroutine. It runs nothing.
package hookfile

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pelletier/go-toml/v2"

	"noused/internal/mcpfile"
	"noused/internal/regular"
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
	Dir     string // a program with a slash in its name starts here
}

func (h Hook) String() string { return fmt.Sprintf("%s (%s)", filepath.Base(h.Command[0]), h.Place) }

// Guards are the points at which a hook may keep a run from something.
var Guards = []string{BeforeTool, OnPrompt}

type entry struct {
	On      string   `toml:"on"`
	Tools   []string `toml:"tools"`
	Command []string `toml:"command"`
	Timeout string   `toml:"timeout"`
}

// Read reads the tables [[hook]] of a configuration file; what else is in it is for others.
// The error names the file, the line and the key.
func Read(path string, text []byte) ([]Hook, error) { return read(path, text, "") }

// ReadProject reads the hooks of a project's file, which has tables [[hook]] and [worktree],
// and nothing else.
func ReadProject(folder string, text []byte) ([]Hook, error) {
	if _, err := ReadSetup(folder, text); err != nil {
		return nil, err
	}
	return read(filepath.Join(folder, FileName), text, folder)
}

// worktreeTable is a table [worktree].
type worktreeTable struct {
	Setup []string `toml:"setup"`
}

// maxSetup is how many lines a setup has at most.
const maxSetup = 32

// ReadSetup returns the lines for sh -c that prepare a new worktree of a project, of the table
// [worktree] in its file. The error names the file and the key.
func ReadSetup(folder string, text []byte) ([]string, error) {
	path := filepath.Join(folder, FileName)
	var file struct {
		Worktree worktreeTable `toml:"worktree"`
	}
	if err := toml.Unmarshal(text, &file); err != nil {
		return nil, tomlfile.Problem(path, err, "")
	}
	if n := len(file.Worktree.Setup); n > maxSetup {
		return nil, fmt.Errorf("%s: worktree.setup has %d lines, at most %d are allowed", path, n, maxSetup)
	}
	for _, line := range file.Worktree.Setup {
		if strings.TrimSpace(line) == "" || len(line) > maxInString || strings.Contains(line, "\x00") {
			return nil, fmt.Errorf("%s: worktree.setup: %.40q is empty, longer than %d bytes, or has a zero byte", path, line,
				maxInString)
		}
	}
	return file.Worktree.Setup, nil
}

// Any reports whether a file has tables [[hook]]. It looks no further: to say where each wrong
// key of a stranger's file is takes seconds, and the daemon looks whenever a model is asked.
func Any(path string, text []byte) (bool, error) {
	var file struct {
		Hook []struct{} `toml:"hook"`
	}
	if err := toml.Unmarshal(text, &file); err != nil {
		return false, tomlfile.Problem(path, err, "")
	}
	return len(file.Hook) > 0, nil
}

func read(path string, text []byte, project string) ([]Hook, error) {
	var file struct {
		Hook     []entry       `toml:"hook"`
		Worktree worktreeTable `toml:"worktree"` // see ReadSetup
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
			return nil, fmt.Errorf("%s:%d: %s: there is no such key; a table [[hook]] has on, tools, command and "+
				"timeout, and [worktree] has setup", path, key.Line, strings.Join(key.Path, "."))
		}
	}
	lines, err := tomlfile.Keys(text, &struct {
		Hook []struct{} `toml:"hook"`
	}{})
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
			Dir: filepath.Dir(path),
		}
		if project != "" {
			h.Dir = project
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

// FileName is where a project has its hooks, and what prepares a worktree.
const FileName = ".noused/config.toml"

const maxFile = 64 << 10

// ProjectText is the text of a project's file, which a stranger may have written: it must be a
// regular file of this user, and no link. Nil: there is none.
func ProjectText(folder string) ([]byte, error) {
	text, err := regular.ReadOwn(filepath.Join(folder, FileName), maxFile)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return append([]byte{}, text...), nil
}

// Trusted reports whether the user trusts a folder's file as it is, and whether anything of
// it was trusted before.
func Trusted(configDir, folder string, text []byte) (now, before bool, err error) {
	all, err := mcpfile.Hooks.Read(configDir)
	if err != nil {
		return false, false, err
	}
	record, before := all[folder]
	return before && text != nil && record.Hash == mcpfile.Hash(text), before, nil
}

// Trust remembers that the user trusts a folder's file, nil for none any more.
func Trust(configDir, folder string, text []byte, at time.Time) error {
	record := mcpfile.TrustedText{At: at}
	if text != nil {
		list, err := ReadProject(folder, text)
		if err != nil {
			return err
		}
		record.Hash = mcpfile.Hash(text)
		for _, k := range list {
			if slices.Contains(Guards, k.On) && !slices.Contains(record.Guards, k.On) {
				record.Guards = append(record.Guards, k.On)
			}
		}
	}
	return mcpfile.Hooks.Add(configDir, folder, record)
}
