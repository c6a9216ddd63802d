package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"noused/internal/tui/tuitest"
)

// farHost is a machine as nous sees it: a ssh in a PATH of its own, which leads to a daemon.
// That of a host that is down fails, as long as there is the file.
type farHost struct {
	t    *testing.T
	dir  string
	name string
}

// reachable has a nous that is started with env reach the daemons by the names of their hosts.
func reachable(t *testing.T, hosts map[string]*tuitest.Daemon) (env []string, at func(name string) farHost) {
	t.Helper()
	dir := t.TempDir()
	script := "#!/bin/sh\n" + `case "$*" in *--start*) start=--start ;; esac
[ ! -e ` + dir + `/"$1".down ] || { echo "no route to $1" >&2; exit 255; }
echo $$ >` + dir + `/"$1".pid
echo x >>` + dir + `/"$1".count
case "$1" in
`
	for name, d := range hosts {
		script += fmt.Sprintf("%s) NOUSED_SOCKET=%s ;;\n", name, d.Socket)
	}
	script += "esac\nexport NOUSED_SOCKET; exec nous proxy $start\n"
	if err := os.WriteFile(filepath.Join(dir, "ssh"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "NOUSED_SOCKET=" + filepath.Join(dir, "none")}, func(name string) farHost { return farHost{t, dir, name} }
}

// cut ends the connection that there is; while the host is down there is no other.
func (f farHost) cut(down bool) {
	f.t.Helper()
	if down {
		if err := os.WriteFile(filepath.Join(f.dir, f.name+".down"), nil, 0o600); err != nil {
			f.t.Fatal(err)
		}
	}
	text, err := os.ReadFile(filepath.Join(f.dir, f.name+".pid"))
	if err != nil {
		f.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		f.t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		f.t.Fatal(err)
	}
}

func (f farHost) up() {
	f.t.Helper()
	if err := os.Remove(filepath.Join(f.dir, f.name+".down")); err != nil {
		f.t.Fatal(err)
	}
}

// The screen of another machine's daemon says where it is. When the connection is lost it
// says so, keeps what is typed, and sends it when the connection is back.
func TestScreenOfAnotherMachineComesBack(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	env, at := reachable(t, map[string]*tuitest.Daemon{"box": d})
	s := startScreen(t, d, look{env: env, args: []string{"--host", "box"}})
	s.Wait("● box", "idle")
	s.say("said before")
	s.Wait("said before", "idle")
	at("box").cut(true)
	s.Wait("○ box reconnecting")
	s.say("said on the way")
	s.Type("being written")
	s.Wait("unsent said on the way", "> being written")
	at("box").up()
	s.Wait("● box", "idle", "> being written")
	s.WaitFor("the text, its answer, and nothing that waits", func(text string) bool {
		return strings.Count(text, "said on the way") == 2 && !strings.Contains(text, "unsent")
	})
	s.Press("ctrl+u")
	s.Press("ctrl+d")
	s.Wait(" --host box")
}
