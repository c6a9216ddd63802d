package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"noused/internal/client"
	"noused/internal/client/servers"
	"noused/internal/cmdline"
	"noused/internal/protocol"
)

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
