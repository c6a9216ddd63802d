//go:build sim

package sim

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"noused/internal/budget"
	decode "noused/internal/client"
	"noused/internal/event"
	"noused/internal/model"
	"noused/internal/model/offline"
	"noused/internal/protocol"
	"noused/internal/protocol/protocoltest"
	"noused/internal/runloop"
	"noused/internal/server"
	"noused/internal/session"
	"noused/internal/session/sessiontest"
)

// The daemon's sockets, which are the kernel's, cannot stand in a bubble of synctest: here
// the real server is between the clients and the run loop, in real time. A seed decides
// what the clients do, and nothing what comes of it first.

// quick is a call that is done at once.
func quick(_ context.Context, _ model.Invocation, progress func(model.ToolUpdate)) model.ToolResult {
	progress(model.ToolUpdate{Delta: "working"})
	return model.ToolResult{OK: true, Text: "done"}
}

// host runs daemons one after the other on the same sockets and the same state directory.
type host struct {
	t       *testing.T
	dir     string
	session string

	mu     sync.Mutex
	number int
	up     chan struct{} // closed while a daemon takes commands
	stop   func()

	inputs map[string]string // the input that a key was accepted as, by key
	texts  map[string]string // the text of a key that was accepted
	halves []string          // texts of lines that were never sent whole
}

func (h *host) socket() string { return filepath.Join(h.dir, "socket") }

// start starts the next daemon.
func (h *host) start() {
	store, err := session.Open(filepath.Join(h.dir, "state"))
	must(h.t, err)
	h.number++
	number, ids, mu := h.number, 0, sync.Mutex{}
	log := event.New(fmt.Sprint("epoch-", number), 16<<20, time.Now)
	tools := newTools(h.dir, quick)
	hub := runloop.NewHub(runloop.Options{
		Store: store, Model: offline.Model{}, ModelInfo: model.Choice{Provider: "offline", Name: offline.Name},
		Tools: tools, Policy: rules{}, Modules: nobody{}, Events: log, Now: time.Now, Workdir: h.dir,
		NewID: func(prefix string) string {
			mu.Lock()
			defer mu.Unlock()
			ids++
			return fmt.Sprintf("%s%d-%d", prefix, number, ids)
		},
		Fault: func(id string, err error) { h.t.Errorf("fault of %s: %v", id, err) },
	})
	mux := new(protocol.Mux)
	hub.Bind(mux)
	sockets, err := server.Listen(h.socket())
	must(h.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	lines := server.Lines{Max: protocol.DefaultMaxLine, Held: budget.New(64 << 20)}
	var all sync.WaitGroup
	serve := func(do func(context.Context) error) context.CancelFunc {
		ctx, cancel := context.WithCancel(context.Background())
		all.Go(func() {
			if err := do(ctx); err != nil {
				h.t.Error(err)
			}
		})
		return cancel
	}
	all.Go(func() { _ = hub.Run(ctx) })
	commands := serve(func(ctx context.Context) error {
		return server.ServeCommands(ctx, sockets.Commands, mux, lines, zap.NewNop())
	})
	events := serve(func(ctx context.Context) error {
		return server.ServeEvents(ctx, sockets.Events, log, new(server.Readers), lines, zap.NewNop())
	})
	h.stop = func() { // as the daemon does: what runs is parked, then told, then nobody is left
		cancel()
		hub.Drain(10 * time.Second)
		tools.Close(context.Background())
		commands()
		log.Close()
		events()
		all.Wait()
		sockets.Close()
		must(h.t, store.Close())
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.up)
}

// restart stops the daemon, with all that is under way, and starts the next.
func (h *host) restart() {
	h.mu.Lock()
	h.up = make(chan struct{})
	h.mu.Unlock()
	h.stop()
	h.start()
}

// dial connects once a daemon is there.
func (h *host) dial(socket string) net.Conn {
	for {
		h.mu.Lock()
		up := h.up
		h.mu.Unlock()
		<-up
		if conn, err := net.Dial("unix", socket); err == nil {
			return conn
		}
	}
}

// follower reads all events there are, over restarts, and what it has read it holds against
// wire-v1 §4.
type follower struct {
	mu      sync.Mutex
	changed *sync.Cond
	lines   map[string][]string // by epoch; the first has number 1
	open    map[string]bool     // runs that have not ended
	asked   chan protocol.Approval
	epoch   string // that it reads
	over    bool
}

// subscribe asks for the events after one, on a new connection.
func (h *host) subscribe(epoch string, after int) (net.Conn, *bufio.Reader, protocol.Subscribed, error) {
	conn := h.dial(protocol.EventSocket(h.socket()))
	in := bufio.NewReaderSize(conn, 64<<10)
	line := fmt.Sprintf(`{"v":"1","id":"s","type":"subscribe","payload":{"epoch":%q,"after":%d}}`+"\n", epoch, after)
	var r struct {
		Type    string
		Payload protocol.Subscribed
	}
	_, err := conn.Write([]byte(line))
	for err == nil && r.Type != "subscribed" { // what came before it is to be thrown away
		var text []byte
		if text, err = in.ReadBytes('\n'); err == nil {
			err = json.Unmarshal(text, &r)
		}
	}
	if err != nil {
		_ = conn.Close()
	}
	return conn, in, r.Payload, err
}

// follow reads until the follower is over and the daemon is gone.
func (h *host) follow(f *follower) {
	checker, epoch, after := protocoltest.NewChecker(), "", 0
	for {
		conn, in, got, err := h.subscribe(epoch, after)
		if err != nil {
			continue
		}
		if epoch = got.Epoch; got.Gap || after == 0 {
			after = 0
		}
		f.mu.Lock()
		f.epoch = epoch
		f.changed.Broadcast()
		f.mu.Unlock()
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				break
			}
			after++
			f.take(h, checker, epoch, after, line)
		}
		_ = conn.Close()
		f.mu.Lock()
		over := f.over
		f.mu.Unlock()
		if over {
			return
		}
	}
}

func (f *follower) take(h *host, checker *protocoltest.Checker, epoch string, seq int, line string) {
	var env protocol.EventEnvelope
	must(h.t, json.Unmarshal([]byte(line), &env))
	if int(env.Seq) != seq {
		h.t.Errorf("%s: event %d comes where %d should", epoch, env.Seq, seq)
	}
	ev, err := decode.Decode(env)
	must(h.t, err)
	if err := checker.Event(ev); err != nil {
		h.t.Errorf("%s, event %d: %v", epoch, seq, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lines[epoch] = append(f.lines[epoch], line)
	switch ev := ev.(type) {
	case protocol.AgentStart:
		f.open[ev.RunID] = true
	case protocol.AgentEnd:
		delete(f.open, ev.RunID)
	case protocol.Status:
		if ev.Code == protocol.StatusApprovalRequested {
			f.asked <- *ev.Approval
		}
	}
	f.changed.Broadcast()
}

// place is where an event is.
type place struct {
	epoch string
	seq   int
}

// wander is a reader that reads some lines, hangs up, in the middle of one too, and comes
// back with what it knows. What it has read is what the follower has.
func (h *host) wander(rng *rand.Rand, read map[place]string, done <-chan struct{}) {
	epoch, after := "", 0
	for {
		select {
		case <-done:
			return
		default:
		}
		conn, in, got, err := h.subscribe(epoch, after)
		if err != nil {
			continue
		}
		if epoch != got.Epoch {
			epoch, after = got.Epoch, int(got.NextSeq)-1
		}
		if int(got.NextSeq) != after+1 {
			h.t.Errorf("a reader of %s that was at %d goes on with %d", epoch, after, got.NextSeq)
		}
		for range rng.IntN(40) {
			_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			line, err := in.ReadString('\n')
			if err != nil {
				break
			}
			after++
			read[place{epoch, after}] = line
		}
		_ = conn.Close()
	}
}

// sender sends lines in pieces, and hangs up now and then.
type sender struct {
	h    *host
	rng  *rand.Rand
	name string
	sent int
	conn net.Conn
	in   *bufio.Reader
}

func (s *sender) hangUp() {
	if s.conn != nil {
		_ = s.conn.Close()
	}
	s.conn = nil
}

// try sends a command and returns its reply; nil: nobody knows what has been done.
func (s *sender) try(typ string, payload map[string]any, hangUp bool) *reply {
	if s.conn == nil {
		s.conn = s.h.dial(s.h.socket())
		s.in = bufio.NewReader(s.conn)
	}
	s.sent++
	text, err := json.Marshal(map[string]any{
		"v": "1", "id": fmt.Sprintf("%s-%d", s.name, s.sent), "type": typ, "payload": payload,
	})
	must(s.h.t, err)
	text = append(text, '\n')
	for len(text) > 0 {
		n := 1 + s.rng.IntN(len(text))
		if _, err := s.conn.Write(text[:n]); err != nil {
			s.hangUp()
			return nil
		}
		text = text[n:]
	}
	if hangUp {
		s.hangUp()
		return nil
	}
	line, err := s.in.ReadBytes('\n')
	if err != nil {
		s.hangUp()
		return nil
	}
	r := &reply{}
	must(s.h.t, json.Unmarshal(line, r))
	if r.Error != nil && strings.HasPrefix(r.Error.Message, "shutting_down") {
		s.hangUp()
		return nil
	}
	return r
}

// half sends a part of a line, and hangs up: it is no command.
func (s *sender) half(text string) {
	s.hangUp()
	s.conn = s.h.dial(s.h.socket())
	line := fmt.Sprintf(`{"v":"1","id":"half","type":"prompt","payload":{"session_id":%q,"text":%q}}`, s.h.session, text)
	_, _ = s.conn.Write([]byte(line[:len(line)-1-s.rng.IntN(20)]))
	s.hangUp()
}

// script has texts accepted, each sent until it is answered, some once more.
func (s *sender) script(texts int) {
	defer s.hangUp()
	for n := range texts {
		key := fmt.Sprintf("%s key %d", s.name, n)
		p := map[string]any{
			"session_id": s.h.session, "idempotency_key": key,
			"text": fmt.Sprintf("%s text %d", s.name, n) + []string{"", "\n!t.x", "\n!t.ask"}[s.rng.IntN(3)],
		}
		typ := []string{"prompt", "steer", "follow_up"}[s.rng.IntN(3)]
		if typ == "prompt" {
			p["wait"], p["streaming_behavior"] = false, []string{"steer", "follow_up"}[s.rng.IntN(2)]
		} else {
			p["if_idle"] = "prompt"
		}
		for again := 1 + s.rng.IntN(2); again > 0; {
			if s.rng.IntN(10) == 0 {
				text := fmt.Sprintf("%s half %d", s.name, n)
				s.h.mu.Lock()
				s.h.halves = append(s.h.halves, text)
				s.h.mu.Unlock()
				s.half(text)
			}
			r := s.try(typ, p, s.rng.IntN(5) == 0)
			if r == nil {
				continue
			}
			if !r.OK {
				s.h.t.Errorf("%s: %s is refused: %+v", s.name, typ, *r.Error)
				return
			}
			s.accepted(key, p["text"].(string), r.Payload.InputID)
			again--
		}
		switch s.rng.IntN(8) {
		case 0:
			s.try("abort", map[string]any{"session_id": s.h.session}, false)
		case 1:
			s.try("withdraw", map[string]any{"input_id": s.h.inputOf(key)}, s.rng.IntN(3) == 0)
		}
	}
}

func (h *host) inputOf(key string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.inputs[key]
}

func (s *sender) accepted(key, text, input string) {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	if before := s.h.inputs[key]; before != "" && before != input || input == "" {
		s.h.t.Errorf("%s is input %q, and was %q", key, input, before)
	}
	s.h.inputs[key], s.h.texts[key] = input, text
}

// told holds the journals against what the clients were told.
func (h *host) told() {
	s := sessiontest.New(h.session)
	must(h.t, s.Take(filepath.Join(h.dir, "state", "sessions", h.session+".jsonl")))
	for _, wrong := range append(s.Wrong, fmt.Sprint(errors.Join(s.Done()))) {
		if wrong != "<nil>" {
			h.t.Errorf("the journal: %s", wrong)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(h.inputs)) {
		if in := s.Inputs[h.inputs[key]]; in.Text != h.texts[key] || s.Keys[key] != 1 || s.Said[in.Text] != 1 {
			h.t.Errorf("%s, %q: the journal has %q, %d times", key, h.texts[key], in.Text, s.Said[h.texts[key]])
		}
	}
	for _, text := range h.halves {
		if s.Said[text] > 0 {
			h.t.Errorf("half a line was taken for a command: %q", text)
		}
	}
}

// Clients that send half lines, hang up, come back and send again, over restarts of the
// daemon, behind the real server: each text is said once, each reader reads the same.
func TestClientsBehindSockets(t *testing.T) {
	for seed := range uint64(*wires) {
		rng := rand.New(rand.NewPCG(seed+1, 1))
		h := &host{t: t, dir: folder(t), inputs: map[string]string{}, texts: map[string]string{}, up: make(chan struct{})}
		h.start()
		first := &sender{h: h, rng: rng, name: "first"}
		h.session = first.try("new_session", map[string]any{}, false).Payload.SessionID
		first.hangUp()

		f := &follower{lines: map[string][]string{}, open: map[string]bool{}, asked: make(chan protocol.Approval, 1000)}
		f.changed = sync.NewCond(&f.mu)
		var follower, wanderers, senders, approver sync.WaitGroup
		follower.Go(func() { h.follow(f) })
		done := make(chan struct{})
		read := []map[place]string{{}, {}}
		for n := range read {
			wanderers.Go(func() { h.wander(rand.New(rand.NewPCG(seed, 10+uint64(n))), read[n], done) })
		}
		approver.Go(func() {
			s := &sender{h: h, rng: rand.New(rand.NewPCG(seed, 2)), name: "approver"}
			defer s.hangUp()
			for a := range f.asked {
				option := a.Options[s.rng.IntN(len(a.Options))].ID
				for s.try("approve", map[string]any{"approval_id": a.ApprovalID, "option": option}, false) == nil {
				}
			}
		})
		for n := range uint64(3) {
			s := &sender{h: h, rng: rand.New(rand.NewPCG(seed, 20+n)), name: fmt.Sprintf("sender%d", n)}
			senders.Go(func() { s.script(8) })
		}
		for range rng.IntN(3) {
			f.await(fmt.Sprint("epoch-", h.number), 1+rng.IntN(60))
			h.restart()
		}
		senders.Wait()
		f.end(fmt.Sprint("epoch-", h.number), first.lastSeq())
		first.hangUp()
		close(done)
		close(f.asked)
		approver.Wait()
		wanderers.Wait() // they come back for ever to a daemon that is gone
		h.stop()
		follower.Wait()
		for _, one := range read {
			for at, line := range one {
				if lines := f.lines[at.epoch]; at.seq > len(lines) || lines[at.seq-1] != line {
					t.Errorf("event %v: one reader has %q, another not", at, line)
				}
			}
		}
		h.told()
		if t.Failed() {
			t.Fatalf("seed %d", seed+1)
		}
	}
}

// lastSeq is the number of the newest event.
func (s *sender) lastSeq() int {
	for {
		if r := s.try("get_state", map[string]any{"session_id": s.h.session}, false); r != nil {
			return r.Payload.LastSeq
		}
	}
}

// end blocks until the follower has read so many events of the last epoch, and all runs
// have ended.
func (f *follower) end(epoch string, seq int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.open) > 0 || len(f.lines[epoch]) < seq {
		f.changed.Wait()
	}
	f.over = true
}

// await blocks until the follower reads an epoch, and there have been so many more events,
// or nothing runs.
func (f *follower) await(epoch string, events int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	count := func() (n int) {
		for _, lines := range f.lines {
			n += len(lines)
		}
		return n
	}
	for until := count() + events; f.epoch != epoch || count() < until && len(f.open) > 0; {
		f.changed.Wait()
	}
}
