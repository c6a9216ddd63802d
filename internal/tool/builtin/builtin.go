// Package builtin has the daemon's own tools, read, write, edit, ls, find,
// grep and bash (tools.md §6). They are a gevals extension like any other: a
// child process, `noused extension files`, that speaks the protocol of
// gevals-extension-protocol.md over its stdin and stdout.
//
// [Serve] is that child, [Descriptor] how the daemon starts it.
//
// # Concurrency properties
//
// A child answers one call at a time, in the order of the requests; anyone who
// wants calls side by side starts several. Files are replaced whole, so that
// nobody sees half of one; two writers of the same file are not aware of each
// other.
//
// # What it refuses to do
//
// It keeps nobody in the workdir: the sandbox of the descriptor does that. It
// keeps no state between two calls, gives no command a terminal or an input,
// and reads no file that is not a regular one.
package builtin

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	jsonx "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/tool"
)

const (
	// Name is the extension's name in its manifest (tools.md §6).
	Name = "files"

	version         = "1.0.0"
	protocolVersion = "0.0.1"
	description     = "Files and commands in the working directory"

	// callTimeout is the descriptor's: longer than bash may take.
	callTimeout = maxBashTime + time.Minute
	// processes is how many calls may run side by side.
	processes = 8
)

// The text of a result stays within what the registry hands to a model
// (tools.md §5), with room for a note on what was left out.
const (
	maxText  = tool.DefaultMaxText - 1<<10 // bytes
	maxLines = tool.DefaultMaxLines - 5
)

// Descriptor returns the descriptor of the built-in tools, whose process is
// self, a program's path or name, called with "extension files". The tools are
// known under their bare names and run in the sandbox "workdir". environ is
// the daemon's environment. Errors are those of [tool.ParseDescriptor].
func Descriptor(self, workdir string, environ []string) (*tool.Descriptor, error) {
	if strings.ContainsRune(self, filepath.Separator) {
		abs, err := filepath.Abs(self)
		if err != nil {
			return nil, fmt.Errorf("built-in tools: %w", err)
		}
		self = abs
	}
	names := make([]string, 0, len(operations))
	for _, op := range operations {
		names = append(names, op.name)
	}
	text, err := jsonx.Marshal(map[string]any{
		"name": Name, "kind": "tool", "protocol": tool.Gevals, "version": version, "description": description,
		"transport":    tool.Transport{Type: "stdio", Command: []string{self, "extension", Name}},
		"capabilities": names, "timeout": callTimeout.String(), "concurrency": processes,
		"sandbox": tool.SandboxWorkdir,
	})
	if err != nil {
		return nil, fmt.Errorf("built-in tools: %w", err)
	}
	d, err := tool.ParseDescriptor(text, workdir, workdir, environ)
	if err != nil {
		return nil, fmt.Errorf("built-in tools: %w", err)
	}
	d.Bare, d.Jobs, d.Stateless = true, true, true
	if d.Manifest, err = jsonx.Marshal(describe()); err != nil {
		return nil, fmt.Errorf("built-in tools: %w", err)
	}
	return d, nil
}

// operation is one tool. Its error is a *fault where the call itself is wrong,
// and anything else where the call was right and could not be done.
type operation struct {
	name        string
	description string
	params      jsontext.Value
	run         func(c *call, args jsontext.Value) (string, error)
}

var operations = []operation{
	{
		"read",
		"Read a text file, or look at an image (png, jpeg, gif, webp of at most 5 MiB). Lines come numbered. A long file " +
			"comes in parts: the end of each part says with which offset the next one begins.",
		object(`"path":`+pathParam+`,
			"offset":{"type":"integer","minimum":1,"description":"first line to read, counted from 1"},
			"limit":{"type":"integer","minimum":1,"description":"how many lines to read at most"}`, "path"),
		read,
	},
	{
		"write",
		"Write a file, replacing it if there is one. Missing folders are made. " + outsideText,
		object(`"path":`+pathParam+`,"content":{"type":"string","description":"the whole content of the file"},`+
			outsideParams, "path",
			"content"),
		write,
	},
	{
		"edit",
		"Replace text in a file: one text by old_text and new_text, or several by edits, which are made one after another, " +
			"all or none. old_text must be exactly what the file has, without line numbers, and must be there only once " +
			"unless replace_all is set. " + outsideText,
		object(`"path":`+pathParam+`,`+replacementParams+`,
			"edits":{"type":"array","description":"several replacements, in place of old_text and new_text","items":`+string(object(replacementParams, "old_text", "new_text"))+`},`+outsideParams, "path"),
		edit,
	},
	{
		"ls",
		"List a folder, sorted by name, with sizes in bytes.",
		object(`"path":{"type":"string","description":"the folder; without it, the working directory"}`),
		ls,
	},
	{
		"find",
		"Find files and folders by name. Files that git ignores are left out.",
		object(
			`"pattern":{"type":"string","minLength":1,"description":"a glob such as *.go, src/**/*.{js,ts} or cmd/; without a slash it fits at any depth, ending with one it finds only folders"},
			"path":{"type":"string","description":"the folder to look in; without it, the working directory"}`, "pattern"),
		find,
	},
	{
		"grep",
		"Search the lines of text files. Files that git ignores and binary files are left out.",
		object(
			`"pattern":{"type":"string","minLength":1,"description":"a regular expression in RE2 syntax; (?i) before it ignores case"},
			"path":{"type":"string","description":"the file or folder to search; without it, the working directory"},
			"glob":{"type":"string","description":"search only files whose name fits, such as *.go or src/**/*.ts"}`, "pattern"),
		grep,
	},
	{
		"bash",
		"Run a shell command in the working directory. It has no terminal and no input, and whatever it leaves running " +
			"ends with it. " +
			"Of a long output the result has the last 49 KiB or 2000 lines, and says in which file all of it is. " +
			"With background it is a job: the call ends at once, and the command, a server for example, goes on until it " +
			"ends, is stopped with the tool job, or the session ends. " +
			outsideText,
		object(`"command":{"type":"string","minLength":1,"description":"the command"},
			"timeout":{"type":"number","minimum":0,"maximum":600,"description":"seconds, more than 0, after which it is stopped; 120 if not given; none for a job"},
			"background":{"type":"boolean","description":"go on after the call, as a job"},
			`+outsideParams, "command"),
		bash,
	},
	{
		"job",
		"Look after a job, a command that bash has started in the background: output shows the last of what it has " +
			"printed, wait waits for its end first, stop ends it. Its whole output, of which the middle is left out when it " +
			"is more than 4 MiB, is in a file that the result names.",
		object(`"id":{"type":"string","minLength":1,"description":"the job, such as job-1"},
			"action":{"type":"string","enum":["output","wait","stop"],"description":"what to do"},
			"timeout":{"type":"number","minimum":0,"maximum":600,"description":"seconds that wait waits at most; 60 if not given"}`, "id", "action"),
		ofTheDaemon,
	},
	{
		"todo",
		"Keep a list of what you have to do, for work of several steps. Each call replaces the whole list, which the user " +
			"sees. Write it before you begin, and keep it true: one item in progress at a time, completed as soon as it is.",
		object(`"items":{"type":"array","description":"the whole list, 100 items at most","items":{"type":"object",
			"properties":{"content":{"type":"string","description":"one thing to do, in a line"},
			"status":{"type":"string","enum":["pending","in_progress","completed"],"description":"how far it is"}},
			"required":["content","status"],"additionalProperties":false}}`, "items"),
		ofTheDaemon,
	},
	{
		tool.Agent,
		"Give a part of the work to a child session: an agent of its own with a fresh context, the same tools and the same " +
			"rules. It knows nothing of this conversation: say in the prompt all that it needs, and what it is to answer. The " +
			"result is its last answer, with its session_id and the files that it changed. Several calls in one answer run " +
			"at the same time; do not let two of them write the same files, or give each a worktree. With background the " +
			"call ends at once, and the result comes later as a message.",
		object(`"prompt":{"type":"string","minLength":1,"description":"the task, with all that it needs to know"},
			"description":{"type":"string","description":"the task in a few words, for the user"},
			"agent":{"type":"string","description":"another agent that does it, by its name; without it, one like you"},
			"model":{"type":"string","description":"another model, as provider/name"},
			"worktree":{"type":"boolean","description":"work in a git worktree and branch of its own; else in the same folder"},
			"background":{"type":"boolean","description":"do not wait for the result"},
			"session_id":{"type":"string","description":"go on with this child session of yours, in place of a new one"}`, "prompt"),
		ofTheDaemon,
	},
}

const outsideText = "With outside_sandbox it runs without the sandbox, after the user has said yes: " +
	"only for what the sandbox has refused and the work needs, and with a reason."

const outsideParams = `"outside_sandbox":{"type":"boolean","description":"run without the sandbox; the user is asked first, unless a rule of theirs allows it"},
			"reason":{"type":"string","description":"with outside_sandbox: one line for the user that says why"}`

const pathParam = `{"type":"string","minLength":1,"description":"a path; a relative one is meant from the working directory"}`

const replacementParams = `"old_text":{"type":"string","minLength":1,"description":"the text to replace"},
			"new_text":{"type":"string","description":"the text to put in its place"},
			"replace_all":{"type":"boolean","description":"replace every occurrence"}`

// object is the JSON Schema of an object with these properties and no others.
func object(properties string, required ...string) jsontext.Value {
	list := "[]"
	if len(required) > 0 {
		list = `["` + strings.Join(required, `","`) + `"]`
	}
	return jsontext.Value(`{"type":"object","properties":{` + properties + `},"required":` + list +
		`,"additionalProperties":false}`)
}
