package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"noused/internal/agent"
	"noused/internal/detach"
	"noused/internal/proc"
)

const (
	// agentsFile is the inherited file that has a handover.
	agentsFile = "agents"
	// maxHandover is how long that is at most, in bytes.
	maxHandover = 512 << 20
)

// takesAgents is what a program says, when it is tried, that takes over what this one leaves.
var takesAgents = fmt.Sprintf("noused takes over hosted agents of version %d\n", agent.LeftVersion)

// handover is what a daemon leaves to the next program of hosted agents that live on.
type handover struct {
	Version   int            `json:"version"`
	Processes *proc.Left     `json:"processes"`
	Agents    jsontext.Value `json:"agents"` // []agent.Left
}

// takenOver is what was left to this program, nil for nothing. main sets it.
var takenOver *handover

// leftAgents reports that a former program of this process has left hosted agents.
func leftAgents() bool { return strings.Contains(os.Getenv(detach.InheritVariable), agentsFile+"=") }

// processes are those that were left.
func (h *handover) processes() *proc.Left {
	if h == nil {
		return nil
	}
	return h.Processes
}

// readHandover reads what was left. Where it cannot, what was left is ended.
func readHandover(f *os.File) *handover {
	text, err := io.ReadAll(io.LimitReader(io.NewSectionReader(f, 0, maxHandover), maxHandover))
	h := &handover{}
	if err == nil {
		err = json.Unmarshal(text, h, jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	}
	if err != nil || h.Processes == nil {
		proc.EndMarked()
		return nil
	}
	h.Processes.Shut()
	return h
}

// takeOver has the agents that were left. Those that cannot be taken over are ended, and their
// runs are resumed as after a crash.
func (d *Daemon) takeOver() {
	h := takenOver
	if h == nil || h.Processes == nil {
		return
	}
	takenOver = nil
	var left []agent.Left
	err := json.Unmarshal(h.Agents, &left, jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	if err == nil && h.Version != agent.LeftVersion {
		err = fmt.Errorf("they are of version %d, want %d", h.Version, agent.LeftVersion)
	}
	if err == nil {
		err = d.agents.TakeOver(left, d.tools.Claim)
	}
	if err != nil {
		d.log.Warn("hosted agents cannot be taken over, and are started again", zap.Error(err))
	}
	d.tools.EndUnclaimed(h.Processes.Children)
}

// drain leads the runs to a boundary, or leaves them to the next program.
func (d *Daemon) drain() {
	if d.leaving.leavesAgents() {
		d.hub.Leave(d.cfg.DrainTimeout)
	} else {
		d.hub.Drain(d.cfg.DrainTimeout)
	}
}

// leaveAgents keeps what of the agents can be left to the next program.
func (d *Daemon) leaveAgents() {
	if d.leaving.leavesAgents() {
		d.kept = d.agents.Leave()
	}
	d.agents.Close()
}

// ending is what Run returns where nothing has failed.
func (d *Daemon) ending() error {
	d.passAgents()
	err := d.leaving.end()
	if err == nil { // somebody has asked for a stop meanwhile
		d.tools.EndKept()
	}
	return err
}

// passAgents has the next program take over the agents that were kept.
func (d *Daemon) passAgents() {
	if len(d.kept) == 0 || !d.leaving.leavesAgents() {
		return
	}
	children := make([]proc.Kept, len(d.kept))
	for i, l := range d.kept {
		children[i] = l.Child
	}
	left := d.tools.Leave(slices.Compact(children)) // sessions may share one
	f, err := sealed(handover{Version: agent.LeftVersion, Processes: left}, d.kept)
	if err != nil {
		d.log.Warn("hosted agents are not left to the next program, and are started again", zap.Error(err))
		d.tools.EndKept()
		return
	}
	d.leaving.leaveAlso(agentsFile, f, func(path string, args, env []string) error {
		return d.tools.Exec(left, path, args, env)
	})
}

// sealed is a file in memory that nobody can change.
func sealed(h handover, agents []agent.Left) (f *os.File, err error) {
	lenient := json.JoinOptions(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	if h.Agents, err = json.Marshal(agents, lenient); err != nil {
		return nil, err
	}
	text, err := json.Marshal(h, lenient)
	if err == nil && len(text) > maxHandover {
		err = fmt.Errorf("what is known of them has %d bytes, at most %d fit", len(text), maxHandover)
	}
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("noused-agents", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f = os.NewFile(uintptr(fd), agentsFile)
	_, err = f.Write(text)
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS,
			unix.F_SEAL_WRITE|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
