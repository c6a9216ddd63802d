package registry

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"noused/internal/regular"
	"noused/internal/tool"
)

// What is old, or too much, goes, the oldest first; never what a job of this daemon
// writes, nor what the daemon has not made.
func TestOutputIsPruned(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		before time.Time
		most   int64
		want   string
	}{
		"nothing":  {want: ""},
		"old":      {before: now.Add(-35 * time.Hour), want: "result-1 ses-2/asset-2"},
		"much":     {most: 1500, want: "result-1 ses-2/asset-2 ses-1/job-2"},
		"both":     {before: now.Add(-45 * time.Hour), most: 3500, want: "result-1 ses-2/asset-2"},
		"all fits": {before: now.Add(-100 * time.Hour), most: 1 << 20, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := New(Options{OutputDir: t.TempDir()})
			defer r.Close(context.Background())
			for i, file := range []string{"result-1", "ses-2/asset-2", "ses-1/job-1", "ses-1/job-2", "mine"} {
				path := filepath.Join(r.o.OutputDir, file)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, make([]byte, 1000), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Chtimes(path, time.Time{}, now.Add(time.Duration(-60+10*i)*time.Hour)); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Symlink("mine", filepath.Join(r.o.OutputDir, "result-0")); err != nil {
				t.Fatal(err)
			}
			known, err := os.Open(filepath.Join(r.o.OutputDir, "ses-1/job-1"))
			if err != nil {
				t.Fatal(err)
			}
			defer known.Close()
			r.jobs.list = []*job{{output: &jobOutput{file: known}}}
			defer func() { r.jobs.list = nil }()
			for _, dry := range []bool{true, false} {
				var gone []string
				if err := r.PruneOutput(context.Background(), c.before, c.most, dry, func(f tool.KeptFile) {
					gone = append(gone, f.Name)
				}); err != nil {
					t.Fatal(err)
				}
				if got := strings.Join(gone, " "); got != c.want {
					t.Errorf("dry %t: removed %q, want %q", dry, got, c.want)
				}
			}
			for _, file := range []string{
				"result-0", "result-1", "ses-2/asset-2", "ses-2", "ses-1/job-1", "ses-1/job-2",
				"mine",
			} {
				_, err := os.Lstat(filepath.Join(r.o.OutputDir, file))
				gone := slices.ContainsFunc(strings.Fields(c.want), func(name string) bool {
					return name == file || filepath.Dir(name) == file && file == "ses-2"
				})
				if (err == nil) == gone {
					t.Errorf("%s: want it gone: %t; %v", file, gone, err)
				}
			}
		})
	}
}

// A folder that is a link to another one has files that are not the daemon's.
func TestALinkedOutputFolderIsLeftAlone(t *testing.T) {
	other, link := t.TempDir(), filepath.Join(t.TempDir(), "tool-output")
	mine := filepath.Join(other, "result-of-mine.txt")
	if err := errors.Join(os.WriteFile(mine, []byte("mine"), 0o600), os.Symlink(other, link)); err != nil {
		t.Fatal(err)
	}
	r := New(Options{OutputDir: link})
	defer r.Close(context.Background())
	err := r.PruneOutput(context.Background(), time.Now().Add(time.Hour), 1, false, func(f tool.KeptFile) {
		t.Errorf("removed %s", f.Name)
	})
	if !errors.Is(err, regular.ErrLink) {
		t.Errorf("got %v, want to learn of the link", err)
	}
	if text := r.keep.shorten(strings.Repeat("long\n", 1<<20), "ses-1"); !strings.Contains(text, "the rest is lost: open "+
		link+": is a symbolic link") {
		t.Errorf("got %q", text[:min(len(text), 200)])
	}
	if _, _, err := r.jobs.newFile("ses-1"); !errors.Is(err, regular.ErrLink) {
		t.Errorf("a job: got %v", err)
	}
	if left, err := os.ReadDir(other); err != nil || len(left) != 1 {
		t.Errorf("left: %v %v", left, err)
	}
}
