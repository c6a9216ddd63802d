package pick

import tea "charm.land/bubbletea/v2"

// Typed is a line that is being typed outside of an overlay of this package. The zero Typed is
// empty and a filter: of at most 1 KiB, and what is beyond is cut.
type Typed struct{ line line }

// NewText is a line for a text that is sent. What does not fit in most bytes is refused whole.
func NewText(most int) Typed { return Typed{line{most: most}} }

// Update takes a key or a paste and tells whether it was one for the line.
func (t *Typed) Update(msg tea.Msg) bool { return t.line.update(msg) }

// Text is what was typed.
func (t *Typed) Text() string { return t.line.text }

// Refusal says that the last Update or Set did not fit, and changed nothing or left nothing; "": it did.
func (t *Typed) Refusal() string { return t.line.refusal() }

// Set replaces what was typed; the cursor is at its end.
func (t *Typed) Set(text string) {
	t.line = line{most: t.line.most}
	t.line.insert(text)
}

// View is the line in exactly width cells, with the column of the cursor.
func (t *Typed) View(width int) (text string, column int) { return t.line.view(width) }
