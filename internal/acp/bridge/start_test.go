package bridge

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"

	"noused/internal/acp"
	"noused/internal/client"
	"noused/internal/client/follow"
)

// Where no daemon is started whatever an editor asks is refused, and says so; nothing
// stays open without a word.
func TestRequestsWithoutADaemonAreRefused(t *testing.T) {
	for _, tc := range []struct {
		name, want string
		start      func(context.Context, *client.NoDaemonError) error
	}{
		{"none may be started", "start noused first", nil},
		{"nor here", "start noused first", func(_ context.Context, none *client.NoDaemonError) error { return none }},
		{"it does not start", "the disk is full", func(context.Context, *client.NoDaemonError) error {
			return errors.New("the disk is full")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := slowDaemon(t, "")
			e := openEditor(t, d.Socket, func(o *Options) { o.Start, o.Patience = tc.start, 0 })
			e.must(acp.Initialize, `{"protocolVersion":1}`)
			s := e.open(d.Dir)
			running := e.prompt(s, "one\n!slow.run")
			e.awaitUpdate(s, 0, "the tool", func(u update) bool { return u.Status == acp.InProgress })
			d.Kill()
			e.log.await(t, "trying again")
			for _, request := range [][2]string{
				{acp.SessionPrompt, textPrompt(s, "two")},
				{acp.SessionPrompt, textPrompt(s, "/compact")},
				{acp.SessionPrompt, textPrompt(s, "/model offline")},
				{acp.SessionPrompt, textPrompt(s, "/skill:greet")},
				{acp.Steer, textPrompt(s, "two")},
				{acp.SetMode, `{"sessionId":"` + s + `","modeId":"auto"}`},
				{acp.SetConfigOption, `{"sessionId":"` + s + `","configId":"steering","value":"all"}`},
				{acp.SessionNew, `{"cwd":"/","mcpServers":[]}`},
				{acp.SessionList, `{}`},
				{acp.SessionResume, `{"sessionId":"ses-other","cwd":"/"}`},
				{acp.SessionDelete, `{"sessionId":"ses-other"}`},
			} {
				m := e.reply(e.send(request[0], request[1]))
				if m.Error == nil || m.Error.Code != acp.InternalError || !strings.Contains(m.Error.Message, tc.want) {
					t.Errorf("%s %s: got %s %v, want -32603 with %q", request[0], request[1], m.Result, m.Error, tc.want)
				}
			}
			// What ran is still open, and is cancelled without a daemon: that one's first task then.
			e.notify(acp.SessionCancel, `{"sessionId":"`+s+`"}`)
			if got := e.stop(running); got != acp.StopCancelled {
				t.Errorf("the prompt that ran: got %s, want cancelled", got)
			}
			d.Start()
			if got := e.say(s, "three"); got != acp.EndTurn {
				t.Errorf("with a daemon: got %s, want end_turn", got)
			}
			if runs := stateOf(t, d.Socket, s).Runs; len(runs) > 0 {
				t.Errorf("the run that was cancelled goes on: %+v", runs)
			}
		})
	}
}

// cutter leads to a daemon that is killed as it is sent a prompt, which it may have got or not.
type cutter struct {
	follow.Dialer
	kill func() // once
}

type cutConn struct {
	net.Conn
	kill func()
}

func (c cutter) Commands(ctx context.Context) (net.Conn, error) {
	conn, err := c.Dialer.Commands(ctx)
	if err != nil {
		return nil, err
	}
	return cutConn{conn, c.kill}, nil
}

func (c cutConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if bytes.Contains(p, []byte(`"type":"prompt"`)) {
		c.kill()
	}
	return n, err
}

// A prompt that a daemon may have got as it ended has the next one started: nobody else may.
func TestAPromptThatMayHaveArrivedHasADaemonStarted(t *testing.T) {
	d := startDaemon(t, "")
	start := make(chan struct{}, 100)
	e := openEditor(t, d.Socket, func(o *Options) {
		o.Daemon = cutter{o.Daemon, sync.OnceFunc(d.Kill)}
		o.Start = func(_ context.Context, none *client.NoDaemonError) error {
			start <- struct{}{}
			return none
		}
	})
	e.must(acp.Initialize, `{"protocolVersion":1}`)
	running := e.prompt(e.open(d.Dir), "one")
	<-start
	d.Start()
	if got := e.stop(running); got != acp.EndTurn {
		t.Errorf("got %s, want end_turn", got)
	}
}
