package proc

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/zap/zaptest"
	"golang.org/x/sys/unix"
)

// Commands without a folder start in an empty one, whatever was left there, and not
// where somebody else has put a link.
func TestCommandsWithoutAFolderStartInAnEmptyOne(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := NewSupervisor("", zaptest.NewLogger(t))
	defer s.Close()
	starts := func() (said string, err error) {
		p, err := s.Start(t.Context(), Command{
			Name: "where", Path: "/bin/sh",
			Args: []string{"sh", "-c", `pwd; ls -A; mkdir left; echo >left/json.py`}, Env: os.Environ(),
		})
		if err != nil {
			return "", err
		}
		text, _ := io.ReadAll(p)
		p.Wait()
		return strings.TrimSpace(string(text)), nil
	}
	empty := filepath.Join(top, "run", "noused", "empty")
	s.StartIn(empty)
	for what, spoil := range map[string]func() error{
		"nothing": func() error { return nil }, "again": func() error { return nil },
		"something was left": func() error {
			if err := os.Chmod(empty, 0o700); err != nil {
				return err
			}
			locked := filepath.Join(empty, "node_modules")
			if err := os.MkdirAll(filepath.Join(locked, ".bin"), 0o700); err != nil {
				return err
			}
			return os.Chmod(locked, 0o500)
		},
		"it was removed": func() error { return os.RemoveAll(empty) },
	} {
		if said, err := starts(); err != nil || said != empty {
			t.Fatalf("before %s: it starts in %q, %v; want %s, and nothing there", what, said, err, empty)
		}
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if said, err := starts(); err != nil || said != empty {
			t.Errorf("%s: it starts in %q, %v; want %s, and nothing there", what, said, err, empty)
		}
		if info, err := os.Stat(empty); err != nil || info.Mode().Perm() != 0o500 {
			t.Errorf("%s: got mode %v, %v", what, info.Mode(), err)
		}
	}
	if err := os.Rename(empty, empty+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(top, empty); err != nil {
		t.Fatal(err)
	}
	if said, err := starts(); err == nil || !strings.Contains(err.Error(), empty) {
		t.Errorf("through a link it starts in %q, %v", said, err)
	}
	s.StartIn("")
	if os.Geteuid() == 0 {
		return // it would leave something in /
	}
	if said, err := starts(); err != nil || !strings.HasPrefix(said, "/\n") {
		t.Errorf("without such a folder it starts in %q, %v", said, err)
	}
}

// A program in a sandbox starts in the empty folder, too, wherever that is: in /run, which
// the sandbox covers, or among what is hidden.
func TestASandboxedProgramStartsInTheEmptyFolder(t *testing.T) {
	inBoth(t, func(t *testing.T, set func(*jail) *jail, _ bool) {
		j := set(imprison(t))
		state := filepath.Join(filepath.Dir(j.work), "state")
		j.Hide(Hidden{Paths: []string{state}})
		view, err := j.Sandboxed(Sandbox{Workdir: j.work})
		check(t, err)
		folders := []string{filepath.Join(state, "empty")}
		if runtime := "/run/user/" + strconv.Itoa(os.Getuid()); os.Geteuid() == 0 || unix.Access(runtime, unix.W_OK) == nil {
			check(t, os.MkdirAll(runtime, 0o700))
			top, err := os.MkdirTemp(runtime, "noused-test-")
			check(t, err)
			defer os.RemoveAll(top)
			folders = append(folders, filepath.Join(top, "empty"))
		}
		for _, empty := range folders {
			j.StartIn(empty)
			p, err := view.Start(t.Context(), Command{
				Name: "where", Path: "/bin/sh", Args: []string{"sh", "-c", `pwd -P; ls -A; echo x 2>/dev/null >left; ls ..`},
				MaxLine: 1 << 10, Env: os.Environ(),
			})
			if err != nil {
				t.Errorf("in %s: %v", empty, err)
				continue
			}
			text, _ := io.ReadAll(p)
			p.Wait()
			if got := strings.TrimSpace(string(text)); got != empty+"\nempty" {
				t.Errorf("it starts in %q, want %s, and nothing there", got, empty)
			}
		}
	})
}
