package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"noused/internal/client/approval"
	"noused/internal/cmdline"
	"noused/internal/format"
	"noused/internal/mcpfile"
	"noused/internal/plaintext"
)

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
	fmt.Fprint(a.err, projectText(f, own))
	switch {
	case len(f.Servers) == 0:
		return errors.New("there is nothing to trust")
	case known:
		a.println("trusted already")
		return nil
	case !a.personThere():
		return errors.New("nobody can be asked here: run nous mcp trust on a terminal")
	}
	if !a.saysYes("Trust this file, as it is? [y/N] ") {
		a.println("not trusted")
		return &quietExit{exitFailed}
	}
	if err := mcpfile.Trust(configDir(), dir, mcpfile.Hash(text), time.Now()); err != nil {
		return err
	}
	a.println("trusted")
	return nil
}

// saysYes asks a person, who has to type it.
func (a *app) saysYes(question string) bool {
	fmt.Fprint(a.err, question)
	line, _ := bufio.NewReader(io.LimitReader(a.in, 1<<10)).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true
	}
	return false
}

// projectText shows all that a project's file says, so that it can be judged: nothing
// in it is hidden, and none of it is a line of its own.
func projectText(f *mcpfile.File, own *mcpfile.File) string {
	var out strings.Builder
	hidden := false
	tell := func(format string, args ...any) {
		text := plaintext.RevealLine(fmt.Sprintf(format, args...))
		hidden = hidden || approval.Hides(text)
		out.WriteString(text + "\n")
	}
	tell("%s names %s. They would run as you, no matter who wrote the file.", f.Path,
		format.Count(len(f.Servers), "server"))
	for _, s := range f.Servers {
		out.WriteString("\n")
		tell("%s", s.Name)
		if _, taken := own.Server(s.Name); taken {
			tell("  is not used: you have a server of that name")
		}
		if s.Disabled {
			tell("  is disabled")
		}
		tellServer(s, tell)
	}
	for _, err := range f.Errors {
		out.WriteString("\n")
		tell("%s", err.Server)
		tell("  is left out: %s", err.Reason)
	}
	out.WriteString("\n")
	if hidden {
		out.WriteString(hiddenInFile + "\n\n")
	}
	return out.String()
}

const hiddenInFile = "The file has characters that a terminal does not show as themselves. They are written as ⟨U+…⟩."

func tellServer(s mcpfile.Server, tell func(string, ...any)) {
	if s.URL != "" {
		tell("  connects to  %s", s.URL)
	} else {
		tell("  runs         %s", whatRuns(s))
		if s.Cwd != "" && s.Cwd != mcpfile.CwdSession {
			tell("  in           %s", s.Cwd)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		note := ""
		if decides(name) {
			note = "   (decides which code runs)"
		}
		tell("  sets         %s=%s%s", name, s.Env[name], note)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Headers)) {
		tell("  sends        %s: %s", name, s.Headers[name])
	}
	if s.Sandbox == "workdir" {
		tell("  runs in the sandbox, where it may write to this folder%s", and(s.SandboxWrite))
	}
	if s.Trust == "all" {
		tell("  wants its tools to be called without an approval, which only your own file can say")
	}
}

func and(paths []string) string {
	if len(paths) == 0 {
		return ""
	}
	return " and " + strings.Join(paths, ", ")
}

// decides reports a variable that it has a program run code that its command line does
// not name.
func decides(name string) bool {
	if strings.HasPrefix(name, "LD_") || strings.HasPrefix(name, "GIT_") {
		return true
	}
	return slices.Contains([]string{
		"PATH", "BASH_ENV", "ENV", "SHELL", "IFS", "HOME", "XDG_CONFIG_HOME", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME",
		"NODE_OPTIONS", "NODE_PATH", "PERL5LIB", "PERL5OPT", "RUBYOPT", "RUBYLIB", "JAVA_TOOL_OPTIONS", "GCONV_PATH",
		"npm_config_registry",
		"UV_INDEX_URL", "UV_DEFAULT_INDEX", "PIP_INDEX_URL", "NPM_CONFIG_REGISTRY",
	}, name)
}

// mcpLoginCommand and mcpLogoutCommand are done by the daemon's own program, which
// keeps what is granted.
func (a *app) mcpLoginCommand() *cobra.Command {
	return a.handedOn("login NAME", "Log in at an MCP server in a browser: noused mcp login", "mcp", "login")
}

func (a *app) mcpLogoutCommand() *cobra.Command {
	return a.handedOn("logout NAME", "Take a login at an MCP server back: noused mcp logout", "mcp", "logout")
}
