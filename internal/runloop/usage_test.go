package runloop

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"noused/internal/model"
	"noused/internal/model/offline"
	"noused/internal/protocol"
	"noused/internal/session"
)

func (f *fixture) used(p protocol.GetUsageParams) protocol.UsageReport {
	f.t.Helper()
	a, err := f.getUsage(context.Background(), p)
	if err != nil {
		f.t.Fatal(err)
	}
	r, err := a.Later(context.Background())
	if err != nil {
		f.t.Fatal(err)
	}
	return r
}

// rowsOf is a report in short.
func rowsOf(r protocol.UsageReport) []string {
	text := func(name string, u protocol.UsageSum) string {
		cost := ""
		if u.Cost != nil {
			cost = fmt.Sprintf(" %g %s", u.Cost.Amount, u.Cost.Currency)
		}
		return fmt.Sprintf("%s: %d %d %d%s", name, u.InputTokens, u.CachedTokens, u.OutputTokens, cost)
	}
	var rows []string
	for _, row := range r.Rows {
		rows = append(rows, text(strings.TrimSpace(row.Day+row.Model+row.SessionID+" "+row.Title+" "+row.Workdir),
			row.UsageSum))
	}
	return append(rows, text("total", r.Total))
}

// putAt makes a closed session in a folder, with calls at these times.
func (f *fixture) putAt(id, workdir string, calls map[string]session.MessageAdded) {
	f.t.Helper()
	records := []session.Record{{At: time.Unix(1, 0), Fact: session.Created{
		SessionID: id, Title: "title of " + id,
		Workdir: workdir,
	}}}
	for _, at := range slices.Sorted(maps.Keys(calls)) {
		call := calls[at]
		when, err := time.Parse(time.RFC3339, at)
		if err != nil {
			f.t.Fatal(err)
		}
		call.ID, call.Message.Role = "m"+at, model.Assistant
		records = append(records, session.Record{At: when, Fact: call})
	}
	_, j, err := f.store.Create(id, records)
	if err == nil {
		err = j.Close()
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

func spent(by string, u model.Usage) session.MessageAdded {
	return session.MessageAdded{Model: by, Usage: &u}
}

func TestUsageAddsUpAllSessions(t *testing.T) {
	f := newFixture(t, t.TempDir(), offline.Model{}, echoTool, newRecorder())
	f.putAt("ses-1", "/a", map[string]session.MessageAdded{
		"2026-03-01T23:30:00Z": spent("x/dear", model.Usage{
			InputTokens: 100, CachedTokens: 60, OutputTokens: 10,
			Cost: 250_000_000,
		}),
		"2026-03-02T12:00:00Z": spent("x/free", model.Usage{InputTokens: 7, OutputTokens: 1}),
	})
	f.putAt("ses-2", "", map[string]session.MessageAdded{
		"2026-03-02T22:59:59Z": spent("", model.Usage{InputTokens: 3}),
		"2026-03-02T23:00:00Z": spent("x/dear", model.Usage{InputTokens: 1000, OutputTokens: 5, Cost: 500_000_000}),
	})
	f.put("ses-3") // has used nothing
	const total = "total: 1110 60 16 0.75 USD"
	for _, c := range []struct {
		by   protocol.UsageBy
		zone string
		want []string
	}{
		{"", "UTC", []string{"2026-03-01: 100 60 10 0.25 USD", "2026-03-02: 1010 0 6 0.5 USD", total}},
		{"day", "Europe/Berlin", []string{"2026-03-02: 110 60 11 0.25 USD", "2026-03-03: 1000 0 5 0.5 USD", total}},
		{"day", "-01:00", []string{"2026-03-01: 100 60 10 0.25 USD", "2026-03-02: 1010 0 6 0.5 USD", total}},
		{"day", "+05:45", []string{"2026-03-02: 107 60 11 0.25 USD", "2026-03-03: 1003 0 5 0.5 USD", total}},
		{"model", "", []string{"x/dear: 1100 60 15 0.75 USD", "x/free: 7 0 1", "unknown: 3 0 0", total}},
		{"session", "", []string{
			"ses-2 title of ses-2 " + f.env.Workdir + ": 1003 0 5 0.5 USD",
			"ses-1 title of ses-1 /a: 107 60 11 0.25 USD", total,
		}},
		{"folder", "", []string{f.env.Workdir + ": 1003 0 5 0.5 USD", "/a: 107 60 11 0.25 USD", total}},
	} {
		got := f.used(protocol.GetUsageParams{By: c.by, TimeZone: c.zone})
		if diff := cmp.Diff(c.want, rowsOf(got)); diff != "" || got.Truncated || len(got.LeftOut) != 0 {
			t.Errorf("by %s in %s: %+v (-want +got):\n%s", c.by, c.zone, got, diff)
		}
	}
	// What a branch copies is counted where it was said.
	before := f.used(protocol.GetUsageParams{By: "session"})
	if _, err := f.branchSession(context.Background(), protocol.BranchSessionParams{
		SessionID: "ses-1",
		Activate:  new(bool),
	}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, f.used(protocol.GetUsageParams{By: "session"})); diff != "" {
		t.Errorf("after a branch was made (-want +got):\n%s", diff)
	}
}

func TestUsageSaysWhatItLeavesOut(t *testing.T) {
	f := newFixture(t, t.TempDir(), offline.Model{}, echoTool, newRecorder())
	for id, text := range map[string]string{
		"ses-1": `{"v":9,"at":"2026-01-01T00:00:00Z","type":"created","data":{}}` + "\n",
		"ses-2": "",
		"ses-3": "noise\n",
	} {
		f.putAt(id, "/a", map[string]session.MessageAdded{"2026-03-02T12:00:00Z": spent("m", model.Usage{InputTokens: 5})})
		path := filepath.Join(f.dir, "sessions", id+".jsonl")
		if text == "" { // it becomes a link
			if err := errors.Join(os.Rename(path, path+".moved"), os.Symlink(path+".moved", path)); err != nil {
				t.Fatal(err)
			}
			continue
		}
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, append([]byte(text), whole...), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := f.used(protocol.GetUsageParams{By: "folder"})
	if diff := cmp.Diff([]string{"/a: 5 0 0", "total: 5 0 0"}, rowsOf(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	said := strings.Join(got.LeftOut, "\n")
	for _, want := range []string{
		"session ses-1 cannot be read and is not counted: ",
		"session ses-2 cannot be read and is not counted: ",
		"session ses-3 has 1 lines that cannot be read and are not counted",
	} {
		if !strings.Contains(said, want) || len(got.LeftOut) != 3 {
			t.Errorf("got %q, want %q in it", got.LeftOut, want)
		}
	}
	for _, zone := range []string{"Mars/Olympus", "../../etc/passwd", "+25:00", "Local", "-1"} {
		_, err := f.getUsage(context.Background(), protocol.GetUsageParams{TimeZone: zone})
		if protocol.AsError(err).Code != protocol.InvalidPayload {
			t.Errorf("time zone %q: got %v, want it refused", zone, err)
		}
	}
}

// One at a time reads all files, and a client that leaves does not wait.
func TestUsageWaitsForASearch(t *testing.T) {
	f := newFixture(t, t.TempDir(), offline.Model{}, echoTool, newRecorder())
	f.searching <- struct{}{}
	ctx, cancel := context.WithCancelCause(context.Background())
	left := errors.New("the client left")
	cancel(left)
	if _, err := f.usage(ctx, protocol.ByDay, time.UTC); !errors.Is(err, left) {
		t.Errorf("got %v, want %v", err, left)
	}
	<-f.searching
	if _, err := f.usage(ctx, protocol.ByDay, time.UTC); err != nil && !errors.Is(err, left) {
		t.Errorf("got %v", err)
	}
}
