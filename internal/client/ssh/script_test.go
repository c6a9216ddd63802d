package ssh_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"noused/internal/client"
	"noused/internal/client/follow"
	"noused/internal/client/ssh"
	"noused/internal/daemontest"
	"noused/internal/protocol"
)

// scripted puts a shell script in the place of ssh. In it, far runs what the far shell
// was to run.
func scripted(t testing.TB, script string) {
	t.Helper()
	bin := t.TempDir()
	text := "#!/bin/sh\nfar() { for command; do :; done; eval \"$command\"; }\n" + script + "\n"
	if err := os.WriteFile(filepath.Join(bin, "ssh"), []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
}

const hello = `echo '{"proxy":1,"version":"v9","socket":"/far/s","epoch":"ep-1","mux":1}'`

// session is a far end that has said its hello, and has begun a session.
const session = hello + `; read -r line; echo '{"mux":1}'`

// What goes wrong before there is a connection is said in words that help.
func TestWhatGoesWrongIsSaid(t *testing.T) {
	for _, c := range []struct {
		name, script string
		o            ssh.Options
		want         []string // of the error, what was said, and what to do
		no           bool     // it is that there is no daemon
	}{
		{
			name: "refused", script: `echo 'me@box: Permission denied (publickey).' >&2; exit 255`,
			want: []string{"ssh has failed", "Permission denied (publickey)", "ssh box"},
		},
		{
			name:   "another key",
			script: `printf '@@@@\n@  WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!  @\n@@@@\r\nSomeone could be\r\nSHA256:abc\nOffending RSA key in /k:1\n  remove with:\n  ssh-keygen -R box\n' >&2; exit 255`, want: []string{"the key of the host", "WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!; SHA256:abc; Offending RSA key in /k:1\n", "it has a new key: ssh-keygen -R box"},
		},
		{name: "escapes", script: `printf 'go \033[31maway\033[0m\n' >&2; exit 255`, want: []string{"go away"}},
		{
			name: "no nous", script: `echo 'sh: 1: nous: not found' >&2; exit 127`,
			want: []string{"there is no nous", "not found", "[hosts.box]"},
		},
		{
			name: "a shell that says it with another status", script: `echo 'nous: Command not found.' >&2; exit 1`,
			want: []string{"there is no nous", "install"},
		},
		{name: "named", o: ssh.Options{Nous: "/opt/nous"}, script: `exit 126`, want: []string{"there is no /opt/nous"}},
		{
			name: "older", script: `echo 'nous: unknown command "proxy"' >&2; exit 2`,
			want: []string{"too old", "update noused there"},
		},
		{name: "newer", script: `echo '{"proxy":2,"version":"v99"}'; cat`, want: []string{"v99", "update"}},
		{
			name:   "no daemon",
			script: `echo '{"ok":false,"error":{"code":"no_daemon","message":"no daemon at /s"},"socket":"/s"}'; exit 3`,
			want:   []string{"no daemon at box:/s"}, no: true,
		},
		{
			name:   "not started",
			script: `echo 'motd'; echo '{"ok":false,"error":{"code":"not_started","message":"it did not start: no space left"}}'; exit 3`, want: []string{"box: it did not start: no space left"},
		},
		{name: "an end without a word", script: `exit 0`, want: []string{"nous proxy has ended with status 0"}},
		{
			name: "an end in the middle of the hello", script: `printf '{"proxy":1,"ver'; exit 1`,
			want: []string{"ended with status 1"},
		},
		{name: "killed", script: `kill -9 $$`, want: []string{"killed"}},
		{name: "noise without an end", script: `exec yes 'welcome to box'`, want: []string{"64 KiB", "startup files"}},
		{name: "noise without a line", script: `exec tr '\0' x </dev/zero`, want: []string{"64 KiB"}},
		{
			name: "a hang", o: ssh.Options{Within: 200 * time.Millisecond}, script: `echo 'tunnel is up' >&2; exec sleep 1000`,
			want: []string{"no answer in time"},
		},
		{name: "a session that does not begin", o: ssh.Options{Within: 200 * time.Millisecond}, script: hello +
			`; cat >/dev/null`, want: []string{"no answer in time"}},
		{
			name: "a daemon that goes before the session", script: hello +
				`; echo '{"ok":false,"error":{"code":"daemon_gone","message":"it is gone"}}'; exit 3`,
			want: []string{"box: it is gone"},
		},
		{
			name: "no name", o: ssh.Options{Host: "-oProxyCommand=false"}, script: `exit 1`,
			want: []string{"is no name of a host"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			scripted(t, c.script)
			if c.o.Host == "" {
				c.o.Host = "box"
			}
			l := link(t, c.o)
			_, err := l.Commands(patient(t))
			var (
				e    *ssh.Error
				gone *client.NoDaemonError
			)
			if errors.As(err, &gone) != c.no || err == nil {
				t.Fatalf("got %v", err)
			}
			text := err.Error()
			if errors.As(err, &e) {
				text += "\n" + e.Next
				if e.Host != c.o.Host || errors.Is(err, client.ErrLost) {
					t.Errorf("got %+v", e)
				}
			} else if !c.no {
				t.Errorf("got %T", err)
			}
			for _, want := range c.want {
				if !strings.Contains(text, want) {
					t.Errorf("got %q, want %q in it", text, want)
				}
			}
			if strings.Contains(text, "\033") {
				t.Errorf("%q has an escape sequence", text)
			}
			_ = l.Close()
			if n := children(t); n != 0 {
				t.Errorf("%d ssh processes are left", n)
			}
		})
	}
}

func TestNoSSH(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := link(t, ssh.Options{Host: "box"}).Events(patient(t))
	if err == nil || !strings.Contains(err.Error(), "there is no ssh in PATH") {
		t.Errorf("got %v", err)
	}
}

// proxied leads to a daemon of this machine by a scripted ssh.
func proxied(t testing.TB, before string) (*daemontest.Daemon, ssh.Options) {
	t.Helper()
	d := daemontest.Start(t, noused, "")
	scripted(t, before+"\nfar \"$@\"")
	return d, ssh.Options{Host: "box", Nous: nous, Socket: d.Socket}
}

// Banners and what shells say stand before the hello, even on its line.
func TestBannersArePassedOver(t *testing.T) {
	_,
		o := proxied(t,
		`echo 'Authorised use only' >&2; echo; echo '{"motd":true}'; head -c 60000 /dev/zero | tr '\0' '#'; echo; printf 'last login: today '`)
	l := link(t, o)
	ctx := patient(t)
	if _, err := client.Call(ctx, commands(t, ctx, l), protocol.Ping, protocol.PingParams{}); err != nil {
		t.Error(err)
	}
}

// The command line has the user's options first: ssh goes by the first it is given.
func TestCommandLine(t *testing.T) {
	out := filepath.Join(t.TempDir(), "argv")
	scripted(t, `printf '%s\n' "$@" >>'`+out+`'; `+session+`; cat >/dev/null`)
	argv := func(o ssh.Options) string {
		t.Helper()
		if err := os.RemoveAll(out); err != nil {
			t.Fatal(err)
		}
		l := link(t, o)
		if h, err := l.Hello(patient(t)); err != nil || h.Version != "v9" || h.Socket != "/far/s" || h.Epoch != "ep-1" {
			t.Fatal(h, err)
		}
		text, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", " ")
	}
	keep := " -T -o ServerAliveInterval=15 -o ServerAliveCountMax=3 -o ConnectTimeout=15"
	for _, c := range []struct {
		o    ssh.Options
		want string
	}{
		{ssh.Options{Host: "me@box"}, "me@box" + keep + " -o BatchMode=yes -- nous proxy"},
		{ssh.Options{Host: "box", Ask: true, Start: true}, "box" + keep + " -- nous proxy --start"},
		{
			ssh.Options{
				Host: "b", SSH: []string{"-o", "ServerAliveInterval=60", "-p", "22", "me@box"},
				Nous: "/opt/my nous/it's",
			},
			"-o ServerAliveInterval=60 -p 22 me@box" + keep + ` -o BatchMode=yes -- '/opt/my nous/it'\''s' proxy`,
		},
		{ssh.Options{Host: "box", Nous: "~/bin/nous", Socket: "/run/a$b"}, "box" + keep +
			" -o BatchMode=yes -- ~/bin/nous proxy --socket '/run/a$b'"},
	} {
		if got := argv(c.o); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

// A path is one word, and itself, for every shell that a host may have.
func TestPathsForEveryShell(t *testing.T) {
	for _, shell := range []string{"sh", "bash", "dash", "zsh", "fish"} {
		t.Run(shell, func(t *testing.T) {
			if _, err := lookPath(shell); err != nil {
				t.Skip("this machine has no", shell)
			}
			dir := filepath.Join(t.TempDir(), `a 'b' \c "d" $e;*`)
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "nous")
			if err := os.WriteFile(path, []byte("#!/bin/sh\n"+session+"\ncat >/dev/null\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			scripted(t, `for command; do :; done; exec `+shell+` -c "$command"`)
			if _, err := link(t, ssh.Options{Host: "box", Nous: path}).Hello(patient(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// The first connection may ask and start; those after it may not.
func TestOnlyTheFirstConnectionAsks(t *testing.T) {
	dir := t.TempDir()
	scripted(t, `printf '%s\n' "$*" >>'`+dir+`/argv'; `+session+`; head -c 1 >/dev/null; exit 255`)
	l := link(t, ssh.Options{Host: "box", Ask: true, Start: true})
	ctx := patient(t)
	for range 2 {
		conn, err := l.Commands(ctx)
		if err != nil {
			t.Fatal(err)
		}
		c := client.New(conn)
		_, err = client.Call(ctx, c, protocol.Ping, protocol.PingParams{})
		if !errors.Is(err, client.ErrLost) {
			t.Fatalf("got %v", err)
		}
		_ = c.Close()
	}
	text, err := os.ReadFile(filepath.Join(dir, "argv"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) != 2 || strings.Contains(lines[0], "BatchMode") || !strings.Contains(lines[0], "--start") ||
		!strings.Contains(lines[1], "BatchMode=yes") || strings.Contains(lines[1], "--start") {
		t.Errorf("got %q", lines)
	}
}

// An ssh that dies ends every connection with what it said; the next call connects anew.
func TestTheDeathOfSSH(t *testing.T) {
	dir := t.TempDir()
	fifo(t, filepath.Join(dir, "die"))
	_, o := proxied(t, `if mkdir '`+dir+`/once' 2>/dev/null; then
exec 3<&0; far "$@" <&3 & read -r line <'`+dir+`/die'; echo 'Connection to box closed by remote host.' >&2; kill $!; exit 255; fi`)
	l := link(t, o)
	ctx := patient(t)
	c, idle := commands(t, ctx, l), commands(t, ctx, l)
	events := subscribe(t, ctx, l, protocol.SubscribeParams{})
	if _, err := client.Call(ctx, c, protocol.Ping, protocol.PingParams{}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "die"), []byte("\n"), 0); err != nil {
		t.Fatal(err)
	}
	if _, _, err := events.Next(ctx); !errors.Is(err, client.ErrLost) ||
		!strings.Contains(err.Error(), "closed by remote host") {
		t.Errorf("got %v", err)
	}
	<-idle.Gone()
	<-c.Gone()
	if _, err := client.Call(ctx, commands(t, ctx, l), protocol.Ping, protocol.PingParams{}); err != nil {
		t.Error(err)
	}
}

// Many that want a connection at once get one ssh.
func TestOneSSHForAll(t *testing.T) {
	dir := t.TempDir()
	_, o := proxied(t, `echo x >>'`+dir+`/dials'`)
	l := link(t, o)
	ctx := patient(t)
	got := make(chan error)
	for range 20 {
		go func() {
			older, err := follow.Older(ctx, l, patience)
			if older {
				err = errors.New("it is no older core")
			}
			got <- err
		}()
	}
	for range 20 {
		if err := <-got; err != nil {
			t.Error(err)
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, "dials")); err != nil || string(text) != "x\n" {
		t.Errorf("got %q, %v", text, err)
	}
}

// Who does not wait any longer leaves ssh connecting, for the next one.
func TestACallersTimeIsItsOwn(t *testing.T) {
	dir := t.TempDir()
	fifo(t, filepath.Join(dir, "go"))
	_, o := proxied(t, `echo x >>'`+dir+`/dials'; read -r line <'`+dir+`/go'`)
	l := link(t, o)
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := l.Commands(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte("\n"), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Commands(patient(t)); err != nil {
		t.Error(err)
	}
	if text, _ := os.ReadFile(filepath.Join(dir, "dials")); string(text) != "x\n" {
		t.Errorf("got %q dials, want one", text)
	}
}

// To close a connection ends what the daemon ties to its end; the others go on.
func TestAConnectionsEndIsToldThere(t *testing.T) {
	d, o := proxied(t, "")
	d.Fifo("began")
	d.Fifo("never")
	d.Tool("hold", `read -r request; echo $$ >'`+d.Dir+`/began'; read -r line <'`+d.Dir+`/never'`)
	l := link(t, o)
	ctx := patient(t)
	other := commands(t, ctx, l)
	if _, err := client.Call(ctx, other, protocol.ReloadTools, protocol.ReloadToolsParams{}); err != nil {
		t.Fatal(err)
	}
	conn, err := l.Commands(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c := client.New(conn)
	answered := make(chan error, 1)
	go func() {
		_, err := client.Call(ctx, c, protocol.ExtensionCommand, protocol.ExtensionCommandParams{Name: "hold.run"})
		answered <- err
	}()
	pid, err := os.ReadFile(filepath.Join(d.Dir, "began"))
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	if err := <-answered; !errors.Is(err, client.ErrClosed) {
		t.Errorf("got %v", err)
	}
	awaitDeath(t, ctx, strings.TrimSpace(string(pid)))
	if _, err := client.Call(ctx, other, protocol.Ping, protocol.PingParams{}); err != nil {
		t.Error(err)
	}
}

// A daemon that goes away is told as that, and one that is back is found.
func TestTheDaemonGoesAndComes(t *testing.T) {
	d, o := proxied(t, "")
	l := link(t, o)
	ctx := patient(t)
	c := commands(t, ctx, l)
	if _, err := client.Call(ctx, c, protocol.Ping, protocol.PingParams{}); err != nil {
		t.Fatal(err)
	}
	events, err := l.Events(ctx)
	if err != nil {
		t.Fatal(err)
	}
	d.Stop()
	<-c.Gone() // the daemon may have hung up before it went
	if _, err := client.Call(ctx, c, protocol.Ping, protocol.PingParams{}); !errors.Is(err, client.ErrLost) {
		t.Errorf("got %v", err)
	}
	_, err = events.Read(make([]byte, 1))
	var e *ssh.Error
	if !errors.Is(err, client.ErrLost) || !errors.As(err, &e) || e.Code != "daemon_gone" {
		t.Errorf("got %v (%+v)", err, e)
	}
	var gone *client.NoDaemonError
	if _, err := l.Commands(ctx); !errors.As(err, &gone) || gone.Socket != "box:"+d.Socket {
		t.Errorf("got %v", err)
	}
	d.Start()
	if _, err := client.Call(ctx, commands(t, ctx, l), protocol.Ping, protocol.PingParams{}); err != nil {
		t.Error(err)
	}
}

// What has been closed opens nothing.
func TestAClosedLink(t *testing.T) {
	scripted(t, session+`; cat >/dev/null`)
	l := link(t, ssh.Options{Host: "box"})
	ctx := patient(t)
	conn, err := l.Commands(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, client.ErrClosed) {
		t.Errorf("got %v", err)
	}
	if _, err := l.Events(ctx); !errors.Is(err, client.ErrClosed) {
		t.Errorf("got %v", err)
	}
	_ = l.Close()
}
