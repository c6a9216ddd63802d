package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"noused/internal/client"
	"noused/internal/client/lookup"
	"noused/internal/client/plain"
	"noused/internal/cmdline"
	"noused/internal/protocol"
)

// Which session a command means: --session, else $NOUS_SESSION, else with
// --active the daemon's active one, else the most recently used one whose folder
// is the current folder, or that of --workdir. On another machine nobody stands
// anywhere: there it is the host's workdir, and without one the active session.

// need is what a command does with a session.
type need int

const (
	needIfAny  need = iota // it works on the one of this folder, where there is one
	needOne                // it fails without one
	needOrMake             // it makes one where there is none
)

// scope is the session that a command means. It asks the daemon, and keeps the
// session for the rest of the command; "" is the active one.
func (a *app) scope(ctx context.Context, what need) (protocol.Scope, error) {
	if a.found {
		return protocol.Scope{SessionID: a.session}, nil
	}
	err := a.findSession(ctx, what)
	a.found = err == nil
	return protocol.Scope{SessionID: a.session}, err
}

func (a *app) findSession(ctx context.Context, what need) error {
	name := a.session
	if a.workdir == "" {
		name = cmp.Or(name, os.Getenv("NOUS_SESSION"))
	}
	switch {
	case name != "":
		return a.findNamed(ctx, name, what == needOrMake)
	case a.active:
		return nil
	}
	return a.findHere(ctx, what)
}

// findNamed means the session that somebody calls so; asked: the daemon is asked
// whether it knows the id.
func (a *app) findNamed(ctx context.Context, name string, asked bool) (err error) {
	id, err := lookup.SessionID(ctx, a.daemonSender(), name)
	if err != nil {
		return err
	}
	a.session = id
	if asked {
		return a.mustExist(ctx)
	}
	return nil
}

// checkFlag refuses a --session that does not exist, for commands that do
// not send it to the daemon.
func (a *app) checkFlag(cmd *cobra.Command) error {
	switch {
	case a.socket == "":
		return cmdline.Errorf("--socket is empty: want the path of the daemon's command socket")
	case cmd.Flags().Changed("workdir") && a.workdir == "":
		return cmdline.Errorf("--workdir is empty: want a folder")
	case a.workdir != "" && (a.session != "" || a.active):
		return cmdline.Errorf("--workdir, --session and --active exclude each other")
	}
	if a.session == "" || !namesNoSession(cmd) {
		return nil
	}
	if cmdline.Name(cmd) == "status" {
		a.noStart = true // to look must not change what is looked at
	}
	return a.findNamed(cmd.Context(), a.session, true)
}

// namesNoSession tells whether a command may do its work without telling the
// daemon --session.
func namesNoSession(cmd *cobra.Command) bool {
	switch cmdline.Name(cmd) {
	case "acp", "sessions", "new", "switch", "branch", "search", "show", "export", "system",
		"ping", "tools reload", "mcp add", "mcp remove", "mcp trust", "mcp import", "trust",
		"models", "usage", "status", "prune",
		"approvals", "approve", "deny":
		return true
	}
	return false
}

// mustExist refuses a session that the daemon does not know. Only a daemon can
// say that there is none.
func (a *app) mustExist(ctx context.Context) error {
	_, err := request(ctx, a, protocol.GetState, protocol.GetStateParams{Scope: protocol.Scope{SessionID: a.session}})
	var wire *protocol.Error
	if errors.As(err, &wire) && wire.Code == protocol.SessionNotFound {
		return err
	}
	return nil
}

// findHere means the session of the current folder. A daemon that has no folders
// has its active session only.
func (a *app) findHere(ctx context.Context, what need) error {
	dir, err := a.folder()
	if err != nil || dir == "" { // of another machine that nobody has named: its active session
		return err
	}
	list, err := lookup.Sessions(ctx, a.daemonSender(), dir)
	switch {
	case errors.Is(err, client.ErrUnsupported): // its active session is meant
		return nil
	case err != nil:
		return err
	case len(list) > 0:
		a.session = lastUsed(list).SessionID
		return nil
	case what == needIfAny:
		return nil
	case what == needOne:
		return a.noneHere(ctx, dir)
	}
	return a.makeSession(ctx, protocol.NewSessionParams{Workdir: dir})
}

// noneHere says that a folder has no session, and which folder above it has one.
func (a *app) noneHere(ctx context.Context, dir string) error {
	for above := filepath.Dir(dir); above != filepath.Dir(above); above = filepath.Dir(above) {
		list, err := lookup.Sessions(ctx, a.daemonSender(), above)
		if err != nil {
			return err
		}
		if len(list) > 0 {
			return fmt.Errorf("no session has the folder %s yet, but %s has one: --workdir %[2]s means it", dir, above)
		}
	}
	return fmt.Errorf("no session has the folder %s yet: nous prompt makes one; --session and --active name another, "+
		"and nous sessions --all lists them", dir)
}

// makeSession makes the session that a command goes on with.
func (a *app) makeSession(ctx context.Context, p protocol.NewSessionParams) error {
	if p.Activate == nil {
		p.Activate = new(bool)
	}
	made, err := request(ctx, a, protocol.NewSession, p)
	a.session, a.found = made.SessionID, err == nil
	return err
}

// currentFolder is where nous was started, by the name that the shell has for it.
func currentFolder() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("the current folder: %w; --session or --active name a session", err)
	}
	if !utf8.ValidString(dir) || !filepath.IsAbs(dir) {
		return "", fmt.Errorf("the current folder: its name %q is not UTF-8; --session or --active name a session", dir)
	}
	return dir, nil
}

// lastUsed is the session that was used last. A child session is nobody's last as long as there is another.
func lastUsed(list []protocol.SessionInfo) protocol.SessionInfo {
	return slices.MaxFunc(list, func(x, y protocol.SessionInfo) int {
		if (x.Parent == nil) != (y.Parent == nil) {
			return map[bool]int{true: 1, false: -1}[x.Parent == nil]
		}
		return x.UpdatedAt.Compare(y.UpdatedAt)
	})
}

// seen says that the session was read up to now, if what nous printed went to a
// person: then the daemon lists nothing unread there.
func (a *app) seen(ctx context.Context, session string) {
	if plain.IsTerminal(a.out.W) && session != "" {
		_, _ = request(ctx, a, protocol.MarkRead, protocol.MarkReadParams{Scope: protocol.Scope{SessionID: session}})
	}
}
