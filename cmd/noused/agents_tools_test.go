package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"noused/internal/client"
	"noused/internal/client/toolserver"
	"noused/internal/protocol"
)

// serveTools is what nous mcp serve does for a hosted agent: nous --socket SOCKET mcp serve
// --session ID.
func serveTools() {
	if len(os.Args) != 7 || os.Args[1] != "--socket" || os.Args[5] != "--session" {
		fmt.Fprintln(os.Stderr, "nous:", os.Args)
		os.Exit(2)
	}
	o := toolserver.Options{
		Session: os.Args[6], Token: os.Getenv(protocol.TokenVariable), In: os.Stdin, Out: os.Stdout,
		Log: func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) },
	}
	if err := o.At(os.Args[2]).Run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "nous:", err)
		os.Exit(1)
	}
}

// A hosted agent is given the session's tools, and what it calls is a call of its turn,
// told once.
func TestAHostedAgentCallsOurTools(t *testing.T) {
	h := newHost(t, "")
	h.prompt("!servers\n!tools\n" + `!tool ls {"path":"."}` + "\n" +
		`!named c1 mcp__noused__bash {"command":"echo two"}` + "\n!begin c1\n" + `!tool bash {"command":"echo two"}` +
		"\n!done c1\n" + // told before it is called
		`!tool bash {"command":"echo three"}` + "\n" + `!named c2 noused_bash {"command":"echo three"}` +
		"\n!begin c2\n!done c2\n" +
		`!tool nope {}` + "\n" + `!tool bash {"no":1}`)
	got := h.until("run ends completed")
	var calls, says []string // which come by two ways
	for _, line := range got {
		switch word, _, _ := strings.Cut(line, " "); {
		case strings.Contains(line, `"path":"."`):
		case word == "call" || word == "result" || word == "failed":
			calls = append(calls, line)
		case word == "delta:":
			says = append(says, line)
		}
	}
	text := strings.Join(append(calls, says...), "\n")
	for _, want := range []string{
		"delta: servers noused\ndelta: got bash edit find grep job ls read todo write\n",
		"call bash {\"command\":\"echo two\"}\nresult two\ncall bash {\"command\":\"echo three\"}\nresult three\n",
		"delta: got two\ndelta: got three\n",
		`there is no tool "nope"`,
		`failed bad_request: arguments: missing property 'command'`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("got\n%s\nwant %q in it", text, want)
		}
	}
}

// Rules and people are asked about such a call once: when it is made, or before, where the
// agent itself asks.
func TestAHostedAgentsCallOfOurToolIsAskedAboutOnce(t *testing.T) {
	h := newHost(t, "", "[[policy.rule]]\ntool = \"bash\"\ndecision = \"ask\"\ncommand = [\"echo\"]\n"+
		"[[policy.rule]]\ntool = \"bash\"\ndecision = \"deny\"\ncommand = [\"rm\"]")
	const one = `{"command":"echo one"}`
	for option, want := range map[string]string{
		"once": "result one", "deny": "failed denied: the user does not allow this call",
	} {
		h.prompt("!named c1 mcp__noused__bash " + one + "\n!begin c1\n!tool bash " + one + "\n!done c1")
		h.until("asks ask: bash: echo …")
		h.answer(option)
		got := h.until("run ends completed")
		if !slices.Contains(got, want) || count(got, "call ") != 1 {
			t.Errorf("%s: got %q, want %q and one call", option, got, want)
		}
	}

	// The agent asks first.
	h.prompt("!named c1 mcp__noused__bash " + one + "\n!may c1\n!tool bash " + one + "\n!done c1")
	h.until("asks ask: MCP tool")
	h.answer("once")
	got := h.until("run ends completed")
	if !slices.Contains(got, "result one") || count(got, "call ") != 1 || count(got, "asks ") != 0 {
		t.Errorf("got %q, want one call and no other question", got)
	}

	// What it calls then is another thing.
	h.prompt("!named c1 mcp__noused__bash " + one + "\n!may c1\n" + `!tool bash {"command":"echo other"}` + "\n!done c1")
	h.until("asks ask: MCP tool")
	h.answer("once")
	h.until("asks ask: bash: echo …")
	h.answer("deny")
	if got := h.until("run ends completed"); !slices.Contains(got, "failed denied: the user does not allow this call") {
		t.Errorf("got %q, want the other call denied", got)
	}

	// A rule that denies holds whatever was answered before.
	const rm = `{"command":"rm x"}`
	h.prompt("!named c1 mcp__noused__bash " + rm + "\n!may c1\n!tool bash " + rm + "\n!done c1")
	h.until("asks ask: MCP tool")
	h.answer("once")
	if got := h.until("run ends completed"); !slices.ContainsFunc(got, func(line string) bool {
		return strings.HasPrefix(line, "failed forbidden: ")
	}) {
		t.Errorf("got %q, want the call forbidden", got)
	}
}

// What an agent makes of a yes is the call that was allowed, or another question: it cannot change the arguments once
// they were shown, have a rule for one of our tools allow another, or call one that is not active.
func TestAHostedAgentCallsWhatWasAllowed(t *testing.T) {
	h := newHost(t, "", "[[policy.rule]]\ntool = \"bash\"\ndecision = \"ask\"\ncommand = [\"echo\"]\n"+
		"[[policy.rule]]\ntool = \"read\"\ndecision = \"allow\"\npath = [\"**\"]")
	ends := func(with string) {
		t.Helper()
		if got := h.until("run ends completed"); !slices.Contains(got, with) {
			t.Errorf("got %q, want %q", got, with)
		}
	}
	const one, other = `{"command":"echo one"}`, `{"command":"echo other"}`
	h.prompt("!named c1 mcp__noused__bash " + one + "\n!may c1\n" +
		`!tell {"sessionUpdate":"tool_call_update","toolCallId":"c1","rawInput":` + other + "}\n" +
		"!tool bash " + other + "\n!done c1")
	h.until("asks ask: MCP tool")
	h.answer("once")
	h.until("asks ask: bash: echo …")
	h.answer("deny")
	ends("failed denied: the user does not allow this call")

	h.prompt(`!tell {"sessionUpdate":"tool_call","toolCallId":"c2","title":"noused_bash","kind":"read","status":"pending",` +
		`"locations":[{"path":"README"}],"rawInput":` + one + "}\n!may c2\n!tool bash " + one + "\n!done c2")
	h.until("asks ask: bash: echo …")
	h.answer("deny")
	ends("failed denied: the user does not allow this call")

	const write = `{"path":"notes.txt","content":"x","outside_sandbox":true,"reason":"to take notes"}`
	h.prompt("!named c4 mcp__noused__write " + write + "\n!may c4\n!run ln -s other.txt notes.txt\n!tool write " + write +
		"\n!done c4")
	h.until("asks ask: MCP tool")
	h.answer("once")
	h.until("asks ask: write outside the sandbox")
	h.answer("deny")
	ends("failed denied: the user does not allow this call")

	if _, err := client.Call(context.Background(), h.dial(), protocol.SetActiveTools, protocol.SetActiveToolsParams{
		Scope: protocol.Scope{SessionID: h.state().SessionID}, Tools: []string{"read"},
	}); err != nil {
		t.Fatal(err)
	}
	h.prompt("!named c3 mcp__noused__bash " + one + "\n!may c3\n!tool bash " + one + "\n!done c3")
	h.until("asks ask: MCP tool")
	h.answer("once")
	ends("failed forbidden: bash is not active in this session")
}

// What a hosted agent leaves unsaid on its socket takes nothing of what people's lines may have.
func TestPeopleHaveTheirLinesBesideAHostedAgent(t *testing.T) {
	h := newHost(t, "")
	half := `{"v":"1","id":"h","type":"call_tool","payload":{"name":"` + strings.Repeat("x", 12<<20)
	for range 2 {
		conn, err := net.Dial("unix", h.Socket+".agents")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte(half)); err != nil {
			t.Fatal(err)
		}
	}
	conn, err := net.Dial("unix", h.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, `{"v":"1","id":"p","type":"ping","payload":{"pad":%q}}`+"\n", strings.Repeat("x", 15<<20))
	if said, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(said, `"pong"`) {
		t.Errorf("a long line of a person's gets %s, %v", said, err)
	}
}

func count(lines []string, prefix string) (n int) {
	for _, line := range lines {
		if strings.HasPrefix(line, prefix) {
			n++
		}
	}
	return n
}

// An abort ends the call and what it has started; so does an agent that takes it back.
func TestAnAbortEndsAHostedAgentsCallOfOurTool(t *testing.T) {
	h := newHost(t, "")
	mark := fmt.Sprintf("%d.%d", 1000+os.Getpid()%1000, time.Now().UnixNano())
	h.prompt(`!tool bash {"command":"echo on; sleep ` + mark + `"}`)
	h.until(`call bash {"command":"echo on; sleep ` + mark + `"}`)
	h.abort()
	h.until("run ends aborted")
	if out, _ := exec.Command("pgrep", "-f", "sleep "+mark).Output(); len(out) > 0 {
		t.Errorf("it still runs: process %s", out)
	}
	h.prompt(`!tool bash {"command":"echo again"}`)
	if got := h.until("run ends completed"); !slices.Contains(got, "result again") {
		t.Errorf("got %q, want another call made", got)
	}
}

// An agent in the sandbox reaches the tools of its session.
func TestASandboxedAgentCallsOurTools(t *testing.T) {
	h := newHost(t, "", "sandbox = true")
	h.prompt(`!tool bash {"command":"echo from inside"}`)
	if got := h.until("run ends completed"); !slices.Contains(got, "result from inside") {
		t.Errorf("got %q, want the call made", got)
	}
}

// A token opens its own session, also after the daemon was killed, and nothing else.
func TestTheTokenOfASession(t *testing.T) {
	h := newHost(t, "load")
	h.prompt("!servers")
	h.until("run ends completed")
	key, err := openTokens(filepath.Join(h.Dir, "state"))
	if err != nil {
		t.Fatal(err)
	}
	other := h.newSession("scripted")
	ours := h.newSession(protocol.OwnAgent)
	list := func(socket, session, token string) error {
		c, err := client.Dial(context.Background(), socket)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		_, err = client.Call(context.Background(), c, protocol.ListTools, protocol.ListToolsParams{
			Scope: protocol.Scope{SessionID: session}, Token: token,
		})
		return err
	}
	door := protocol.AgentSocket(h.Socket)
	check := func() {
		t.Helper()
		if err := list(door, h.session, key.of(h.session)); err != nil {
			t.Errorf("its own session: %v", err)
		}
		for _, is := range []struct{ session, token string }{
			{other, key.of(h.session)},
			{h.session, ""},
			{h.session, key.of(h.session) + "00"},
			{h.session, "x"},
			{"", key.of("")},
		} {
			if err := list(door, is.session, is.token); err == nil {
				t.Errorf("session %q with token %q is let in", is.session, is.token)
			}
		}
	}
	check()
	h.Kill()
	h.Start()
	check()

	call := func(session, token string) error {
		c, err := client.Dial(context.Background(), door)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		_, err = client.Call(context.Background(), c, protocol.CallTool, protocol.CallToolParams{
			Scope: protocol.Scope{SessionID: session}, Token: token, Name: "ls",
		})
		return err
	}
	for session, want := range map[string]string{
		h.session: "scripted has no turn under way", ours: "has no hosted agent", other: "scripted has no turn under way",
	} {
		if err := call(session, key.of(session)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	conn, err := net.Dial("unix", protocol.EventSocket(door))
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.SubscribeOver(context.Background(), conn, protocol.SubscribeParams{SessionID: h.session})
	if err == nil || !strings.Contains(err.Error(), "forbidden") {
		t.Errorf("got %v, want events refused without a token", err)
	}
	w := dialWire(t, door)
	w.send(`{"id":"1","type":"get_state","payload":{}}`)
	if r := w.recv(); r.OK {
		t.Errorf("got %+v, want get_state refused where agents connect", r)
	}
	for _, file := range []string{"agent/log"} {
		text, _ := os.ReadFile(filepath.Join(h.Dir, file))
		if strings.Contains(string(text), key.of(h.session)) {
			t.Errorf("%s has the token", file)
		}
	}
}

// What an agent outside the daemon calls is a run of its own, and people are asked. One that
// goes away takes its call back.
func TestAnAgentOutsideCallsOurTools(t *testing.T) {
	h := newHost(t, "", "[[policy.rule]]\ntool = \"bash\"\ndecision = \"ask\"\ncommand = [\"echo\"]")
	h.session = h.newSession(protocol.OwnAgent)
	call := func(ctx context.Context, command string) (chan protocol.ToolCalled, *client.Client) {
		done, c := make(chan protocol.ToolCalled, 1), h.dial()
		go func() {
			defer close(done)
			r, err := client.Call(ctx, c, protocol.CallTool, protocol.CallToolParams{
				Scope: protocol.Scope{SessionID: h.session}, Name: "bash", Client: "somebody",
				Arguments: []byte(fmt.Sprintf(`{"command":%q}`, command)),
			})
			if err == nil {
				done <- r
			}
		}()
		return done, c
	}
	first, _ := call(t.Context(), "echo out")
	h.until("asks ask: bash: echo …")
	second, _ := call(t.Context(), "true") // waits until the first has ended
	pending := h.state().PendingApprovals
	if _, err := client.Call(context.Background(), h.dial(), protocol.Approve, protocol.ApproveParams{
		ApprovalID: pending[0].ApprovalID, Option: "once",
	}); err != nil {
		t.Fatal(err)
	}
	h.wants(h.until("run ends completed"), "answered allowed", `call bash {"command":"echo out"}`, "result out",
		"turn ends end", "run ends completed")
	if r := <-first; !r.OK || r.Result != "out" {
		t.Errorf("got %+v, want what it said", r)
	}
	h.wants(h.until("run ends completed"), "turn prompt", "user: [somebody calls bash]", "message tool_calls: ",
		`call bash {"command":"true"}`, "result [no output]", "turn ends end", "run ends completed")
	<-second

	_, c := call(t.Context(), "echo never")
	h.until("asks ask: bash: echo …")
	_ = c.Close()
	h.until("run ends aborted")

	// The daemon is killed while it asks: the caller has gone with it.
	_, _ = call(t.Context(), "echo killed")
	h.until("asks ask: bash: echo …")
	h.Kill()
	h.Start()
	h.follow()
	h.until("run ends completed")
	if st := h.state(); len(st.PendingApprovals) > 0 || st.RunState != protocol.StateIdle {
		t.Errorf("got %+v, want nothing left", st)
	}
}

// What the daemon has started calls nothing without a token.
func TestToolsAreNotForDescendants(t *testing.T) {
	h := newHost(t, "")
	ours := h.newSession(protocol.OwnAgent)
	h.prompt("!run " + sayCommand + " " + h.Socket + ` '{"id":"1","type":"call_tool","payload":{"session_id":"` + ours +
		`","name":"ls"}}'`)
	got := strings.Join(h.until("run ends completed"), "\n")
	if !strings.Contains(got, "call_tool is for people") {
		t.Errorf("got %s, want it refused", got)
	}
}

// An agent is given the servers of mcp.json that it can start as they are, and its folder's
// once they are trusted, unless it is to have no tools.
func TestTheServersThatAHostedAgentIsGiven(t *testing.T) {
	h := newHost(t, "", "[agent.bare]\ncommand = [\"scripted-agent\"]\ntools = false")
	h.write("noused/mcp.json", `{"mcpServers":{"plain":{"command":"true","env":{"A":"b"}},"boxed":{"command":"true",
"sandbox":"workdir"},"some":{"command":"true","tools":["x"]},"off":{"command":"true","disabled":true},
"far":{"url":"https://example.org/mcp","type":"http"}}}`, 0o600)
	h.prompt("!servers")
	if got := h.until("run ends completed"); !slices.Contains(got, "delta: servers noused plain") {
		t.Errorf("got %q, want ours and plain", got)
	}
	h.session = h.newSession("bare")
	h.prompt("!servers")
	if got := h.until("run ends completed"); !slices.Contains(got, "delta: servers") {
		t.Errorf("got %q, want none", got)
	}
}
