package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"noused/internal/client"
	"noused/internal/protocol"
	"noused/internal/protocol/protocoltest"
	"noused/internal/testenv"
)

func TestBadInputCostsNobodyElse(t *testing.T) {
	d := newDaemon(t)
	other := d.commands()
	w := d.commands()
	command := func(typ, payload string) string {
		return `{"v":"1","id":"x","type":"` + typ + `","payload":` + payload + `}`
	}
	for name, c := range map[string]struct{ line, id, code, message string }{
		"not JSON":              {`hello`, "", "invalid_command", "invalid_json"},
		"cut off":               {`{"id":"x","type":"ping"`, "x", "invalid_command", "invalid_json"},
		"not an object":         {`[1,2]`, "", "invalid_command", "invalid_json"},
		"two objects on a line": {`{"id":"x","type":"ping"}{}`, "x", "invalid_command", "invalid_json"},
		"a key twice":           {`{"id":"x","type":"ping","type":"abort"}`, "x", "invalid_command", "invalid_json"},
		"wrong version":         {`{"v":"2","id":"x","type":"ping"}`, "x", "invalid_command", "invalid_version"},
		"no id":                 {`{"v":"1","type":"ping"}`, "", "invalid_command", "missing_id"},
		"id is a number":        {`{"v":"1","id":7,"type":"ping"}`, "", "invalid_command", "missing_id"},
		"no type":               {`{"v":"1","id":"x"}`, "x", "invalid_command", "missing_type"},
		"unknown command":       {command("dance", `{}`), "x", "invalid_command", "unknown_command"},
		"upper case key":        {`{"v":"1","id":"x","TYPE":"ping"}`, "x", "invalid_command", "missing_type"},
		"payload is an array":   {command("ping", `[]`), "x", "invalid_payload", "payload"},
		"invalid UTF-8":         {command("prompt", "{\"text\":\"\xff\"}"), "x", "invalid_command", "invalid_json"},
		"10,000 deep": {
			command("prompt", strings.Repeat(`{"a":`, 10_000)+"1"+strings.Repeat("}", 10_000)), "x",
			"invalid_command", "invalid_json",
		},
		"no text":    {command("prompt", `{}`), "x", "invalid_payload", "text"},
		"empty text": {command("steer", `{"text":""}`), "x", "invalid_payload", "text"},
		"text is a number": {
			command("prompt", `{"text":1}`), "x", "invalid_payload",
			"text: got a number, want a string",
		},
		"wait is a string": {
			command("prompt", `{"text":"a","wait":"no"}`), "x", "invalid_payload",
			"wait: got a string, want a boolean",
		},
		"unknown behaviour": {
			command("prompt", `{"text":"a","streaming_behavior":"x"}`), "x", "invalid_payload",
			"streaming_behavior",
		},
		"unknown mode":        {command("set_steering_mode", `{"mode":"some"}`), "x", "invalid_payload", "mode"},
		"tools missing":       {command("set_active_tools", `{}`), "x", "invalid_payload", "tools"},
		"tools hold a number": {command("set_active_tools", `{"tools":["a",1]}`), "x", "invalid_payload", "tools.1"},
		"unknown tool": {
			command("set_active_tools", `{"tools":["nope"]}`), "x", "command_rejected",
			"tool_not_registered",
		},
		"unknown operation": {
			command("extension_command", `{"name":"nope.nope"}`), "x", "command_rejected",
			"extension_command_not_found",
		},
		"arguments no object": {
			command("extension_command", `{"name":"a.b","payload":[1]}`), "x", "invalid_payload",
			"payload",
		},
		"unknown session": {
			command("get_messages", `{"session_id":"ses-nowhere"}`), "x", "session_not_found",
			"session_id",
		},
		"a path as session": {
			command("get_messages", `{"session_id":"../../etc/passwd"}`), "x", "session_not_found",
			"session_id",
		},
		"switch to nowhere": {command("switch_session", `{"session_id":"../x"}`), "x", "session_not_found", "session_id"},
		"branch from nowhere": {
			command("branch_session", `{"parent_id":"ses-nowhere"}`), "x", "session_not_found",
			"session_id",
		},
		"branch from nothing":  {command("branch_session", `{}`), "x", "invalid_payload", "session_id"},
		"unknown leaf":         {command("prompt", `{"text":"a","leaf_id":"msg-nowhere"}`), "x", "session_error", "leaf_id"},
		"unknown leaf to set":  {command("set_leaf", `{"leaf_id":"msg-nowhere"}`), "x", "session_error", "leaf_id"},
		"limit out of range":   {command("list_sessions", `{"limit":0}`), "x", "invalid_payload", "limit"},
		"steer while idle":     {command("steer", `{"text":"a"}`), "x", "command_rejected", "no_active_run"},
		"follow-up while idle": {command("follow_up", `{"text":"a"}`), "x", "command_rejected", "no_active_run"},
		"abort while idle":     {command("abort", `{}`), "x", "command_rejected", "no_active_run"},
		"nothing to compact":   {command("compact_session", `{}`), "x", "command_rejected", "nothing_to_compact"},
		"a line of 17 MiB": {
			command("prompt", `{"text":"`+strings.Repeat("a", 17<<20)+`"}`), "x", "invalid_command",
			"line_too_long",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w.t, other.t = t, t
			got := w.request(c.line)
			if got.OK || got.Error == nil || got.Type != "error" || got.V != "1" {
				t.Fatalf("got %+v, want an error", got)
			}
			if got.ID != c.id && name != "a line of 17 MiB" || string(got.Error.Code) != c.code ||
				!strings.HasPrefix(got.Error.Message, c.message) {
				t.Errorf("got id %q, %s, %s\nwant id %q, %s, %s…", got.ID, got.Error.Code, got.Error.Message, c.id, c.code,
					c.message)
			}
			for _, alive := range []*wire{w, other} {
				if pong := alive.request(command("ping", `{}`)); !pong.OK || pong.Type != "pong" {
					t.Errorf("afterwards a ping gets %+v", pong)
				}
			}
		})
	}
}

// A client that knows nothing but what v1 froze, and closes its write side at
// once, as socat does.
func TestFrozenClientWithHalfClose(t *testing.T) {
	d := newDaemon(t)
	w := d.commands()
	w.send(`{"v":1,"id":"a","type":"prompt","payload":{"text":"hello there"}}`)
	w.send(`{"id":"b","type":"ping"}` + "\r")
	w.send("")
	if _, err := w.Write([]byte(`{"v":"1","id":"c","type":"get_state","payload":null,"extra":[1]}`)); err != nil { // no LF
		t.Fatal(err)
	}
	if err := w.Conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got := map[string]response{}
	for range 3 {
		r := w.recv()
		got[r.ID] = r
	}
	if _, err := w.in.Next(); err == nil {
		t.Error("more than the three answers came")
	}
	if r := into[protocol.PromptResult](t, got["a"]); r.Output != "hello there" || len(r.Events) < 8 ||
		got["a"].Type != "result" {
		t.Errorf("got %+v", r)
	}
	if got["b"].Type != "pong" || got["c"].Type != "state" {
		t.Errorf("got %+v", got)
	}
}

// Prompts, each sent the instant the last agent_end is read: none is refused,
// none is lost, each has its one end. NOUSED_PROMPTS makes them more.
func TestManyPrompts(t *testing.T) {
	testenv.Long(t)
	prompts := 1_000
	if text := os.Getenv("NOUSED_PROMPTS"); text != "" {
		var err error
		if prompts, err = strconv.Atoi(text); err != nil {
			t.Fatalf("NOUSED_PROMPTS: %v", err)
		}
	}
	d := newDaemon(t)
	c, events, checker := d.dial(), d.events(protocol.SubscribeParams{}), protocoltest.NewChecker()
	ctx := context.Background()
	no := false
	for n := range prompts {
		if n%500 == 0 {
			if _, err := client.Call(ctx, c, protocol.NewSession, protocol.NewSessionParams{}); err != nil {
				t.Fatal(err)
			}
		}
		r, err := client.Call(ctx, c, protocol.Prompt, protocol.PromptParams{Text: "hello there", Wait: &no})
		if err != nil {
			t.Fatalf("prompt %d: %v", n, err)
		}
		checker.Accepted(r.Accepted.InputID, r.Accepted.RunID)
		await(t, events, func(ev protocol.Event) bool {
			if err := checker.Event(ev); err != nil {
				t.Fatalf("prompt %d: %v", n, err)
			}
			return endOf(r.Accepted.RunID)(ev)
		})
	}
	if err := checker.Done(); err != nil {
		t.Error(err)
	}
}

const shellTool = `{"name":"sh","kind":"tool","protocol":"narratoria","capabilities":["say"],
"transport":{"type":"stdio","command":["./tool.sh"]},"operations":{"say":{"description":"says","params":{"type":"object"}}}}`

const shellScript = `#!/bin/sh
cat >/dev/null
echo '{"version":"0","type":"log","level":"info","message":"working"}'
echo '{"version":"0","type":"state_patch","patch":{"said":true}}'
echo '{"version":"0","type":"done","ok":true,"summary":"said"}'
`

// Several clients at once, over several sessions, with steers, aborts and real
// child processes; one more follows every event and holds them against the
// contract.
func TestInvariantsWithSeveralClients(t *testing.T) {
	rounds := 60
	if testing.Short() {
		rounds = 10
	}
	d := newDaemon(t)
	d.Stop()
	d.write("tools/sh.json", shellTool, 0o600)
	d.write("tools/tool.sh", shellScript, 0o700)
	d.Start()
	events := d.events(protocol.SubscribeParams{})
	slow := dialWire(t, d.Socket+".events") // never reads, and must not matter
	_ = slow
	control := d.dial()
	ctx := context.Background()

	var mu sync.Mutex
	checker, runs := protocoltest.NewChecker(), map[string]bool{}
	accepted := func(in, run string, err error) {
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			checker.Accepted(in, run)
			runs[run] = true
		}
	}
	var clients sync.WaitGroup
	for s := range 3 {
		session, err := client.Call(ctx, control, protocol.NewSession, protocol.NewSessionParams{})
		if err != nil {
			t.Fatal(err)
		}
		scope := protocol.Scope{SessionID: session.SessionID}
		for n := range 3 {
			c, rng := d.dial(), rand.New(rand.NewPCG(uint64(s), uint64(n)))
			clients.Go(func() {
				for range rounds {
					text := []string{"some words to say", "!sh.say\n!sh.say\nand words", "!sh.nope\n?hm"}[rng.IntN(3)]
					no := false
					switch rng.IntN(6) {
					case 0, 1:
						r, err := client.Call(ctx, c, protocol.Prompt, protocol.PromptParams{Scope: scope, Text: text, Wait: &no})
						if err == nil {
							accepted(r.Accepted.InputID, r.Accepted.RunID, nil)
						}
					case 2, 3:
						r, err := client.Call(ctx, c, protocol.Steer, protocol.SteerParams{Scope: scope, Text: text, IfIdle: "prompt"})
						accepted(r.InputID, r.RunID, err)
					case 4:
						r, err := client.Call(ctx, c, protocol.FollowUp, protocol.FollowUpParams{Scope: scope, Text: text})
						accepted(r.InputID, r.RunID, err)
					case 5:
						r, err := client.Call(ctx, c, protocol.Abort, protocol.AbortParams{Scope: scope})
						if err == nil {
							mu.Lock()
							if err := checker.HandedBack(r.Discarded); err != nil {
								t.Error(err)
							}
							mu.Unlock()
						}
					}
				}
			})
		}
	}
	finished := false
	var last sync.WaitGroup
	defer last.Wait()
	last.Go(func() {
		clients.Wait()
		mu.Lock()
		finished = true
		mu.Unlock()
		// One more run, so that there is an event to see this by.
		s, err := client.Call(ctx, control, protocol.NewSession, protocol.NewSessionParams{})
		if err == nil {
			_, err = client.Call(ctx, control, protocol.Prompt,
				protocol.PromptParams{Scope: protocol.Scope{SessionID: s.SessionID}, Text: "the last"})
		}
		if err != nil {
			t.Error(err)
		}
	})
	ended := map[string]bool{}
	for over := false; !over; {
		ev, err := next(events)
		if err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		if err := checker.Event(ev); err != nil {
			t.Fatal(err)
		}
		if _, ok := ev.(protocol.AgentEnd); ok {
			ended[ev.Where().RunID] = true
			over = finished && len(checker.Open()) == 0
			for run := range runs {
				over = over && ended[run]
			}
		}
		mu.Unlock()
	}
	if err := checker.Done(); err != nil {
		t.Error(err)
	}
}

// A client that was cut off in the middle takes up exactly where it was.
func TestSubscribeResumesWithoutLossOrDouble(t *testing.T) {
	d := newDaemon(t)
	c, whole := d.dial(), d.events(protocol.SubscribeParams{})
	ctx, no := context.Background(), false
	var want []string
	var after uint64
	for n := range 20 {
		cut := d.events(protocol.SubscribeParams{Epoch: whole.Epoch(), After: &after})
		r, err := client.Call(ctx, c, protocol.Prompt, protocol.PromptParams{Text: fmt.Sprint("say number ", n), Wait: &no})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for {
			env, line, err := whole.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, string(line))
			ev, err := client.Decode(env)
			if err != nil {
				t.Fatal(err)
			}
			if endOf(r.Accepted.RunID)(ev) {
				break
			}
		}
		if cut.Gap() {
			t.Fatal("a gap is told where nothing is missing")
		}
		for len(got) < len(want) {
			_, line, err := cut.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(line))
		}
		_ = cut.Close()
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("event %d: got %s, want %s", i, got[i], want[i])
			}
		}
		want, after = want[len(want)/2:], after+uint64(len(want)/2)
	}
}

// A daemon killed in the middle of a run goes on with the same run.
func TestKilledInTheMiddle(t *testing.T) {
	d := newDaemon(t)
	d.Stop()
	d.write("tools/sh.json", shellTool, 0o600)
	d.write("tools/tool.sh", "#!/bin/sh\ncat >/dev/null\necho "+
		"'{\"version\":\"0\",\"type\":\"log\",\"level\":\"info\",\"message\":\"in the middle\"}'\nexec sleep 1000\n", 0o700)
	d.Start()
	c, events := d.dial(), d.events(protocol.SubscribeParams{})
	ctx, no := context.Background(), false
	r, err := client.Call(ctx, c, protocol.Prompt, protocol.PromptParams{
		Text: "!sh.say\nwords", Wait: &no,
		IdempotencyKey: "k",
	})
	if err != nil {
		t.Fatal(err)
	}
	await(t, events, func(ev protocol.Event) bool { _, ok := ev.(protocol.ToolUpdate); return ok })
	f, err := client.Call(ctx, c, protocol.FollowUp, protocol.FollowUpParams{Text: "and then"})
	if err != nil {
		t.Fatal(err)
	}
	d.Kill()
	d.Start()
	events = d.events(protocol.SubscribeParams{After: new(uint64)})
	delivered := false
	end := await(t, events, func(ev protocol.Event) bool {
		if start, ok := ev.(protocol.TurnStart); ok && start.Kind == "follow_up" {
			delivered = start.InputIDs[0] == f.InputID
		}
		if _, ok := ev.(protocol.AgentStart); ok {
			t.Error("the run started a second time")
		}
		return endOf(r.Accepted.RunID)(ev)
	}).(protocol.AgentEnd)
	if end.StopReason != "completed" || !delivered {
		t.Errorf("ended %s, follow-up delivered: %t", end.StopReason, delivered)
	}
	again, err := client.Call(ctx, d.dial(), protocol.Prompt, protocol.PromptParams{
		Text: "!sh.say\nwords", Wait: &no,
		IdempotencyKey: "k",
	})
	if err != nil || again.Accepted.RunID != r.Accepted.RunID {
		t.Errorf("the same key again: got %+v, %v", again.Accepted, err)
	}
}

// What a slow reader misses it is told, and nobody waits for it.
func TestSlowReaderIsToldWhatItMissed(t *testing.T) {
	d := newDaemon(t, "--event-buffer", "65536")
	slow := dialWire(t, d.Socket+".events")
	if got := slow.request(`{"v":"1","id":"s","type":"subscribe"}`); got.Type != "subscribed" {
		t.Fatalf("got %+v", got)
	}
	c, events := d.dial(), d.events(protocol.SubscribeParams{})
	ctx, no := context.Background(), false
	var last uint64
	for range 300 {
		r, err := client.Call(ctx, c, protocol.Prompt, protocol.PromptParams{Text: strings.Repeat("word ", 40), Wait: &no})
		if err != nil {
			t.Fatal(err)
		}
		await(t, events, endOf(r.Accepted.RunID))
	}
	last = events.Last()
	seq, told := uint64(0), false
	for seq < last {
		line, err := slow.in.Next()
		if err != nil {
			t.Fatal(err)
		}
		env := decode[protocol.EventEnvelope](t, line)
		if env.Seq == seq+1 {
			seq++
			continue
		}
		gap := decode[protocol.Warning](t, env.Payload)
		if gap.Code != "events_dropped" || gap.FromSeq != seq+1 || gap.ToSeq < gap.FromSeq || env.Seq != gap.ToSeq {
			t.Fatalf("after event %d: got %s", seq, line)
		}
		seq, told = gap.ToSeq, true
	}
	if !told {
		t.Error("the reader missed nothing: the test asks for too little")
	}
}

// What reads the daemon's log may end, and the terminal it was started from
// may close: it goes on.
func TestOutlivesItsLogAndItsTerminal(t *testing.T) {
	d := newDaemon(t)
	d.Stop()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	d.Stderr = write
	d.Start()
	if err := errors.Join(read.Close(), write.Close(), d.Cmd.Process.Signal(syscall.SIGHUP)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := client.Call(context.Background(), d.dial(), protocol.Prompt,
			protocol.PromptParams{Text: "still there?"}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTerminatedWithIdleClients(t *testing.T) {
	d := newDaemon(t)
	w, ev := d.commands(), dialWire(t, d.Socket+".events")
	w.request(`{"id":"a","type":"ping"}`)
	d.Stop()
	for name, c := range map[string]*wire{"command": w, "event": ev} {
		if line, err := c.in.Next(); err == nil {
			t.Errorf("the %s client got %s, want its connection closed", name, line)
		}
	}
	for _, path := range []string{d.Socket, d.Socket + ".events"} {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s is still there (%v)", path, err)
		}
	}
}
