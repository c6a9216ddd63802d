package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"noused/internal/client"
	"noused/internal/protocol"
)

// The rows of docs/performance.md, Memory: what somebody hostile makes the daemon
// take at most. `make memory` runs all of them at their full size.

// peaks is a daemon with a hostile model, tool and servers.
type peaks struct {
	*swamp
	misses  bool          // the row is known to miss its target
	slowest time.Duration // of the pings while it worked
	stopped chan struct{}
	pinged  chan struct{}
}

// sinkTool reads its arguments and says that it is done; spoutTool answers with a
// text of 15 MiB.
const (
	sinkTool  = "#!/bin/sh\nhead -n 1 >/dev/null\necho '{\"version\":\"0\",\"type\":\"done\",\"ok\":true}'\n"
	spoutTool = "#!/bin/sh\nhead -n 1 >/dev/null\nprintf " +
		"'{\"version\":\"0\",\"type\":\"done\",\"ok\":true,\"summary\":\"'\nhead -c 15700000 /dev/zero | tr '\\0' x\necho " +
		"'\"}'\n"
)

// hugeCommand is an MCP server with much to say: its arguments are how many bytes
// of definitions it has, and how it answers calls.
const hugeCommand = "hugeserver"

func serveHuge() {
	size, _ := strconv.Atoi(os.Args[1])
	in, out := protocol.NewLineReader(os.Stdin, 32<<20), os.Stdout
	for {
		line, err := in.Next()
		if err != nil {
			return
		}
		if answer := hugeAnswer(line, size, os.Args[2]); answer != "" {
			_, _ = io.WriteString(out, answer+"\n")
		}
	}
}

// hugeAnswer is a server's answer to a line, "" where none is due.
func hugeAnswer(line []byte, size int, kind string) string {
	_, rest, found := bytes.Cut(line, []byte(`"id":`))
	if !found {
		return ""
	}
	id := rest[:bytes.IndexAny(rest, ",}")]
	answer := "{}"
	switch {
	case bytes.Contains(line, []byte(`"method":"initialize"`)):
		answer = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"huge","version":"1"}}`
	case bytes.Contains(line, []byte(`"method":"tools/list"`)):
		var list []string
		const each = 200 << 10
		for i := 0; i == 0 || i < size/each; i++ {
			list = append(list, fmt.Sprintf(
				`{"name":"op%d","description":"does it","inputSchema":{"type":"object","description":"%s"}}`, i,
				strings.Repeat("x", min(each, size))))
		}
		answer = `{"tools":[` + strings.Join(list, ",") + `]}`
	case bytes.Contains(line, []byte(`"method":"tools/call"`)):
		switch kind {
		case "text":
			answer = `{"content":[{"type":"text","text":"` + strings.Repeat("x", 15<<20) + `"}]}`
		case "values":
			answer = `{"content":[],"structuredContent":{"all":[` +
				strings.TrimSuffix(strings.Repeat(`{"a":"`+strings.Repeat("y", 110)+`"},`, 120_000), ",") + `]}}`
		case "blocks":
			answer = `{"content":[` + strings.TrimSuffix(strings.Repeat(`{"type":"text","text":"`+strings.Repeat("z", 400)+`"},`,
				35_000), ",") + `]}`
		default:
			answer = `{"content":[{"type":"text","text":"done"}]}`
		}
	}
	return `{"jsonrpc":"2.0","id":` + string(id) + `,"result":` + answer + `}`
}

// newPeaks starts a daemon with so many servers, of which each has so many bytes of
// definitions, and a model.
func newPeaks(t *testing.T, model http.HandlerFunc, servers, definitions int, kind string) *peaks {
	t.Helper()
	program := plainDaemon(t)
	d := unstarted(t, program)
	if model != nil {
		vendor := httptest.NewServer(unlisted(model))
		t.Cleanup(vendor.Close)
		t.Setenv("TEST_KEY", "k")
		d.Args = append(d.Args, "--config", modelConfig(t, "openai", vendor.URL, testKey))
	}
	for name, script := range map[string]string{"sink": sinkTool, "spout": spoutTool} {
		d.write("tools/"+name+".json",
			fmt.Sprintf(`{"name":%q,"kind":"tool","protocol":"narratoria","capabilities":[],"timeout":"10m",
			"transport":{"type":"stdio","command":["./%[1]s.sh"]},"operations":{"run":{}}}`, name), 0o600)
		d.write("tools/"+name+".sh", script, 0o700)
	}
	var entries []string
	command, _ := filepath.Abs(hugeCommand)
	if found, err := os.Stat(command); err != nil || found.IsDir() {
		command = hugeCommand
	}
	for i := range servers {
		entries = append(entries, fmt.Sprintf(`"s%d":{"command":%q,"args":["%d",%q,"%[1]d"],"trust":"all"}`, i, command,
			definitions, kind))
	}
	if servers > 0 {
		d.write("noused/mcp.json", `{"mcpServers":{`+strings.Join(entries, ",")+`}}`, 0o600)
	}
	d.Start()
	p := &peaks{swamp: &swamp{daemon: d}, stopped: make(chan struct{}), pinged: make(chan struct{})}
	if r := p.commands().request(`{"v":"1","id":"p","type":"get_state"}`); !r.OK {
		t.Fatalf("got %+v", r)
	}
	p.idle = p.footprint().now
	go p.ping(p.commands())
	return p
}

// ping finds out how long others wait.
func (p *peaks) ping(w *wire) {
	defer close(p.pinged)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-p.stopped:
			return
		case <-tick.C:
		}
		began := time.Now()
		if _, err := w.Write([]byte(`{"v":"1","id":"p","type":"ping"}` + "\n")); err != nil {
			return
		}
		if _, err := w.in.Next(); err != nil {
			return
		}
		p.slowest = max(p.slowest, time.Since(began))
	}
}

// done says what the row came to.
func (p *peaks) done(row, outcome string) {
	p.t.Helper()
	close(p.stopped)
	<-p.pinged
	_, most := p.resident()
	p.t.Logf("PEAK | %s | idle %d MiB | +%d MiB | slowest ping %v | %s", row, p.idle>>10, (most-p.idle)>>10,
		p.slowest.Round(time.Millisecond), outcome)
	bound := maxGrowth
	if p.misses {
		bound = maxMissed
	}
	if most-p.idle > bound && !fullMemory { // in full it is a table, with its misses
		p.t.Errorf("%s: the daemon grew by %d MiB, want at most %d", row, (most-p.idle)>>10, bound>>10)
	}
}

// maxMissed is how much more memory, in KiB, the daemon may have in rows that miss
// their target: docs/performance.md says which, and why.
const maxMissed = 192 << 10

// runs has so many sessions prompted at once, and tells how their runs ended.
func (p *peaks) runs(sessions int, text string) string {
	p.t.Helper()
	ctx, replies := context.Background(), make(chan string, sessions)
	for range sessions {
		c := p.dial()
		s, err := client.Call(ctx, c, protocol.NewSession, protocol.NewSessionParams{})
		if err != nil {
			p.t.Fatal(err)
		}
		go func() {
			_, err := client.Call(ctx, c, protocol.Prompt, protocol.PromptParams{
				Scope: protocol.Scope{SessionID: s.SessionID},
				Text:  text,
			})
			if err == nil {
				replies <- "well"
			} else {
				replies <- err.Error()
			}
		}()
	}
	ends := map[string]int{}
	for range sessions {
		ends[<-replies]++
	}
	return tally(ends)
}

func tally(ends map[string]int) string {
	var parts []string
	for how, n := range ends {
		parts = append(parts, fmt.Sprintf("%d× %.160s", n, how))
	}
	return strings.Join(parts, "; ")
}

// streamed answers with events of a chat completion.
func streamed(w http.ResponseWriter, deltas func(say func(delta string)), finish string) {
	w.Header().Set("Content-Type", "text/event-stream")
	deltas(func(delta string) {
		_, _ = io.WriteString(w, `data: {"choices":[{"index":0,"delta":`+delta+`}]}`+"\n\n")
	})
	_, _ = fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":%q}]}\n\ndata: [DONE]\n\n",
		finish)
}

// callsSink has a model call the sink with so many bytes of arguments, and then say
// something.
func callsSink(size int) http.HandlerFunc {
	piece := strings.Repeat("x", 32<<10)
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if bytes.Contains(body, []byte(`"role":"tool"`)) {
			streamed(w, func(say func(string)) { say(`{"content":"well"}`) }, "stop")
			return
		}
		streamed(w, func(say func(string)) {
			say(
				`{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"sink_run","arguments":"{\"text\":\""}}]}`)
			for n := 0; n < size; n += len(piece) {
				say(`{"tool_calls":[{"index":0,"function":{"arguments":"` + piece + `"}}]}`)
			}
			say(`{"tool_calls":[{"index":0,"function":{"arguments":"\"}"}}]}`)
		}, "tool_calls")
	}
}

func rows(quick []int, full ...int) []int {
	if fullMemory {
		return full
	}
	return quick
}

func TestMemoryOfUnreadReplies(t *testing.T) {
	p := newPeaks(t, nil, 1, 7<<20, "plain")
	p.hears(1)
	ends := p.asks(rows([]int{60}, 300)[0])
	p.done("unread list_tools of 7 MiB", ends)
	p.rests()
}

func TestMemoryOfManyServers(t *testing.T) {
	servers := rows([]int{8}, 20)[0]
	p := newPeaks(t, nil, servers, 7<<20, "plain")
	p.misses = true // on a busy machine, where the collector comes late
	ends := p.hears(servers) + "; " + p.asks(8)
	p.done(fmt.Sprintf("%d MCP servers, 8 list_tools", servers), ends)
}

// hears waits until that many servers have said what they can do, or cannot be used.
func (p *peaks) hears(servers int) string {
	p.t.Helper()
	said := map[string]int{}
	for i := range servers {
		_, err := client.Call(context.Background(), p.dial(), protocol.ExtensionCommand,
			protocol.ExtensionCommandParams{Name: fmt.Sprintf("s%d.op0", i)})
		if err == nil {
			said["server used"]++
		} else {
			said["server: "+err.Error()]++
		}
	}
	return tally(said)
}

// asks has so many clients ask for the tools and read one byte of the answer.
func (p *peaks) asks(clients int) string {
	p.t.Helper()
	var all []*wire
	for range clients {
		w := p.commands()
		w.send(`{"v":"1","id":"t","type":"list_tools","payload":{}}`)
		all = append(all, w)
	}
	said := map[string]int{}
	for _, w := range all {
		head := make([]byte, 300)
		n, err := io.ReadAtLeast(w, head, 60)
		if err != nil {
			p.t.Fatal(err)
		}
		if text := string(head[:n]); strings.Contains(text, `"ok":false`) || strings.Contains(text, `"type":"error"`) {
			_, why, _ := strings.Cut(text, `"message":"`)
			said[why[:min(len(why), 90)]]++
		} else {
			said["list begun"]++
		}
	}
	for _, w := range all {
		_ = w.Close()
	}
	return tally(said)
}

func TestMemoryOfArguments(t *testing.T) {
	for _, sessions := range rows([]int{3}, 1, 8, 30, 60) {
		t.Run(fmt.Sprint(sessions), func(t *testing.T) {
			p := newPeaks(t, callsSink(14<<20), 0, 0, "")
			p.done(fmt.Sprintf("14 MiB of arguments, %d sessions", sessions), p.runs(sessions, "go"))
		})
	}
	for _, sessions := range rows([]int{3}, 8, 30, 60) {
		t.Run(fmt.Sprint("3.5 MiB in ", sessions), func(t *testing.T) {
			p := newPeaks(t, callsSink(3500<<10), 0, 0, "")
			p.misses = true
			p.done(fmt.Sprintf("3.5 MiB of arguments, %d sessions", sessions), p.runs(sessions, "go"))
		})
	}
}

// says has a model say so many bytes under a member of its deltas, in pieces.
func says(member string, size, each int) http.HandlerFunc {
	delta := fmt.Sprintf(`{%q:%q}`, member, strings.Repeat("x", each))
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		streamed(w, func(say func(string)) {
			for n := 0; n < size; n += each {
				say(delta)
			}
			say(`{"content":"well"}`)
		}, "stop")
	}
}

func TestMemoryOfThinking(t *testing.T) {
	for _, size := range []int{15 << 20, 3500 << 10} {
		for _, sessions := range rows([]int{3}, 8, 30) {
			t.Run(fmt.Sprintf("%d in %d", size, sessions), func(t *testing.T) {
				p := newPeaks(t, says("reasoning_content", size, 16<<10), 0, 0, "")
				p.misses = size < 4<<20 // it is kept
				p.done(fmt.Sprintf("%.1f MiB of thinking, %d sessions", float64(size)/(1<<20), sessions), p.runs(sessions, "go"))
			})
		}
	}
}

func TestMemoryOfAHostileAnswer(t *testing.T) {
	for _, c := range []struct {
		name  string
		model http.HandlerFunc
	}{
		{"text", says("content", 15<<20, 16<<10)},
		{"text in small pieces", says("content", 15<<20, 64)},
		{"events of 3 MiB", says("content", 15<<20, 3<<20)},
		{"one event", says("content", 15<<20, 15<<20)},
		{"one event of arguments", callsWhole(15 << 20)},
		{"one event of 3.5 MiB of arguments", callsWhole(3500 << 10)},
		{"events of many values", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			delta := `{"reasoning_details":[` + strings.TrimSuffix(strings.Repeat(`{"type":"a"},`, 250_000), ",") + `]}`
			streamed(w, func(say func(string)) {
				for range 4 {
					say(delta)
				}
			}, "stop")
		}},
		{"JSON", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"x":"`+strings.Repeat("x", 15<<20)+`"}`)
		}},
	} {
		for _, sessions := range rows([]int{1}, 1, 16) {
			t.Run(fmt.Sprintf("model/%s in %d", c.name, sessions), func(t *testing.T) {
				p := newPeaks(t, c.model, 0, 0, "")
				p.done(fmt.Sprintf("a model's answer of 15 MiB: %s, %d sessions", c.name, sessions), p.runs(sessions, "go"))
			})
		}
	}
	for _, kind := range []string{"text", "values", "blocks"} {
		for _, sessions := range rows([]int{1}, 1, 16) {
			t.Run(fmt.Sprintf("mcp/%s in %d", kind, sessions), func(t *testing.T) {
				p := newPeaks(t, nil, 1, 100, kind)
				p.misses = kind == "text"
				p.done(fmt.Sprintf("an MCP answer of 15 MiB: %s, %d sessions", kind, sessions), p.runs(sessions, "!s0.op0 {}"))
			})
			t.Run(fmt.Sprintf("mcp over http/%s in %d", kind, sessions), func(t *testing.T) {
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					line, _ := io.ReadAll(r.Body)
					if r.Method != http.MethodPost {
						w.WriteHeader(http.StatusMethodNotAllowed)
						return
					}
					answer := hugeAnswer(line, 100, kind)
					if answer == "" {
						w.WriteHeader(http.StatusAccepted)
						return
					}
					w.Header().Set("Content-Type", "application/json")
					_, _ = io.WriteString(w, answer)
				}))
				t.Cleanup(server.Close)
				p := newPeaks(t, nil, 0, 0, "")
				p.Stop()
				p.write("noused/mcp.json", fmt.Sprintf(`{"mcpServers":{"s0":{"url":%q,"trust":"all"}}}`, server.URL), 0o600)
				q := &peaks{swamp: &swamp{daemon: p.daemon}, stopped: make(chan struct{}), pinged: make(chan struct{})}
				q.misses = kind == "text"
				q.Start()
				q.idle = q.footprint().now
				go q.ping(q.commands())
				q.done(fmt.Sprintf("an MCP answer over HTTP of 15 MiB: %s, %d sessions", kind, sessions),
					q.runs(sessions, "!s0.op0 {}"))
			})
		}
	}
	for _, sessions := range rows([]int{1}, 1, 16) {
		t.Run(fmt.Sprintf("tool in %d", sessions), func(t *testing.T) {
			p := newPeaks(t, nil, 0, 0, "")
			p.done(fmt.Sprintf("a tool's result of 15 MiB, %d sessions", sessions), p.runs(sessions, "!spout.run {}"))
		})
	}
}

// callsWhole has a model call the sink in one event.
func callsWhole(size int) http.HandlerFunc {
	call :=
		`{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"sink_run","arguments":"{\"text\":\"` +
			strings.Repeat("x", size) + `\"}"}}]}`
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if bytes.Contains(body, []byte(`"role":"tool"`)) {
			streamed(w, func(say func(string)) { say(`{"content":"well"}`) }, "stop")
			return
		}
		streamed(w, func(say func(string)) { say(call) }, "tool_calls")
	}
}
