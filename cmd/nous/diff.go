package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"noused/internal/client"
	"noused/internal/client/lookup"
	"noused/internal/client/plain"
	"noused/internal/cmdline"
	"noused/internal/plaintext"
	"noused/internal/protocol"
)

func (a *app) diffCommand() *cobra.Command {
	var run, turn string
	var stat bool
	cmd := &cobra.Command{
		Use:   "diff [PATH…]",
		Short: "Show what a session has changed in its folder",
		Long: `Show what a session's turns have changed in its folder, shell commands and all, and
nothing that somebody else changed between the turns. What was rewound is not shown.

On a terminal it opens a pager: $PAGER, or less. In a pipe it is a plain diff, which
git apply -R takes. Paths in it begin at the top of the repository, or at the session's
folder where there is no git.

Files of more than 10 MiB are not kept: they are named, and their changes are not shown.
What changes inside a submodule, or another repository in the folder, is not recorded.
Child sessions that have changed files are named below the diff, and in a pipe on
standard error: nous --session CHILD diff shows what they changed.

nous messages shows where runs begin.`,
		Example: `  nous diff --stat
  nous diff --turn run-0198c5f2/2 src
  nous diff | git apply -R`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if run != "" && turn != "" {
				return cmdline.Errorf("--run and --turn exclude each other")
			}
			if turn != "" && !strings.Contains(turn, "/") {
				return cmdline.Errorf("--turn wants RUN/TURN, like run-0198c5f2/2, not %q", turn)
			}
			scope, err := a.scope(cmd.Context(), needOne)
			if err != nil {
				return err
			}
			of, err := a.runOf(cmd.Context(), scope, run, turn)
			if err != nil {
				return err
			}
			p := protocol.GetChangesParams{Scope: scope, From: of, To: of}
			return a.diff(cmd.Context(), p, args, stat)
		},
	}
	cmd.Flags().StringVar(&run, "run", "", "only what the run with this `id`, or beginning of one, has changed")
	cmd.Flags().StringVar(&turn, "turn", "", "only what this turn has changed: `RUN/TURN`, like run-0198c5f2/2")
	cmd.Flags().BoolVar(&stat, "stat", false, "list the files, with how many lines came and went")
	return cmd
}

// runOf is the run or the turn that is meant, "" where none is. The beginning of a run's id is
// looked up; a whole one the daemon knows, however many branches the session has.
func (a *app) runOf(ctx context.Context, scope protocol.Scope, run, turn string) (string, error) {
	name, number, _ := strings.Cut(run+turn, "/")
	if name == "" || len(name) >= len("run-00000000-0000-0000-0000-000000000000") && strings.HasPrefix(name, "run-") {
		return run + turn, nil
	}
	found, err := lookup.Find(ctx, a.daemonSender(), name, scope.SessionID)
	switch {
	case err != nil:
		return "", err
	case found.Run == nil:
		return "", fmt.Errorf("%s is not a run; nous messages shows where runs begin", name)
	case turn == "":
		return found.Run.RunID, nil
	}
	return found.Run.RunID + "/" + number, nil
}

// diff prints changes: of some files, or of all.
func (a *app) diff(ctx context.Context, p protocol.GetChangesParams, paths []string, stat bool) error {
	p.Diff, p.Children = !stat && len(paths) == 0, len(paths) == 0
	if a.JSON && len(paths) == 0 {
		_, err := fetch(ctx, a, protocol.GetChanges, p, func(protocol.Changes) {})
		return err
	}
	all, err := client.Call(ctx, a.daemonSender(), protocol.GetChanges, p)
	if err != nil {
		return err
	}
	files, err := a.filesAt(all, paths)
	if err != nil {
		return err
	}
	if a.JSON || stat {
		return a.diffStat(all, files)
	}
	defer a.noteChanges(all, files)
	if p.Diff && !all.Truncated && all.Diff != nil {
		return a.page(*all.Diff, childChanges(all))
	}
	var text strings.Builder // file by file: together they are too long for one reply
	cut := false
	for _, f := range files {
		if f.LeftOut {
			continue
		}
		p.Diff, p.Path, p.Children = true, f.Path, false
		one, err := client.Call(ctx, a.daemonSender(), protocol.GetChanges, p)
		if err != nil {
			return err
		}
		if one.Diff != nil {
			text.WriteString(*one.Diff)
		}
		if one.Truncated {
			a.Notef("the diff of %s has more than 1 MiB: the rest of it is not shown, and git apply cannot take it", f.Path)
			cut = true
		}
	}
	if err := a.page(text.String(), childChanges(all)); err != nil || !cut {
		return err
	}
	return &quietExit{exitFailed}
}

// filesAt are the files that paths name: themselves, or the folder that they are in.
func (a *app) filesAt(all protocol.Changes, paths []string) ([]protocol.ChangedFile, error) {
	if len(paths) == 0 {
		return all.Files, nil
	}
	var found []protocol.ChangedFile
	for _, path := range paths {
		names, some := a.namesIn(all.Folder, path), false
		for _, f := range all.Files {
			if slices.ContainsFunc(names, func(name string) bool { return isAt(f.Path, name) || isAt(f.OldPath, name) }) {
				found, some = append(found, f), true
			}
		}
		if !some {
			return nil, fmt.Errorf("%s: the session has not changed it; nous diff --stat lists what it has", path)
		}
	}
	return found, nil
}

// namesIn are the names of a file in a session's folder that a path may mean: as it is, or seen from here.
func (a *app) namesIn(folder, path string) []string {
	names := []string{filepath.Clean(path)}
	if folder == "" {
		return names
	}
	if !filepath.IsAbs(path) {
		here, _ := a.folder()
		path = filepath.Join(here, path)
	}
	if rel, err := filepath.Rel(folder, path); err == nil && filepath.IsLocal(rel) {
		names = append(names, rel)
	}
	return names
}

func isAt(file, name string) bool {
	return file != "" && (name == "." || file == name || strings.HasPrefix(file, name+"/"))
}

// diffStat lists files.
func (a *app) diffStat(all protocol.Changes, files []protocol.ChangedFile) error {
	if a.JSON {
		all.Files, all.Diff = files, nil
		return a.Encoded(all)
	}
	var rows [][]string
	added, removed := 0, 0
	for _, f := range files {
		name := f.Path
		if f.OldPath != "" {
			name = f.OldPath + " → " + f.Path
		}
		lines := fmt.Sprintf("+%d −%d", f.Added, f.Removed)
		if f.Binary {
			lines = "binary"
		}
		var notes []string
		if f.Shared {
			notes = append(notes, "part of it may be somebody else's")
		}
		if f.LeftOut {
			lines, notes = "", append(notes, "its content is not kept")
		}
		added, removed = added+f.Added, removed+f.Removed
		rows = append(rows, []string{name, f.Status, lines, strings.Join(notes, "; ")})
	}
	if len(rows) > 0 {
		a.Table([]string{"FILE", "", "LINES", ""}, rows)
		a.Println(fmt.Sprintf("%s +%d −%d", plural(len(files), "file"), added, removed))
	}
	for _, line := range childChanges(all) {
		a.Println(line)
	}
	a.noteMissing(all)
	return nil
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// noteChanges says what a diff does not show.
func (a *app) noteChanges(all protocol.Changes, files []protocol.ChangedFile) {
	for _, f := range files {
		switch {
		case f.LeftOut:
			a.Notef("%s: %s; its content is not kept, and cannot be shown", f.Path, f.Status)
		case f.Shared:
			a.Notef("%s: part of the change may be somebody else's; git apply -R takes that back, too", f.Path)
		}
	}
	if !a.OutStyle.Terminal { // a diff that git takes has no room for them
		for _, line := range childChanges(all) {
			a.Notef("%s", line)
		}
	}
	a.noteMissing(all)
}

// childChanges are lines that say which child sessions have changed files, and how to see what; none where none has.
func childChanges(all protocol.Changes) []string {
	if len(all.Children) == 0 {
		return nil
	}
	head := "child sessions have changed files, too:"
	if len(all.Files) == 0 && len(all.Missing) == 0 {
		head = "nothing was changed by the session itself; its child sessions have changed files:"
	}
	return append([]string{head}, ofChildren(all.Children, "diff")...)
}

// ofChildren are lines with what each of them is called, and below it the command that does something about what it has
// changed. The title stands apart: a model has written it, and people paste commands into a shell.
func ofChildren(children []protocol.ChangedChild, does string) (lines []string) {
	for _, c := range children {
		lines = append(lines, plain.OneLine(c.Title, plain.LineWidth)+": "+plural(c.Files, "file"),
			fmt.Sprintf("  nous --session %s %s", plain.Tail(c.SessionID), does))
	}
	return lines
}

func (a *app) noteMissing(all protocol.Changes) {
	if len(all.Files) == 0 && len(all.Missing) == 0 && len(all.Children) == 0 {
		a.Notef("nothing was changed by the session itself")
	}
	for _, m := range all.Missing {
		a.Notef("what turn %s/%s changed is not known: %s", m.RunID, m.TurnID, m.Why)
	}
}

// page shows a diff on a terminal, through a pager and with lines below it, or writes it as it is.
func (a *app) page(text string, below []string) error {
	if !a.OutStyle.Terminal {
		_, err := io.WriteString(a.out, text)
		return err
	}
	var shown strings.Builder
	for line := range strings.Lines(text) {
		shown.WriteString(a.OutStyle.Paint(lookOf(line), plaintext.Text(strings.TrimRight(line, "\n"))) + "\n")
	}
	if text != "" && len(below) > 0 {
		shown.WriteString("\n")
	}
	for _, line := range below {
		shown.WriteString(line + "\n")
	}
	pager := os.Getenv("PAGER")
	if pager == "" {
		pager = "less"
	}
	if text == "" || pager == "cat" {
		_, err := io.WriteString(a.out, shown.String())
		return err
	}
	cmd := exec.Command("sh", "-c", pager)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(shown.String()), os.Stdout, a.Err
	cmd.Env = append([]string{"LESS=FRX"}, os.Environ()...)
	if cmd.Run() == nil {
		return nil
	}
	_, err := io.WriteString(a.out, shown.String()) // there is no such program
	return err
}

func lookOf(line string) string {
	switch {
	case strings.HasPrefix(line, "diff --git "), strings.HasPrefix(line, "+++ "), strings.HasPrefix(line, "--- "):
		return plain.Bold
	case strings.HasPrefix(line, "+"):
		return plain.Green
	case strings.HasPrefix(line, "-"):
		return plain.Red
	case strings.HasPrefix(line, "@@"):
		return plain.Dim
	}
	return ""
}
