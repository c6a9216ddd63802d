package servers

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"noused/internal/client/approval"
	"noused/internal/format"
	"noused/internal/hookfile"
	"noused/internal/mcpfile"
	"noused/internal/plaintext"
)

// ProjectText shows all that a project's file says, so that it can be judged: nothing
// in it is hidden, and none of it is a line of its own.
func ProjectText(f *mcpfile.File, own *mcpfile.File) string {
	var out strings.Builder
	hidden := false
	line := func(format string, args ...any) {
		text := plaintext.RevealLine(fmt.Sprintf(format, args...))
		hidden = hidden || approval.Hides(text)
		out.WriteString(text + "\n")
	}
	line("%s names %s. They would run as you, no matter who wrote the file.", f.Path,
		format.Count(len(f.Servers), "server"))
	for _, s := range f.Servers {
		out.WriteString("\n")
		line("%s", s.Name)
		if _, taken := own.Server(s.Name); taken {
			line("  is not used: you have a server of that name")
		}
		if s.Disabled {
			line("  is disabled")
		}
		describeServer(s, line)
	}
	for _, err := range f.Errors {
		out.WriteString("\n")
		line("%s", err.Server)
		line("  is left out: %s", err.Reason)
	}
	out.WriteString("\n")
	if hidden {
		out.WriteString(hiddenInFile + "\n\n")
	}
	return out.String()
}

const hiddenInFile = "The file has characters that a terminal does not show as themselves. They are written as ⟨U+…⟩."

func describeServer(s mcpfile.Server, line func(string, ...any)) {
	if s.URL != "" {
		line("  connects to  %s", s.URL)
	} else {
		line("  runs         %s", Runs(s))
		if s.Cwd != "" && s.Cwd != mcpfile.CwdSession {
			line("  in           %s", s.Cwd)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		note := ""
		if decides(name) {
			note = "   (decides which code runs)"
		}
		line("  sets         %s=%s%s", name, s.Env[name], note)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Headers)) {
		line("  sends        %s: %s", name, s.Headers[name])
	}
	if s.Sandbox == "workdir" {
		line("  runs in the sandbox, where it may write to this folder%s", and(s.SandboxWrite))
	}
	if s.Trust == "all" {
		line("  wants its tools to be called without an approval, which only your own file can say")
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

// HooksText shows all that a project's file runs, its hooks and the setup of worktrees, so
// that it can be judged: nothing in it is hidden, and none of it is a line of its own.
func HooksText(path string, list []hookfile.Hook, setup []string) string {
	var out strings.Builder
	hidden := false
	line := func(format string, args ...any) {
		text := plaintext.RevealLine(fmt.Sprintf(format, args...))
		hidden = hidden || approval.Hides(text)
		out.WriteString(text + "\n")
	}
	what := format.Count(len(list), "hook")
	switch {
	case len(setup) > 0 && len(list) > 0:
		what += " and a setup of worktrees"
	case len(setup) > 0:
		what = "a setup of worktrees"
	}
	line("%s has %s. All of it would run in the sandbox, no matter who wrote the file.", path, what)
	for _, k := range list {
		out.WriteString("\n")
		of := ""
		if len(k.Tools) > 0 {
			of = " of " + strings.Join(k.Tools, ", ")
		}
		line("%s%s", k.On, of)
		words := make([]string, len(k.Command))
		for i, word := range k.Command {
			words[i] = ShellWord(word)
		}
		line("  runs         %s", strings.Join(words, " "))
		line("  for at most  %v", k.Timeout)
	}
	if len(setup) > 0 {
		out.WriteString("\n")
		line("setup of a new worktree, once, there")
	}
	for _, text := range setup {
		line("  runs         sh -c %s", ShellWord(text))
	}
	out.WriteString("\n")
	if hidden {
		out.WriteString(hiddenInFile + "\n\n")
	}
	return out.String()
}
