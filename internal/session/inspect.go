package session

import (
	"errors"
	"os"
	"path/filepath"
	"slices"

	"noused/internal/regular"
)

// Inspection is what a journal holds, as somebody finds it who only reads.
type Inspection struct {
	// State is the fold of what could be read. Its ID is "" where the journal
	// does not say which session it is; such a session cannot be opened.
	State *State
	// Size is the length of all whole lines, Torn that of what follows the last
	// one, both in bytes. A torn end is cut off when the session is opened.
	Size, Torn int64
	// Unmade says that there is no whole line: the session is being made, or a crash
	// has ended that. The next daemon removes the journal.
	Unmade bool
	// Skipped are the whole lines that no record could be made of, or none that
	// fits what came before it.
	Skipped []Problem
	// Newer says that a later version of the program wrote it, which is where the
	// fold ends. Such a journal is left alone.
	Newer bool
	// Missing are the paths of images that the session names and does not have, or
	// not as long as they were.
	Missing []string
}

// Inspect folds the journal at path without changing anything, no matter who has the
// state directory (wire-v1 §7). What a daemon writes meanwhile may look torn. It
// reads the whole file; an error means that it could not.
func Inspect(path string) (Inspection, error) {
	in := Inspection{State: NewState()}
	f, err := regular.Open(path, os.O_RDONLY)
	if err != nil {
		return in, err
	}
	defer func() { _ = f.Close() }()
	if in.Size, in.Skipped, err = fold(f, path, in.State); err != nil {
		in.Newer = errors.Is(err, errNewer)
		if in.Newer {
			err = nil
		}
		return in, err
	}
	for file, a := range in.State.attachments() {
		if path := filepath.Join(filesDir(path), filepath.Base(file)); !keptName(file) || whole(path, a) != nil {
			in.Missing = append(in.Missing, path)
		}
	}
	slices.Sort(in.Missing)
	if n := len(in.Skipped); n > 0 && errors.Is(in.Skipped[n-1].Err, errTorn) {
		in.Skipped = in.Skipped[:n-1]
		info, err := f.Stat()
		if err != nil {
			return in, err
		}
		in.Torn = max(info.Size()-in.Size, 1)
	}
	in.Unmade = in.Size == 0 && in.Torn <= maxUnmade
	return in, nil
}
