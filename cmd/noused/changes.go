package main

import (
	"context"
	"errors"
	"path/filepath"

	"noused/internal/changes"
	"noused/internal/model"
	"noused/internal/proc"
)

// changeRecorder is the changes of sessions' folders, as the run loop has them.
type changeRecorder struct{ *changes.Engine }

// Bounds of what is kept of a session's files.
const (
	maxChangedFile  = 10 << 20
	maxChangedFiles = 50_000
	maxRecording    = 256 << 20 // of memory
	defaultChanges  = 1 << 30
	minChanges      = 4 << 10
)

// openChanges makes the recorder.
func (d *Daemon) openChanges() changeRecorder {
	var own []string
	for _, dir := range []string{d.cfg.StateDir, d.cfg.CacheDir} {
		if at, err := filepath.Abs(dir); err == nil {
			own = append(own, proc.Resolve(at))
		}
	}
	return changeRecorder{changes.New(changes.Options{
		Dir: d.store.ChangesDir, Git: confinedGit(d.tools),
		Limits: changes.Limits{
			File: maxChangedFile, Bytes: d.cfg.ChangesMax, Files: maxChangedFiles,
			Memory: maxRecording,
		}, Skip: own,
	})}
}

// changesMax is max of [changes], which only the file can have.
func (r *resolver) changesMax() int64 {
	v, from := r.file.find("changes.max")
	return r.asSize(v, from, minChanges, maxKeepSize, defaultChanges)
}

func folderOf(sessionID, workdir string) changes.Folder {
	return changes.Folder{SessionID: sessionID, Workdir: workdir}
}

func (c changeRecorder) Warm(ctx context.Context, sessionID, workdir string) {
	c.Engine.Warm(ctx, folderOf(sessionID, workdir))
}

func (c changeRecorder) Before(ctx context.Context, sessionID, workdir, turn string) error {
	return c.Engine.Before(ctx, folderOf(sessionID, workdir), turn)
}

func (c changeRecorder) After(ctx context.Context, sessionID, workdir, turn string) (model.Recorded, error) {
	rec, err := c.Engine.After(ctx, folderOf(sessionID, workdir), turn)
	if errors.Is(err, changes.ErrNotBegun) {
		return model.Recorded{Unbegun: true}, nil
	}
	return model.Recorded{Changes: nameOf(rec.Changes), Files: rec.Files}, err
}

func (c changeRecorder) Settle(sessionID, workdir string) {
	c.Engine.Settle(folderOf(sessionID, workdir))
}

func (c changeRecorder) Show(ctx context.Context, sessionID, workdir string, steps []model.ChangeStep, path string,
	diff bool,
) (out model.ChangeReport, err error) {
	list, err := stepsOf(steps)
	if err != nil {
		return out, err
	}
	rep, err := c.Engine.Show(ctx, folderOf(sessionID, workdir), list, path, diff)
	out.Folder, out.Diff, out.Truncated = rep.Folder, rep.Diff, rep.Truncated
	for _, f := range rep.Files {
		out.Files = append(out.Files, model.ChangedFile{
			Path: f.Path, Status: f.Status, OldPath: f.Old, Added: f.Added, Removed: f.Removed, Binary: f.Binary,
			Shared: f.Shared, LeftOut: f.LeftOut,
		})
	}
	return out, err
}

func (c changeRecorder) Plan(ctx context.Context, sessionID, workdir string, steps []model.ChangeStep, force []string,
	keep bool,
) (out model.RewindPlan, err error) {
	list, err := stepsOf(steps)
	if err != nil {
		return out, err
	}
	plan, err := c.Engine.PlanRewind(ctx, folderOf(sessionID, workdir), list, force, keep)
	out.Changes = nameOf(plan.Changes)
	for _, a := range plan.Files {
		out.Files = append(out.Files, model.RewindAction(a))
	}
	for _, x := range plan.Conflicts {
		out.Conflicts = append(out.Conflicts, model.RewindConflict(x))
	}
	return out, err
}

func (c changeRecorder) Apply(sessionID, workdir, list, rewindID string) error {
	name, err := changes.ParseOID(list)
	if err != nil {
		return err
	}
	return c.Engine.Apply(folderOf(sessionID, workdir), name, rewindID)
}

func (c changeRecorder) Recover(sessionID, workdir, list, rewindID string) (finished bool, err error) {
	name, err := changes.ParseOID(list)
	if err != nil {
		return false, err
	}
	return c.Engine.Recover(folderOf(sessionID, workdir), name, rewindID)
}

// nameOf is an object's name in the journal.
func nameOf(o changes.OID) string {
	if o.IsZero() {
		return ""
	}
	return o.String()
}

func stepsOf(steps []model.ChangeStep) ([]changes.Step, error) {
	out := make([]changes.Step, len(steps))
	for i, s := range steps {
		name, err := changes.ParseOID(s.Changes)
		if err != nil {
			return nil, err
		}
		out[i] = changes.Step{Changes: name, Missing: s.Missing}
	}
	return out, nil
}
