package runloop

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"noused/internal/model"
	"noused/internal/protocol"
)

// serverWait is how long a model call waits for MCP servers that were never seen
// (mcp.md §2).
const serverWait = 5 * time.Second

// ready waits for servers that were never seen, and says which the session's model
// calls go without, once of each. The error is that of ctx.
func (l *loop) ready(ctx context.Context, gen int, from model.Scope) error {
	wait, cancel := context.WithTimeout(ctx, serverWait)
	defer cancel()
	missing := l.env.Tools.Ready(wait, from)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	missing = slices.DeleteFunc(missing, func(name string) bool {
		_, told := l.unready.LoadOrStore(name, true)
		return told
	})
	if len(missing) == 0 {
		return nil
	}
	return l.post(ctx, noticeIn{gen, protocol.WarningToolsNotReady, fmt.Sprintf(
		"the model is asked without the tools of %s, which have not said within %v what they can do; once they have, they "+
			"are offered from the next turn on; list_tools lists them", strings.Join(missing, ", "), serverWait)})
}

// tellSilent says, once of each, which extensions said nothing when they were started. The
// error is that of ctx.
func (l *loop) tellSilent(ctx context.Context, gen int, listed []model.ToolInfo) error {
	for _, t := range listed {
		if !t.Silent {
			continue
		}
		if _, told := l.unready.LoadOrStore(t.Module, true); told {
			continue
		}
		if err := l.post(ctx, noticeIn{gen, protocol.WarningToolsNotReady, fmt.Sprintf(
			"the model is asked without the tools of %s: %s; it is started again when its program or its descriptor has "+
				"changed, by nous tools reload, and when the daemon starts", t.Module, t.Problem)}); err != nil {
			return err
		}
	}
	return nil
}
