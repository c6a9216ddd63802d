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

	"github.com/spf13/cobra"

	"noused/internal/client"
	"noused/internal/cmdline"
	"noused/internal/protocol"
	"noused/internal/regular"
	"noused/internal/start"
)

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
	for a.out.failure() == nil {
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
