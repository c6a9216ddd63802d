package pick

import tea "charm.land/bubbletea/v2"

// Typed is a line that is being typed outside of an overlay of this package, of
// at most 1 KiB. The zero Typed is empty.
type Typed struct{ line line }

// Update takes a key or a paste and tells whether it was one for the line.
func (t *Typed) Update(msg tea.Msg) bool { return t.line.update(msg) }

// Text is what was typed.
func (t *Typed) Text() string { return t.line.text }

// Set replaces what was typed; the cursor is at its end.
func (t *Typed) Set(text string) {
	t.line = line{}
	t.line.insert(text)
}

// View is the line in exactly width cells, with the column of the cursor.
func (t *Typed) View(width int) (text string, column int) { return t.line.view(width) }
