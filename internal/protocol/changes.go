package protocol

// GetChangesParams is the payload of get_changes. From and To are ids of messages and runs, or
// RUN/TURN: a message as From means its turn, as To before it.
type GetChangesParams struct {
	Scope
	From string `json:"from,omitzero" doc:"a message, a run or RUN/TURN; default: the beginning"`
	To   string `json:"to,omitzero" doc:"a run or RUN/TURN, which is included, or a message, which is not; default: the end"`
	Diff bool   `json:"diff,omitzero" doc:"tell the diff, too"`
	Path string `json:"path,omitzero" doc:"only this file, as files name it"`

	Children bool `json:"children,omitzero" doc:"name child sessions that have changed files, too"`
}

func (GetChangesParams) validate() *Error { return nil }

// Statuses of a ChangedFile.
const (
	ChangeAdded    = "added"
	ChangeModified = "modified"
	ChangeDeleted  = "deleted"
	ChangeRenamed  = "renamed"
)

// Changes answers get_changes: what the session's turns, and its rewinds, have changed in
// its folder together.
type Changes struct {
	SessionID string        `json:"session_id"`
	Folder    string        `json:"folder" doc:"what paths are relative to"`
	Files     []ChangedFile `json:"files" doc:"by path"`
	Diff      *string       `json:"diff,omitzero" doc:"as git diff prints it, at most 1 MiB"`
	Truncated bool          `json:"truncated,omitzero" doc:"diff lacks some of it: ask for one file"`
	Missing   []MissingTurn `json:"missing,omitzero" doc:"turns whose changes are not known"`

	Children []ChangedChild `json:"children,omitzero" doc:"child sessions, and theirs, that have changed files; at most 100"`
}

// ChangedFile says how a file has changed. Paths are relative to the repository's top, or to the
// session's folder where there is no git; \xNN stands for a byte that is of no character.
// That of a folder ends in a slash.
type ChangedFile struct {
	Path    string `json:"path"`
	Status  string `json:"status" enum:"added,modified,deleted,renamed"`
	OldPath string `json:"old_path,omitzero" doc:"of one that was renamed"`
	Added   int    `json:"added" doc:"lines"`
	Removed int    `json:"removed" doc:"lines"`
	Binary  bool   `json:"binary"`
	Shared  bool   `json:"shared,omitzero" doc:"somebody else may have made the change, or a part of it"`
	LeftOut bool   `json:"left_out,omitzero" doc:"its content is not kept: it cannot be shown, or taken back"`
}

// ChangedChild is a child session, or one of its own children, that has changed files. They are
// no files of its parent's changes: its own have them.
type ChangedChild struct {
	SessionID string `json:"session_id"`
	Title     string `json:"title"`
	Files     int    `json:"files" doc:"how many files its own changes have"`
}

// MissingTurn is a turn whose changes are not known, and why.
type MissingTurn struct {
	RunID  string `json:"run_id"`
	TurnID string `json:"turn_id"`
	Why    string `json:"why"`
}

// RewindWhat is what a rewind takes back.
type RewindWhat string

// What a rewind takes back.
const (
	RewindFiles        RewindWhat = "files"
	RewindConversation RewindWhat = "conversation"
	RewindBoth         RewindWhat = "both"
)

// RewindParams is the payload of rewind.
type RewindParams struct {
	Scope
	To     string     `json:"to" min:"1" doc:"a message of the user: all is as before it"`
	What   RewindWhat `json:"what" enum:"files,conversation,both"`
	DryRun bool       `json:"dry_run,omitzero" doc:"change nothing, only tell"`
	Force  []string   `json:"force,omitzero" doc:"paths that are taken back in spite of a conflict"`
}

func (p RewindParams) validate() *Error {
	return firstOf(notEmpty("to", p.To), oneOf("what", p.What, RewindFiles, RewindConversation, RewindBoth))
}

// UndoRewindParams is the payload of undo_rewind.
type UndoRewindParams struct {
	Scope
	RewindID string   `json:"rewind_id,omitzero" doc:"default: the latest that was not undone"`
	DryRun   bool     `json:"dry_run,omitzero" doc:"change nothing, only tell"`
	Force    []string `json:"force,omitzero" doc:"paths that are put back in spite of a conflict"`
}

func (UndoRewindParams) validate() *Error { return nil }

// Actions of a RewoundFile.
const (
	RewindRestore = "restore"
	RewindRemove  = "remove"
	RewindChange  = "change"
)

// Rewound answers rewind and undo_rewind. With conflicts nothing was done.
type Rewound struct {
	SessionID string           `json:"session_id"`
	RewindID  string           `json:"rewind_id" doc:"empty where nothing was done"`
	Files     []RewoundFile    `json:"files" doc:"by path"`
	Conflicts []RewindConflict `json:"conflicts" doc:"by path"`
	LeafID    string           `json:"leaf_id" doc:"the entry that the session goes on from"`
	Text      string           `json:"text,omitzero" doc:"of the message that was taken back"`
}

// RewoundFile is what was done to a file, or would be.
type RewoundFile struct {
	Path   string `json:"path"`
	Action string `json:"action" enum:"restore,remove,change"`
}

// RewindConflict is a file that is not as the session left it, and why. The path "." stands
// for turns whose changes are not known.
type RewindConflict struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

func (Changes) replyType() string { return "changes" }
func (Rewound) replyType() string { return "rewind" }
