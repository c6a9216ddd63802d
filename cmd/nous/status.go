package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"noused/internal/buildinfo"
	"noused/internal/client"
	"noused/internal/client/approval"
	"noused/internal/client/plain"
	"noused/internal/cmdline"
	"noused/internal/format"
	"noused/internal/protocol"
)

// statusLines is how many lines of one kind a status has.
const statusLines = 8

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
	conn, err := a.way().Commands(ctx)
	if err != nil {
		return err
	}
	c := client.New(conn)
	defer c.Close()
	a.met.Store(true) // none is started when it goes
	ctx, done := context.WithTimeout(ctx, a.answer)
	defer done()
	state, err := a.send(ctx, c, protocol.GetState.Name(), protocol.GetStateParams{Daemon: true})
	if err != nil {
		return err
	}
	var s protocol.State
	if err := json.Unmarshal(state, &s); err != nil {
		return fmt.Errorf("get_state: decode reply: %w", err)
	}
	tools, err := a.send(ctx, c, protocol.ListTools.Name(), protocol.ListToolsParams{Daemon: true})
	if err != nil {
		return err
	}
	var t protocol.Tools
	if err := json.Unmarshal(tools, &t); err != nil {
		return fmt.Errorf("list_tools: decode reply: %w", err)
	}
	if a.json {
		a.printJSON(joined(state, tools))
	} else {
		a.printStatus(s, t, time.Now())
		switch {
		case a.also != "":
			a.notef("another daemon listens at %s: nous --socket %s is for that one", a.also, a.also)
		case a.far == nil && !a.named() && a.socket != client.DefaultSocket():
			a.notef("it listens at %s, not at %s: it was started where XDG_RUNTIME_DIR was another", a.socket,
				client.DefaultSocket())
		}
	}
	return nil
}

// joined is one object with the members of two, neither of which is empty.
func joined(x, y jsontext.Value) []byte {
	x, y = bytes.TrimSpace(x), bytes.TrimSpace(y)
	return append(append(bytes.TrimSuffix(bytes.Clone(x), []byte("}")), ','), bytes.TrimPrefix(y, []byte("{"))...)
}

func (a *app) printStatus(s protocol.State, t protocol.Tools, now time.Time) {
	p := statusPairs{now: now}
	p.daemon(s.Daemon, a.otherVersion(s.Daemon.Version))
	p.add("model", modelName(s.Model))
	p.sessions(s)
	p.tools(t)
	p.health(s)
	a.printPairs(p.pairs)
}

// statusPairs are the lines of a status.
type statusPairs struct {
	now   time.Time
	pairs [][2]string
}

func (p *statusPairs) add(key, value string) {
	p.pairs = append(p.pairs, [2]string{key, plain.OneLine(value, 2*plain.LineWidth)})
}

// some adds the first lines of a kind, and says how many there are besides.
func (p *statusPairs) some(key string, lines []string) {
	for i, line := range lines {
		if i == statusLines {
			p.add("  more", fmt.Sprint(len(lines)-i))
			return
		}
		p.add(key, line)
	}
}

func (p *statusPairs) daemon(d protocol.DaemonInfo, other string) {
	p.add("daemon", fmt.Sprintf("%s, process %d, up %s, since %s", cmp.Or(d.Version, "of an unknown version"), d.PID,
		plain.Lasting(p.now.Sub(d.StartedAt)), d.StartedAt.Local().Format(time.DateTime)))
	if other != "" {
		p.add("  version", other)
	}
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
		next = "to replace it " + a.far.there("restart")
	}
	return fmt.Sprintf("the daemon is %s (%s) than this nous (%s); %s", what, plain.OneLine(daemon, 60), buildinfo.Version(),
		next)
}

func (p *statusPairs) sessions(s protocol.State) {
	var working, waiting []string
	for _, run := range s.Runs {
		line := strings.TrimSpace(run.SessionID + " " + plain.OneLine(run.Title, 40))
		switch {
		case run.WaitingFor != "":
			continue // its approval is listed
		case run.Working != nil:
			line += fmt.Sprintf(": %s for %s", cmp.Or(run.Working.ToolName, "the model"), plain.Lasting(p.now.Sub(run.Working.Since)))
		}
		working = append(working, line)
	}
	for _, q := range s.PendingApprovals {
		waiting = append(waiting, fmt.Sprintf("%s asks: %s", q.ApprovalID, approval.Summary(q, plain.LineWidth)))
	}
	text := fmt.Sprintf("%d running, %d waiting for an answer", len(working), len(waiting))
	if s.Disk != nil && s.Disk.Sessions > 0 {
		text = fmt.Sprintf("%d, %s", s.Disk.Sessions, text)
	}
	if s.ApprovalsIncomplete {
		text += " (sessions are still being read)"
	}
	p.add("sessions", text)
	p.some("  runs", working)
	p.some("  waits", waiting)
}

func (p *statusPairs) tools(t protocol.Tools) {
	var sick []string
	unheard := 0
	for _, tool := range t.Tools {
		switch {
		case tool.Unheard:
			unheard++
		case !tool.Healthy:
			sick = append(sick, tool.Name+": "+tool.Problem)
		}
	}
	text := fmt.Sprintf("%d healthy, %d not", len(t.Tools)-len(sick)-unheard, len(sick))
	if unheard > 0 {
		text += fmt.Sprintf(", %d have not said yet what they can do", unheard)
	}
	p.add("tools", text)
	p.some("  not", sick)
	if len(t.Servers) == 0 {
		return
	}
	ready := 0
	sick = nil
	for _, s := range t.Servers {
		if s.State == "ready" || s.State == "configured" {
			ready++
			continue
		}
		sick = append(sick, strings.TrimSuffix(s.Name+" "+s.State+": "+s.Message, ": "))
	}
	p.add("servers", fmt.Sprintf("%d ready, %d not", ready, len(sick)))
	p.some("  not", sick)
}

func (p *statusPairs) health(s protocol.State) {
	if r := s.Readers; r != nil {
		p.add("readers", fmt.Sprintf("%d of events, %d behind", r.Count, r.Behind))
		var slow []string
		for _, reader := range r.Slowest {
			slow = append(slow, fmt.Sprintf("process %d (%s) by %d events", reader.PID, cmp.Or(reader.Program, "ended"),
				reader.Lag))
		}
		p.some("  behind", slow)
	}
	if b := s.EventBuffer; b != nil {
		p.add("events", fmt.Sprintf("%s of %s kept: %d of %d", format.Size(int64(b.Bytes)), format.Size(int64(b.Limit)),
			s.LastSeq+1-min(b.FirstSeq, s.LastSeq+1), s.LastSeq))
	}
	if f := s.Fleet; f != nil {
		p.fleet(*f)
	}
	if d := s.Disk; d != nil {
		used := "being counted"
		if !d.CountedAt.IsZero() {
			used = format.Size(d.Bytes)
			if old := p.now.Sub(d.CountedAt); old > time.Minute {
				used += " " + plain.Lasting(old) + " ago"
			}
		}
		p.add("disk", fmt.Sprintf("%s in %s, %s free", used, d.Path, format.Size(d.FreeBytes)))
	}
	var failed []string
	for _, e := range s.LastErrors {
		failed = append(failed, strings.TrimSpace(e.At.Local().Format(time.DateTime)+" "+plain.OneLine(e.Message, 2*plain.LineWidth)+" "+
			e.SessionID))
	}
	p.add("errors", map[bool]string{true: "none since the start", false: "the last ones:"}[len(failed) == 0])
	p.some("  at", failed)
}

// fleet says whether the daemon is in its fleet, and what does not work there.
func (p *statusPairs) fleet(f protocol.FleetState) {
	text := fmt.Sprintf("%s at %s, %s %s", f.Name, f.Server,
		map[bool]string{true: "in it for", false: "away for"}[f.Connected], plain.Lasting(p.now.Sub(f.Since)))
	if f.Connected {
		text += fmt.Sprintf(", events sent up to %d", f.PublishedSeq)
	}
	p.add("fleet", text)
	var wrong []string
	for _, why := range f.Problems {
		wrong = append(wrong, plain.OneLine(why, 2*plain.LineWidth))
	}
	p.some("  wrong", wrong)
}
