package jobs

import (
	"cmp"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"noused/internal/client/plain"
	"noused/internal/fleet"
	"noused/internal/fleet/job"
	"noused/internal/fleet/via"
	"noused/internal/format"
	"noused/internal/protocol"
)

const maxReason = 2000 // of why a job has failed

// Print lists them on standard output, and notes what is not among them.
func (all Listing) Print(p *plain.Printer) {
	printJobs(p, all.Jobs)
	if all.Older > 0 {
		p.Notef("%s that ended earlier: of those that are over only the newest %d are listed",
			format.Count(all.Older, "more job"), MaxListed)
	}
	if all.More {
		p.Notef("more jobs wait or run than the oldest %d, which are listed", MaxListed)
	}
	if all.Unread > 0 {
		p.Notef("there are too many claims: %d were not looked at, and what is shown as queued may run", all.Unread)
	}
}

func printJobs(p *plain.Printer, all []Listed) {
	rows := make([][]string, len(all))
	for i, j := range all {
		if p.JSON {
			line, _ := json.Marshal(j)
			p.JSONLine(line)
			continue
		}
		state := j.State
		if j.StopReason != "" {
			state = string(j.StopReason)
		}
		rows[i] = []string{
			plain.OneLine(j.ID, MaxWord), plain.OneLine(state, MaxWord),
			plain.OneLine(cmp.Or(j.Host, "-"), MaxWord), plain.OneLine(cmp.Or(j.SessionID, "-"), MaxWord),
			j.When(), plain.OneLine(cmp.Or(j.Why, j.Prompt), 2*plain.LineWidth),
		}
	}
	switch {
	case p.JSON:
	case len(all) == 0:
		p.Notef("there are no jobs")
	default:
		p.Table([]string{"JOB", "STATE", "HOST", "SESSION", "WHEN", ""}, rows)
	}
}

// PrintEnd prints how a job ended.
func PrintEnd(p *plain.Printer, e job.End) {
	if p.JSON {
		p.JSONLine(e.Encode())
		return
	}
	if e.Output != "" {
		p.Println(e.Output)
	}
	host := plain.OneLine(e.Host, MaxWord)
	if e.OutputTruncated {
		p.Notef("the answer is longer; it is in the session %s of %s", plain.OneLine(e.SessionID, MaxWord), host)
	}
	switch {
	case e.Error != nil:
		on := ""
		if host != "" {
			on = " on " + host
		}
		why := plain.CodedLine(e.Error.Code, e.Error.Message, maxReason)
		p.Complain(fmt.Sprintf("the job %s failed%s: %s", e.ID, on, why))
	case e.StopReason == protocol.StopAborted && e.Host == "":
		p.Complain(fmt.Sprintf("the job %s was cancelled; it had not begun", e.ID))
	case e.StopReason == protocol.StopAborted:
		p.Complain(fmt.Sprintf("the job %s was cancelled, or its run aborted, on %s", e.ID, host))
	}
}

// PrintHosts lists the daemons of a fleet, and notes the names that two of them want.
func PrintHosts(p *plain.Printer, hosts []via.Seen, now time.Time) error {
	if p.JSON {
		for _, h := range hosts {
			line, err := json.Marshal(struct {
				fleet.Presence
				Last time.Time `json:"last_seen"`
			}{h.Presence, h.Last})
			if err != nil {
				return err
			}
			p.JSONLine(line)
		}
		noteRivals(p, hosts)
		return nil
	}
	rows := [][]string{{"HOST", "RUNNING", "WAITING", "SLOTS", "SEEN", "VERSION", "LABELS"}}
	for _, h := range hosts {
		rows = append(rows, []string{
			h.Name, fmt.Sprint(h.Running), fmt.Sprint(h.Waiting), fmt.Sprint(h.Slots),
			format.Age(h.Last, now), plain.OneLine(h.Version, 20), LabelText(h.Labels),
		})
	}
	if len(hosts) > 0 {
		p.Table(rows[0], rows[1:])
	}
	noteRivals(p, hosts)
	return nil
}

// noteRivals lists the names that two daemons want.
func noteRivals(p *plain.Printer, hosts []via.Seen) {
	for _, h := range hosts {
		if r := h.Rival; r != nil {
			p.Notef("another daemon wants the name %s, too, and takes no commands (epoch %s, version %s, in %s): give one of "+
				"the two another name in its [fleet]",
				h.Name, plain.OneLine(r.Epoch, 64), plain.OneLine(r.Version, 20), plain.OneLine(r.Workdir, 80))
		}
	}
}
