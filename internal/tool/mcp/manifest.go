package mcp

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	jsonx "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/zap"

	"noused/internal/format"
	"noused/internal/tool"
)

// Bounds of what one server says that it can do.
const (
	maxTools       = 2000
	maxListed      = 2 * maxTools // with those that are left out
	maxPages       = 500
	maxSchema      = 256 << 10 // bytes of one
	maxDefinitions = 8 << 20   // bytes of all
	maxDescription = 32 << 10
	// maxAllDefinitions is what all servers together may say, in bytes of costOf.
	maxAllDefinitions = 16 << 20
	maxInstructions   = 2 << 10
	maxToolName       = 128
)

// relistPause is how long a server that has been asked which tools it has by now is
// not asked again.
const relistPause = time.Second

// list asks the server what it can do, and keeps that. ctx bounds what it says of its
// tools; settled, if it is not nil, is called once they are there, and is false where they
// came too late. Prompts have a time of their own.
func (l *link) list(ctx context.Context, settled func() bool) error {
	m := &tool.Manifest{Instructions: format.Clip(l.session.InitializeResult().Instructions, maxInstructions)}
	if caps := l.session.InitializeResult().Capabilities; caps != nil && caps.Tools != nil {
		if err := l.operations(ctx, m); err != nil {
			return err
		}
	}
	if settled != nil && !settled() {
		return context.Cause(ctx)
	}
	m.Prompts = l.prompts()
	cost := costOf(m)
	if !l.h.manifestCache.lib.room.Take(cost) {
		return crowdedOut(cost)
	}
	l.h.learn(m, cost, l.session.InitializeResult().ProtocolVersion >= discover)
	return nil
}

// crowdedOut is the fault of a server whose tools find no room beside those of others.
func crowdedOut(cost int) error {
	return tool.Faultf(tool.ProtocolError, "there is no room for the server's tools, which take %d KiB: those of all "+
		"servers together have %d MiB. Have fewer servers, or name the tools that are wanted in its entry (tools)", cost>>10,
		maxAllDefinitions>>20)
}

// operations puts all pages of the server's tools into a manifest, sorted by name, without
// those that are not wanted or cannot be used.
func (l *link) operations(ctx context.Context, m *tool.Manifest) error {
	var ops []tool.Operation
	var take replyGate
	defer take.end()
	ctx = take.with(ctx)
	names, size, seen, params := map[string]bool{}, 0, 0, &sdk.ListToolsParams{}
	for page := 0; ; page++ {
		answer, err := l.session.ListTools(ctx, params)
		if err != nil {
			return err
		}
		if seen += len(answer.Tools); seen > maxListed {
			return tool.Faultf(tool.ProtocolError, "the server lists more than %d tools", maxListed)
		}
		for _, t := range answer.Tools {
			o, err := l.operation(t)
			switch {
			case err == nil && names[o.Name]:
				err = fmt.Errorf("the name is used twice")
			case err == nil && l.needsTask(o.Name):
				err = errTask
			}
			if err != nil {
				if l.wanted(o.Name) {
					leaveOut(m, t.Name, err)
				}
				l.log.Warn("a tool of the server is left out", zap.String("tool", format.Clip(t.Name, maxToolName)), zap.Error(err))
				continue
			}
			if !l.wanted(o.Name) {
				continue
			}
			names[o.Name] = true
			size += len(o.Description) + len(o.Params)
			ops = append(ops, o)
		}
		cursor := answer.NextCursor
		take.taken()
		switch {
		case len(ops) > maxTools || size > maxDefinitions || page == maxPages:
			return tool.Faultf(tool.ProtocolError,
				"the server has too many tools: at most %d are taken, with %d MiB of definitions, on %d pages", maxTools,
				maxDefinitions>>20, maxPages)
		case cursor == "":
			slices.SortFunc(ops, func(a, b tool.Operation) int { return strings.Compare(a.Name, b.Name) })
			m.Operations = ops
			return nil
		}
		params = &sdk.ListToolsParams{Cursor: cursor}
	}
}

func (l *link) wanted(name string) bool {
	return l.h.desc.Tools == nil || slices.Contains(l.h.desc.Tools, name)
}

// operation is a tool of the server's as ours. An error says why it cannot be
// used.
func (l *link) operation(t *sdk.Tool) (o tool.Operation, err error) {
	o = tool.Operation{Name: t.Name, Description: format.Clip(t.Description, maxDescription)}
	if t.Name == "" || len(t.Name) > maxToolName {
		return o, fmt.Errorf("its name has %d bytes, want 1 to %d", len(t.Name), maxToolName)
	}
	o.ReadOnly = t.Annotations != nil && t.Annotations.ReadOnlyHint
	params, err := jsonx.Marshal(t.InputSchema, jsonx.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	switch {
	case err != nil:
		return o, fmt.Errorf("its schema: %w", err)
	case len(params) > maxSchema:
		return o, fmt.Errorf("its schema has %d bytes, at most %d are taken", len(params), maxSchema)
	case t.InputSchema == nil:
		return o, nil
	}
	if _, o.Params, err = tool.CompileSchema(params); err != nil {
		return o, fmt.Errorf("its schema: %w", err)
	}
	return o, nil
}

// learn keeps what a server can do.
func (h *host) learn(m *tool.Manifest, cost int, newer bool) {
	changed, err := h.manifestCache.write(h.desc.Name, m, cost, newer)
	if err != nil {
		h.log.Warn("what the server can do is not kept", zap.Error(err))
	}
	if changed {
		h.changed()
	}
}

// same reports whether two manifests offer the same.
func same(a, b *tool.Manifest) bool {
	return a.Instructions == b.Instructions && slices.Equal(a.LeftOut, b.LeftOut) && reflect.DeepEqual(a.Prompts,
		b.Prompts) && slices.EqualFunc(a.Operations, b.Operations, func(x, y tool.Operation) bool {
		return x.Name == y.Name && x.Description == y.Description && string(x.Params) == string(y.Params) &&
			x.ReadOnly == y.ReadOnly
	})
}

// told reports that a notification is of a change of the server's tools or prompts,
// and news: none such is on its way through the SDK, which forgets what it knew of
// them.
func (l *link) told(method string) bool {
	switch method {
	case "notifications/tools/list_changed":
		return l.tools.CompareAndSwap(false, true)
	case "notifications/prompts/list_changed":
		return l.texts.CompareAndSwap(false, true)
	}
	return false
}

// changed has the server asked again what it can do, and does not wait for that.
func (l *link) changed(told *atomic.Bool) {
	told.Store(false)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stale = true
	if l.listing {
		return
	}
	l.listing = true
	l.h.work.Go(l.relist)
}

// relist asks until nothing has changed meanwhile, and not too often.
func (l *link) relist() {
	for {
		l.mu.Lock()
		if !l.stale || l.h.ctx.Err() != nil {
			l.listing = false
			l.mu.Unlock()
			return
		}
		l.stale = false
		l.mu.Unlock()
		ctx, cancel := tool.WithTimeout(l.h.ctx, l.h.waits.second)
		if err := l.guarded(func() error { return l.list(ctx, nil) }); err != nil && l.alive() {
			l.log.Warn("the server does not say which tools it has by now", zap.Error(err))
		}
		cancel()
		pause := time.NewTimer(relistPause)
		select {
		case <-pause.C:
		case <-l.wire.ended():
		}
		pause.Stop()
	}
}
