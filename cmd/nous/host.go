package main

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"noused/internal/client/machine"
	"noused/internal/client/plain"
	"noused/internal/client/ssh"
	"noused/internal/cmdline"
	"noused/internal/protocol"
	"noused/internal/regular"
	"noused/internal/tui/settings"
)

// Daemons on other machines: --host, $NOUS_HOST and [hosts.NAME] of the user's file.

const (
	mostHosts  = 32
	mostImage  = 5 << 20  // bytes of an image, as the daemon keeps them
	mostImages = 11 << 20 // bytes of those that go with a text: it is one line
)

// completesWithin is how long the words for a shell, which waits for them, may take.
var completesWithin = 3 * time.Second

// reads is what a command has to do with other machines.
type reads int

const (
	readsWire   reads = iota // it does its work over the wire
	readsMany                // it can with several hosts
	readsDisk                // it needs the daemon's own machine
	readsNobody              // it needs no daemon
)

func readsOf(cmd *cobra.Command) reads {
	name := cmdline.Name(cmd)
	switch first, _, _ := strings.Cut(name, " "); first {
	case "help", "completion", "man-pages", "exit-status", "doctor", cobra.ShellCompRequestCmd,
		cobra.ShellCompNoDescRequestCmd:
		return readsNobody
	case "stop", "restart", "logs", "acp", "mcp", "trust", "proxy":
		return readsDisk
	}
	switch name {
	case "nous", "board", "sessions", "approvals", "events", "state":
		return readsMany
	}
	return readsWire
}

// chooseHosts finds out which machines a command is for.
func (a *app) chooseHosts(cmd *cobra.Command) error {
	what := readsOf(cmd)
	if what == readsNobody {
		return nil
	}
	if found, err := a.chooseOfFleet(cmd, what); found || err != nil {
		return err
	}
	given := len(a.hostNames) > 0
	if name := os.Getenv("NOUS_HOST"); !given && name != "" && cmd.Name() != "proxy" { // which is what runs there
		a.hostNames = []string{name}
	}
	if err := a.findHosts(); err != nil || len(a.hosts) == 0 {
		return err
	}
	if err := a.mayMean(cmd, what); err != nil {
		return err
	}
	a.connectsHow(cmd)
	return nil
}

// mayMean refuses what a command cannot do with the hosts that were named. Else the first
// of them is meant, where one is.
func (a *app) mayMean(cmd *cobra.Command, what reads) error {
	first := a.hosts[0]
	switch {
	case what == readsDisk:
		return a.onlyThere("nous "+cmdline.Name(cmd), first, cmdline.Name(cmd))
	case len(a.hosts) > 1 && what != readsMany:
		return cmdline.Errorf("%s is for one host: give %s once",
			strings.TrimSpace("nous "+strings.TrimPrefix(cmdline.Name(cmd), "nous")), a.hostFlag())
	case len(a.hosts) > 1 && (a.socketGiven || a.workdir != "" || a.session != "" && cmd.Name() != "approvals"):
		return cmdline.Errorf("--socket, --workdir and --session are of one host: give %s once", a.hostFlag())
	}
	a.far = first
	return nil
}

// hostFlag is the flag that has named the hosts.
func (a *app) hostFlag() string {
	if a.fleet != nil {
		return "--on"
	}
	return "--host"
}

// findHosts looks the names up in the user's file.
func (a *app) findHosts() error {
	if a.completing { // cobra reads the flags more than once
		a.hostNames = slices.Compact(a.hostNames)
	}
	if len(a.hostNames) > mostHosts {
		return cmdline.Errorf("--host: at most %d hosts at once", mostHosts)
	}
	for i, name := range a.hostNames {
		if err := settings.CheckHost(name); err != nil {
			return cmdline.Errorf("--host %s: %v", name, err)
		}
		if slices.Contains(a.hostNames[:i], name) {
			return cmdline.Errorf("--host %s: that host is named twice", name)
		}
	}
	if len(a.hostNames) == 0 {
		return nil
	}
	known, err := settings.Hosts(os.Getenv)
	if err != nil {
		return err
	}
	for _, name := range a.hostNames {
		h := known[name]
		o := ssh.Options{Host: name, SSH: h.SSH, Nous: h.Nous}
		if a.socketGiven {
			o.Socket = a.socket
		}
		a.hosts = append(a.hosts, &machine.Host{Name: name, Workdir: h.Workdir, SSH: o})
	}
	return nil
}

// connectsHow makes the links to the hosts. Nothing is connected yet. ssh asks where
// there is one host only, as several would ask at once.
func (a *app) connectsHow(cmd *cobra.Command) {
	wanted, err := settings.Autostart(os.Getenv)
	for _, h := range a.hosts {
		o := &h.SSH
		o.Start = wanted && err == nil && !a.noStart && !a.completing && cmd.Name() != "status" && cmd.Name() != "statusline"
		o.Ask = len(a.hosts) == 1 && !a.completing
		if o.Ask {
			o.Show = a.shows()
		}
		if a.completing {
			o.Within = completesWithin
		}
		h.Link = ssh.New(*o)
	}
}

// hangUp ends the connections to all hosts.
func (a *app) hangUp() {
	if a.fleet != nil {
		a.fleet.Close()
	}
	for _, h := range a.hosts {
		if h.Link != nil {
			_ = h.Link.Close()
		}
	}
}

// shows is where ssh says what it wants when it asks: nil where there is no terminal.
func (a *app) shows() io.Writer {
	if plain.IsTerminal(a.in) && plain.IsTerminal(a.Err) {
		return a.Err
	}
	return nil
}

// folder is the folder whose sessions are meant. It is one of the daemon's machine, and
// "" on another where nobody has said which.
func (a *app) folder() (string, error) {
	switch {
	case a.workdir != "":
		return a.workdirGiven()
	case a.far != nil:
		return a.far.Workdir, nil
	}
	return currentFolder()
}

// nowhere tells whether nobody has named a folder of another machine: nous means its active
// session then, and so a new one has to be that.
func (a *app) nowhere(dir string) bool { return a.far != nil && dir == "" }

func (a *app) workdirGiven() (string, error) {
	dir := a.workdir
	switch {
	case !utf8.ValidString(dir):
		return "", cmdline.Errorf("--workdir %q: want the name of a folder", dir)
	case path.IsAbs(dir):
		return path.Clean(dir), nil
	case a.far != nil:
		return "", cmdline.Errorf("--workdir %s: want an absolute path: it is a folder on %s", dir, a.far.Name)
	}
	here, err := currentFolder()
	return filepath.Join(here, dir), err
}

// doneThere runs the command on the daemon's machine, by a ssh of its own, where that is
// another: it needs the files there. A machine that a fleet leads to is left to the person.
func (a *app) doneThere(cmd *cobra.Command, args []string) (done bool, err error) {
	if a.far == nil {
		return false, nil
	}
	line := a.lineThere(cmd, args)
	if a.far.Fleet != nil {
		return true, a.onlyThere("nous "+cmdline.Name(cmd), a.far, strings.Join(line, " "))
	}
	there, err := a.far.SSH.Command(cmd.Context(), a.personThere(), line...)
	if err != nil {
		return true, err
	}
	there.Stdout, there.Stderr = a.out, a.Err
	if a.personThere() {
		there.Stdin = a.in
		if w, ok := a.out.W.(*os.File); ok {
			there.Stdout = w
		}
	}
	there.WaitDelay = time.Second
	err = there.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() == sshFailed:
		return true, fmt.Errorf("ssh to %s failed", a.far.Name)
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		return true, &quietExit{exit.ExitCode()}
	}
	return true, err
}

// sshFailed is the exit status of a ssh that has not got there.
const sshFailed = 255

// lineThere is the command as it is written there: what says where that is goes.
func (a *app) lineThere(cmd *cobra.Command, args []string) []string {
	line := strings.Fields(cmdline.Name(cmd))
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch f.Name {
		case "host", "via", "creds", "socket", "workdir", "on", "json":
			return
		}
		if value := f.Value.String(); value == f.NoOptDefVal && value != "" {
			line = append(line, "--"+f.Name)
		} else {
			line = append(line, "--"+f.Name+"="+value)
		}
	})
	if a.JSON {
		line = append(line, "--json")
	}
	session := os.Getenv("NOUS_SESSION")
	makes := cmdline.Name(cmd) == "new" || cmdline.Name(cmd) == "delete"
	switch dir := cmp.Or(a.workdir, a.far.Workdir); {
	case !makes && a.session == "" && a.workdir == "" && session != "":
		line = append(line, "--session="+session)
	case a.session == "" && dir != "":
		line = append(line, "--workdir="+dir)
	case !makes && a.session == "" && !a.active:
		line = append(line, "--active")
	}
	if len(args) > 0 {
		line = append(append(line, "--"), args...)
	}
	return line
}

// onlyThere refuses what is for the machine of the daemon. An example would be none for there.
func (a *app) onlyThere(what string, h *machine.Host, command string) error {
	a.Complain(what + " is for the machine of the daemon: " + h.There(command))
	return &quietExit{exitUsage}
}

// attachments names files as the daemon, which is on the same machine, finds
// them: they are the daemon's to read. For a daemon on another machine they are read here.
func (a *app) attachments(files []string) ([]protocol.AttachmentParams, error) {
	if a.far == nil {
		return attachments(files)
	}
	var list []protocol.AttachmentParams
	size := 0
	for _, file := range files {
		data, err := regular.Read(file, mostImage)
		if err != nil {
			return nil, fmt.Errorf("--image %s: %w", file, err)
		}
		if size += len(data); size > mostImages {
			return nil, cmdline.Errorf("--image %s: the images for another machine have at most %d bytes together", file,
				mostImages)
		}
		list = append(list, protocol.AttachmentParams{
			Data: base64.StdEncoding.EncodeToString(data),
			Name: filepath.Base(file),
		})
	}
	return list, nil
}

func (a *app) hostNamesForShell(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	known, err := settings.Hosts(os.Getenv)
	var words []string
	for name := range known {
		words = append(words, name)
	}
	slices.Sort(words)
	return completions(words, err)
}
