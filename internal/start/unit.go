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
	case strings.Contains(said, "not found"), errors.Is(err, exec.ErrNotFound), strings.Contains(said, "Failed to connect"):
		return Started{}, errNoUnit
	case ctx.Err() != nil:
		return Started{}, &Error{What: "systemd has not started " + unitName + " after " + o.Within.String(), Said: said, Next: lookAtUnit}
	}
	return Started{}, &Error{What: "systemd cannot start " + unitName, Said: join(said, journal(unitName)), Next: lookAtUnit}
}

const lookAtUnit = "systemctl --user status " + unitName + " says more"

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
