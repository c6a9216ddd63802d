package tui

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"noused/internal/format"
	"noused/internal/protocol"
	"noused/internal/tui/cell"
	"noused/internal/tui/transcript"
)

var spinner = []string{"⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"}

const separator = " · "

// hud are the lines at the bottom: what the daemon is doing, and the keys that
// matter now. A low terminal has one.
func (m *model) hud() []string {
	doing, side := m.doing(), m.connection()
	if m.height < 10 {
		return []string{m.spread(append(doing, m.facts()...), side)}
	}
	return []string{m.spread(doing, side), m.spread(m.facts(), m.hint())}
}

// runWord is the run state in words.
func (ds *daemons) runWord() string {
	switch {
	case !ds.known && ds.offline == nil:
		return "connecting"
	case ds.offline != nil:
		return "no connection"
	case !ds.running():
		return "idle"
	default:
		return cell.Line(string(ds.state.RunState), 20)
	}
}

func (m *model) doing() []part {
	if !m.known {
		return []part{{m.runWord(), m.theme.Dim, 0}}
	}
	state := part{m.runWord(), m.theme.Dim, 0}
	if m.running() && m.offline == nil {
		state.style = m.theme.Accent
		state.text = spinner[m.frame%len(spinner)] + " " + state.text
		if len(m.tools) > 0 {
			state.text += " " + cell.Line(m.tools[len(m.tools)-1].name, 30)
		}
		if m.approval.ID() != "" {
			state = part{"? waits for your answer", m.theme.Warn, 0}
		} else if !m.since.IsZero() {
			state.text += " " + format.Elapsed(m.opts.Now().Sub(m.since))
		}
	}
	parts := []part{state}
	if n := len(m.working); n > 0 {
		parts = append(parts, part{spinner[m.frame%len(spinner)] + " /" + m.working[n-1], m.theme.Accent, 2})
	}
	if n := m.state.PendingCounts.Steer + m.state.PendingCounts.FollowUp; n > 0 {
		parts = append(parts, part{fmt.Sprintf("%d queued", n), m.theme.Warn, 1})
	}
	if n := m.unsentComments(); n > 0 {
		parts = append(parts, part{format.Count(n, "comment") + " unsent", m.theme.Warn, 1})
	}
	switch as := m.place().RunAs; {
	case m.planning():
		parts = append(parts, part{"plan mode", m.theme.Warn, 1})
	case as != "" && m.running():
		parts = append(parts, part{"as " + cell.Line(as, 30), m.theme.Warn, 1})
	}
	parts = append(parts, m.approvalParts()...)
	switch s := m.state; {
	case s.Model.Name != "":
		parts = append(parts, part{cell.Line(s.Model.Provider+"/"+s.Model.Name, 60), m.theme.Text, 3})
	case s.Agent != "" && s.Agent != protocol.OwnAgent: // it has not said what its model is
		parts = append(parts, part{cell.Line(s.Agent, 60), m.theme.Text, 3})
	}
	title := part{cell.Truncate(m.path(), 40), m.theme.Text, 4}
	if m.state.Parent != nil { // who went into one of many wants to know which
		title.rank = 2
	}
	parts = append(parts, title)
	parts = append(parts, m.whereParts()...)
	others := 0
	for _, r := range m.state.Runs {
		if r.SessionID != m.state.SessionID {
			others++
		}
	}
	if others > 0 {
		parts = append(parts, part{format.Count(others, "other run"), m.theme.Dim, 5})
	}
	return parts
}

func (m *model) connection() []part {
	switch {
	case m.offline == nil && !m.known:
		return []part{{"○ connecting", m.theme.Dim, 0}}
	case m.offline == nil:
		return []part{{"● " + cmp.Or(cell.Line(m.opts.Host, 40), "connected"), m.theme.OK, 0}}
	case m.noDaemon():
		return []part{{"○ no daemon", m.theme.Warn, 0}}
	default:
		where := strings.TrimLeft(cell.Line(m.opts.Host, 40)+" ", " ")
		return []part{{"○ " + where + "reconnecting " + format.Elapsed(m.opts.Now().Sub(m.offline.Since)), m.theme.Warn, 0}}
	}
}

// narrow is the width below which the status line says things in fewer words.
const narrow = 60

// facts is the second line: what was used, and the modes that are not the default.
func (m *model) facts() []part {
	if !m.known {
		return nil
	}
	var parts []part
	add := func(rank int, format string, args ...any) {
		parts = append(parts, part{fmt.Sprintf(format, args...), m.theme.Dim, rank})
	}
	word, tokens, in, took := "context ", " tokens", " in ", "took "
	if m.width < narrow {
		word, tokens, in, took = "ctx ", "", "/", ""
	}
	if m.lastLine != "" {
		parts = append(parts, part{m.lastLine, m.theme.Accent, 0})
	}
	if c := m.state.Context; c.Window > 0 {
		add(1, "%s%d%%", word, min(100*c.Tokens/c.Window, 999))
	} else if c.Tokens > 0 {
		add(1, "%s%s%s", word, format.Short(c.Tokens), tokens)
	}
	if u := m.state.Usage; u.InputTokens+u.OutputTokens > 0 {
		add(2, "%s%s%s out", format.Short(u.InputTokens), in, format.Short(u.OutputTokens))
		if u.Cost != nil && u.Cost.Amount > 0 {
			add(1, "%s", transcript.Price(*u.Cost))
		}
	}
	if m.took >= time.Second && !m.running() { // the line under the run says less
		add(2, "%s%s", took, format.Elapsed(m.took))
	}
	if m.state.SteeringMode == protocol.ModeAll {
		add(3, "%s", m.keyed("steering-mode", "steering: all"))
	}
	if m.state.FollowUpMode == protocol.ModeAll {
		add(3, "%s", m.keyed("follow-up-mode", "follow-up: all"))
	}
	if m.state.Daemon.Epoch != "" {
		add(6, "%s", format.Count(len(m.state.ActiveTools), "tool"))
	}
	return parts
}

// hint is what the keys do now.
func (m *model) hint() []part {
	hints := []string{m.keyed("help", "help")}
	switch {
	case m.find != nil && m.over == nil && !m.approval.Focused():
		hints = m.findHint()
	case m.over != nil || !m.known || m.offline != nil:
	case m.approval.Focused():
		hints = []string{"Esc to the input", hints[0]}
	case m.approval.ID() != "":
		hints = []string{m.keyed("answer", "answer"), m.keyed("stop", "abort"), hints[0]}
	case m.goesUp():
		hints = []string{m.keyed("stop", "to the parent"), hints[0]}
		if m.running() {
			hints = append([]string{"/abort"}, hints...)
		}
	case m.input.Empty() && m.focusesChild():
		hints = []string{m.keyed("send", "into the child session"), hints[0]}
	case m.running() && m.input.Empty():
		hints = []string{m.keyed("stop", "abort"), hints[0]}
	case m.running():
		hints = []string{m.keyed("send", "steer"), m.keyed("queue", "follow-up"), m.keyed("stop", "abort")}
	case m.input.Empty():
		hints = []string{"/ commands", m.keyed("board", "board"), hints[0]}
	default:
		hints = []string{m.keyed("send", "send"), m.keyed("newline", "line")}
	}
	var parts []part
	for _, hint := range hints {
		parts = append(parts, part{hint, m.theme.Dim, 5})
	}
	return parts
}

// keyed is what an action's first key does: "Esc abort".
func (a *appearance) keyed(action, what string) string {
	keys, _, _ := strings.Cut(a.keys.Shown(action), ", ")
	return strings.TrimSpace(keys + " " + what)
}

// spread puts parts at the left and the right of a line, without the least
// important ones where there is no room.
func (a *appearance) spread(left, right []part) string {
	for {
		l, lw := join(left)
		r, rw := join(right)
		gap := a.width - lw - rw
		if gap >= 1 || gap >= 0 && (lw == 0 || rw == 0) {
			return l + strings.Repeat(" ", gap) + r
		}
		side, i := &left, highest(left)
		if j := highest(right); i < 0 || j >= 0 && right[j].rank > left[i].rank {
			side, i = &right, j
		}
		if i < 0 || (*side)[i].rank == 0 && len(left) <= 1 {
			return cell.Truncate(l+" "+r, a.width)
		}
		*side = append(append([]part{}, (*side)[:i]...), (*side)[i+1:]...)
	}
}

func join(parts []part) (text string, width int) {
	styled := make([]string, len(parts))
	for i, p := range parts {
		styled[i] = p.style.Render(p.text)
		width += cell.Width(p.text)
	}
	if len(parts) > 1 {
		width += (len(parts) - 1) * cell.Width(separator)
	}
	return strings.Join(styled, separator), width
}

func highest(parts []part) int {
	at := -1
	for i, p := range parts {
		if at < 0 || p.rank >= parts[at].rank {
			at = i
		}
	}
	return at
}
