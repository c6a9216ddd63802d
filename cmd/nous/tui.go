package main

import (
	"context"
	"io"
	"os"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"noused/cmd/nous/tui"
	"noused/internal/protocol"
)

// openTUI shows a session where there is a terminal to show it on, and help
// where there is none. Asked for plainly it reads and writes any stream; a
// terminal that cannot move its cursor gets that, too.
func (a *app) openTUI(cmd *cobra.Command, plain bool) error {
	terminal := isTerminal(a.in) && isTerminal(a.out.w)
	if !plain && !terminal {
		return cmd.Help()
	}
	if err := a.findSession(cmd); err != nil {
		return err
	}
	if os.Getenv("TERM") == "dumb" && !plain {
		a.notef("this terminal is a dumb one: plain mode")
		plain = true
	}
	if plain {
		a.outStyle.colour, a.errStyle.colour = false, false
	}
	view := &textView{a: a}
	return tui.Run(cmd.Context(), tui.Options{
		Socket: a.socket, Session: a.session, Plain: plain, In: a.in, Out: a.out.w,
		Export: func(ctx context.Context, session, format string, w io.Writer) error {
			doc, err := a.document(ctx, session)
			if err != nil {
				return err
			}
			return exporters[format](w, doc)
		},
		Event: func(ev protocol.Event) { view.event(ev, nil) },
		Entry: func(entry jsontext.Value) error { return a.printEntry(entry, false) },
	})
}
