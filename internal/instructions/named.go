package instructions

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

const (
	maxNamed      = 32 << 10 // bytes of a named agent's file
	maxNamedAll   = 200      // of all folders together
	maxNamedTools = 200      // that one may list
)

// The agents that are there without a file. Nobody's file takes their place: what only reads
// has to stay so in every folder.
const (
	Explore = "explore"
	Plan    = "plan"
)

// NamedAgent is a way to make a run: instructions for it, which of the session's tools it
// may call, and which model makes it.
type NamedAgent struct {
	Name, Description string
	Path              string   // of its file, "" where it is built in
	Text              string   // its instructions
	AllTools          bool     // what the session has; else Tools alone
	Tools             []string // by the names that the session's tools have
	Model             string   // PROVIDER/NAME, "" for the session's
	Effort            string   // "" for the session's
	Agent             string   // of another maker, which makes the turns; "" for our own
	Small             bool     // the small model makes it, where there is one
}

// namedFile is a file that was read, or what is wrong with it.
type namedFile struct {
	NamedAgent
	err error
}

// ErrNoAgent says that there is no named agent of that name.
var ErrNoAgent = errors.New("there is no agent of that name")

// Named returns all named agents, those that are nearest first and those that are built in
// last, and the files that were left out, each with the reason. It blocks for the disk.
func (in *Instructions) Named() (agents []NamedAgent, problems []string) {
	own := builtinAgents()
	for _, p := range in.placesOf("agents") {
		list, _ := in.listings.get(p.root, p.dir, readNames)
		if list.err != nil {
			problems = append(problems, p.dir+": "+reason(list.err))
		}
		for _, name := range list.names {
			path := filepath.Join(p.dir, name+".md")
			file, ok := in.named.get(p.root, path, in.readNamed)
			called := func(a NamedAgent) bool { return a.Name == file.Name }
			switch {
			case !ok:
			case len(agents)+len(problems) >= maxNamedAll:
				return append(agents, own...), append(problems, fmt.Sprintf("%s: there are more than %d agents", p.dir,
					maxNamedAll))
			case file.err != nil:
				problems = append(problems, path+": "+reason(file.err))
			case slices.ContainsFunc(own, called):
				problems = append(problems, fmt.Sprintf("%s: the agent %s is built in: give yours another name", path, file.Name))
			case !slices.ContainsFunc(agents, called):
				agents = append(agents, file.NamedAgent)
			}
		}
	}
	return append(agents, own...), problems
}

// NamedAgent returns the one of that name. The error is ErrNoAgent with the existing names, or says
// which file could not be read. It blocks for the disk.
func (in *Instructions) NamedAgent(name string) (NamedAgent, error) {
	agents, problems := in.Named()
	names := make([]string, len(agents))
	for i, a := range agents {
		if a.Name == name {
			return a, nil
		}
		names[i] = a.Name
	}
	for _, p := range problems {
		if path, _, _ := strings.Cut(p, ": "); filepath.Base(path) == name+".md" {
			return NamedAgent{}, errors.New(p)
		}
	}
	slices.Sort(names)
	return NamedAgent{}, fmt.Errorf("%w: %.80q; there are %s", ErrNoAgent, name, strings.Join(names, ", "))
}

func (in *Instructions) readNamed(root, path string) namedFile {
	r := in.readFile(root, path, maxNamed)
	switch {
	case r.err != nil:
		return namedFile{err: r.err}
	case r.cut:
		return namedFile{err: fmt.Errorf("has more than %d KiB", maxNamed>>10)}
	}
	a, err := parseNamed(strings.TrimSuffix(filepath.Base(path), ".md"), r.text)
	a.Path = path
	return namedFile{a, err}
}

// parseNamed reads what a file NAME.md says.
func parseNamed(name, text string) (a NamedAgent, err error) {
	front, body, err := split(text)
	if err != nil {
		return a, err
	}
	said, err := fieldsOf(front)
	if err != nil {
		return a, err
	}
	for _, f := range []struct {
		name string
		to   *string
	}{
		{"name", &a.Name},
		{"description", &a.Description},
		{"model", &a.Model},
		{"effort", &a.Effort},
		{"agent", &a.Agent},
	} {
		if *f.to, err = said.text(f.name); err != nil {
			return a, err
		}
	}
	if a.Name == "" {
		a.Name = name
	}
	if !commandNames().MatchString(a.Name) {
		return a, fmt.Errorf("has the name %.80q: want letters, digits, - and _, at most 64", a.Name)
	}
	if ofSession(a.Model) {
		a.Model = ""
	}
	if a.Text = strings.TrimSpace(body); a.Text == "" {
		return a, errors.New("has no instructions below its front matter")
	}
	tools, given, err := said.list("tools")
	if err != nil {
		return a, err
	}
	a.AllTools = !given
	a.Tools, err = toolNames(tools)
	return a, err
}

// ofSession reports a model that stands for no certain one: files that were written for Claude Code
// name kinds of its own models.
func ofSession(name string) bool {
	return slices.Contains([]string{"inherit", "default", "sonnet", "opus", "haiku"}, name)
}

// theirTools are the names that Claude Code has for tools that are ours, too.
var theirTools = map[string]string{
	"Read": "read", "Write": "write", "Edit": "edit", "MultiEdit": "edit", "Glob": "find", "Grep": "grep", "LS": "ls",
	"Bash": "bash", "BashOutput": "job", "KillShell": "job", "KillBash": "job", "TodoWrite": "todo", "TodoRead": "todo",
	"Task": "agent", "Agent": "agent",
}

// toolNames turns a list of tools into names of ours. A tool that may only be called with certain arguments
// is an error: nothing here holds it to them.
func toolNames(list []string) (names []string, err error) {
	if len(list) > maxNamedTools {
		return nil, fmt.Errorf("lists %d tools, at most %d may be", len(list), maxNamedTools)
	}
	for _, name := range list {
		if i := strings.IndexByte(name, '('); i >= 0 {
			return nil, fmt.Errorf("has the tool %.80q: name whole tools, and make a rule of approvals for what they "+
				"may do", name)
		}
		if ours, ok := theirTools[name]; ok {
			name = ours
		} else if rest, ok := strings.CutPrefix(name, "mcp__"); ok {
			name = strings.Replace(rest, "__", ".", 1)
		}
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// builtinAgents are those that are there without a file.
func builtinAgents() []NamedAgent {
	reads := []string{"read", "grep", "find", "ls", "todo"}
	return []NamedAgent{
		{
			Name: Explore, Description: "finds out where and how something is done in the folder; it only reads", Small: true,
			Tools: reads, Text: explorePrompt,
		},
		{
			Name: Plan, Description: "reads what a task needs and ends with a plan for it; it changes nothing", Tools: reads,
			Text: planPrompt,
		},
	}
}

const (
	explorePrompt = `# Explore

You look things up in this folder for somebody who goes on from your answer. You can read, and change nothing. Search broadly first, then read only what matters. Answer with what was asked, each fact with its place as path:line, and say what you did not find. No advice, no plan.`

	planPrompt = `# Plan

You make a plan and carry nothing out: you can read, and change nothing. Read what the task touches until you know how it is done here. Then end with the plan, and with nothing after it:

- one sentence that says what will be different;
- the steps in their order, each with the files that it changes and how;
- how it is seen to work: which tests, which commands;
- what you are not sure of, as questions with the answer that you would take.

Keep it as short as the task allows. The person reads it, changes it or has it done.`
)
