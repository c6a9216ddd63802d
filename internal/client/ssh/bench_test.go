package ssh_test

import (
	"bufio"
	"io"
	"os/exec"
	"slices"
	"testing"
	"time"

	"noused/internal/client"
	"noused/internal/protocol"
)

// BenchmarkHostPing is a ping over a Link, beside the same bytes through ssh and cat: what is
// beyond ssh's own echo is the proxy's, the daemon's and the Link's. p50 is in microseconds.
func BenchmarkHostPing(b *testing.B) {
	_, s, o := far(b, "")
	b.Run("ssh", func(b *testing.B) {
		cmd := exec.Command("ssh", append(slices.Clone(s.SSH), "-T", "--", "cat")...)
		in, err := cmd.StdinPipe()
		if err != nil {
			b.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			b.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		lines := bufio.NewReader(out)
		p50(b, func() error {
			if _, err := io.WriteString(in, `{"v":"1","id":"c1","type":"ping","payload":{}}`+"\n"); err != nil {
				return err
			}
			_, err := lines.ReadSlice('\n')
			return err
		})
		_ = in.Close()
		_ = cmd.Wait()
	})
	b.Run("link", func(b *testing.B) {
		ctx := patient(b)
		c := commands(b, ctx, link(b, o))
		p50(b, func() error {
			_, err := client.Call(ctx, c, protocol.Ping, protocol.PingParams{})
			return err
		})
	})
}

// p50 reports the median, behind one that is not counted.
func p50(b *testing.B, do func() error) {
	b.Helper()
	if err := do(); err != nil {
		b.Fatal(err)
	}
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		if err := do(); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "p50-µs")
}
