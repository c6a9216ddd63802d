package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"noused/internal/client"
	"noused/internal/cmdline"
	"noused/internal/protocol"
	"noused/internal/regular"
	"noused/internal/start"
)

func (a *app) stopCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "stop",
		Short: "Stop the daemon; its runs go on with the next one",
		Long: `Stop the daemon. Runs get a while (drain_timeout) to reach a boundary; the next
daemon goes on with them. nous stop returns when the daemon has gone. That none runs is
no failure.

It stays stopped until the next nous command that needs one starts it. Screens and other
programs that are attached do not. A daemon of systemd's is stopped with its sockets.`,
		Example:           "  nous stop",
		Args:              cmdline.Wants(0, 0, ""),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
			defer stop()
			s, err := start.Stop(ctx, a.starting())
			if ctx.Err() != nil {
				a.notef("interrupted; a daemon that was told to stop does so all the same")
				return &quietExit{exitLeft}
			}
			if err != nil {
				return a.refused(instead(err, "nous stop", "end it with kill"))
			}
			a.tellDaemon("stopped", s.PID, s.Unit)
			return nil
		},
	}
}

func (a *app) restartCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "restart",
		Short: "Restart the daemon, to run a newer one; its runs go on",
		Long: `Restart the daemon: the program that is at its path now takes its place, with the
command line and the environment that it had. A daemon of systemd's is restarted by
systemd, as its unit says. Runs get a while (drain_timeout) to reach a boundary, and go
on. Clients that connect meanwhile wait. Where none runs, one is started.

Nothing happens where the new program is no noused, is too old for the journals or cannot
read the configuration: that is told first.`,
		Example:           "  nous restart",
		Args:              cmdline.Wants(0, 0, ""),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.restart(cmd.Context())
		},
	}
}

func (a *app) restart(ctx context.Context) error {
	was, is, err := start.Restart(ctx, a.starting())
	var wire *protocol.Error
	switch {
	case err != nil && was.PID == 0:
		return err
	case errors.As(err, &wire) && wire.Code == protocol.SessionError && !a.json: // the sentence says it all
		a.complain(wire.Message)
		return &quietExit{exitFailed}
	case err != nil:
		return a.refused(instead(err, "nous restart", "nous stop and then nous have the same effect"))
	case was.PID == 0 && is.Unit:
		a.tellDaemon("started", 0, is.Log)
	case was.PID == 0:
		a.tellDaemon("started", is.PID, "")
	default:
		a.tellDaemon("restarted", was.PID, was.Unit)
	}
	return nil
}

// refused is the failure of something that a daemon was asked for: there is one.
func (a *app) refused(err error) error {
	var failed *start.Error
	if errors.As(err, &failed) {
		a.complain(failed.What)
		a.notes(failed.Said, failed.Next)
		return &quietExit{exitFailed}
	}
	return err
}

// notes writes each note to a line of its own.
func (a *app) notes(texts ...string) {
	for _, text := range texts {
		if text != "" {
			a.notef("%s", text)
		}
	}
}

// instead says what to do where the daemon does not know the command.
func instead(err error, command, next string) error {
	if errors.Is(err, client.ErrUnsupported) {
		return &start.Error{What: "this daemon is an older one and does not know " + command, Next: next}
	}
	return err
}

// tellDaemon says how the daemon is.
func (a *app) tellDaemon(what string, pid int, unit string) {
	if a.json {
		line, err := json.Marshal(struct {
			Daemon string `json:"daemon"`
			PID    int    `json:"pid,omitzero"`
			Unit   string `json:"unit,omitzero"`
		}{what, pid, unit})
		if err == nil {
			a.printJSON(line)
		}
		return
	}
	switch {
	case unit != "":
		a.println(what + " " + unit)
	case pid != 0:
		a.println(fmt.Sprintf("%s noused (process %d)", what, pid))
	case what == "stopped":
		a.println("no daemon runs at " + a.place())
	default:
		a.println(what)
	}
}

const (
	logTail = 8 << 20                // bytes of a log that are looked at for its last lines: more than it may have
	logLook = 250 * time.Millisecond // between looks at a log that is followed
)

func (a *app) logsCommand() *cobra.Command {
	var follow bool
	lines := 100
	cmd := &cobra.Command{
		Use:   "logs",
		Short: "Show what the daemon has logged last",
		Long: `Show what the daemon has logged last: from systemd's journal where it runs as
its unit, else from the log of the daemon that nous has started. Where none runs, the
log is that of the last one. A daemon that was started otherwise logs to wherever its
standard error goes.`,
		Example: "  nous logs -f",
		Args:    cmdline.Wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if lines < 0 {
				return cmdline.Errorf("--lines %d: want 0 or more", lines)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
			defer stop()
			return a.logs(ctx, lines, follow)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what is logged, until Ctrl-C")
	cmd.Flags().IntVarP(&lines, "lines", "n", lines, "begin with the last `n` lines")
	a.rawFlag(cmd)
	return cmd
}

func (a *app) logs(ctx context.Context, lines int, follow bool) error {
	unit, file, err := a.logPlace(ctx)
	if err != nil {
		return err
	}
	if unit != "" {
		args := []string{"--user", "--no-pager", "--quiet", "--unit=" + unit, "--lines=" + strconv.Itoa(lines)}
		if follow {
			args = append(args, "--follow")
		}
		return a.journal(ctx, args)
	}
	f, err := regular.Open(file, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no log %s: nous has started no daemon for this socket, and one that was started "+
			"otherwise logs to its standard error", file)
	}
	if err != nil {
		return err
	}
	for _, line := range a.lastLines(f, lines) {
		a.println(string(line))
	}
	if !follow {
		return f.Close()
	}
	return a.followLog(ctx, file, f)
}

// logPlace is where the log is of the daemon that answers, or of the last one that ran:
// a unit's journal, or a file.
func (a *app) logPlace(ctx context.Context) (unit, file string, err error) {
	file = a.starting().LogPath()
	d, err := a.whoAnswers(ctx)
	if err != nil { // it has crashed, say
		return a.laterUnit(ctx, file), file, nil
	}
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", d.PID))
	switch unit = unitIn(string(text)); {
	case unit != "", d.Log == "":
	case d.Log == "stderr":
		err = fmt.Errorf(
			"neither nous nor systemd has started the daemon that runs (process %d): it logs to its standard error", d.PID)
	default:
		file = d.Log
	}
	return unit, file, err
}

func (a *app) whoAnswers(ctx context.Context) (protocol.DaemonInfo, error) {
	c, err := client.Dial(ctx, a.socket)
	if err != nil {
		return protocol.DaemonInfo{}, err
	}
	defer c.Close()
	s, err := call(ctx, a, c, protocol.GetState, protocol.GetStateParams{Daemon: true})
	return s.Daemon, err
}

// laterUnit is the unit that has this socket, where its journal goes on after the file
// has ended; else "".
func (a *app) laterUnit(ctx context.Context, file string) string {
	unit := start.UnitOf(a.socket, os.Getenv)
	if unit == "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, start.Patience)
	defer cancel()
	last, err := exec.CommandContext(ctx, "journalctl", "--user", "--no-pager", "--quiet", "--unit="+unit, "--lines=1",
		"--output=short-unix").Output()
	stamp, _, _ := strings.Cut(string(last), " ")
	at, wrong := strconv.ParseFloat(stamp, 64)
	if err != nil || wrong != nil {
		return ""
	}
	if info, err := os.Stat(file); err == nil && info.ModTime().After(time.UnixMicro(int64(at*1e6))) {
		return ""
	}
	return unit
}

// unitIn is the unit of ours, the first daemon's or another's, that a process with
// these control groups runs as, or "".
func unitIn(cgroups string) string {
	for line := range strings.Lines(cgroups) {
		name := path.Base(strings.TrimSpace(line))
		if name == "noused.service" || strings.HasPrefix(name, "noused@") && strings.HasSuffix(name, ".service") {
			return name
		}
	}
	return ""
}

// journal shows what journalctl says.
func (a *app) journal(ctx context.Context, args []string) error {
	cmd := exec.CommandContext(ctx, "journalctl", args...)
	cmd.Stderr = a.err
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("journalctl: %w", err)
	}
	a.printPieces(bufio.NewReaderSize(out, 64<<10))
	if err := cmd.Wait(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("journalctl: %w", err)
	}
	return nil
}

// lastLines are the last whole lines of a log; it is then read to its end.
func (a *app) lastLines(f *os.File, most int) [][]byte {
	end, _ := f.Seek(0, io.SeekEnd)
	start := max(end-logTail, 0)
	text, _ := io.ReadAll(io.NewSectionReader(f, start, end-start))
	if i := bytes.LastIndexByte(text, '\n'); i >= 0 {
		_, _ = f.Seek(start+int64(i)+1, io.SeekStart)
		text = text[:i]
	} else {
		_, _ = f.Seek(start, io.SeekStart)
		return nil
	}
	lines := bytes.Split(text, []byte("\n"))
	return lines[max(len(lines)-most, 0):]
}

// printPieces prints what comes, in pieces of at most what the reader holds.
func (a *app) printPieces(in *bufio.Reader) {
	for {
		piece, err := in.ReadSlice('\n')
		if len(piece) > 0 {
			a.print(string(piece))
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// followLog prints what is added, over the change to a new file, until ctx ends.
func (a *app) followLog(ctx context.Context, path string, f *os.File) error {
	defer func() { _ = f.Close() }()
	tick := time.NewTicker(logLook)
	defer tick.Stop()
	for a.out.Failure() == nil {
		next, turned := turnedLog(path, f)
		a.printPieces(bufio.NewReaderSize(f, 64<<10)) // to the end, also of the file from before
		if turned {
			_ = f.Close()
			f = next
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
	return nil
}

// turnedLog opens the file that has taken the log's place.
func turnedLog(path string, f *os.File) (*os.File, bool) {
	now, err := os.Stat(path)
	was, e := f.Stat()
	if err != nil || e != nil || os.SameFile(now, was) {
		return nil, false
	}
	next, err := regular.Open(path, os.O_RDONLY)
	return next, err == nil
}
