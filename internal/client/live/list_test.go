package live

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"noused/internal/client/hosts"
	"noused/internal/client/plain"
	"noused/internal/protocol"
)

// What a terminal shows is written anew when it changes, and fits.
func TestWatchedTable(t *testing.T) {
	var out bytes.Buffer
	to := &plain.Output{W: &out}
	l := &List{
		Printer: &plain.Printer{Out: to, Err: io.Discard, OutStyle: plain.Style{Terminal: true}}, Output: to, All: true,
		Table: func(list []protocol.SessionInfo, active string, _ bool) []plain.Span {
			slices.SortFunc(list, protocol.ByNeed)
			return plain.SessionLines(list, active, time.Now(), 80)
		},
	}
	list := make([]hosts.Session, 100)
	for i := range list {
		list[i].SessionInfo = protocol.SessionInfo{
			SessionID: fmt.Sprintf("ses-%d", i), Title: "\x1b[2J" + strings.Repeat("wide", 100), Workdir: "/nowhere",
			RunState: protocol.StateIdle, UpdatedAt: time.Unix(int64(-i), 0),
		}
	}
	drawn := func() string {
		out.Reset()
		l.show(list)
		return out.String()
	}
	table, ok := strings.CutPrefix(drawn(), "\x1b[H\x1b[J")
	lines := strings.Split(strings.TrimSuffix(table, "\r\n"), "\r\n")
	if !ok || len(lines) > 24-1 || strings.Contains(table, "\x1b") {
		t.Errorf("got %d lines, want at most 23, and no title's escape sequence:\n%q", len(lines), table)
	}
	if !strings.HasSuffix(table, "… 79 more lines\r\n") {
		t.Errorf("the table does not say how much is missing:\n%s", table)
	}
	for _, line := range lines {
		if n := len([]rune(line)); n > 80 {
			t.Errorf("got a line of %d cells: %q", n, line)
		}
	}
	if again := drawn(); again != "" {
		t.Errorf("nothing has changed, and it wrote %q", again)
	}
	list[99].WaitingFor = protocol.WaitApproval
	if got := drawn(); !strings.Contains(got, "needs you") || strings.Index(got, "ses-99 ") > strings.Index(got,
		"ses-0 ") {
		t.Errorf("the session that waits does not come first:\n%s", got)
	}
}
