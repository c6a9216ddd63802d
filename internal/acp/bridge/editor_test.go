package bridge

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/acp"
	"noused/internal/client/follow"
)

// hang is how long a test waits for what must come.
const hang = 2 * time.Minute

// message is a line of the bridge's.
type message struct {
	ID     jsontext.Value `json:"id"`
	Method string         `json:"method"`
	Params jsontext.Value `json:"params"`
	Result jsontext.Value `json:"result"`
	Error  *acp.Error     `json:"error"`

	at time.Time // when it was read
}

// update is what a session/update says, of any kind.
type update struct {
	Kind      string             `json:"sessionUpdate"`
	MessageID string             `json:"messageId"`
	Content   jsontext.Value     `json:"content"`
	ID        string             `json:"toolCallId"`
	Title     string             `json:"title"`
	Tool      string             `json:"kind"`
	Status    string             `json:"status"`
	Locations []acp.Location     `json:"locations"`
	RawInput  jsontext.Value     `json:"rawInput"`
	RawOutput jsontext.Value     `json:"rawOutput"`
	Entries   []acp.PlanEntry    `json:"entries"`
	Commands  []acp.Command      `json:"availableCommands"`
	Mode      string             `json:"currentModeId"`
	Options   []acp.ConfigOption `json:"configOptions"`
	Used      int64              `json:"used"`
	Size      int64              `json:"size"`
}

// text is that of a chunk.
func (u update) text() string {
	var b acp.ContentBlock
	if json.Unmarshal(u.Content, &b) != nil || b.Text == nil {
		return ""
	}
	return *b.Text
}

// editor is a client of a bridge, written by hand.
type editor struct {
	t      testing.TB
	in     io.WriteCloser
	pid    int // of the bridge, where it is a program
	log    logged
	ended  chan struct{} // closed with err
	err    error
	schema schema

	mu      sync.Mutex
	changed *sync.Cond
	last    int
	sent    map[string]string // method by id
	lines   []message
	dead    bool
	answers func(message) (option string) // to approvals; "" leaves one open
}

// logged is the bridge's log.
type logged struct {
	mu    sync.Mutex
	lines []string
	news  chan struct{} // cap 1
}

func (l *logged) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
	select {
	case l.news <- struct{}{}:
	default:
	}
}

// await waits for a line of the log.
func (l *logged) await(t testing.TB, text string) {
	t.Helper()
	late := time.After(hang)
	for !l.has(text) {
		select {
		case <-l.news:
		case <-late:
			t.Fatalf("the log has nothing of %q", text)
		}
	}
}

func (l *logged) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.lines, func(line string) bool { return strings.Contains(line, text) })
}

// newEditor starts a bridge to a daemon and initializes it.
func newEditor(t testing.TB, socket string) *editor {
	t.Helper()
	e := openEditor(t, socket)
	e.must(acp.Initialize, `{"protocolVersion":1,"clientCapabilities":{"session":{"notices":{}}}}`)
	return e
}

// openEditor starts a bridge only.
func openEditor(t testing.TB, socket string, with ...func(*Options)) *editor {
	t.Helper()
	fromEditor, in := io.Pipe()
	out, toEditor := io.Pipe()
	e := &editor{
		t: t, in: in, ended: make(chan struct{}), sent: map[string]string{}, schema: official(t),
		log: logged{news: make(chan struct{}, 1)},
	}
	e.changed = sync.NewCond(&e.mu)
	var reading sync.WaitGroup
	reading.Go(func() { e.read(out) })
	go func() {
		defer close(e.ended)
		o := Options{
			Daemon: follow.Socket(socket), Local: true, In: fromEditor, Out: toEditor, Log: e.log.add,
			Version: "test", Patience: hang,
		}
		for _, set := range with {
			set(&o)
		}
		e.err = Run(context.Background(), o)
		_ = toEditor.Close()
		_ = fromEditor.Close()
	}()
	t.Cleanup(func() {
		_ = in.Close()
		<-e.ended
		reading.Wait()
		if t.Failed() {
			t.Logf("the bridge's log:\n%s", strings.Join(e.log.lines, "\n"))
		}
	})
	return e
}

func (e *editor) read(out io.Reader) {
	lines := bufio.NewReaderSize(out, 1<<16)
	for {
		raw, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		m := message{at: time.Now()}
		if err := json.Unmarshal(raw, &m); err != nil {
			e.t.Errorf("the bridge wrote %.200q: %v", raw, err)
			continue
		}
		e.took(m, raw)
	}
	e.mu.Lock()
	e.dead = true
	e.changed.Broadcast()
	e.mu.Unlock()
}

func (e *editor) took(m message, raw []byte) {
	e.mu.Lock()
	e.schema.check(e.t, m, e.sent[string(m.ID)], raw)
	e.lines = append(e.lines, m)
	answers := e.answers
	e.changed.Broadcast()
	e.mu.Unlock()
	if m.Method == acp.RequestPermission && answers != nil {
		if option := answers(m); option != "" {
			e.answer(m.ID, option)
		}
	}
}

// answerWith has f answer every approval from now on.
func (e *editor) answerWith(f func(message) (option string)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.answers = f
}

// all are the lines so far.
func (e *editor) all() []message {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.lines)
}

// answer answers an approval of the bridge's.
func (e *editor) answer(id jsontext.Value, option string) {
	e.write(`{"jsonrpc":"2.0","id":` + string(id) + `,"result":{"outcome":{"outcome":"selected","optionId":"` + option +
		`"}}}`)
}

func (e *editor) write(line string) {
	if _, err := io.WriteString(e.in, strings.ReplaceAll(line, "\n", "")+"\n"); err != nil &&
		!errors.Is(err, io.ErrClosedPipe) && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, os.ErrClosed) {
		e.t.Error(err)
	}
}

// send asks for something and returns the request's id.
func (e *editor) send(method, params string) string {
	e.mu.Lock()
	e.last++
	id := strconv.Itoa(e.last)
	e.sent[id] = method
	e.mu.Unlock()
	e.write(`{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":` + params + `}`)
	return id
}

func (e *editor) notify(method, params string) {
	e.write(`{"jsonrpc":"2.0","method":"` + method + `","params":` + params + `}`)
}

// await waits for the first line from number from on that fits.
func (e *editor) await(from int, what string, fits func(message) bool) (m message, at int) {
	e.t.Helper()
	late := time.AfterFunc(hang, func() {
		e.mu.Lock()
		e.dead = true
		e.changed.Broadcast()
		e.mu.Unlock()
	})
	defer late.Stop()
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := from; ; i++ {
		for i >= len(e.lines) && !e.dead {
			e.changed.Wait()
		}
		if i >= len(e.lines) {
			e.t.Fatalf("%s did not come; the bridge said:\n%s", what, e.story())
		}
		if fits(e.lines[i]) {
			return e.lines[i], i
		}
	}
}

// story is what the bridge has said last.
func (e *editor) story() string {
	var out strings.Builder
	for _, m := range e.lines[max(0, len(e.lines)-40):] {
		fmt.Fprintf(&out, "%s %s %.300s%.300s %v\n", m.ID, m.Method, m.Params, m.Result, m.Error)
	}
	return out.String()
}

// reply waits for the answer to a request.
func (e *editor) reply(id string) message {
	e.t.Helper()
	m, _ := e.await(0, "the answer to "+id, func(m message) bool { return m.Method == "" && string(m.ID) == id })
	return m
}

// must asks and wants a result.
func (e *editor) must(method, params string) jsontext.Value {
	e.t.Helper()
	m := e.reply(e.send(method, params))
	if m.Error != nil {
		e.t.Fatalf("%s %s: %v", method, params, m.Error)
	}
	return m.Result
}

// open makes a session in a folder and returns its id.
func (e *editor) open(folder string) string {
	e.t.Helper()
	var r acp.OpenResult
	e.decode(e.must(acp.SessionNew, `{"cwd":`+quote(folder)+`,"mcpServers":[]}`), &r)
	return r.SessionID
}

func (e *editor) decode(raw jsontext.Value, to any) {
	e.t.Helper()
	if err := json.Unmarshal(raw, to); err != nil {
		e.t.Fatal(err)
	}
}

func quote(text string) string {
	out, _ := jsontext.AppendQuote(nil, text)
	return string(out)
}

func textPrompt(session, text string) string {
	return `{"sessionId":"` + session + `","prompt":[{"type":"text","text":` + quote(text) + `}]}`
}

// prompt sends a text and returns the request's id.
func (e *editor) prompt(session, text string) string {
	return e.send(acp.SessionPrompt, textPrompt(session, text))
}

// stop waits for the answer to a prompt and returns its stop reason.
func (e *editor) stop(id string) acp.StopReason {
	e.t.Helper()
	m := e.reply(id)
	if m.Error != nil {
		e.t.Fatalf("prompt %s: %v", id, m.Error)
	}
	var r acp.PromptResult
	e.decode(m.Result, &r)
	return r.StopReason
}

// say prompts and waits for the end.
func (e *editor) say(session, text string) acp.StopReason {
	e.t.Helper()
	return e.stop(e.prompt(session, text))
}

// mark is where the lines end now.
func (e *editor) mark() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.lines)
}

// updates are those of a session, from line from on up to line to; -1 is the end.
func (e *editor) updates(session string, from, to int) (list []update) {
	e.mu.Lock()
	lines := e.lines[from:]
	if to >= 0 {
		lines = e.lines[from:to]
	}
	e.mu.Unlock()
	for _, m := range lines {
		if u, ok := updateOf(session, m); ok {
			list = append(list, u)
		}
	}
	return list
}

func updateOf(session string, m message) (u update, ok bool) {
	var p struct {
		SessionID string `json:"sessionId"`
		Update    update `json:"update"`
	}
	if m.Method != acp.SessionUpdate || json.Unmarshal(m.Params, &p) != nil || p.SessionID != session {
		return u, false
	}
	return p.Update, true
}

// awaitUpdate waits for an update of a session.
func (e *editor) awaitUpdate(session string, from int, what string, fits func(update) bool) (u update, at int) {
	e.t.Helper()
	_, at = e.await(from, what, func(m message) bool {
		got, ok := updateOf(session, m)
		if ok && fits(got) {
			u = got
			return true
		}
		return false
	})
	return u, at
}

// conversation is what a person sees of updates: who says what, and the end of
// calls. Chunks of one message are one line.
func conversation(list []update) (out []string) {
	last := ""
	calls := map[string]int{}
	for _, u := range list {
		who := map[string]string{acp.UserChunk: "user", acp.AgentChunk: "agent", acp.ThoughtChunk: "thought"}[u.Kind]
		switch {
		case who != "" && last == who+u.MessageID:
			out[len(out)-1] += u.text()
		case who != "":
			out = append(out, who+": "+u.text())
			last = who + u.MessageID
		case u.Kind == acp.NewToolCall:
			out = append(out, "call: "+u.Title+" "+u.Status)
			calls[u.ID], last = len(out)-1, ""
		case u.Kind == acp.ToolCallUpdate && u.Status != "":
			line := out[calls[u.ID]]
			out[calls[u.ID]] = line[:strings.LastIndexByte(line, ' ')+1] + u.Status
		}
	}
	return out
}
