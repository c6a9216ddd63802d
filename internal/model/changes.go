package model

// Recorded is what a turn has changed in its session's folder: the object that has the list,
// "" where nothing has changed, and how many files.
type Recorded struct {
	Changes string
	Files   int
	Unbegun bool // there is no record from before it
}

// ChangeStep is a turn or a rewind that has changed files. Missing says why a turn's changes
// are not known.
type ChangeStep struct{ Changes, Missing string }

// ChangeReport is what steps have changed together. Diff is one of git's, cut where
// Truncated says so.
type ChangeReport struct {
	Folder    string // that paths are relative to
	Files     []ChangedFile
	Diff      string
	Truncated bool
}

// ChangedFile says how a file has changed, in the wire's words.
type ChangedFile struct {
	Path, Status, OldPath   string
	Added, Removed          int // lines
	Binary, Shared, LeftOut bool
}

// RewindPlan is what a rewind does: the object that has the list, "" where there is nothing to
// do, or something in its way.
type RewindPlan struct {
	Changes   string
	Files     []RewindAction
	Conflicts []RewindConflict
}

// RewindAction is what is done to a file, in the wire's words.
type RewindAction struct{ Path, Action string }

// RewindConflict is a file that is not as the session left it.
type RewindConflict struct{ Path, Why string }
