package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"path"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

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
	maxWord        = 128  // of an id or a name, which others have written
	maxReason      = 2000 // of why a job has failed
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
			j.Approvals, j.ID = protocol.ApprovalsDeny, cmp.Or(j.ID, newJobID())
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

func newJobID() string { return "j-" + strings.ToLower(rand.Text()[:16]) }

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
	keys := watchInterrupts(ctx)
	defer keys.stop()
	err := a.withJobs(keys.soft, func(l *fleetLink) error {
		again, err := l.jobs.Submit(keys.soft, j)
		if err != nil {
			return err
		}
		a.noteSubmitted(keys.soft, l, j, again)
		return nil
	})
	if err != nil || !wait {
		switch {
		case err == nil:
			a.printJobID(j.ID)
		case keys.soft.Err() != nil:
			err = context.Cause(keys.soft)
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
	if err = await(keys.soft); err != nil && keys.soft.Err() != nil {
		if _, err = a.cancelJob(keys.hard, j.ID); err == nil {
			err = await(keys.hard)
		}
	}
	if err != nil {
		if keys.hard.Err() != nil {
			a.notef("the job %s goes on; nous fleet jobs shows it", j.ID)
			err = context.Cause(keys.hard)
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
			how = fmt.Sprintf("; it is over (%s), and is not done again under this id", oneLine(string(e.StopReason), 20))
		} else if m, ok, err := l.jobs.Get(ctx, j.ID); err == nil && ok && differs(j, m) {
			how = " that says something else; yours is not done"
		}
		a.notef("there is a job %s already%s", j.ID, how)
		return
	}
	hosts, err := a.presences(ctx)
	if err != nil { // it is submitted all the same
		return
	}
	if why := whyNobody(j, hosts); why != "" {
		a.notef("the job %s waits: %s", j.ID, why)
	}
}

// differs tells whether a job of the queue is another than j, which has its id.
func differs(j job.Job, there job.Queued) bool {
	have, err := job.Parse(there.ID, there.Text)
	have.Approvals = j.Approvals // deny has two names
	return err == nil && !(maps.Equal(j.Labels, have.Labels) && j.Workdir == have.Workdir && j.Repo == have.Repo &&
		j.Prompt == have.Prompt && j.Model == have.Model)
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
	host := oneLine(e.Host, maxWord)
	if e.OutputTruncated {
		a.notef("the answer is longer; it is in the session %s of %s", oneLine(e.SessionID, maxWord), host)
	}
	switch {
	case e.Error != nil:
		on := ""
		if host != "" {
			on = " on " + host
		}
		a.complain(fmt.Sprintf("the job %s failed%s: %s", e.ID, on, oneLine(describeError(e.Error.Code, e.Error.Message, ""),
			maxReason)))
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
				said += fmt.Sprintf(" (%s)", oneLine(string(e.StopReason), maxWord))
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
					oneLine(string(e.StopReason), maxWord))
			}
		}
		return nil
	})
	return said, err
}

// listedJob is a line of nous fleet jobs.
type listedJob struct {
	ID         string              `json:"id"`
	State      string              `json:"state"` // queued, starting, running, cancelling or done
	Host       string              `json:"host,omitempty"`
	SessionID  string              `json:"session_id,omitempty"`
	RunID      string              `json:"run_id,omitempty"`
	StopReason protocol.StopReason `json:"stop_reason,omitempty"` // of one that is done
	Why        string              `json:"why,omitempty"`         // it waits, or has failed
	Labels     map[string]string   `json:"labels,omitempty"`
	Prompt     string              `json:"prompt,omitempty"` // its beginning, while it waits or runs
	Submitted  time.Time           `json:"submitted_at,omitzero"`
	Ended      time.Time           `json:"ended_at,omitzero"` // of one that is done
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
	var all []listedJob
	for _, e := range ends {
		all = append(all, ended(e))
	}
	waiting, more, err := l.waiting(ctx, newFleetView(claims, hosts, l.jobs.Timeout))
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
func (l *fleetLink) waiting(ctx context.Context, v *fleetView) (all []listedJob, more bool, err error) {
	for after := uint64(0); ; {
		m, ok, err := l.jobs.Next(ctx, after)
		if err != nil || !ok || len(all) == maxListed {
			return all, ok, err
		}
		after = m.Seq
		all = append(all, v.standing(m))
	}
}

func (a *app) printJobs(all []listedJob) {
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
			oneLine(j.ID, maxWord), oneLine(state, maxWord), oneLine(cmp.Or(j.Host, "-"), maxWord),
			oneLine(cmp.Or(j.SessionID, "-"), maxWord), j.when(), oneLine(cmp.Or(j.Why, j.Prompt), 2*lineWidth),
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

// when is how long ago it was submitted, or has ended.
func (j listedJob) when() string {
	at := j.Submitted
	if j.State == "done" {
		at = j.Ended
	}
	return format.Age(at, time.Now())
}

func ended(e job.End) listedJob {
	j := listedJob{
		ID: e.ID, State: "done", Host: e.Host, SessionID: e.SessionID, RunID: e.RunID, StopReason: e.StopReason,
		Ended: e.At,
	}
	if e.Error != nil {
		j.Why = e.Error.Message
	}
	return j
}

// fleetView is what is known of a fleet where its jobs are looked at.
type fleetView struct {
	claims map[string]job.Claim
	hosts  map[string]fleet.Presence
	busy   map[string]int // slots, by the host

	timeout time.Duration // of claims
}

func newFleetView(claims map[string]job.Claim, hosts map[string]fleet.Presence, timeout time.Duration) *fleetView {
	v := &fleetView{claims, hosts, map[string]int{}, timeout}
	for _, c := range claims {
		v.busy[c.Host]++
	}
	return v
}

// standing is how it is with a job of the queue.
func (v *fleetView) standing(m job.Queued) listedJob {
	j := listedJob{ID: m.ID, State: "queued", Submitted: m.At}
	said, bad := job.Parse(m.ID, m.Text)
	j.Labels, j.Prompt = said.Labels, oneLine(said.Prompt, maxWord)
	c, claimed := v.claims[m.ID]
	switch {
	case bad != nil:
		j.Why = "it will be refused: " + bad.Error()
	case claimed:
		j.Host, j.SessionID, j.RunID, j.State = c.Host, c.SessionID, c.RunID, "running"
		if c.RunID == "" {
			j.State = "starting"
		}
		if c.Cancel {
			j.State = "cancelling"
		}
		if _, there := v.hosts[c.Host]; !there && c.Host != "" {
			j.Why = "its host is away; after " + v.timeout.String() + " without it another host takes the job"
		}
	default:
		j.Why = v.whyQueued(said)
	}
	return j
}

// whyQueued is why a job has not begun.
func (v *fleetView) whyQueued(j job.Job) string {
	if why := whyNobody(j, v.hosts); why != "" {
		return why
	}
	for name, h := range v.hosts {
		if j.Fits(h.Labels) && v.busy[name] < h.Slots {
			return "it is about to begin"
		}
	}
	return "no slot is free"
}

// whyNobody says why no online host will take a job; "": one will.
func whyNobody(j job.Job, hosts map[string]fleet.Presence) string {
	missing, fits := maps.Clone(j.Labels), false
	for _, h := range hosts {
		if j.Fits(h.Labels) && h.Slots > 0 {
			return ""
		}
		fits = fits || j.Fits(h.Labels)
		maps.DeleteFunc(missing, func(key, value string) bool { return h.Labels[key] == value })
	}
	switch {
	case len(hosts) == 0:
		return "no host is there"
	case fits && len(j.Labels) == 0:
		return "no host takes jobs: all have slots = 0"
	case fits:
		return "the hosts with " + labelText(j.Labels) + " take no jobs: they have slots = 0"
	case len(missing) > 0:
		return "no host has " + labelText(missing)
	}
	return "no host has all of " + labelText(j.Labels)
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
