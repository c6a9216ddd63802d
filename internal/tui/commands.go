package tui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"noused/internal/client"
	"noused/internal/client/follow"
	"noused/internal/format"
	"noused/internal/protocol"
	"noused/internal/tui/cell"
)

// place is what a job knows of where it works: a copy, and safe to read in any
// goroutine.
type place struct {
	opts  *Options
	link  *follow.Session // nil of a daemon that is not shown: it is dialled for each command
	busy  *sync.WaitGroup // of link
	state protocol.State
}

func (p place) scope() protocol.Scope { return protocol.Scope{SessionID: p.state.SessionID} }

func (p place) running() bool {
	return p.state.RunState != "" && p.state.RunState != protocol.StateIdle
}

// ask sends a command.
func ask[P protocol.Params, R protocol.Reply](ctx context.Context, p place, def protocol.Def[P, R], params P) (R,
	error,
) {
	if p.link == nil {
		return follow.Once(ctx, p.opts.Daemon, def, params)
	}
	return follow.Do(ctx, p.link, def, params)
}

// refusal is why the daemon that is shown cannot do a command; nil where it can, or that is
// not known.
func refusal[P protocol.Params, R protocol.Reply](link *follow.Session, def protocol.Def[P, R], params P) error {
	if link == nil {
		return nil
	}
	return follow.Refusal(link, def, params)
}

// takesNoImages is why no image can go with a text, or nil.
func takesNoImages(link *follow.Session) error {
	return refusal(link, protocol.Prompt, protocol.PromptParams{Attachments: []protocol.AttachmentParams{{}}})
}

// outcome is what a job comes to. Both faces know how to show one.
type outcome struct {
	name  string // of the command, where the screen shows that it is at work
	info  string // a line or more for the user
	stays bool   // info stands in the conversation of this screen, and stays
	err   error

	text   string   // goes back into the input: what was not accepted
	back   []string // goes into the input before what is written: what the daemon handed back
	sent   string   // id of the input that was accepted
	follow *string  // the session to show from now on
	site   *site    // of that session; nil is the one that is shown
	show   any      // a list to choose from: sessionList, toolList, modelList, protocol.Tree
	images []image  // for the next text; empty and not nil: none of them
	help   bool
	mouse  bool // switch the mouse on or off
	theme  string

	find    *string // a text to find in the conversation; "" asks for one
	board   bool    // show the board
	palette bool    // show all commands
	start   bool    // start a daemon
	setUp   bool    // ask for a model and its key
	quit    bool
}

// sessionList asks for a choice among sessions; query is the filter to begin
// with.
type sessionList struct {
	sessions []protocol.SessionInfo
	matches  []protocol.SearchMatch
	query    string
}

type toolList struct {
	tools   []protocol.ToolInfo
	servers []protocol.ServerInfo
}

type modelList struct{ models []protocol.ListedModel }

func informed(format string, args ...any) outcome { return outcome{info: fmt.Sprintf(format, args...)} }

func failed(err error) outcome { return outcome{err: err} }

func following(id, format string, args ...any) outcome {
	return outcome{follow: &id, info: fmt.Sprintf(format, args...)}
}

// command is one of the commands that begin with a slash.
type command struct {
	name   string
	args   string // as help shows them
	about  string
	takes  string // what its argument completes to: "session", "tool", "mode", "format", "path"
	must   bool   // it has to have an argument
	local  bool   // it asks nobody
	screen bool   // the plain mode does not have it
	moves  bool   // it changes what is shown: what is sent after it is meant for that
	first  bool   // what is sent after it waits until it is done
	run    func(ctx context.Context, p place, arg string) outcome
}

// commands are all slash commands in the order of help.
var commands = []command{
	{name: "new", args: "[TITLE]", about: "begin a session", moves: true, run: newSession},
	{
		name: "switch", args: "[ID or TEXT]", about: "show another session", takes: "session", moves: true,
		run: switchSession,
	},
	{
		name: "branch", args: "[ENTRY]", about: "go on from here, or from an entry, in a session of its own", moves: true,
		run: branchSession,
	},
	{
		name: "edit", about: "edit the last message: go on from before it in a session of its own", moves: true,
		run: editLast,
	},
	{name: "take-back", about: "take the newest queued text back into the input", run: newestWaiting},
	{
		name: "board", local: true, about: "all sessions of the daemon, by what they need",
		run: func(context.Context, place, string) outcome {
			return outcome{board: true}
		},
	},
	{
		name: "bash", args: "COMMAND", must: true, first: true,
		about: "run a shell line, as !COMMAND does; the output joins the conversation", run: runShell,
	},
	{
		name: "bash-aside", args: "COMMAND", must: true,
		about: "the same, as !!COMMAND does; the output stays out of the conversation", run: runShellAside,
	},
	{
		name: "find", args: "[TEXT]", local: true, screen: true, about: "find a text in this conversation",
		run: func(_ context.Context, _ place, text string) outcome {
			return outcome{find: &text}
		},
	},
	{name: "tree", about: "all branches of the session", run: showTree},
	{
		name: "leaf", args: "ENTRY", about: "go on from another entry of this session", must: true, moves: true,
		run: setLeaf,
	},
	{name: "search", args: "TEXT", about: "find a text in all sessions", must: true, run: searchSessions},
	{
		name: "tools", args: "[NAMES | all | none]", about: "the tools the model is offered", takes: "tool", first: true,
		run: chooseTools,
	},
	{
		name: "model", args: "[NAME [SERVER] | default | probe]",
		about: "the model that answers in this session; probe asks servers for theirs", takes: "model", first: true,
		run: chooseModel,
	},
	{
		name: "image", args: "PATH | none", about: "show an image with the next text", takes: "path", must: true, local: true,
		run: attachImage,
	},
	{
		name: "mode", args: "[steering|follow-up one|all]", about: "deliver queued texts one at a time or all at once",
		takes: "mode", first: true, run: chooseMode,
	},
	{
		name: "approvals", args: "[ask | auto | deny]",
		about: "ask before what the rules do not allow, allow it, or deny it, in this session", takes: "approvals",
		first: true, run: chooseApprovals,
	},
	{
		name: "approve", args: "[OPTION]", about: "allow what the run asks: once, or another of the question's options",
		first: true, run: approveCommand,
	},
	{name: "deny", args: "[REASON]", about: "do not allow it; the model reads the reason", first: true, run: denyCommand},
	{
		name: "follow-up", args: "TEXT", about: "queue a text that is delivered when the run would otherwise end", must: true,
		run: followUp,
	},
	{
		name: "abort", about: "end the run; queued texts return to the input",
		run: func(ctx context.Context, p place, _ string) outcome {
			return abort(ctx, p)
		},
	},
	{name: "compact", args: "[INSTRUCTION]", about: "summarise the older part of the session", run: compact},
	{
		name: "export", args: "[md|json|html] [FILE]", about: "write the conversation to a file", takes: "format",
		run: export,
	},
	{name: "state", about: "what the daemon is doing", run: showState},
	{name: "reload", about: "read the tool descriptors again", run: reloadTools},
	{name: "start", local: true, about: "start a daemon if none runs", run: func(context.Context, place, string) outcome {
		return outcome{start: true}
	}},
	{
		name: "setup", local: true, screen: true, about: "choose the daemon's model and save its key",
		run: func(context.Context, place, string) outcome {
			return outcome{setUp: true}
		},
	},
	{
		name: "mouse", local: true, about: "leave the mouse to the terminal, or take it again",
		run: func(context.Context, place, string) outcome {
			return outcome{mouse: true}
		},
	},
	{
		name: "theme", args: "auto|dark|light|none", takes: "theme", must: true, local: true,
		about: "the colours, from now on", run: chooseTheme,
	},
	{
		name: "palette", local: true, about: "all commands and keys, to choose from",
		run: func(context.Context, place, string) outcome {
			return outcome{palette: true}
		},
	},
	{name: "help", local: true, about: "keys and commands", run: func(context.Context, place, string) outcome {
		return outcome{help: true}
	}},
	{name: "quit", local: true, about: "leave; a run goes on", run: func(context.Context, place, string) outcome {
		return outcome{quit: true}
	}},
}

func commandNamed(name string) *command {
	for i := range commands {
		if commands[i].name == name {
			return &commands[i]
		}
	}
	return nil
}

// parseCommand tells a text that begins with a slash, which is a command, from
// one for the model, whose leading "//" stands for "/", and " !" for "!". An error names what is
// wrong with a command.
func parseCommand(text string) (cmd *command, rest string, err error) {
	if strings.HasPrefix(text, "//") {
		return nil, text[1:], nil
	}
	if strings.HasPrefix(text, " !") {
		return nil, text[1:], nil
	}
	if line, ok := shellLine(text); ok {
		text = line
	}
	line, isCommand := strings.CutPrefix(text, "/")
	if !isCommand {
		return nil, text, nil
	}
	name, rest := line, ""
	if i := strings.IndexAny(line, " \t\n"); i >= 0 {
		name, rest = line[:i], strings.TrimSpace(line[i:])
	}
	if strings.HasPrefix(name, skillPrefix[1:]) {
		if name == skillPrefix[1:] {
			return nil, "", errors.New("want /skill:NAME [TEXT]")
		}
		return nil, text, nil
	}
	cmd = commandNamed(strings.ToLower(name))
	switch {
	case cmd == nil && promptCall().MatchString(text): // the daemon may have a file, or a server, for it
		return nil, text, nil
	case cmd == nil:
		return nil, "", noCommand(name)
	case cmd.must && rest == "":
		return nil, "", fmt.Errorf("want /%s %s", cmd.name, cmd.args)
	case cmd.args == "" && rest != "":
		return nil, "", fmt.Errorf("/%s takes no argument", cmd.name)
	}
	return cmd, rest, nil
}

func noCommand(name string) error {
	return fmt.Errorf("there is no command /%s: /help lists them; to send a text that begins with a slash, "+
		"begin it with two", cell.Line(name, 40))
}

func chooseTools(ctx context.Context, p place, arg string) outcome {
	names := strings.Fields(strings.ReplaceAll(arg, ",", " "))
	if arg == "none" {
		names = []string{}
	} else if arg == "" || arg == "all" {
		r, err := ask(ctx, p, protocol.ListTools, protocol.ListToolsParams{Scope: p.scope()})
		if err != nil {
			return failed(explain(err, "to list its tools; /tools NAMES and /tools none work"))
		}
		if arg == "" {
			return outcome{show: toolList{r.Tools, r.Servers}}
		}
		for _, t := range r.Tools {
			names = append(names, t.Name)
		}
	}
	return setTools(ctx, p, names)
}

func setTools(ctx context.Context, p place, names []string) outcome {
	r, err := ask(ctx, p, protocol.SetActiveTools, protocol.SetActiveToolsParams{
		Scope: p.scope(),
		Tools: append([]string{}, names...),
	})
	if err != nil {
		return failed(err)
	}
	return informed("%s active", format.Count(r.Count, "tool"))
}

// chooseModel sets the model that answers, or asks for a choice among them.
func chooseModel(ctx context.Context, p place, arg string) outcome {
	name, server, _ := strings.Cut(arg, " ")
	if name == "" || name == "probe" {
		r, err := ask(ctx, p, protocol.ListModels, protocol.ListModelsParams{Probe: name == "probe"})
		if err != nil {
			return failed(explain(err, "to list its models"))
		}
		return outcome{show: modelList{r.Models}}
	}
	r, err := ask(ctx, p, protocol.SetModel, protocol.SetModelParams{
		Scope: p.scope(), Model: name,
		BaseURL: strings.TrimSpace(server),
	})
	if err != nil {
		return failed(explain(err, "to change its model"))
	}
	return informed("%s/%s answers from the next call on", r.Model.Provider, r.Model.Name)
}

func chooseMode(ctx context.Context, p place, arg string) outcome {
	words := strings.Fields(arg)
	if len(words) == 0 {
		return informed("steering: %s, follow-up: %s", p.state.SteeringMode, p.state.FollowUpMode)
	}
	if len(words) != 2 {
		return failed(errors.New("want /mode steering|follow-up one|all"))
	}
	mode := protocol.Mode(words[1])
	if mode == "one" {
		mode = protocol.ModeOneAtATime
	}
	if mode != protocol.ModeOneAtATime && mode != protocol.ModeAll {
		return failed(fmt.Errorf("mode %s: want one or all", cell.Line(string(mode), 20)))
	}
	return setMode(ctx, p, words[0], mode)
}

func chooseTheme(_ context.Context, _ place, name string) outcome {
	if !slices.Contains(themes, name) {
		return failed(fmt.Errorf("theme %s: want one of %s", cell.Line(name, 20), strings.Join(themes, ", ")))
	}
	return outcome{theme: name}
}

func setMode(ctx context.Context, p place, queue string, mode protocol.Mode) outcome {
	def := protocol.SetSteeringMode
	switch queue {
	case "steering", "steer":
	case "follow-up", "follow_up":
		def = protocol.SetFollowUpMode
	default:
		return failed(fmt.Errorf("mode of %s: want steering or follow-up", cell.Line(queue, 20)))
	}
	r, err := ask(ctx, p, def, protocol.SetModeParams{Scope: p.scope(), Mode: mode})
	if err != nil {
		return failed(err)
	}
	return informed("%s: %s", queue, r.Mode)
}

func compact(ctx context.Context, p place, instruction string) outcome {
	r, err := ask(ctx, p, protocol.CompactSession, protocol.CompactSessionParams{
		Scope:       p.scope(),
		Instruction: instruction,
	})
	if err != nil {
		return failed(explain(err, "to compact"))
	}
	return informed("summarised: %d tokens before", r.TokensBefore)
}

// export writes to a new file, readable by the user only, in the folder nous
// was started in.
func export(ctx context.Context, p place, arg string) outcome {
	format, file, _ := strings.Cut(arg, " ")
	file = strings.TrimSpace(file)
	if !slices.Contains(exportFormats, format) {
		file, format = arg, strings.TrimPrefix(filepath.Ext(arg), ".")
		switch {
		case arg == "":
			format = exportFormats[0]
		case !slices.Contains(exportFormats, format):
			return failed(fmt.Errorf("export: want md, json or html, or a file that is called so, got %s", cell.Line(arg, 80)))
		}
	}
	if file == "" {
		file = p.state.SessionID + "." + format
	}
	if rest, ok := strings.CutPrefix(file, "~/"); ok {
		file = filepath.Join(p.opts.Getenv("HOME"), rest)
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return failed(fmt.Errorf("export: %w", err))
	}
	err = errors.Join(p.opts.Export(ctx, p.state.SessionID, format, f), f.Close())
	if err != nil {
		return failed(fmt.Errorf("export: %w", errors.Join(err, os.Remove(file))))
	}
	if whole, err := filepath.Abs(file); err == nil {
		file = whole
	}
	return informed("written: %s", file)
}

var exportFormats = []string{"md", "json", "html"}

func reloadTools(ctx context.Context, p place, _ string) outcome {
	r, err := ask(ctx, p, protocol.ReloadTools, protocol.ReloadToolsParams{})
	if err != nil {
		return failed(explain(err, "to read tools again"))
	}
	var lines []string
	for _, list := range []struct {
		what  string
		names []string
	}{{"added", r.Added}, {"changed", r.Changed}, {"removed", r.Removed}, {"cannot be used", r.Errors}} {
		if len(list.names) > 0 {
			lines = append(lines, list.what+": "+strings.Join(list.names, ", "))
		}
	}
	return informed("%s", cmp.Or(strings.Join(lines, "\n"), "no tool has changed"))
}

func showState(ctx context.Context, p place, _ string) outcome {
	s, err := ask(ctx, p, protocol.GetState, protocol.GetStateParams{Scope: p.scope()})
	if err != nil {
		return failed(err)
	}
	lines := []string{"session: " + cmp.Or(s.SessionID, p.state.SessionID), "run state: " + string(s.RunState)}
	add := func(key, value string) {
		if value != "" {
			lines = append(lines, key+": "+value)
		}
	}
	add("run", s.RunID)
	add("title", s.Title)
	add("steering mode", string(s.SteeringMode))
	add("follow-up mode", string(s.FollowUpMode))
	add("pending", fmt.Sprintf("%d steer, %d follow-up", s.PendingCounts.Steer, s.PendingCounts.FollowUp))
	if s.Daemon.Version == "" {
		add("daemon", "says no more")
		return informed("%s", strings.Join(lines, "\n"))
	}
	add("model", s.Model.Provider+"/"+s.Model.Name)
	add("active tools", cmp.Or(strings.Join(s.ActiveTools, ", "), "none"))
	add("usage", fmt.Sprintf("%d tokens in, %d out", s.Usage.InputTokens, s.Usage.OutputTokens))
	for _, a := range s.Assets {
		add("asset", a.AssetID+" "+a.Path+" ("+a.MediaType+")")
	}
	for _, r := range s.Runs {
		if r.RunID != s.RunID {
			add("also "+string(r.RunState), r.RunID+" in "+r.SessionID)
		}
	}
	add("daemon", fmt.Sprintf("%s, pid %d, since %s", s.Daemon.Version, s.Daemon.PID,
		s.Daemon.StartedAt.Local().Format("2006-01-02 15:04:05")))
	return informed("%s", strings.Join(lines, "\n"))
}

// explain says what was to be done with a command that the daemon does not know.
func explain(err error, what string) error {
	var lacks *client.OlderError
	switch {
	case !errors.As(err, &lacks):
		return err
	case lacks.Command == "":
		return lacks
	}
	return &client.OlderError{What: "does not know how " + what, Err: lacks.Err}
}

// describe is an error as the user reads it: code, message and cause of a
// daemon's, the text of any other.
func describe(err error) string {
	var wire *protocol.Error
	switch {
	case errors.Is(err, client.ErrUnsupported):
		return explain(err, "to do this").Error()
	case errors.As(err, &wire):
		return wire.Error()
	default:
		return err.Error()
	}
}
