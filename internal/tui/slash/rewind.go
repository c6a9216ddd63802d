package slash

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"noused/internal/client/actions"
	"noused/internal/format"
	"noused/internal/protocol"
	"noused/internal/tui/cell"
)

// RewindList asks for a choice among the messages that a session can be rewound to, the newest
// first. RewindTo asks for a choice of what to take back since one of them. RewindUndo lists the
// conflicts in the way of taking a rewind back.
type (
	RewindList struct{ Said []protocol.Node }
	RewindTo   struct{ ID, Text string }
	RewindUndo struct{ Plan protocol.Rewound }
)

// rewind is the command: it takes nothing back itself, but the latest rewind.
func rewind(ctx context.Context, p Place, arg string) Outcome {
	if p.Running() {
		return Failed(errors.New("a run is active: rewind when it has ended"))
	}
	if arg == "undo" {
		return UndoRewind(ctx, p, nil)
	}
	refused := Refusal(p.Link, protocol.Rewind, protocol.RewindParams{To: arg, What: protocol.RewindFiles})
	if refused != nil {
		return Failed(Explain(refused, "to rewind"))
	}
	tree, err := actions.ReadTree(ctx, p, p.Scope())
	if err != nil {
		return Failed(err)
	}
	said := actions.Said(tree)
	if arg == "" {
		if len(said) == 0 {
			return Failed(errors.New("nothing was said yet"))
		}
		return Outcome{Show: RewindList{said}}
	}
	i := slices.IndexFunc(said, func(n protocol.Node) bool { return n.ID == arg })
	if i < 0 {
		return Failed(fmt.Errorf("%s: no message of yours on the way to here; /rewind lists them", cell.Line(arg, 80)))
	}
	return Outcome{Show: RewindTo{said[i].ID, said[i].Snippet}}
}

// PlanRewind tells what a rewind of the files to before a message would do.
func PlanRewind(ctx context.Context, p Place, to string) (protocol.Rewound, error) {
	return Ask(ctx, p, protocol.Rewind, protocol.RewindParams{
		Scope: p.Scope(), To: to, What: protocol.RewindFiles, DryRun: true,
	})
}

// Rewind takes back what was done since a message. Where there are new conflicts it shows them, and
// nothing was done.
func Rewind(ctx context.Context, p Place, to RewindTo, what protocol.RewindWhat, force []string) Outcome {
	r, err := Ask(ctx, p, protocol.Rewind, protocol.RewindParams{Scope: p.Scope(), To: to.ID, What: what, Force: force})
	switch {
	case err != nil:
		return Failed(Explain(err, "to rewind"))
	case len(r.Conflicts) > 0:
		return Outcome{Show: to}
	}
	var done string
	switch files := format.Count(len(r.Files), "file"); {
	case what == protocol.RewindConversation:
		done = "conversation taken back"
	case what == protocol.RewindFiles && len(r.Files) == 0:
		return rewound(r, "no file had to be changed")
	case what == protocol.RewindFiles:
		done = files + " taken back"
	case len(r.Files) == 0:
		done = "conversation taken back; no file had to be changed"
	default:
		done = "conversation and " + files + " taken back"
	}
	return rewound(r, done+" · /rewind undo")
}

// UndoRewind puts back what the latest rewind took back.
func UndoRewind(ctx context.Context, p Place, force []string) Outcome {
	r, err := Ask(ctx, p, protocol.UndoRewind, protocol.UndoRewindParams{Scope: p.Scope(), Force: force})
	switch {
	case err != nil:
		return Failed(Explain(err, "to rewind"))
	case len(r.Conflicts) > 0:
		return Outcome{Show: RewindUndo{r}}
	}
	done := "the rewind is undone; no file had to be changed"
	if len(r.Files) > 0 {
		done = "the rewind is undone: " + format.Count(len(r.Files), "file") + " put back"
	}
	return rewound(r, done)
}

// rewound shows the session as it is now.
func rewound(r protocol.Rewound, done string) Outcome {
	return Outcome{Follow: &r.SessionID, Text: r.Text, LastLine: done}
}
