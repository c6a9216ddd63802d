package agenttest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// server is an MCP server that the client has given to a session.
type server struct {
	Type    string   `json:"type"`
	Name    string   `json:"name"`
	Command string   `json:"command"`
	Args    []string `json:"args"`
	Env     []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"env"`
}

// tools is one of them at work.
type tools struct {
	in io.WriteCloser

	mu    sync.Mutex
	last  int
	waits map[int]chan jsontext.Value // nil: it has ended
}

// open starts a server and greets it.
func (sv server) open() (*tools, error) {
	cmd := exec.Command(sv.Command, sv.Args...)
	cmd.Env = os.Environ()
	for _, v := range sv.Env {
		cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
	}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	t := &tools{in: in, waits: map[int]chan jsontext.Value{}}
	go func() { // ends with the server
		lines := bufio.NewReader(out)
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				break
			}
			t.heard(line)
		}
		t.mu.Lock()
		for _, waits := range t.waits {
			close(waits)
		}
		t.waits = nil
		t.mu.Unlock()
		_ = cmd.Wait()
	}()
	_, err = t.ask("initialize", object{
		"protocolVersion": "2025-06-18", "capabilities": object{}, "clientInfo": object{"name": "agenttest", "version": "1"},
	}, nil)
	if err == nil {
		t.send(object{"method": "notifications/initialized"})
	}
	return t, err
}

func (t *tools) heard(line []byte) {
	var m struct {
		ID     int            `json:"id"`
		Result jsontext.Value `json:"result"`
		Error  jsontext.Value `json:"error"`
	}
	if json.Unmarshal(line, &m) != nil {
		return
	}
	t.mu.Lock()
	waits := t.waits[m.ID]
	delete(t.waits, m.ID)
	t.mu.Unlock()
	if waits == nil {
		return
	}
	if m.Error != nil {
		m.Result = m.Error
	}
	waits <- m.Result
}

func (t *tools) send(m object) {
	m["jsonrpc"] = "2.0"
	line, _ := json.Marshal(m)
	_, _ = t.in.Write(append(line, '\n'))
}

// ask calls a method. What ends first, it takes back.
func (t *tools) ask(method string, params object, first <-chan struct{}) (jsontext.Value, error) {
	waits := make(chan jsontext.Value, 1)
	t.mu.Lock()
	if t.waits == nil {
		t.mu.Unlock()
		return nil, fmt.Errorf("the server has ended")
	}
	t.last++
	id := t.last
	t.waits[id] = waits
	t.mu.Unlock()
	t.send(object{"id": id, "method": method, "params": params})
	select {
	case answer, ok := <-waits:
		if !ok {
			return nil, fmt.Errorf("the server has ended")
		}
		return answer, nil
	case <-first:
		t.send(object{"method": "notifications/cancelled", "params": object{"requestId": id}})
		return nil, fmt.Errorf("cancelled")
	}
}

// toolStep is a step with the servers of a session: which there are, which tools the first of
// them has, or a call of one.
func (a *agent) toolStep(s *session, name, rest string) {
	if name == "named" { // ID NAME INPUT: a call of a tool of an MCP server
		id, more, _ := strings.Cut(rest, " ")
		title, input, _ := strings.Cut(more, " ")
		a.update(s.id, object{
			"sessionUpdate": "tool_call", "toolCallId": id, "title": title, "kind": "other", "status": "pending",
			"rawInput": jsontext.Value(input),
		})
		return
	}
	if name == "servers" {
		var names []string
		for _, sv := range s.servers {
			names = append(names, sv.Name)
		}
		a.say(s, "agent_message_chunk", "servers "+strings.Join(names, " ")+"\n")
		return
	}
	if s.tools == nil {
		var err error
		if len(s.servers) == 0 {
			err = fmt.Errorf("none was given")
		} else {
			s.tools, err = s.servers[0].open()
		}
		if err != nil {
			a.say(s, "agent_message_chunk", "no tools: "+err.Error()+"\n")
			return
		}
	}
	var answer jsontext.Value
	var err error
	if name == "tools" {
		answer, err = s.tools.ask("tools/list", object{}, s.cancel)
	} else {
		tool, arguments, _ := strings.Cut(rest, " ")
		answer, err = s.tools.ask("tools/call", object{
			"name": tool, "arguments": jsontext.Value(arguments),
		}, s.cancel)
	}
	if err != nil {
		a.log("tool %v", err)
		return
	}
	var got struct {
		Message string `json:"message"`
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
		Tools []struct {
			Name string `json:"name"`
		} `json:"tools"`
	}
	_ = json.Unmarshal(answer, &got)
	text := got.Message
	for _, c := range got.Content {
		text += c.Text
	}
	for _, t := range got.Tools {
		text += t.Name + " "
	}
	a.say(s, "agent_message_chunk", "got "+text+"\n")
}
