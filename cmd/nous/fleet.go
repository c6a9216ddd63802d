package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"noused/internal/client/approval"
	"noused/internal/client/hosts"
	"noused/internal/client/jobs"
	"noused/internal/client/live"
	"noused/internal/client/machine"
	"noused/internal/cmdline"
	"noused/internal/fleet"
	"noused/internal/fleet/via"
	"noused/internal/format"
	"noused/internal/protocol"
	"noused/internal/tui/settings"
)

// viaFlags say which fleet is meant, and which host of it.
type viaFlags struct {
	url, creds string
	on         []string
}

func (f *viaFlags) register(root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.StringVar(&f.url, "via", "",
		"the NATS server of a fleet of daemons: `url`; also NOUS_VIA, and [fleet] in nous's config.toml")
	flags.StringVar(&f.creds, "creds", "",
		"the `file` with your credentials for the fleet's server; an nkey is named in [fleet] of nous's config.toml")
	flags.StringArrayVar(&f.on, "on", nil,
		"the host of the fleet whose daemon is meant, by its `name`; may be given again as --host")
}

// fleetOptions are how to reach the fleet, of the flags, the environment and the user's
// file.
func (a *app) fleetOptions() (o via.Options, on []string, err error) {
	file, err := settings.ConfiguredFleet(os.Getenv)
	if err != nil {
		return o, nil, err
	}
	url := cmp.Or(a.via.url, os.Getenv("NOUS_VIA"))
	o.URLs, o.Creds, o.NKey, o.CA = file.URLs, file.Creds, file.NKey, file.CA
	if url != "" {
		o.URLs = strings.Split(url, ",")
	}
	if a.via.creds != "" {
		if o.Creds, err = filepath.Abs(a.via.creds); err != nil {
			return o, nil, err
		}
		o.NKey = ""
	}
	if len(o.URLs) == 0 {
		return o, nil, cmdline.Errorf("no fleet is named: give --via, NOUS_VIA, or url in [fleet] of nous's config.toml")
	}
	o.Prefix, on = fleet.Prefix(cmp.Or(file.Subject, string(fleet.DefaultPrefix))), a.via.on
	if a.completing { // cobra reads the flags more than once
		on = slices.Compact(on)
	}
	if len(on) == 0 && file.On != "" {
		on = []string{file.On}
	}
	return o, on, checkFleet(o, on)
}

func checkFleet(o via.Options, on []string) error {
	for _, u := range o.URLs {
		if err := fleet.CheckURL(u); err != nil {
			return cmdline.Errorf("the fleet's url: %v", err)
		}
	}
	if err := fleet.CheckPrefix(string(o.Prefix)); err != nil {
		return cmdline.Errorf("the fleet's subject: %v", err)
	}
	for i, name := range on {
		if err := fleet.CheckName(name); err != nil {
			return cmdline.Errorf("--on: %v", err)
		}
		if slices.Contains(on[:i], name) {
			return cmdline.Errorf("--on %s: that host is named twice", name)
		}
	}
	if len(on) > mostHosts {
		return cmdline.Errorf("--on: at most %d hosts at once", mostHosts)
	}
	return nil
}

// openFleet opens the fleet that is meant, for the rest of the command. It does not
// connect.
func (a *app) openFleet() (*via.Fleet, error) {
	if a.fleet != nil {
		return a.fleet, nil
	}
	o, _, err := a.fleetOptions()
	if err != nil {
		return nil, err
	}
	a.fleet = a.fleetOf(o)
	return a.fleet, nil
}

// text is the flags as they are given again, each behind a space.
func (f *viaFlags) text(on string) (text string) {
	if f.url != "" {
		text += " --via " + f.url
	}
	if f.creds != "" {
		text += " --creds " + f.creds
	}
	return text + " --on " + on
}

// chooseOfFleet finds out whether a command is for a fleet, or for a host of one.
func (a *app) chooseOfFleet(cmd *cobra.Command, what reads) (found bool, err error) {
	all := cmdline.Name(cmd) == "fleet" || strings.HasPrefix(cmdline.Name(cmd), "fleet ")
	given := a.via.url != "" || a.via.creds != "" || len(a.via.on) > 0
	switch other := len(a.hostNames) > 0 || a.socketGiven; {
	case other && (given || all):
		return true,
			cmdline.Errorf(
				"--host and --socket name a daemon without the fleet: they do not go with --via, --creds, --on and nous fleet")
	case all && (a.session != "" || a.active):
		return true, cmdline.Errorf("--session and --active name a session of one daemon: they do not go with nous fleet")
	case all && a.workdir != "" && cmdline.Name(cmd) != "fleet submit":
		return true, cmdline.Errorf("--workdir goes with nous fleet submit alone")
	case all:
		return true, nil
	case other || !given && (os.Getenv("NOUS_HOST") != "" || os.Getenv("NOUSED_SOCKET") != ""):
		return false, nil
	}
	file, err := settings.ConfiguredFleet(os.Getenv)
	if !given && (err != nil || file.On == "") {
		return false, nil
	}
	o, on, err := a.fleetOptions()
	switch {
	case err != nil:
		return true, err
	case len(on) == 0:
		return true, cmdline.Errorf("which host of the fleet is meant? give --on NAME; nous fleet hosts lists them")
	}
	a.fleet = a.fleetOf(o)
	for _, name := range on {
		a.hosts = append(a.hosts, &machine.Host{Name: name, Fleet: a.fleet.Host(name)})
	}
	return true, a.mayMean(cmd, what)
}

func (a *app) fleetOf(o via.Options) *via.Fleet {
	o.Note = func(text string) { a.Notef("%s", text) }
	return via.Open(o)
}

func (a *app) fleetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fleet",
		Short: "Show what the daemons of a fleet do, and give them jobs",
		Long: `Show what the daemons of a fleet do, which meet at a NATS server, and give them jobs.
--via, NOUS_VIA, or url in [fleet] of nous's config.toml names the server. docs/fleet.md
says how to set one up.

All other commands, and the screen, reach one daemon of the fleet with --on NAME.`,
		Example: `  nous fleet hosts
  nous fleet watch
  nous fleet submit --label gpu=a100 --wait run the benchmark and sum it up
  nous fleet cancel nightly-7`,
		Args: cmdline.Wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.fleetHostsCommand(), a.fleetSessionsCommand(), a.fleetApprovalsCommand(), a.fleetWatchCommand(),
		a.fleetSubmitCommand(), a.fleetJobsCommand(), a.fleetCancelCommand())
	return cmd
}

// fleetHosts are the hosts that a command is for: the one of --on, else all.
func (a *app) fleetHosts(ctx context.Context) (*via.Fleet, []via.Seen, error) {
	f, err := a.openFleet()
	if err != nil {
		return nil, nil, err
	}
	all, err := f.Hosts(ctx)
	if err != nil || len(a.via.on) == 0 {
		return f, all, err
	}
	var known []string
	named := map[string]via.Seen{}
	for _, h := range all {
		named[h.Name] = h
		known = append(known, h.Name)
	}
	var meant []via.Seen
	for _, name := range a.via.on {
		h, found := named[name]
		if !found {
			return nil, nil, &via.NoHostError{Name: name, Server: f.Server(), Known: known}
		}
		meant = append(meant, h)
	}
	return f, meant, nil
}

// askFleet asks the hosts of the fleet that are meant for something, and reports each that
// does not answer in a line. failed: there were some.
func askFleet[T any](ctx context.Context, a *app, ask func(context.Context, hosts.Host) (T, error)) (
	said []hosts.Answer[T], there bool, failed error,
) {
	f, seen, err := a.fleetHosts(ctx)
	if err != nil {
		return nil, false, err
	}
	var all []hosts.Host
	for _, h := range seen {
		all = append(all, f.Host(h.Name).AsHost())
	}
	answers := hosts.Ask(ctx, all, live.AtOnce, ask)
	for _, one := range answers {
		if one.Err != nil {
			a.Complain(one.Host.Name + ": " + one.Err.Error())
			failed = &quietExit{exitFailed}
		}
	}
	if len(all) == 0 {
		a.Notef("no daemon has joined the fleet at %s", f.Server())
	}
	return hosts.Said(answers), len(all) > 0, failed
}

// nextOf says what can be done about an error of a fleet's; "" where that is not known.
func nextOf(err error) string {
	var (
		gone    *via.NoHostError
		refused *via.RefusedError
		away    *via.AwayError
		lost    *jobs.UnreachableError
	)
	switch {
	case errors.As(err, &gone):
		return gone.Next()
	case errors.As(err, &refused):
		return refused.Next
	case errors.As(err, &lost):
		return "check that the server runs and lets you in, and --via, NOUS_VIA or [fleet] in nous's config.toml"
	case errors.As(err, &away):
		return "check that the server runs, and --via, NOUS_VIA or url of [fleet] in nous's config.toml"
	}
	return ""
}

func (a *app) fleetHostsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "hosts",
		Short: "List the daemons of the fleet",
		Long: `List the daemons of the fleet that are there: how many runs each has, how many
approvals wait for somebody, how many jobs it takes at a time (not how many more it could
take now), and when it has last said that it is there. One that has not for half a minute
is not listed. Where two daemons want one name, of which the second takes no commands, a
line says so; with --json it is "rival".`,
		Example: "  nous fleet hosts --json",
		Args:    cmdline.Wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, seen, err := a.fleetHosts(cmd.Context())
			if err != nil {
				return err
			}
			if len(seen) == 0 {
				a.Notef("no daemon has joined the fleet at %s", f.Server())
			}
			return jobs.PrintHosts(a.Printer, seen, time.Now())
		},
	}
}

// maxLists bounds the bytes of the sessions that are listed, as their daemons tell them: of
// all hosts together.
const maxLists = 256 << 20

func (a *app) fleetSessionsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "sessions",
		Short: "List the sessions of all hosts, those that need somebody first",
		Long: `List the sessions of all hosts of the fleet, or with --on of one: those that need
somebody first, then those that work, then those with something unread, then the others.
A host that does not answer costs a line. With --json a line is a session as its daemon
tells it, in "session", with its "host".`,
		Example: "  nous fleet sessions\n  nous fleet sessions --on box",
		Args:    cmdline.Wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			room, page := hosts.NewRoom(maxLists), 1000
			lists, _, failed := askFleet(cmd.Context(), a, func(ctx context.Context, h hosts.Host) ([]hosts.Session, error) {
				return h.List(ctx, protocol.ListSessionsParams{Limit: &page}, boardPages, room)
			})
			a.printFleetSessions(hosts.Sorted(lists))
			return failed
		},
	}
}

func (a *app) printFleetSessions(all []hosts.Session) {
	switch {
	case a.JSON:
		a.printSessionLines(all)
	case len(all) > 0:
		rows := live.Rows(all)
		a.Table(rows[0], rows[1:])
	}
}

func (a *app) fleetWatchCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "watch",
		Short: "Show the sessions of all hosts as they change",
		Long: `Show the sessions of all hosts of the fleet, or with --on of one, as they change, until
Ctrl-C: on a terminal the table, those that need somebody first, and in a pipe a line for
each change. A host that does not answer has a line, and is asked again. With --json a line
is a session as its daemon tells it, in "session", with its "host", and with "deleted":true
when it is no more, or its host has left.`,
		Example: "  nous fleet watch\n  nous fleet watch --json",
		Args:    cmdline.Wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := a.openFleet()
			if err != nil {
				return err
			}
			return a.watching(cmd.Context(), live.NewFleet(a.Printer, a.out, f, a.via.on).Run)
		},
	}
}

func (a *app) fleetApprovalsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "approvals",
		Short: "List the approvals of all hosts that wait for somebody",
		Long: `List the approvals of all hosts of the fleet, or with --on of one, that wait for an
answer, the oldest first. nous --on HOST approve answers one, where that host's
configuration has approve = true in [fleet]. With --json a line is an approval as its
daemon tells it, in "approval", with its "host".`,
		Example: "  nous fleet approvals\n  nous --on box approve apr-1-ses-0198c5f2",
		Args:    cmdline.Wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			lists, there, failed := askFleet(cmd.Context(), a, func(ctx context.Context, h hosts.Host) ([]hosts.Approval,
				error,
			) {
				return h.Approvals(ctx)
			})
			a.printFleetApprovals(hosts.Oldest(lists), there)
			return failed
		},
	}
}

func (a *app) printFleetApprovals(all []hosts.Approval, there bool) {
	rows := [][]string{{"HOST", "QUESTION", "ASKED", "WHAT"}}
	for _, one := range all {
		if a.JSON {
			a.printOf(one.Host, "approval", one.Raw)
			continue
		}
		rows = append(rows, []string{
			one.Host, one.ApprovalID, format.Age(one.CreatedAt, time.Now()),
			approval.Summary(one.Approval, 80),
		})
	}
	switch {
	case len(rows) > 1:
		a.Table(rows[0], rows[1:])
	case there && !a.JSON:
		a.Notef("no approval waits")
	}
}
