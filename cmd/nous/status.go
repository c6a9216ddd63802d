package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"noused/internal/buildinfo"
	"noused/internal/client"
	"noused/internal/client/plain"
	"noused/internal/cmdline"
	"noused/internal/format"
	"noused/internal/protocol"
)

func (a *app) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show how the daemon is doing, on a screenful",
		Long: `Show how the daemon is doing: what runs and what waits for an answer, tools and
MCP servers, who reads events and how far behind, the disk, and the last errors.
It starts no daemon, and says with exit status 3 that none runs.

With --json it is one object: what get_state and list_tools say of the daemon.`,
		Args: cmdline.Wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.status(cmd.Context()) },
	}
}

// status never starts a daemon: to look must not change what is looked at.
func (a *app) status(ctx context.Context) error {
	conn, err := a.runningDaemon().Commands(ctx)
	if err != nil {
		return err
	}
	c := client.New(conn)
	defer c.Close()
	a.met.Store(true) // none is started when it goes
	ctx, done := context.WithTimeout(ctx, a.answer)
	defer done()
	daemon := a.senderOver(c)
	state, err := client.Raw(ctx, daemon, protocol.GetState, protocol.GetStateParams{Daemon: true})
	if err != nil {
		return err
	}
	var s protocol.State
	if err := json.Unmarshal(state, &s); err != nil {
		return fmt.Errorf("get_state: decode reply: %w", err)
	}
	tools, err := client.Raw(ctx, daemon, protocol.ListTools, protocol.ListToolsParams{Daemon: true})
	if err != nil {
		return err
	}
	var t protocol.Tools
	if err := json.Unmarshal(tools, &t); err != nil {
		return fmt.Errorf("list_tools: decode reply: %w", err)
	}
	if a.JSON {
		a.JSONLine(plain.Joined(state, tools))
	} else {
		a.Pairs(plain.Daemon(s, t, a.otherVersion(s.Daemon.Version), time.Now()))
		switch {
		case a.also != "":
			a.Notef("another daemon listens at %s: nous --socket %s is for that one", a.also, a.also)
		case a.far == nil && !a.named() && a.socket != client.DefaultSocket():
			a.Notef("it listens at %s, not at %s: it was started where XDG_RUNTIME_DIR was another", a.socket,
				client.DefaultSocket())
		}
	}
	return nil
}

// otherVersion says that a daemon is of another version than this program, and what
// to do; "" where there is nothing to say.
func (a *app) otherVersion(daemon string) string {
	what := map[string]string{
		"older": "an older version", "newer": "a newer version",
		"another": "another version",
	}[buildinfo.Compared(daemon)]
	if what == "" {
		return ""
	}
	next := "nous restart replaces it"
	if a.far != nil {
		next = "to replace it " + a.far.There("restart")
	}
	return fmt.Sprintf("the daemon is %s (%s) than this nous (%s); %s", what, plain.OneLine(daemon, 60),
		buildinfo.Version(), next)
}

func (a *app) stateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "state",
		Short: "Show what a session and the daemon are doing",
		Args:  cmdline.Wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.several() {
				return a.statesOfHosts(cmd.Context())
			}
			scope, err := a.scope(cmd.Context(), needOne)
			if err != nil {
				return err
			}
			return query(cmd.Context(), a, protocol.GetState, protocol.GetStateParams{Scope: scope}, a.printState)
		},
	}
}

func (a *app) printState(s protocol.State) {
	tree := ""
	if repo, branch, ok := a.worktreeOf(s.Workdir); ok {
		tree = plain.Worktree(repo, branch)
	}
	a.Pairs(plain.State(s, a.folderText(s.Workdir), tree))
}

// statuslineTime bounds what a prompt waits for.
const statuslineTime = 500 * time.Millisecond

func (a *app) statuslineCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "statusline",
		Short: "Print one line for tmux or a prompt: what waits and what runs",
		Long: `Print one line for tmux or a shell's prompt: how many approvals wait for an answer,
and how many sessions run. It prints nothing where neither does, and where no daemon
runs; it starts none, and its exit status is 0 then, too.`,
		Example: "  nous statusline",
		Args:    cmdline.Wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a.statusline(cmd.Context())
			return nil
		},
	}
}

// statusline never starts a daemon, and says nothing of one that does not answer.
func (a *app) statusline(ctx context.Context) {
	ctx, done := context.WithTimeout(ctx, statuslineTime)
	defer done()
	conn, err := a.runningDaemon().Commands(ctx)
	if err != nil {
		return
	}
	c := client.New(conn)
	defer c.Close()
	a.met.Store(true) // none is started when it goes
	s, err := client.Call(ctx, c, protocol.GetState, protocol.GetStateParams{Daemon: true})
	if err != nil {
		return
	}
	var parts []string
	if n := len(s.PendingApprovals); n > 0 {
		parts = append(parts, format.Count(n, "approval"))
	}
	if n := len(s.Runs); n > 0 {
		parts = append(parts, format.Count(n, "run"))
	}
	if len(parts) > 0 {
		fmt.Fprintf(a.out, "nous: %s\n", strings.Join(parts, ", "))
	}
}
