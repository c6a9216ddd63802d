package protocol

import "time"

// Health is the part of get_state that says how the daemon is doing. It is only
// there where the command has daemon.
type Health struct {
	Readers     *Readers      `json:"readers,omitzero" wire:"added" doc:"who reads events; with daemon"`
	EventBuffer *EventBuffer  `json:"event_buffer,omitzero" wire:"added" doc:"the events that are kept for slow readers; with daemon"`
	Disk        *DiskUse      `json:"disk,omitzero" wire:"added" doc:"of the state folder; with daemon"`
	LastErrors  []LoggedError `json:"last_errors,omitzero" wire:"added" doc:"at most 8, the newest last; with daemon"`
	Fleet       *FleetState   `json:"fleet,omitzero" wire:"added" doc:"where [fleet] is configured; with daemon"`
}

// FleetState is how a daemon stands to its fleet. Since is when it was let in, or lost
// the connection, or began to try.
type FleetState struct {
	Name         string    `json:"name" doc:"the daemon's in the fleet"`
	Server       string    `json:"server" doc:"the URLs of the configuration"`
	Connected    bool      `json:"connected" doc:"the server has let it in, and the name is its own: commands are taken, events are sent"`
	Since        time.Time `json:"since"`
	Problems     []string  `json:"problems" doc:"what does not work, and why; at most 8"`
	PublishedSeq uint64    `json:"published_seq" doc:"number of the newest event that the server has stored"`
}

// Readers are the connections to the event socket.
type Readers struct {
	Count   int      `json:"count"`
	Behind  int      `json:"behind" doc:"those that have not got the newest event yet"`
	Slowest []Reader `json:"slowest" doc:"at most 8 of those, the slowest first"`
}

// Reader is a connection to the event socket. Program is what the kernel calls the
// process, which chooses that itself.
type Reader struct {
	PID     int    `json:"pid"`
	Program string `json:"program,omitzero"`
	Lag     uint64 `json:"lag" doc:"how many events it is behind"`
}

// EventBuffer says how much of the event log is kept, in bytes of encoded lines.
type EventBuffer struct {
	Bytes    int    `json:"bytes"`
	Limit    int    `json:"limit"`
	FirstSeq uint64 `json:"first_seq" doc:"number of the oldest event that is kept"`
}

// DiskUse is what the state folder takes. The files are counted now and then, and
// not while somebody waits: CountedAt says when. Before the first time it is absent,
// and so are Bytes and Sessions.
type DiskUse struct {
	Path      string    `json:"path"`
	FreeBytes int64     `json:"free_bytes" doc:"that the user may still take of the file system"`
	Bytes     int64     `json:"bytes,omitzero" doc:"that the files take on the disk"`
	Sessions  int       `json:"sessions,omitzero" doc:"how many there are"`
	CountedAt time.Time `json:"counted_at,omitzero"`
}

// LoggedError is an error that the daemon has logged, or the end of a run in error.
type LoggedError struct {
	At        time.Time `json:"at"`
	Message   string    `json:"message" doc:"at most 400 bytes"`
	SessionID string    `json:"session_id,omitzero"`
}
