package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"noused/internal/client"
	"noused/internal/protocol"
)

// aimock is somebody else's idea of the vendors' servers: an npm package, pinned
// with its hash in testdata/aimock, with no dependencies. It is fetched once
// into the user's cache. Where there is no Node, or no registry, its tests are
// skipped.
const (
	aimockKey = "sk-the-right-one"
	fetchTime = 2 * time.Minute
)

// aimockProgram returns the program of the installed package.
func aimockProgram(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"node", "npm"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("aimock needs %s, which is not installed", name)
		}
	}
	var files [2][]byte
	names := [...]string{"package.json", "package-lock.json"}
	for i, name := range names {
		var err error
		if files[i], err = os.ReadFile(filepath.Join("testdata", "aimock", name)); err != nil {
			t.Fatal(err)
		}
	}
	cache, err := os.UserCacheDir()
	if err == nil {
		cache = filepath.Join(cache, "noused-test")
		err = os.MkdirAll(cache, 0o700)
	}
	if err != nil {
		cache = t.TempDir()
	}
	installed := filepath.Join(cache, fmt.Sprintf("aimock-%x", sha256.Sum256(files[1]))[:23])
	program := filepath.Join(installed, "node_modules", "@copilotkit", "aimock", "dist", "cli.js")
	if _, err := os.Stat(program); err == nil {
		return program
	}
	// The first to rename what is complete wins.
	dir, err := os.MkdirTemp(cache, "fetching-")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for i, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), files[i], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), fetchTime)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "ci", "--engine-strict", "--ignore-scripts", "--no-audit", "--no-fund",
		"--fetch-retries", "0", "--fetch-timeout", "20000")
	npm.Dir, npm.WaitDelay = dir, time.Second
	out, err := npm.CombinedOutput()
	switch {
	case bytes.Contains(out, []byte("EINTEGRITY")):
		t.Fatalf("the registry's aimock is not the one that is pinned: %s", out)
	case err != nil:
		t.Skipf("aimock cannot be fetched: %v\n%s", err, out)
	}
	if err := os.Rename(dir, installed); err != nil {
		if _, err := os.Stat(program); err != nil {
			t.Fatal(err)
		}
	}
	return program
}

// startAimock starts the server and returns its address.
func startAimock(t *testing.T, program, fixtures string) string {
	t.Helper()
	cmd := exec.Command("node", program, "--port", "0", "--strict", "--validate-on-load",
		"--fixtures", fixtures)
	cmd.Env = append(os.Environ(), "AIMOCK_API_KEYS="+aimockKey)
	out, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = write, write
	err = cmd.Start()
	_ = write.Close()
	if err != nil {
		_ = out.Close()
		t.Fatal(err)
	}
	var log bytes.Buffer
	var all sync.WaitGroup
	address := make(chan string, 1)
	all.Go(func() {
		in := bufio.NewScanner(io.TeeReader(out, &log))
		for in.Scan() {
			if _, at, ok := strings.Cut(in.Text(), "listening on "); ok {
				address <- at
			}
		}
		close(address)
	})
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		all.Wait()
		_ = out.Close()
		if t.Failed() {
			t.Logf("aimock's log:\n%s", log.Bytes())
		}
	})
	late := time.AfterFunc(hangTime, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	at, ok := <-address
	if !ok {
		t.Fatal("aimock ended before it was ready")
	}
	return at
}

// relay carries connections to a server. It tells when a client gives one up,
// which the server does not, and can stop an answer in its middle.
type relay struct {
	url     string
	last    atomic.Pointer[carried]
	mark    string        // the answer that says so is held there
	release chan struct{} // until this is closed
}

// carried is one connection.
type carried struct {
	gone chan struct{} // closed once the client's end is
	at   time.Time     // when that was seen
}

func newRelay(t *testing.T, target, mark string) *relay {
	t.Helper()
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{url: "http://" + ln.Addr().String(), mark: mark, release: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		_ = ln.Close()
		all.Wait()
	})
	all.Go(func() {
		for {
			from, err := ln.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to.Host)
			if err != nil {
				t.Error(err)
				_ = from.Close()
				return
			}
			c := &carried{gone: make(chan struct{})}
			r.last.Store(c)
			context.AfterFunc(ctx, func() { _, _ = from.Close(), server.Close() })
			all.Go(func() {
				_, _ = io.Copy(server, from)
				c.at = time.Now()
				close(c.gone)
				_ = server.Close()
			})
			all.Go(func() {
				r.answer(ctx, from, server)
				_ = from.Close()
			})
		}
	})
	return r
}

// answer hands on lines, and holds after the event with the mark.
func (r *relay) answer(ctx context.Context, to io.Writer, from io.Reader) {
	in := bufio.NewReader(from)
	for marked := false; ; {
		line, err := in.ReadSlice('\n')
		if _, werr := to.Write(line); werr != nil || err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
		if marked && string(line) == "\n" {
			select {
			case <-r.release:
			case <-ctx.Done():
			}
			marked = false
		}
		marked = marked || bytes.Contains(line, []byte(r.mark))
	}
}

// mocked is a daemon whose model is aimock.
type mocked struct {
	*daemon
	c     *client.Client
	relay *relay
	url   string // aimock's own
}

func newMocked(t *testing.T, program string, v strictVendor) *mocked {
	t.Helper()
	examples, err := filepath.Abs("../../examples/tools")
	if err != nil {
		t.Fatal(err)
	}
	m := &mocked{url: startAimock(t, program, filepath.Join("testdata", "aimock", "fixtures.json"))}
	m.relay = newRelay(t, m.url, "HOLD")
	m.daemon = unstarted(t, "noused", "--tools-dir", examples, "--config", modelConfig(t, v.provider(), m.relay.url+"/v1",
		testKey, v.wireLine()))
	m.withMany()
	m.Start()
	m.awaitMany()
	m.c = m.dial()
	return m
}

func (m *mocked) session(t *testing.T) protocol.Scope {
	t.Helper()
	s, err := client.Call(context.Background(), m.c, protocol.NewSession, protocol.NewSessionParams{})
	if err != nil {
		t.Fatal(err)
	}
	return protocol.Scope{SessionID: s.SessionID}
}

// wantAnswer prompts and wants an answer.
func (m *mocked) wantAnswer(t *testing.T, scope protocol.Scope, text, want string) protocol.PromptResult {
	t.Helper()
	r, err := client.Call(context.Background(), m.c, protocol.Prompt, protocol.PromptParams{Scope: scope, Text: text})
	if err != nil || r.Result.Output != want {
		t.Fatalf("%s got %+v, %v, want %q", text, r.Result, err, want)
	}
	return *r.Result
}

// startRun prompts without waiting for the end, and returns the run.
func (m *mocked) startRun(t *testing.T, scope protocol.Scope, text string) string {
	t.Helper()
	no := false
	r, err := client.Call(context.Background(), m.c, protocol.Prompt, protocol.PromptParams{
		Scope: scope, Text: text,
		Wait: &no,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r.Accepted.RunID
}

// exchange is a request as aimock understood it, in OpenAI's words for all
// wires, and what it answered.
type exchange struct {
	Body struct {
		Messages []exchanged `json:"messages"`
	} `json:"body"`
	Response struct {
		Status int `json:"status"`
	} `json:"response"`
}

type exchanged struct {
	Role      string `json:"role"`
	Content   any    `json:"content"`
	ToolCalls []struct {
		ID       string `json:"id"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	} `json:"tool_calls"`
	ToolCallID string `json:"tool_call_id"`
}

// roles says of a request who speaks in turn, with the initials of user,
// assistant and tool.
func (e exchange) roles() (all string) {
	for _, m := range e.Body.Messages {
		if m.Role != "system" {
			all += m.Role[:1]
		}
	}
	return all
}

// merge makes one message of what the assistant says in a row: items of the
// Responses API come one by one.
func (e *exchange) merge() {
	var out []exchanged
	for _, m := range e.Body.Messages {
		if n := len(out) - 1; n >= 0 && m.Role == "assistant" && out[n].Role == m.Role {
			out[n].ToolCalls = append(out[n].ToolCalls, m.ToolCalls...)
			continue
		}
		out = append(out, m)
	}
	e.Body.Messages = out
}

// heard are the requests of the session that began with a text.
func (m *mocked) heard(t *testing.T, first string) (of []exchange) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, m.url+"/__aimock/journal", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", aimockKey)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var all []exchange
	if err := json.UnmarshalRead(resp.Body, &all); err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		e.merge()
		for _, said := range e.Body.Messages {
			if said.Role == "user" {
				if said.Content == first {
					of = append(of, e)
				}
				break
			}
		}
	}
	return of
}

// The scenarios of a person's day against a server that is not ours, over all
// wires. It refuses a request without the key, or one that it has no answer for.
func TestAimock(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	program := aimockProgram(t)
	t.Setenv("TEST_KEY", aimockKey)
	t.Setenv("OPENAI_API_KEY", "sk-the-wrong-one")
	t.Setenv("ANTHROPIC_API_KEY", "sk-the-wrong-one")
	for _, v := range []strictVendor{{wire: "chat"}, {wire: "messages"}, {wire: "responses"}} {
		t.Run(v.wire, func(t *testing.T) {
			t.Parallel()
			m := newMocked(t, program, v)
			t.Run("turns with tools", m.turnsWithTools)
			t.Run("several calls at once", m.severalCalls)
			t.Run("a tool among 500", m.findsATool)
			t.Run("steer in the middle", m.steerInTheMiddle)
			t.Run("abort in the middle", m.abortInTheMiddle)
			t.Run("errors", m.errors)
			t.Run("wrong key", func(t *testing.T) { m.wrongKey(t, v) })
		})
	}
}

// Two prompts, one with the daemon's own tool and one with an example's, whose
// name the vendors do not take as it is.
func (m *mocked) turnsWithTools(t *testing.T) {
	m.write("plan.txt", "Ship on Friday.\n", 0o600)
	scope := m.session(t)
	m.wantAnswer(t, scope, "When do we ship?", "On Friday.")
	r := m.wantAnswer(t, scope, "Name the release", "on-friday.md")
	told := fmt.Sprintf("%s", r.Events)
	for _, want := range []string{`"tool_name":"slug.make"`, `"thinking_delta":"A slug will do."`} {
		if !strings.Contains(told, want) {
			t.Errorf("no event has %s: %s", want, told)
		}
	}
	got := m.heard(t, "When do we ship?")
	var roles []string
	for _, e := range got {
		roles = append(roles, e.roles())
	}
	if want := "u uat uatau uatauat"; strings.Join(roles, " ") != want {
		t.Fatalf("asked %s, want %s", roles, want)
	}
	all := got[3].Body.Messages
	for i, said := range all {
		if said.Role == "tool" && (len(all[i-1].ToolCalls) != 1 || said.ToolCallID != all[i-1].ToolCalls[0].ID) {
			t.Errorf("a result for %s after the calls %+v", said.ToolCallID, all[i-1].ToolCalls)
		}
	}
}

// A tool that has to be found first.
func (m *mocked) findsATool(t *testing.T) {
	m.wantAnswer(t, m.session(t), "Polish the 317th widget", "It shines.")
	var roles []string
	for _, e := range m.heard(t, "Polish the 317th widget") {
		roles = append(roles, e.roles())
	}
	if want := "u uat uatat"; strings.Join(roles, " ") != want {
		t.Errorf("asked %s, want %s", roles, want)
	}
}

// Three calls in one message, one of which fails: each has its own result, in
// order.
func (m *mocked) severalCalls(t *testing.T) {
	m.write("a.txt", "text of a\n", 0o600)
	m.write("c.txt", "text of c\n", 0o600)
	m.wantAnswer(t, m.session(t), "Compare the three", "One is missing.")
	got := m.heard(t, "Compare the three")
	if len(got) != 2 || got[1].roles() != "uattt" {
		t.Fatalf("got %+v", got)
	}
	all := got[1].Body.Messages
	calls, results := all[len(all)-4].ToolCalls, all[len(all)-3:]
	for i, want := range []string{"text of a", "missing.txt", "text of c"} {
		if r := results[i]; r.ToolCallID != calls[i].ID || !strings.Contains(fmt.Sprint(r.Content), want) {
			t.Errorf("call %d, %+v, got %+v, want %s", i, calls[i], r, want)
		}
	}
}

// A steer while the answer comes: the answer is finished and kept, the steer is
// the next turn of the same run.
func (m *mocked) steerInTheMiddle(t *testing.T) {
	scope, events := m.session(t), m.events(protocol.SubscribeParams{})
	run := m.startRun(t, scope, "Count to four")
	await(t, events, func(ev protocol.Event) bool {
		update, ok := ev.(protocol.MessageUpdate)
		return ok && strings.Contains(update.Delta, "HOLD")
	})
	if _, err := client.Call(context.Background(), m.c, protocol.Steer,
		protocol.SteerParams{Scope: scope, Text: "In French"}); err != nil {
		t.Fatal(err)
	}
	close(m.relay.release)
	kinds := ""
	end := await(t, events, func(ev protocol.Event) bool {
		if start, ok := ev.(protocol.TurnStart); ok {
			kinds += string(start.Kind)
		}
		return endOf(run)(ev)
	}).(protocol.AgentEnd)
	if end.StopReason != "completed" || end.Turns != 2 || kinds != "steer" {
		t.Errorf("got %+v after a turn of %q", end, kinds)
	}
	got := m.heard(t, "Count to four")
	if len(got) != 2 || got[1].roles() != "uau" {
		t.Fatalf("got %+v", got)
	}
	if all := got[1].Body.Messages; all[len(all)-2].Content != "Counting: one, two. HOLD; three, four." {
		t.Errorf("of the answer there is %v", all[len(all)-2].Content)
	}
}

// An abort while the answer comes closes the connection at once; what had come
// is kept, and the session goes on.
func (m *mocked) abortInTheMiddle(t *testing.T) {
	scope, events := m.session(t), m.events(protocol.SubscribeParams{})
	run := m.startRun(t, scope, "Tell a long story")
	await(t, events, func(ev protocol.Event) bool {
		update, ok := ev.(protocol.MessageUpdate)
		return ok && update.Delta != ""
	})
	conn := m.relay.last.Load()
	select {
	case <-conn.gone:
		t.Fatal("the connection was given up before the abort")
	default:
	}
	begun := time.Now()
	if _, err := client.Call(context.Background(), m.c, protocol.Abort, protocol.AbortParams{Scope: scope}); err != nil {
		t.Fatal(err)
	}
	replied := time.Now()
	select {
	case <-conn.gone:
		t.Logf("the connection was closed %s after the abort was sent, %s after its reply", conn.at.Sub(begun),
			conn.at.Sub(replied))
	case <-time.After(hangTime): // a tenth of a second is meant
		t.Fatal("the connection is still open")
	}
	if end := await(t, events, endOf(run)).(protocol.AgentEnd); end.StopReason != "aborted" {
		t.Errorf("got %+v", end)
	}
	m.wantAnswer(t, scope, "Never mind", "As you like.")
	got := m.heard(t, "Tell a long story")
	if len(got) != 2 || got[1].roles() != "uau" {
		t.Fatalf("got %+v", got)
	}
	all := got[1].Body.Messages
	if kept := fmt.Sprint(all[len(all)-2].Content); kept == "" || !strings.HasPrefix("Once upon a time there was", kept) {
		t.Errorf("kept %q", kept)
	}
}

// Errors that pass, which are told and tried again, and errors that do not: a
// refusal is tried once more, with simpler schemas of tools, an answer that breaks
// off twice.
func (m *mocked) errors(t *testing.T) {
	cases := []struct {
		text, output string
		err          string // or what the run ends with
		told         string // what an event says on the way
		statuses     string
	}{
		{text: "Are you busy?", output: "Not any more.", told: "attempt 2 in 1s: ", statuses: "[429 200]"},
		{text: "Are you well?", output: "Well again.", told: "something broke", statuses: "[500 200]"},
		{text: "Are you allowed?", err: "this is not for you", statuses: "[400 400]"},
		{text: "Are you there?", err: "broke off", statuses: "[200 200 200]"},
	}
	type ended struct {
		r   protocol.PromptReply
		err error
	}
	scopes, ends := make([]protocol.Scope, len(cases)), make([]ended, len(cases))
	var all sync.WaitGroup
	for i, c := range cases {
		scopes[i] = m.session(t)
		all.Go(func() {
			ends[i].r, ends[i].err = client.Call(context.Background(), m.c, protocol.Prompt,
				protocol.PromptParams{Scope: scopes[i], Text: c.text})
		})
	}
	all.Wait()
	for i, c := range cases {
		t.Run(c.text, func(t *testing.T) {
			var statuses []int
			for _, e := range m.heard(t, c.text) {
				statuses = append(statuses, e.Response.Status)
			}
			if fmt.Sprint(statuses) != c.statuses {
				t.Errorf("the server answered %d, want %s", statuses, c.statuses)
			}
			if c.err != "" {
				if err := ends[i].err; err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("got %v, want %s", err, c.err)
				}
				return
			}
			if ends[i].err != nil {
				t.Fatal(ends[i].err)
			}
			r := ends[i].r.Result
			if told := fmt.Sprintf("%s", r.Events); r.Output != c.output || !strings.Contains(told, `"code":"provider_retry"`) ||
				!strings.Contains(told, c.told) {
				t.Errorf("got %q after %s", r.Output, told)
			}
		})
	}
	// Of an answer that broke off there is what had come.
	got, err := client.Call(context.Background(), m.c, protocol.GetMessages, protocol.GetMessagesParams{Scope: scopes[3]})
	if err != nil {
		t.Fatal(err)
	}
	last := string(got.Messages[len(got.Messages)-1])
	if !strings.Contains(last, `"role":"assistant"`) || !strings.Contains(last, "I am here") ||
		strings.Contains(last, "between") {
		t.Errorf("kept %s", last)
	}
}

// A key that the server does not know: what it says is told, the key is not.
func (m *mocked) wrongKey(t *testing.T, v strictVendor) {
	d := newDaemon(t, "--config", modelConfig(t, v.provider(), m.url+"/v1", v.wireLine()))
	_, err := client.Call(context.Background(), d.dial(), protocol.Prompt, protocol.PromptParams{Text: "Let me in"})
	if err == nil || !strings.Contains(err.Error(), "Invalid API key") || strings.Contains(err.Error(), "wrong-one") {
		t.Errorf("got %v", err)
	}
}
