package trust

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
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

// What the user has linked into a folder of programs, a session can have made since: npm link
// does that with a project's.
func TestALinkToWhatToolsCanWriteIsNoProgram(t *testing.T) {
	root := t.TempDir()
	project, bin, own := root+"/project", root+"/bin", root+"/own"
	plant(t, project+"/dist/linked")
	plant(t, bin+"/other")
	plant(t, own+"/linked")
	for link, to := range map[string]string{bin + "/linked": project + "/dist/linked", bin + "/mine": bin + "/other"} {
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := LookPath("linked", bin); err != nil || got != bin+"/linked" {
		t.Fatalf("before anything can be written: got %s, %v", got, err)
	}
	Writable(project)
	got, err := LookPath("linked", bin)
	if foreign := (*ProgramError)(nil); !errors.As(err, &foreign) || foreign.Path != bin+"/linked" ||
		foreign.Folder != project || !strings.Contains(foreign.Reason, "is in "+project+",") ||
		!strings.Contains(foreign.Reason, "and PATH set in its env") {
		t.Errorf("got %s, %v, want an error that names the link, the folder and what helps", got, err)
	}
	if got, err := LookPath("linked", bin+":"+own); err != nil || got != own+"/linked" {
		t.Errorf("got %s, %v, want the next one", got, err)
	}
	if got, err := LookPath("mine", bin); err != nil || got != bin+"/mine" {
		t.Errorf("a link to a program of the user's: got %s, %v", got, err)
	}
	if got, err := LookPath(bin+"/linked", bin); err != nil || got != bin+"/linked" {
		t.Errorf("by its path: got %s, %v", got, err)
	}
}

// A folder at the end of PATH may be on a server that answers no more.
func TestNoMoreOfAPathIsLookedAtThanNeeded(t *testing.T) {
	root := t.TempDir()
	near, far, session := root+"/near", root+"/far", root+"/session"
	plant(t, near+"/mine")
	asked := 0
	readlink = func(path string) (string, error) {
		if below(far, path) {
			asked++
		}
		return os.Readlink(path)
	}
	t.Cleanup(func() { readlink = os.Readlink })
	path := near + ":" + far
	if got, err := LookPath("mine", path); err != nil || got != near+"/mine" || asked != 0 {
		t.Errorf("got %s, %v, and %d questions of what is behind it", got, err, asked)
	}
	if Path(path); asked == 0 {
		t.Fatal("an entry was not looked at")
	}
	once := asked
	writable.until = time.Now().Add(time.Hour) // however slow this machine is
	if got := Path(path); got != path || asked != once {
		t.Errorf("got %s, asked %d times and then %d", got, once, asked)
	}
	if err := os.Symlink(session, far); err != nil {
		t.Fatal(err)
	}
	if Writable(session); Path(path) != near {
		t.Errorf("got %s, want what the new folder leaves", Path(path))
	}
}
