package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"noused/internal/client/jobs"
	"noused/internal/client/plain"
	"noused/internal/cmdline"
	"noused/internal/fleet"
	"noused/internal/fleet/job"
	"noused/internal/fleet/via"
	"noused/internal/format"
	"noused/internal/protocol"
)

const (
	// cancelPatience is how long a host may take to end the run of a cancelled job.
	cancelPatience = 10 * time.Second
	maxListed      = 1000 // jobs that wait, and ends, that are listed

	maxReason = 2000 // of why a job has failed
)

func (a *app) fleetSubmitCommand() *cobra.Command {
	var (
		j      job.Job
		labels []string
		wait   bool
	)
	cmd := &cobra.Command{
		Use:   "submit [TEXT… | -]",
		Short: "Submit a job: a prompt for whichever daemon it fits",
		Long: `Submit a job: a prompt for a daemon of the fleet that has all the labels, and a slot
that is free. It runs there in a session of its own: in the folder --workdir, in a worktree
of --repo, or in the daemon's own folder. A call that needs an approval is
denied, because nobody is there to give it.

` + inputHelp + `

It prints the job's id, and warns if no online host fits; the job stays queued. With
--wait it prints the last answer instead, when the run has ended, and exits as nous
prompt does. Ctrl-C then cancels the job; a second one stops waiting.

With --id, submitting the same id again does nothing: there is one job.`,
		Example: `  nous fleet submit --label gpu=a100 --wait run the benchmark
  nous fleet submit --workdir /srv/data sum up what came in today
  nous fleet submit --repo /src/shop --id nightly-7 fix what the linter finds`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if j.Labels, err = labelsOf(labels); err != nil {
				return err
			}
			j.Workdir = a.workdir
			for flag, dir := range map[string]string{"workdir": j.Workdir, "repo": j.Repo} {
				if dir != "" && !path.IsAbs(dir) {
					return cmdline.Errorf("--%s %s: want an absolute path, on the daemon's machine", flag, dir)
				}
			}
			if j.Prompt, err = a.readText(args); err != nil {
				return err
			}
			j.Approvals, j.ID = protocol.ApprovalsDeny, cmp.Or(j.ID, jobs.NewID())
			if err := j.Check(); err != nil {
				return cmdline.Errorf("%v", err)
			}
			return a.submitJob(cmd.Context(), j, wait)
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&labels, "label", nil, "only a daemon with this label, `key=value`; may be given again")
	flags.StringVar(&j.Repo, "repo", "", "the `folder` of a git repository there; the session gets a worktree of it")
	flags.StringVar(&j.Model, "model", "", "the `model` that answers, as in openai/gpt-5 (default: the daemon's own)")
	flags.StringVar(&j.ID, "id", "", "the job's `id`: letters, digits, - and _ (default: one is made up)")
	flags.BoolVar(&wait, "wait", false, "wait for the end, and print the last answer")
	a.rawFlag(cmd)
	return cmd
}

func labelsOf(given []string) (map[string]string, error) {
	labels := map[string]string{}
	for _, text := range given {
		key, value, ok := strings.Cut(text, "=")
		if !ok {
			return nil, cmdline.Errorf("--label %s: want key=value", text)
		}
		if _, again := labels[key]; again {
			return nil, cmdline.Errorf("--label %s: there are two values for it", key)
		}
		labels[key] = value
	}
	return labels, nil
}

func (a *app) submitJob(ctx context.Context, j job.Job, wait bool) error {
	keys := cmdline.WatchInterrupts(ctx)
	defer keys.Stop()
	err := a.withJobs(keys.Soft, func(l *fleetLink) error {
		again, err := l.jobs.Submit(keys.Soft, j)
		if err != nil {
			return err
		}
		a.noteSubmitted(keys.Soft, l, j, again)
		return nil
	})
	if err != nil || !wait {
		switch {
		case err == nil:
			a.printJobID(j.ID)
		case keys.Soft.Err() != nil:
			err = context.Cause(keys.Soft)
		}
		return leftOr(err)
	}
	var end job.End
	await := func(ctx context.Context) error {
		return a.withJobs(ctx, func(l *fleetLink) (err error) {
			end, err = l.jobs.Wait(ctx, j.ID)
			return err
		})
	}
	if err = await(keys.Soft); err != nil && keys.Soft.Err() != nil {
		if _, err = a.cancelJob(keys.Hard, j.ID); err == nil {
			err = await(keys.Hard)
		}
	}
	if err != nil {
		if keys.Hard.Err() != nil {
			a.notef("the job %s goes on; nous fleet jobs shows it", j.ID)
			err = context.Cause(keys.Hard)
		}
		return leftOr(err)
	}
	return a.printEnd(end)
}

// noteSubmitted says of a job what else is not seen until somebody looks: that it was there
// already, or that nobody can take it.
func (a *app) noteSubmitted(ctx context.Context, l *fleetLink, j job.Job, again bool) {
	if again {
		how := ""
		if e, over, err := l.jobs.End(ctx, j.ID); err == nil && over {
			how = fmt.Sprintf("; it is over (%s), and is not done again under this id", plain.OneLine(string(e.StopReason), 20))
		} else if m, ok, err := l.jobs.Get(ctx, j.ID); err == nil && ok && jobs.Differs(j, m) {
			how = " that says something else; yours is not done"
		}
		a.notef("there is a job %s already%s", j.ID, how)
		return
	}
	hosts, err := a.presences(ctx)
	if err != nil { // it is submitted all the same
		return
	}
	if why := jobs.WhyNobody(j, hosts); why != "" {
		a.notef("the job %s waits: %s", j.ID, why)
	}
}

func (a *app) printJobID(id string) {
	if a.json {
		line, _ := json.Marshal(map[string]string{"id": id})
		a.printJSON(line)
		return
	}
	a.println(id)
}

// printEnd prints how a job ended, and exits as its run does.
func (a *app) printEnd(e job.End) error {
	if a.json {
		a.printJSON(e.Encode())
		return exitOfRun(protocol.AgentEnd{StopReason: e.StopReason, Error: e.Error}, false)
	}
	if e.Output != "" {
		a.println(e.Output)
	}
	host := plain.OneLine(e.Host, jobs.MaxWord)
	if e.OutputTruncated {
		a.notef("the answer is longer; it is in the session %s of %s", plain.OneLine(e.SessionID, jobs.MaxWord), host)
	}
	switch {
	case e.Error != nil:
		on := ""
		if host != "" {
			on = " on " + host
		}
		why := plain.OneLine(plain.ErrorText(e.Error.Code, e.Error.Message, ""), maxReason)
		a.complain(fmt.Sprintf("the job %s failed%s: %s", e.ID, on, why))
	case e.StopReason == protocol.StopAborted && e.Host == "":
		a.complain(fmt.Sprintf("the job %s was cancelled; it had not begun", e.ID))
	case e.StopReason == protocol.StopAborted:
		a.complain(fmt.Sprintf("the job %s was cancelled, or its run aborted, on %s", e.ID, host))
	}
	return exitOfRun(protocol.AgentEnd{StopReason: e.StopReason, Error: e.Error}, false)
}

func (a *app) fleetCancelCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "cancel ID",
		Short: "Cancel a job that waits or runs",
		Long: `Cancel a job. One that waits is taken out of the queue; the run of one that has begun
is aborted by its daemon. The job's end is told as aborted. A daemon that is away
aborts the run when it comes back.

A job that has ended is not cancelled, and nous says so. It exits with 0 then, too, as
nothing of the job runs any more, and with 1 where there is no such job.`,
		Example: "  nous fleet cancel nightly-7",
		Args:    cmdline.Wants(1, 1, "ID, the id of a job"),
		RunE: func(cmd *cobra.Command, args []string) error {
			said, err := a.cancelJob(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			a.println(said)
			return nil
		},
	}
}

// cancelJob says in words what it did.
func (a *app) cancelJob(ctx context.Context, id string) (said string, err error) {
	if err := fleet.CheckID(id); err != nil {
		return "", cmdline.Errorf("id: %v", err)
	}
	err = a.withJobs(ctx, func(l *fleetLink) error {
		did, host, err := l.jobs.Cancel(ctx, id, cancelPatience)
		if err != nil {
			return err
		}
		switch did {
		case job.Unknown:
			return fmt.Errorf("there is no job %s", id)
		case job.Over:
			said = fmt.Sprintf("%s was not cancelled: it is over", id)
			if e, over, err := l.jobs.End(ctx, id); err == nil && over {
				said += fmt.Sprintf(" (%s)", plain.OneLine(string(e.StopReason), jobs.MaxWord))
			}
		case job.Removed:
			said = fmt.Sprintf("%s is cancelled; it had not begun", id)
		case job.Away:
			said = fmt.Sprintf("%s is cancelled; %s, where it ran, does not answer, and aborts the run when it is back", id,
				host)
		default:
			said = fmt.Sprintf("%s is cancelled on %s", id, host)
			if e, over, err := l.jobs.End(ctx, id); err == nil && over && e.StopReason != protocol.StopAborted {
				said = fmt.Sprintf("%s was not cancelled: it ended on %s meanwhile (%s)", id, host,
					plain.OneLine(string(e.StopReason), jobs.MaxWord))
			}
		}
		return nil
	})
	return said, err
}

func (a *app) fleetJobsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "jobs",
		Short: "List the jobs: what waits and why, what runs where, what has ended",
		Long: `List the jobs of the fleet: what waits and why, what runs where, and what has ended. WHEN
is when it was submitted, or, of one that is over, when it ended; beside one that runs are
the first words of its prompt.

What a job has said is in its session, which has the title "job ID", on its host:
nous --on HOST --session 'job ID' messages. nous fleet submit --id ID --wait, with the
text it was submitted with, prints the last answer again.`,
		Example: `  nous fleet jobs
  nous --on box --session 'job nightly-7' messages`,
		Args: cmdline.Wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withJobs(cmd.Context(), func(l *fleetLink) error { return a.listJobs(cmd.Context(), l) })
		},
	}
}

func (a *app) listJobs(ctx context.Context, l *fleetLink) error {
	claims, left, err := l.jobs.Claims(ctx)
	if err != nil {
		return err
	}
	hosts, err := a.presences(ctx)
	if err != nil {
		return err
	}
	ends, older, err := l.jobs.Ends(ctx, maxListed)
	if err != nil {
		return err
	}
	var all []jobs.Listed
	for _, e := range ends {
		all = append(all, jobs.Ended(e))
	}
	waiting, more, err := l.waiting(ctx, jobs.NewView(claims, hosts, l.jobs.Timeout))
	if err != nil {
		return err
	}
	a.printJobs(append(all, waiting...))
	if older > 0 {
		a.notef("%s that ended earlier: of those that are over only the newest %d are listed",
			format.Count(int(older), "more job"), maxListed)
	}
	if more {
		a.notef("more jobs wait or run than the oldest %d, which are listed", maxListed)
	}
	if left > 0 {
		a.notef("there are too many claims: %d were not looked at, and what is shown as queued may run", left)
	}
	return nil
}

// waiting are the oldest jobs of the queue; more: there are others.
func (l *fleetLink) waiting(ctx context.Context, v *jobs.View) (all []jobs.Listed, more bool, err error) {
	for after := uint64(0); ; {
		m, ok, err := l.jobs.Next(ctx, after)
		if err != nil || !ok || len(all) == maxListed {
			return all, ok, err
		}
		after = m.Seq
		all = append(all, v.Standing(m))
	}
}

func (a *app) printJobs(all []jobs.Listed) {
	rows := make([][]string, len(all))
	for i, j := range all {
		if a.json {
			line, _ := json.Marshal(j)
			a.printJSON(line)
			continue
		}
		state := j.State
		if j.StopReason != "" {
			state = string(j.StopReason)
		}
		rows[i] = []string{
			plain.OneLine(j.ID, jobs.MaxWord), plain.OneLine(state, jobs.MaxWord),
			plain.OneLine(cmp.Or(j.Host, "-"), jobs.MaxWord), plain.OneLine(cmp.Or(j.SessionID, "-"), jobs.MaxWord),
			j.When(), plain.OneLine(cmp.Or(j.Why, j.Prompt), 2*plain.LineWidth),
		}
	}
	switch {
	case a.json:
	case len(all) == 0:
		a.notef("there are no jobs")
	default:
		a.printTable([]string{"JOB", "STATE", "HOST", "SESSION", "WHEN", ""}, rows)
	}
}

// presences are the daemons that are there.
func (a *app) presences(ctx context.Context) (map[string]fleet.Presence, error) {
	f, err := a.openFleet()
	if err != nil {
		return nil, err
	}
	all, err := f.Hosts(ctx)
	var refused *via.RefusedError
	if errors.As(err, &refused) && refused.Missing {
		return nil, nil // nobody has joined yet
	}
	hosts := map[string]fleet.Presence{}
	for _, h := range all {
		hosts[h.Name] = h.Presence
	}
	return hosts, err
}

// fleetError is that the fleet cannot be reached.
type fleetError struct{ err error }

func (e *fleetError) Error() string {
	if refused := (*via.RefusedError)(nil); errors.As(e.err, &refused) {
		return refused.Error()
	}
	return fmt.Sprintf("the fleet cannot be reached: %v", e.err)
}
func (e *fleetError) Unwrap() error { return e.err }

// fleetLink is a connection to a fleet.
type fleetLink struct {
	*fleet.Conn
	js     jetstream.JetStream
	prefix fleet.Prefix
	jobs   *job.Queue
	denied *atomic.Pointer[via.RefusedError] // the last thing that the server has denied
}

// joinJobs connects to the fleet's jobs. It blocks until the server has answered.
func (a *app) joinJobs(ctx context.Context) (*fleetLink, error) {
	if len(a.via.on) > 0 {
		return nil, cmdline.Errorf("--on: a job goes to any daemon that has its labels; --label says which")
	}
	way, _, err := a.fleetOptions()
	if err != nil {
		return nil, err
	}
	// Who may not hear of an end when it is told looks for it: what is denied counts only
	// where an answer does not come. People may not make what is missing.
	server, denied := strings.Join(way.URLs, ", "), new(atomic.Pointer[via.RefusedError])
	opening, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	conn, err := way.Dial(ctx, "nous", nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if !errors.Is(err, nats.ErrPermissionViolation) {
			return
		}
		denied.Store(via.Denied(server, err))
		if _, name, making := strings.Cut(err.Error(), "$JS.API.STREAM.CREATE."); making {
			stop(via.Missing(server, "stream "+strings.TrimRight(name, `"`)))
		}
	}))
	if err != nil {
		return nil, refusedOr(server, err)
	}
	l := &fleetLink{Conn: conn, prefix: way.Prefix, denied: denied}
	if l.js, err = jetstream.New(conn.Conn); err == nil {
		l.jobs, err = job.Open(opening, l.js, way.Prefix, job.DefaultTimeout)
	}
	if err != nil {
		conn.Close()
		if missing := (*via.RefusedError)(nil); errors.As(context.Cause(opening), &missing) {
			return nil, missing
		}
		return nil, l.why(ctx, refusedOr(server, err))
	}
	return l, nil
}

// refusedOr is an error of a way to the fleet, in the words of the others that need it.
func refusedOr(server string, err error) *fleetError {
	if refused := via.Refused(server, "what a fleet needs", err); refused != nil {
		err = errors.Join(refused, err)
	}
	return &fleetError{err}
}

// why is what the server has denied, where an answer did not come for it.
func (l *fleetLink) why(ctx context.Context, err error) error {
	if denied := l.denied.Load(); denied != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return denied
	}
	return err
}

// withJobs does something with the fleet's jobs. Where the connection is lost
// meanwhile, it says so and connects again, if that goes within a while: do must be
// something that may be done again.
func (a *app) withJobs(ctx context.Context, do func(*fleetLink) error) error {
	for {
		l, err := a.joinJobs(ctx)
		if err != nil {
			return err
		}
		err = l.why(ctx, do(l))
		lost := l.IsClosed()
		l.Close()
		if err == nil || !lost || ctx.Err() != nil {
			return err
		}
		a.notef("the connection to the fleet was lost; trying again")
		if err := a.untilFleet(ctx); err != nil {
			return err
		}
	}
}

const fleetPause = 500 * time.Millisecond

// untilFleet waits until the fleet can be reached.
func (a *app) untilFleet(ctx context.Context) error {
	for until := time.Now().Add(a.answer); ; {
		l, err := a.joinJobs(ctx)
		if err == nil {
			l.Close()
			return nil
		}
		var away *fleetError
		if !errors.As(err, &away) || time.Now().After(until) {
			return err
		}
		select {
		case <-time.After(fleetPause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
