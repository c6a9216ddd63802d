package lock

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"noused/internal/testenv"
)

// TestMain makes this binary a process that holds a lock until it is killed.
func TestMain(m *testing.M) {
	path := os.Getenv("LOCK_TEST_HOLD")
	if path == "" {
		os.Exit(testenv.M{M: m}.Run())
	}
	if _, err := Acquire(path); err != nil {
		panic(err)
	}
	_, _ = os.Stdout.WriteString("held\n")
	select {}
}

func TestAHeldLockSaysByWhom(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	l, err := Acquire(path)
	if err != nil {
		t.Fatal(err)
	}
	var held *HeldError
	if _, err := Acquire(path); !errors.As(err, &held) || held.PID != os.Getpid() || held.Path != path {
		t.Errorf("got %v, want it held by process %d", err, os.Getpid())
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v %v, want mode 0600", info.Mode(), err)
	}
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	again, err := Acquire(path)
	if err != nil {
		t.Fatalf("after its release: %v", err)
	}
	_ = again.Release()
}

func TestAKilledHolderHoldsNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	holder := exec.Command(exe)
	holder.Env = append(os.Environ(), "LOCK_TEST_HOLD="+path)
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	_, readErr := bufio.NewReader(out).ReadString('\n')
	var held *HeldError
	_, err = Acquire(path)
	_ = holder.Process.Kill()
	_ = holder.Wait()
	if readErr != nil {
		t.Fatalf("the holder ended: %v", readErr)
	}
	if !errors.As(err, &held) || held.PID != holder.Process.Pid {
		t.Errorf("got %v, want it held by process %d", err, holder.Process.Pid)
	}
	l, err := Acquire(path)
	if err != nil {
		t.Fatalf("after kill -9: %v", err)
	}
	_ = l.Release()
}

func TestAForeignFileIsNotWrittenTo(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "precious")
	if err := os.WriteFile(target, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "lock")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	if _, err := Acquire(link); err == nil {
		t.Error("a symbolic link was locked")
	}
	if text, err := os.ReadFile(target); err != nil || string(text) != "precious" {
		t.Errorf("got %q %v", text, err)
	}
	if _, err := Acquire(filepath.Join(dir, "missing", "lock")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want that the folder is missing", err)
	}
}

func TestAnUnsignedLockIsHeldAllTheSame(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	l, err := Acquire(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Release() }()
	if err := l.f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	_, err = Acquire(path)
	if err == nil || err.Error() != path+" is held by another process" {
		t.Errorf("got %v", err)
	}
}

// A process that is killed while it starts another leaves its lock to that one for a
// moment: the next holder waits for it, and not for one that is alive.
func TestALockThatTheDeadHaveLeft(t *testing.T) {
	defer func(was time.Duration) { leftTime = was }(leftTime)
	leftTime = time.Hour // however long the heir takes to end
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		pid  int
		free bool
	}{{dead.Process.Pid, true}, {os.Getpid(), false}, {0, false}} {
		path := filepath.Join(t.TempDir(), "lock")
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprint(f, c.pid); err != nil {
			t.Fatal(err)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
			t.Fatal(err)
		}
		heir := exec.Command("cat")
		heir.ExtraFiles = []*os.File{f}
		in, err := heir.StdinPipe()
		if err == nil {
			err = heir.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		if c.free {
			time.AfterFunc(3*lookTime, func() { _ = in.Close() })
		}
		l, err := Acquire(path)
		var held *HeldError
		switch {
		case c.free && err != nil:
			t.Errorf("left by the dead: %v", err)
		case c.free:
			_ = l.Release()
		case !errors.As(err, &held) || held.PID != c.pid:
			t.Errorf("held by %d: got %v", c.pid, err)
		}
		_ = in.Close()
		_ = heir.Wait()
	}
}
