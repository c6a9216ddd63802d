// Package jobs is what clients do with the jobs of a fleet, and know of them: what waits and why, what
// runs where, and what has ended.
//
// Concurrency: the functions of a Fleet belong to one goroutine at a time; all else is pure. It
// refuses to run a job, and to print.
package jobs

import (
	"crypto/rand"
	"maps"
	"slices"
	"strings"
	"time"

	"noused/internal/client/plain"
	"noused/internal/fleet"
	"noused/internal/fleet/job"
	"noused/internal/format"
	"noused/internal/protocol"
)

const MaxWord = 128 // of an id or a name, which others have written

func NewID() string { return "j-" + strings.ToLower(rand.Text()[:16]) }

// Differs tells whether a job of the queue is another than j, which has its id.
func Differs(j job.Job, there job.Queued) bool {
	have, err := job.Parse(there.ID, there.Text)
	have.Approvals = j.Approvals // deny has two names
	return err == nil && !(maps.Equal(j.Labels, have.Labels) && j.Workdir == have.Workdir && j.Repo == have.Repo &&
		j.Prompt == have.Prompt && j.Model == have.Model)
}

// Listed is a line of nous fleet jobs.
type Listed struct {
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

// When is how long ago it was submitted, or has ended.
func (j Listed) When() string {
	at := j.Submitted
	if j.State == "done" {
		at = j.Ended
	}
	return format.Age(at, time.Now())
}

func Ended(e job.End) Listed {
	j := Listed{
		ID: e.ID, State: "done", Host: e.Host, SessionID: e.SessionID, RunID: e.RunID, StopReason: e.StopReason,
		Ended: e.At,
	}
	if e.Error != nil {
		j.Why = e.Error.Message
	}
	return j
}

// View is what is known of a fleet where its jobs are looked at.
type View struct {
	claims map[string]job.Claim
	hosts  map[string]fleet.Presence
	busy   map[string]int // slots, by the host

	timeout time.Duration // of claims
}

func NewView(claims map[string]job.Claim, hosts map[string]fleet.Presence, timeout time.Duration) *View {
	v := &View{claims, hosts, map[string]int{}, timeout}
	for _, c := range claims {
		v.busy[c.Host]++
	}
	return v
}

// Standing is how it is with a job of the queue.
func (v *View) Standing(m job.Queued) Listed {
	j := Listed{ID: m.ID, State: "queued", Submitted: m.At}
	said, bad := job.Parse(m.ID, m.Text)
	j.Labels, j.Prompt = said.Labels, plain.OneLine(said.Prompt, MaxWord)
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
func (v *View) whyQueued(j job.Job) string {
	if why := WhyNobody(j, v.hosts); why != "" {
		return why
	}
	for name, h := range v.hosts {
		if j.Fits(h.Labels) && v.busy[name] < h.Slots {
			return "it is about to begin"
		}
	}
	return "no slot is free"
}

// WhyNobody says why no online host will take a job; "": one will.
func WhyNobody(j job.Job, hosts map[string]fleet.Presence) string {
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
		return "the hosts with " + LabelText(j.Labels) + " take no jobs: they have slots = 0"
	case len(missing) > 0:
		return "no host has " + LabelText(missing)
	}
	return "no host has all of " + LabelText(j.Labels)
}

func LabelText(labels map[string]string) string {
	var words []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		words = append(words, key+"="+labels[key])
	}
	return plain.OneLine(strings.Join(words, " "), 120)
}
