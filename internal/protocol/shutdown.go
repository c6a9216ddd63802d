package protocol

// ShutdownParams is the payload of shutdown.
type ShutdownParams struct {
	Restart bool `json:"restart,omitzero" doc:"the daemon executes its program anew, with its command line and its sockets; default false"`
}

// ShutdownAccepted answers shutdown, before the runs are brought to a boundary.
type ShutdownAccepted struct {
	Command string `json:"command"`
	PID     int    `json:"pid" doc:"the daemon's process, which a restart keeps"`
	DrainMS int64  `json:"drain_ms" doc:"how long runs may take to reach a boundary, in milliseconds"`
}

func (ShutdownAccepted) replyType() string { return "accepted" }
