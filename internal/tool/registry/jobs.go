package registry

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	jsonx "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"

	"noused/internal/format"
	"noused/internal/model"
	"noused/internal/proc"
	"noused/internal/tool"
)

// Bounds of jobs, in the whole daemon: how many are known, and with the bytes of
// one's output what they keep on the disk.
const (
	maxJobs        = 64
	maxSessionJobs = 16
	maxJobCommand  = 1 << 10 // bytes of it that are told

	jobWait    = time.Minute      // unless the call says otherwise
	maxJobWait = 10 * time.Minute // at most
	jobEndTime = 10 * time.Second // for one to be dead after SIGKILL
)

// jobs are the commands that go on in the background. They are sessions', not
// calls': the abort of a run does not end them. The Supervisor starts them, in
// the sandbox of the tool that they were started with, so that they end with the
// daemon, however that ends.
type jobs struct {
	files      tool.Outputs // what they write
	supervisor *proc.Supervisor

	starting sync.Mutex // held while one is started
	mu       sync.Mutex
	list     []*job // by age
	numbers  map[string]int
	closed   bool
	trimming sync.Mutex // one output at a time

	tell atomic.Pointer[func(session string, ended model.Job)]
}

type job struct {
	session, id, command string
	process              *proc.Process
	output               *jobOutput
	done                 chan struct{} // closed once nothing is left of it
	exit                 proc.Exit     // valid once done
}

func newJobs(files tool.Outputs, s *proc.Supervisor) *jobs {
	return &jobs{files: files, supervisor: s, numbers: map[string]int{}}
}

// call runs the operations that are the daemon's own, in place of the module of
// the built-in tools. False: the call is the module's.
func (j *jobs) call(ctx context.Context, d *tool.Descriptor, op string, inv model.Invocation,
	progress func(model.ToolUpdate),
) (model.ToolResult, bool) {
	var a struct {
		Background bool     `json:"background"`
		Command    string   `json:"command"`
		ID         string   `json:"id"`
		Action     string   `json:"action"`
		Timeout    *float64 `json:"timeout"`
	}
	if d.Jobs && op == tool.Agent {
		return model.Failed(tool.UnsupportedOp, "only a model calls agent, in a run of its session"), true
	}
	if d.Jobs && op == "todo" {
		text, err := todo(inv.Arguments, progress)
		if err != nil {
			return tool.Failure(err), true
		}
		return model.ToolResult{OK: true, Text: text}, true
	}
	if !d.Jobs || op != "bash" && op != "job" || jsonx.Unmarshal(jsontext.Value(inv.Arguments), &a) != nil ||
		op == "bash" && !a.Background {
		return model.ToolResult{}, false
	}
	var text string
	var err error
	if op == "bash" {
		text, err = j.launch(d, inv.SessionID, a.Command, progress)
	} else {
		text, err = j.act(ctx, inv, a.ID, a.Action, a.Timeout)
	}
	if err != nil {
		return tool.Failure(err), true
	}
	return model.ToolResult{OK: true, Text: text}, true
}

// launch starts a job, and reports it before the call has its result.
func (j *jobs) launch(d *tool.Descriptor, session, command string, progress func(model.ToolUpdate)) (string, error) {
	started, err := j.start(d, session, command)
	if err != nil {
		return "", err
	}
	told := started.told()
	progress(model.ToolUpdate{Job: &told, Delta: told.ID + " has started"})
	return fmt.Sprintf("%s was started and goes on. What it prints is in %s. The tool job shows its output, waits for "+
		"it and stops it; it ends with the session.", told.ID, told.OutputPath), nil
}

func (j *jobs) start(d *tool.Descriptor, session, command string) (*job, error) {
	j.starting.Lock()
	defer j.starting.Unlock()
	if err := j.makeRoom(session); err != nil {
		return nil, err
	}
	cmd, err := shellCommand(d, command)
	if err != nil {
		return nil, err
	}
	s := j.supervisor
	if d.Sandbox != tool.SandboxNone {
		if s, err = d.Confine(s); err != nil {
			return nil, err
		}
	}
	number, f, err := j.newFile(session)
	if err != nil {
		return nil, tool.Faultf(tool.Internal, "the job's output cannot be kept: %v", err)
	}
	p, err := tool.Start(context.Background(), s, cmd)
	if err != nil {
		_ = f.Close()
		_ = os.Remove(f.Name())
		return nil, err
	}
	started := &job{
		session: session, id: fmt.Sprint(tool.KeptJob, number), command: format.Cut(command, maxJobCommand),
		process: p, output: &jobOutput{file: f, trimming: &j.trimming}, done: make(chan struct{}),
	}
	j.mu.Lock()
	j.list = append(j.list, started)
	j.mu.Unlock()
	go func() { // ends with the process
		started.follow()
		if tell := j.tell.Load(); tell != nil {
			(*tell)(session, started.told())
		}
	}()
	return started, nil
}

// shellCommand has a shell run a command.
func shellCommand(d *tool.Descriptor, command string) (proc.Command, error) {
	cmd, err := d.Command()
	if err != nil {
		return cmd, err
	}
	shell, err := d.LookPath("bash")
	if err != nil {
		shell, err = d.LookPath("sh")
	}
	if err != nil {
		return cmd, tool.Faultf(tool.Unreachable, "requires the command bash or sh")
	}
	if strings.ContainsRune(command, 0) {
		return cmd, tool.Faultf(tool.BadRequest, "command: has a NUL character")
	}
	cmd.Name, cmd.Path, cmd.MaxLine, cmd.Script = "the job", shell, 0, true
	cmd.Args = []string{shell, "-c", command}
	return cmd, nil
}

// makeRoom forgets the oldest job that has ended where there are too many.
func (j *jobs) makeRoom(session string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return tool.Faultf(tool.Aborted, "the daemon is stopping")
	}
	own := func(o *job) bool { return o.session == session }
	for _, bound := range []struct {
		most  int
		where string
		in    func(*job) bool
	}{{maxSessionJobs, "this session", own}, {maxJobs, "the daemon", func(*job) bool { return true }}} {
		n := 0
		for _, o := range j.list {
			if bound.in(o) {
				n++
			}
		}
		if n < bound.most {
			continue
		}
		i := slices.IndexFunc(j.list, func(o *job) bool { return bound.in(o) && o.hasEnded() })
		if i < 0 {
			return tool.Faultf(tool.Forbidden, "%s has %d jobs that run, and no more are allowed: stop one first", bound.where,
				n)
		}
		j.list[i].output.remove()
		j.list = slices.Delete(j.list, i, i+1)
	}
	return nil
}

// newFile makes the file of a session's next job. Those of former daemons, the
// oldest first, make room for it.
func (j *jobs) newFile(session string) (number int, f *os.File, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.files.Trim(tool.KeptJob, maxJobs-1, maxJobs*maxJobOutput, j.writes)
	for range 10_000 {
		j.numbers[session]++
		number = j.numbers[session]
		f, err = j.files.Create(session, fmt.Sprint(tool.KeptJob, number, ".txt"))
		if !errors.Is(err, os.ErrExist) {
			return number, f, err
		}
	}
	return 0, nil, err
}

// writes reports whether a job of this daemon has that file. j.mu is held.
func (j *jobs) writes(path string) bool {
	return slices.ContainsFunc(j.list, func(o *job) bool { return o.output.file.Name() == path })
}

// act does what the tool job is asked to do with a job of the session's.
func (j *jobs) act(ctx context.Context, inv model.Invocation, id, action string, timeout *float64) (string, error) {
	o, err := j.find(inv.SessionID, id)
	if err != nil {
		return "", err
	}
	wait := jobWait
	if timeout != nil {
		wait = min(time.Duration(*timeout*float64(time.Second)), maxJobWait)
	}
	switch action {
	case "wait":
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-o.done:
		case <-timer.C:
		case <-ctx.Done():
			return "", tool.Interrupted(ctx)
		}
	case "stop":
		o.process.Stop()
		if !o.await(ctx) {
			return "", tool.Faultf(tool.Internal, "%s does not end", id)
		}
	}
	most := tool.DefaultMaxText - 1<<10
	if inv.MaxResult > 0 {
		most = min(most, max(inv.MaxResult, minText)-minText/2)
	}
	return o.report(most), nil
}

func (j *jobs) find(session, id string) (*job, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	known := "none"
	for _, o := range j.list {
		switch {
		case o.session != session:
		case o.id == id:
			return o, nil
		case known == "none":
			known = o.id
		default:
			known += ", " + o.id
		}
	}
	return nil, tool.Faultf(tool.BadRequest, "id: there is no job %.80q in this session; there is %s. Jobs end with the "+
		"daemon: what one wrote that ended so is in the file that was named as it began", id, known)
}

// Jobs are those of a session, by age.
func (r *Registry) Jobs(session string) (list []model.Job) {
	r.jobs.mu.Lock()
	defer r.jobs.mu.Unlock()
	for _, o := range r.jobs.list {
		if o.session == session {
			list = append(list, o.told())
		}
	}
	return list
}

// EndSession ends what is there for a session alone, servers and jobs, and removes what
// was kept for it, by former daemons too. It blocks until nothing of them is left, or
// ctx ends.
func (r *Registry) EndSession(ctx context.Context, session string) {
	j := r.jobs
	r.endServers(ctx, session)
	for _, m := range r.all() {
		m.endWhere(j.files.Of(session))
	}
	j.end(ctx, func(o *job) bool { return o.session == session })
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.numbers, session)
	if err := j.files.End(session); err != nil {
		r.log.Error("outputs of a session that has ended are left", zap.String("session_id", session), zap.Error(err))
	}
}

// end ends those jobs, all at once, and forgets them.
func (j *jobs) end(ctx context.Context, which func(*job) bool) {
	j.mu.Lock()
	var ending []*job
	j.list = slices.DeleteFunc(j.list, func(o *job) bool {
		if which(o) {
			ending = append(ending, o)
		}
		return which(o)
	})
	j.mu.Unlock()
	for _, o := range ending {
		o.process.Stop()
	}
	for _, o := range ending {
		o.await(ctx)
		o.output.close()
	}
}

// close ends all jobs; what they have written stays.
func (j *jobs) close(ctx context.Context) {
	j.mu.Lock()
	j.closed = true
	j.mu.Unlock()
	j.starting.Lock() // the last one has been started
	defer j.starting.Unlock()
	j.end(ctx, func(*job) bool { return true })
}

// follow takes in what the job prints and how it ends.
func (o *job) follow() {
	buf := make([]byte, 16<<10)
	for {
		n, err := o.process.Read(buf)
		o.output.write(buf[:n])
		if err != nil {
			break
		}
	}
	o.exit = o.process.Wait()
	close(o.done)
}

func (o *job) hasEnded() bool {
	select {
	case <-o.done:
		return true
	default:
		return false
	}
}

// await waits for a job that was told to end; where ctx ends before, it is killed.
func (o *job) await(ctx context.Context) bool {
	timer := time.NewTimer(proc.KillGrace + jobEndTime)
	defer timer.Stop()
	select {
	case <-o.done:
		return true
	case <-ctx.Done():
		o.process.Kill()
	case <-timer.C:
		return false
	}
	select {
	case <-o.done:
		return true
	case <-timer.C:
		return false
	}
}

func (o *job) told() model.Job {
	t := model.Job{ID: o.id, Command: o.command, Status: model.JobRunning, OutputPath: o.output.file.Name()}
	if o.hasEnded() {
		t.Status = model.JobExited
		if code := o.exit.Code; o.exit.Stopped {
			t.Status = model.JobStopped
		} else if o.exit.Signal != 0 {
			code = 128 + int(o.exit.Signal) // as a shell has it
			t.ExitCode = &code
		} else {
			t.ExitCode = &code
		}
	}
	return t
}

// report is the state of a job and the last of what it has printed, in at most
// about so many bytes.
func (o *job) report(most int) string {
	t := o.told()
	text, size, err := o.output.last(most)
	said := t.ID + " is running"
	switch {
	case t.Status == model.JobStopped:
		said = t.ID + " was stopped"
	case t.ExitCode != nil:
		said = fmt.Sprintf("%s has ended with exit status %d", t.ID, *t.ExitCode)
	}
	switch {
	case err != nil:
		said += fmt.Sprintf("; of its output not all could be kept: %v", err)
	case size == 0:
		return said + "; it has printed nothing"
	case len(text) < int(size):
		said += fmt.Sprintf("; the last of the %d bytes that it has printed, more is in %s:", size, t.OutputPath)
	default:
		said += fmt.Sprintf("; what it has printed, also in %s:", t.OutputPath)
	}
	return said + "\n" + strings.ToValidUTF8(text, "\uFFFD")
}
