package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"noused/internal/client/conversation"
	"noused/internal/client/plain"
	"noused/internal/cmdline"
	"noused/internal/protocol"
)

func (a *app) steerCommand() *cobra.Command {
	return a.inputCommand("steer", "Queue a text that the active run gets before everything else",
		func(cmd *cobra.Command, p protocol.SteerParams) error {
			return query(cmd.Context(), a, protocol.Steer, p, a.printQueued)
		})
}

func (a *app) followUpCommand() *cobra.Command {
	return a.inputCommand("follow-up", "Queue a text that is delivered when the run would otherwise end",
		func(cmd *cobra.Command, p protocol.SteerParams) error {
			return query(cmd.Context(), a, protocol.FollowUp, protocol.FollowUpParams(p), a.printQueued)
		})
}

func (a *app) inputCommand(name, short string, send func(*cobra.Command, protocol.SteerParams) error) *cobra.Command {
	var ifIdle, key string
	var images []string
	cmd := &cobra.Command{
		Use:   name + " [TEXT… | -]",
		Short: short,
		Long:  short + ".\n\n" + inputHelp,
		Example: fmt.Sprintf(`  nous %[1]s and look at the tests, too
  git diff | nous %[1]s this is what has changed`, name),
		RunE: func(cmd *cobra.Command, args []string) error {
			if ifIdle != "" && ifIdle != "prompt" {
				return cmdline.Errorf("--if-idle %s: want prompt", ifIdle)
			}
			text, err := a.readText(args)
			if err != nil {
				return err
			}
			attached, err := a.attachments(images)
			if err != nil {
				return err
			}
			scope, err := a.scope(cmd.Context(), needOne)
			if err != nil {
				return err
			}
			if text, attached, err = a.expanded(cmd.Context(), scope, text, attached); err != nil {
				return err
			}
			return send(cmd, protocol.SteerParams{
				Scope: scope, Text: text, IfIdle: protocol.Kind(ifIdle),
				IdempotencyKey: keyOr(key), Attachments: attached,
			})
		},
	}
	cmd.Flags().StringVar(&ifIdle, "if-idle", "", "without an active run, start one: `prompt`")
	cmd.Flags().StringVar(&key, "key", "", "idempotency `key`: the same again within 24 h queues nothing new")
	imageFlag(cmd, &images)
	completeWords(cmd, "if-idle", "prompt")
	return cmd
}

func (a *app) printQueued(r protocol.InputAccepted) { a.Println(r.RunID) }

func (a *app) withdrawCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "withdraw INPUT",
		Short: "Take a queued text back before it is delivered, and print it",
		Long: "Take a queued text back before it is delivered, and print it. INPUT is its id, or a\nbeginning of it " +
			"that no other has; nous state shows the ids of those that wait. Exit\nstatus 1 says that it does not wait any " +
			"more.",
		Example: "  nous withdraw in-0198c5f2",
		Args:    cmdline.Wants(1, 1, "INPUT, the id of a queued text; nous state shows them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			scope, err := a.scope(cmd.Context(), needOne)
			if err != nil {
				return err
			}
			id, err := a.queuedNamed(cmd.Context(), scope, args[0])
			if err != nil {
				return err
			}
			p := protocol.WithdrawParams{Scope: scope, InputID: id}
			return query(cmd.Context(), a, protocol.Withdraw, p, func(r protocol.Withdrawn) { a.Println(r.Text) })
		},
	}
}

// queuedNamed is the id of the queued text that a beginning of an id means. What
// does not wait is the daemon's to refuse.
func (a *app) queuedNamed(ctx context.Context, scope protocol.Scope, name string) (string, error) {
	state, err := request(ctx, a, protocol.GetState, protocol.GetStateParams{Scope: scope})
	if err != nil {
		return "", err
	}
	var found []string
	for _, in := range state.Queued.Inputs {
		if in.InputID == name {
			return name, nil
		}
		if strings.HasPrefix(in.InputID, name) || strings.HasPrefix(in.InputID, "in-"+name) {
			found = append(found, in.InputID)
		}
	}
	switch len(found) {
	case 0:
		return name, nil
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("%q may be any of %d queued texts: %s", name, len(found),
		strings.Join(found[:min(len(found), 4)], ", "))
}

func (a *app) abortCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "abort [RUN]",
		Short: "Abort the run, and print the queued texts that it hands back",
		Args:  cmdline.Wants(0, 1, "RUN, the id of a run, or nothing"),
		RunE: func(cmd *cobra.Command, args []string) error {
			scope, err := a.scope(cmd.Context(), needOne)
			if err != nil {
				return err
			}
			p := protocol.AbortParams{Scope: scope}
			if len(args) > 0 {
				p.RunID = args[0]
			}
			return query(cmd.Context(), a, protocol.Abort, p, func(r protocol.AbortAccepted) {
				a.Println(r.RunID)
				a.HandBack(r.Discarded)
			})
		},
	}
}

func (a *app) setModeCommand() *cobra.Command {
	return &cobra.Command{
		Use:       "set-mode steering|follow-up one-at-a-time|all",
		Short:     "Choose whether queued texts are delivered one at a time or all at once",
		Example:   "  nous set-mode follow-up all",
		Args:      cmdline.Wants(2, 2, "which texts, steering or follow-up, and how, one-at-a-time or all"),
		ValidArgs: []string{"steering", "follow-up", "one-at-a-time", "all"},
		RunE: func(cmd *cobra.Command, args []string) error {
			def := protocol.SetSteeringMode
			switch args[0] {
			case "steering":
			case "follow-up", "follow_up":
				def = protocol.SetFollowUpMode
			default:
				return cmdline.Errorf("%s: want steering or follow-up", args[0])
			}
			mode := protocol.Mode(args[1])
			if mode != protocol.ModeOneAtATime && mode != protocol.ModeAll {
				return cmdline.Errorf("%s: want one-at-a-time or all", mode)
			}
			scope, err := a.scope(cmd.Context(), needOne)
			if err != nil {
				return err
			}
			p := protocol.SetModeParams{Scope: scope, Mode: mode}
			return query(cmd.Context(), a, def, p, func(r protocol.ModeAccepted) { a.Println(string(r.Mode)) })
		},
	}
}

func (a *app) setModelCommand() *cobra.Command {
	p := protocol.SetModelParams{}
	cmd := &cobra.Command{
		Use:   "set-model MODEL",
		Short: "Choose the model that answers in a session, from its next call on",
		Long: `Choose the model that answers in a session, from its next call on. MODEL is
PROVIDER/NAME with a provider that the daemon knows, module or offline, or
default for the daemon's own. With --effort it is told how hard to think.`,
		Example: `  nous set-model anthropic/claude-sonnet-4-5
  nous set-model openai/qwen3:8b --base-url http://localhost:11434/v1`,
		Args: cmdline.Wants(1, 1, "MODEL, as in openai/gpt-5"),
		RunE: func(cmd *cobra.Command, args []string) error {
			scope, err := a.scope(cmd.Context(), needOne)
			if err != nil {
				return err
			}
			p.Scope, p.Model = scope, args[0]
			return query(cmd.Context(), a, protocol.SetModel, p, func(r protocol.ModelAccepted) {
				a.Println(plain.ModelName(r.Model))
			})
		},
	}
	cmd.Flags().StringVar(&p.BaseURL, "base-url", "", "ask this `server`; a key is sent only to a configured one")
	cmd.Flags().StringVar(&p.Effort, "effort", "",
		"how hard to think: `level` none, minimal, low, medium, high, xhigh or max")
	completeWords(cmd, "effort", protocol.Efforts...)
	cmd.ValidArgsFunction = a.modelNames
	cmd.Flags().Int64Var(&p.ContextWindow, "context-window", 0, "`tokens` that the model can read")
	return cmd
}

func (a *app) compactCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "compact [INSTRUCTION…]",
		Short: "Summarise the older part of a session",
		RunE: func(cmd *cobra.Command, args []string) error {
			scope, err := a.scope(cmd.Context(), needOne)
			if err != nil {
				return err
			}
			p := protocol.CompactSessionParams{Scope: scope, Instruction: strings.Join(args, " ")}
			return query(cmd.Context(), a, protocol.CompactSession, p, func(r protocol.Compaction) {
				a.Println(r.Summary)
				a.Notef("summarised: %s; everything from %s on is kept", conversation.Shrunk(r.TokensBefore, r.TokensAfter),
					r.FirstKeptEntryID)
			})
		},
	}
	a.rawFlag(cmd)
	return cmd
}

func (a *app) pingCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "ping",
		Short: "Check whether the daemon answers",
		Args:  cmdline.Wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return query(cmd.Context(), a, protocol.Ping, protocol.PingParams{}, func(r protocol.Pong) { a.Println(r.Message) })
		},
	}
}
