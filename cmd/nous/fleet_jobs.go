package main

import (
	"cmp"
	"context"
	"path"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"noused/internal/client/jobs"
	"noused/internal/cmdline"
	"noused/internal/fleet"
	"noused/internal/fleet/job"
	"noused/internal/protocol"
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

// openJobs are the jobs of the fleet that is meant. It does not connect.
func (a *app) openJobs() (*jobs.Fleet, error) {
	if len(a.via.on) > 0 {
		return nil, cmdline.Errorf("--on: a job goes to any daemon that has its labels; --label says which")
	}
	o, _, err := a.fleetOptions()
	if err != nil {
		return nil, err
	}
	f, err := a.openFleet()
	return &jobs.Fleet{Fleet: f, Options: o, Patience: a.answer, Note: a.Notef}, err
}

func (a *app) submitJob(ctx context.Context, j job.Job, wait bool) error {
	f, err := a.openJobs()
	if err != nil {
		return err
	}
	keys := cmdline.WatchInterrupts(ctx)
	defer keys.Stop()
	if err := f.Submit(keys.Soft, j); err != nil || !wait {
		switch {
		case err == nil:
			a.printJobID(j.ID)
		case keys.Soft.Err() != nil:
			err = context.Cause(keys.Soft)
		}
		return interruptedExit(err)
	}
	end, err := f.Wait(keys.Soft, j.ID)
	if err != nil && keys.Soft.Err() != nil {
		if _, err = f.Cancel(keys.Hard, j.ID); err == nil {
			end, err = f.Wait(keys.Hard, j.ID)
		}
	}
	if err != nil {
		if keys.Hard.Err() != nil {
			a.Notef("the job %s goes on; nous fleet jobs shows it", j.ID)
			err = context.Cause(keys.Hard)
		}
		return interruptedExit(err)
	}
	jobs.PrintEnd(a.Printer, end)
	return exitOfRun(protocol.AgentEnd{StopReason: end.StopReason, Error: end.Error}, false)
}

func (a *app) printJobID(id string) {
	if a.JSON {
		line, _ := json.Marshal(map[string]string{"id": id})
		a.JSONLine(line)
		return
	}
	a.Println(id)
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
			if err := fleet.CheckID(args[0]); err != nil {
				return cmdline.Errorf("id: %v", err)
			}
			f, err := a.openJobs()
			if err != nil {
				return err
			}
			said, err := f.Cancel(cmd.Context(), args[0])
			if err == nil {
				a.Println(said)
			}
			return err
		},
	}
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
			f, err := a.openJobs()
			if err != nil {
				return err
			}
			all, err := f.List(cmd.Context())
			if err == nil {
				all.Print(a.Printer)
			}
			return err
		},
	}
}
