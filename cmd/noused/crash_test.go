package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"noused/internal/client"
	"noused/internal/protocol"
	"noused/internal/protocol/protocoltest"
	"noused/internal/session"
	"noused/internal/session/sessiontest"
)

// Two tools that note each call they are given in a file, and then take some
// time: one process for each call, and one for all.
const (
	markTool = `{"name":"sh","kind":"tool","protocol":"narratoria","capabilities":[],"timeout":"1m","env":{"CRASH_MARK":%q},
"transport":{"type":"stdio","command":["./mark.sh"]},"operations":{"mark":{},"slow":{},"quiet":{}}}`
	markScript = `#!/bin/sh
call=$(cat)
case $call in *'"token"'*) printf '%s\n' "$call" >>"$CRASH_MARK/calls" ;; esac
case $call in *'"slow"'*) echo '{"version":"0","type":"log","level":"info","message":"slowly"}'; sleep 0.05 ;; esac
echo '{"version":"0","type":"state_patch","patch":{"marked":true}}'
echo '{"version":"0","type":"done","ok":true,"summary":"marked"}'
`
	padTool = `{"name":"pad","kind":"tool","protocol":"gevals","capabilities":[],"timeout":"1m","env":{"CRASH_MARK":%q},
"transport":{"type":"stdio","command":["./pad.sh"]}}`
	padScript = `#!/bin/sh
while IFS= read -r call; do
	id=${call#*'"id":'}
	id=${id%%[,\}]*}
	case $call in
	*'"initialize"'*) result='{"name":"pad","version":"1.0.0","protocolVersion":"0.0.1","operations":{"mark":{"params":{"type":"object"}},"slow":{"params":{"type":"object"}}}}' ;;
	*'"shutdown"'*) result='{}' ;;
	*)
		printf '%s\n' "$call" >>"$CRASH_MARK/calls"
		case $call in *'"slow"'*) sleep 0.05 ;; esac
		result='{"success":true,"message":"padded"}' ;;
	esac
	printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
	case $call in *'"shutdown"'*) exit ;; esac
done
`
)

// trial is a daemon that is killed again and again under its clients.
type trial struct {
	*daemon
	rng     *rand.Rand
	seed    uint64
	book    *notebook
	guests  []*guest
	stories map[string]*sessiontest.Story
	heard   map[string][]string   // of the present epoch, by session
	nesting *protocoltest.Checker // of what was announced, over all epochs
	lines   map[uint64][]byte
	ended   map[string]bool // of the present epoch
	from    map[string]int  // where in its story the present epoch begins
	kills   int
	disk    *volume // whose power is cut, instead of a kill; nil: none
}

// Whatever a client was told is still so after the daemon was killed, at any
// moment, and started again (wire-v1 §7). NOUSED_CRASHTIME (a duration) makes it
// long, NOUSED_CRASHSEED tries one seed again.
func TestKilledAtAnyMoment(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	trials := func(n int) bool { return n < 2 }
	if text := os.Getenv("NOUSED_CRASHTIME"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("NOUSED_CRASHTIME: %v", err)
		}
		end := time.Now().Add(d)
		trials = func(int) bool { return time.Now().Before(end) }
	}
	seed := rng.Uint64
	if text := os.Getenv("NOUSED_CRASHSEED"); text != "" {
		given, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("NOUSED_CRASHSEED: %v", err)
		}
		seed, trials = func() uint64 { return given }, func(n int) bool { return n < 1 }
	}
	kills := 0
	for n := 0; trials(n); n++ {
		seed := seed()
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) { kills += crashTrial(t, seed) })
		if t.Failed() {
			t.Fatalf("try again with NOUSED_CRASHSEED=%d", seed)
		}
	}
	t.Logf("%d kills in all", kills)
}

func crashTrial(t *testing.T, seed uint64) int {
	tr := &trial{
		daemon: newDaemon(t), rng: rand.New(rand.NewPCG(seed, 2)), seed: seed, book: newNotebook(),
		nesting: protocoltest.NewChecker(), stories: map[string]*sessiontest.Story{},
	}
	tr.Stop()
	tr.begin()
	for range 10 {
		tr.live(true)
		tr.restart()
	}
	tr.end()
	t.Log(tr.tally())
	return tr.kills
}

// begin starts the first daemon, with tools and clients.
func (tr *trial) begin() {
	tr.write("tools/sh.json", fmt.Sprintf(markTool, tr.Dir), 0o600)
	tr.write("tools/mark.sh", markScript, 0o700)
	tr.write("tools/pad.json", fmt.Sprintf(padTool, tr.Dir), 0o600)
	tr.write("tools/pad.sh", padScript, 0o700)
	tr.write("noused/config.toml", "[model]\ndelay = \"500us\"\n", 0o600)
	tr.Start()
	tr.people()
}

// tally says what the trial has tried.
func (tr *trial) tally() string {
	inputs, runs, calls, resumed, cut, lost := 0, 0, 0, 0, 0, 0
	for _, s := range tr.stories {
		inputs, runs, calls = inputs+len(s.Inputs), runs+len(s.Runs), calls+len(s.Calls)
		resumed, cut, lost = resumed+s.Resumed, cut+s.Cut, lost+s.GivenUp
	}
	return fmt.Sprintf(
		"%d kills, %d sessions, %d texts, %d runs, %d resumed, %d tool calls, %d of them cut off, %d runs given up",
		tr.kills, len(tr.stories), inputs, runs, resumed, calls, cut, lost)
}

// people makes three sessions and the clients that share them.
func (tr *trial) people() {
	c := tr.dial()
	for n := range 5 {
		if n < 3 {
			r, err := client.Call(context.Background(), c, protocol.NewSession, protocol.NewSessionParams{})
			if err != nil {
				tr.t.Fatal(err)
			}
			tr.book.made[r.SessionID] = ""
			tr.book.order = append(tr.book.order, r.SessionID)
			tr.book.active.told = r.SessionID
			tr.sayIn(c, r.SessionID)
		}
		tr.guests = append(tr.guests, &guest{
			n: n, book: tr.book, rng: rand.New(rand.NewPCG(tr.seed, uint64(3+n))), session: tr.book.order[n%3], owner: n < 3,
			first: n == 0,
		})
	}
}

// listen reads the epoch's events until the daemon is gone.
func (tr *trial) listen(work *sync.WaitGroup) {
	for id, s := range tr.stories { // what was journaled and not heard: the daemon was killed between the two
		for _, ev := range s.Told[tr.from[id]+len(tr.heard[id]):] {
			tr.nest(ev)
		}
	}
	tr.heard, tr.lines, tr.ended = map[string][]string{}, map[uint64][]byte{}, map[string]bool{}
	tr.from = map[string]int{}
	for id, s := range tr.stories {
		tr.from[id] = len(s.Events)
	}
	if work == nil {
		return
	}
	events := tr.events(protocol.SubscribeParams{After: new(uint64)})
	work.Go(func() {
		defer events.Close()
		for last := uint64(0); ; last++ {
			env, line, err := events.Next(context.Background())
			if err != nil {
				if !errors.Is(err, client.ErrLost) {
					tr.book.bad("events: %v", err)
				}
				return
			}
			ev, err := client.Decode(env)
			if err != nil || env.Seq != last+1 {
				tr.book.bad("after event %d: got %s, %v", last, line, err)
				return
			}
			tr.book.note(func() { tr.hear(env.Seq, line, ev) })
		}
	})
}

// nest holds what a client that follows all epochs hears against the invariants.
func (tr *trial) nest(ev protocol.Event) {
	if err := tr.nesting.Event(ev); err != nil {
		tr.book.wrong = append(tr.book.wrong, "over all epochs: "+err.Error())
	}
}

func (tr *trial) hear(seq uint64, line []byte, ev protocol.Event) {
	if tr.book.dark { // nobody hears it
		return
	}
	tr.lines[seq] = line
	tr.nest(ev)
	id := ev.Where().SessionID
	if e := sessiontest.Essence(ev); e != "" {
		tr.heard[id] = append(tr.heard[id], e)
	}
	end, ended := ev.(protocol.AgentEnd)
	if ended {
		tr.ended[end.RunID] = true
	}
	_, failed := ev.(protocol.ErrorEvent)
	if ended && end.StopReason == "error" && end.Error.Code != "crash_loop" || failed {
		tr.book.wrong = append(tr.book.wrong, "announced: "+string(line))
	}
}

// live has everybody at work until the daemon is killed, or now and then told
// to end.
func (tr *trial) live(kill bool) {
	var work sync.WaitGroup
	trigger := tr.book.arm(1 + tr.rng.IntN([]int{8, 150, 400, 1000}[tr.rng.IntN(4)]))
	tr.listen(&work)
	for _, u := range tr.guests {
		c := tr.dial()
		if all := tr.book.sessions(); !u.owner && tr.rng.IntN(3) == 0 {
			u.session = all[tr.rng.IntN(len(all))]
		}
		work.Go(func() {
			u.work(c)
			_ = c.Close()
		})
	}
	select {
	case <-trigger:
	case <-time.After(5 * time.Second): // too little happens: now, then
	}
	if tr.rng.IntN(3) == 0 {
		time.Sleep(time.Duration(tr.rng.IntN(int(20 * time.Millisecond)))) // any moment, not only that of an event
	}
	switch {
	case tr.disk != nil:
		tr.cut()
		tr.kills++
	case kill && tr.rng.IntN(8) > 0:
		tr.Kill()
		tr.kills++
	default:
		tr.Stop()
	}
	work.Wait()
}

// restart looks at what the killed daemon has left, starts the next and looks
// at what that makes of it.
func (tr *trial) restart() {
	left := orphans(tr.t, tr.Dir)
	if tr.rng.IntN(2) == 0 { // and now and then the next daemon meets them
		for len(left) > 0 {
			tr.awaitEnd(left)
			left = orphans(tr.t, tr.Dir)
		}
	}
	tr.read()
	tr.Start()
	tr.awaitEnd(left)
	tr.checkDaemon()
	tr.report()
}

// awaitEnd waits until the guardian has ended the processes.
func (tr *trial) awaitEnd(pidfds []int) {
	for _, fd := range pidfds {
		ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		for {
			n, err := unix.Poll(ready, int(hangTime.Milliseconds()))
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if n != 1 || err != nil {
				tr.book.bad("a process of the killed daemon's tools is still there after %s (%v)", hangTime, err)
			}
			break
		}
		_ = unix.Close(fd)
	}
}

// orphans are pidfds of the processes that carry the tools' mark.
func orphans(t testing.TB, dir string) (pidfds []int) {
	t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range found {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // it has ended
		}
		environ, _ := os.ReadFile(path)
		if bytes.Contains(environ, []byte("CRASH_MARK="+dir+"\x00")) {
			pidfds = append(pidfds, fd)
		} else {
			_ = unix.Close(fd)
		}
	}
	return pidfds
}

func (tr *trial) bad(format string, args ...any) { tr.book.bad(format, args...) }

// read holds the notebook against the journals: nothing was announced
// that is not in them.
func (tr *trial) read() {
	if tr.book.dark {
		clear(tr.stories)
	}
	dir := filepath.Join(tr.Dir, "state", "sessions")
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		tr.t.Fatal(err)
	}
	for _, path := range files {
		id := strings.TrimSuffix(filepath.Base(path), ".jsonl")
		s := tr.stories[id]
		if s == nil {
			s = sessiontest.New(id)
			tr.stories[id] = s
		}
		if err := s.Take(path); err != nil {
			tr.bad("session %s: %v", id, err)
		}
		for _, w := range s.Wrong {
			tr.bad("session %s: %s", id, w)
		}
		if in, err := session.Inspect(path); err != nil || len(in.Missing) > 0 {
			tr.bad("session %s names images that are not there: %v, %v", id, in.Missing, err)
		}
		if !tr.book.dark {
			tr.compareEvents(s)
		}
		for in, n := range s.Delivered {
			if n > 1 {
				tr.bad("input %s was delivered %d times", in, n)
			}
		}
		for key, n := range s.Keys {
			if n > 1 {
				tr.bad("key %s was accepted %d times", key, n)
			}
		}
	}
	if tr.book.dark {
		tr.lose()
	}
	tr.compareNotes()
	tr.compareCalls()
	tr.report()
}

func (tr *trial) compareEvents(s *sessiontest.Story) {
	heard, told := tr.heard[s.ID], s.Events[tr.from[s.ID]:]
	for i, e := range heard {
		if i >= len(told) || told[i] != e {
			want := "nothing"
			if i < len(told) {
				want = told[i]
			}
			tr.bad("session %s: event %d of the epoch: announced\n\t%s\nin the journal is\n\t%s\nbefore it\n\t%s", s.ID, i, e,
				want,
				strings.Join(heard[max(0, i-6):i], "\n\t"))
			return
		}
	}
}

func (tr *trial) compareNotes() {
	said := map[string]int{}
	for _, s := range tr.stories {
		for text, n := range s.Said {
			said[text] += n
		}
	}
	for text, n := range said {
		if n > 1 {
			tr.bad("%q was accepted %d times", text, n)
		}
	}
	for _, a := range tr.book.accepted {
		s := tr.stories[a.session]
		if s == nil {
			tr.bad("session %s is gone", a.session)
			continue
		}
		in, ok := s.Inputs[a.input]
		if a.input != "" && (!ok || in.Text != a.text || in.RunID != a.run || in.Key != a.key) || said[a.text] != 1 {
			tr.bad("accepted %+v, in the journal is %+v", a, in)
		}
		if _, ok := s.Runs[a.run]; !ok {
			tr.bad("run %s of %+v is not in the journal", a.run, a)
		}
	}
	for _, w := range tr.book.withdraw {
		if s := tr.stories[w.SessionID]; s == nil || !s.Withdrawn[w.InputID] || s.Delivered[w.InputID] > 0 ||
			s.Inputs[w.InputID].Text != w.Text {
			tr.bad("%+v was withdrawn, and the journal says otherwise", w)
		}
	}
	for _, a := range tr.book.aborts {
		found := false
		for _, s := range tr.stories {
			ids, ok := s.Aborts[a.RunID]
			found = found || ok && (len(a.Discarded) == 0 || len(a.Discarded) == len(ids))
			for i, in := range a.Discarded {
				if ok && (i >= len(ids) || ids[i] != in.InputID || s.Inputs[in.InputID].Text != in.Text) {
					tr.bad("the abort of %s handed back %+v, in the journal are %v", a.RunID, a.Discarded, ids)
				}
			}
		}
		if !found {
			tr.bad("the abort of %s is not in the journal: %+v", a.RunID, a)
		}
	}
	for id, parent := range tr.book.made {
		if s := tr.stories[id]; s == nil || s.Parent != parent {
			tr.bad("session %s, made below %q, is %+v", id, parent, s)
		}
	}
	for id, list := range tr.book.leaves {
		for _, leaf := range list {
			if !tr.stories[id].Leaves[leaf] {
				tr.bad("session %s: the leaf was moved to %s, which the journal does not know", id, leaf)
			}
		}
	}
	for id, list := range tr.book.summary {
		for _, text := range list {
			if !tr.stories[id].Summaries[text] {
				tr.bad("session %s: was compacted to %q, which the journal does not know", id, text)
			}
		}
	}
	for at, v := range tr.book.settings {
		s := tr.stories[at.session]
		got := cmp.Or(s.Modes[at.what], strings.Join(s.Tools, " "))
		if slices.Contains(v.asked, got) || v.told == got || v.told == "" {
			*v = value{told: got}
			continue
		}
		tr.bad("session %s: %s is %q, told was %q, asked for since: %q", at.session, at.what, got, v.told, v.asked)
	}
	tr.compareResults()
	// What was compared once does not change: the journals only grow.
	tr.book.accepted, tr.book.aborts, tr.book.results, tr.book.withdraw = nil, nil, nil, nil
}

// compareResults holds the events in the replies of waiting prompts against
// those of the event socket.
func (tr *trial) compareResults() {
	for _, r := range tr.book.results {
		for _, line := range r.Events {
			var env protocol.EventEnvelope
			if err := json.Unmarshal(line, &env); err != nil {
				tr.bad("in the result of %s: %v", r.RunID, err)
			}
			if heard, ok := tr.lines[env.Seq]; ok && !bytes.Equal(heard, line) {
				tr.bad("in the result of %s: event %s, announced was %s", r.RunID, line, heard)
			}
		}
	}
}

// compareCalls looks at what the tools were really given: each call once, and
// none whose start is not in a journal.
func (tr *trial) compareCalls() {
	text, err := os.ReadFile(filepath.Join(tr.Dir, "calls"))
	if err != nil && !os.IsNotExist(err) {
		tr.t.Fatal(err)
	}
	tokens := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		_, rest, _ := strings.Cut(line, `"token":"`)
		token, _, ok := strings.Cut(rest, `"`)
		if !ok || tokens[token] {
			tr.bad("a tool was run twice: %s", line)
		}
		tokens[token] = true
	}
	started := 0
	for _, s := range tr.stories {
		started += len(s.Calls)
	}
	if len(tokens) > started {
		tr.bad("%d tool calls were run, the journals know of %d", len(tokens), started)
	}
}

// checkDaemon holds what the new daemon says against what the old one has left.
func (tr *trial) checkDaemon() {
	ctx, c := context.Background(), tr.dial()
	defer c.Close()
	st, err := client.Call(ctx, c, protocol.GetState, protocol.GetStateParams{})
	if err != nil {
		tr.t.Fatal(err)
	}
	_, known := tr.book.made[st.SessionID]
	if a := &tr.book.active; !a.allows(st.SessionID) && (known || !slices.Contains(a.asked, anySession)) {
		tr.bad("the active session is %s, told was %s, asked for since: %q", st.SessionID, a.told, a.asked)
	}
	tr.book.active = value{told: st.SessionID}
	if !known { // it was made, and nobody was told
		tr.book.made[st.SessionID] = tr.stories[st.SessionID].Parent
		tr.book.order = append(tr.book.order, st.SessionID)
	}
	for id, s := range tr.stories {
		tr.askOne(ctx, c, protocol.Scope{SessionID: id}, s)
	}
}

func (tr *trial) askOne(ctx context.Context, c *client.Client, scope protocol.Scope, s *sessiontest.Story) {
	st, err := client.Call(ctx, c, protocol.GetState, protocol.GetStateParams{Scope: scope})
	if err != nil {
		tr.bad("session %s: %v", s.ID, err)
		return
	}
	if string(st.SteeringMode) != s.Modes["steer"] || string(st.FollowUpMode) != s.Modes["follow_up"] || st.RunID != "" &&
		!s.Owed()[st.RunID] {
		tr.bad("session %s: modes %v, run %q; the state is %+v", s.ID, s.Modes, s.Run, st)
	}
	if want := slices.Sorted(slices.Values(s.Tools)); s.Chosen &&
		!slices.Equal(slices.Sorted(slices.Values(st.ActiveTools)), want) {
		tr.bad("session %s: active tools are %v, want %v", s.ID, st.ActiveTools, want)
	}
	tree, err := client.Call(ctx, c, protocol.GetTree, protocol.GetTreeParams{Scope: scope})
	if err != nil {
		tr.bad("session %s: %v", s.ID, err)
		return
	}
	inner, nodes := map[string]bool{}, map[string]bool{}
	for _, n := range tree.Nodes {
		nodes[n.ID] = true
		inner[n.ParentID] = n.Role != "compaction"
	}
	for id := range s.Texts {
		if !nodes[id] {
			tr.bad("session %s: entry %s is gone", s.ID, id)
		}
	}
	if s.Run == "" && len(s.Pending) == 0 && tree.LeafID != s.Leaf {
		tr.bad("session %s: the leaf is %s, want %s", s.ID, tree.LeafID, s.Leaf)
	}
	for _, n := range tree.Nodes {
		if !inner[n.ID] {
			tr.askMessages(ctx, c, scope, n.ID, s)
		}
	}
}

func (tr *trial) askMessages(ctx context.Context, c *client.Client, scope protocol.Scope, leaf string,
	s *sessiontest.Story,
) {
	r, err := client.Call(ctx, c, protocol.GetMessages, protocol.GetMessagesParams{Scope: scope, LeafID: leaf})
	if err != nil {
		tr.bad("session %s: %v", s.ID, err)
		return
	}
	for _, line := range r.Messages {
		var m struct {
			ID      string `json:"id"`
			Text    string `json:"text"`
			Summary string `json:"summary"`
		}
		if err := json.Unmarshal(line, &m); err != nil {
			tr.bad("session %s: %v", s.ID, err)
		}
		if text, ok := s.Texts[m.ID]; ok && text != cmp.Or(m.Summary, m.Text) {
			tr.bad("session %s: entry %s says %q, want %q", s.ID, m.ID, cmp.Or(m.Summary, m.Text), text)
		}
	}
}

// end lets every run come to its end, and asks once more for all that was
// promised.
func (tr *trial) end() {
	events := tr.events(protocol.SubscribeParams{After: new(uint64)})
	tr.listen(nil)
	for _, s := range tr.stories {
		for run := range s.Owed() {
			tr.await(events, run)
		}
	}
	tr.Kill()
	tr.kills++
	tr.read()
	for id, s := range tr.stories {
		if err := s.Done(); err != nil {
			tr.bad("session %s: %v", id, err)
		}
	}
	for list := orphans(tr.t, tr.Dir); len(list) > 0; list = orphans(tr.t, tr.Dir) {
		tr.awaitEnd(list)
	}
	tr.report()
}

// await listens until a run has ended.
func (tr *trial) await(events *client.Events, run string) {
	for !tr.ended[run] {
		env, line, err := events.Next(context.Background())
		if err != nil {
			tr.t.Fatalf("seed %d: waiting for the end of run %s: %v", tr.seed, run, err)
		}
		ev, err := client.Decode(env)
		if err != nil {
			tr.t.Fatal(err)
		}
		tr.hear(env.Seq, line, ev)
	}
}

// report ends the trial where a promise was broken.
func (tr *trial) report() {
	tr.t.Helper()
	tr.book.mu.Lock()
	defer tr.book.mu.Unlock()
	if len(tr.book.wrong) > 0 {
		tr.t.Fatalf("seed %d, kill %d:\n%s", tr.seed, tr.kills, strings.Join(tr.book.wrong[:min(len(tr.book.wrong), 10)],
			"\n"))
	}
}
