package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"noused/internal/client"
	"noused/internal/client/actions"
	"noused/internal/client/plain"
	"noused/internal/cmdline"
	"noused/internal/protocol"
)

// rewinding is what the flags of nous rewind say.
type rewinding struct {
	files, talk, dry, undo bool
	force                  []string
}

func (a *app) rewindCommand() *cobra.Command {
	var r rewinding
	cmd := &cobra.Command{
		Use:   "rewind [MESSAGE]",
		Short: "Take back what a session did since a message",
		Long: `Take back what a session did since a message of yours, the last one if none is named:
the files are as they were before it, and the conversation goes on from before it. Its
text is printed, so that you can send it again. Nothing is deleted from the
conversation: nous tree shows it.

Only what the session's turns have changed is taken back, byte for byte, shell commands
and all. Where a file has changed since, nothing at all is done, and the file is
listed; --force takes it back all the same, and goes with a file in conflict alone. What
a child session has changed stays, and is named: nous --session CHILD rewind takes that
back.

--undo puts back what the latest rewind took back, or the one with the id given.`,
		Example: `  nous rewind --dry-run
  nous rewind msg-0198c5f2 --files
  nous rewind --undo`,
		Args: cmdline.Wants(0, 1, "MESSAGE, the id of a message of yours, or nothing; nous tree shows them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if r.files && r.talk {
				return cmdline.Errorf("--files and --conversation exclude each other; without both, both are taken back")
			}
			if r.undo && (r.files || r.talk) {
				return cmdline.Errorf("--undo puts back all that the rewind took back: leave out --files and --conversation")
			}
			scope, err := a.scope(cmd.Context(), needOne)
			if err != nil {
				return err
			}
			name := strings.Join(args, "")
			if r.undo {
				return a.undoRewind(cmd.Context(), scope, name, r)
			}
			return a.rewind(cmd.Context(), scope, name, r)
		},
	}
	cmd.Flags().BoolVar(&r.files, "files", false, "take back the files, and leave the conversation")
	cmd.Flags().BoolVar(&r.talk, "conversation", false, "take back the conversation, and leave the files")
	cmd.Flags().BoolVar(&r.dry, "dry-run", false, "change nothing, only list")
	cmd.Flags().BoolVar(&r.undo, "undo", false, "put back what a rewind took back")
	cmd.Flags().StringArrayVar(&r.force, "force", nil, "take this `path` back in spite of a conflict; may be given again")
	return cmd
}

func (a *app) rewind(ctx context.Context, scope protocol.Scope, name string, r rewinding) error {
	to, err := a.messageToRewind(ctx, scope, name)
	if err != nil {
		return err
	}
	p := protocol.RewindParams{Scope: scope, To: to, What: protocol.RewindBoth, DryRun: r.dry}
	switch {
	case r.files:
		p.What = protocol.RewindFiles
	case r.talk:
		p.What = protocol.RewindConversation
	}
	dry := p
	dry.DryRun = true
	if p.Force, err = checkForce(ctx, a, protocol.Rewind, dry, scope, r.force); err != nil {
		return err
	}
	done, err := fetch(ctx, a, protocol.Rewind, p, func(done protocol.Rewound) {
		a.printRewound(done)
		if done.Text != "" {
			a.Println("")
			a.Print(strings.TrimRight(done.Text, "\n") + "\n")
		}
	})
	if err != nil {
		return err
	}
	var did []string
	switch n := len(done.Files); {
	case r.talk:
	case n == 0:
		did = append(did, "no file had to be changed")
	default:
		did = append(did, plural(n, "file")+" taken back")
	}
	if !r.files {
		did = append(did, "the conversation goes on from before the message")
	}
	if !r.files || len(done.Files) > 0 {
		did = append(did, "nous rewind --undo puts it back")
	}
	if err := a.endRewind(done, r, strings.Join(did, "; ")); err != nil || r.talk {
		return err
	}
	a.noteStays(ctx, scope)
	return nil
}

// noteStays says what child sessions have changed: a rewind leaves that.
func (a *app) noteStays(ctx context.Context, scope protocol.Scope) {
	p := protocol.GetChangesParams{Scope: scope, Children: true}
	all, err := client.Call(ctx, a.daemonSender(), protocol.GetChanges, p)
	if err != nil || len(all.Children) == 0 { // the rewind is done all the same
		return
	}
	a.Notef("what child sessions have changed stays:")
	for _, line := range ofChildren(all.Children, "rewind") {
		a.Notef("%s", line)
	}
}

// checkForce returns the files that paths to force mean, as the daemon names them, and refuses one that is not in
// conflict: it may be misspelt.
func checkForce[P protocol.Params](ctx context.Context, a *app, command protocol.Def[P, protocol.Rewound], dry P,
	scope protocol.Scope, paths []string,
) (files []string, err error) {
	if len(paths) == 0 {
		return nil, nil
	}
	plan, err := client.Call(ctx, a.daemonSender(), command, dry)
	if err != nil {
		return nil, err
	}
	all, err := client.Call(ctx, a.daemonSender(), protocol.GetChanges, protocol.GetChangesParams{Scope: scope})
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		i := -1
		for _, name := range append([]string{path}, a.namesIn(all.Folder, path)...) { // as the daemon writes it comes first
			if i < 0 {
				i = slices.IndexFunc(plan.Conflicts, func(c protocol.RewindConflict) bool { return c.Path == name })
			}
		}
		if i < 0 {
			return nil, cmdline.Errorf("--force %s: it is not in conflict; nous rewind --dry-run lists what is",
				plain.OneLine(path, plain.LineWidth))
		}
		files = append(files, plan.Conflicts[i].Path)
	}
	return files, nil
}

func (a *app) undoRewind(ctx context.Context, scope protocol.Scope, name string, r rewinding) error {
	p := protocol.UndoRewindParams{Scope: scope, RewindID: name, DryRun: r.dry}
	dry := p
	dry.DryRun = true
	var err error
	if p.Force, err = checkForce(ctx, a, protocol.UndoRewind, dry, scope, r.force); err != nil {
		return err
	}
	done, err := fetch(ctx, a, protocol.UndoRewind, p, a.printRewound)
	if err != nil {
		return err
	}
	said := "the rewind is undone; no file had to be changed"
	if n := len(done.Files); n > 0 {
		said = "the rewind is undone: " + plural(n, "file") + " put back"
	}
	return a.endRewind(done, r, said)
}

// printRewound lists what was done to files.
func (a *app) printRewound(done protocol.Rewound) {
	if len(done.Conflicts) > 0 {
		return
	}
	for _, f := range done.Files {
		a.Println(fmt.Sprintf("%-7s %s", f.Action, plain.Cell(f.Path)))
	}
}

// endRewind says how it ended.
func (a *app) endRewind(done protocol.Rewound, r rewinding, said string) error {
	switch {
	case len(done.Conflicts) > 0:
		for _, c := range done.Conflicts {
			a.Notef("%s: %s", plain.Cell(c.Path), c.Why)
		}
		a.Notef("nothing was done; --force PATH takes a file back all the same")
		return &quietExit{exitFailed}
	case r.dry && len(done.Files) == 0:
		a.Notef("nothing was done; no file would be changed")
	case r.dry:
		a.Notef("nothing was done: this is what a rewind would do")
	default:
		a.Notef("%s", said)
	}
	return nil
}

// messageToRewind is the id of a message of the user that a name means, of the last on the way
// to the leaf where it is "".
func (a *app) messageToRewind(ctx context.Context, scope protocol.Scope, name string) (string, error) {
	tree, err := actions.ReadTree(ctx, a.daemonSender(), scope)
	if err != nil {
		return "", err
	}
	var found []string
	for _, n := range tree.Nodes {
		if n.ID == name {
			return name, nil
		}
		if name != "" && n.Role == "user" && (strings.HasPrefix(n.ID, name) || strings.HasPrefix(n.ID, "msg-"+name)) {
			found = append(found, n.ID)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return "", fmt.Errorf("%s is the beginning of %d messages' ids; more of it says which is meant", name, len(found))
	case name != "":
		return "", fmt.Errorf("%s: the session has no such message of yours; nous tree shows them", name)
	}
	if said := actions.Said(tree); len(said) > 0 {
		return said[0].ID, nil
	}
	return "", fmt.Errorf("there is no message to rewind to")
}
