package ssh_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"noused/internal/client"
	"noused/internal/client/follow"
	"noused/internal/client/ssh"
	"noused/internal/client/ssh/sshtest"
	"noused/internal/daemontest"
	"noused/internal/protocol"
	"noused/internal/testenv"
)

var dir, noused, nous string

func TestMain(m *testing.M) {
	var err error
	if dir, err = os.MkdirTemp("", "sshlink"); err == nil {
		if noused, err = daemontest.Build(dir, "noused"); err == nil {
			nous, err = daemontest.Build(dir, "nous")
		}
		if err == nil {
			nous, err = own(nous)
		}
	}
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(testenv.M{M: m}, goleak.Cleanup(func(code int) {
		os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// own is a copy of a program that nobody else runs: a test kills all processes of it.
func own(program string) (string, error) {
	text, err := os.ReadFile(program)
	if err != nil {
		return "", err
	}
	to := filepath.Join(dir, "own-"+filepath.Base(program))
	return to, os.WriteFile(to, text, 0o755)
}

// patience is how long a test waits for what has to come.
const patience = 2 * time.Minute

var _ follow.Dialer = (*ssh.Link)(nil)

// link leads to a daemon's socket with some ssh.
func link(t testing.TB, o ssh.Options) *ssh.Link {
	t.Helper()
	l := ssh.New(o)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// far is a daemon behind a real sshd.
func far(t testing.TB, config string) (*daemontest.Daemon, *sshtest.Server, ssh.Options) {
	t.Helper()
	s := sshtest.Start(t)
	d := daemontest.Start(t, noused, config)
	return d, s, ssh.Options{Host: "box", SSH: s.SSH, Nous: s.Nous(nous, "NOUSED_SOCKET="+d.Socket, "HOME="+d.Dir,
		"XDG_CONFIG_HOME="+filepath.Join(d.Dir, "config"))}
}

func prompt(ctx context.Context, c *client.Client, text, key string) (string, error) {
	wait := false
	r, err := client.Call(ctx, c, protocol.Prompt, protocol.PromptParams{Text: text, Wait: &wait, IdempotencyKey: key})
	if err != nil {
		return "", err
	}
	return r.Accepted.RunID, nil
}

func commands(t testing.TB, ctx context.Context, d follow.Dialer) *client.Client {
	t.Helper()
	conn, err := d.Commands(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c := client.New(conn)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func subscribe(t testing.TB, ctx context.Context, d follow.Dialer, p protocol.SubscribeParams) *client.Events {
	t.Helper()
	conn, err := d.Events(ctx)
	if err != nil {
		t.Fatal(err)
	}
	e, err := client.SubscribeOver(ctx, conn, p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// untilEnd reads the events up to a run's end.
func untilEnd(t testing.TB, ctx context.Context, e *client.Events, run string) (seqs []uint64) {
	t.Helper()
	for {
		env, raw, err := e.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		seqs = append(seqs, env.Seq)
		if env.Type == "agent_end" && strings.Contains(string(raw), run) {
			return seqs
		}
	}
}

func TestARunOverARealSSH(t *testing.T) {
	_, s, o := far(t, "")
	l := link(t, o)
	ctx := patient(t)
	hello, err := l.Hello(ctx)
	if err != nil || hello.Proxy != 1 || hello.Epoch == "" || hello.Version == "" {
		t.Fatalf("got %+v, %v", hello, err)
	}
	c := commands(t, ctx, l)
	all := subscribe(t, ctx, l, protocol.SubscribeParams{})
	ends := subscribe(t, ctx, l, protocol.SubscribeParams{Types: []string{"agent_end"}})
	run, err := prompt(ctx, c, "hello", "")
	if err != nil {
		t.Fatal(err)
	}
	seqs := untilEnd(t, ctx, all, run)
	for i, seq := range seqs {
		if seq != uint64(i)+1 {
			t.Errorf("got events %v, want each once", seqs)
			break
		}
	}
	if got := untilEnd(t, ctx, ends, run); len(got) != 1 || got[0] != seqs[len(seqs)-1] {
		t.Errorf("got ends %v, want %d", got, seqs[len(seqs)-1])
	}
	if n := s.Connections(); n != 1 {
		t.Errorf("got %d connections to sshd, want one", n)
	}
	if n := children(t); n != 1 {
		t.Errorf("got %d ssh processes, want one", n)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if n := children(t); n != 0 {
		t.Errorf("%d ssh processes are left", n)
	}
}

// children counts the ssh processes that this one has.
func children(t testing.TB) int {
	t.Helper()
	return len(sshes(t))
}
