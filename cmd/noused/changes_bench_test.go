package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"noused/internal/client"
	"noused/internal/protocol"
)

// BenchmarkRecordedRuns is one op per run that changes one file of a repository of 1,000, beside
// one in a session whose changes cannot be recorded. It tells the median of each, and what a
// recorded turn takes of the disk.
func BenchmarkRecordedRuns(b *testing.B) {
	d := unstarted(b, "noused")
	d.Start()
	c := d.dial()
	ctx := context.Background()
	session := func() (id, repo string) {
		repo = repositoryOf(b, 1000)
		made, err := client.Call(ctx, c, protocol.NewSession, protocol.NewSessionParams{Workdir: repo})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := client.Call(ctx, c, protocol.SetApprovalMode, protocol.SetApprovalModeParams{
			Scope: protocol.Scope{SessionID: made.SessionID}, Mode: protocol.ApprovalsAuto,
		}); err != nil {
			b.Fatal(err)
		}
		return made.SessionID, repo
	}
	run := func(id, repo string, n int) time.Duration {
		began := time.Now()
		text := fmt.Sprintf("%s\nline %d\n", strings.Repeat("a line of a file\n", 100), n)
		r, err := client.Call(ctx, c, protocol.Prompt, protocol.PromptParams{
			Scope: protocol.Scope{SessionID: id},
			Text:  fmt.Sprintf(`!write {"path":%q,"content":%q}`, filepath.Join(repo, "d3", fmt.Sprint("f", 300+n%50)), text),
		})
		if err != nil || strings.Contains(r.Result.Output, "failed") {
			b.Fatal(r.Result.Output, err)
		}
		return time.Since(began)
	}
	id, repo := session()
	other, otherRepo := session()
	kept := ""
	_ = filepath.WalkDir(d.Dir, func(path string, _ fs.DirEntry, _ error) error {
		if filepath.Base(path) == other+".jsonl" {
			kept = filepath.Dir(path)
		}
		return nil
	})
	if err := os.WriteFile(filepath.Join(kept, other+".changes"), nil, 0o600); err != nil {
		b.Fatal(err)
	}
	run(id, repo, -1)
	run(other, otherRepo, -1)
	before := diskOf(b, filepath.Join(kept, id+".changes"))
	var with, without []time.Duration
	for n := 0; b.Loop(); n++ {
		with = append(with, run(id, repo, n))
		without = append(without, run(other, otherRepo, n))
	}
	slices.Sort(with)
	slices.Sort(without)
	ms := func(of []time.Duration) float64 { return float64(of[len(of)/2].Microseconds()) / 1000 }
	b.ReportMetric(ms(with), "recorded-ms")
	b.ReportMetric(ms(without), "unrecorded-ms")
	b.ReportMetric(ms(with)/ms(without), "ratio")
	all := diskOf(b, filepath.Join(kept, id+".changes"))
	b.ReportMetric(float64(all)/1024, "disk-KiB")
	b.ReportMetric(float64(all-before)/1024/float64(b.N), "KiB/turn")
	got, err := client.Call(ctx, c, protocol.GetChanges, protocol.GetChangesParams{Scope: protocol.Scope{SessionID: id}})
	if err != nil || len(got.Files) == 0 {
		b.Fatal(got, err)
	}
	b.ReportMetric(float64(len(got.Missing)), "missing")
}

// repositoryOf makes a git repository of so many files, a hundred to a folder, all committed.
func repositoryOf(b *testing.B, n int) string {
	b.Helper()
	dir := b.TempDir()
	for i := range n {
		at := filepath.Join(dir, fmt.Sprint("d", i/100), fmt.Sprint("f", i))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(strings.Repeat(fmt.Sprintln("file", i), 100)), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"init", "-q"},
		{"add", "-A"},
		{"-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"},
	} {
		if out, err := exec.Command("git", append([]string{"-C", dir}, args...)...).CombinedOutput(); err != nil {
			b.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	return dir
}

// diskOf is what a folder takes of the disk, in bytes.
func diskOf(b *testing.B, dir string) (bytes int64) {
	b.Helper()
	if err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil {
			bytes += info.Sys().(*syscall.Stat_t).Blocks * 512
		}
		return err
	}); err != nil {
		b.Fatal(err)
	}
	return bytes
}

// BenchmarkNewFiles is a run that makes 91,000 files. It tells the most memory that the daemon has had until the
// run had ended, and until its changes were told.
func BenchmarkNewFiles(b *testing.B) {
	const script = `for d in $(seq 0 909); do mkdir -p packages/p$((d/20))/d$d; for f in $(seq 0 99); do ` +
		`echo "export const n = $d.$f;" > packages/p$((d/20))/d$d/module-$f.js; done; done`
	for b.Loop() {
		d := unstarted(b, "noused")
		d.Start()
		ctx, c := context.Background(), d.dial()
		made, err := client.Call(ctx, c, protocol.NewSession, protocol.NewSessionParams{Workdir: repositoryOf(b, 100)})
		if err != nil {
			b.Fatal(err)
		}
		scope := protocol.Scope{SessionID: made.SessionID}
		most := func() float64 { _, kib := memoryOf(d.Cmd.Process.Pid); return float64(kib) }
		idle := most()
		r, err := client.Call(ctx, c, protocol.Prompt, protocol.PromptParams{
			Scope: scope, Text: fmt.Sprintf("!bash {\"command\":%q}", script),
		})
		if err != nil || strings.Contains(r.Result.Output, "failed") {
			b.Fatal(r.Result.Output, err)
		}
		b.ReportMetric(idle/1024, "idle-MiB")
		b.ReportMetric(most()/1024, "run-MiB")
		got, err := client.Call(ctx, c, protocol.GetChanges, protocol.GetChangesParams{Scope: scope})
		if err != nil {
			b.Log(err)
		}
		b.ReportMetric(most()/1024, "told-MiB")
		b.ReportMetric(float64(len(got.Files)), "files")
		b.ReportMetric(float64(len(got.Missing)), "missing")
	}
}
