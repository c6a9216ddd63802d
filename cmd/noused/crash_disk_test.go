package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"noused/internal/client"
	"noused/internal/protocol"
	"noused/internal/session/sessiontest"
)

// newSmallDisk is a daemon whose state is on a file system of 1 MiB of its own,
// in a mount namespace of its own.
func newSmallDisk(t *testing.T) *daemon {
	t.Helper()
	if out, err := exec.Command("unshare", "-rm", "mount", "-t", "tmpfs", "-o", "size=1m", "none", t.TempDir()).
		CombinedOutput(); err != nil {
		t.Skipf("no file systems can be mounted here: %v: %s", err, out)
	}
	d := newDaemon(t)
	d.Stop()
	if err := os.MkdirAll(filepath.Join(d.Dir, "state"), 0o700); err != nil {
		t.Fatal(err)
	}
	d.write("bin/noused", fmt.Sprintf(
		"#!/bin/sh\nexec unshare -rm sh -c 'mount -t tmpfs -o size=1m none %s/state && exec \"$0\" \"$@\"' %q \"$@\"\n",
		d.Dir, which(t)), 0o700)
	t.Setenv("PATH", filepath.Join(d.Dir, "bin")+":"+os.Getenv("PATH"))
	d.Start()
	return d
}

func which(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("noused")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// state is the path to what is in the daemon's state directory, as it sees it.
func (d *daemon) state(name string) string {
	return filepath.Join("/proc", strconv.Itoa(d.Cmd.Process.Pid), "root", d.Dir, "state", name)
}

// within runs a command in the daemon's mount namespace.
func (d *daemon) within(args ...string) {
	d.t.Helper()
	args = append([]string{"--preserve-credentials", "-U", "-m", "-t", strconv.Itoa(d.Cmd.Process.Pid)}, args...)
	if out, err := exec.Command("nsenter", args...).CombinedOutput(); err != nil {
		d.t.Fatalf("nsenter %v: %v: %s", args, err, out)
	}
}

// fill leaves no byte free on the daemon's disk.
func (d *daemon) fill() {
	d.t.Helper()
	f, err := os.Create(d.state("ballast"))
	if err != nil {
		d.t.Fatal(err)
	}
	for size := 64 << 10; size > 0; size /= 2 {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
	}
	if err := f.Close(); err != nil {
		d.t.Fatal(err)
	}
}

const noSpace = "no space left on device"

// Disks fill up and fail: anyone who asks for what cannot be kept is told so,
// nobody else notices, and what was under way goes on when there is room again.
func TestDiskTrouble(t *testing.T) {
	for name, c := range map[string]struct {
		fail, mend func(d *daemon)
		cause      string
	}{
		"full": {(*daemon).fill, func(d *daemon) { _ = os.Remove(d.state("ballast")) }, noSpace},
		"read-only": {
			func(d *daemon) { d.within("mount", "-t", "tmpfs", "-o", "ro", "none", d.Dir+"/state/sessions") },
			func(d *daemon) { d.within("umount", d.Dir+"/state/sessions") }, "read-only file system",
		},
		"taken away": {
			func(d *daemon) { _ = os.Rename(d.state("sessions"), d.state("elsewhere")) },
			func(d *daemon) { _ = os.Rename(d.state("elsewhere"), d.state("sessions")) }, "no such file or directory",
		},
	} {
		t.Run(name, func(t *testing.T) { troubled(t, c.fail, c.mend, c.cause) })
	}
}

func troubled(t *testing.T, fail, mend func(*daemon), cause string) {
	d := newSmallDisk(t)
	c, ctx, no := d.dial(), context.Background(), false
	book := map[string]string{} // accepted texts, by input
	var last protocol.PromptAccepted
	prompt := func(text string) error {
		r, err := client.Call(ctx, c, protocol.Prompt, protocol.PromptParams{
			Text: text, Wait: &no,
			StreamingBehavior: "follow_up",
		})
		if err == nil {
			last = *r.Accepted
			book[last.InputID] = text
		}
		return err
	}
	events := d.events(protocol.SubscribeParams{})
	var heard []string
	hear := func(what func(protocol.Event) bool) {
		t.Helper()
		await(t, events, func(ev protocol.Event) bool {
			if e := sessiontest.Essence(ev); e != "" {
				heard = append(heard, e)
			}
			return what(ev)
		})
	}
	if err := prompt("while all is well"); err != nil {
		t.Fatal(err)
	}
	hear(endOf(last.RunID))

	fail(d)
	// New sessions are refused, and so are the texts that do not fit any more.
	var refused *protocol.Error
	told := func(err error) bool {
		return errors.As(err, &refused) && refused.Code == protocol.SessionError && strings.Contains(refused.Error(), cause)
	}
	if _, err := client.Call(ctx, c, protocol.NewSession,
		protocol.NewSessionParams{Title: strings.Repeat("t", 8<<10)}); !told(err) {
		t.Errorf("a new session: got %v, want a session_error with its cause: %s", err, cause)
	}
	if cause == noSpace {
		if err := prompt(strings.Repeat("does not fit ", 1<<10)); !told(err) {
			t.Errorf("a text: got %v, want a session_error with its cause: %s", err, cause)
		}
	} else if err := prompt("into the open journal"); err == nil {
		hear(endOf(last.RunID))
	} else if !told(err) {
		t.Errorf("a text: got %v, want it accepted, or a session_error with its cause: %s", err, cause)
	}
	if pong, err := client.Call(ctx, d.dial(), protocol.Ping, protocol.PingParams{}); err != nil ||
		pong.Message != "pong" {
		t.Errorf("somebody else: got %+v, %v", pong, err)
	}

	mend(d)
	if err := prompt("all is well again"); err != nil {
		t.Fatal(err)
	}
	hear(endOf(last.RunID))
	if _, err := client.Call(ctx, c, protocol.NewSession, protocol.NewSessionParams{}); err != nil {
		t.Error(err)
	}
	s := sessiontest.New(last.SessionID)
	if err := s.Take(d.state(filepath.Join("sessions", last.SessionID+".jsonl"))); err != nil {
		t.Fatal(err)
	}
	for input, text := range book {
		if s.Inputs[input].Text != text {
			t.Errorf("%.40q was accepted, and is not on the disk", text)
		}
	}
	if err := s.Done(); err != nil || len(s.Wrong) > 0 {
		t.Error(err, s.Wrong)
	}
	if !slices.Equal(heard, s.Events) {
		t.Errorf("announced was\n%s\non the disk is\n%s", strings.Join(heard, "\n"), strings.Join(s.Events, "\n"))
	}
}

// A run in whose middle the disk fills up goes on by itself once there is room.
func TestRunGoesOnWhenTheDiskHasRoomAgain(t *testing.T) {
	d := newSmallDisk(t)
	d.Stop()
	d.write("tools/sh.json", shellTool, 0o600)
	d.write("tools/tool.sh", "#!/bin/sh\ncat >/dev/null\necho "+
		"'{\"version\":\"0\",\"type\":\"log\",\"level\":\"info\",\"message\":\"waits\"}'\nread -r _ <go\n"+
		// more than what is left of a page
		"printf '{\"version\":\"0\",\"type\":\"done\",\"ok\":true,\"summary\":\"%08192d\"}\\n' 1\n", 0o700)
	if err := syscall.Mkfifo(filepath.Join(d.Dir, "go"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.Start()
	c, ctx, no := d.dial(), context.Background(), false
	events := d.events(protocol.SubscribeParams{})
	r, err := client.Call(ctx, c, protocol.Prompt, protocol.PromptParams{Text: "!sh.say", Wait: &no})
	if err != nil {
		t.Fatal(err)
	}
	await(t, events, func(ev protocol.Event) bool { _, ok := ev.(protocol.ToolUpdate); return ok })
	d.fill()
	fifo, err := os.OpenFile(filepath.Join(d.Dir, "go"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer fifo.Close()
	if _, err := fifo.WriteString("go\n"); err != nil {
		t.Fatal(err)
	}
	broke := await(t, events, func(ev protocol.Event) bool {
		_, ok := ev.(protocol.ErrorEvent)
		return ok
	}).(protocol.ErrorEvent)
	if broke.RunID != r.Accepted.RunID || broke.Code != protocol.SessionError ||
		!strings.Contains(broke.Cause, "no space left") {
		t.Errorf("got %+v, want a session_error of the run with its cause", broke)
	}
	if err := os.Remove(d.state("ballast")); err != nil {
		t.Fatal(err)
	}
	end := await(t, events, endOf(r.Accepted.RunID)).(protocol.AgentEnd)
	if end.StopReason != "completed" {
		t.Errorf("the run ended %+v", end)
	}
}
