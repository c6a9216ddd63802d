package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"noused/internal/fleet/job"
	"noused/internal/protocol"
	"noused/internal/testenv"
)

// filtered is a repository with a file that git hands to a command when it checks it out.
func filtered(t *testing.T, command string) (dir string) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	dir = t.TempDir()
	gitIn(t, dir, "init", "-q")
	writeIn(t, dir, "file", "text\n")
	gitIn(t, dir, "add", "file")
	gitIn(t, dir, "commit", "-q", "-m", "begin")
	writeIn(t, dir, ".git/filter", "#!/bin/sh\ncd "+dir+"\n"+command+"\n")
	writeIn(t, dir, ".git/info/attributes", "* filter=x\n")
	gitIn(t, dir, "config", "filter.x.smudge", filepath.Join(dir, ".git/filter"))
	return dir
}

func gitIn(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=x", "-c", "user.email=x@example.org"},
		args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func writeIn(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
}

// A session may have its repository name a program that git runs, and that program has no
// more rights than the session had.
func TestWhatARepositoryHasGitRunIsConfined(t *testing.T) {
	const secret = "sk-nobody-else-sees-this"
	t.Setenv("SOME_API_KEY", secret)
	outside := t.TempDir()
	repo := filtered(t, "env > .git/env\ntouch file2 "+filepath.Join(outside, "escaped")+"\ntr a-z A-Z")
	f := newJobFleet(t, job.DefaultTimeout)
	f.daemon("box", "")
	f.submit(job.Job{ID: "one", Repo: repo, Prompt: "hello"})
	if e := f.end("one"); e.StopReason != protocol.StopCompleted {
		t.Fatalf("got %+v %+v", e, e.Error)
	}
	trees, err := filepath.Glob(filepath.Join(os.Getenv("XDG_DATA_HOME"), "noused/worktrees", filepath.Base(repo), "*"))
	if err != nil || len(trees) != 1 {
		t.Fatalf("got the worktrees %q, %v, want one", trees, err)
	}
	if text, err := os.ReadFile(filepath.Join(trees[0], "file")); err != nil || string(text) != "TEXT\n" {
		t.Errorf("the worktree's file has %q, %v, want what the filter makes of it", text, err)
	}
	for _, not := range []string{filepath.Join(outside, "escaped"), filepath.Join(repo, "file2")} {
		if _, err := os.Lstat(not); err == nil {
			t.Errorf("the filter has written %s, which is outside of the git folder and the worktree", not)
		}
	}
	if env, err := os.ReadFile(filepath.Join(repo, ".git/env")); err != nil || strings.Contains(string(env), secret) {
		t.Errorf("the filter was given a key of the daemon's (%v):\n%s", err, env)
	}
}

// A git that does not end is ended with its job or its daemon, and all that it runs.
func TestAGitThatHangsHoldsUpNobody(t *testing.T) {
	testenv.Long(t)
	for name, end := range map[string]func(*testing.T, *jobFleet, *daemon, string){
		"the job is cancelled": func(t *testing.T, f *jobFleet, _ *daemon, repo string) {
			if _, _, err := f.Cancel(t.Context(), "hangs", jobPatience); err != nil {
				t.Fatal(err)
			}
			if e := f.end("hangs"); e.StopReason != protocol.StopAborted {
				t.Errorf("got %+v, want it aborted", e)
			}
			f.submit(job.Job{ID: "next", Prompt: "hello"})
			if e := f.end("next"); e.StopReason != protocol.StopCompleted {
				t.Errorf("got %+v, want the slot to be free for the next job", e)
			}
			leavesNothing(t, repo)
		},
		"the daemon stops": func(t *testing.T, _ *jobFleet, d *daemon, repo string) {
			d.Stop()
			leavesNothing(t, repo)
		},
		"the daemon is killed": func(_ *testing.T, _ *jobFleet, d *daemon, _ string) { d.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			repo := filtered(t, "exec setsid sh -c 'echo $$ > .git/new && mv .git/new .git/pid && exec sleep 1000'")
			f := newJobFleet(t, job.DefaultTimeout)
			d := f.daemon("box", "")
			f.submit(job.Job{ID: "hangs", Repo: repo, Prompt: "hello"})
			var pid int
			testenv.Until(t, "git has run the filter", func() bool {
				text, err := os.ReadFile(filepath.Join(repo, ".git/pid"))
				if err == nil {
					pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
				}
				return err == nil
			})
			end(t, f, d, repo)
			testenv.Until(t, "what git has run is gone", func() bool { return gone(pid) })
		})
	}
}

// leavesNothing: neither a worktree nor a branch of the job's.
func leavesNothing(t *testing.T, repo string) {
	t.Helper()
	if list := gitIn(t, repo, "worktree", "list"); strings.Count(list, "\n") != 1 {
		t.Errorf("git has these worktrees, want the repository alone:\n%s", list)
	}
	if list := gitIn(t, repo, "for-each-ref", "refs/heads"); strings.Count(list, "\n") != 1 {
		t.Errorf("git has these branches, want one:\n%s", list)
	}
	if left, _ := filepath.Glob(filepath.Join(os.Getenv("XDG_DATA_HOME"), "noused/worktrees/*")); len(left) > 0 {
		t.Errorf("%q is left", left)
	}
}
