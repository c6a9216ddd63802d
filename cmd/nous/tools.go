package main

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"noused/internal/client"
	"noused/internal/client/actions"
	"noused/internal/client/plain"
	"noused/internal/cmdline"
	"noused/internal/protocol"
)

func (a *app) toolsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tools",
		Short: "List the tools and whether they are active and healthy",
		Args:  cmdline.Wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			scope, err := a.scope(cmd.Context(), needIfAny)
			if err != nil {
				return err
			}
			return query(cmd.Context(), a, protocol.ListTools, protocol.ListToolsParams{Scope: scope}, func(r protocol.Tools) {
				rows := make([][]string, len(r.Tools))
				for i, t := range r.Tools {
					about := plain.OneLine(t.Description, 70)
					if !t.Healthy {
						about = plain.OneLine(t.Problem, plain.LineWidth)
					}
					rows[i] = []string{t.Name, plain.YesNo(t.Active), plain.YesNo(t.Healthy), t.Protocol, about}
				}
				a.Table([]string{"TOOL", "ACTIVE", "HEALTHY", "PROTOCOL", "ABOUT"}, rows)
				a.Servers(r.Servers)
			})
		},
	}
	cmd.AddCommand(a.reloadCommand())
	return cmd
}

func (a *app) reloadCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "reload",
		Short: "Read the tool descriptors again; calls that run are not disturbed",
		Long: `Read the tool descriptors again, and of config.toml the rules, models, keys,
agents and hooks. Calls that run are not disturbed. What cannot be used is named,
and so is what only nous restart applies, such as [sandbox] and [limits]: the
exit status is 1 then.`,
		Args: cmdline.Wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := act(a, func(c client.Sender) (protocol.ToolsReloaded, error) {
				return actions.ReloadTools(cmd.Context(), c)
			}, a.Reloaded)
			if err == nil && len(r.Errors) > 0 {
				err = &quietExit{exitFailed}
			}
			return err
		},
	}
}

func (a *app) setToolsCommand() *cobra.Command {
	var none bool
	cmd := &cobra.Command{
		Use:               "set-tools TOOL…",
		Short:             "Choose the tools that a session offers to the model",
		Example:           "  nous set-tools read grep",
		ValidArgsFunction: a.toolNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if none == (len(args) > 0) {
				return cmdline.Errorf("set-tools wants the names of tools, or --none")
			}
			scope, err := a.scope(cmd.Context(), needOrMake)
			if err != nil {
				return err
			}
			_, err = act(a, func(c client.Sender) (protocol.ToolsAccepted, error) {
				return actions.SetTools(cmd.Context(), c, scope, args)
			}, func(r protocol.ToolsAccepted) { a.Println(fmt.Sprintf("%d active", r.Count)) })
			return err
		},
	}
	cmd.Flags().BoolVar(&none, "none", false, "offer no tools")
	return cmd
}

func (a *app) extCommand() *cobra.Command {
	var phase string
	cmd := &cobra.Command{
		Use:   "ext NAME [JSON | - | key=text… key:=json…]",
		Short: "Run one tool operation without a model",
		Long: `Run one tool operation without a model and print its result. The arguments are
one JSON object, - for one on standard input, or pairs: key=text for a text,
key:=json for anything else. On a terminal the output of a command is shown as it
arrives.`,
		Example: `  nous ext read path=README.md limit:=20
  nous ext read '{"path":"README.md"}'`,
		Args:              cmdline.Wants(1, -1, "NAME, the name of an operation, and then its arguments"),
		ValidArgsFunction: a.toolNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch phase {
			case "", "setup", "verify", "cleanup":
			default:
				return cmdline.Errorf("--phase %s: want setup, verify or cleanup", phase)
			}
			payload, err := a.toolArguments(args[1:])
			if err != nil {
				return err
			}
			scope, err := a.scope(cmd.Context(), needOrMake)
			if err != nil {
				return err
			}
			p := protocol.ExtensionCommandParams{Scope: scope, Name: args[0], Payload: payload, Phase: phase}
			reply, err := a.runOperation(cmd.Context(), p)
			if err == nil && !reply.OK {
				a.hintJSON(reply, args[1:])
				err = &quietExit{exitFailed}
			}
			return err
		},
	}
	a.rawFlag(cmd)
	cmd.Flags().StringVar(&phase, "phase", "", "the gevals `phase`: setup, verify or cleanup")
	completeWords(cmd, "phase", "setup", "verify", "cleanup")
	return cmd
}

// runOperation runs an operation and prints its result; on a terminal what it says is printed
// as it arrives, and the result then has what is left.
func (a *app) runOperation(ctx context.Context, p protocol.ExtensionCommandParams) (protocol.ExtensionResult, error) {
	if a.JSON || !a.OutStyle.Terminal {
		return fetch(ctx, a, protocol.ExtensionCommand, p, a.Extension)
	}
	p.OutputID = uuid.NewString()
	feed, err := a.subscribe(ctx, protocol.SubscribeParams{SessionID: p.SessionID})
	if err != nil {
		return protocol.ExtensionResult{}, err
	}
	var said strings.Builder
	reading, stop := context.WithCancel(ctx)
	var reader sync.WaitGroup
	reader.Go(func() { // ends with stop
		for {
			line, err := feed.NextLine(reading)
			if err != nil {
				return
			}
			status, _ := line.Event.Event.(protocol.Status)
			if status.Code == protocol.StatusOperationOutput && status.OutputID == p.OutputID {
				text := strings.TrimSuffix(status.Message, "\n")
				a.Println(text)
				said.WriteString(text + "\n")
			}
		}
	})
	reply, err := request(ctx, a, protocol.ExtensionCommand, p)
	stop()
	reader.Wait()
	feed.Close()
	if err == nil {
		a.Extension(unsaid(reply, said.String()))
	}
	return reply, err
}

// unsaid is a result without what was said of it already.
func unsaid(r protocol.ExtensionResult, said string) protocol.ExtensionResult {
	if said = strings.TrimSpace(said); said == "" {
		return r
	}
	cut := func(text string) string {
		return strings.TrimSpace(strings.Replace(text, said, "", 1))
	}
	r.Outputs = nil
	if r.Result = cut(r.Result); r.Error != nil {
		fault := *r.Error
		fault.Message = cut(fault.Message)
		r.Error = &fault
	}
	return r
}

// hintJSON says how a number is written, to whom a text was refused that is JSON.
func (a *app) hintJSON(r protocol.ExtensionResult, args []string) {
	if a.JSON || r.Error == nil || !strings.Contains(r.Error.Message, ": got string, want ") {
		return
	}
	for _, arg := range args {
		key, text, ok := strings.Cut(arg, "=")
		if ok && !strings.HasSuffix(key, ":") && jsontext.Value(text).IsValid() &&
			strings.Contains(r.Error.Message, "/"+key+": got string, ") {
			a.Notef("%s is a text; %s is not", plain.OneLine(arg, 60), plain.OneLine(key+":="+text, 60))
			return
		}
	}
}

// toolArguments reads the arguments of ext into one JSON object.
func (a *app) toolArguments(args []string) (jsontext.Value, error) {
	if len(args) == 1 && (args[0] == "-" || strings.HasPrefix(strings.TrimSpace(args[0]), "{")) {
		text := args[0]
		if text == "-" {
			var err error
			if text, err = a.readInput(); err != nil {
				return nil, err
			}
		}
		value := jsontext.Value(text)
		if err := value.Compact(); err != nil || value.Kind() != jsontext.KindBeginObject {
			return nil, cmdline.Errorf("the arguments are not one JSON object: %s", plain.OneLine(text, 60))
		}
		return value, nil
	}
	object := make(map[string]jsontext.Value, len(args))
	for _, arg := range args {
		key, text, ok := strings.Cut(arg, "=")
		key, isJSON := strings.CutSuffix(key, ":")
		if !ok || key == "" {
			return nil, cmdline.Errorf("%s: want key=text, key:=json or one JSON object", arg)
		}
		if _, twice := object[key]; twice {
			return nil, cmdline.Errorf("%s is given twice", key)
		}
		value := jsontext.Value(text)
		if !isJSON {
			quoted, err := jsontext.AppendQuote(nil, text)
			if err != nil {
				return nil, cmdline.Errorf("%s: the text is not valid UTF-8", key)
			}
			value = quoted
		} else if !value.IsValid() {
			return nil, cmdline.Errorf("%s: not JSON: %s", key, plain.OneLine(text, 60))
		}
		object[key] = value
	}
	payload, err := json.Marshal(object, json.Deterministic(true))
	if err != nil {
		return nil, cmdline.Errorf("the arguments are not one JSON object: %v", err)
	}
	return payload, nil
}
