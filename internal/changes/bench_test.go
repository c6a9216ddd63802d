package changes

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// manyFiles makes files in a git repository, a hundred to a folder, all committed.
func manyFiles(b *testing.B, n int, git bool) *folderUnder {
	b.Helper()
	u := newFolder(b, git)
	for i := range n {
		dir := filepath.Join(u.top, fmt.Sprintf("p%d/d%d", i/2000, i/100))
		if i%100 == 0 {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				b.Fatal(err)
			}
		}
		text := strings.Repeat("package x\n", i%50)
		if err := os.WriteFile(fmt.Sprintf("%s/f%d.go", dir, i), []byte(text), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	if git {
		u.git("add", "-A")
		u.git("commit", "-qm", "x")
		time.Sleep(time.Second) // the index is younger than the files
		u.git("update-index", "-q", "--refresh")
	}
	return u
}

func benchmarkScan(b *testing.B, n int, git bool) {
	u := manyFiles(b, n, git)
	began, spent := time.Now(), cpuTime(b)
	u.e.Warm(context.Background(), u.f)
	first, firstCPU := time.Since(began), cpuTime(b)-spent
	time.Sleep(2 * slack)
	u.e.Warm(context.Background(), u.f)
	b.ResetTimer()
	spent = cpuTime(b)
	for b.Loop() {
		if err := u.e.Before(context.Background(), u.f, fmt.Sprint("run/", time.Now().UnixNano())); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((cpuTime(b)-spent).Microseconds())/1000/float64(b.N), "cpu-ms/op")
	b.ReportMetric(float64(first.Milliseconds()), "first-ms")
	b.ReportMetric(float64(firstCPU.Milliseconds()), "first-cpu-ms")
}

// cpuTime is what this process and its gits have used of the processors, which other work on the
// machine does not change.
func cpuTime(b *testing.B) (total time.Duration) {
	b.Helper()
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var used unix.Rusage
		if err := unix.Getrusage(who, &used); err != nil {
			b.Fatal(err)
		}
		total += time.Duration(used.Utime.Nano() + used.Stime.Nano())
	}
	return total
}

func BenchmarkUnchanged10000(b *testing.B)      { benchmarkScan(b, 10_000, true) }
func BenchmarkUnchanged10000NoGit(b *testing.B) { benchmarkScan(b, 10_000, false) }
func BenchmarkUnchanged100000(b *testing.B)     { benchmarkScan(b, 100_000, true) }
func BenchmarkTurnOfOneFileIn10000(b *testing.B) {
	u := manyFiles(b, 10_000, true)
	u.e.Warm(context.Background(), u.f)
	n := 0
	for b.Loop() {
		n++
		u.turnOf(func() { u.write("p0/d0/f0.go", fmt.Sprint(n)) })
	}
}
