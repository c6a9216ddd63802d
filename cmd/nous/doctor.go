package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"noused/internal/buildinfo"
	"noused/internal/client"
	"noused/internal/client/plain"
	"noused/internal/client/ssh"
	"noused/internal/cmdline"
	"noused/internal/protocol"
	"noused/internal/start"
)

// doctorCommand is `nous doctor`: the daemon's own program has the code, so it
// does the work.
func (a *app) doctorCommand() *cobra.Command {
	cmd := a.handedOn("doctor [flags]", "Check the installation and say what to do: noused doctor", "doctor")
	cmd.Long = `Check the installation and say what to do: noused doctor, which also has the flags.

With --host it checks what nous --host needs: whether ssh gets there and finds nous,
whether the versions are the same, whether the daemon stays when you log out there, and
whether the clocks agree. Within tmux it looks at the options that the screen needs.`
	cmd.Example = "  nous doctor\n  nous doctor --host box"
	check := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		names, _ := hostOf(args)
		if len(names) > 0 || ofFleet(args) || slices.Contains(args, "--help") || slices.Contains(args, "-h") {
			return err
		}
		a.json = slices.Contains(args, "--json")
		for _, f := range examineTmux(cmd.Context()) {
			a.printFinding(f)
		}
		return err
	}
	return cmd
}

// ofFleet tells whether arguments that are not read as flags name a fleet.
func ofFleet(args []string) bool {
	return slices.ContainsFunc(args, func(arg string) bool {
		flag, _, _ := strings.Cut(arg, "=")
		return flag == "--via" || flag == "--on" || flag == "--creds"
	})
}

// handedOn is a command that the daemon's program does, with all flags as they are.
func (a *app) handedOn(use, short string, does ...string) *cobra.Command {
	return &cobra.Command{
		Use:                use,
		Short:              short,
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			names, rest := hostOf(args)
			if len(names) > 0 && does[0] == "doctor" {
				a.hostNames = names
				return a.examineHost(cmd.Context(), rest)
			}
			if does[0] == "doctor" && ofFleet(args) {
				return cmdline.Errorf("nous doctor is for the machine of the daemon: log in there and run `nous doctor`")
			}
			program, err := start.Find()
			if err != nil {
				a.complain("noused does what was asked for: " + err.Error())
				return &quietExit{exitNoDaemon}
			}
			child := exec.CommandContext(cmd.Context(), program, slices.Concat(does, args)...)
			child.Stdin, child.Stdout, child.Stderr = a.in, a.out.W, a.err
			err = child.Run()
			if exit := (*exec.ExitError)(nil); errors.As(err, &exit) &&
				(exit.Exited() || exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGPIPE) {
				return &quietExit{max(exit.ExitCode(), exitOK)} // a reader that has enough is no failure
			}
			if err != nil {
				return fmt.Errorf("%s %s: %w", program, does[0], err)
			}
			return nil
		},
	}
}

const (
	asksWithin = 30 * time.Second
	mostSkew   = 5 * time.Second
)

// finding is a line of the check of a host, in the form of noused doctor.
type finding struct {
	Status string `json:"status"` // ok, warn or FAIL
	Area   string `json:"area"`
	What   string `json:"what"`
	Fix    string `json:"fix,omitzero"`
}

// hostOf takes --host out of arguments that are not read as flags. Without --host it is NOUS_HOST.
func hostOf(args []string) (names, rest []string) {
	for i := 0; i < len(args); i++ {
		name, given := strings.CutPrefix(args[i], "--host=")
		switch {
		case given:
			names = append(names, name)
		case args[i] == "--host" && i+1 < len(args):
			i++
			names = append(names, args[i])
		default:
			rest = append(rest, args[i])
		}
	}
	if env := os.Getenv("NOUS_HOST"); names == nil && env != "" {
		names = []string{env}
	}
	return names, rest
}

// examineHost checks what nous --host needs.
func (a *app) examineHost(ctx context.Context, rest []string) error {
	for _, arg := range rest {
		if arg != "--json" {
			return cmdline.Errorf("doctor --host takes no %s: `ssh %s noused doctor` checks the installation there", arg,
				a.hostNames[0])
		}
		a.json = true
	}
	if err := a.findHosts(); err != nil {
		return err
	}
	if len(a.hosts) > 1 {
		return cmdline.Errorf("nous doctor is for one host: give --host once")
	}
	h := a.hosts[0]
	h.ssh.Ask, h.ssh.Show = true, a.shows()
	h.link = ssh.New(h.ssh)
	failed, all := 0, h.examine(ctx)
	if h.left.Load() {
		return &quietExit{exitLeft}
	}
	for _, f := range all {
		a.printFinding(f)
		if f.Status == "FAIL" {
			failed++
		}
	}
	if failed > 0 {
		return &quietExit{exitFailed}
	}
	return nil
}

func (a *app) printFinding(f finding) {
	if a.json {
		if line, err := json.Marshal(f); err == nil {
			a.printJSON(line)
		}
		return
	}
	look := map[string]string{"FAIL": plain.Red, "ok": plain.Dim}[f.Status]
	a.printSpans(plain.Span{Text: fmt.Sprintf("%-4s  %-8s  %s", f.Status, f.Area, plain.Cell(f.What)), Look: look})
	if f.Fix != "" {
		a.println("      " + plain.Cell(f.Fix))
	}
}

// examine checks from ssh to the daemon, as far as it gets.
func (h *host) examine(ctx context.Context) (all []finding) {
	ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	err := h.reach(ctx)
	var hello ssh.Hello
	if err == nil {
		hello, err = h.link.Hello(ctx)
	}
	var (
		away *ssh.Error
		gone *client.NoDaemonError
	)
	switch {
	case errors.As(err, &away):
		what := away.What
		if away.Said != "" {
			what += ": " + strings.ReplaceAll(away.Said, "\n", "; ")
		}
		return []finding{{"FAIL", "ssh", what, away.Next}}
	case errors.As(err, &gone):
		all = append(all, finding{"ok", "ssh", h.name + " answers, and has nous", ""},
			finding{"warn", "daemon", "none runs there", "nous --host " + h.name + " starts one"})
	case err != nil:
		return []finding{{"FAIL", "ssh", err.Error(), ""}}
	default:
		all = append(all, finding{"ok", "ssh", h.name + " answers, and has nous " + hello.Version, ""},
			versionsOf("nous", hello.Version, "install the same there and here"), h.examineDaemon(ctx))
	}
	return append(all, h.examineMachine(ctx)...)
}

// versionsOf compares what runs there with this program.
func versionsOf(what, theirs, fix string) finding {
	if is := buildinfo.Compared(theirs); is != "" {
		return finding{"warn", "version", fmt.Sprintf("%s there is %s, and this nous %s: it is %s", what, theirs,
			buildinfo.Version(), is), fix}
	}
	return finding{"ok", "version", what + " there is as here: " + buildinfo.Version(), ""}
}

func (h *host) examineDaemon(ctx context.Context) finding {
	conn, err := h.link.Commands(ctx)
	if err != nil {
		return finding{"FAIL", "daemon", err.Error(), ""}
	}
	c := client.New(conn)
	defer c.Close()
	p := protocol.GetStateParams{Daemon: true}
	ctx, cancel := client.Bounded(ctx, p, asksWithin)
	defer cancel()
	s, err := client.Call(ctx, c, protocol.GetState, p)
	if err != nil {
		return finding{"FAIL", "daemon", err.Error(), h.there("logs")}
	}
	f := versionsOf("the daemon", s.Daemon.Version, "`"+h.there("restart")+"` runs the version that is installed there")
	f.Area = "daemon"
	return f
}

// examineMachine asks the far shell, in a ssh of its own, what no daemon tells.
func (h *host) examineMachine(ctx context.Context) []finding {
	to := h.ssh.SSH
	if len(to) == 0 {
		to = []string{h.name}
	}
	ctx, cancel := context.WithTimeout(ctx, asksWithin)
	defer cancel()
	const questions = `sh -c 'date +%s.%N; loginctl show-user "$(id -un)" --property=Linger --value 2>/dev/null || echo unknown'`
	args := append(append([]string{}, to...), "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "--", questions)
	cmd := exec.CommandContext(ctx, "ssh", args...)
	cmd.WaitDelay = time.Second
	var out lastBytes
	cmd.Stdout = &out
	before := time.Now()
	err := cmd.Run()
	took := time.Since(before)
	if err != nil {
		return []finding{{
			"warn", "ssh",
			"ssh asks for something at each connection: a connection that is lost does not come back by itself",
			"use a key and an agent, or ControlMaster",
		}}
	}
	clock, linger, _ := strings.Cut(out.lines(2), "\n")
	return []finding{lingers(strings.TrimSpace(linger)), skewed(clock, before, took)}
}

// lastBytes keeps the end of what a far shell says, which may say anything before.
type lastBytes []byte

func (l *lastBytes) Write(p []byte) (int, error) {
	kept := append(*l, p...)
	*l = append((*l)[:0], kept[max(0, len(kept)-200):]...)
	return len(p), nil
}

// lines are the last ones.
func (l lastBytes) lines(n int) string {
	all := strings.Split(strings.TrimSpace(string(l)), "\n")
	return strings.Join(all[max(0, len(all)-n):], "\n")
}

func lingers(said string) finding {
	switch said {
	case "yes":
		return finding{"ok", "linger", "on: the daemon stays when you log out there", ""}
	case "no":
		return finding{
			"warn", "linger", "off: the daemon ends when you log out there, and its runs wait",
			"there: loginctl enable-linger",
		}
	}
	return finding{"ok", "linger", "there is no systemd that would end the daemon when you log out there", ""}
}

// skewed compares the clock there with this one, as far as the time that asking took lets it.
func skewed(said string, before time.Time, took time.Duration) finding {
	seconds, err := strconv.ParseFloat(said, 64)
	if err != nil {
		return finding{"warn", "clock", "the time there is not known", ""}
	}
	there := time.UnixMilli(int64(seconds * 1000))
	skew := cmp.Or(max(before.Sub(there), 0), max(there.Sub(before.Add(took)), 0))
	if skew > mostSkew {
		return finding{
			"warn", "clock", fmt.Sprintf("the clocks differ by %s", skew.Round(time.Second)),
			"set both by NTP: timedatectl set-ntp true",
		}
	}
	return finding{"ok", "clock", "as here", ""}
}
