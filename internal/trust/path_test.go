package trust

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// plant makes a program.
func plant(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestWhatToolsCanWriteToIsNoPlaceForPrograms(t *testing.T) {
	root, home := t.TempDir(), t.TempDir()
	t.Setenv("HOME", home)
	project, own := filepath.Join(root, "project"), filepath.Join(root, "own")
	for _, path := range []string{
		project + "/.venv/bin/git", project + "/.venv/bin/uvx", own + "/git",
		home + "/.nvm/bin/node",
	} {
		plant(t, path)
	}
	for link, to := range map[string]string{
		root + "/named": project, root + "/into": own, project + "/out": own,
	} {
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
	}
	venv := project + "/.venv/bin"
	path := strings.Join([]string{
		venv, root + "/named/.venv/bin", project + "/out", "node_modules/.bin", "", root + "/into", home + "/.nvm/bin",
	}, ":")
	if got, want := Path(path), strings.Join([]string{
		venv, root + "/named/.venv/bin", project + "/out", root + "/into", home + "/.nvm/bin",
	}, ":"); got != want {
		t.Errorf("before anything can be written: got %s, want %s", got, want)
	}
	Writable(root+"/named", home, "/")
	if got, want := Path(path), root+"/into:"+home+"/.nvm/bin"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := Environ([]string{"A=b", "PATH=" + venv})[1], "PATH="+usualPath; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, err := LookPath("git", path); err != nil || got != root+"/into/git" {
		t.Errorf("got %s, %v, want the user's own", got, err)
	}
	if got, err := LookPath("uvx", path); !errors.As(err, new(*ProgramError)) || !strings.Contains(err.Error(), venv) {
		t.Errorf("got %s, %v, want an error that says where it is", got, err)
	}
	if _, err := LookPath("nowhere", path); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("got %v, want not found", err)
	}
	if got, err := LookPath(venv+"/git", path); err != nil || got != venv+"/git" {
		t.Errorf("a program by its path: got %s, %v", got, err)
	}
}
