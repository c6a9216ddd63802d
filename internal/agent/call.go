package agent

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/acp"
	"noused/internal/budget"
	"noused/internal/format"
	"noused/internal/model"
)

const (
	// maxCalls is how many calls an agent may make in a turn.
	maxCalls = 10_000
	// maxHeld is what is kept of other things that an agent says while a call is waited for,
	// in bytes.
	maxHeld = 512 << 10
	// maxText bounds the text of a result, in bytes.
	maxText = 50 << 10
	// maxOpen bounds what is kept of calls that are under way, in bytes.
	maxOpen = 32 << 20
	maxName = 200 // of a call, in bytes
	maxID   = 1 << 10
	// cutText is the result of a call that was under way when its agent ended.
	cutText = "unknown: it may or may not have happened"
	// stoppedText is the result of one that nobody waits for any more.
	stoppedText = "stopped; it may have done part of its work; check"
)

// call is what is known of a call of an agent's.
type call struct {
	id      string // ours, once it is told
	name    string
	kind    string
	status  string
	input   jsontext.Value
	output  jsontext.Value
	content []acp.ToolContent
	places  []acp.Location
	raw     jsontext.Value // what the agent has said of it first
	ask     *acp.Request   // not nil: it waits for leave
	options []acp.PermissionOption

	allowed bool // after it was asked about
	told    bool // to the run loop
	placed  bool // its places were told
	over    bool
	said    int    // bytes of its text that have been told
	size    [4]int // of the lines that input, output, content and places are from, in bytes
	choice  int    // what the options take, in bytes
}

// due reports that the run loop is to hear of the call now.
func (c *call) due() bool {
	return !c.over && !c.told && (c.ask != nil || c.final() || c.status == acp.InProgress && ourTool(c.name) == "")
}

func (c *call) final() bool { return c.status == acp.Completed || c.status == acp.Failed }

// tell is the call as the run loop has it.
func (c *call) tell(newID func(string) string) *model.ToolCall {
	c.told, c.placed, c.id, c.said = true, false, newID("call-"), 0
	return &model.ToolCall{ID: c.id, Name: c.name, Arguments: []byte(c.input)}
}

// merge takes in what an event says of a call, once there is room for it.
func (t *turn) merge(ctx context.Context, e event) (*call, error) {
	said := e.call
	c := t.calls[said.ID]
	if c == nil {
		if len(t.calls) >= maxCalls {
			return nil, fmt.Errorf("%s has made more than %d calls in one turn", t.s.name, maxCalls)
		}
		c = &call{}
		t.calls[strings.Clone(said.ID)] = c
		t.order = append(t.order, c)
	}
	if c.over {
		if e.ask != nil {
			e.ask.Reply(acp.Selected(""))
		}
		return c, nil
	}
	c.kind, c.status = cmp.Or(said.Kind, c.kind), cmp.Or(said.Status, c.status)
	if name := cmp.Or(e.tool, said.Title, said.Kind); name != "" && !c.told {
		c.name = cmp.Or(e.tool, c.toolNamed(), oneLine(name))
	}
	c.name = cmp.Or(c.name, "tool")
	if c.ask == nil && e.ask == nil && !c.told && t.isServed(c.name) { // which is told as ours
		t.end(c)
		return c, nil
	}
	// What was told stays: it is what the rules, and a person, have allowed.
	if !c.told && (said.RawInput.Kind() == '{' || said.RawInput != nil && said.RawInput.Kind() != 'n' && c.input == nil) {
		c.input = said.RawInput
		t.keep(&c.size[0], e.line)
	}
	if said.RawOutput != nil {
		c.output = said.RawOutput
		t.keep(&c.size[1], e.line)
	}
	if said.Content != nil {
		c.content = said.Content
		t.keep(&c.size[2], e.line)
	}
	if said.Locations != nil {
		c.places = said.Locations
		t.keep(&c.size[3], e.line)
	}
	if e.ask != nil {
		c.ask, c.options = e.ask, e.options
		t.keep(&c.choice, bytesOf(c.options))
	}
	if t.held > maxOpen {
		return nil, fmt.Errorf("%s has more than %d MiB of calls under way", t.s.name, maxOpen>>20)
	}
	err := t.s.calls.Grow(ctx, t.held-t.s.calls.Size())
	if errors.Is(err, budget.ErrTaken) {
		err = fmt.Errorf("%s has %d KiB of calls under way, and those of other sessions have the memory for more: prompt "+
			"again when they have ended", t.s.name, t.held>>10)
	}
	return c, err
}

// keep counts what replaces something of a call.
func (t *turn) keep(size *int, line int) { t.held, *size = t.held-*size+line, line }

// toolNamed is the name that it has once a tool was named, which a title does not replace.
func (c *call) toolNamed() string {
	if c.name != "" && !strings.Contains(c.name, " ") {
		return c.name
	}
	return ""
}

func oneLine(text string) string { return format.Clip(format.Line(text), maxName) }

// end is called when nothing more is heard of a call.
func (t *turn) end(c *call) {
	for i := range c.size {
		t.keep(&c.size[i], 0)
	}
	t.keep(&c.choice, 0)
	_ = t.s.calls.Grow(context.Background(), min(0, t.held-t.s.calls.Size())) // gives back
	c.over, c.input, c.output, c.content, c.places, c.raw, c.options = true, nil, nil, nil, nil, nil, nil
	for i, other := range t.order {
		if other == c {
			t.order = append(t.order[:i], t.order[i+1:]...)
			return
		}
	}
}

// byID is the call that the run loop knows by that id.
func (t *turn) byID(id string) *call {
	if t == nil {
		return nil
	}
	for _, c := range t.order {
		if c.id == id && c.told {
			return c
		}
	}
	return nil
}

// reject answers what the run loop has not allowed.
func (t *turn) reject() {
	for _, c := range append([]*call{}, t.order...) {
		if c.told && c.ask != nil {
			c.answer(acp.RejectOnce, "reject_always")
			t.end(c)
		}
	}
}

// answer answers what the agent asks with the first of these kinds of options that it
// offers, and cancels where it offers none.
func (c *call) answer(kinds ...string) {
	option := ""
	for _, kind := range kinds {
		for _, o := range c.options {
			if option == "" && o.Kind == kind {
				option = o.ID
			}
		}
	}
	c.ask.Reply(acp.Selected(option))
	c.ask = nil
}

// Call waits for a call, which may happen now.
func (s *Session) Call(ctx context.Context, inv model.Invocation, progress func(model.ToolUpdate),
	may func(ours model.ToolCall) bool,
) (model.ToolResult, *model.ToolCall) {
	if err := s.enter(ctx); errors.Is(err, model.ErrPaused) {
		return model.ToolResult{Paused: true}, nil
	} else if err != nil {
		return model.Failed("aborted", stoppedText), nil
	}
	defer s.leave()
	s.mu.Lock()
	t := s.turn
	s.mu.Unlock()
	c := t.byID(inv.ID)
	if c == nil {
		return model.Failed(model.Interrupted, cutText), nil
	}
	c.allowed = c.ask != nil
	switch {
	case c.ask == nil:
	case inv.Option == "always":
		c.answer(acp.AllowAlways)
	case inv.Option == "once":
		c.answer(acp.AllowOnce)
	default: // nobody was asked: the session allows everything
		c.answer(acp.AllowOnce, acp.AllowAlways)
	}
	return s.await(ctx, t, c, progress, may)
}

// await waits for the end of a call. What else the agent does meanwhile is kept for the
// next Stream. Where that cannot wait, the call is told as one that goes on.
func (s *Session) await(ctx context.Context, t *turn, c *call, progress func(model.ToolUpdate),
	may func(ours model.ToolCall) bool,
) (model.ToolResult, *model.ToolCall) {
	var held []event
	bytes := 0
	defer func() { t.in.unget(held...) }()
	if len(c.places) > 0 && !c.placed {
		c.placed = true
		progress(model.ToolUpdate{Update: placesOf(c)})
	}
	for {
		if text := c.news(); text != "" {
			progress(model.ToolUpdate{Delta: text})
		}
		if c.final() {
			s.gotOn()
			res := c.result()
			t.end(c)
			return res, nil
		}
		e, err := s.next(ctx, t)
		if errors.Is(err, model.ErrPaused) && ctx.Err() == nil {
			return model.ToolResult{Paused: true}, nil
		}
		if err != nil {
			s.Cut()
			select {
			case <-t.over:
			case <-s.ctx.Done():
			}
			return model.Failed("aborted", stoppedText), nil
		}
		switch {
		case e.kind == called && t.calls[e.call.ID] == c:
			_, _ = t.merge(ctx, e)
		case e.kind == wanted && c.is(&e.serving.call) && may(e.serving.call):
			t.end(c)
			return model.ToolResult{}, &e.serving.call
		case e.kind == used:
			s.spent(e.usage)
		case e.kind == steered:
			return c.goesOn("(it goes on)"), nil
		case e.kind == gone || e.kind == choked || e.kind == ended:
			held = append(held, e)
			switch {
			case e.kind != ended:
			case t.isLast(e.prompt):
				t.end(c)
			default:
				c.told = false // once more, if it goes on in the prompt that was sent since
			}
			return model.Failed(model.Interrupted, cutText), nil
		default:
			held, bytes = append(held, e), bytes+e.size()
			if e.kind == asked || e.kind == wanted || bytes > maxHeld {
				return c.goesOn("(it goes on while something else is asked)"), nil
			}
		}
	}
}

// goesOn is the result of a call that is told once more, when there is something to tell.
func (c *call) goesOn(why string) model.ToolResult {
	c.told = false
	return model.ToolResult{OK: true, Text: format.Clip(c.text(), maxText) + why}
}

// placesOf are the places in files that a call is about, as clients are told.
func placesOf(c *call) []byte {
	out, err := json.Marshal(struct {
		Locations []acp.Location `json:"locations"`
	}{c.places})
	if err != nil {
		return nil
	}
	return out
}

// news is what of the call's text has not been told.
func (c *call) news() string {
	text := c.text()
	if len(text) <= c.said {
		c.said = len(text)
		return ""
	}
	fresh := text[c.said:]
	c.said = len(text)
	return fresh
}

// text is what a call shows.
func (c *call) text() string {
	var out strings.Builder
	for _, part := range c.content {
		if out.Len() > maxText {
			break
		}
		switch {
		case part.Type == "diff":
			diff(&out, part)
		case part.Content != nil && part.Content.Text != nil:
			out.WriteString(*part.Content.Text)
			if !strings.HasSuffix(*part.Content.Text, "\n") {
				out.WriteByte('\n')
			}
		case part.Content != nil:
			fmt.Fprintf(&out, "[%s %s]\n", part.Content.Type, part.Content.URI)
		}
	}
	return format.Clip(strings.ToValidUTF8(out.String(), "\uFFFD"), maxText)
}

// diff writes a change of a file: all lines that it had, and all that it has.
func diff(out *strings.Builder, part acp.ToolContent) {
	fmt.Fprintf(out, "%s\n", part.Path)
	write := func(mark string, text *string) {
		if text == nil {
			return
		}
		for line := range strings.Lines(format.Clip(*text, maxText)) {
			out.WriteString(mark + strings.TrimSuffix(line, "\n") + "\n")
		}
	}
	write("-", part.Old)
	write("+", part.New)
}

// result is that of a call that has ended.
func (c *call) result() model.ToolResult {
	text := strings.TrimSuffix(c.text(), "\n")
	if text == "" && len(bytes.TrimSpace(c.output)) > 0 && c.output.Kind() != 'n' {
		text = string(c.output)
		var plain string
		if json.Unmarshal(c.output, &plain) == nil {
			text = plain
		}
		text = format.Clip(strings.ToValidUTF8(text, "\uFFFD"), maxText)
	}
	if c.status == acp.Failed {
		res := model.Failed("tool_failed", cmp.Or(text, "the call failed"))
		res.Text = cmp.Or(text, res.Text)
		return res
	}
	return model.ToolResult{OK: true, Text: text}
}
