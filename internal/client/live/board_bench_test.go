package live

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/client/hosts"
	"noused/internal/client/plain"
	"noused/internal/protocol"
)

var errAllListed = errors.New("all are listed")

// listedBoard ends the watch when so many hosts are listed.
type listedBoard struct {
	*Board
	left int
}

func (b *listedBoard) Listed(_, now []hosts.Session) { b.left -= min(len(now), 1) }

func (b *listedBoard) Show() (time.Duration, error) {
	if b.left == 0 {
		return 0, errAllListed
	}
	return 0, nil
}

// What nous fleet watch draws of 10,000 sessions of 100 hosts, on a terminal of 50 lines.
func BenchmarkFleetBoard(b *testing.B) {
	const many = 100
	at := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	board := &listedBoard{NewHosts(&plain.Printer{Out: io.Discard}, &plain.Output{W: io.Discard}, nil), many}
	board.watch = hosts.NewWatch(hosts.Options{
		Host: func(name string) hosts.Host {
			return hosts.Host{Name: name, Sessions: func(context.Context, protocol.ListSessionsParams) (jsontext.Value, error) {
				var r protocol.Sessions
				for n := range many {
					r.Sessions = append(r.Sessions, protocol.SessionInfo{
						SessionID: fmt.Sprintf("ses-%s-%d-0198c5f2-0000-7000", name, n), Title: "what is done here",
						Workdir: "/home/somebody/projects/one", UpdatedAt: at.Add(time.Duration(len(name)*n) * time.Second),
					})
				}
				return json.Marshal(r)
			}}
		},
		AtOnce: AtOnce, Stays: time.Hour, Every: time.Hour, View: board,
	})
	here := 0
	err := board.watch.Follow(b.Context(), func(ctx context.Context) (hosts.News, error) {
		if here == many {
			<-ctx.Done()
			return hosts.News{}, context.Cause(ctx)
		}
		here++
		return hosts.News{Host: fmt.Sprint("host-", here), Here: true}, nil
	})
	if !errors.Is(err, errAllListed) {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, line := range board.lines(50) {
			_ = board.OutStyle.Paint(line.Look, plain.CutLine(line.Text, 200))
		}
	}
}
