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

	"noused/internal/client"
	"noused/internal/client/plain"
	"noused/internal/cmdline"
	"noused/internal/protocol"
	"noused/internal/worktree"
)

// describeWorktree is a worktree in one line.
func describeWorktree(repo, branch string) string {
	text := plain.OneLine(repo, 60)
	if branch == "" {
		return text + ", no branch"
	}
	return text + ", branch " + plain.OneLine(branch, 100)
}

// noBranch is what --worktree has without a branch: a name is made up.
const noBranch = "a new one"

// newInWorktree makes a worktree of the repository that nous stands in, and a
// session there. Where there is no session, there is no worktree either; it stays
// only where the daemon went away and may have made the session.
func (a *app) newInWorktree(ctx context.Context, branch string, p protocol.NewSessionParams) error {
	switch branch {
	case "":
		return cmdline.Errorf("--worktree wants the name of a branch, or nothing at all")
	case noBranch:
		branch = ""
	}
	dir, err := a.folder()
	if err != nil {
		return err
	}
	if _, err := a.everySession(ctx, dir); errors.Is(err, client.ErrUnsupported) {
		return client.ErrNoFolders
	} else if err != nil { // no daemon, no worktree
		return err
	}
	adding, stop := untilInterrupted(ctx)
	tree, err := worktree.Add(adding, worktree.Directly, dir, worktree.Home(os.Getenv), branch, p.Title)
	stop()
	if err != nil {
		return err
	}
	p.Workdir = tree.Dir
	_, err = fetch(ctx, a, protocol.NewSession, p, a.printSession)
	var refused *protocol.Error
	switch {
	case err == nil:
		a.notef("worktree %s, branch %s", tree.Dir, tree.Branch)
		return nil
	case errors.As(err, &refused), isNoDaemon(err):
		return errors.Join(err, tree.TakeBack(ctx))
	}
	return fmt.Errorf("%w; the worktree %s stays, as the session may have been made", err, tree.Dir)
}

// untilInterrupted is for git, which is no part of what the terminal sends signals to.
func untilInterrupted(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
}

// deleteInWorktree removes a session's worktree and then the session. In this
// order nothing that cannot be had again is lost by an end in between: all of the
// worktree is committed, and the same command deletes the session.
func (a *app) deleteInWorktree(ctx context.Context, id string) error {
	all, err := a.everySession(ctx, "")
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
		if err := a.forgetWorktree(removing, dir, all); err != nil {
			return err
		}
	} else {
		_, branch, _ := worktree.Of(dir)
		if err := worktree.Remove(removing, dir, worktree.Home(os.Getenv)); err != nil {
			return err
		}
		a.notef("removed the worktree %s; its branch %s stays", dir, branch)
	}
	stop()
	return a.deleteNow(ctx, id)
}

// forgetWorktree has git forget a worktree whose folder is gone. Nothing in the
// session says of which repository it was: it is looked for where nous stands, and
// in the folders of the other sessions.
func (a *app) forgetWorktree(ctx context.Context, dir string, all []protocol.SessionInfo) error {
	var places []string
	if here, err := currentFolder(); err == nil {
		places = append(places, here)
	}
	for _, folder := range foldersOf(all) {
		if folder != dir && !folderGone(folder) {
			places = append(places, folder)
		}
	}
	known, err := worktree.Forget(ctx, dir, worktree.Home(os.Getenv), places)
	if err != nil {
		return err
	}
	if known {
		a.notef("the folder %s is gone already; git forgets the worktree, and its branch stays", dir)
	} else {
		a.notef("the folder %s is gone already; if git worktree list in its repository still has it, git worktree prune "+
			"there forgets it", dir)
	}
	return nil
}

// worktreeToRemove is the folder of a session that is idle and alone there.
func worktreeToRemove(id string, all []protocol.SessionInfo) (dir string, err error) {
	for _, s := range all {
		if s.SessionID != id {
			continue
		}
		if s.RunState != protocol.StateIdle {
			return "", fmt.Errorf("%s runs; nous abort ends the run", id)
		}
		dir = s.Workdir
	}
	if dir == "" {
		return "", &protocol.Error{Code: protocol.SessionNotFound, Message: "there is no session " + id + " with a folder"}
	}
	var others []protocol.SessionInfo
	for _, s := range all {
		if s.SessionID != id && (s.Workdir == dir || strings.HasPrefix(s.Workdir, dir+string(filepath.Separator))) {
			others = append(others, s)
		}
	}
	if len(others) > 0 {
		return "", fmt.Errorf("other sessions have the folder %s: %s", dir, someOf(others))
	}
	return dir, nil
}
