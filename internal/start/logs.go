package start

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
	"path"
	"strconv"
	"strings"
	"time"

	"noused/internal/protocol"
	"noused/internal/regular"
)

const (
	logTail  = 8 << 20                // bytes of a log that are read for its last lines: more than it may have
	logCheck = 250 * time.Millisecond // between checks of a log that is followed
)

// LogReader reads what a daemon has logged: from the journal of its unit, or from the file of the
// one that nous has started.
type LogReader struct {
	Options
	Running func(context.Context) (protocol.DaemonInfo, error) // asks the daemon that answers
	Print   func(text string) error                            // a part of a line, or whole lines
	Stderr  io.Writer                                          // of journalctl
}

// Read prints the last lines, and with follow what is added, over the change to a new file, until
// ctx ends or Print has an error.
func (r *LogReader) Read(ctx context.Context, lines int, follow bool) error {
	unit, file, err := r.find(ctx)
	if err != nil {
		return err
	}
	if unit != "" {
		args := []string{"--user", "--no-pager", "--quiet", "--unit=" + unit, "--lines=" + strconv.Itoa(lines)}
		if follow {
			args = append(args, "--follow")
		}
		return r.journal(ctx, args)
	}
	f, err := regular.Open(file, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no log %s: nous has started no daemon for this socket, and one that was started "+
			"otherwise logs to its standard error", file)
	}
	if err != nil {
		return err
	}
	for _, line := range lastLines(f, lines) {
		if err := r.Print(string(line) + "\n"); err != nil {
			break
		}
	}
	if !follow {
		return f.Close()
	}
	return r.follow(ctx, file, f)
}

// find is the unit or the file that the daemon logs to which answers, or the last one that ran.
func (r *LogReader) find(ctx context.Context) (unit, file string, err error) {
	file = r.LogPath()
	d, err := r.Running(ctx)
	if err != nil { // it has crashed, say
		return r.laterUnit(ctx, file), file, nil
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

// laterUnit is the unit that has this socket, where its journal goes on after the file
// has ended; else "".
func (r *LogReader) laterUnit(ctx context.Context, file string) string {
	unit := UnitOf(r.Socket, r.Getenv)
	if unit == "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, Patience)
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
		if name == unitName || strings.HasPrefix(name, "noused@") && strings.HasSuffix(name, ".service") {
			return name
		}
	}
	return ""
}

// journal prints what journalctl says.
func (r *LogReader) journal(ctx context.Context, args []string) error {
	cmd := exec.CommandContext(ctx, "journalctl", args...)
	cmd.Stderr = r.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("journalctl: %w", err)
	}
	_ = r.pieces(bufio.NewReaderSize(out, 64<<10))
	if err := cmd.Wait(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("journalctl: %w", err)
	}
	return nil
}

// lastLines are the last whole lines of a log; it is then read to its end.
func lastLines(f *os.File, most int) [][]byte {
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

// pieces prints what comes to its end, in pieces of at most what the reader holds. Its error is
// Print's.
func (r *LogReader) pieces(in *bufio.Reader) (failed error) {
	for {
		piece, err := in.ReadSlice('\n')
		if len(piece) > 0 && failed == nil {
			failed = r.Print(string(piece))
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return failed
		}
	}
}

// follow prints what is added, over the change to a new file, until ctx ends.
func (r *LogReader) follow(ctx context.Context, path string, f *os.File) error {
	defer func() { _ = f.Close() }()
	tick := time.NewTicker(logCheck)
	defer tick.Stop()
	for {
		next, turned := turnedLog(path, f)
		err := r.pieces(bufio.NewReaderSize(f, 64<<10)) // to the end, also of the file from before
		if turned {
			_ = f.Close()
			f = next
		}
		if err != nil {
			return nil // Print's owner knows it
		}
		if turned {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
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
