package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/client"
	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
	"noused/internal/testenv"
)

// Memory tests have sizes for every day, and those of docs/performance.md:
// NOUSED_MEMORY=full, as make memory has it. NOUSED_PROGRAM is another daemon to
// measure.
var (
	fullMemory = os.Getenv("NOUSED_MEMORY") == "full"
	measured   = cmp.Or(os.Getenv("NOUSED_PROGRAM"), "noused")
)

// sized is how large a test is: as every day, or in full.
func sized(day, full int) int {
	if fullMemory {
		return full
	}
	return day
}

// spent tells a line of the table that a memory test makes.
func (d *daemon) spent(t *testing.T, what string, before footprint, took time.Duration) {
	t.Helper()
	after := d.footprint()
	t.Logf("%s: %.2f s; idle %d MiB, now %d MiB, at most %d MiB: %d MiB above idle",
		what, took.Seconds(), before.now>>10, after.now>>10, after.most>>10, (after.most-before.now)>>10)
	switch grown := after.most - before.now; {
	case grown <= maxGrowth, testenv.Race:
	case fullMemory: // the table has what is missed
		t.Logf("%s: MISSED: the daemon grew by %d KiB, want at most %d", what, grown, maxGrowth)
	default:
		t.Errorf("%s: the daemon grew by %d KiB, want at most %d", what, grown, maxGrowth)
	}
}

// longTurn are the records of a turn of four entries, with texts of so many bytes.
func longTurn(n int, text, parent string, at time.Time) (records []session.Record, leaf string) {
	id := func(prefix string, k int) string {
		return fmt.Sprintf("%s-01994d1c-7c5e-7a51-8000-%08d%04d", prefix, n, k)
	}
	run := id("run", 0)
	add := func(f session.Fact) { records = append(records, session.Record{At: at, Fact: f}) }
	say := func(k int, m model.Message, stop model.StopReason, usage *model.Usage, input string) {
		add(session.MessageAdded{
			ID: id("msg", k), ParentID: parent, RunID: run, TurnKind: protocol.KindPrompt, InputID: input, Message: m,
			StopReason: stop, Usage: usage, Model: "test-model",
		})
		parent = id("msg", k)
	}
	call := model.ToolCall{
		ID: id("call", 0), Name: "read",
		Arguments: []byte(`{"path":"internal/session/store.go","offset":12}`),
	}
	add(session.Input{InputID: id("in", 0), Kind: protocol.KindPrompt, Command: "prompt", Text: "Go on.", RunID: run})
	add(session.RunStarted{RunID: run})
	add(session.TurnStarted{RunID: run, Turn: 1, Kind: protocol.KindPrompt, InputIDs: []string{id("in", 0)}})
	say(1, model.Message{Role: model.User, Text: text}, "", nil, id("in", 0))
	add(session.MessageStarted{ID: id("msg", 2), RunID: run, Model: "test-model"})
	say(2, model.Message{Role: model.Assistant, Text: text, ToolCalls: []model.ToolCall{call}}, model.StopToolCalls,
		&model.Usage{OutputTokens: 10}, "")
	add(session.ToolStarted{RunID: run, CallID: call.ID})
	say(3, model.Message{Role: model.Tool, Text: text, ToolCallID: call.ID, ToolName: "read", OK: true}, "", nil, "")
	add(session.MessageStarted{ID: id("msg", 4), RunID: run, Model: "test-model"})
	say(4, model.Message{Role: model.Assistant, Text: text}, model.StopEnd, &model.Usage{OutputTokens: 10}, "")
	add(session.TurnEnded{RunID: run, Turn: 1, StopReason: protocol.StopEnd})
	add(session.RunEnded{RunID: run, StopReason: protocol.StopCompleted, Unread: true})
	return records, parent
}

// writeLong makes a session of so many turns in a state directory, summarised so
// many turns before its end, and returns its journal.
func writeLong(t *testing.T, state string, turns, size, kept int) string {
	t.Helper()
	store, err := session.Open(state)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	text := strings.Repeat("a line of the file, with \"quotes\" and\ttabs\n", size/43+1)[:size]
	at := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	const id = "ses-01994d1c-7c5e-7a51-8000-000000000000"
	_, journal, err := store.Create(id,
		[]session.Record{{At: at, Fact: session.Created{SessionID: id, Workdir: filepath.Dir(state)}}})
	if err != nil {
		t.Fatal(err)
	}
	leaf, keptFrom := "", ""
	for n := range turns {
		var records []session.Record
		at = at.Add(time.Second)
		records, leaf = longTurn(n, text, leaf, at)
		if n == turns-kept {
			keptFrom = records[3].Fact.(session.MessageAdded).ID
		}
		if n == turns-1 && kept > 0 && keptFrom != "" {
			records = append(records, session.Record{At: at, Fact: session.Compacted{
				ID: "cmp-01994d1c-7c5e-7a51-8000-000000000001", ParentID: leaf, Summary: "It went well.",
				FirstKeptEntryID: keptFrom, Trigger: protocol.TriggerManual,
			}})
		}
		if _, err := journal.Write(records); err != nil {
			t.Fatal(err)
		}
	}
	if err := journal.Close(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(state, "sessions", id+".jsonl")
}

// rawPass reads a journal and looks at its JSON once, and does nothing with it.
func rawPass(t *testing.T, path string) (size int64, took time.Duration) {
	t.Helper()
	began := time.Now()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	in := bufio.NewReaderSize(f, 4<<20)
	for {
		line, err := in.ReadSlice('\n')
		if err == io.EOF {
			return size, time.Since(began)
		}
		if err != nil {
			t.Fatal(err)
		}
		size += int64(len(line))
		if v := jsontext.Value(line[:len(line)-1]); !v.IsValid() {
			t.Fatalf("no JSON: %.100s", line)
		}
	}
}

// A session is far longer than what the daemon may have in memory: it is opened in
// about the time that reading it takes, and used, within the bound for all.
func TestMemoryOfALongSession(t *testing.T) {
	testenv.Long(t)
	for name, c := range map[string]struct{ turns, size, kept int }{
		"many":  {turns: sized(2_000, 25_000), size: sized(3_000, 5_000), kept: 50},
		"large": {turns: sized(6, 125), size: sized(1_000_000, 1_000_000), kept: 1},
		"whole": {turns: sized(6, 125), size: sized(1_000_000, 1_000_000)}, // nothing was summarised
	} {
		t.Run(name, func(t *testing.T) {
			d := unstarted(t, measured)
			path := writeLong(t, filepath.Join(d.Dir, "state"), c.turns, c.size, c.kept)
			rawPass(t, path) // it is in the page cache now
			size, raw := rawPass(t, path)
			d.Start()
			w := d.commands()
			w.request(`{"v":"1","id":"p","type":"ping"}`)
			before := d.footprint()
			t.Logf("a journal of %d MiB; a raw pass takes %.2f s", size>>20, raw.Seconds())
			timed := func(what, line string) response {
				began := time.Now()
				r := w.request(line)
				d.spent(t, what, before, time.Since(began))
				if !r.OK && what != "prompt" {
					t.Errorf("%s: %v", what, r.Error)
				}
				return r
			}
			timed("opened", `{"v":"1","id":"1","type":"set_steering_mode","payload":{"mode":"all"}}`)
			if got := into[protocol.Messages](t,
				timed("newest 10", `{"v":"1","id":"2","type":"get_messages","payload":{"limit":10}}`)); len(got.Messages) != 10 && c.kept != 1 {
				t.Errorf("got %d messages", len(got.Messages))
			}
			r := timed("prompt", `{"v":"1","id":"3","type":"prompt","payload":{"text":"hello"}}`)
			if fits := c.kept > 0 || size < 64<<20; fits != r.OK {
				t.Errorf("prompt: %v", r.Error)
			}
			timed("newest 10 again", `{"v":"1","id":"4","type":"get_messages","payload":{"limit":10}}`)
			id := func(turn int) string { return fmt.Sprintf("msg-01994d1c-7c5e-7a51-8000-%08d0004", turn) }
			timed("10 in the middle", `{"v":"1","id":"6","type":"get_messages","payload":{"limit":10,"leaf_id":"`+id(c.turns/2)+
				`"}}`)
			const session = "ses-01994d1c-7c5e-7a51-8000-000000000000"
			timed("half of it branched", `{"v":"1","id":"7","type":"branch_session","payload":{"session_id":"`+session+
				`","leaf_id":"`+id(c.turns/2)+`"}}`)
			if c.kept == 0 {
				timed("summarised", `{"v":"1","id":"8","type":"compact_session","payload":{"session_id":"`+session+`"}}`)
				timed("prompt then", `{"v":"1","id":"9","type":"prompt","payload":{"session_id":"`+session+`","text":"hello"}}`)
			}
			began := time.Now()
			tree := into[protocol.Tree](t, w.request(`{"v":"1","id":"5","type":"get_tree","payload":{"session_id":"`+session+`"}}`))
			after := d.footprint() // one reply of all nodes: the longer, the more
			t.Logf("a tree of %d nodes: %.2f s; at most %d MiB above idle", len(tree.Nodes), time.Since(began).Seconds(),
				(after.most-before.now)>>10)
			if len(tree.Nodes) < 4*c.turns {
				t.Errorf("the tree has %d nodes", len(tree.Nodes))
			}
		})
	}
}

// imageHearer is a provider of a wire that takes images: it wants the length of a request
// beforehand, JSON, and every image as it was.
type imageHearer struct {
	t     *testing.T
	reply string
	mu    sync.Mutex
	heard map[string]int // sums of images: how often
	long  int64          // bytes of the longest request
}

func (h *imageHearer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		http.NotFound(w, r)
		return
	}
	n := &heardBytes{in: r.Body}
	dec := jsontext.NewDecoder(bufio.NewReaderSize(n, 1<<20))
	for {
		token, err := dec.ReadToken()
		if err == io.EOF {
			break
		}
		if err != nil {
			h.t.Errorf("a request is no JSON: %v", err)
			http.Error(w, "no JSON", http.StatusBadRequest)
			return
		}
		if token.Kind() != '"' {
			continue
		}
		text := token.String()
		if _, data, ok := strings.Cut(text, ";base64,"); ok && strings.HasPrefix(text, "data:image/png") {
			text = data
		}
		if len(text) < 1000 || !strings.HasPrefix(text, "iVBORw0KGg") {
			continue
		}
		picture, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			h.t.Errorf("an image is no base64: %v", err)
		}
		sum := sha256.Sum256(picture)
		h.mu.Lock()
		h.heard[hex.EncodeToString(sum[:])]++
		h.mu.Unlock()
	}
	if r.ContentLength != n.bytes || len(r.TransferEncoding) > 0 {
		h.t.Errorf("a request says %d bytes, %v, and has %d", r.ContentLength, r.TransferEncoding, n.bytes)
	}
	h.mu.Lock()
	h.long = max(h.long, n.bytes)
	h.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, h.reply)
}

// heardBytes counts what is read.
type heardBytes struct {
	in    io.Reader
	bytes int64
}

func (c *heardBytes) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	c.bytes += int64(n)
	return n, err
}

// Images go from their files into requests, those of several sessions at once too,
// on every wire.
func TestMemoryOfImages(t *testing.T) {
	testenv.Long(t)
	images, sizeOf := sized(4, 16), sized(2<<20, 5<<20)
	replies := map[string]string{
		"openai": data(`{"choices":[{"delta":{"content":"Seen."}}]}`, `{"choices":[{"delta":{},"finish_reason":"stop"}]}`,
			"[DONE]"),
		"responses": data(`{"type":"response.output_text.delta","item_id":"m","delta":"Seen."}`,
			`{"type":"response.completed","response":{"status":"completed","output":[{"type":"message","id":"m","role":"assistant","content":[{"type":"output_text","text":"Seen."}]}]}}`),
		"anthropic": data(
			`{"type":"message_start","message":{"usage":{"input_tokens":1,"output_tokens":1}}}`,
			`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"Seen."}}`,
			`{"type":"content_block_stop","index":0}`,
			`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}`, `{"type":"message_stop"}`,
		),
	}
	for _, c := range []struct {
		wire     string
		sessions int
	}{{"openai", 1}, {"openai", 4}, {"openai", 8}, {"anthropic", sized(2, 8)}, {"responses", sized(2, 8)}} {
		if !fullMemory && c.wire == "openai" && c.sessions != 8 {
			continue
		}
		t.Run(fmt.Sprintf("%s-%d", c.wire, c.sessions), func(t *testing.T) {
			hears := &imageHearer{t: t, reply: replies[c.wire], heard: map[string]int{}}
			server := httptest.NewServer(hears)
			t.Cleanup(server.Close)
			provider, more := c.wire, []string{}
			if c.wire == "responses" {
				provider, more = "openai", []string{`wire = "responses"`}
			}
			d := newDaemonOf(t, measured, "--config", modelConfig(t, provider, server.URL+"/v1", more...))
			var want []string
			var list []protocol.AttachmentParams
			noise := rand.NewChaCha8([32]byte{1})
			for i := range images {
				picture := make([]byte, sizeOf)
				_, _ = noise.Read(picture)
				copy(picture, "\x89PNG\r\n\x1a\n")
				name := fmt.Sprintf("shots/%d.png", i)
				d.write(name, string(picture), 0o600)
				sum := sha256.Sum256(picture)
				want = append(want, hex.EncodeToString(sum[:]))
				list = append(list, protocol.AttachmentParams{Path: name})
			}
			d.commands().request(`{"v":"1","id":"p","type":"ping"}`)
			before := d.footprint()
			began := time.Now()
			var all sync.WaitGroup
			for range c.sessions {
				cl := d.dial()
				all.Go(func() {
					s, err := client.Call(context.Background(), cl, protocol.NewSession, protocol.NewSessionParams{})
					if err != nil {
						t.Error(err)
						return
					}
					r, err := client.Call(context.Background(), cl, protocol.Prompt,
						protocol.PromptParams{Scope: protocol.Scope{SessionID: s.SessionID}, Text: "look", Attachments: list})
					if err != nil || r.Result.Output != "Seen." {
						t.Errorf("got %+v, %v", r.Result, err)
					}
				})
			}
			all.Wait()
			d.spent(t, fmt.Sprintf("%d images of %d MiB in each of %d sessions, over %s", images, sizeOf>>20, c.sessions,
				c.wire), before, time.Since(began))
			for _, sum := range want {
				if hears.heard[sum] != c.sessions {
					t.Errorf("an image was shown %d times, want %d", hears.heard[sum], c.sessions)
				}
			}
			t.Logf("the longest request had %d MiB", hears.long>>20)
		})
	}
}
