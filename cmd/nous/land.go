package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"noused/internal/client"
	"noused/internal/client/actions"
	"noused/internal/client/plain"
	"noused/internal/cmdline"
	"noused/internal/format"
	"noused/internal/plaintext"
	"noused/internal/protocol"
	"noused/internal/worktree"
)

// landFlags are the flags of nous land.
type landFlags struct {
	squash, merge, rebase bool
	into, message         string
	dryRun, ask, remove   bool
}

func (a *app) landCommand() *cobra.Command {
	var f landFlags
	cmd := &cobra.Command{
		Use:   "land",
		Short: "Bring what a session did in its worktree to the branch it came from",
		Long: `Commit what is not committed in the session's git worktree, and bring its branch to the
one that was checked out where nous new --worktree made it: as one commit, or as --merge
or --rebase says. The message is the session's title; on a terminal you can type another.

The files of a checkout of that branch change with it. Nothing is done, and nothing is
changed, where that would overwrite a change that is not committed, or a file that git
does not know or ignores, and where both branches change the same lines: with --ask the
session is told then what conflicts, to merge it.

No hook is run, and no program that the repository's own configuration names. If nous is
killed meanwhile, the next nous land finishes it, or takes it back.`,
		Example: `  nous land
  nous land --dry-run
  nous land --rebase --into release --remove
  nous land --ask -m 'Fix the cart'`,
		Args: cmdline.Wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := f.mode(); err != nil {
				return err
			}
			if done, err := a.doneThere(cmd, args); done {
				return err
			}
			return a.land(cmd.Context(), f)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.squash, "squash", false, "as one commit; the default")
	flags.BoolVar(&f.merge, "merge", false, "with a merge commit")
	flags.BoolVar(&f.rebase, "rebase", false, "as a copy of each commit")
	flags.StringVar(&f.into, "into", "", "bring it to this `branch` instead")
	flags.StringVarP(&f.message, "message", "m", "", "the commit's `text` instead of the title")
	flags.BoolVar(&f.dryRun, "dry-run", false, "say what would be done, and do nothing")
	flags.BoolVar(&f.ask, "ask", false, "after a conflict, ask the session to resolve it")
	flags.BoolVar(&f.remove, "remove", false, "then remove the worktree and the session; the branch stays")
	return cmd
}

func (f landFlags) mode() (worktree.Mode, error) {
	given := map[worktree.Mode]bool{worktree.Squash: f.squash, worktree.Merge: f.merge, worktree.Rebase: f.rebase}
	mode, some := worktree.Squash, 0
	for m, is := range given {
		if is {
			mode, some = m, some+1
		}
	}
	switch {
	case some > 1:
		return mode, cmdline.Errorf("--squash, --merge and --rebase exclude each other")
	case f.dryRun && (f.ask || f.remove):
		return mode, cmdline.Errorf("--dry-run does nothing: it goes with neither --ask nor --remove")
	}
	return mode, nil
}

func (a *app) land(ctx context.Context, f landFlags) error {
	mode, err := f.mode()
	if err != nil {
		return err
	}
	s, err := a.sessionInWorktree(ctx, f.remove)
	if err != nil {
		return err
	}
	r := worktree.LandRequest{
		Dir: s.Workdir, Home: worktree.Home(os.Getenv), Into: f.into, Mode: mode, Message: f.message,
	}
	l, err := a.landNow(ctx, r, s, f.dryRun)
	var conflict *worktree.ConflictError
	switch {
	case errors.As(err, &conflict):
		return a.conflict(ctx, s, conflict, f.ask)
	case errors.Is(err, worktree.ErrNothingToLand):
		a.Notef("%v: %s has all that %s has", err, l.Into, l.Branch)
		if a.JSON {
			a.printLanding(l)
		}
	case err != nil:
		return err
	}
	if !f.remove {
		return nil
	}
	if err := a.removeWorktree(ctx, s.SessionID); err != nil {
		return err
	}
	del := func(c client.Sender) (protocol.SessionDeleted, error) {
		return actions.Delete(ctx, c, s.SessionID, false)
	}
	_, err = act(a, del, func(r protocol.SessionDeleted) { a.Notef("deleted the session %s", r.SessionID) })
	return err
}

// landNow plans it, has the message read, and lands.
func (a *app) landNow(ctx context.Context, r worktree.LandRequest, s protocol.SessionInfo, dry bool) (worktree.Landing,
	error,
) {
	working, stop := untilInterrupted(ctx)
	l, err := worktree.Plan(working, r)
	stop()
	if err != nil {
		return l, err
	}
	if dry {
		a.printLanding(l)
		return l, nil
	}
	if r.Message, err = a.commitMessage(r.Message, cmp.Or(s.Title, l.Subject)); err != nil {
		return l, err
	}
	working, stop = untilInterrupted(ctx)
	defer stop()
	if l, err = worktree.Land(working, r); err == nil {
		a.printLanding(l)
	}
	return l, err
}

// sessionInWorktree is the session that is meant, which is idle, as are others there.
func (a *app) sessionInWorktree(ctx context.Context, remove bool) (s protocol.SessionInfo, err error) {
	scope, err := a.scope(ctx, needOne)
	if err != nil {
		return s, err
	}
	if scope.SessionID == "" {
		state, err := request(ctx, a, protocol.GetState, protocol.GetStateParams{})
		if err != nil {
			return s, err
		}
		scope.SessionID = state.SessionID
	}
	all, err := a.sessionsDistrusted(ctx)
	if err != nil {
		return s, err
	}
	for _, one := range all {
		if one.SessionID == scope.SessionID {
			s = one
		}
	}
	if s.Workdir == "" {
		return s, &protocol.Error{
			Code: protocol.SessionNotFound, Message: "there is no session " + scope.SessionID + " with a folder",
		}
	}
	if err := worktree.Landable(s.Workdir); err != nil { // there is nothing to wait for
		return s, err
	}
	for _, one := range all {
		in := one.Workdir == s.Workdir || strings.HasPrefix(one.Workdir, s.Workdir+string(filepath.Separator))
		if in && one.RunState != protocol.StateIdle {
			return s, fmt.Errorf("%s runs in %s: nous wait %[1]s waits for its end, nous --session %[1]s abort ends it",
				one.SessionID, one.Workdir)
		}
	}
	if remove {
		_, err = worktreeToRemove(s.SessionID, all)
	}
	return s, err
}

// maxMessage bounds what is typed, in bytes.
const maxMessage = 4 << 10

// commitMessage is the one that was given, or the title, which a person may replace.
func (a *app) commitMessage(given, title string) (string, error) {
	if strings.TrimSpace(given) != "" || !a.personThere() {
		if given = cmp.Or(strings.TrimSpace(given), title); given == "" {
			return "", errors.New("the session has no title: give the commit's message with -m")
		}
		return given, nil
	}
	hint := ""
	if title != "" {
		hint = " [" + plaintext.RevealLine(title) + "]"
	}
	fmt.Fprintf(a.Err, "message%s: ", hint)
	line, err := bufio.NewReader(io.LimitReader(a.in, maxMessage)).ReadString('\n')
	if err != nil {
		return "", errors.New("no message was given, and nothing was landed")
	}
	if line = cmp.Or(strings.TrimSpace(line), title); line == "" {
		return "", errors.New("the message is empty, and nothing was landed")
	}
	return line, nil
}

// conflict says what conflicts, and asks the session to resolve it if it is to.
func (a *app) conflict(ctx context.Context, s protocol.SessionInfo, e *worktree.ConflictError, ask bool) error {
	if !ask {
		return fmt.Errorf("%w; nous --session %s land --ask asks the session to resolve it", e, s.SessionID)
	}
	var files strings.Builder
	for _, name := range e.Files[:min(len(e.Files), maxAsked)] {
		fmt.Fprintf(&files, "- %s\n", plain.OneLine(name, 1000))
	}
	if more := len(e.Files) - maxAsked + e.More; more > 0 {
		fmt.Fprintf(&files, "- and %d more\n", more)
	}
	text := fmt.Sprintf("Your branch %s cannot be brought to %s, as both change these files:\n\n%s\n"+
		"Commit what is not committed, merge %[2]s into %[1]s here (git merge %[2]s), resolve the conflicts so that the "+
		"changes of both sides hold, check that it works, and commit.", e.Branch, e.Into, files.String())
	wait := false
	r, err := request(ctx, a, protocol.Prompt, protocol.PromptParams{
		Scope: protocol.Scope{SessionID: s.SessionID}, Text: text, Wait: &wait, IdempotencyKey: keyOr(""),
	})
	if err != nil {
		return errors.Join(e, err)
	}
	a.Complain(e.Error())
	a.Notef("asked the session to resolve it, run %s; when it has ended: nous --session %s land", r.Accepted.RunID,
		s.SessionID)
	return &quietExit{exitFailed}
}

// maxAsked is how many files a session is told.
const maxAsked = 100

// landingJSON is what --json prints.
type landingJSON struct {
	Branch      string        `json:"branch"`
	Into        string        `json:"into"`
	Checkout    string        `json:"checkout,omitzero"`
	Commit      string        `json:"commit,omitzero"`
	Commits     int           `json:"commits"`
	Uncommitted int           `json:"uncommitted"`
	Files       []landingFile `json:"files"`
}

type landingFile struct {
	Path    string `json:"path"`
	Status  string `json:"status"`
	Added   int    `json:"added"`
	Removed int    `json:"removed"`
	Binary  bool   `json:"binary,omitzero"`
}

// printLanding prints the files, and what was done or would be.
func (a *app) printLanding(l worktree.Landing) {
	out := landingJSON{
		Branch: l.Branch, Into: l.Into, Checkout: l.Checkout, Commit: l.As, Commits: l.Commits,
		Uncommitted: l.Uncommitted,
	}
	added, removed := 0, 0
	for _, f := range l.Files {
		file := landingFile{
			Path: strings.ToValidUTF8(f.Path, "\uFFFD"), Added: max(f.Added, 0), Removed: max(f.Removed, 0), Binary: f.Added < 0,
			Status: map[byte]string{'A': "added", 'D': "deleted"}[f.Status],
		}
		file.Status = cmp.Or(file.Status, "modified")
		added, removed = added+file.Added, removed+file.Removed
		out.Files = append(out.Files, file)
		if !a.JSON {
			count := fmt.Sprintf("+%d −%d", file.Added, file.Removed)
			if file.Binary {
				count = "binary"
			}
			a.Println(fmt.Sprintf("%c  %s  %s", f.Status, plain.OneLine(f.Path, 4096), count))
		}
	}
	if a.JSON {
		if text, err := json.Marshal(out); err == nil {
			a.JSONLine(text)
		}
		return
	}
	sum := fmt.Sprintf("%s +%d −%d", format.Count(len(l.Files), "file"), added, removed)
	if l.As == "" {
		a.Notef("would land %s on %s: %s, %s not committed; %s", l.Branch, l.Into, format.Count(l.Commits, "commit"),
			format.Count(l.Uncommitted, "file"), sum)
		return
	}
	a.Notef("landed %s on %s as %.12s: %s", l.Branch, l.Into, l.As, sum)
}
