package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

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
			f, hosts, err := a.fleetHosts(cmd.Context())
			if err != nil {
				return err
			}
			if len(hosts) == 0 {
				a.notef("no daemon has joined the fleet at %s", f.Server())
			}
			err = a.printHosts(hosts, time.Now())
			a.tellRivals(hosts)
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
		rows = append(rows, []string{h.Name, fmt.Sprint(h.Running), fmt.Sprint(h.Waiting), fmt.Sprint(h.Slots), format.Age(h.Last, now), oneLine(h.Version, 20), labelText(h.Labels)})
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
			a.notef("another daemon wants the name %s, too, and takes no commands (epoch %s, version %s, in %s): give one of the two another name in its [fleet]",
				h.Name, oneLine(r.Epoch, 64), oneLine(r.Version, 20), oneLine(r.Workdir, 80))
		}
	}
}

func labelText(labels map[string]string) string {
	var words []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		words = append(words, key+"="+labels[key])
	}
	return oneLine(strings.Join(words, " "), 120)
}

// fleetSession is a session of a host's.
type fleetSession struct {
	host string
	protocol.SessionInfo
	raw jsontext.Value
}

func byHostNeed(x, y *fleetSession) int {
	return cmp.Or(protocol.ByNeed(x.SessionInfo, y.SessionInfo), strings.Compare(x.host, y.host))
}

// Bytes of sessions that are listed, as their daemons tell them: of all hosts together, and
// of one that is listed again and again.
const (
	maxLists      = 256 << 20
	maxListOfHost = 16 << 20
)

// listRoom is how many bytes of lists there is still room for.
func listRoom(most int64) *atomic.Int64 {
	room := new(atomic.Int64)
	room.Store(most)
	return room
}

// sessionsOf lists all sessions of a host, for which room is left.
func sessionsOf(ctx context.Context, h *via.Host, name string, room *atomic.Int64) (all []fleetSession, err error) {
	page := 1000
	p := protocol.ListSessionsParams{Limit: &page}
	for range boardPages {
		payload, err := via.Raw(ctx, h, protocol.ListSessions, p)
		if err != nil {
			return nil, err
		}
		var r struct {
			Sessions []jsontext.Value `json:"sessions"`
		}
		if err := json.Unmarshal(payload, &r); err != nil {
			return nil, fmt.Errorf("list_sessions: decode reply: %w", err)
		}
		if room.Add(-int64(len(payload))) < 0 {
			return nil, errors.New("there is no room for its list of sessions: those listed have too many bytes")
		}
		for _, raw := range r.Sessions {
			s := fleetSession{host: name, raw: raw}
			if err := json.Unmarshal(raw, &s.SessionInfo); err != nil {
				return nil, fmt.Errorf("list_sessions: decode reply: %w", err)
			}
			all = append(all, s)
		}
		if len(r.Sessions) < page {
			break
		}
		last := all[len(all)-1].SessionID
		if last == p.Before {
			return nil, errors.New("its list of sessions does not go on where it ended")
		}
		p.Before = last
	}
	return all, nil
}

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
			f, hosts, err := a.fleetHosts(cmd.Context())
			if err != nil {
				return err
			}
			room := listRoom(maxLists)
			got, failed := askHosts(cmd.Context(), a, f, hosts, func(ctx context.Context, h *via.Host) ([]fleetSession, error) {
				return sessionsOf(ctx, h, h.Name(), room)
			})
			all := slices.Concat(slices.Collect(maps.Values(got))...)
			slices.SortFunc(all, func(x, y fleetSession) int { return byHostNeed(&x, &y) })
			a.printFleetSessions(all)
			return failed
		},
	}
}

func (a *app) printFleetSessions(all []fleetSession) {
	if a.json {
		for _, s := range all {
			a.printJSON(s.line(""))
		}
		return
	}
	if len(all) > 0 {
		rows := fleetRows(all)
		a.printTable(rows[0], rows[1:])
	}
}

// line is a session for a program. more, which may be "", are members behind it, each
// behind a comma.
func (s fleetSession) line(more string) []byte {
	host, _ := jsontext.AppendQuote(nil, s.host) // a name of letters, digits, - and _
	return slices.Concat([]byte(`{"host":`), host, []byte(`,"session":`), s.raw, []byte(more+"}"))
}

func fleetRows(all []fleetSession) [][]string {
	rows := [][]string{{"HOST", "STATE", "SESSION", "UPDATED", "FOLDER", "TITLE"}}
	for _, s := range all {
		rows = append(rows, []string{s.host, stateWord(s.SessionInfo), s.SessionID, stamp(s.UpdatedAt), oneLine(s.Workdir, 40), oneLine(s.Title, 60)})
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
			f, hosts, err := a.fleetHosts(cmd.Context())
			if err != nil {
				return err
			}
			got, failed := askHosts(cmd.Context(), a, f, hosts, questionsOf)
			return cmp.Or(a.printFleetQuestions(got, len(hosts) > 0), failed)
		},
	}
}

// questionsOf are those of a host that wait.
func questionsOf(ctx context.Context, h *via.Host) (q questions, err error) {
	one := 1
	some, _, err := via.Ask(ctx, h, protocol.ListSessions, protocol.ListSessionsParams{Limit: &one})
	if err != nil || len(some.Sessions) == 0 { // get_state would make one
		return q, err
	}
	p := protocol.GetStateParams{Scope: protocol.Scope{SessionID: some.Sessions[0].SessionID}}
	_, payload, err := via.Ask(ctx, h, protocol.GetState, p)
	if err != nil {
		return q, err
	}
	var state struct {
		Pending []jsontext.Value `json:"pending_approvals"`
	}
	if err := json.Unmarshal(payload, &state); err != nil {
		return q, fmt.Errorf("get_state: decode reply: %w", err)
	}
	return q, q.addPending(state.Pending)
}

func (a *app) printFleetQuestions(got map[string]questions, hosts bool) error {
	type asked struct {
		host string
		protocol.Approval
		raw jsontext.Value
	}
	var all []asked
	for host, q := range got {
		for i, one := range q.list {
			all = append(all, asked{host, one, q.raw[i]})
		}
	}
	slices.SortFunc(all, func(x, y asked) int { return cmp.Or(x.CreatedAt.Compare(y.CreatedAt), strings.Compare(x.host, y.host)) })
	rows := [][]string{{"HOST", "QUESTION", "ASKED", "WHAT"}}
	for _, one := range all {
		if a.json {
			line, err := json.Marshal(map[string]any{"host": one.host, "approval": one.raw}, json.Deterministic(true))
			if err != nil {
				return err
			}
			a.printJSON(line)
			continue
		}
		rows = append(rows, []string{one.host, one.ApprovalID, format.Age(one.CreatedAt, time.Now()), asksFor(one.Approval, 80)})
	}
	switch {
	case len(rows) > 1:
		a.printTable(rows[0], rows[1:])
	case hosts && !a.json:
		a.notef("no approval waits")
	}
	return nil
}
