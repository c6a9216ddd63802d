package main

import (
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"noused/internal/client/plain"
	"noused/internal/plaintext"
	"noused/internal/protocol"
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
	reply, err := ask(cmd.Context(), a, protocol.ListSessions, protocol.ListSessionsParams{})
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
	reply, err := ask(cmd.Context(), a, protocol.ListTools, protocol.ListToolsParams{Scope: scope})
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
	reply, err := ask(cmd.Context(), a, protocol.ListModels, protocol.ListModelsParams{})
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
