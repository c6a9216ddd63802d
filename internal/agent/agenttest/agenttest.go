// Package agenttest is an agent for tests that does what the prompt's text says: each line
// that begins with "!" is a step, and every other line is said back. It is strict: what its
// client does against the protocol ends it with status 3, and is in its log.
//
// Concurrency: one agent serves one connection. It refuses to be clever.
package agenttest

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Variables of the environment that say what the agent can do and where it writes.
const (
	// Dir is where it keeps its sessions, and log: a line for each thing that happens.
	Dir = "AGENTTEST_DIR"
	// Can are the capabilities, with commas: load, resume, image, old, auth, mute; options,
	// modes and commands to choose from, and poor, which refuses one; always, which has no
	// other answer to what it asks; queue, which takes a prompt while it works and works on it
	// after that; handoff, which does so and ends the one before as cancelled; close, which learns
	// of sessions that are closed; one, which has one session; same, which names all alike.
	Can = "AGENTTEST_CAN"
)

type object = map[string]any

// agent is the agent of one connection.
type agent struct {
	in  *bufio.Reader
	dir string
	can []string

	mu       sync.Mutex
	out      io.Writer
	last     int
	waits    map[string]chan jsontext.Value // answers to what the agent has asked
	sessions map[string]*session
	made     int // sessions
	greeted  bool
	work     sync.WaitGroup
}

type session struct {
	id     string
	open   int           // prompts that have no answer yet
	now    chan struct{} // closed once the one that is worked on has
	latest chan struct{} // closed once the latest of them has
	cancel chan struct{} // closed by session/cancel; made anew for a prompt that is alone
	deaf   bool
	choices

	servers []server
	tools   *tools // of the first of the servers, once it is at work
}

func newSession(id string, servers []server) *session {
	return &session{id: id, servers: servers, choices: choices{model: "small", effort: "low", mode: "ask"}}
}

type message struct {
	JSONRPC string         `json:"jsonrpc"`
	ID      jsontext.Value `json:"id"`
	Method  string         `json:"method"`
	Params  jsontext.Value `json:"params"`
	Result  jsontext.Value `json:"result"`
	Error   jsontext.Value `json:"error"`
}

// Main serves until the end of its input.
func Main() {
	a := &agent{
		in: bufio.NewReader(os.Stdin), out: os.Stdout, dir: os.Getenv(Dir), can: strings.Split(os.Getenv(Can), ","),
		waits: map[string]chan jsontext.Value{}, sessions: map[string]*session{},
	}
	a.log("start %d", os.Getpid())
	for {
		line, err := a.in.ReadBytes('\n')
		if err != nil {
			a.log("eof")
			return
		}
		a.handle(line)
	}
}

func (a *agent) log(format string, args ...any) {
	if a.dir == "" {
		return
	}
	f, err := os.OpenFile(filepath.Join(a.dir, "log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, _ = fmt.Fprintf(f, format+"\n", args...)
		_ = f.Close()
	}
}

// wrong ends the agent, as its client has done something that it must not.
func (a *agent) wrong(format string, args ...any) {
	a.log("WRONG "+format, args...)
	fmt.Fprintf(os.Stderr, "wrong: "+format+"\n", args...)
	os.Exit(3)
}

func (a *agent) send(m object) {
	m["jsonrpc"] = "2.0"
	line, err := json.Marshal(m)
	if err != nil {
		a.wrong("encode: %v", err)
	}
	a.write(append(line, '\n'))
}

func (a *agent) write(line []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, _ = a.out.Write(line)
}

func (a *agent) handle(line []byte) {
	var m message
	if err := json.Unmarshal(line, &m); err != nil || m.JSONRPC != "2.0" {
		a.wrong("no message: %s", line)
	}
	switch {
	case m.Method == "" && m.ID != nil:
		a.mu.Lock()
		waits := a.waits[string(m.ID)]
		delete(a.waits, string(m.ID))
		a.mu.Unlock()
		if waits != nil {
			waits <- append(jsontext.Value{}, m.Result...)
		}
		return
	case m.Method == "":
		return // an error without an id: of something that the script has written
	}
	var p struct {
		Version   int      `json:"protocolVersion"`
		SessionID string   `json:"sessionId"`
		CWD       string   `json:"cwd"`
		Servers   []server `json:"mcpServers"`
		Prompt    []struct {
			Type string `json:"type"`
			Text string `json:"text"`
		} `json:"prompt"`
	}
	if err := json.Unmarshal(m.Params, &p); err != nil {
		a.wrong("params of %s: %v", m.Method, err)
	}
	id := append(jsontext.Value{}, m.ID...)
	reply := func(result any) { a.send(object{"id": id, "result": result}) }
	if m.Method != "initialize" && !a.greeted {
		a.wrong("%s before initialize", m.Method)
	}
	s := a.sessions[p.SessionID]
	switch m.Method {
	case "initialize":
		a.greet(p.Version, reply)
	case "session/new", "session/load", "session/resume":
		if !filepath.IsAbs(p.CWD) || p.Servers == nil {
			a.wrong("%s: cwd %q, mcpServers %v", m.Method, p.CWD, p.Servers)
		}
		a.open(m.Method, p.SessionID, id, reply, p.Servers)
	case "session/prompt":
		if s == nil || len(p.Prompt) == 0 {
			a.wrong("session/prompt: session %q, %d blocks", p.SessionID, len(p.Prompt))
		}
		var texts []string
		for _, b := range p.Prompt {
			texts = append(texts, cmp.Or(b.Text, "["+b.Type+"]"))
		}
		a.enqueue(s, strings.Join(texts, "\n"), id)
	case "session/cancel":
		a.log("cancel")
		a.mu.Lock()
		if s != nil && s.open > 0 {
			select {
			case <-s.cancel:
			default:
				close(s.cancel)
			}
		}
		a.mu.Unlock()
	case "session/set_config_option", "session/set_mode", "session/set_model":
		a.choose(m.Method, m.Params, s, reply, func(why string) {
			a.send(object{"id": id, "error": object{"code": -32602, "message": why}})
		})
	case "session/close":
		if s == nil || !slices.Contains(a.can, "close") {
			a.wrong("session/close of %q", p.SessionID)
		}
		a.log("close %s", s.id)
		delete(a.sessions, s.id)
		reply(object{})
	case "$/cancel_request":
	default:
		a.send(object{"id": id, "error": object{"code": -32601, "message": "no such method"}})
	}
}

func (a *agent) greet(version int, reply func(any)) {
	if version != 1 {
		a.wrong("protocolVersion %d", version)
	}
	a.greeted = true
	if slices.Contains(a.can, "mute") {
		return
	}
	if slices.Contains(a.can, "old") {
		version = 0
	}
	sessions := object{}
	if slices.Contains(a.can, "resume") {
		sessions["resume"] = object{}
	}
	if slices.Contains(a.can, "close") {
		sessions["close"] = object{}
	}
	reply(object{
		"protocolVersion": version, "agentInfo": object{"name": "agenttest", "version": "1"},
		"agentCapabilities": object{
			"loadSession":         slices.Contains(a.can, "load"),
			"promptCapabilities":  object{"image": slices.Contains(a.can, "image")},
			"sessionCapabilities": sessions,
			"_meta":               object{"agenttest": object{"promptQueueing": a.queues()}},
		},
	})
}

// open makes a session, or takes one up of which the texts are in a file.
func (a *agent) open(method, id string, request jsontext.Value, reply func(any), servers []server) {
	if slices.Contains(a.can, "auth") {
		a.send(object{"id": request, "error": object{"code": -32000, "message": "Authentication required"}})
		return
	}
	if slices.Contains(a.can, "one") && len(a.sessions) > 0 {
		a.log("refuse")
		a.send(object{"id": request, "error": object{"code": -32600, "message": "one session is enough"}})
		return
	}
	if method == "session/new" {
		a.made++
		id = fmt.Sprintf("s-%d-%d", os.Getpid(), a.made)
		if slices.Contains(a.can, "same") {
			id = fmt.Sprintf("s-%d", os.Getpid())
		}
		a.sessions[id] = newSession(id, servers)
		a.log("new %s", id)
		reply(a.offers(a.sessions[id], object{"sessionId": id}))
		a.sayCommands(a.sessions[id])
		return
	}
	texts, err := os.ReadFile(filepath.Join(a.dir, id))
	if err != nil {
		a.send(object{"id": request, "error": object{"code": -32002, "message": "no such session"}})
		return
	}
	a.log("%s %s", strings.TrimPrefix(method, "session/"), id)
	a.sessions[id] = newSession(id, servers)
	if method == "session/load" {
		for i, text := range strings.Split(strings.TrimSuffix(string(texts), "\x00"), "\x00") {
			role, text, _ := strings.Cut(text, ":")
			a.update(id, object{
				"sessionUpdate": role + "_message_chunk", "messageId": fmt.Sprintf("r%d", i),
				"content": object{"type": "text", "text": text},
			})
		}
	}
	reply(a.offers(a.sessions[id], object{}))
	a.sayCommands(a.sessions[id])
}

func (a *agent) update(id string, update object) {
	a.send(object{"method": "session/update", "params": object{"sessionId": id, "update": update}})
}

// keep adds to the file of a session.
func (a *agent) keep(s *session, role, text string) {
	if a.dir == "" {
		return
	}
	f, err := os.OpenFile(filepath.Join(a.dir, s.id), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, _ = f.WriteString(role + ":" + text + "\x00")
		_ = f.Close()
	}
}

func (a *agent) queues() bool {
	return slices.Contains(a.can, "queue") || slices.Contains(a.can, "handoff")
}

// enqueue has a prompt worked on, after the one that is open.
func (a *agent) enqueue(s *session, text string, id jsontext.Value) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before, done := s.latest, make(chan struct{})
	switch {
	case s.open == 0:
		s.deaf, s.cancel = false, make(chan struct{})
	case !a.queues():
		a.wrong("session/prompt while another is open")
	default:
		select {
		case <-s.cancel:
			a.wrong("session/prompt while a cancelled one is open")
		default:
		}
		a.log("queue %q", text)
	}
	s.open, s.latest = s.open+1, done
	a.work.Go(func() {
		defer close(done)
		if before != nil {
			<-before
		}
		a.mu.Lock()
		s.now = done
		a.mu.Unlock()
		a.prompt(s, text, id)
	})
}

// prompt does what the text says, and answers.
func (a *agent) prompt(s *session, text string, id jsontext.Value) {
	a.keep(s, "user", text)
	a.log("prompt %q", text)
	stop, failure := "end_turn", object(nil)
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if a.cancelled(s) {
			break
		}
		step, isStep := strings.CutPrefix(line, "!")
		if !isStep {
			a.say(s, "agent_message_chunk", line+"\n")
			continue
		}
		name, rest, _ := strings.Cut(step, " ")
		switch name {
		case "stop":
			stop = rest
		case "error":
			code, words, _ := strings.Cut(rest, " ")
			n, _ := strconv.Atoi(code)
			failure = object{"code": n, "message": words}
		default:
			a.step(s, name, rest)
		}
	}
	if a.cancelled(s) && stop == "end_turn" {
		stop = "cancelled"
	}
	a.log("end %s", stop)
	a.mu.Lock()
	s.open--
	a.mu.Unlock()
	if failure != nil {
		a.send(object{"id": id, "error": failure})
		return
	}
	a.send(object{"id": id, "result": object{
		"stopReason": stop, "usage": object{"inputTokens": 10, "outputTokens": 5, "totalTokens": 15},
	}})
}

// cancelled reports that the prompt in hand is to end.
func (a *agent) cancelled(s *session) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.latest != s.now && slices.Contains(a.can, "handoff") {
		return true
	}
	select {
	case <-s.cancel:
		return !s.deaf
	default:
		return false
	}
}

func (a *agent) say(s *session, kind, text string) {
	a.keep(s, "agent", text)
	a.update(s.id, object{
		"sessionUpdate": kind, "messageId": "m1", "content": object{"type": "text", "text": text},
	})
}

// step is one step of a script.
func (a *agent) step(s *session, name, rest string) {
	id, more, _ := strings.Cut(rest, " ")
	call := func(update object) {
		update["sessionUpdate"], update["toolCallId"] = "tool_call_update", id
		a.update(s.id, update)
	}
	switch name {
	case "say":
		a.say(s, "agent_message_chunk", rest)
	case "think":
		a.say(s, "agent_thought_chunk", rest)
	case "message": // with an id of its own
		a.update(s.id, object{
			"sessionUpdate": "agent_message_chunk", "messageId": id, "content": object{"type": "text", "text": more},
		})
	case "call": // ID KIND INPUT
		kind, input, _ := strings.Cut(more, " ")
		update := object{
			"sessionUpdate": "tool_call", "toolCallId": id, "title": "do " + kind, "kind": kind, "status": "pending",
		}
		if input != "" {
			update["rawInput"] = jsontext.Value(input)
		}
		a.update(s.id, update)
	case "named", "servers", "tools", "tool":
		a.toolStep(s, name, rest)
	case "begin":
		call(object{"status": "in_progress"})
	case "show":
		call(object{"content": []object{{"type": "content", "content": object{"type": "text", "text": more}}}})
	case "diff":
		call(object{"content": []object{{"type": "diff", "path": "/tmp/f", "oldText": "a\n", "newText": "b\n"}}})
	case "at":
		call(object{"locations": []object{{"path": more}}})
	case "done":
		call(object{"status": "completed"})
	case "fail":
		call(object{"status": "failed"})
	case "ask":
		call(object{"status": map[bool]string{true: "completed", false: "failed"}[a.ask(s, id, more)]})
	case "asking": // and does not wait for the answer
		a.work.Go(func() { a.ask(s, id, more) })
	case "may": // ask, and go on with the call
		if a.ask(s, id, more) {
			call(object{"status": "in_progress"})
		}
	case "update":
		a.update(s.id, object{"sessionUpdate": id, "entries": jsontext.Value(cmp.Or(more, "[]"))})
	case "tell": // any update
		var update object
		_ = json.Unmarshal([]byte(rest), &update)
		a.update(s.id, update)
	case "chosen":
		a.say(s, "agent_message_chunk", fmt.Sprintf("%s %s %s %t\n", s.model, s.effort, s.mode, s.fast))
	case "cost":
		amount, _ := strconv.ParseFloat(id, 64)
		a.update(s.id, object{
			"sessionUpdate": "usage_update", "used": 100, "size": 1000, "cost": object{"amount": amount, "currency": "USD"},
		})
	case "title":
		a.update(s.id, object{"sessionUpdate": "session_info_update", "title": rest})
	case "read": // what is not offered
		answer := a.request("fs/read_text_file", object{"sessionId": s.id, "path": rest})
		a.say(s, "agent_message_chunk", fmt.Sprintf("read: %d bytes\n", len(answer)))
	default:
		a.trouble(s, name, rest)
	}
}

// trouble is a step of an agent that does not behave.
func (a *agent) trouble(s *session, name, rest string) {
	switch name {
	case "wait": // until a file is there, or the prompt is cancelled
		for !a.cancelled(s) {
			if _, err := os.Stat(rest); err == nil {
				return
			}
			time.Sleep(time.Millisecond)
		}
	case "deaf":
		s.deaf = true
	case "hang":
		for !a.cancelled(s) {
			time.Sleep(time.Millisecond)
		}
	case "exit":
		fmt.Fprintln(os.Stderr, rest)
		os.Exit(7)
	case "once": // exits the first time that it is told to
		if _, err := os.Stat(filepath.Join(a.dir, rest)); err != nil {
			_ = os.WriteFile(filepath.Join(a.dir, rest), nil, 0o600)
			fmt.Fprintln(os.Stderr, "once")
			os.Exit(7)
		}
	case "stamp": // so many times, what time it is in nanoseconds
		n, _ := strconv.Atoi(rest)
		for range n {
			a.say(s, "agent_message_chunk", strconv.FormatInt(time.Now().UnixNano(), 10))
			time.Sleep(2 * time.Millisecond)
		}
	case "count": // to a number
		n, _ := strconv.Atoi(rest)
		for i := 0; i < n && !a.cancelled(s); i++ {
			a.say(s, "agent_message_chunk", fmt.Sprintf("%d,", i))
			time.Sleep(time.Millisecond)
		}
	case "touch": // its temporary folder
		if f, err := os.CreateTemp("", "touch"); err == nil {
			a.log("touched")
			_ = f.Close()
		}
	case "junk":
		a.write([]byte(rest + "\n"))
	case "flood":
		n, _ := strconv.Atoi(rest)
		for range n {
			a.say(s, "agent_message_chunk", strings.Repeat("flood ", 1000))
		}
	case "run":
		out, err := exec.Command("sh", "-c", rest).CombinedOutput()
		a.say(s, "agent_message_chunk", fmt.Sprintf("%s %v\n", out, err))
	case "fork":
		cmd := exec.Command("sleep", "1000")
		if cmd.Start() == nil {
			a.log("child %d", cmd.Process.Pid)
		}
	case "foreign": // asks in a session that nobody knows
		raw := a.request("session/request_permission", object{
			"sessionId": "nobody", "toolCall": object{"toolCallId": "c9"}, "options": []object{},
		})
		a.log("foreign %s", raw)
	case "elsewhere":
		a.update("nobody", object{"sessionUpdate": "agent_message_chunk", "content": object{"type": "text", "text": rest}})
	default:
		a.say(s, "agent_message_chunk", "no such step: "+name+"\n")
	}
}

// ask asks whether a call may be made.
func (a *agent) ask(s *session, id, input string) bool {
	call := object{"toolCallId": id}
	if input != "" {
		call["rawInput"] = jsontext.Value(input)
	}
	options := []object{
		{"optionId": "ever", "name": "Always", "kind": "allow_always"},
		{"optionId": "no", "name": "No", "kind": "reject_once"},
	}
	if slices.Contains(a.can, "always") {
		options = options[:1]
	} else {
		options = append(options, object{"optionId": "yes", "name": "Yes", "kind": "allow_once"})
	}
	raw := a.request("session/request_permission", object{"sessionId": s.id, "toolCall": call, "options": options})
	var answer struct {
		Outcome struct {
			Outcome  string `json:"outcome"`
			OptionID string `json:"optionId"`
		} `json:"outcome"`
	}
	_ = json.Unmarshal(raw, &answer)
	a.log("answer %s %s", answer.Outcome.Outcome, answer.Outcome.OptionID)
	return answer.Outcome.OptionID == "yes" || answer.Outcome.OptionID == "ever"
}

// request asks the client, and waits for the answer.
func (a *agent) request(method string, params object) jsontext.Value {
	a.mu.Lock()
	a.last++
	id := strconv.Itoa(a.last)
	waits := make(chan jsontext.Value, 1)
	a.waits[id] = waits
	a.mu.Unlock()
	a.send(object{"id": jsontext.Value(id), "method": method, "params": params})
	return <-waits
}
