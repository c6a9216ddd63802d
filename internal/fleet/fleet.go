// Package fleet has the words that daemons and their clients share where they meet
// over NATS (remote.md §2): subjects, names of streams, who is there, and how to
// connect. internal/fleet/host is the daemon's side of it.
//
// Concurrency: all of it are values and functions, which any number of goroutines
// may use. Those that take a context block until the server has answered, or the
// context ends.
//
// It refuses to know runs, sessions or commands, to keep a connection, to log, and to
// put into a subject what could be read as more than one token of it.
package fleet

import (
	"fmt"
	"strings"
	"time"
	"unicode"
)

// Bounds of what becomes a part of a subject, in bytes.
const (
	maxName  = 63
	maxID    = 128
	maxLabel = 128
	// MaxLabels is the most labels that a host or a job may have.
	MaxLabels = 32
)

// NoSession stands for the session in the subject of an event that has none.
const NoSession = "_"

// jobsWord is where a host's name would be in the subjects of jobs.
const jobsWord = "jobs"

// Prefix is the first token of every subject of a fleet, and of its streams' names.
// CheckPrefix says what it may be.
type Prefix string

// DefaultPrefix is that of a fleet whose configuration names none.
const DefaultPrefix Prefix = "noused"

// Command is the subject that takes a host's commands: each message is one line of
// wire v1 without its end, and the reply is the response's line.
func (p Prefix) Command(host string) string { return string(p) + "." + host + ".cmd" }

// Rival is where a daemon that finds its name taken tells so the one that has it: a
// Presence of its own.
func (p Prefix) Rival(host string) string { return string(p) + "." + host + ".rival" }

// ConnectionHeader is the header of a command by which its host knows which others it has
// to be in order with. The value is any text of at most 128 bytes.
const ConnectionHeader = "Noused-Connection"

// Event is the subject of a session's events; "" is NoSession. A session whose id
// cannot be a token is one without.
func (p Prefix) Event(host, session string) string {
	if session == "" || CheckID(session) != nil {
		session = NoSession
	}
	return string(p) + "." + host + ".evt." + session
}

// Events is the pattern of all events of a host; "*" is every host.
func (p Prefix) Events(host string) string { return string(p) + "." + host + ".evt.*" }

// JobQueue is the subject that a job is submitted on; "*" is every job.
func (p Prefix) JobQueue(id string) string { return string(p) + "." + jobsWord + ".queue." + id }

// JobDone is the subject that tells a job's end; "*" is every job.
func (p Prefix) JobDone(id string) string { return string(p) + "." + jobsWord + ".done." + id }

// EventStream is the name of the stream of events and of ends of jobs.
func (p Prefix) EventStream() string { return string(p) + "_EVENTS" }

// JobStream is the name of the stream of jobs that nobody has finished yet.
func (p Prefix) JobStream() string { return string(p) + "_JOBS" }

// HostBucket is the name of the bucket of the daemons that are there.
func (p Prefix) HostBucket() string { return string(p) + "_HOSTS" }

// ClaimBucket is the name of the bucket of who works at which job.
func (p Prefix) ClaimBucket() string { return string(p) + "_CLAIMS" }

// OfEvent takes the subject of an event apart. session is "" where it has none.
func (p Prefix) OfEvent(subject string) (host, session string, ok bool) {
	t := strings.Split(subject, ".")
	if len(t) != 4 || t[0] != string(p) || t[2] != "evt" {
		return "", "", false
	}
	if t[3] == NoSession {
		t[3] = ""
	}
	return t[1], t[3], true
}

// MessageID is the message id of an event, by which the server knows one that is sent
// again.
func MessageID(epoch string, seq uint64) string { return fmt.Sprintf("%s:%d", epoch, seq) }

// OfMessageID takes a message id apart.
func OfMessageID(id string) (epoch string, seq uint64, ok bool) {
	i := strings.LastIndexByte(id, ':')
	if i <= 0 {
		return "", 0, false
	}
	var rest string
	n, _ := fmt.Sscanf(id[i+1:], "%d%s", &seq, &rest)
	return id[:i], seq, n == 1
}

// CheckPrefix refuses what cannot be a Prefix.
func CheckPrefix(prefix string) error { return checkToken(prefix, maxName) }

// CheckName refuses what cannot be a host's name.
func CheckName(name string) error {
	if name == jobsWord {
		return fmt.Errorf("%q stands for the jobs and can be no host's name", name)
	}
	return checkToken(name, maxName)
}

// CheckID refuses what cannot be the id of a job or a session in a subject.
func CheckID(id string) error { return checkToken(id, maxID) }

// CheckLabels refuses labels of a host, or of a job.
func CheckLabels(labels map[string]string) error {
	if len(labels) > MaxLabels {
		return fmt.Errorf("there are %d labels, and at most %d may be", len(labels), MaxLabels)
	}
	for key, value := range labels {
		if err := checkToken(key, maxName); err != nil {
			return fmt.Errorf("label %w", err)
		}
		if len(value) > maxLabel || strings.ContainsFunc(value, func(r rune) bool {
			return unicode.IsControl(r) || r == '\uFFFD'
		}) {
			return fmt.Errorf("label %s: want at most %d bytes of text without control characters", key, maxLabel)
		}
	}
	return nil
}

// checkToken: a dot would begin another token, and * and > stand for others.
func checkToken(s string, most int) error {
	switch {
	case s == "":
		return fmt.Errorf("%q is empty", s)
	case len(s) > most:
		return fmt.Errorf("%.20q… has %d bytes, and at most %d may be", s, len(s), most)
	}
	for _, r := range s {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' {
			return fmt.Errorf("%q has %q: want letters, digits, - and _", s, r)
		}
	}
	return nil
}

// PresenceTTL is how long a daemon is there after it has last said so, and PresenceEvery
// how often it says so.
const (
	PresenceTTL   = 30 * time.Second
	PresenceEvery = PresenceTTL / 3
)

// Presence is how a daemon describes itself in the bucket of hosts, under its name.
type Presence struct {
	Name     string            `json:"name"`
	Labels   map[string]string `json:"labels"`
	Version  string            `json:"version"`
	Epoch    string            `json:"epoch"`
	Workdirs []string          `json:"workdirs"` // the daemon's own first, then those of its newest sessions
	Running  int               `json:"running"`  // runs
	Waiting  int               `json:"waiting"`  // questions that a person has not answered
	Slots    int               `json:"slots"`    // jobs that it takes at a time
	// Instance is the same for all daemons of one state folder, one after the other.
	Instance string    `json:"instance"`
	At       time.Time `json:"at"` // by the host's clock
	// Rival is another daemon that wants the name, and was heard of in the last minute.
	Rival *Rival `json:"rival,omitzero"`
}

// Rival is a daemon that finds its name taken.
type Rival struct {
	Version string `json:"version"`
	Epoch   string `json:"epoch"`
	Workdir string `json:"workdir"`
}
