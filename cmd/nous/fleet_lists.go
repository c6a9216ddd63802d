package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"noused/internal/client/approval"
	"noused/internal/client/hosts"
	"noused/internal/client/plain"
	"noused/internal/cmdline"
	"noused/internal/fleet"
	"noused/internal/fleet/via"
	"noused/internal/format"
	"noused/internal/protocol"
)

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
				a.notef("no daemon has joined the fleet at %s", f.Server())
			}
			err = a.printHosts(seen, time.Now())
			a.tellRivals(seen)
			return err
		},
	}
}

func (a *app) printHosts(hosts []via.Seen, now time.Time) error {
	if a.json {
		for _, h := range hosts {
			line, err := json.Marshal(struct {
				fleet.Presence
				Last time.Time `json:"last_seen"`
			}{h.Presence, h.Last})
			if err != nil {
				return err
			}
			a.printJSON(line)
		}
		return nil
	}
	rows := [][]string{{"HOST", "RUNNING", "WAITING", "SLOTS", "SEEN", "VERSION", "LABELS"}}
	for _, h := range hosts {
		rows = append(rows, []string{
			h.Name, fmt.Sprint(h.Running), fmt.Sprint(h.Waiting), fmt.Sprint(h.Slots),
			format.Age(h.Last, now), plain.OneLine(h.Version, 20), labelText(h.Labels),
		})
	}
	if len(hosts) > 0 {
		a.printTable(rows[0], rows[1:])
	}
	return nil
}

// tellRivals lists the names that two daemons want.
func (a *app) tellRivals(hosts []via.Seen) {
	for _, h := range hosts {
		if r := h.Rival; r != nil {
			a.notef("another daemon wants the name %s, too, and takes no commands (epoch %s, version %s, in %s): give one of "+
				"the two another name in its [fleet]",
				h.Name, plain.OneLine(r.Epoch, 64), plain.OneLine(r.Version, 20), plain.OneLine(r.Workdir, 80))
		}
	}
}

func labelText(labels map[string]string) string {
	var words []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		words = append(words, key+"="+labels[key])
	}
	return plain.OneLine(strings.Join(words, " "), 120)
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
	case a.json:
		a.printSessionLines(all)
	case len(all) > 0:
		rows := fleetRows(all)
		a.printTable(rows[0], rows[1:])
	}
}

func fleetRows(all []hosts.Session) [][]string {
	rows := [][]string{{"HOST", "STATE", "SESSION", "UPDATED", "FOLDER", "TITLE"}}
	for _, s := range all {
		rows = append(rows, []string{
			s.Host, stateWord(s.SessionInfo), s.SessionID, plain.Stamp(s.UpdatedAt),
			plain.OneLine(s.Workdir, 40), plain.OneLine(s.Title, 60),
		})
	}
	return rows
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
		if a.json {
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
		a.printTable(rows[0], rows[1:])
	case there && !a.json:
		a.notef("no approval waits")
	}
}
