// Package composer is where a text is written: the input, the menu of what it may go on with,
// the texts that were sent before, and the images that go with the next one.
//
// A Composer belongs to one goroutine; what takes time it has run beside the screen, and gets
// back as a Completed. It refuses to send anything.
package composer

import (
	"context"
	"fmt"

	"noused/internal/tui/slash"

	tea "charm.land/bubbletea/v2"
)

// Composer is where a text is written: the input, the menu of what it may go on with, the
// texts that were sent before, and the images that go with the next one.
type Composer struct {
	*input
	Menu    menu
	History *history
	Images  []slash.Image

	start func(func(context.Context) tea.Msg) // runs a search beside the screen, and sends what it returns
	place func() slash.Place                  // where a text goes
}

// New makes one whose texts are kept in a file; the error says why those of before are
// not there, and the composer is of use all the same.
func New(
	file string, start func(func(context.Context) tea.Msg), place func() slash.Place,
) (w *Composer, err error) {
	w = &Composer{input: newInput(), start: start, place: place}
	w.History, err = LoadHistory(file)
	return w, err
}

// OpenPaste puts the folded paste before the cursor in its place.
func (w *Composer) OpenPaste() error {
	err := w.open()
	w.Complete()
	return err
}

// Remember keeps a text among those that Up brings back.
func (w *Composer) Remember(text string) error { return w.History.add(text) }

// Older shows the text that was sent before the one shown, newer the one after it.
func (w *Composer) Older() { w.recall(w.History.older(w.Text())) }

func (w *Composer) Newer() { w.recall(w.History.newer()) }

func (w *Composer) recall(text string, ok bool) {
	if ok {
		w.Replace(text)
	}
}

// Replace has a text in the place of what is written.
func (w *Composer) Replace(text string) {
	w.Set(text)
	w.Menu.Close()
}

// Attach takes one more image along with the next text, of which all together have at most a
// number of bytes.
func (w *Composer) Attach(data string, most int) error {
	have := 0
	for _, i := range w.Images {
		have += len(i.Data)
	}
	if have+len(data) > most {
		return fmt.Errorf("the image is not taken along: pasted images have at most %d bytes together", most)
	}
	w.Images = append(w.Images, slash.Image{Name: fmt.Sprintf("pasted %d", len(w.Images)+1), Data: data})
	return nil
}
