package runloop

import (
	"context"
	"slices"

	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
)

type (
	// environmentIn is where the session takes place, for a model call that has to
	// report it. The reply says that the journal has it.
	environmentIn struct {
		ticket ticket
		gen    int
		taken  session.EnvironmentTaken
	}
	// leftOutIn are the instructions that a model call does without.
	leftOutIn struct {
		gen      int
		problems []string
	}
)

func (in environmentIn) step(m *machine) {
	if in.gen == m.gen {
		m.record(in.taken)
	}
	m.reply(in.ticket, nil)
}

func (in leftOutIn) step(m *machine) {
	if in.gen != m.gen {
		return
	}
	for _, problem := range in.problems {
		if !slices.Contains(m.leftOut, problem) {
			m.publish(protocol.Warning{Ref: m.turnRef(), Code: protocol.WarningSkillLeftOut, Message: problem})
		}
	}
	m.leftOut = in.problems
}

// system is what the model of a call is told before the conversation. What it learns of the surroundings and from the
// servers that are on is taken once and
// journaled before it is sent, so that the next request begins with the same bytes,
// after a restart as well. A server that comes later is reported at the end.
func (l *loop) system(ctx context.Context, gen int, call modelCall, on []string) (string, error) {
	taken, changed := l.env.refreshEnvironment(ctx, call.environment, call.from, on)
	if changed {
		c := newCall()
		if err := l.post(ctx, environmentIn{c, gen, taken}); err != nil {
			return "", err
		}
		if _, err := l.await(ctx, c.reply); err != nil {
			return "", err
		}
	}
	text, _, problems := l.env.Instructions.System(call.from.Workdir, taken.Text, call.window)
	if len(problems) > 0 {
		if err := l.post(ctx, leftOutIn{gen, problems}); err != nil {
			return "", err
		}
	}
	text += serversPart(taken.Servers, on, call.window)
	if call.as != "" {
		text += "\n\n" + call.as
	}
	return text, nil
}

// refreshEnvironment completes what was taken of the surroundings, and reports whether there was
// anything to add.
func (e *env) refreshEnvironment(ctx context.Context, taken session.EnvironmentTaken, from model.Scope,
	on []string,
) (session.EnvironmentTaken, bool) {
	changed := !taken.Of(from.Workdir)
	if changed {
		taken = session.EnvironmentTaken{Workdir: from.Workdir, Text: e.Instructions.Environment(ctx, from.Workdir)}
	}
	if len(on) > 0 {
		before := len(taken.Servers)
		taken.Servers = serversSaid(taken.Servers, e.Tools.Servers(from), on)
		changed = changed || len(taken.Servers) > before
	}
	return taken, changed
}

func (h *Hub) getSystem(ctx context.Context, p protocol.GetSystemParams) (a protocol.Answer[protocol.System],
	err error,
) {
	type view struct {
		toolset
		id    string
		taken session.EnvironmentTaken
	}
	v, err := readSession(ctx, h, p.SessionID, func(m *machine) (view, error) {
		return view{m.toolset(), m.s.ID, m.s.Environment}, nil
	})
	if err != nil {
		return a, err
	}
	a.Later = func(ctx context.Context) (protocol.System, error) {
		out := protocol.System{SessionID: v.id, Files: []string{}, LeftOut: []string{}}
		if h.env.Instructions == nil {
			return out, nil
		}
		var on []string
		if v.any() {
			on = v.offer(h.env.tools(ctx, v.from, stateWait)).servers
		}
		taken, _ := h.env.refreshEnvironment(ctx, v.taken, v.from, on)
		text, files, problems := h.env.Instructions.System(v.from.Workdir, taken.Text, v.window)
		text += serversPart(taken.Servers, on, v.window)
		out.Text, out.Files, out.LeftOut = text, append(out.Files, files...), append(out.LeftOut, problems...)
		return out, nil
	}
	return a, nil
}
