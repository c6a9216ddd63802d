package transcript

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/client/conversation"
	"noused/internal/protocol"
	"noused/internal/tui/cell"
)

// Focus moves the focus by blocks, towards the end when delta is positive, and
// scrolls to where it is. From nowhere it goes to the last block of the view, or
// the first for a positive delta. Past the last block, and with 0, nothing is in
// focus; past the first it stays.
func (t *Transcript) Focus(delta int) {
	was := t.focus
	t.refocus(delta)
	if t.look.Plain { // it says so in its text
		for _, b := range []*block{was, t.focus} {
			if b != nil {
				b.dirty()
			}
		}
	}
}

func (t *Transcript) refocus(delta int) {
	if delta == 0 || len(t.blocks) == 0 {
		t.focus = nil
		return
	}
	t.clampTop()
	i, step := t.index(t.focus), 1
	switch {
	case delta < 0:
		step = -1
		if i < 0 {
			i = min(t.bottom, len(t.blocks)-1) + 1
		}
	case i < 0:
		i = t.top.block - 1
	}
	for ; delta != 0; delta -= step {
		next := i + step
		for next >= 0 && next < len(t.blocks) && t.blocks[next].Kind == conversation.RunEnd {
			next += step
		}
		if next < 0 {
			break
		}
		if next >= len(t.blocks) {
			t.focus = nil
			t.End()
			return
		}
		i = next
	}
	if i < 0 || i >= len(t.blocks) {
		return
	}
	t.focus = t.blocks[i]
	t.show(i)
}

// index finds a block, from the end; -1 if it is not there.
func (t *Transcript) index(b *block) int {
	for i := len(t.blocks) - 1; b != nil && i >= 0; i-- {
		if t.blocks[i] == b {
			return i
		}
	}
	return -1
}

// show scrolls to a block unless its beginning is in the last view.
func (t *Transcript) show(i int) {
	if t.height == 0 {
		return
	}
	top := t.top
	if t.follow {
		top = t.endTop(t.height)
	}
	if i >= top.block && (i != top.block || top.piece == 0 && top.line == 0) {
		rows := 0
		for at, ok := top, true; ok && rows < t.height; at, ok = t.nextPiece(at) {
			if at.block == i {
				return
			}
			rows += len(t.piece(at).lines) - at.line
		}
	}
	t.top = t.up(place{i, 0, 0}, t.height/3)
	t.follow = t.below(t.top, t.height+1) <= t.height
}

// ToggleFocused folds or unfolds the block in focus, if there is something to
// fold.
func (t *Transcript) ToggleFocused() {
	b := t.focus
	if b == nil || !b.foldable() {
		return
	}
	if t.isOpen(b) {
		b.fold = closed
	} else {
		b.fold = opened
	}
	b.dirty()
	if i := t.index(b); i >= 0 && !t.follow && t.top.block == i {
		t.top = place{i, 0, 0}
	} else if i >= 0 {
		t.show(i)
	}
}

// ToggleAll unfolds everything, or folds everything again.
func (t *Transcript) ToggleAll() {
	t.unfolded = !t.unfolded
	for _, b := range t.blocks {
		if b.foldable() {
			b.fold = asAll
			b.dirty()
		}
	}
	if !t.follow {
		t.top.piece, t.top.line = 0, 0
	}
}

// Focused is the whole text of the block in focus, for copying: free of what
// could drive a terminal, as it was otherwise. It is empty without a focus.
func (t *Transcript) Focused() string {
	b := t.focus
	if b == nil {
		return ""
	}
	if b.Kind != conversation.Tool {
		return harmless(b.Text.String())
	}
	c := b.Call
	var out strings.Builder
	out.WriteString(c.Name)
	if args := jsontext.Value(strings.Clone(string(c.Arguments))); len(args) > 0 {
		_ = args.Indent() // what is not JSON is shown as it is
		out.WriteString(" " + string(args))
	}
	out.WriteString("\n")
	switch {
	case c.Result != "":
		out.WriteString("\n" + c.Result + "\n")
	case c.Err != nil:
		out.WriteString("\n" + protocol.Coded(c.Err.Code, c.Err.Message) + "\n")
	case len(c.Output) > 0:
		out.WriteString("\n" + string(c.Output))
	}
	return harmless(out.String())
}

// FocusedSaid is the id of the user's message in focus, or of the one that what is in focus came of; "" without a
// focus, or above all messages.
func (t *Transcript) FocusedSaid() string {
	for i := t.index(t.focus); i >= 0; i-- {
		if b := t.blocks[i]; b.Kind == conversation.User {
			id, _ := strings.CutPrefix(b.Key, "m:")
			return id
		}
	}
	return ""
}

// LastAnswer is what the model said last, "" where it has said nothing.
func (t *Transcript) LastAnswer() string {
	for _, b := range slices.Backward(t.blocks) {
		if b.Kind == conversation.Assistant {
			return harmless(b.Text.String())
		}
	}
	return ""
}

// harmless sanitises a text but keeps its tabs.
func harmless(text string) string {
	parts := strings.Split(text, "\t")
	for i, p := range parts {
		parts[i] = cell.Sanitize(p)
	}
	return strings.Join(parts, "\t")
}
