package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"noused/internal/client"
	"noused/internal/protocol"
	"noused/internal/protocol/protocoltest"
	"noused/internal/session/sessiontest"
	"noused/internal/testenv"
)

// volume is a file system in a file, which has the daemon's state.
type volume struct{ image, at, kind string }

// volumes are made so. Their images are as small as they may be.
var volumes = map[string][]string{
	"ext4":  {"64M", "mkfs.ext4", "-q"},
	"xfs":   {"300M", "mkfs.xfs", "-q"},
	"btrfs": {"128M", "mkfs.btrfs", "-q"},
}

func newVolume(t *testing.T, kind, at string) *volume {
	t.Helper()
	v, how := &volume{filepath.Join(t.TempDir(), "image"), at, kind}, volumes[kind]
	if _, err := exec.LookPath(how[1]); err != nil {
		t.Skipf("%s is not tried: %v", kind, err)
	}
	for _, args := range [][]string{{"truncate", "-s", how[0], v.image}, append(how[1:], v.image), {"mkdir", at}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	if err := v.mount(); err != nil {
		t.Skipf("%s is not tried: %v", kind, err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	err := v.cut()
	if errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EOPNOTSUPP) {
		t.Skipf("no power is cut: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	v.again(t)
	if err := os.Chmod(at, 0o700); err != nil {
		t.Fatal(err)
	}
	return v
}

func (v *volume) mount() error {
	if out, err := exec.Command("mount", "-t", v.kind, "-o", "loop", v.image, v.at).CombinedOutput(); err != nil {
		return fmt.Errorf("it cannot be mounted: %w: %s", err, out)
	}
	return nil
}

// goingDown is FS_IOC_SHUTDOWN, and noFlush how: what is not on the disk, the file system's own journal included, does
// not come there any more.
const (
	goingDown = 0x8004587d
	noFlush   = 2
)

// cut has nothing more written to the disk.
func (v *volume) cut() error {
	dir, err := os.Open(v.at)
	if err != nil {
		return err
	}
	defer dir.Close()
	how := uint32(noFlush)
	if _, _, no := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), goingDown, uintptr(unsafe.Pointer(&how))); no != 0 {
		return fmt.Errorf("%s cannot be shut down: %w", v.kind, no)
	}
	return nil
}

// again has what the disk has, as the file system makes it whole, once no process has the former one any more.
func (v *volume) again(t testing.TB) {
	t.Helper()
	testenv.Until(t, "the file system is let go", func() bool {
		if err := unix.Unmount(v.at, 0); errors.Is(err, unix.EBUSY) {
			return false
		}
		used, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
		return !slices.ContainsFunc(used, func(path string) bool {
			of, _ := os.ReadFile(path)
			return strings.TrimSpace(string(of)) == v.image
		})
	})
	if err := v.mount(); err != nil {
		t.Fatal(err)
	}
}

// What a client was told is still so after a power cut, on real file systems: what was not synced by then is lost, as
// the file system has it (wire-v1 §7).
func TestPowerCutsOnRealFileSystemsAsRoot(t *testing.T) {
	const inside = "NOUSED_TEST_MOUNTS"
	if os.Getenv(inside) == "" {
		testenv.AsRoot(t)
		cmd := exec.Command("unshare", "--mount", "--fork", "--kill-child", os.Args[0], "-test.run", "^"+t.Name()+"$",
			"-test.v")
		cmd.Env = append(os.Environ(), inside+"=yes")
		out, err := cmd.CombinedOutput()
		switch t.Logf("%s", out); {
		case bytes.HasPrefix(out, []byte("unshare: ")):
			t.Skip("no mount namespace can be had here")
		case err != nil:
			t.Errorf("in a mount namespace of its own: %v", err)
		case !bytes.Contains(out, []byte("--- PASS: "+t.Name()+"/")):
			t.Skip("no file system can be tried here")
		}
		return
	}
	for kind := range volumes {
		t.Run(kind, func(t *testing.T) {
			tr := &trial{
				daemon: unstarted(t, "noused"), seed: rand.Uint64(), book: newNotebook(), nesting: protocoltest.NewChecker(),
				stories: map[string]*sessiontest.Story{},
			}
			tr.rng, tr.disk = rand.New(rand.NewPCG(tr.seed, 2)), newVolume(t, kind, filepath.Join(tr.Dir, "state"))
			tr.begin()
			for range 10 {
				tr.live(true)
				tr.restart()
			}
			tr.end()
			t.Log(tr.tally())
		})
	}
}

// cut has the power fail: the disk keeps what was synced, and the daemon is gone. Nobody hears what it says from the
// beginning of the cut on: a sync that is under way while ext4 or xfs is shut down may be told as done, and is lost.
func (tr *trial) cut() {
	tr.book.note(func() { tr.book.dark = true })
	err := tr.disk.cut()
	tr.Kill()
	if err != nil {
		tr.t.Fatal(err)
	}
	tr.disk.again(tr.t)
}

// lose takes in that the power has failed: what journals lack that nobody was promised. A session that nothing had
// happened in may be gone.
func (tr *trial) lose() {
	for id, s := range tr.stories {
		if !s.Made {
			delete(tr.stories, id)
		}
	}
	for _, u := range tr.guests {
		if u.owner && tr.stories[u.session] == nil {
			tr.bad("session %s is gone, and something was said in it", u.session)
		}
	}
	tr.report()
	for id, heard := range tr.heard {
		for _, e := range heard {
			if s := tr.stories[id]; strings.HasPrefix(e, "agent_end") && (s == nil || !slices.Contains(s.Events, e)) {
				tr.bad("session %s: the power cut has taken what was announced: %s", id, e)
			}
		}
	}
	tr.heard, tr.from, tr.nesting = map[string][]string{}, map[string]int{}, protocoltest.NewChecker()
	tr.book.forget(tr.stories)
	for _, u := range tr.guests {
		if tr.stories[u.session] == nil {
			u.session = tr.book.order[0]
		}
	}
}

// forget forgets the sessions that are gone. One that a text was accepted in is missed all the same.
func (n *notebook) forget(left map[string]*sessiontest.Story) {
	n.dark = false
	gone := func(id string) bool { return left[id] == nil }
	maps.DeleteFunc(n.made, func(id, _ string) bool { return gone(id) })
	n.order = slices.DeleteFunc(n.order, gone)
	if left[n.active.told] == nil {
		n.active.asked = append(n.active.asked, n.order...)
	}
}

// sayIn has something said in a session, so that no power cut takes it.
func (tr *trial) sayIn(c *client.Client, id string) {
	yes := true
	if _, err := client.Call(context.Background(), c, protocol.Prompt, protocol.PromptParams{
		Scope: protocol.Scope{SessionID: id}, Text: "in " + id, Wait: &yes,
	}); err != nil {
		tr.t.Fatal(err)
	}
}
