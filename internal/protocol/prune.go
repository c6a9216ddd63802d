package protocol

import "time"

// PruneParams is the payload of prune.
type PruneParams struct {
	DryRun bool `json:"dry_run,omitzero" doc:"remove nothing, only tell"`
}

func (PruneParams) validate() *Error { return nil }

// Pruned answers prune: what was removed, or with DryRun would be. Problems say what
// could not be.
type Pruned struct {
	DryRun     bool            `json:"dry_run"`
	Limits     PruneLimits     `json:"limits" doc:"as [retention] has them; empty: nothing is ever removed"`
	Config     string          `json:"config" doc:"the configuration file, which need not exist"`
	Sessions   []PrunedSession `json:"sessions" doc:"the one that was used longest ago first, at most 1000"`
	ToolOutput []PrunedFile    `json:"tool_output" doc:"the oldest first, at most 1000"`
	Audit      []PrunedFile    `json:"audit" doc:"the oldest first"`
	Truncated  bool            `json:"truncated" doc:"sessions or tool_output lack some; sums does not"`
	Sums       PrunedSums      `json:"sums"`
	Problems   []string        `json:"problems"`
}

// PruneLimits are durations like 90d and sizes like 2GiB; an empty one does not
// hold.
type PruneLimits struct {
	SessionsOlder    string `json:"sessions_older,omitzero"`
	SessionsLarger   string `json:"sessions_larger,omitzero"`
	ToolOutputOlder  string `json:"tool_output_older,omitzero"`
	ToolOutputLarger string `json:"tool_output_larger,omitzero"`
	AuditLarger      string `json:"audit_larger,omitzero"`
}

// PrunedSession is a session, when it was used last, and the bytes of its files.
type PrunedSession struct {
	SessionID string    `json:"session_id"`
	Title     string    `json:"title"`
	UsedAt    time.Time `json:"used_at"`
	Size      int64     `json:"size"`
}

// PrunedFile is a file of the state folder, by its name there, and its bytes.
type PrunedFile struct {
	Name      string    `json:"name"`
	ChangedAt time.Time `json:"changed_at"`
	Size      int64     `json:"size"`
}

// PrunedSums count all of it.
type PrunedSums struct {
	Sessions   PrunedSum `json:"sessions"`
	ToolOutput PrunedSum `json:"tool_output"`
	Audit      PrunedSum `json:"audit"`
}

// PrunedSum counts things and their bytes.
type PrunedSum struct {
	Count int   `json:"count"`
	Bytes int64 `json:"bytes"`
}

// Add counts one more.
func (s *PrunedSum) Add(bytes int64) { s.Count, s.Bytes = s.Count+1, s.Bytes+bytes }

func (Pruned) replyType() string { return "pruned" }
