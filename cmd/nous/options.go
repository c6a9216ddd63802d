package main

import (
	"cmp"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"noused/internal/client/actions"
	"noused/internal/client/plain"
	"noused/internal/cmdline"
	"noused/internal/protocol"
)

func (a *app) optionsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "options [OPTION [VALUE]]",
		Short: "List or choose what the agent of a session lets you choose",
		Long: `List the options of the agent that makes a session's turns, list what one of them can
be, or choose that. OPTION and VALUE are an id or a name. The agent is started where it
does not run. With --json an option is one JSON object in a line.`,
		Example: `  nous options
  nous options mode plan`,
		Args: cmdline.Wants(0, 2, "OPTION, one that nous options lists, and then a value of it"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			scope, err := a.scope(ctx, needOne)
			if err != nil {
				return err
			}
			s, err := actions.AgentOptions(ctx, a.daemonSender(), scope)
			if err != nil || len(args) == 0 {
				return a.listOptions(s.AgentOptions, err)
			}
			o, err := actions.OptionNamed(s, args[0])
			if err != nil || len(args) == 1 {
				return a.listValues(o, err)
			}
			p := actions.OptionChoice(scope, o, args[1])
			return query(ctx, a, protocol.SetAgentOption, p, func(r protocol.AgentOptionAccepted) { a.Println(r.Value) })
		},
	}
	cmd.ValidArgsFunction = a.optionWords
	return cmd
}

func (a *app) listOptions(options []protocol.AgentOption, err error) error {
	if err != nil {
		return err
	}
	rows := make([][]string, len(options))
	for i, o := range options {
		if err := a.optionLine(o); err != nil {
			return err
		}
		rows[i] = []string{o.ID, o.Value, plain.OneLine(cmp.Or(o.Description, o.Name), plain.LineWidth)}
	}
	if !a.JSON {
		a.Table([]string{"OPTION", "VALUE", "ABOUT"}, rows)
	}
	return nil
}

// listValues lists what an option can be, the chosen value with a star.
func (a *app) listValues(o protocol.AgentOption, err error) error {
	if err == nil {
		err = a.optionLine(o)
	}
	if err != nil || a.JSON {
		return err
	}
	rows := make([][]string, len(o.Values))
	for i, v := range o.Values {
		star := ""
		if v.Value == o.Value {
			star = "*"
		}
		about := v.Name
		if v.Description != "" {
			about += ": " + v.Description
		}
		rows[i] = []string{star, v.Value, plain.OneLine(about, plain.LineWidth)}
	}
	a.Table([]string{"", "VALUE", "ABOUT"}, rows)
	if o.Truncated {
		a.Notef("%s takes more values than are listed", o.ID)
	}
	return nil
}

// optionLine prints an option where JSON is wanted.
func (a *app) optionLine(o protocol.AgentOption) error {
	if !a.JSON {
		return nil
	}
	line, err := json.Marshal(o, jsontext.AllowInvalidUTF8(true))
	if err == nil {
		a.JSONLine(line)
	}
	return err
}

// optionWords are the options that the agent has said, and the values of the one that is named.
func (a *app) optionWords(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	scope, _ := a.scope(cmd.Context(), needIfAny)
	s, err := request(cmd.Context(), a, protocol.GetState, protocol.GetStateParams{Scope: scope})
	var words []string
	switch len(args) {
	case 0:
		for _, o := range s.AgentOptions {
			words = append(words, o.ID+"\t"+plain.OneLine(o.Name, 40))
		}
	case 1:
		o, _ := actions.OptionNamed(s, args[0])
		for _, v := range o.Values {
			words = append(words, v.Value+"\t"+plain.OneLine(v.Name, 40))
		}
	}
	return completions(words, err)
}
