package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

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
	a.noStart = true
	var words []string
	reply, err := ask(cmd.Context(), a, protocol.ListSessions, protocol.ListSessionsParams{})
	for _, s := range reply.Sessions {
		words = append(words, s.SessionID+"\t"+oneLine(s.Title, 40))
	}
	return completions(words, err)
}

func (a *app) toolNames(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	a.noStart = true
	if cmd.Name() == "ext" && len(args) > 0 {
		return completions(nil, nil)
	}
	scope, _ := a.scope(cmd.Context(), needIfAny)
	var words []string
	reply, err := ask(cmd.Context(), a, protocol.ListTools, protocol.ListToolsParams{Scope: scope})
	for _, t := range reply.Tools {
		words = append(words, t.Name+"\t"+oneLine(t.Description, 40))
	}
	return completions(words, err)
}

// modelNames offers the models that begin with what is typed, of those that the
// daemon knows without asking anybody, and of a provider whose models it does not
// know its name.
func (a *app) modelNames(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	a.noStart = true
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

func completions(words []string, err error) ([]string, cobra.ShellCompDirective) {
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	for i, word := range words {
		words[i] = strings.ReplaceAll(plaintext.Clean(word), "\n", " ")
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}
