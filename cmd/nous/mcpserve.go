package main

import (
	"cmp"
	"context"
	"os"

	"github.com/spf13/cobra"

	"noused/internal/buildinfo"
	"noused/internal/client"
	"noused/internal/client/toolserver"
	"noused/internal/cmdline"
	"noused/internal/protocol"
)

func (a *app) mcpServeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "serve",
		Short: "Serve a session's tools over MCP (an agent starts this)",
		Long: `Speak the Model Context Protocol on standard input and output: a session's tools for any
agent. What it calls, the daemon calls as the session's model: the rules are asked, and you
where they say so, and the conversation shows the call. --session names the session;
without it, it is the one that was used last in this folder.

An agent that noused hosts is given this server by itself. A program that the daemon has
started, and that has no token of the session, is refused.`,
		Example: `  claude mcp add noused -- nous mcp serve
  nous mcp serve --session 0198c5f2`,
		Args: cmdline.Wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serveTools(cmd.Context()) },
	}
}

func (a *app) serveTools(ctx context.Context) error {
	o := toolserver.Options{
		Session: a.session, Token: os.Getenv(protocol.TokenVariable), Version: buildinfo.Version(), In: a.in, Out: a.out.W,
		Log: a.Notef,
	}
	if o.Token != "" { // the daemon has started the agent that has started this
		o.Session = cmp.Or(o.Session, os.Getenv("NOUS_SESSION"))
		return o.At(a.socket).Run(ctx)
	}
	id, err := a.sessionToServe(ctx)
	if err != nil {
		return err
	}
	o.Session, o.Dial = id, a.dial
	o.Subscribe = func(ctx context.Context, p protocol.SubscribeParams) (*client.Events, error) {
		return client.SubscribeAt(ctx, a.dialer(), p, a.answer)
	}
	return o.Run(ctx)
}

// sessionToServe is the session whose tools are meant. In one of a hosted agent only that
// calls tools: where nobody has named it, there is another.
func (a *app) sessionToServe(ctx context.Context) (string, error) {
	named := a.session != ""
	scope, err := a.scope(ctx, needOrMake)
	if err != nil || named {
		return scope.SessionID, err
	}
	st, err := request(ctx, a, protocol.GetState, protocol.GetStateParams{Scope: scope})
	if err != nil || st.Agent == "" || st.Agent == protocol.OwnAgent {
		return cmp.Or(scope.SessionID, st.SessionID), err
	}
	err = a.makeSession(ctx, protocol.NewSessionParams{Workdir: st.Workdir, Agent: protocol.OwnAgent})
	return a.session, err
}
