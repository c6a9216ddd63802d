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
		"the model is asked without the tools of %s, which have not said within %v what they can do; once they have, they are offered from the next turn on; list_tools tells of them", strings.Join(missing, ", "), serverWait)})
}
