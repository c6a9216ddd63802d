package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"noused/internal/format"
	"noused/internal/lock"
	"noused/internal/session"
)

// lowSpace is the free space, in bytes, below which journals are in danger.
const lowSpace = 64 << 20

// The names in a state directory (docs/journal.md).
const (
	sessionsName = "sessions"
	journalExt   = ".jsonl"
	draftExt     = ".new"
	damagedExt   = ".jsonl.damaged"
	filesExt     = ".files"
	auditName    = "audit.jsonl"
)

// state looks at the state directory, and at what it holds. To mend it the
// directory is locked from here to the end.
func (e *exam) state(ctx context.Context) {
	info, err := os.Stat(e.StateDir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		if err := canWrite(nearest(e.StateDir)); err != nil {
			e.fail(State, "choose another folder with --state-dir", "%s does not exist and cannot be made: %v", e.StateDir, err)
			return
		}
		e.ok(State, "%s does not exist yet; a daemon makes it when it starts", e.StateDir)
		return
	case err != nil:
		e.fail(State, "choose another folder with --state-dir", "%v", err)
		return
	case !info.IsDir():
		e.fail(State, "move it out of the way, or choose another folder with --state-dir", "%s is not a folder", e.StateDir)
		return
	}
	if !e.ownLock() {
		return
	}
	if e.store != nil {
		defer func() { _ = e.store.Close() }()
	}
	e.stateDir(info)
	e.space()
	e.journals(ctx)
	e.audit()
}

// ownLock finds out who has the state directory, and takes it if it is to be
// mended and nobody has it.
func (e *exam) ownLock() bool {
	holder, err := heldBy(filepath.Join(e.StateDir, "lock"))
	if err == nil && holder == nil && e.Fix {
		e.store, err = session.Open(e.StateDir)
		if held := (*lock.HeldError)(nil); errors.As(err, &held) {
			holder, err = &process{held.PID}, nil
		}
	}
	if err != nil {
		e.fail(State, "make it possible to use the folder, or choose another with --state-dir",
			"lock of the state directory: %v", err)
		return false
	}
	e.holder = holder
	return true
}

// inState does something to the state directory, if it is ours to change.
func (e *exam) inState(do func() error) func() error {
	return func() error {
		if e.store == nil {
			return fmt.Errorf("%s holds the state directory; stop it first", e.holder)
		}
		return do()
	}
}

func (e *exam) stateDir(info os.FileInfo) {
	mode := info.Mode().Perm()
	err := unix.Access(e.StateDir, unix.R_OK|unix.W_OK|unix.X_OK)
	switch {
	case !mine(info):
		e.fail(State, "choose a folder of your own with --state-dir", "%s belongs to user %d", e.StateDir, owner(info))
	case err != nil:
		e.fail(State, "chmod 700 "+quote(e.StateDir), "%s cannot be used: %v", e.StateDir, err)
	case mode&0o077 != 0:
		e.mend(Finding{
			Status: Warn, Area: State, What: fmt.Sprintf("%s is open to others (mode %04o): it holds every conversation",
				e.StateDir, mode),
			Fix: "chmod 700 " + quote(e.StateDir),
		}, "its mode is 0700 now", e.inState(func() error { return restrict(e.StateDir, 0o700) }))
	default:
		e.ok(State, "only you can read %s", e.StateDir)
	}
	if e.holder != nil {
		e.ok(State, "%s uses it", e.holder)
	} else {
		e.ok(State, "no daemon uses it")
	}
	e.openFiles()
}

// openFiles reports what others may read in the state directory once they get
// into it.
func (e *exam) openFiles() {
	var names []string
	for _, pattern := range []string{"*", sessionsName + "/*", sessionsName + "/*" + filesExt + "/*"} {
		found, _ := filepath.Glob(filepath.Join(escape(e.StateDir), pattern)) // its error is for a bad pattern only
		names = append(names, found...)
	}
	var open []string
	for _, path := range names {
		info, err := os.Lstat(path)
		if err == nil && info.Mode()&os.ModeSymlink == 0 && info.Mode().Perm()&0o077 != 0 {
			open = append(open, path)
		}
	}
	if len(open) == 0 {
		return
	}
	e.mend(Finding{
		Status: Warn, Area: State, What: fmt.Sprintf("%s in it can be read by others: %s",
			count(len(open), "file or folder", "files and folders"), few(open)),
		Fix: "chmod -R go-rwx " + quote(e.StateDir),
	}, "their modes are 0600 and 0700 now", e.inState(func() error {
		var failed error
		for _, path := range open {
			info, err := os.Lstat(path)
			if err == nil {
				err = restrict(path, info.Mode().Perm()&0o700)
			}
			failed = errors.Join(failed, err)
		}
		return failed
	}))
}

// escape makes a path one that a pattern takes as it is.
func escape(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

func (e *exam) space() {
	var fs unix.Statfs_t
	if err := unix.Statfs(e.StateDir, &fs); err != nil {
		e.warn(State, "look at the file system", "free space: %v", err)
		return
	}
	free := int64(fs.Bavail) * fs.Bsize
	if free < lowSpace {
		e.warn(State, "make room: df -h "+quote(e.StateDir),
			"only %s are free; a daemon that cannot write its journals stops its runs", format.Size(free))
		return
	}
	e.ok(State, "%s are free", format.Size(free))
}

// tally sums up all journals.
type tally struct {
	journals, unended, bad int
	bytes                  int64
	newest                 string // session's id; only its making can have been ended by a crash
	drafts, damaged        []string
	folders                []string // of images
}

// journals folds every session's file (wire-v1 §7).
func (e *exam) journals(ctx context.Context) {
	dir := filepath.Join(e.StateDir, sessionsName)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		e.fail(Journals, "make it a folder that you can read", "%v", err)
		return
	}
	var t tally
	for _, entry := range entries {
		if id, ok := strings.CutSuffix(entry.Name(), journalExt); ok && session.ValidID(id) {
			t.newest = max(t.newest, id)
		}
	}
	for _, entry := range entries {
		if ctx.Err() != nil {
			return
		}
		path := filepath.Join(dir, entry.Name())
		switch {
		case strings.HasSuffix(path, draftExt):
			t.drafts = append(t.drafts, path)
		case strings.HasSuffix(path, damagedExt):
			t.damaged = append(t.damaged, path)
		case strings.HasSuffix(path, filesExt):
			t.folders = append(t.folders, path)
		case strings.HasSuffix(path, journalExt):
			e.journal(path, &t)
		}
	}
	e.leftovers(&t)
	what := fmt.Sprintf("%s, %s, read", format.Count(t.journals, "session"), format.Size(t.bytes))
	if t.bad > 0 {
		what += fmt.Sprintf("; %d with problems, see above", t.bad)
	} else {
		what += " without a problem"
	}
	if t.unended > 0 {
		what += fmt.Sprintf("; %s not ended and will be resumed by a daemon", count(t.unended, "run has", "runs have"))
	}
	e.ok(Journals, "%s", what)
}

// journal looks at one session's file.
func (e *exam) journal(path string, t *tally) {
	name := strings.TrimSuffix(filepath.Base(path), journalExt)
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", path)
	}
	var in session.Inspection
	if err == nil {
		in, err = session.Inspect(path)
	}
	if errors.Is(err, os.ErrNotExist) && e.holder != nil {
		return // deleted meanwhile
	}
	if err == nil && in.Unmade && name == t.newest {
		t.drafts = append(t.drafts, path)
		return
	}
	t.journals++
	t.bytes += in.Size
	if in.State != nil && in.State.Run != nil && in.State.ReadOnly == nil {
		t.unended++
	}
	bad := true
	switch {
	case !session.ValidID(name):
		e.warn(Journals, "move it out of "+quote(filepath.Dir(path)),
			"%s: the name is not a session id; the file is never read", path)
	case err != nil:
		e.fail(Journals, "move it out of "+quote(filepath.Dir(path)), "the session cannot be opened: %v", err)
	case in.Newer:
		e.fail(Journals, "use the newer version",
			"%s at byte %d: a newer version of noused wrote it; this one leaves it alone", path, in.Size)
	case in.State.ID == "":
		e.fail(Journals, "move it out of "+quote(filepath.Dir(path))+"; what it holds can be read with jq (docs/journal.md)",
			"%s does not say which session it is, and cannot be opened", path)
	case in.State.ID != name:
		e.fail(Journals, "move it out of "+quote(filepath.Dir(path))+": it is a copy, or was renamed, and is not opened",
			"%s says that it is session %.128s", path, in.State.ID)
	default:
		bad = false
	}
	if bad {
		t.bad++
		return
	}
	if len(in.Skipped) > 0 || in.Torn > 0 || len(in.Missing) > 0 {
		t.bad++
	}
	if n := len(in.Missing); n > 0 {
		e.warn(Journals, "put them back from a backup; without them the model is told that they are missing",
			"%s: %s missing, or not as long as it was: %s", path, count(n, "image of it is", "images of it are"),
			few(in.Missing))
	}
	if in.State.ReadOnly != nil {
		e.fail(Journals, "use the newer version; where none has written it, cut the line out",
			"the session can only be read: %v", in.State.ReadOnly)
	}
	if n := len(in.Skipped); n > 0 && in.State.ReadOnly == nil {
		first := in.Skipped[0]
		lines := count(n, "line is", "lines are")
		if n > session.MaxProblems {
			lines = fmt.Sprintf("more than %d lines are", session.MaxProblems)
		}
		e.warn(Journals, fmt.Sprintf("look at the line: tail -c +%d %s | head -n 1; the session lacks what it said",
			first.Offset+1, quote(path)),
			"%s: %s skipped, at byte %d (line %d): %v", path, lines, first.Offset, first.Line, first.Err)
	}
	if in.Torn > 0 && in.State.ReadOnly == nil {
		e.torn(path, name, in)
	}
}

// torn reports a journal's torn end. Opening the session cuts it off.
func (e *exam) torn(path, id string, in session.Inspection) {
	what := fmt.Sprintf("%s: the last line is torn, %d bytes from byte %d on", path, in.Torn, in.Size)
	if e.holder != nil {
		e.warn(Journals, "run doctor again in a minute", "%s; %s may be writing it", what, e.holder)
		return
	}
	e.mend(Finding{
		Status: Warn, Area: Journals, What: what,
		Fix: "noused doctor --fix cuts it off and keeps it aside, as a daemon does when it opens the session",
	}, "cut off; it is kept in "+path+strings.TrimPrefix(damagedExt, journalExt), e.inState(func() error {
		_, j, _, err := e.store.Load(context.Background(), id)
		if err != nil {
			return err
		}
		return j.Close()
	}))
}

// leftovers reports files that no session needs.
func (e *exam) leftovers(t *tally) {
	var orphans []string
	for _, folder := range t.folders {
		if _, err := os.Stat(strings.TrimSuffix(folder, filesExt) + journalExt); errors.Is(err, os.ErrNotExist) {
			orphans = append(orphans, folder)
		}
	}
	if len(orphans) > 0 && e.holder == nil { // else a session may just be made or deleted
		e.warn(Journals, "put their journals back, or remove them",
			"%s of images without a journal beside it: %s", format.Count(len(orphans), "folder"), few(orphans))
	}
	if len(t.drafts) > 0 && e.holder == nil { // else a session may just be made
		e.mend(Finding{
			Status: Warn, Area: Journals, What: fmt.Sprintf("%s of unfinished sessions and images: %s",
				format.Count(len(t.drafts), "draft"), few(t.drafts)),
			Fix: "start a daemon, or noused doctor --fix: it removes them",
		}, "removed", e.inState(func() error {
			var failed error
			for _, path := range t.drafts {
				failed = errors.Join(failed, os.Remove(path))
			}
			return failed
		}))
	}
	if len(t.damaged) > 0 {
		e.warn(Journals, "look at them, and remove them when nothing in them is missed",
			"%s of damaged parts: %s", format.Count(len(t.damaged), "file"), few(t.damaged))
	}
}

// audit looks whether the audit journal can be written.
func (e *exam) audit() {
	path := filepath.Join(e.StateDir, auditName)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		e.ok(Audit, "%s does not exist yet; a daemon makes it when it starts", path)
		return
	case err == nil && !info.Mode().IsRegular():
		err = fmt.Errorf("%s is no regular file", path)
	case err == nil:
		err = canWrite(path)
	}
	if err != nil {
		e.fail(Audit, "mv "+quote(path)+" "+quote(path+".old"),
			"the audit journal cannot be written, and no daemon starts without: %v", err)
		return
	}
	e.ok(Audit, "%s can be written; it has %s", path, format.Size(info.Size()))
}

// count is format.Count for what has another plural.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// few names the first of some files and how many there are besides.
func few(paths []string) string {
	const most = 3
	if len(paths) <= most {
		return strings.Join(paths, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(paths[:most], ", "), len(paths)-most)
}
