package plain

import (
	"context"
	"strings"

	"github.com/google/uuid"

	"noused/internal/protocol"
	"noused/internal/tui/slash"
)

// shellLine is a line for the shell whose output is said as it arrives.
type shellLine struct {
	line string
	text string // what was said of its output
}

// maxShellText is how much of what was said is kept to tell what was not, in bytes.
const maxShellText = 64 << 10

// shellLine does a line for the shell.
func (p *plain) shellLine(cmd *slash.Command, line string) {
	id := uuid.NewString()
	if p.shells == nil {
		p.shells = map[string]*shellLine{}
	}
	p.shells[id] = &shellLine{line: strings.TrimSpace(line)}
	p.do(cmd.Name, func(ctx context.Context, at slash.Place) slash.Outcome {
		at.OutputID = id
		o := cmd.Run(ctx, at, line)
		o.Shell = id
		return o
	})
}

func (p *plain) shellSays(e protocol.Status) {
	s := p.shells[e.OutputID]
	if s == nil {
		return
	}
	if s.text == "" {
		p.sayf("$ %s", s.line)
	}
	text := strings.TrimSuffix(e.Message, "\n")
	if len(s.text) < maxShellText {
		s.text += text + "\n"
	}
	p.sayf("%s", text)
}

// shellEnded is what is still to be said of a line that has ended. Of one that joins the
// conversation its message says so.
func (p *plain) shellEnded(o slash.Outcome) slash.Outcome {
	s := p.shells[o.Shell]
	if s == nil || s.text != "" && o.Err == nil && o.Info == "" {
		return o
	}
	delete(p.shells, o.Shell)
	if s.text != "" && o.Info != "" {
		_, result, _ := strings.Cut(o.Info, "\n")
		o.Info = s.rest(result)
	}
	return o
}

// shellNote is what is still to be said of the message by which the conversation has a line
// of this screen whose output was said; known is false for any other text.
func (p *plain) shellNote(text string) (rest string, known bool) {
	for id, s := range p.shells {
		if result, ours := strings.CutPrefix(text, slash.ShellNote(s.line)+"\n"); ours && s.text != "" {
			delete(p.shells, id)
			return s.rest(result), true
		}
	}
	return "", false
}

// rest is what was not said yet of a result, which begins with how the line failed, if it did.
func (s *shellLine) rest(result string) string {
	result = strings.TrimSpace(result)
	failed := ""
	if strings.HasPrefix(result, "tool_") {
		failed, result, _ = strings.Cut(result, "\n")
	}
	if left, ok := strings.CutPrefix(result, strings.TrimSpace(s.text)); ok {
		return strings.TrimSpace(strings.TrimSpace(left) + "\n" + failed)
	}
	return failed
}
