package bridge

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"noused/internal/acp"
	"noused/internal/protocol"
	"noused/internal/testenv"
)

// startBridge starts nous acp as an editor does. end kills it, or closes its input.
func startBridge(t testing.TB, program, socket string) (e *editor, end func(kill bool)) {
	t.Helper()
	cmd := exec.Command(program, "--no-start", "--socket", socket, "acp") // the test starts the daemon
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	e = &editor{t: t, in: in, sent: map[string]string{}, schema: official(t), pid: cmd.Process.Pid}
	e.changed = sync.NewCond(&e.mu)
	var reading sync.WaitGroup
	reading.Go(func() { e.read(out) })
	var once sync.Once
	return e, func(kill bool) {
		once.Do(func() {
			if kill {
				_ = cmd.Process.Kill()
			}
			_ = in.Close()
			reading.Wait()
			_ = cmd.Wait()
		})
	}
}

// answered tells how many answers a request has, or that the bridge has ended.
func (e *editor) answered(id string) (n int, dead bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, m := range e.lines {
		if m.Method == "" && string(m.ID) == id {
			n++
		}
	}
	return n, e.dead
}

// The bridge, the daemon and the editor are killed at any moment while prompts run:
// no prompt has two answers, one that is waited for has one, and a session that is
// loaded shows what get_messages says, nothing twice and nothing missing.
// NOUSED_CRASHTIME (a duration) makes it long.
func TestEverythingIsKilled(t *testing.T) {
	long := 3 * time.Second
	if text := os.Getenv("NOUSED_CRASHTIME"); text != "" {
		var err error
		if long, err = time.ParseDuration(text); err != nil {
			t.Fatalf("NOUSED_CRASHTIME: %v", err)
		}
	}
	program := nousProgram(t)
	d := startDaemon(t, "[model]\ndelay = \"1ms\"\n")
	until := time.Now().Add(long)
	var sessions []string
	for range 3 {
		sessions = append(sessions, command(t, d.Socket, protocol.NewSession, protocol.NewSessionParams{}).SessionID)
	}
	var all sync.WaitGroup
	for i, s := range sessions {
		all.Go(func() {
			for n := 0; time.Now().Before(until); n++ {
				oneLife(t, program, d.Socket, s, fmt.Sprintf("s%d life%d", i, n))
			}
		})
	}
	for time.Now().Before(until) {
		time.Sleep(time.Duration(200+rand.IntN(400)) * time.Millisecond) // it dies at any moment
		d.Kill()
		d.Start()
	}
	all.Wait()
	for _, s := range sessions {
		e, end := startBridge(t, program, d.Socket)
		e.must(acp.Initialize, `{"protocolVersion":1}`)
		testenv.Until(t, s+" is idle", func() bool { return stateOf(t, d.Socket, s).RunState == protocol.StateIdle })
		id := e.send(acp.SessionLoad, `{"sessionId":"`+s+`","cwd":"/","mcpServers":[]}`)
		_, at := e.await(0, "the session", func(m message) bool { return m.Method == "" && string(m.ID) == id })
		if diff := cmp.Diff(texts(e, d.Socket, s), conversation(e.updates(s, 0, at))); diff != "" {
			t.Errorf("a replay is not what get_messages says (-want +got):\n%s", diff)
		}
		end(false)
	}
}

// oneLife is a bridge that loads a session, prompts, and is waited for or killed.
func oneLife(t *testing.T, program, socket, s, name string) {
	e, end := startBridge(t, program, socket)
	defer end(true)
	e.send(acp.Initialize, `{"protocolVersion":1}`)
	testenv.Until(t, "the daemon is there", func() bool {
		return e.reply(e.send(acp.SessionLoad, `{"sessionId":"`+s+`","cwd":"/","mcpServers":[]}`)).Error == nil
	})
	var prompts []string
	for n := range 1 + rand.IntN(3) {
		prompts = append(prompts, e.prompt(s, fmt.Sprintf("%s prompt%d %s", name, n, numbered(rand.IntN(60)))))
	}
	switch rand.IntN(3) {
	case 0:
		time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond) // it dies at any moment
		end(true)
	case 1:
		time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond) // it is left at any moment
		end(false)
	default:
		for _, id := range prompts {
			e.reply(id)
		}
	}
	for _, id := range prompts {
		if n, _ := e.answered(id); n > 1 {
			t.Errorf("prompt %s has %d answers", id, n)
		}
	}
}

// texts are the messages of a session as a conversation has them; each text of a
// user's is there once.
func texts(e *editor, socket, s string) (out []string) {
	seen := map[string]bool{}
	for _, raw := range command(e.t.(*testing.T), socket, protocol.GetMessages,
		protocol.GetMessagesParams{Scope: protocol.Scope{SessionID: s}}).Messages {
		m := decodeEntry(raw)
		switch {
		case m.Role == "user":
			if seen[m.Text] {
				e.t.Errorf("%.60q was delivered twice", m.Text)
			}
			seen[m.Text] = true
			out = append(out, "user: "+m.Text)
		case m.Role == "assistant" && strings.TrimSpace(m.Text) != "":
			out = append(out, "agent: "+m.Text)
		}
	}
	return out
}
