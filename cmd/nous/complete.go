package main

import (
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"noused/internal/buildinfo"
	"noused/internal/client/plain"
	"noused/internal/manpage"
	"noused/internal/plaintext"
	"noused/internal/protocol"
	"noused/internal/tui/settings"
)

type completer = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// completeWords offers a flag's words to the shell.
func completeWords(cmd *cobra.Command, flag string, words ...string) {
	must(cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)))
}

func (a *app) completeSessions(root *cobra.Command) {
	must(root.RegisterFlagCompletionFunc("session", completer(a.sessionIDs)))
}

// must is for registering what the line before it has defined.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func (a *app) sessionIDs(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var words []string
	reply, err := request(cmd.Context(), a, protocol.ListSessions, protocol.ListSessionsParams{})
	for _, s := range reply.Sessions {
		words = append(words, s.SessionID+"\t"+plain.OneLine(s.Title, 40))
	}
	return completions(words, err)
}

func (a *app) toolNames(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if cmd.Name() == "ext" && len(args) > 0 {
		return completions(nil, nil)
	}
	scope, _ := a.scope(cmd.Context(), needIfAny)
	var words []string
	reply, err := request(cmd.Context(), a, protocol.ListTools, protocol.ListToolsParams{Scope: scope})
	for _, t := range reply.Tools {
		words = append(words, t.Name+"\t"+plain.OneLine(t.Description, 40))
	}
	return completions(words, err)
}

// modelNames offers the models that begin with what is typed, of those that the
// daemon knows without asking anybody, and of a provider whose models it does not
// know its name.
func (a *app) modelNames(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return completions(nil, nil)
	}
	words := []string{"default"}
	reply, err := request(cmd.Context(), a, protocol.ListModels, protocol.ListModelsParams{})
	for _, m := range reply.Models {
		if m.Name == "" {
			m.Model += "/"
		}
		words = append(words, m.Model)
	}
	words = slices.DeleteFunc(words, func(word string) bool { return !strings.HasPrefix(word, typed) })
	slices.Sort(words)
	return completions(slices.Compact(words), err)
}

// completions are words with what they mean behind a tab. Where the daemon cannot be
// asked there are none: a shell would offer files in their place.
func completions(words []string, err error) ([]string, cobra.ShellCompDirective) {
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	words = slices.DeleteFunc(words, func(word string) bool {
		name, _, _ := strings.Cut(word, "\t")
		return !isPlainWord(name)
	})
	for i, word := range words {
		words[i] = strings.ReplaceAll(plaintext.Clean(word), "\n", " ")
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}

// isPlainWord reports whether a shell takes a word for nothing else. Others have to be
// typed: bash inserts what two of them begin with unquoted, and runs the line's
// commands when it completes the next word.
func isPlainWord(word string) bool {
	return word != "" && !strings.ContainsFunc(word, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-._/:@+,=%", r)
	})
}

// manPagesCommand is the hidden command that writes the manual: the pages of the
// commands, and that of nous's configuration.
func manPagesCommand(root *cobra.Command) *cobra.Command {
	cmd := manpage.Command(manpage.Build{
		Program: "nous", Date: buildinfo.Date(), Version: buildinfo.Version(),
		SeeAlso: []string{"noused(1)", "nous.toml(5)", "noused.toml(5)", "noused-tools(7)", "noused-protocol(7)"},
	}, func(b manpage.Build) map[string]*manpage.Page {
		return map[string]*manpage.Page{"nous.toml.5": configPage(b)}
	})
	cmd.PreRun = func(*cobra.Command, []string) { // not the one of the caller
		root.PersistentFlags().Lookup("socket").DefValue = "$XDG_RUNTIME_DIR/noused/noused.sock"
	}
	return cmd
}

// configPage is nous.toml(5): every key that nous reads.
func configPage(b manpage.Build) *manpage.Page {
	p := manpage.New(manpage.Title{
		Name: "nous.toml", Section: 5, Summary: "configuration of the client of the agent daemon", Date: b.Date,
		Source: "noused " + b.Version,
	})
	p.Section("SYNOPSIS")
	p.Line(manpage.Italic("~/.config/nous/config.toml"))
	p.Section("DESCRIPTION")
	p.Text(
		`nous reads config.toml when it starts, in $XDG_CONFIG_HOME/nous or ~/.config/nous. It is TOML, of at most 64 KiB, in a file of your
own that is no link. No key is required. If anything in it is wrong, nous names the file, the line and the key, and goes on as if
there were no such file.

A time is a text such as 500ms, 10s or 1m30s. A key named here as section.key stands in [section].`)
	p.Section("KEYS")
	for _, key := range settings.Keys() {
		p.Key(key.Name, key.Value, key.Text)
	}
	p.Section("ACTIONS")
	p.Text(
		`A key is named as in this list, with ctrl+, alt+, shift+ and super+ before it. These are the actions, the keys that they have by
themselves, and what they do.`)
	for _, a := range settings.Actions() {
		p.Key(a.Name, strings.Join(a.Keys, ", "), a.Text)
	}
	p.Section("EXAMPLES")
	p.Code(`theme = "light"

[notify]
after = "1m"

[keys]
unfold-all = "alt+u"
tree       = []`)
	p.SeeAlso("nous(1)", "noused.toml(5)")
	return p
}
