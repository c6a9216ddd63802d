package client

import (
	"context"
	"fmt"
	"time"

	"noused/internal/protocol"
)

// SilentError says that a daemon has not answered a command in time. It may
// have executed it all the same.
type SilentError struct{ For time.Duration }

func (e *SilentError) Error() string { return fmt.Sprintf("the daemon has not answered for %s", e.For) }

// Bounded is a context in which a call of a command that is answered at once
// ends with a *SilentError after limit. The commands that take as long as what
// they do (a prompt that waits, an extension's, a compaction) are not bounded.
func Bounded(ctx context.Context, params protocol.Params, limit time.Duration) (context.Context, context.CancelFunc) {
	if AnsweredLate(params) {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, limit, &SilentError{limit})
}

// AnsweredLate tells whether a command is answered when it is done, which may
// take any time.
func AnsweredLate(params protocol.Params) bool {
	switch p := params.(type) {
	case protocol.PromptParams:
		return p.Wait == nil || *p.Wait
	case protocol.ExtensionCommandParams, protocol.CallToolParams, protocol.CompactSessionParams, protocol.PruneParams,
		protocol.GetChangesParams, protocol.RewindParams, protocol.UndoRewindParams:
		return true
	default:
		return false
	}
}
