// Package job has the jobs of a fleet (remote.md §2): what one says, who works at it,
// how it ended, and the queue in which jobs wait in NATS.
//
// A job is a message in a work queue. A daemon that begins with it, or cancels it, first makes
// its claim: a key in a bucket whose keys live for job_timeout unless they are renewed,
// and which the server lets one of many make. So labels need no filter of the server's,
// a job that fits nobody holds up no other, and a daemon that was away sees in the claim
// whether a job is still its own. The end is told under the condition that none was told
// before.
//
// Concurrency: values and functions, and a Queue, which any number of goroutines may use.
// Its methods block until the server has answered, or their context ends.
//
// It refuses to run anything, to decide who takes a job, to keep a connection, and to log.
package job

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/fleet"
	"noused/internal/format"
	"noused/internal/protocol"
)

// Bounds, in bytes.
const (
	maxPath  = 4096
	maxModel = 256
	// MaxOutput is the most of a run's last message that an end has.
	MaxOutput  = 128 << 10
	maxMessage = 2000
)

// Job is work for one daemon: a prompt in a session of its own.
type Job struct {
	ID     string            `json:"id"`
	Labels map[string]string `json:"labels,omitempty"` // a daemon must have all of them
	// Workdir is the session's folder, Repo a git repository of which it gets a worktree;
	// both absolute, on the daemon's machine. Neither: the daemon's own folder.
	Workdir   string                `json:"workdir,omitempty"`
	Repo      string                `json:"repo,omitempty"`
	Prompt    string                `json:"prompt"`
	Model     string                `json:"model,omitempty"`     // PROVIDER/NAME; "": the daemon's own
	Approvals protocol.ApprovalMode `json:"approvals,omitempty"` // deny, which "" means too
}

// Parse reads a job, which must have that id. Fields that it does not know, and what
// Check refuses, are errors.
func Parse(id string, text []byte) (j Job, err error) {
	if len(text) > fleet.MaxJob {
		return j, fmt.Errorf("it has %d bytes, and at most %d may be", len(text), fleet.MaxJob)
	}
	if err := json.Unmarshal(text, &j, json.RejectUnknownMembers(true)); err != nil {
		return Job{}, fmt.Errorf("it is no job: %w", problem(err))
	}
	if j.ID != id {
		return Job{}, fmt.Errorf("id: it is %.80q, but the subject says %.80q", j.ID, id)
	}
	return j, j.Check()
}

// problem is an error of the decoder's in few words.
func problem(err error) error {
	var field *json.SemanticError
	if errors.As(err, &field) && field.JSONPointer != "" {
		name := strings.TrimPrefix(string(field.JSONPointer), "/")
		if errors.Is(err, json.ErrUnknownName) {
			return fmt.Errorf("there is no field %.80q", name)
		}
		return fmt.Errorf("%.80s: want another type", name)
	}
	return fmt.Errorf("%.200s", err.Error())
}

// Check refuses what no daemon could do.
func (j Job) Check() error {
	if err := fleet.CheckID(j.ID); err != nil {
		return fmt.Errorf("id: %w", err)
	}
	if err := fleet.CheckLabels(j.Labels); err != nil {
		return fmt.Errorf("labels: %w", err)
	}
	for _, p := range []struct{ field, path string }{{"workdir", j.Workdir}, {"repo", j.Repo}} {
		if p.path != "" && (!filepath.IsAbs(p.path) || len(p.path) > maxPath || strings.ContainsRune(p.path, 0)) {
			return fmt.Errorf("%s: want an absolute path of at most %d bytes", p.field, maxPath)
		}
	}
	switch {
	case j.Workdir != "" && j.Repo != "":
		return errors.New("workdir and repo: want one of the two")
	case strings.TrimSpace(j.Prompt) == "":
		return errors.New("prompt: want a non-empty text")
	case len(j.Model) > maxModel:
		return fmt.Errorf("model: it has %d bytes, and at most %d may be", len(j.Model), maxModel)
	case j.Approvals != "" && j.Approvals != protocol.ApprovalsDeny:
		return fmt.Errorf("approvals: %.40q: want deny, as there is nobody to ask", j.Approvals)
	}
	return nil
}

// Fits tells whether a daemon with these labels can take the job.
func (j Job) Fits(have map[string]string) bool {
	for key, value := range j.Labels {
		if got, ok := have[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// Claim says who has begun with a job. It is written anew while the work goes on.
type Claim struct {
	Host      string    `json:"host,omitempty"`     // "": a client, which cancels it
	Instance  string    `json:"instance,omitempty"` // as in fleet.Presence
	SessionID string    `json:"session_id,omitempty"`
	RunID     string    `json:"run_id,omitempty"`
	At        time.Time `json:"at"`               // when it was taken, by the host's clock
	Cancel    bool      `json:"cancel,omitempty"` // its host is to abort it
	Ended     bool      `json:"ended,omitempty"`  // its end was told
}

// End is the report of a job that is over.
type End struct {
	ID         string              `json:"id"`
	Host       string              `json:"host"` // "": nobody had begun with it
	SessionID  string              `json:"session_id"`
	RunID      string              `json:"run_id"`
	StopReason protocol.StopReason `json:"stop_reason"` // completed, aborted or error
	Output     string              `json:"output"`      // text of the last message
	Usage      jsontext.Value      `json:"usage"`       // as in agent_end

	OutputTruncated bool               `json:"output_truncated,omitempty"` // Output is its beginning
	Error           *protocol.RunError `json:"error,omitempty"`

	At time.Time `json:"-"` // when it was told, by the server's clock, where Ends has read it
}

// Failed is the end of a job that came to no run, or to nothing in it.
func Failed(id, host string, code protocol.Code, message string) End {
	return End{
		ID: id, Host: host, StopReason: protocol.StopError, Usage: noUsage,
		Error: &protocol.RunError{Code: code, Message: format.Cut(message, maxMessage)},
	}
}

// Cancelled is the end of a job that nobody had begun with.
func Cancelled(id string) End {
	return End{ID: id, StopReason: protocol.StopAborted, Usage: noUsage}
}

var noUsage = jsontext.Value(`{"input_tokens":0,"output_tokens":0}`)

// Bounded is an end that is within what a server carries, whatever a run has said.
func (e End) Bounded() End {
	if cut := format.Cut(e.Output, MaxOutput); len(cut) < len(e.Output) {
		e.Output, e.OutputTruncated = cut, true
	}
	if e.Error != nil {
		e.Error = &protocol.RunError{Code: e.Error.Code, Message: format.Cut(e.Error.Message, maxMessage)}
	}
	if !e.Usage.IsValid() {
		e.Usage = noUsage
	}
	return e
}

// Encode is the message that tells an end, Bounded.
func (e End) Encode() []byte {
	e = e.Bounded()
	text, err := json.Marshal(e, jsontext.AllowInvalidUTF8(true))
	if err != nil { // texts, and a value that is valid
		text = fmt.Appendf(nil, `{"id":%q,"stop_reason":"error"}`, e.ID)
	}
	return text
}

// encodeWithin is Encode in at most so many bytes, where less of the output makes that.
func (e End) encodeWithin(most int) []byte {
	e = e.Bounded()
	if text := e.Encode(); len(text) <= most {
		return text
	}
	output := e.Output
	e.Output, e.OutputTruncated = "", true
	rest := len(e.Encode())
	for {
		e.Output = output
		text := e.Encode()
		if len(text) <= most || output == "" {
			return text
		}
		// Once more where the beginning takes more than its share.
		output = format.Cut(output, len(output)*max(most-rest, 0)/(len(text)-rest))
	}
}
