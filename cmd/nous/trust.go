package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"noused/internal/client/servers"
	"noused/internal/cmdline"
	"noused/internal/hookfile"
	"noused/internal/plaintext"
)

func (a *app) trustCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "trust",
		Short: "Show what this folder's hooks run, and let them",
		Long: `Show which commands the hooks of this folder's .noused/config.toml run, and ask whether
they may. They run in the sandbox that the built-in tools have, no matter who wrote the file.

The answer holds for this folder and for the file as it is: when the file changes, its hooks
do not run, and what they guarded is denied, until you trust it again. It asks on a terminal
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
	if text != nil {
		if list, err = hookfile.ReadProject(dir, text); err != nil {
			return err
		}
	}
	path := filepath.Join(dir, hookfile.FileName)
	question := "Trust this file, as it is? [y/N] "
	switch {
	case text == nil && !before:
		return fmt.Errorf("this folder has no %s", hookfile.FileName)
	case text == nil:
		fmt.Fprintf(a.err, "%s, which you trusted, is gone. What its hooks guarded is denied.\n\n",
			plaintext.RevealLine(path))
		question = "Forget that you trusted it? [y/N] "
	default:
		fmt.Fprint(a.err, servers.HooksText(path, list))
	}
	switch {
	case text != nil && len(list) == 0 && !before:
		return errors.New("there is nothing to trust")
	case now:
		a.println("trusted already")
		return nil
	case !a.personThere():
		return errors.New("nobody can be asked here: run nous trust on a terminal")
	}
	if !a.saysYes(question) {
		a.println("not trusted")
		return &quietExit{exitFailed}
	}
	if err := hookfile.Trust(configDir(), dir, text, time.Now()); err != nil {
		return err
	}
	a.println(map[bool]string{true: "trusted", false: "forgotten"}[text != nil])
	return nil
}
