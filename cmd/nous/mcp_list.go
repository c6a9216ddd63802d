package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"noused/internal/client"
	"noused/internal/client/plain"
	"noused/internal/cmdline"
	"noused/internal/mcpfile"
	"noused/internal/protocol"
)

// aboutServer is how much is said of a server in a list: what is wrong is the end of a
// long line.
const aboutServer = 400

// stateDisabled is what the daemon does not know of.
const stateDisabled = "disabled"

// serverRow is a server, as the files and the daemon have it.
type serverRow struct {
	protocol.ServerInfo
	Runs  string   `json:"runs,omitzero"` // the command line, or the URL
	File  string   `json:"file,omitzero"`
	Line  int      `json:"line,omitzero"`
	Named []string `json:"tool_names,omitzero"`

	entry mcpfile.Server
}

// view is all that is known of servers from the current folder.
type view struct {
	servers  []serverRow
	problems []string // of files
	notes    []string
}

func (a *app) mcpListCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the MCP servers that this folder sees",
		Long: `List the MCP servers that this folder sees: yours, those of its .mcp.json, and
those that an editor has brought to its session. The state is

  configured   nothing of it runs; it is started when it is needed
  starting     it has been started and has not said yet what it can do
  ready        it runs
  failed       it could not be started, has ended, or its entry is wrong
  untrusted    a project's file names it: nous mcp trust shows what it runs
  needs_login  it wants you to log in: nous mcp login
  disabled     its entry says so

What is wrong with a file is told below, and the exit status is 1 then.`,
		Args: cmdline.Wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.listServers(cmd.Context()) },
	}
}

func (a *app) listServers(ctx context.Context) error {
	v, err := a.viewServers(ctx)
	if err != nil {
		return err
	}
	rows := make([][]string, len(v.servers))
	for i, s := range v.servers {
		if a.json {
			a.printServer(s)
		}
		rows[i] = []string{
			s.Name, s.State, strconv.Itoa(s.Tools), cmp.Or(s.Workdir, "-"),
			plain.OneLine(cmp.Or(s.Message, s.Runs), aboutServer),
		}
	}
	switch {
	case a.json:
	case len(rows) > 0:
		a.printTable([]string{"SERVER", "STATE", "TOOLS", "FOLDER", "ABOUT"}, rows)
	case len(v.problems) == 0:
		a.notef("there is none; nous mcp add and nous mcp import add some")
	}
	for _, note := range v.notes {
		a.notef("%s", note)
	}
	for _, problem := range v.problems {
		a.complain(problem)
	}
	if len(v.problems) > 0 {
		return &quietExit{exitFailed}
	}
	return nil
}

func (a *app) printServer(s serverRow) {
	if line, err := json.Marshal(s, json.Deterministic(true)); err == nil {
		a.printJSON(line)
	}
}

// viewServers puts together what the files say and what the daemon knows.
func (a *app) viewServers(ctx context.Context) (v view, err error) {
	dir, err := folderHere()
	if err != nil {
		return v, err
	}
	a.noStart = true // the files say something, too
	tools, err := a.serversOf(ctx, dir)
	var gone *client.NoDaemonError
	switch {
	case errors.As(err, &gone):
		v.notes = append(v.notes, "no daemon runs: this is what the files say")
	case err != nil:
		return v, err
	}
	for _, info := range tools.Servers {
		if info.Workdir == "" || info.Workdir == dir {
			v.servers = append(v.servers, serverRow{ServerInfo: info})
		}
	}
	v.addFile(mcpfile.Read(serversFile()))("", protocol.ServerInfo{State: "configured"})
	text, err := mcpfile.ReadProject(dir)
	switch {
	case err != nil:
		v.problem(err)
	case text != nil:
		v.addFile(mcpfile.Parse(mcpfile.Project(dir), text))(dir, projectState(dir, text))
	}
	for i, s := range v.servers {
		for _, t := range tools.Tools {
			if name, ok := strings.CutPrefix(t.Name, s.Name+"."); ok && t.Protocol == "mcp" {
				v.servers[i].Named = append(v.servers[i].Named, name)
			}
		}
	}
	slices.SortStableFunc(v.servers, func(x, y serverRow) int { return strings.Compare(x.Name, y.Name) })
	return v, nil
}

// folderHere is the current folder as the daemon names it.
func folderHere() (string, error) {
	dir, err := currentFolder()
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}

func projectState(dir string, text []byte) protocol.ServerInfo {
	info := protocol.ServerInfo{
		State: "untrusted", Message: "nous mcp trust shows what it runs and asks you",
		Workdir: dir,
	}
	if ok, _ := mcpfile.Trusted(configDir(), dir, mcpfile.Hash(text)); ok {
		info.State, info.Message = "configured", ""
	}
	return info
}

// serversOf asks the daemon, in a session of this folder where there is one. It makes
// no session.
func (a *app) serversOf(ctx context.Context, dir string) (protocol.Tools, error) {
	scope, err := a.scope(ctx, needIfAny)
	if err != nil {
		return protocol.Tools{}, err
	}
	if scope.SessionID == "" {
		one := 1
		r, err := ask(ctx, a, protocol.ListSessions, protocol.ListSessionsParams{Limit: &one})
		if err != nil || len(r.Sessions) == 0 {
			return protocol.Tools{}, err
		}
		scope.SessionID = r.Sessions[0].SessionID
	}
	return ask(ctx, a, protocol.ListTools, protocol.ListToolsParams{Scope: scope})
}

// addFile adds what a file says: to a server that the daemon knows its place, and of
// others the entry with the state that it has then.
func (v *view) addFile(f *mcpfile.File, err error) func(workdir string, otherwise protocol.ServerInfo) {
	return func(workdir string, otherwise protocol.ServerInfo) {
		if err != nil {
			v.problem(err)
			return
		}
		for _, s := range f.Servers {
			if s.Disabled {
				otherwise := otherwise
				otherwise.State, otherwise.Message = stateDisabled, ""
				v.add(s, workdir, otherwise)
				continue
			}
			v.add(s, workdir, otherwise)
		}
		for _, err := range f.Errors {
			v.problem(err)
			v.add(mcpfile.Server{Name: err.Server, Place: err.Place}, workdir,
				protocol.ServerInfo{State: "failed", Message: err.Reason, Workdir: workdir})
		}
	}
}

func (v *view) add(s mcpfile.Server, workdir string, otherwise protocol.ServerInfo) {
	i := slices.IndexFunc(v.servers, func(l serverRow) bool {
		return l.Name == s.Name && (l.Workdir == workdir || l.Workdir == "")
	})
	if i < 0 {
		otherwise.Name = s.Name
		i, v.servers = len(v.servers), append(v.servers, serverRow{ServerInfo: otherwise})
	}
	l := &v.servers[i]
	if l.Workdir != workdir || l.File != "" {
		return // the user's own is the one that is used
	}
	l.File, l.Line, l.entry = s.Place.File, s.Place.Line, s
	if s.Command != "" || s.URL != "" {
		l.Runs = whatRuns(s)
	}
	for _, field := range s.Ignored {
		v.notes = append(v.notes, fmt.Sprintf("%s: %s does nothing here", s.Place, plain.OneLine(field, 40)))
	}
}

func (v *view) problem(err error) { v.problems = append(v.problems, err.Error()) }

func (a *app) mcpGetCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "get NAME",
		Short: "Show one MCP server: its entry, its state, its tools",
		Long: `Show one MCP server: its entry, its state, the names of its tools, and its prompts
as they are written in a text. Of variables and headers only the names are shown: the
values may be secrets.`,
		Example:           "  nous mcp get git",
		Args:              cmdline.Wants(1, 1, "NAME, the name of a server"),
		ValidArgsFunction: a.serverNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := a.viewServers(cmd.Context())
			if err != nil {
				return err
			}
			i := slices.IndexFunc(v.servers, func(s serverRow) bool { return s.Name == args[0] })
			if i < 0 {
				return fmt.Errorf("there is no server %s here; nous mcp list shows all", args[0])
			}
			if a.json {
				a.printServer(v.servers[i])
				return nil
			}
			a.showServer(v.servers[i])
			return nil
		},
	}
}

func (a *app) showServer(s serverRow) {
	pairs := [][2]string{
		{"server", s.Name},
		{"state", strings.TrimSuffix(s.State+": "+plain.OneLine(s.Message, aboutServer), ": ")},
	}
	for _, p := range [][2]string{
		{"runs", plain.OneLine(s.Runs, aboutServer)},
		{"file", strings.TrimSuffix(fmt.Sprintf("%s:%d", s.File, s.Line), ":0")},
		{"folder", s.Workdir},
		{"starts in", s.entry.Cwd},
		{"variables", keysOf(s.entry.Env)},
		{"headers", keysOf(s.entry.Headers)},
		{"timeout", s.entry.Timeout},
		{"trust", s.entry.Trust},
		{"only", strings.Join(s.entry.Tools, ", ")},
		{"sandbox", s.entry.Sandbox},
		{"tools", strings.Join(s.Named, ", ")},
		{"left out", plain.OneLine(strings.Join(s.LeftOut, "; "), 4*aboutServer)},
		{"prompts", promptsOf(s)},
	} {
		if p[1] != "" {
			pairs = append(pairs, p)
		}
	}
	a.printPairs(pairs)
}

// promptsOf are a server's prompts, as they are written in a text.
func promptsOf(s serverRow) string {
	names := make([]string, len(s.Prompts))
	for i, p := range s.Prompts {
		names[i] = "/" + s.Name + "." + p.Name
	}
	return strings.Join(names, ", ")
}
