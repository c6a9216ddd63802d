package start

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"noused/internal/protocol"
)

// unitName is the daemon's in the user's systemd. It requires its two sockets.
const unitName = "noused.service"

var errNoUnit = errors.New("systemd has no unit of ours")

// managed tells whether the user's systemd can be talked to.
func managed(getenv func(string) string) bool {
	dir := getenv("XDG_RUNTIME_DIR")
	if !filepath.IsAbs(dir) {
		return false
	}
	for _, name := range []string{"systemd/private", "bus"} {
		if conn, err := net.Dial("unix", filepath.Join(dir, name)); err == nil {
			_ = conn.Close()
			return true
		}
	}
	return false
}

// startUnit has systemd start the daemon, which is done when it is ready.
func (o Options) startUnit(ctx context.Context) (Started, error) {
	said, err := systemctl(ctx, "start", unitName)
	switch {
	case err == nil:
		return Started{Log: unitName, Unit: true}, nil
	case strings.Contains(said, "not found"), errors.Is(err, exec.ErrNotFound),
		strings.Contains(said, "Failed to connect"):
		return Started{}, errNoUnit
	case ctx.Err() != nil:
		return Started{}, &Error{
			What: "systemd has not started " + unitName + " after " + o.Within.String(), Said: said,
			Next: lookAt(unitName),
		}
	}
	return Started{}, &Error{
		What: "systemd cannot start " + unitName, Said: join(said, journal(unitName)),
		Next: unitNext(ctx, unitName),
	}
}

func lookAt(unit string) string { return "systemctl --user status " + unit + " says more" }

// unitNext is what can be done where systemd cannot start a unit: what has ended too
// often, be it the unit or its sockets, is not started again before somebody says so.
func unitNext(ctx context.Context, unit string) string {
	units := append(triggers(ctx, unit), unit)
	results, err := systemctl(ctx, append([]string{"show", "--property=Result", "--value"}, units...)...)
	if err == nil && strings.Contains(results, "start-limit-hit") {
		return "it has ended too often; when what it says is mended: systemctl --user reset-failed 'noused*'"
	}
	return lookAt(unit)
}

// triggers are the sockets that start a unit.
func triggers(ctx context.Context, unit string) []string {
	names, err := systemctl(ctx, "show", "--property=TriggeredBy", "--value", unit)
	if err != nil {
		return nil
	}
	return strings.Fields(names)
}

// UnitOf is the unit of ours that has a socket, where systemd has it, or "".
func UnitOf(socket string, getenv func(string) string) string {
	first := protocol.DefaultSocket(getenv)
	if socket == first {
		return unitName
	}
	name, ok := strings.CutSuffix(filepath.Base(socket), ".sock")
	if !ok || filepath.Dir(socket) != filepath.Join(filepath.Dir(first), "instances") {
		return ""
	}
	return "noused@" + name + ".service"
}

// systemctl runs it for the user and returns what it says.
func systemctl(ctx context.Context, args ...string) (string, error) {
	return run(ctx, "systemctl", append([]string{"--user", "--no-pager", "--no-ask-password"}, args...)...)
}

// journal is what the daemon said last, where the journal can be read.
func journal(unit string) string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	said, err := run(ctx, "journalctl", "--user", "--no-pager", "--quiet", "--output=cat", "--lines=5", "--unit="+unit)
	if err != nil {
		return ""
	}
	return said
}

func run(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.WaitDelay = 100 * time.Millisecond
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	text := out.Bytes()
	return strings.TrimSpace(string(text[max(0, len(text)-tailSize):])), err
}

func join(texts ...string) string {
	texts = slices.DeleteFunc(texts, func(text string) bool { return text == "" })
	return strings.Join(texts, "\n")
}
