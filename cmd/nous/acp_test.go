package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/go-json-experiment/json"

	"noused/internal/lock"
	"noused/internal/protocol"
)

// agent is nous acp as an editor starts it.
type agent struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	last int
}

func startAgent(t *testing.T, dir string, env []string) *agent {
	t.Helper()
	a := &agent{t: t, cmd: exec.Command("nous", "acp")}
	a.cmd.Dir, a.cmd.Env, a.cmd.Stderr = dir, env, os.Stderr
	var err error
	if a.in, err = a.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	a.out = bufio.NewReader(out)
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.cmd.Process.Kill() })
	return a
}

// send asks for something and returns the request's id.
func (a *agent) send(method, params string) string {
	a.t.Helper()
	a.last++
	if _, err := fmt.Fprintf(a.in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", a.last, method,
		params); err != nil {
		a.t.Fatal(err)
	}
	return fmt.Sprintf(`"id":%d,`, a.last)
}

// await reads up to a line that has a text.
func (a *agent) await(text string) string {
	a.t.Helper()
	for {
		line, err := a.out.ReadString('\n')
		if err != nil {
			a.t.Fatalf("%s did not come: %v", text, err)
		}
		if strings.Contains(line, text) {
			return line
		}
	}
}

// must asks and wants a result.
func (a *agent) must(method, params string) string {
	a.t.Helper()
	line := a.await(a.send(method, params))
	if !strings.Contains(line, `"result":`) {
		a.t.Fatalf("%s %s: got %s", method, params, line)
	}
	return line
}

func (a *agent) open(dir string) string {
	a.t.Helper()
	a.must("initialize", `{"protocolVersion":1}`)
	var made struct {
		Result struct {
			SessionID string `json:"sessionId"`
		} `json:"result"`
	}
	if err := json.Unmarshal([]byte(a.must("session/new", `{"cwd":"`+dir+`","mcpServers":[]}`)), &made); err != nil {
		a.t.Fatal(err)
	}
	return made.Result.SessionID
}

func textFor(session, text string) string {
	return `{"sessionId":"` + session + `","prompt":[{"type":"text","text":"` + text + `"}]}`
}

// An editor that finds no daemon has one started, and again when that one is gone: for
// whatever it asks. It starts none by being open.
func TestAnEditorsAgentStartsADaemon(t *testing.T) {
	d, env := starter(t)
	a := startAgent(t, d.Dir, env)
	s := a.open(d.Dir)
	for _, request := range [][2]string{
		{"session/prompt", textFor(s, "and now?")},
		{"session/set_mode", `{"sessionId":"` + s + `","modeId":"auto"}`},
		{"session/list", `{}`},
		{"session/prompt", textFor(s, "/compact")},
	} {
		stopped := exec.Command("nous", "stop")
		stopped.Env = env
		if out, err := stopped.CombinedOutput(); err != nil {
			t.Fatalf("nous stop: %v: %s", err, out)
		}
		a.must(request[0], request[1])
	}

	// A daemon that is killed: what it was doing goes on in the next one.
	running := a.send("session/prompt", textFor(s, `!bash {\"command\":\"sleep 600\"}`))
	a.await(`"in_progress"`)
	if err := syscall.Kill(lock.Holder(d.Socket+".lock"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	listed := a.send("session/list", `{}`)
	for left := []string{listed, running}; len(left) > 0; { // in any order
		line := a.await(`"id":`)
		left = slices.DeleteFunc(left, func(id string) bool {
			if answered := strings.Contains(line, id); !answered || strings.Contains(line, `"result":`) {
				return answered
			}
			t.Errorf("after a kill: got %s", line)
			return true
		})
	}
	_ = a.in.Close()
	if err := a.cmd.Wait(); err != nil {
		t.Errorf("nous acp: %v", err)
	}
	call1(t, d.Socket, protocol.Ping, protocol.PingParams{})
}

// An editor chooses what makes the turns of its new session: the session is that agent's, with the
// same id, on the command line too, and in the editor's next nous acp.
func TestAnEditorChoosesTheAgent(t *testing.T) {
	d, env := starter(t)
	if err := os.MkdirAll(filepath.Join(d.Dir, "fresh/noused"), 0o700); err != nil {
		t.Fatal(err)
	}
	d.Write("fresh/noused/config.toml", "[agent.scripted]\ncommand = [\"scripted-agent\"]\n")
	a := startAgent(t, d.Dir, env)
	s := a.open(d.Dir)
	set := func(agent string) string {
		return a.await(a.send("session/set_config_option", `{"sessionId":"`+s+`","configId":"agent","value":"`+agent+`"}`))
	}
	if line := set("scripted"); !strings.Contains(line, `"id":"agent",`) || !strings.Contains(line,
		`"currentValue":"scripted"`) {
		t.Fatalf("got %s", line)
	}
	said := a.send("session/prompt", textFor(s, "!say it is me"))
	a.await("it is me")
	if line := a.await(said); !strings.Contains(line, `"end_turn"`) {
		t.Errorf("got %s", line)
	}
	if line := set("noused"); !strings.Contains(line, " has begun with scripted: make another one for noused") {
		t.Errorf("got %s", line)
	}
	state := exec.Command("nous", "state", "--session", s, "--json")
	state.Env = env
	if out, err := state.CombinedOutput(); err != nil || !strings.Contains(string(out), `"agent":"scripted"`) {
		t.Errorf("nous state: %v: %s", err, out)
	}
	if err := a.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	a = startAgent(t, d.Dir, env)
	a.must("initialize", `{"protocolVersion":1}`)
	a.send("session/load", `{"sessionId":"`+s+`","cwd":"`+d.Dir+`","mcpServers":[]}`)
	a.await("it is me")
	a.await(`"currentValue":"scripted"`)
}
