package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"noused/internal/cmdline"
	"noused/internal/fleet"
	"noused/internal/fleet/job"
	"noused/internal/protocol"
)

const (
	// cancelPatience is how long a host may take to end the run of a cancelled job.
	cancelPatience = 10 * time.Second
	maxListed      = 1000 // jobs that wait, and ends, that are listed
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
of --repo, or in the daemon's own folder. What its rules ask about is denied, as there
is nobody to ask.

` + inputHelp + `

It prints the job's id. With --wait it prints the last answer instead, when the run
has ended, and exits as nous prompt does. Ctrl-C then cancels the job; a second one
leaves it.

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
		if again {
			a.notef("there is a job %s already", j.ID)
		}
		return err
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
		return exitOfRun(e.StopReason)
	}
	if e.Output != "" {
		a.println(e.Output)
	}
	if e.OutputTruncated {
		a.notef("the answer is longer; it is in the session %s of %s", e.SessionID, e.Host)
	}
	if e.Error != nil {
		a.complain(describeError(e.Error.Code, e.Error.Message, ""))
	}
	return exitOfRun(e.StopReason)
}

func (a *app) fleetCancelCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "cancel ID",
		Short: "Cancel a job that waits or runs",
		Long: `Cancel a job. One that waits is taken out of the queue; the run of one that has begun
is aborted by its daemon. The job's end is told as aborted. A daemon that is away
aborts the run when it comes back.`,
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
		return "", cmdline.Errorf("%v", err)
	}
	return said, a.withJobs(ctx, func(l *fleetLink) error {
		did, host, err := l.jobs.Cancel(ctx, id, cancelPatience)
		if err != nil {
			return err
		}
		switch did {
		case job.Unknown:
			return fmt.Errorf("there is no job %s", id)
		case job.Over:
			said = fmt.Sprintf("%s is over", id)
		case job.Removed:
			said = fmt.Sprintf("%s is cancelled; it had not begun", id)
		default:
			said = fmt.Sprintf("%s is cancelled on %s", id, host)
		}
		return nil
	})
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
}

func (a *app) fleetJobsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "jobs",
		Short: "List the jobs: what waits and why, what runs where, what has ended",
		Args:  cmdline.Wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withJobs(cmd.Context(), func(l *fleetLink) error { return a.listJobs(cmd.Context(), l) })
		},
	}
}

func (a *app) listJobs(ctx context.Context, l *fleetLink) error {
	claims, err := l.jobs.Claims(ctx)
	if err != nil {
		return err
	}
	hosts, err := l.hosts(ctx)
	if err != nil {
		return err
	}
	ends, err := l.jobs.Ends(ctx, maxListed)
	if err != nil {
		return err
	}
	var all []listedJob
	for _, e := range ends {
		all = append(all, ended(e))
	}
	more := false
	for after, n := uint64(0), 0; ; n++ {
		m, ok, err := l.jobs.Next(ctx, after)
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		if more = n == maxListed; more {
			break
		}
		after = m.Seq
		all = append(all, standing(m, claims, hosts))
	}
	a.printJobs(all)
	if more {
		a.notef("more jobs wait than are listed")
	}
	return nil
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
		rows[i] = []string{j.ID, state, cmp.Or(j.Host, "-"), cmp.Or(j.SessionID, "-"), oneLine(j.Why, 2*lineWidth)}
	}
	switch {
	case a.json:
	case len(all) == 0:
		a.notef("there are no jobs")
	default:
		a.printTable([]string{"JOB", "STATE", "HOST", "SESSION", ""}, rows)
	}
}

func ended(e job.End) listedJob {
	j := listedJob{ID: e.ID, State: "done", Host: e.Host, SessionID: e.SessionID, RunID: e.RunID, StopReason: e.StopReason}
	if e.Error != nil {
		j.Why = e.Error.Message
	}
	return j
}

func describeLabels(labels map[string]string) string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		all = append(all, key+"="+labels[key])
	}
	return strings.Join(all, " ")
}

// standing is how it is with a job of the queue.
func standing(m job.Queued, claims map[string]job.Claim, hosts map[string]fleet.Presence) listedJob {
	j := listedJob{ID: m.ID, State: "queued"}
	said, bad := job.Parse(m.ID, m.Text)
	j.Labels = said.Labels
	c, claimed := claims[m.ID]
	switch {
	case bad != nil:
		j.Why = "it will be refused: " + bad.Error()
	case claimed && !c.Ended:
		j.Host, j.SessionID, j.RunID, j.State = c.Host, c.SessionID, c.RunID, "running"
		if c.RunID == "" {
			j.State = "starting"
		}
		if c.Cancel {
			j.State = "cancelling"
		}
		if _, there := hosts[c.Host]; !there && c.Host != "" {
			j.Why = "its host is away"
		}
	default:
		j.Why = whyQueued(said, claims, hosts)
	}
	return j
}

// whyQueued is why a job has not begun.
func whyQueued(j job.Job, claims map[string]job.Claim, hosts map[string]fleet.Presence) string {
	busy := map[string]int{}
	for _, c := range claims {
		if !c.Ended {
			busy[c.Host]++
		}
	}
	fits, free := false, false
	for name, h := range hosts {
		if j.Fits(h.Labels) && h.Slots > 0 {
			fits = true
			free = free || busy[name] < h.Slots
		}
	}
	switch {
	case len(hosts) == 0:
		return "no host is there"
	case !fits && len(j.Labels) > 0:
		return "no host that takes jobs has these labels: " + describeLabels(j.Labels)
	case !fits:
		return "no host takes jobs"
	case !free:
		return "no slot is free"
	}
	return "it is about to begin"
}

// hosts are the daemons that are there.
func (l *fleetLink) hosts(ctx context.Context) (map[string]fleet.Presence, error) {
	kv, err := l.prefix.OpenHosts(ctx, l.js)
	if err != nil {
		return nil, err
	}
	w, err := kv.WatchAll(ctx, jetstream.IgnoreDeletes())
	if err != nil {
		return nil, err
	}
	defer func() { _ = w.Stop() }()
	hosts := map[string]fleet.Presence{}
	for {
		select {
		case entry, more := <-w.Updates():
			if !more {
				return nil, errors.New("the connection to the fleet was lost")
			}
			if entry == nil {
				return hosts, nil
			}
			var p fleet.Presence
			if json.Unmarshal(entry.Value(), &p) == nil {
				hosts[entry.Key()] = p
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
