package slash

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"noused/internal/client/actions"
	"noused/internal/cmdline"
	"noused/internal/format"
	"noused/internal/protocol"
	"noused/internal/tui/cell"
	"noused/internal/tui/settings"
)

// Command is one of the commands that begin with a slash.
type Command struct {
	Name   string
	Args   string // as help shows them
	About  string
	Takes  string // what its argument completes to: "session", "tool", "mode", "format", "path"
	must   bool   // it has to have an argument
	Local  bool   // it asks nobody
	Screen bool   // the plain mode does not have it
	Moves  bool   // it changes what is shown: what is sent after it is meant for that
	First  bool   // what is sent after it waits until it is done
	Run    func(ctx context.Context, p Place, arg string) Outcome
}

// Commands are all slash commands in the order of help.
var Commands = []Command{
	{Name: "new", Args: "[TITLE]", About: "begin a session", Moves: true, Run: newSession},
	{
		Name: "agent", Args: "[NAME]", About: "have another agent make the turns, in a new session where this one has begun",
		Takes: "agent", Moves: true, Run: ChooseAgent,
	},
	{
		Name: "options", Args: "[NAME [VALUE]]", About: "what the agent of this session lets you choose: its mode, say",
		Takes: "option", First: true, Run: ChooseOption,
	},
	{
		Name: "switch", Args: "[ID or TEXT]", About: "show another session, and make it the daemon's active one",
		Takes: "session", Moves: true, Run: switchSession,
	},
	{
		Name: "branch", Args: "[ENTRY]", About: "go on from here, or from an entry, in a session of its own", Moves: true,
		Run: BranchSession,
	},
	{
		Name: "edit", About: "write the last message anew; sending it begins a branch from before it", Screen: true,
		First: true,
		Run:   editLast,
	},
	{Name: "take-back", About: "take the newest queued text back into the input", Run: newestWaiting},
	{
		Name: "board", Local: true, About: "all sessions of the daemon, by what they need",
		Run: func(context.Context, Place, string) Outcome {
			return Outcome{Board: true}
		},
	},
	{
		Name: "bash", Args: "COMMAND", must: true, First: true,
		About: "run a shell line, as !COMMAND does; the output joins the conversation", Run: runShell,
	},
	{
		Name: "bash-aside", Args: "COMMAND", must: true,
		About: "the same, as !!COMMAND does; the output stays out of the conversation", Run: runShellAside,
	},
	{
		Name: "diff", Local: true, Screen: true,
		About: "what the session has changed; comments on its lines are sent together",
		Run:   func(context.Context, Place, string) Outcome { return Outcome{Changes: true} },
	},
	{
		Name: "rewind", Args: "[MESSAGE | undo]", Screen: true, Moves: true,
		About: "take back files, conversation or both since a message of yours, or undo that", Run: rewind,
	},
	{
		Name: "find", Args: "[TEXT]", Local: true, Screen: true, About: "find a text in this conversation",
		Run: func(_ context.Context, _ Place, text string) Outcome {
			return Outcome{Find: &text}
		},
	},
	{
		Name: "copy", Local: true, Screen: true, About: "copy the block in focus, else the last answer",
		Run: func(context.Context, Place, string) Outcome { return Outcome{Copy: true} },
	},
	{Name: "tree", About: "all branches of the session", Run: showTree},
	{
		Name: "leaf", Args: "ENTRY", About: "go on from another entry of this session", must: true, Moves: true,
		Run: SetLeaf,
	},
	{Name: "search", Args: "TEXT", About: "find a text in all sessions", must: true, Run: searchSessions},
	{
		Name: "tools", Args: "[NAMES | all | none]", About: "the tools the model is offered", Takes: "tool", First: true,
		Run: chooseTools,
	},
	{
		Name: "model", Args: "[NAME [SERVER] | default | probe]",
		About: "the model of this session alone; nous model sets the default of all, probe asks servers for theirs",
		Takes: "model", First: true, Run: ChooseModel,
	},
	{
		Name: "image", Args: "PATH | none", About: "show an image with the next text", Takes: "path", must: true, Local: true,
		Run: attachImage,
	},
	{
		Name: "mode", Args: "[steering|follow-up one|all]", About: "deliver queued texts one at a time or all at once",
		Takes: "mode", First: true, Run: chooseMode,
	},
	{
		Name: "set-approval-mode", Args: "[ask | auto | deny]",
		About: "ask before what the rules do not allow, allow it, or deny it, in this session", Takes: "approvals",
		First: true, Run: chooseApprovals,
	},
	{
		Name: "approvals", Args: "[ID]", About: "the approvals of all sessions that wait for you, or one in full",
		Run: showApprovals,
	},
	{
		Name: "approve", Args: "[OPTION]", About: "allow what the run asks: once, or another of the approval's options",
		First: true, Run: approveCommand,
	},
	{Name: "deny", Args: "[REASON]", About: "do not allow it; the model reads the reason", First: true, Run: denyCommand},
	{
		Name: "follow-up", Args: "TEXT", About: "queue a text that is delivered when the run would otherwise end", must: true,
		Run: followUp,
	},
	{
		Name: "abort", About: "end the run; queued texts return to the input",
		Run: func(ctx context.Context, p Place, _ string) Outcome {
			return Abort(ctx, p)
		},
	},
	{
		Name: "as", Args: "[NAME TEXT]", About: "send a text as a named agent, with its tools alone", Takes: "named",
		Run: chooseNamed,
	},
	{
		Name: "plan", Args: "[TEXT]", Local: true, Screen: true,
		About: "have a text planned, not done; alone: plan mode on or off",
		Run:   func(_ context.Context, _ Place, text string) Outcome { return Outcome{Plan: &text} },
	},
	{
		Name: "do", Local: true, Screen: true, About: "have the plan that is ready carried out",
		Run: func(context.Context, Place, string) Outcome { return Outcome{DoPlan: true} },
	},
	{Name: "compact", Args: "[INSTRUCTION]", About: "summarise the older part of the session", Run: compact},
	{
		Name: "export", Args: "[md|json|html] [FILE]", About: "write the conversation to a file", Takes: "format",
		Run: export,
	},
	{Name: "state", About: "what the daemon is doing", Run: showState},
	{Name: "reload", About: "read the tool descriptors again", Run: reloadTools},
	{Name: "start", Local: true, About: "start a daemon if none runs", Run: func(context.Context, Place, string) Outcome {
		return Outcome{Start: true}
	}},
	{
		Name: "setup", Local: true, Screen: true, About: "choose the daemon's model and save its key",
		Run: func(context.Context, Place, string) Outcome {
			return Outcome{SetUp: true}
		},
	},
	{
		Name: "mouse", Local: true, About: "leave the mouse to the terminal, or take it again",
		Run: func(context.Context, Place, string) Outcome {
			return Outcome{Mouse: true}
		},
	},
	{
		Name: "theme", Args: "auto|dark|light|none", Takes: "theme", must: true, Local: true,
		About: "the colours, from now on", Run: chooseTheme,
	},
	{
		Name: "palette", Local: true, About: "all commands and keys, to choose from",
		Run: func(context.Context, Place, string) Outcome {
			return Outcome{Palette: true}
		},
	},
	{Name: "help", Local: true, About: "keys and commands", Run: func(context.Context, Place, string) Outcome {
		return Outcome{Help: true}
	}},
	{Name: "quit", Local: true, About: "leave; a run goes on", Run: func(context.Context, Place, string) Outcome {
		return Outcome{Quit: true}
	}},
}

func Named(name string) *Command {
	for i := range Commands {
		if Commands[i].Name == name {
			return &Commands[i]
		}
	}
	return nil
}

// Parse tells a text that begins with a slash, which is a command, from
// one for the model, whose leading "//" stands for "/", and " !" for "!". An error names what is
// wrong with a command.
func Parse(text string) (cmd *Command, rest string, err error) {
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
	if strings.HasPrefix(name, SkillPrefix[1:]) {
		if name == SkillPrefix[1:] {
			return nil, "", errors.New("want /skill:NAME [TEXT]")
		}
		return nil, text, nil
	}
	cmd = Named(strings.ToLower(name))
	switch {
	case cmd == nil && promptCall().MatchString(text): // the daemon may have a file, or a server, for it
		return nil, text, nil
	case cmd == nil:
		return nil, "", noCommand(name)
	case cmd.must && rest == "":
		return nil, "", fmt.Errorf("want /%s %s", cmd.Name, cmd.Args)
	case cmd.Args == "" && rest != "":
		return nil, "", fmt.Errorf("/%s takes no argument", cmd.Name)
	}
	return cmd, rest, nil
}

func noCommand(name string) error {
	name = "/" + cell.Line(name, 40)
	var all []string
	for _, c := range Commands {
		all = append(all, "/"+c.Name)
	}
	more := "; the menu of / lists them; to send a text that begins with a slash, begin it with two"
	if near := cmdline.DidYouMean(name, all); near != "" && name != "/" {
		more = near + " To send it as a text, begin it with two slashes"
	}
	return fmt.Errorf("there is no command %s%s", name, more)
}

func chooseTools(ctx context.Context, p Place, arg string) Outcome {
	names := strings.Fields(strings.ReplaceAll(arg, ",", " "))
	if arg == "none" {
		names = []string{}
	} else if arg == "" || arg == "all" {
		r, err := Ask(ctx, p, protocol.ListTools, protocol.ListToolsParams{Scope: p.Scope()})
		if err != nil {
			return Failed(Explain(err, "to list its tools; /tools NAMES and /tools none work"))
		}
		if arg == "" {
			return Outcome{Show: ToolList{r.Tools, r.Servers}}
		}
		for _, t := range r.Tools {
			names = append(names, t.Name)
		}
	}
	return SetTools(ctx, p, names)
}

func SetTools(ctx context.Context, p Place, names []string) Outcome {
	r, err := actions.SetTools(ctx, p, p.Scope(), names)
	if err != nil {
		return Failed(err)
	}
	return informed("%s active", format.Count(r.Count, "tool"))
}

// ChooseModel sets the model that answers, or asks for a choice among them.
func ChooseModel(ctx context.Context, p Place, arg string) Outcome {
	name, server, _ := strings.Cut(arg, " ")
	if name == "" || name == "probe" {
		r, err := Ask(ctx, p, protocol.ListModels, protocol.ListModelsParams{
			Probe: name == "probe", SessionID: hostedID(p),
		})
		if err != nil {
			return Failed(Explain(err, "to list its models"))
		}
		return Outcome{Show: ModelList{r.Models}}
	}
	r, err := actions.SetModel(ctx, p, protocol.SetModelParams{
		Scope: p.Scope(), Model: name, BaseURL: strings.TrimSpace(server),
	})
	if err != nil {
		return Failed(Explain(err, "to change its model"))
	}
	return informed("%s/%s answers from the next call on", r.Model.Provider, r.Model.Name)
}

func chooseMode(ctx context.Context, p Place, arg string) Outcome {
	words := strings.Fields(arg)
	if len(words) == 0 {
		return informed("steering: %s, follow-up: %s", p.State.SteeringMode, p.State.FollowUpMode)
	}
	if len(words) != 2 {
		return Failed(errors.New("want /mode steering|follow-up one|all"))
	}
	mode, known := actions.ModeNamed(words[1])
	if !known {
		return Failed(fmt.Errorf("mode %s: want one or all", cell.Line(string(mode), 20)))
	}
	return SetMode(ctx, p, words[0], mode)
}

func chooseTheme(_ context.Context, _ Place, name string) Outcome {
	if !slices.Contains(settings.Themes, name) {
		return Failed(fmt.Errorf("theme %s: want one of %s", cell.Line(name, 20), strings.Join(settings.Themes, ", ")))
	}
	return Outcome{Theme: name}
}

func SetMode(ctx context.Context, p Place, word string, mode protocol.Mode) Outcome {
	queue, known := actions.QueueNamed(word)
	if !known {
		return Failed(fmt.Errorf("mode of %s: want steering or follow-up", cell.Line(word, 20)))
	}
	r, err := actions.SetMode(ctx, p, p.Scope(), queue, mode)
	if err != nil {
		return Failed(err)
	}
	return informed("%s: %s", word, r.Mode)
}

func compact(ctx context.Context, p Place, instruction string) Outcome {
	if _, err := actions.Compact(ctx, p, p.Scope(), instruction); err != nil {
		return Failed(Explain(err, "to compact"))
	}
	return Outcome{} // the conversation is read again, and says it
}

// export writes to a new file, readable by the user only, in the folder nous
// was started in.
func export(ctx context.Context, p Place, arg string) Outcome {
	format, file, _ := strings.Cut(arg, " ")
	file = strings.TrimSpace(file)
	if !slices.Contains(ExportFormats, format) {
		file, format = arg, strings.TrimPrefix(filepath.Ext(arg), ".")
		switch {
		case arg == "":
			format = ExportFormats[0]
		case !slices.Contains(ExportFormats, format):
			return Failed(fmt.Errorf("export: want md, json or html, or a file that is called so, got %s", cell.Line(arg, 80)))
		}
	}
	if file == "" {
		file = p.State.SessionID + "." + format
	}
	if rest, ok := strings.CutPrefix(file, "~/"); ok {
		file = filepath.Join(p.Getenv("HOME"), rest)
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return Failed(fmt.Errorf("export: %w", err))
	}
	err = errors.Join(p.Site.Export(ctx, p.State.SessionID, format, f), f.Close())
	if err != nil {
		return Failed(fmt.Errorf("export: %w", errors.Join(err, os.Remove(file))))
	}
	if whole, err := filepath.Abs(file); err == nil {
		file = whole
	}
	return informed("written: %s", file)
}

var ExportFormats = []string{"md", "json", "html"}

func reloadTools(ctx context.Context, p Place, _ string) Outcome {
	r, err := actions.ReloadTools(ctx, p)
	if err != nil {
		return Failed(Explain(err, "to read tools again"))
	}
	var lines []string
	for _, list := range []struct {
		what  string
		names []string
	}{{"added", r.Added}, {"changed", r.Changed}, {"removed", r.Removed}, {"problems", r.Errors}} {
		if len(list.names) > 0 {
			lines = append(lines, list.what+": "+strings.Join(list.names, ", "))
		}
	}
	return informed("%s", cmp.Or(strings.Join(lines, "\n"), "no tool has changed"))
}

func showState(ctx context.Context, p Place, _ string) Outcome {
	s, err := Ask(ctx, p, protocol.GetState, protocol.GetStateParams{Scope: p.Scope()})
	if err != nil {
		return Failed(err)
	}
	lines := []string{"session: " + cmp.Or(s.SessionID, p.State.SessionID), "run state: " + string(s.RunState)}
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
