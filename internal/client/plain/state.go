package plain

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/client/approval"
	"noused/internal/format"
	"noused/internal/protocol"
)

// StateWord says what a session needs, or does.
func StateWord(s protocol.SessionInfo) string {
	return [...]string{"needs you", "failed", cmp.Or(string(s.RunState), "working"), "unread", "idle"}[s.Need()]
}

// Facts are what list_sessions knows of a session. last is how its last run ended, nil where that is not known; tree is
// its worktree.
func Facts(s protocol.SessionInfo, last *protocol.LastRun, folder, tree string) [][2]string {
	pairs := [][2]string{{"session", s.SessionID}}
	add := func(key, value string) {
		if value != "" {
			pairs = append(pairs, [2]string{key, value})
		}
	}
	add("title", OneLine(s.Title, 200))
	add("folder", folder)
	add("worktree", tree)
	add("made", Stamp(s.CreatedAt))
	add("last used", Stamp(s.UpdatedAt))
	add("branched from", s.ParentID)
	if s.Parent != nil {
		add("child of", s.Parent.SessionID)
	}
	add("state", string(s.RunState))
	add("waiting for", string(s.WaitingFor))
	if w := s.Working; w != nil {
		add("run", w.RunID+", since "+Stamp(w.StartedAt))
		add("tool", w.ToolName)
	}
	if why := failure(last); why != "" {
		add("last run", why)
	} else {
		add("last run", string(s.LastStopReason))
	}
	if s.Unread {
		add("unread", "yes")
	}
	add("model", ModelName(s.Model))
	add("messages", fmt.Sprint(s.Messages))
	add("usage", Cost(s.Usage))
	add("last said", OneLine(s.LastText, LineWidth))
	return pairs
}

// ModelName is how set-model takes a model, or that none is chosen.
func ModelName(m protocol.ModelInfo) string {
	if m.Provider == "" {
		return "none: nous setup"
	}
	name := m.Provider + "/" + m.Name
	if m.BaseURL != "" {
		name += " at " + m.BaseURL
	}
	return name
}

// contextFill says how much of the model's context the session fills.
func contextFill(c protocol.ContextInfo) string {
	fill := fmt.Sprintf("about %d tokens", c.Tokens)
	if c.Window > 0 {
		fill = fmt.Sprintf("about %d of %d tokens (%d %%)", c.Tokens, c.Window, 100*c.Tokens/c.Window)
	}
	if c.Tools > 0 {
		fill += fmt.Sprintf("; definitions of tools take about %d", c.Tools)
	}
	return fill
}

// failure says why a run failed, "" where it did not.
func failure(last *protocol.LastRun) string {
	if last == nil || last.Error == nil {
		return ""
	}
	return "failed: " + protocol.Coded(last.Error.Code, last.Error.Message)
}

// State are what a session and the daemon are doing. tree is the session's worktree.
func State(s protocol.State, folder, tree string) [][2]string {
	pairs := [][2]string{{"session", cmp.Or(s.SessionID, "the active one")}, {"run state", string(s.RunState)}}
	add := func(key, value string) {
		if value != "" {
			pairs = append(pairs, [2]string{key, value})
		}
	}
	add("folder", folder)
	add("worktree", tree)
	add("run", s.RunID)
	if s.RunID == "" {
		add("last run", failure(s.LastRun))
	}
	add("steering mode", string(s.SteeringMode))
	add("follow-up mode", string(s.FollowUpMode))
	add("pending", fmt.Sprintf("%d steer, %d follow-up", s.PendingCounts.Steer, s.PendingCounts.FollowUp))
	for _, in := range s.Queued.Inputs {
		add("  "+KindWord(in.Kind), in.InputID+"  "+OneLine(in.Text, LineWidth))
	}
	if len(s.Queued.Inputs) == 0 { // they are only counted
		for _, text := range s.Queued.Steer {
			add("  steer", OneLine(text, LineWidth))
		}
		for _, text := range s.Queued.FollowUp {
			add("  follow-up", OneLine(text, LineWidth))
		}
	}
	if s.Partial != nil {
		add("saying", OneLine(s.Partial.Text, LineWidth))
	}
	if s.Daemon.Epoch == "" {
		add("daemon", "says no more")
		return pairs
	}
	add("approvals", string(s.ApprovalMode))
	for _, q := range s.PendingApprovals {
		key := "  waits"
		if q.SessionID != s.SessionID {
			key = "  elsewhere"
		}
		add(key, q.ApprovalID+"  "+approval.Summary(q, LineWidth))
	}
	add("model", ModelName(s.Model))
	add("context", contextFill(s.Context))
	add("active tools", cmp.Or(strings.Join(s.ActiveTools, ", "), "none"))
	if kind := s.SessionState.Kind(); kind == jsontext.KindBeginObject && string(s.SessionState) != "{}" {
		add("session state", OneLine(string(s.SessionState), LineWidth))
	}
	for _, asset := range s.Assets {
		add("asset", fmt.Sprintf("%s %s (%s)", asset.AssetID, asset.Path, asset.MediaType))
	}
	add("usage", fmt.Sprintf("%d in, %d out", s.Usage.InputTokens, s.Usage.OutputTokens))
	if s.Usage.Cost != nil {
		add("cost", Money(s.Usage.Cost))
	}
	for _, run := range s.Runs {
		if run.RunID != s.RunID {
			add("also "+string(run.RunState), run.RunID+" in "+run.SessionID)
		}
	}
	add("last event", fmt.Sprint(s.LastSeq))
	add("daemon", fmt.Sprintf("%s, pid %d, since %s, epoch %s", s.Daemon.Version, s.Daemon.PID,
		s.Daemon.StartedAt.Local().Format(time.DateTime), s.Daemon.Epoch))
	return pairs
}

// statusLines is how many lines of one kind a status has.
const statusLines = 8

// Joined is one object with the members of two, neither of which is empty.
func Joined(x, y jsontext.Value) []byte {
	x, y = bytes.TrimSpace(x), bytes.TrimSpace(y)
	return append(append(bytes.TrimSuffix(bytes.Clone(x), []byte("}")), ','), bytes.TrimPrefix(y, []byte("{"))...)
}

// Daemon are how a daemon is doing. version says that it is of another than this program.
func Daemon(s protocol.State, t protocol.Tools, version string, now time.Time) [][2]string {
	p := statusPairs{now: now}
	p.daemon(s.Daemon, version)
	p.add("model", ModelName(s.Model))
	p.sessions(s)
	p.tools(t)
	p.health(s)
	return p.pairs
}

// statusPairs are the lines of a status.
type statusPairs struct {
	now   time.Time
	pairs [][2]string
}

func (p *statusPairs) add(key, value string) {
	p.pairs = append(p.pairs, [2]string{key, OneLine(value, 2*LineWidth)})
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
		Lasting(p.now.Sub(d.StartedAt)), d.StartedAt.Local().Format(time.DateTime)))
	if other != "" {
		p.add("  version", other)
	}
}

func (p *statusPairs) sessions(s protocol.State) {
	var working, waiting []string
	for _, run := range s.Runs {
		line := strings.TrimSpace(run.SessionID + " " + OneLine(run.Title, 40))
		switch {
		case run.WaitingFor != "":
			continue // its approval is listed
		case run.Working != nil:
			line += fmt.Sprintf(": in %s for %s", cmp.Or(run.Working.ToolName, "a call of the model"),
				Lasting(p.now.Sub(run.Working.Since)))
		}
		working = append(working, line)
	}
	for _, q := range s.PendingApprovals {
		waiting = append(waiting, fmt.Sprintf("%s asks: %s", q.ApprovalID, approval.Summary(q, LineWidth)))
	}
	text := fmt.Sprintf("%d running, %d waiting for your approval", len(working), len(waiting))
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
				used += " " + Lasting(old) + " ago"
			}
		}
		p.add("disk", fmt.Sprintf("%s in %s, %s free", used, d.Path, format.Size(d.FreeBytes)))
	}
	var failed []string
	for _, e := range s.LastErrors {
		failed = append(failed, strings.TrimSpace(e.At.Local().Format(time.DateTime)+" "+OneLine(e.Message, 2*LineWidth)+" "+
			e.SessionID))
	}
	p.add("errors", map[bool]string{true: "none since the start", false: "the last ones:"}[len(failed) == 0])
	p.some("  at", failed)
}

// fleet says whether the daemon is in its fleet, and what does not work there.
func (p *statusPairs) fleet(f protocol.FleetState) {
	text := fmt.Sprintf("%s at %s, %s %s", f.Name, f.Server,
		map[bool]string{true: "in it for", false: "away for"}[f.Connected], Lasting(p.now.Sub(f.Since)))
	if f.Connected {
		text += fmt.Sprintf(", events sent up to %d", f.PublishedSeq)
	}
	p.add("fleet", text)
	var wrong []string
	for _, why := range f.Problems {
		wrong = append(wrong, OneLine(why, 2*LineWidth))
	}
	p.some("  wrong", wrong)
}

// Worktree is a worktree in one line.
func Worktree(repo, branch string) string {
	text := OneLine(repo, 60)
	if branch == "" {
		return text + ", no branch"
	}
	return text + ", branch " + OneLine(branch, 100)
}
