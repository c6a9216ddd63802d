package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/go-json-experiment/json"

	"noused/internal/client"
	"noused/internal/client/lookup"
	"noused/internal/client/plain"
	"noused/internal/client/servers"
	"noused/internal/format"
	"noused/internal/hookfile"
	"noused/internal/protocol"
	"noused/internal/trust"
	"noused/internal/worktree"
)

// noBranch is what --worktree has without a branch: a name is made up.
const noBranch = "a new one"

// newInWorktree makes a worktree of the repository that nous stands in, and a
// session there. Where there is no session, there is no worktree either; it stays
// only where the daemon went away and may have made the session.
func (a *app) newInWorktree(ctx context.Context, branch string, p protocol.NewSessionParams) error {
	if branch == noBranch {
		branch = ""
	}
	dir, err := a.folder()
	if err != nil {
		return err
	}
	if _, err := a.sessionsDistrusted(ctx); errors.Is(err, client.ErrUnsupported) {
		return client.ErrNoFolders
	} else if err != nil { // no daemon, no worktree
		return err
	}
	adding, stop := untilInterrupted(ctx)
	tree, err := worktree.Add(adding, worktree.Directly, dir, worktree.Home(os.Getenv), branch, p.Title)
	stop()
	if errors.Is(err, worktree.ErrNoRepository) {
		return fmt.Errorf("%w: run git init there and make a first commit, or leave out --worktree", err)
	}
	if err != nil {
		return err
	}
	p.Workdir = tree.Dir
	made, err := fetch(ctx, a, protocol.NewSession, p, a.printSession)
	var refused *protocol.Error
	switch {
	case err == nil:
		a.Notef("worktree %s, branch %s", tree.Dir, tree.Branch)
		a.Notef("nous%s --session %s prompt TEXT goes on with it from here, as does nous prompt TEXT in that folder",
			a.flags(), made.SessionID)
		a.noteIncluded(tree.Included)
		return a.setUpWorktree(ctx, tree, made.SessionID)
	case errors.As(err, &refused), isNoDaemon(err):
		return errors.Join(err, tree.TakeBack(ctx))
	}
	return fmt.Errorf("%w; the worktree %s stays, as the session may have been made", err, tree.Dir)
}

// sessionsDistrusted lists all sessions. From then on no program in their folders, or in
// worktrees, is taken for one of the user's by what PATH says: git and what git runs are
// executed outside the sandbox.
func (a *app) sessionsDistrusted(ctx context.Context) ([]protocol.SessionInfo, error) {
	all, err := lookup.Sessions(ctx, a.daemonSender(), "")
	trust.Writable(append(plain.Folders(all), worktree.Home(os.Getenv))...)
	return all, err
}

// untilInterrupted is for git, which is no part of what the terminal sends signals to.
func untilInterrupted(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
}

// deleteInWorktree removes a session's worktree and then the session. In this
// order nothing that cannot be had again is lost by an end in between: all of the
// worktree is committed, and the same command deletes the session.
func (a *app) deleteInWorktree(ctx context.Context, id string) error {
	if err := a.removeWorktree(ctx, id); err != nil {
		return err
	}
	return a.deleteNow(ctx, id, false)
}

func (a *app) removeWorktree(ctx context.Context, id string) error {
	all, err := a.sessionsDistrusted(ctx)
	if err != nil {
		return err
	}
	dir, err := worktreeToRemove(id, all)
	if err != nil {
		return err
	}
	removing, stop := untilInterrupted(ctx)
	defer stop()
	if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
		return a.forgetWorktree(removing, dir, all)
	}
	_, branch, _ := worktree.Of(dir)
	err = worktree.Remove(removing, dir, worktree.Home(os.Getenv))
	if unsaved := (*worktree.UnsavedError)(nil); errors.As(err, &unsaved) {
		return fmt.Errorf("%w; nous --session %s land keeps it, and what is not needed can be removed there", err, id)
	}
	if err != nil {
		return err
	}
	a.Notef("removed the worktree %s; its branch %s stays", dir, branch)
	return nil
}

// forgetWorktree has git forget a worktree whose folder is gone. Nothing in the
// session says of which repository it was: it is looked for where nous stands, and
// in the folders of the other sessions.
func (a *app) forgetWorktree(ctx context.Context, dir string, all []protocol.SessionInfo) error {
	var places []string
	if here, err := currentFolder(); err == nil {
		places = append(places, here)
	}
	for _, folder := range plain.Folders(all) {
		if folder != dir && !folderGone(folder) {
			places = append(places, folder)
		}
	}
	known, err := worktree.Forget(ctx, dir, worktree.Home(os.Getenv), places)
	if err != nil {
		return err
	}
	if known {
		a.Notef("the folder %s is gone already; git forgets the worktree, and its branch stays", dir)
	} else {
		a.Notef("the folder %s is gone already; if git worktree list in its repository still has it, git worktree prune "+
			"there forgets it", dir)
	}
	return nil
}

func errRuns(id string) error {
	return fmt.Errorf("%s runs; nous --session %[1]s abort ends the run", id)
}

// worktreeToRemove is the folder of a session that is idle and alone there.
func worktreeToRemove(id string, all []protocol.SessionInfo) (dir string, err error) {
	for _, s := range all {
		if s.SessionID != id {
			continue
		}
		if s.RunState != protocol.StateIdle {
			return "", errRuns(id)
		}
		dir = s.Workdir
	}
	if dir == "" {
		return "", &protocol.Error{Code: protocol.SessionNotFound, Message: "there is no session " + id + " with a folder"}
	}
	var others []protocol.SessionInfo
	children := false
	for _, s := range all {
		children = children || s.Parent != nil && s.Parent.SessionID == id
		if s.SessionID != id && (s.Workdir == dir || strings.HasPrefix(s.Workdir, dir+string(filepath.Separator))) {
			others = append(others, s)
		}
	}
	if children { // the daemon refuses it, which is too late
		return "", fmt.Errorf("session %s has child sessions: nous delete --children --worktree deletes them with it", id)
	}
	if len(others) > 0 {
		return "", fmt.Errorf("other sessions have the folder %s: %s", dir, lookup.Names(others))
	}
	return dir, nil
}

// noteIncluded says which ignored files came along, and which did not.
func (a *app) noteIncluded(in worktree.Included) {
	if in.Files > 0 {
		a.Notef("copied %s that %s names", format.Count(in.Files, "file"), worktree.IncludeFile)
	}
	for _, line := range in.LeftOut {
		a.Notef("not copied: %s", plain.OneLine(line, 1000))
	}
}

// projectSetup are the lines that set up a worktree, and of which file; none where there is
// none. The file is that of the branch, or else of the checkout that the worktree is made
// from. It counts if its text is trusted in one of the two, or in the main checkout.
func projectSetup(tree worktree.Tree) (lines []string, path string, trusted bool, err error) {
	folder := tree.Dir
	text, err := hookfile.ProjectText(folder)
	if err == nil && text == nil && tree.Source != "" {
		folder = tree.Source
		text, err = hookfile.ProjectText(folder)
	}
	if err != nil || text == nil {
		return nil, "", false, err
	}
	path = filepath.Join(folder, hookfile.FileName)
	if lines, err = hookfile.ReadSetup(folder, text); err != nil {
		return nil, path, false, err
	}
	for _, of := range []string{folder, tree.Source, tree.Main()} {
		if of == "" {
			continue
		}
		now, _, err := hookfile.Trusted(configDir(), of, text)
		if err != nil {
			return nil, path, false, err
		}
		if now {
			return lines, path, true, nil
		}
	}
	return lines, path, false, nil
}

// setupTime is how long a line may take, in seconds: as long as the tool lets it.
const setupTime = 600

// setUpWorktree runs what a project's file says for a new worktree, if the user trusts the
// file: each line in the sandbox of tools, until one fails. The worktree stays, whatever
// comes of it.
func (a *app) setUpWorktree(ctx context.Context, tree worktree.Tree, session string) error {
	lines, path, trusted, err := projectSetup(tree)
	switch {
	case err != nil:
		a.Complain(fmt.Sprintf("the worktree is not set up: %v", err))
		return &quietExit{exitFailed}
	case len(lines) == 0:
		return nil
	case !trusted:
		place := tree.Source
		if place == "" {
			place = tree.Dir
		}
		a.Notef("the worktree is not set up, as you do not trust %s: look at it with `cd %s && nous trust`; from then on "+
			"new worktrees are set up", path, servers.ShellWord(place))
		return nil
	}
	for _, line := range lines {
		a.Notef("setup: %s", plain.OneLine(line, 200))
		payload, err := json.Marshal(map[string]any{
			"command": "exec sh -c '" + strings.ReplaceAll(line, "'", `'\''`) + "'", "timeout": setupTime,
		}, json.Deterministic(true))
		if err != nil {
			return err
		}
		r, err := request(ctx, a, protocol.ExtensionCommand, protocol.ExtensionCommandParams{
			Scope: protocol.Scope{SessionID: session}, Name: "bash", Payload: payload,
		})
		if err != nil {
			return fmt.Errorf("the worktree stays, but its setup failed in %q: %w", plain.OneLine(line, 200), err)
		}
		if !r.OK {
			a.setupFailed(line, r)
			return &quietExit{exitFailed}
		}
	}
	return nil
}

func (a *app) setupFailed(line string, r protocol.ExtensionResult) {
	said := strings.TrimSpace(r.Result)
	if said == "" && r.Error != nil {
		said = r.Error.Message
	}
	const most = 4 << 10 // bytes of the end
	if len(said) > most {
		said = "…" + strings.ToValidUTF8(said[len(said)-most:], "")
	}
	a.Complain(fmt.Sprintf("the worktree stays, but its setup failed in %q:\n%s", plain.OneLine(line, 200), said))
}
