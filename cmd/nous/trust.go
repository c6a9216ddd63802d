package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"noused/internal/client/servers"
	"noused/internal/cmdline"
	"noused/internal/hookfile"
	"noused/internal/mcpfile"
	"noused/internal/plaintext"
)

func (a *app) trustCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "trust",
		Short: "Show what this folder's .noused/config.toml runs, and let it",
		Long: `Show which commands this folder's .noused/config.toml runs, as hooks and to set up a new
worktree, and ask whether it may. They run in the sandbox that the built-in tools have, no
matter who wrote the file.

The answer holds for this folder and for the file as it is: when the file changes, nothing in
it runs, and what its hooks guarded is denied, until you trust it again. It asks on a terminal
only, and no flag answers for you. Where the file is gone, it is forgotten.

The folder's MCP servers are trusted by nous mcp trust.`,
		Example: "  nous trust",
		Args:    cmdline.Wants(0, 0, ""),
		RunE:    func(*cobra.Command, []string) error { return a.trustHooks() },
	}
}

func (a *app) trustHooks() error {
	dir, err := folderHere()
	if err != nil {
		return err
	}
	text, err := hookfile.ProjectText(dir)
	if err != nil {
		return err
	}
	now, before, err := hookfile.Trusted(configDir(), dir, text)
	if err != nil {
		return err
	}
	var list []hookfile.Hook
	var setup []string
	if text != nil {
		if list, err = hookfile.ReadProject(dir, text); err == nil {
			setup, err = hookfile.ReadSetup(dir, text)
		}
		if err != nil {
			return err
		}
	}
	path := filepath.Join(dir, hookfile.FileName)
	question := "Trust this file, as it is? [y/N] "
	switch {
	case text == nil && !before:
		return fmt.Errorf("this folder has no %s", hookfile.FileName)
	case text == nil:
		fmt.Fprintf(a.Err, "%s, which you trusted, is gone. What its hooks guarded is denied.\n\n",
			plaintext.RevealLine(path))
		question = "Forget that you trusted it? [y/N] "
	default:
		fmt.Fprint(a.Err, servers.HooksText(path, list, setup))
	}
	switch {
	case text != nil && len(list)+len(setup) == 0 && !before:
		return errors.New("there is nothing to trust")
	case now:
		a.Println("trusted already")
		return nil
	case !a.personThere():
		return errors.New("nobody can be asked here: run nous trust on a terminal")
	}
	if !a.saysYes(question) {
		a.Println("not trusted")
		return &quietExit{exitFailed}
	}
	if err := hookfile.Trust(configDir(), dir, text, time.Now()); err != nil {
		return err
	}
	a.Println(map[bool]string{true: "trusted", false: "forgotten"}[text != nil])
	return nil
}

func (a *app) mcpTrustCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "trust",
		Short: "Show what this folder's .mcp.json runs, and let it",
		Long: `Show what the servers of this folder's .mcp.json run, and ask whether they may.
They run as you and in no sandbox, no matter who wrote the file.

The answer holds for this folder and for the file as it is: when the file changes,
its servers are untrusted again, those that run too. It asks on a terminal only, and
no flag answers for you.`,
		Args: cmdline.Wants(0, 0, ""),
		RunE: func(*cobra.Command, []string) error { return a.trustProject() },
	}
}

func (a *app) trustProject() error {
	dir, err := folderHere()
	if err != nil {
		return err
	}
	path := mcpfile.Project(dir)
	text, err := mcpfile.ReadProject(dir)
	switch {
	case err != nil:
		return err
	case text == nil:
		return fmt.Errorf("this folder has no %s", mcpfile.ProjectName)
	}
	f, err := mcpfile.Parse(path, text)
	if err != nil {
		return err
	}
	own, err := mcpfile.Read(serversFile())
	if err != nil {
		own = &mcpfile.File{}
	}
	known, err := mcpfile.Trusted(configDir(), dir, mcpfile.Hash(text))
	if err != nil {
		return err
	}
	fmt.Fprint(a.Err, servers.ProjectText(f, own))
	switch {
	case len(f.Servers) == 0:
		return errors.New("there is nothing to trust")
	case known:
		a.Println("trusted already")
		return nil
	case !a.personThere():
		return errors.New("nobody can be asked here: run nous mcp trust on a terminal")
	}
	if !a.saysYes("Trust this file, as it is? [y/N] ") {
		a.Println("not trusted")
		return &quietExit{exitFailed}
	}
	if err := mcpfile.Trust(configDir(), dir, mcpfile.Hash(text), time.Now()); err != nil {
		return err
	}
	a.Println("trusted")
	return nil
}

// saysYes asks a person, who has to type it.
func (a *app) saysYes(question string) bool {
	fmt.Fprint(a.Err, question)
	line, _ := bufio.NewReader(io.LimitReader(a.in, 1<<10)).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true
	}
	return false
}

// mcpLoginCommand and mcpLogoutCommand are done by the daemon's own program, which
// keeps what is granted.
func (a *app) mcpLoginCommand() *cobra.Command {
	return a.handedOn("login NAME", "Log in at an MCP server in a browser: noused mcp login", "mcp", "login")
}

func (a *app) mcpLogoutCommand() *cobra.Command {
	return a.handedOn("logout NAME", "Take a login at an MCP server back: noused mcp logout", "mcp", "logout")
}
