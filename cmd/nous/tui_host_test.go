package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"noused/internal/daemontest"
	"noused/internal/protocol"
)

// farHost is a machine as nous sees it: a ssh in a PATH of its own, which leads to a daemon.
// That of a host that is down fails, as long as there is the file.
type farHost struct {
	t    *testing.T
	dir  string
	name string
}

// reachable has a nous that is started with env reach the daemons by the names of their hosts.
func reachable(t *testing.T, hosts map[string]*daemontest.Daemon) (env []string, at func(name string) farHost) {
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
	return []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "NOUSED_SOCKET=" + filepath.Join(dir, "none")},
		func(name string) farHost {
			return farHost{t, dir, name}
		}
}

// cut ends the connection; while the host is down there is no other.
func (f farHost) cut(down bool) {
	f.t.Helper()
	if down {
		f.down()
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

// down has the host refuse connections.
func (f farHost) down() {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, f.name+".down"), nil, 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// dialled is how many connections there have been.
func (f farHost) dialled() int {
	f.t.Helper()
	text, err := os.ReadFile(filepath.Join(f.dir, f.name+".count"))
	if err != nil {
		f.t.Fatal(err)
	}
	return strings.Count(string(text), "x")
}

func (f farHost) up() {
	f.t.Helper()
	if err := os.Remove(filepath.Join(f.dir, f.name+".down")); err != nil {
		f.t.Fatal(err)
	}
}

// answered waits for what the offline model says back: until then a text may not be sent.
func (s *screen) answered(said string) {
	s.t.Helper()
	s.WaitFor("the answer to "+said, func(text string) bool {
		return strings.Count(text, said) == 2 && strings.Contains(text, "idle")
	})
}

// The screen of another machine's daemon says where it is. When the connection is lost it
// says so, keeps what is typed, and sends it when the connection is back.
func TestScreenOfAnotherMachineComesBack(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	env, at := reachable(t, map[string]*daemontest.Daemon{"box": d})
	s := startScreen(t, d, look{env: env, args: []string{"--host", "box"}})
	s.Wait("● box", "idle")
	s.say("said before")
	s.answered("said before")
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

// askingSSH is a ssh that asks for a code on the terminal, if it has one, and leads to a daemon then.
func askingSSH(t *testing.T, d *daemontest.Daemon) (env []string, dir string) {
	t.Helper()
	dir = t.TempDir()
	script := `#!/bin/sh
case "$*" in *--start*) start=--start ;; esac
echo $$ >` + dir + `/box.pid
if ( : </dev/tty ) 2>/dev/null; then
	printf 'A code is on its way to your \033[2Jtelephone.\r\n' >&2
	printf 'code: ' >/dev/tty
	read code </dev/tty
	[ "$code" = 123 ] || { echo 'that was not the code' >&2; exit 255; }
	echo "hello, $code" >&2
else
	echo "no terminal" >>` + dir + `/again
fi
NOUSED_SOCKET=` + d.Socket + ` exec nous proxy $start
`
	if err := os.WriteFile(filepath.Join(dir, "ssh"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "NOUSED_SOCKET=" + filepath.Join(dir, "none")}, dir
}

// ssh asks on the terminal before the screen appears, and what it says then is shown. When the
// connection is lost, ssh has no terminal any more.
func TestSSHAsksBeforeTheScreen(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	env, dir := askingSSH(t, d)
	s := startScreen(t, d, look{env: env, args: []string{"--host", "box"}})
	s.Wait("A code is on its way to your telephone.", "code:")
	s.Type("123\r")
	s.Wait("● box", "idle")
	if !strings.Contains(s.Output(), "hello, 123") || strings.Contains(s.Output(), "your \033[2Jtele") {
		t.Errorf("got the output %q", s.Output())
	}
	farHost{t, dir, "box"}.cut(false)
	s.WaitFor("another connection", func(text string) bool {
		_, err := os.Stat(filepath.Join(dir, "again"))
		return err == nil && strings.Contains(text, "● box")
	})
	s.say("said again")
	s.answered("said again")
	s.Press("ctrl+d")
	if status := s.Exit(); status != exitOK {
		t.Errorf("got status %d", status)
	}
}

// A first Ctrl-C while ssh asks ends nous, whatever the command, and ssh before it.
func TestCtrlCWhileSSHAsks(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	for _, args := range [][]string{
		{},
		{"prompt", "hello"},
		{"prompt", "--wait", "--json", "hello"},
		{"ping"},
		{"events"},
		{"doctor"},
	} {
		env, dir := askingSSH(t, d)
		s := startScreen(t, d, look{env: env, args: append([]string{"--host", "box"}, args...)})
		s.Wait("code:")
		s.Press("ctrl+c")
		if status := s.Exit(); status != exitLeft {
			t.Errorf("%q: got status %d\n%s", args, status, s.Screen())
		}
		pid, err := os.ReadFile(filepath.Join(dir, "box.pid"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat("/proc/" + strings.TrimSpace(string(pid))); err == nil {
			t.Errorf("%q: ssh is left", args)
		}
	}
}

// What ssh said when it has asked in vain is said once.
func TestAWrongCode(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	env, _ := askingSSH(t, d)
	s := startScreen(t, d, look{env: env, args: []string{"--host", "box", "ping"}})
	s.Wait("code:")
	s.Type("999\r")
	if status := s.Exit(); status != exitNoDaemon || strings.Count(s.Screen(), "that was not the code") != 1 ||
		!strings.Contains(s.Screen(), "try: ssh box") {
		t.Errorf("got status %d\n%s", status, s.Screen())
	}
}

// The screen of several hosts is that of the first one that can be reached. Its list has the
// sessions of all, and leads to them, over one connection a host. One that is down has a
// line, and comes back by itself.
func TestScreenOfSeveralHosts(t *testing.T) {
	t.Parallel()
	box, gpu := startDaemon(t, ""), startDaemon(t, "")
	id := askDaemon(t, gpu.Socket, protocol.NewSession, protocol.NewSessionParams{Title: "Train it", Activate: new(bool)}).
		SessionID
	askDaemon(t, gpu.Socket, protocol.Prompt, protocol.PromptParams{
		Scope: protocol.Scope{SessionID: id},
		Text:  "words for it",
	})
	env, at := reachable(t, map[string]*daemontest.Daemon{"box": box, "gpu": gpu})
	at("none").down()
	s := startScreen(t, box, look{env: env, args: []string{"--host", "none", "--host", "box", "--host", "gpu"}})
	s.Wait("● box", "idle")
	s.Press("ctrl+r")
	s.Wait("Train it", "none", "away", "ssh has failed: no rou")
	s.Type("train")
	s.Press("enter")
	s.Wait("● gpu", "words for it", "idle")
	s.say("said to the other")
	s.WaitFor("the answer", func(text string) bool { return strings.Count(text, "(1 model call)") == 2 })
	s.WaitGone("> said to the other")
	if b, g := at("box").dialled(), at("gpu").dialled(); b != 1 || g != 1 {
		t.Errorf("got %d connections to box and %d to gpu, want one to each", b, g)
	}
	at("gpu").cut(true)
	s.Wait("○ gpu reconnecting")
	s.Press("ctrl+r")
	away := func(n int) func(string) bool {
		return func(text string) bool { return strings.Count(text, "ssh has failed: no rou") == n }
	}
	s.WaitFor("gpu among those that are away", away(2))
	at("gpu").up()
	s.WaitFor("gpu to be back", away(1))
	s.Press("esc")
	s.WaitGone("Sessions")
	s.Press("ctrl+d")
	s.Wait("nous --session "+id, " --host gpu")
}
