package main

import (
	"context"
	"io/fs"
	"time"

	"go.uber.org/zap"

	"noused/internal/audit"
	"noused/internal/protocol"
	"noused/internal/runloop"
	"noused/internal/tool"
	"noused/internal/tool/registry"
)

const (
	pruneEvery  = 24 * time.Hour
	pruneLook   = time.Hour // between looks at the clock: a machine that sleeps has fewer ticks than hours
	maxPruned   = 1000      // sessions that one reply names, and files
	toolFolder  = "tool-output/"
	cacheUnused = 30 * 24 * time.Hour // after which the cache of a folder is removed
)

// pruner removes what [retention] says: at the start, once a day, and when somebody
// asks; one such pass at a time.
type pruner struct {
	keep   retention
	config string // the file that says so
	hub    *runloop.Hub
	tools  *registry.Registry
	audit  *audit.Log
	log    *zap.Logger
	now    func() time.Time
	turn   chan struct{} // holds one while something is removed
}

func newPruner(cfg Config, hub *runloop.Hub, tools *registry.Registry, journal *audit.Log, log *zap.Logger) *pruner {
	return &pruner{
		keep: cfg.Retention, config: cfg.Policy.Config, hub: hub, tools: tools, audit: journal, log: log.Named("retention"),
		now: time.Now, turn: make(chan struct{}, 1),
	}
}

// run removes now and once a day, until ctx ends.
func (p *pruner) run(ctx context.Context) error {
	return p.daily(ctx, func() { _, _ = p.prune(ctx, false) })
}

// daily calls do now and once a day of the wall clock, until ctx ends. A clock that is
// set back counts as a new day: it may have been ahead by years.
func (p *pruner) daily(ctx context.Context, do func()) error {
	look := time.NewTicker(pruneLook)
	defer look.Stop()
	var last time.Time
	for {
		if now := p.now().Round(0); now.Before(last) || !now.Before(last.Add(pruneEvery)) {
			do()
			last = now
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// handle answers prune, once it is done.
func (p *pruner) handle(ctx context.Context, params protocol.PruneParams) (a protocol.Answer[protocol.Pruned],
	err error,
) {
	if err := runloop.ByPerson(ctx, protocol.Prune.Name()); err != nil {
		return a, err
	}
	a.Later = func(ctx context.Context) (protocol.Pruned, error) { return p.prune(ctx, params.DryRun) }
	return a, nil
}

// prune is one pass. What goes wrong is told in the result, and does not keep the
// rest from being removed; the error is ctx's.
func (p *pruner) prune(ctx context.Context, dry bool) (protocol.Pruned, error) {
	out := protocol.Pruned{
		DryRun: dry, Limits: p.keep.Said, Config: p.config,
		Sessions: []protocol.PrunedSession{}, ToolOutput: []protocol.PrunedFile{}, Audit: []protocol.PrunedFile{},
		Problems: []string{},
	}
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return out, context.Cause(ctx)
	}
	for _, err := range []error{
		p.sessions(ctx, dry, &out), p.output(ctx, dry, &out), p.journal(dry, &out),
		p.caches(dry),
	} {
		if err != nil && ctx.Err() == nil {
			out.Problems = append(out.Problems, err.Error())
			p.log.Error("not all could be removed", zap.Error(err))
		}
	}
	if !dry && out.Sums != (protocol.PrunedSums{}) {
		p.log.Info("removed old data", zap.Any("limits", out.Limits),
			zap.Int("sessions", out.Sums.Sessions.Count), zap.Int64("session_bytes", out.Sums.Sessions.Bytes),
			zap.Int("tool_output", out.Sums.ToolOutput.Count), zap.Int64("tool_output_bytes", out.Sums.ToolOutput.Bytes),
			zap.Int("audit", out.Sums.Audit.Count), zap.Int64("audit_bytes", out.Sums.Audit.Bytes))
	}
	return out, context.Cause(ctx)
}

func (p *pruner) sessions(ctx context.Context, dry bool, out *protocol.Pruned) error {
	return p.hub.PruneSessions(ctx, runloop.Keep{Older: p.keep.SessionsOlder, Larger: p.keep.SessionsLarger}, dry,
		func(s protocol.PrunedSession) {
			out.Sums.Sessions.Add(s.Size)
			if len(out.Sessions) == maxPruned {
				out.Truncated = true
				return
			}
			out.Sessions = append(out.Sessions, s)
		})
}

func (p *pruner) output(ctx context.Context, dry bool, out *protocol.Pruned) error {
	var before time.Time
	if older := p.keep.ToolOutputOlder; older > 0 {
		before = p.now().Add(-older)
	}
	return p.tools.PruneOutput(ctx, before, p.keep.ToolOutputLarger, dry, func(f tool.KeptFile) {
		out.Sums.ToolOutput.Add(f.Size())
		if len(out.ToolOutput) == maxPruned {
			out.Truncated = true
			return
		}
		out.ToolOutput = append(out.ToolOutput, pruned(toolFolder+f.Name, f.FileInfo))
	})
}

func (p *pruner) journal(dry bool, out *protocol.Pruned) error {
	if p.keep.AuditLarger == 0 {
		return nil
	}
	return p.audit.Prune(p.keep.AuditLarger, dry, func(f fs.FileInfo) {
		out.Sums.Audit.Add(f.Size())
		out.Audit = append(out.Audit, pruned(f.Name(), f))
	})
}

// caches removes what nobody needs: no setting says so, and no reply has it.
func (p *pruner) caches(dry bool) error {
	if dry {
		return nil
	}
	n, err := p.tools.PruneCaches(p.now().Add(-cacheUnused))
	if n > 0 {
		p.log.Info("removed caches of the sandbox", zap.Int("folders", n))
	}
	return err
}

func pruned(name string, f fs.FileInfo) protocol.PrunedFile {
	return protocol.PrunedFile{Name: name, ChangedAt: f.ModTime().UTC(), Size: f.Size()}
}
