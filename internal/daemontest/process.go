package daemontest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// hangTime is longer than any daemon takes to start or to stop.
const hangTime = 2 * time.Minute

// Process is one life of a noused.
type Process struct {
	Cmd  *exec.Cmd
	Gone chan struct{} // closed when the process is gone

	err error // how it ended; for those who saw Gone closed
}

// Launch starts a process and waits for nothing.
func Launch(cmd *exec.Cmd) (*Process, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Process{Cmd: cmd, Gone: make(chan struct{})}
	go func() { // ends with the process
		p.err = cmd.Wait()
		close(p.Gone)
	}()
	return p, nil
}

// Run starts a daemon and returns when it says that it is ready, as it says it to
// systemd. It is an error that it ends before, or says nothing for two minutes: then it
// is gone.
func Run(cmd *exec.Cmd) (*Process, error) {
	dir, err := os.MkdirTemp("", "ready")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	ready, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unixgram"})
	if err != nil {
		return nil, err
	}
	defer ready.Close()
	if err := ready.SetReadDeadline(time.Now().Add(hangTime)); err != nil {
		return nil, err
	}
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+ready.LocalAddr().String())
	p, err := Launch(cmd)
	if err != nil {
		return nil, err
	}
	go func() { // ends with the daemon
		<-p.Gone
		ready.Close()
	}()
	for buf := make([]byte, 1<<12); ; {
		n, err := ready.Read(buf)
		if err != nil {
			return nil, fmt.Errorf("%s is not ready: %v (%w)", cmd.Path, p.End(syscall.SIGKILL), err)
		}
		if strings.Contains(string(buf[:n]), "READY=1") {
			return p, nil
		}
	}
}

// End signals the process, waits until it is gone, and returns how it ended. One that
// does not end within two minutes is killed.
func (p *Process) End(sig os.Signal) error {
	_ = p.Cmd.Process.Signal(sig)
	timer := time.NewTimer(hangTime)
	defer timer.Stop()
	select {
	case <-p.Gone:
		return p.err
	case <-timer.C:
		_ = p.Cmd.Process.Kill()
		<-p.Gone
		return fmt.Errorf("%s did not end within %s of %s", p.Cmd.Path, hangTime, sig)
	}
}
