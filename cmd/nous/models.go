package main

import (
	"github.com/spf13/cobra"

	"noused/internal/client/plain"
	"noused/internal/cmdline"
	"noused/internal/protocol"
)

func (a *app) modelsCommand() *cobra.Command {
	var probe bool
	cmd := &cobra.Command{
		Use:   "models",
		Short: "List the models that could answer prompts",
		Long: `List the models that could answer prompts: the daemon's own, marked *, the
providers of its configuration and those that its environment has a key for,
provider modules, and offline.

With --probe their servers are asked which models they have, and so are the
servers that may run on this machine: Ollama, LM Studio, llama.cpp and vLLM.
Without --probe no server is asked.`,
		Args: cmdline.Wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return query(cmd.Context(), a, protocol.ListModels, protocol.ListModelsParams{Probe: probe},
				func(r protocol.Models) {
					a.printModels(r, probe)
				})
		},
	}
	cmd.Flags().BoolVar(&probe, "probe", false, "ask the servers, and those that may run on this machine")
	return cmd
}

func (a *app) printModels(r protocol.Models, probed bool) {
	rows := make([][]string, len(r.Models))
	for i, m := range r.Models {
		mark, name, reachable := "", m.Model, "-"
		if m.Default {
			mark = "*"
		}
		if m.Name == "" {
			name += "/…"
		}
		if m.Reachable != nil {
			reachable = plain.YesNo(*m.Reachable)
		}
		rows[i] = []string{
			mark, plain.OneLine(name, plain.LineWidth), m.Source, reachable, plain.OneLine(m.BaseURL, plain.LineWidth),
			plain.OneLine(m.Problem, 2*plain.LineWidth),
		}
	}
	a.printTable([]string{"", "MODEL", "SOURCE", "REACHABLE", "SERVER", "PROBLEM"}, rows)
	if r.Truncated {
		a.notef("a server has more models than are listed")
	}
	a.notef("to use one: nous set-model MODEL --base-url SERVER, or for every session [model] in the daemon's config.toml")
	if !probed {
		a.notef("nous models --probe asks the servers")
	}
}
