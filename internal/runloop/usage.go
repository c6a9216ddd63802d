package runloop

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
)

const (
	maxUsageRows = 10_000
	maxLeftOut   = 100 // sentences
	unknownModel = "unknown"
)

// getUsage answers when all files have been read (protocol.md, get_usage).
func (h *Hub) getUsage(_ context.Context, p protocol.GetUsageParams) (a protocol.Answer[protocol.UsageReport],
	err error,
) {
	zone, bad := protocol.Location(p.TimeZone)
	if bad != nil {
		return a, bad
	}
	a.Later = func(ctx context.Context) (protocol.UsageReport, error) {
		return h.usage(ctx, cmp.Or(p.By, protocol.ByDay), zone)
	}
	return a, nil
}

// usage reads the sessions' files one after the other, and holds one line of them;
// nobody else reads all files meanwhile. What an open session has announced is in
// its file (wire-v1 §7).
func (h *Hub) usage(ctx context.Context, by protocol.UsageBy, zone *time.Location) (protocol.UsageReport, error) {
	b := bill{by: by, zone: zone, home: h.env.Workdir, rows: map[string]*billed{}, leftOut: []string{}}
	select {
	case h.searching <- struct{}{}:
		defer func() { <-h.searching }()
	case <-ctx.Done():
		return protocol.UsageReport{}, context.Cause(ctx)
	}
	ids, err := h.env.Store.IDs()
	if err != nil {
		return protocol.UsageReport{}, err
	}
	in := session.NewCallReader()
	for _, id := range ids {
		used := map[string]model.Usage{}
		calls, err := h.env.Store.Calls(ctx, id, in, func(c session.Call) {
			key := b.keyOf(id, c)
			used[key] = used[key].Add(c.Usage)
		})
		switch {
		case ctx.Err() != nil:
			return protocol.UsageReport{}, context.Cause(ctx)
		case err != nil && gone(err):
		case err != nil:
			b.leave("session %s cannot be read and is not counted: %v", id, err)
		default:
			b.add(id, calls, used)
		}
	}
	return b.report(), nil
}

// bill is a usage that is being added up.
type bill struct {
	by   protocol.UsageBy
	zone *time.Location
	home string // the daemon's folder

	rows    map[string]*billed
	total   model.Usage
	more    bool
	leftOut []string
	silent  int // sentences that leftOut has no room for
}

type billed struct {
	protocol.UsageRow
	used model.Usage
}

// keyOf is the row that a call belongs to. By folder it is the session's, as its
// folder is not known yet.
func (b *bill) keyOf(id string, c session.Call) string {
	switch b.by {
	case protocol.ByDay:
		return c.At.In(b.zone).Format(time.DateOnly)
	case protocol.ByModel:
		return cmp.Or(c.Model, unknownModel)
	}
	return id
}

// add adds what a session has used.
func (b *bill) add(id string, s session.Calls, used map[string]model.Usage) {
	if s.Unread > 0 {
		b.leave("session %s has %d lines that cannot be read and are not counted", id, s.Unread)
	}
	for key, u := range used {
		b.total = b.total.Add(u)
		row := protocol.UsageRow{}
		switch b.by {
		case protocol.ByDay:
			row.Day = key
		case protocol.ByModel:
			row.Model = key
		case protocol.BySession:
			row.SessionID, row.Title, row.Workdir = id, s.Title, cmp.Or(s.Workdir, b.home)
		case protocol.ByFolder:
			row.Workdir = cmp.Or(s.Workdir, b.home)
			key = row.Workdir
		}
		have := b.rows[key]
		if have == nil && len(b.rows) >= maxUsageRows {
			b.more = true
			continue
		}
		if have == nil {
			have = &billed{UsageRow: row}
			b.rows[key] = have
		}
		have.used = have.used.Add(u)
	}
}

// leave notes what is not counted.
func (b *bill) leave(format string, args ...any) {
	if len(b.leftOut) == maxLeftOut {
		b.silent++
		return
	}
	b.leftOut = append(b.leftOut, fmt.Sprintf(format, args...))
}

func (b *bill) report() protocol.UsageReport {
	out := protocol.UsageReport{
		By: b.by, Rows: []protocol.UsageRow{}, Total: usageSum(b.total), Truncated: b.more,
		LeftOut: b.leftOut,
	}
	if b.silent > 0 {
		out.LeftOut = append(out.LeftOut, fmt.Sprintf("%d more sessions cannot be read wholly", b.silent))
	}
	for _, row := range b.rows {
		row.UsageSum = usageSum(row.used)
		out.Rows = append(out.Rows, row.UsageRow)
	}
	slices.SortFunc(out.Rows, func(x, y protocol.UsageRow) int {
		if b.by == protocol.ByDay {
			return cmp.Compare(x.Day, y.Day)
		}
		return cmp.Or(cmp.Compare(y.InputTokens+y.OutputTokens, x.InputTokens+x.OutputTokens),
			cmp.Compare(x.SessionID, y.SessionID), cmp.Compare(x.Model, y.Model), cmp.Compare(x.Workdir, y.Workdir))
	})
	return out
}

func usageSum(u model.Usage) protocol.UsageSum {
	return protocol.UsageSum{
		InputTokens: u.InputTokens, OutputTokens: u.OutputTokens, CachedTokens: u.CachedTokens,
		Cost: wireUsage(&u).Cost,
	}
}
