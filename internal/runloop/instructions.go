package runloop

import (
	"context"
	"slices"

	"noused/internal/protocol"
	"noused/internal/session"
)

type (
	// environmentIn is where the session takes place, for a model call that has to
	// tell of it. The reply says that the journal has it.
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

// system is what the model of a call is told before the conversation. What it is
// told of the surroundings is taken once and journaled before it is sent, so that
// the next request begins with the same bytes, after a restart as well.
func (l *loop) system(ctx context.Context, gen int, call modelCall) (string, error) {
	taken := call.environment
	if !taken.Of(call.from.Workdir) {
		taken = session.EnvironmentTaken{Workdir: call.from.Workdir, Text: l.env.Instructions.Environment(ctx, call.from.Workdir)}
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
	return text, nil
}

func (h *Hub) getSystem(ctx context.Context, p protocol.GetSystemParams) (a protocol.Answer[protocol.System], err error) {
	type view struct {
		id     string
		at     string
		taken  session.EnvironmentTaken
		window int64
	}
	v, err := look(ctx, h, p.SessionID, func(m *machine) (view, error) {
		return view{m.s.ID, m.workdir(), m.s.Environment, m.window()}, nil
	})
	if err != nil {
		return a, err
	}
	a.Later = func(ctx context.Context) (protocol.System, error) {
		out := protocol.System{SessionID: v.id, Files: []string{}, LeftOut: []string{}}
		if h.env.Instructions == nil {
			return out, nil
		}
		if !v.taken.Of(v.at) {
			v.taken.Text = h.env.Instructions.Environment(ctx, v.at)
		}
		text, files, problems := h.env.Instructions.System(v.at, v.taken.Text, v.window)
		out.Text, out.Files, out.LeftOut = text, append(out.Files, files...), append(out.LeftOut, problems...)
		return out, nil
	}
	return a, nil
}
