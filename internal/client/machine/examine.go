package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"noused/internal/buildinfo"
	"noused/internal/client"
	"noused/internal/client/ssh"
	"noused/internal/protocol"
)

const (
	asksWithin = 30 * time.Second
	mostSkew   = 5 * time.Second
)

// Finding is a line of the check of a host, in the form of noused doctor.
type Finding struct {
	Status string `json:"status"` // ok, warn or FAIL
	Area   string `json:"area"`
	What   string `json:"what"`
	Fix    string `json:"fix,omitzero"`
}

// Examine checks from ssh to the daemon, as far as it gets. Its error is ErrLeft.
func (h *Host) Examine(ctx context.Context) (all []Finding, err error) {
	ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	err = h.Reach(ctx)
	var hello ssh.Hello
	if err == nil {
		hello, err = h.Link.Hello(ctx)
	}
	var (
		away *ssh.Error
		gone *client.NoDaemonError
	)
	switch {
	case errors.Is(err, ErrLeft):
		return nil, err
	case errors.As(err, &away):
		what := away.What
		if away.Said != "" {
			what += ": " + strings.ReplaceAll(away.Said, "\n", "; ")
		}
		return []Finding{{"FAIL", "ssh", what, away.Next}}, nil
	case errors.As(err, &gone):
		all = append(all, Finding{"ok", "ssh", h.Name + " answers, and has nous", ""},
			Finding{"warn", "daemon", "none runs there", "nous --host " + h.Name + " starts one"})
	case err != nil:
		return []Finding{{"FAIL", "ssh", err.Error(), ""}}, nil
	default:
		all = append(all, Finding{"ok", "ssh", h.Name + " answers, and has nous " + hello.Version, ""},
			versionsOf("nous", hello.Version, "install the same there and here"), h.examineDaemon(ctx))
	}
	return append(all, h.examineMachine(ctx)...), nil
}

// versionsOf compares what runs there with this program.
func versionsOf(what, theirs, fix string) Finding {
	if is := buildinfo.Compared(theirs); is != "" {
		return Finding{"warn", "version", fmt.Sprintf("%s there is %s, and this nous %s: it is %s", what, theirs,
			buildinfo.Version(), is), fix}
	}
	return Finding{"ok", "version", what + " there is as here: " + buildinfo.Version(), ""}
}

func (h *Host) examineDaemon(ctx context.Context) Finding {
	conn, err := h.Link.Commands(ctx)
	if err != nil {
		return Finding{"FAIL", "daemon", err.Error(), ""}
	}
	c := client.New(conn)
	defer c.Close()
	p := protocol.GetStateParams{Daemon: true}
	ctx, cancel := client.Bounded(ctx, p, asksWithin)
	defer cancel()
	s, err := client.Call(ctx, c, protocol.GetState, p)
	if err != nil {
		return Finding{"FAIL", "daemon", protocol.ErrorText(err), h.There("logs")}
	}
	f := versionsOf("the daemon", s.Daemon.Version, "`"+h.There("restart")+"` runs the version that is installed there")
	f.Area = "daemon"
	return f
}

// examineMachine asks the far shell, in a ssh of its own, what no daemon tells.
func (h *Host) examineMachine(ctx context.Context) []Finding {
	to := h.SSH.SSH
	if len(to) == 0 {
		to = []string{h.Name}
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
		return []Finding{{
			"warn", "ssh",
			"ssh asks for something at each connection: a connection that is lost does not come back by itself",
			"use a key and an agent, or ControlMaster",
		}}
	}
	clock, linger, _ := strings.Cut(out.lines(2), "\n")
	return []Finding{lingers(strings.TrimSpace(linger)), skewed(clock, before, took)}
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

func lingers(said string) Finding {
	switch said {
	case "yes":
		return Finding{"ok", "linger", "on: the daemon stays when you log out there", ""}
	case "no":
		return Finding{
			"warn", "linger", "off: the daemon ends when you log out there, and its runs wait",
			"there: loginctl enable-linger",
		}
	}
	return Finding{"ok", "linger", "there is no systemd that would end the daemon when you log out there", ""}
}

// skewed compares the clock there with this one, as far as the time that asking took lets it.
func skewed(said string, before time.Time, took time.Duration) Finding {
	seconds, err := strconv.ParseFloat(said, 64)
	if err != nil {
		return Finding{"warn", "clock", "the time there is not known", ""}
	}
	there := time.UnixMilli(int64(seconds * 1000))
	skew := cmp.Or(max(before.Sub(there), 0), max(there.Sub(before.Add(took)), 0))
	if skew > mostSkew {
		return Finding{
			"warn", "clock", fmt.Sprintf("the clocks differ by %s", skew.Round(time.Second)),
			"set both by NTP: timedatectl set-ntp true",
		}
	}
	return Finding{"ok", "clock", "as here", ""}
}
