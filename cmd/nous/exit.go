package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"noused/internal/client"
	"noused/internal/client/machine"
	"noused/internal/client/ssh"
	"noused/internal/cmdline"
	"noused/internal/protocol"
	"noused/internal/start"
	"noused/internal/tui/cell"
)

// The exit statuses, as `nous help exit-status` and docs/scripts.md tell them.
const (
	exitOK       = 0
	exitFailed   = 1
	exitUsage    = 2
	exitNoDaemon = 3
	exitNoModel  = 4
	exitSpent    = 5
	exitDenied   = 6
	exitUnfit    = 7
	exitWaits    = 8
	exitAborted  = 130
	exitLeft     = 130
)

// exitTable is what each of them means, line by line.
var exitTable = []struct {
	status int
	means  string
}{
	{exitOK, "the command was done; for prompt: the run was completed"},
	{exitFailed, "the daemon refused the command, the run ended in error, the tool operation failed, search found " +
		"nothing, or the output could not be written"},
	{exitUsage, "the command line is wrong, or a file that it names"},
	{exitNoDaemon, "no daemon answers (within half a minute), or it went away and did not come back in time"},
	{exitNoModel, "no model is chosen, or its key is missing or refused: nous setup"},
	{exitSpent, "--max-cost, --max-turns or --timeout, or a limit of config.toml, ended the run; for wait: " +
		"--timeout has passed"},
	{exitDenied, "the run was completed, and a call of it was denied; the answer says so"},
	{exitUnfit, "the answer does not fit --output-schema; standard output is empty, the last answer on standard error"},
	{exitWaits, "for wait: a session waits for an approval"},
	{exitAborted, "the run was aborted, by Ctrl-C here or by anybody else; or Ctrl-C left it"},
}

// exitHelp is what nous help exit-status says.
func exitHelp() string {
	var b strings.Builder
	b.WriteString("nous exits with\n\n")
	for _, row := range exitTable {
		lead := fmt.Sprintf("%5d  ", row.status)
		for line := range slices.Values(cell.Wrap(row.means, 72)) {
			b.WriteString(lead + line + "\n")
			lead = strings.Repeat(" ", len(lead))
		}
	}
	b.WriteString("\nA reader that closes the output early (nous prompt … | head) ends nous as it\n" +
		"ends any command; the run goes on in the daemon.\n")
	return b.String()
}

// exitOfRun turns a run's end into an exit; denied: a call was.
func exitOfRun(end protocol.AgentEnd, denied bool) error {
	switch {
	case end.StopReason == protocol.StopAborted:
		return &quietExit{exitAborted}
	case end.StopReason == protocol.StopError && end.Error != nil:
		return &quietExit{exitOfCode(end.Error.Code)}
	case end.StopReason == protocol.StopError:
		return &quietExit{exitFailed}
	case denied:
		return &quietExit{exitDenied}
	}
	return nil
}

// exitOfWatched is exitOfRun of a run that nous has followed; late: --timeout has ended it.
func exitOfWatched(end protocol.AgentEnd, denied, late bool) error {
	if late {
		return &quietExit{exitSpent}
	}
	return exitOfRun(end, denied)
}

// exitOfCode is the exit status of a run that ended in error.
func exitOfCode(code protocol.Code) int {
	switch code {
	case protocol.KeyRefused:
		return exitNoModel
	case protocol.OverBudget, protocol.StepLimit:
		return exitSpent
	case protocol.AnswerUnfit:
		return exitUnfit
	}
	return exitFailed
}

// whatNext says what can be done about a command that was refused; "" where
// the refusal says all there is.
func whatNext(cmd *cobra.Command, wire *protocol.Error) string {
	why := wire.Reason()
	has := func(flag string) bool { return cmd.Flags().Lookup(flag) != nil }
	switch {
	case why == protocol.RunInProgress && has("if-running"):
		return "--if-running follow-up queues the text for it; nous new begins another session"
	case why == protocol.RunInProgress:
		return "wait for its end, or end it with nous abort"
	case why == protocol.NoActiveRun && has("if-idle"):
		return "--if-idle prompt starts one with the text"
	case why == protocol.ApprovalResolved, why == protocol.NoSuchApproval:
		return "nous approvals lists the approvals that wait"
	case why == protocol.Forbidden && strings.Contains(wire.Message, "is for people"):
		return "run it in a terminal of your own: what a run has started cannot do it for you"
	case why == protocol.NoModel && os.Getenv("NOUSED_MODEL") != "" && cmd.Name() != "prompt": // which has said so
		return "NOUSED_MODEL is set here, and the running daemon was started without it: nous stop, and the next command " +
			"starts one that has it"
	case why == protocol.ToolNotRegistered, why == protocol.ExtensionNotFound:
		return "nous tools lists all tools; nous tools reload reads new descriptors"
	}
	return ""
}

// quietExit is a failure that has been told already.
type quietExit struct{ status int }

func (e *quietExit) Error() string { return fmt.Sprintf("exit status %d", e.status) }

// report tells an error to standard error and returns its exit status.
// With --json what the daemon says is told to standard output, too.
func (a *app) report(cmd *cobra.Command, err error) int {
	var (
		quiet *quietExit
		usage *cmdline.Error
		wire  *protocol.Error
		gone  *client.NoDaemonError
		unmet *start.Error
		away  *ssh.Error
		mute  *client.SilentError

		lacks      *client.OlderError
		foreign    *client.ForeignError
		distrusted *client.DistrustError
	)
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &quiet):
		return quiet.status
	case errors.Is(err, machine.ErrLeft):
		return exitLeft
	case errors.As(err, &usage):
		a.Complain(err.Error())
		a.Notef("%s", cmdline.Hint(cmd))
		return exitUsage
	case errors.As(err, &gone):
		a.Complain(gone.Error())
		a.Notef("start one with `%s`", a.startCommand())
		return exitNoDaemon
	case errors.As(err, &away):
		a.Complain(away.Host + ": " + away.What)
		if !away.Shown {
			a.notes(away.Said)
		}
		a.notes(away.Next)
		return exitNoDaemon
	case errors.As(err, &unmet):
		a.Complain(unmet.What)
		a.notes(unmet.Said, unmet.Next)
		return exitNoDaemon
	case errors.As(err, &distrusted):
		a.Complain(err.Error())
		a.Notef("name a socket in a folder of your own with --socket or XDG_RUNTIME_DIR")
		return exitFailed
	case errors.As(err, &foreign):
		a.Complain("what listens at " + a.place() + " does not speak the protocol of noused: " + foreign.Err.Error())
		if a.far == nil {
			a.Notef("end it, or name another socket with --socket")
		} else {
			a.Notef("update noused there and here to the same version")
		}
		return exitNoDaemon
	case nextOf(err) != "":
		a.Complain(err.Error())
		a.Notef("%s", nextOf(err))
		return exitNoDaemon
	case errors.Is(err, client.ErrLost), errors.As(err, &mute):
		a.Complain(err.Error())
		a.Notef("%s", a.whyGone())
		return exitNoDaemon
	case errors.As(err, &wire):
		return a.reportRefusal(cmd, wire, err)
	case errors.As(err, &lacks):
		a.Complain(lacks.Error())
		return exitFailed
	default:
		a.Complain(err.Error())
		return exitFailed
	}
}

// reportRefusal is report for what the daemon itself says, which err wraps.
func (a *app) reportRefusal(cmd *cobra.Command, wire *protocol.Error, err error) int {
	if a.JSON && !a.result {
		if line, err := json.Marshal(map[string]*protocol.Error{"error": wire}); err == nil {
			a.JSONLine(line)
		}
	}
	if lacks := (*client.OlderError)(nil); errors.As(err, &lacks) {
		a.Complain((&client.OlderError{Command: "`" + cmd.CommandPath() + "`", Err: errors.New(wire.Message)}).Error())
		return exitFailed
	}
	a.Complain(wire.Text())
	next := whatNext(cmd, wire)
	if wire.Reason() == protocol.Forbidden && a.far != nil && a.far.Fleet != nil {
		next = "do it on " + a.far.Name +
			" itself, or let those who send commands count as people there: approve = true in its [fleet]"
	}
	if next != "" {
		a.Notef("%s", next)
	}
	switch code, _, _ := strings.Cut(wire.Message, ":"); {
	case wire.Reason() == protocol.NoModel, errors.As(err, new(*modelError)):
		return exitNoModel
	case wire.Code == protocol.ProviderError: // of a run that somebody waited for
		return exitOfCode(protocol.Code(code))
	}
	return exitFailed
}

// whyGone says where a daemon that went away, or did not come up at all, has told why.
func (a *app) whyGone() string {
	switch {
	case a.far != nil:
		return "to see why, " + a.far.There("logs")
	case a.socketGiven:
		return "its log tells why; nous --socket " + a.socket + " doctor looks for what is wrong"
	}
	return "nous logs tells why; nous doctor looks for what is wrong"
}

// startCommand starts a daemon, or offers to where none is to be started unasked.
func (a *app) startCommand() string {
	if a.far != nil {
		return "nous" + a.flags()
	}
	if a.socketGiven {
		return "nous --socket " + a.socket
	}
	return "nous"
}
