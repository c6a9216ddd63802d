package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"noused/internal/client"
	"noused/internal/client/plain"
	"noused/internal/client/servers"
	"noused/internal/cmdline"
	"noused/internal/mcpfile"
	"noused/internal/protocol"
	"noused/internal/setup"
)

func (a *app) mcpCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "List, add and trust MCP servers",
		Long: `MCP servers are tools: the tools of a server NAME are called NAME.TOOL. Yours are
in mcp.json in the configuration folder, and every session sees them. Those of
a folder's .mcp.json are seen by the sessions of that folder, once you trust them.

Without a command it lists them, as nous mcp list does.`,
		Example: "  nous mcp add git -- uvx mcp-server-git\n  nous mcp import ~/.claude.json",
		Args:    cmdline.Wants(0, 0, ""),
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.listServers(cmd.Context()) },
	}
	cmd.AddCommand(a.mcpListCommand(), a.mcpGetCommand(), a.mcpAddCommand(), a.mcpRemoveCommand(), a.mcpTrustCommand(),
		a.mcpImportCommand(),
		a.mcpLoginCommand(), a.mcpLogoutCommand(), a.mcpServeCommand())
	return cmd
}

// serversFile is the user's own mcp.json, in the daemon's configuration folder.
func serversFile() string { return filepath.Join(configDir(), mcpfile.Name) }

func configDir() string { return setup.ConfigDir(os.Getenv) }

func (a *app) mcpAddCommand() *cobra.Command {
	var url string
	var headers, env []string
	cmd := &cobra.Command{
		Use:   "add NAME (-- COMMAND… | --url URL)",
		Short: "Add a server to your mcp.json",
		Long: `Add a server to your mcp.json: a program behind --, or with --url one that
speaks streamable HTTP. What else is in the file stays as it is. A daemon that runs
reads the file again.

${VAR} in any value is replaced by the variable of the daemon's environment when the
server is started: so no key has to be in the file.`,
		Example: `  nous mcp add git -- uvx mcp-server-git
  nous mcp add docs --url https://example.org/mcp --header 'Authorization=Bearer ${DOCS_TOKEN}'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := serverOf(cmd, args, url)
			if err != nil {
				return err
			}
			if s.Env, err = pairsOf("env", env); err != nil {
				return err
			}
			if s.Headers, err = pairsOf("header", headers); err != nil {
				return err
			}
			return a.addServer(cmd.Context(), s)
		},
	}
	cmd.Flags().StringVar(&url, "url", "", "the `URL` of a server that runs elsewhere")
	cmd.Flags().StringArrayVar(&headers, "header", nil,
		"a `NAME=VALUE` that goes with each request to it; repeat it for more")
	cmd.Flags().StringArrayVar(&env, "env", nil,
		"a variable `NAME=VALUE` of the program's environment; repeat it for more")
	return cmd
}

// serverOf reads the arguments of add.
func serverOf(cmd *cobra.Command, args []string, url string) (s mcpfile.Server, err error) {
	dash := cmd.ArgsLenAtDash()
	switch {
	case len(args) == 0 || dash == 0:
		return s, cmdline.Errorf("add wants NAME, and then -- and a command, or --url")
	case url != "" && len(args) > 1:
		return s, cmdline.Errorf("%s: want a command or --url, not both", args[1])
	case url == "" && len(args) == 1:
		return s, cmdline.Errorf("add %s wants a command behind --, or --url", args[0])
	case url == "" && dash != 1:
		return s, cmdline.Errorf("%s: a command comes behind --, as in nous mcp add %s -- %s", args[1], args[0], args[1])
	}
	s.Name, s.URL = args[0], url
	if url != "" {
		s.Type = "http"
		return s, nil
	}
	s.Args = args[2:]
	s.Command, err = commandOf(args[1])
	return s, err
}

// commandOf is a command as mcp.json has it: a path is meant from this folder, as in
// any shell, and one in the file from where that is.
func commandOf(word string) (string, error) {
	if !strings.Contains(word, "/") || strings.HasPrefix(word, "$") || strings.HasPrefix(word, "{") {
		return word, nil
	}
	dir, err := currentFolder()
	if err != nil || filepath.IsAbs(word) {
		return word, err
	}
	return filepath.Join(dir, word), nil
}

func pairsOf(flag string, values []string) (map[string]string, error) {
	if len(values) == 0 {
		return nil, nil
	}
	pairs := map[string]string{}
	for _, v := range values {
		key, value, ok := strings.Cut(v, "=")
		if !ok || key == "" {
			return nil, cmdline.Errorf("--%s %s: want NAME=VALUE", flag, v)
		}
		pairs[key] = value
	}
	return pairs, nil
}

func (a *app) addServer(ctx context.Context, s mcpfile.Server) error {
	err := mcpfile.Add(serversFile(), s)
	switch {
	case errors.Is(err, mcpfile.ErrTaken):
		return fmt.Errorf("%w: nous mcp remove %s takes it out", err, s.Name)
	case err != nil:
		return err
	}
	return a.changedServer(ctx, "added", s.Name)
}

// changedServer reports a change, and has the daemon read the file.
func (a *app) changedServer(ctx context.Context, what, name string) error {
	if a.JSON {
		line, err := json.Marshal(map[string]string{what: name, "file": serversFile()}, json.Deterministic(true))
		if err != nil {
			return err
		}
		a.JSONLine(line)
	} else {
		a.Println(what + " " + name)
	}
	return a.reloadServers(ctx, name)
}

// reloadServers has a daemon that runs read mcp.json again, and tells what it finds
// wrong. It fails where that is about one of those servers.
func (a *app) reloadServers(ctx context.Context, changed ...string) error {
	a.noStart = true // it is not needed for this
	r, err := request(ctx, a, protocol.ReloadTools, protocol.ReloadToolsParams{})
	var gone *client.NoDaemonError
	switch {
	case errors.As(err, &gone):
		a.Notef("no daemon runs; it reads %s when it starts", serversFile())
		return nil
	case err != nil:
		return err
	}
	for _, problem := range r.Errors {
		a.Complain(problem)
		for _, name := range changed {
			if strings.Contains(problem, "/"+name+"/") || strings.Contains(problem, "/"+name+":") ||
				strings.Contains(problem, " "+name+" ") {
				err = &quietExit{exitFailed}
			}
		}
	}
	return err
}

func (a *app) mcpRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "remove NAME",
		Aliases:           []string{"rm"},
		Short:             "Take a server out of your mcp.json",
		Example:           "  nous mcp remove git",
		Args:              cmdline.Wants(1, 1, "NAME, the name of a server"),
		ValidArgsFunction: a.serverNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			err := mcpfile.Remove(serversFile(), args[0])
			if errors.Is(err, mcpfile.ErrUnknown) {
				return unknownServer(args[0])
			}
			if err != nil {
				return err
			}
			return a.changedServer(cmd.Context(), "removed", args[0])
		},
	}
}

// unknownServer says why a server is not taken out, and where a project's is.
func unknownServer(name string) error {
	why := fmt.Errorf("%s has no server %s; nous mcp list shows all", serversFile(), name)
	dir, err := folderHere()
	if err != nil {
		return why
	}
	text, err := mcpfile.ReadProject(dir)
	if err != nil || text == nil {
		return why
	}
	f, err := mcpfile.Parse(mcpfile.Project(dir), text)
	if err != nil {
		return why
	}
	if s, ok := f.Server(name); ok {
		return fmt.Errorf("%s is a server of the project: take it out of %s:%d", name, s.Place.File, s.Place.Line)
	}
	return why
}

func (a *app) mcpImportCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "import FILE",
		Short: "Take the servers of another program's file",
		Long: `Add the servers that another program's file names to your mcp.json: of Claude
(.claude.json, claude_desktop_config.json, .mcp.json), Cursor (mcp.json), VS Code
(mcp.json, settings.json), opencode (opencode.json) or Codex (config.toml). The
file itself stays as it is. Of the projects in .claude.json the one that the current
folder is in is taken, too, and its servers in place of others with their names.

A line says of each server whether it was taken, and of each part what is different
here. A server whose name you have already is not taken.`,
		Example: "  nous mcp import ~/.codex/config.toml",
		Args:    cmdline.Wants(1, 1, "FILE, that of another program"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.importServers(cmd.Context(), args[0])
		},
	}
}

func (a *app) importServers(ctx context.Context, file string) error {
	dir, err := folderHere()
	if err != nil {
		return err
	}
	all, elsewhere, err := mcpfile.Import(file, dir)
	if err != nil {
		return err
	}
	if len(elsewhere) > 0 {
		a.Notef("%s has servers of other projects; nous mcp import there takes them: %s", file,
			plain.OneLine(strings.Join(elsewhere, ", "), plain.AboutServer))
	}
	var taken []string
	for _, one := range all {
		if one.Err == nil {
			one.Err = mcpfile.Add(serversFile(), one.Server)
		}
		if one.Err == nil {
			taken = append(taken, one.Server.Name)
		}
		servers.PrintTaken(a.Printer, one)
	}
	if len(all) == 0 {
		return fmt.Errorf("%s names no MCP server", file)
	}
	if taken == nil {
		return &quietExit{exitFailed}
	}
	return a.reloadServers(ctx, taken...)
}

// serverNames offers those of the user's file.
func (a *app) serverNames(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return completions(nil, nil)
	}
	f, err := mcpfile.Read(serversFile())
	if err != nil {
		return completions(nil, err)
	}
	var words []string
	for _, s := range f.Servers {
		words = append(words, s.Name+"\t"+plain.OneLine(servers.Runs(s), 40))
	}
	return completions(words, nil)
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
	v.Print(a.Printer)
	if len(v.Problems) > 0 {
		return &quietExit{exitFailed}
	}
	return nil
}

// viewServers puts together what the files say and what the daemon knows.
func (a *app) viewServers(ctx context.Context) (v servers.View, err error) {
	dir, err := folderHere()
	if err != nil {
		return v, err
	}
	a.noStart = true // the files say something, too
	tools, err := a.serversOf(ctx, dir)
	var gone *client.NoDaemonError
	if err != nil && !errors.As(err, &gone) {
		return v, err
	}
	v = servers.Find(configDir(), dir, tools)
	if gone != nil {
		v.Notes = append([]string{"no daemon runs: this is what the files say"}, v.Notes...)
	}
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

// serversOf asks the daemon, in a session of this folder where there is one. It makes
// no session.
func (a *app) serversOf(ctx context.Context, dir string) (protocol.Tools, error) {
	scope, err := a.scope(ctx, needIfAny)
	if err != nil {
		return protocol.Tools{}, err
	}
	if scope.SessionID == "" {
		one := 1
		r, err := request(ctx, a, protocol.ListSessions, protocol.ListSessionsParams{Limit: &one})
		if err != nil || len(r.Sessions) == 0 {
			return protocol.Tools{}, err
		}
		scope.SessionID = r.Sessions[0].SessionID
	}
	return request(ctx, a, protocol.ListTools, protocol.ListToolsParams{Scope: scope})
}

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
			i := slices.IndexFunc(v.Servers, func(s servers.Row) bool { return s.Name == args[0] })
			if i < 0 {
				return fmt.Errorf("there is no server %s here; nous mcp list shows all", args[0])
			}
			return v.Servers[i].Print(a.Printer)
		},
	}
}
