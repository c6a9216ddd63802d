//go:build sim

package sim

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"noused/internal/agent"
	"noused/internal/model"
	"noused/internal/policy"
	"noused/internal/proc"
	"noused/internal/protocol"
	"noused/internal/runloop"
)

// makers are the hosted agents: each can take up its sessions in another way.
var makers = []string{"resumes", "loads", "forgets"}

// queues reports that an agent takes a prompt while it works, in this world.
func (w *world) queues(name string) bool {
	sum := fnv.New64a()
	fmt.Fprint(sum, "queues ", name)
	return rand.New(rand.NewPCG(w.seed, sum.Sum64())).IntN(2) == 0
}

// guests are the daemon's agents, as it has them, with processes of the simulator's.
type guests struct{ *agent.Agents }

func (g guests) Open(id, name, workdir string, tell func(context.Context, model.AgentNews) error) runloop.Agent {
	return g.Agents.Open(id, name, workdir, tell)
}

func (l *life) guests(newID func(string) string) guests {
	none, err := policy.New()
	must(l.w.t, err)
	o := agent.Options{
		Version: "1", NewID: newID, Rules: func() *policy.Set { return none },
		Start: func(_ context.Context, s agent.Spec, _ proc.Command) (agent.Process, error) {
			return l.guest(s.Name), nil
		},
	}
	for _, name := range makers {
		o.Specs = append(o.Specs, agent.Spec{Name: name, Command: []string{"/bin/sh"}})
	}
	return guests{agent.New(o)}
}

// known is what an agent knows of a session, also when its process has ended.
type known struct{ said []string }

// guest is an agent's process.
type guest struct {
	l     *life
	name  string
	over  chan struct{} // closed when it ends
	once  sync.Once
	input *io.PipeWriter
	out   *io.PipeReader
	say   *io.PipeWriter
	all   sync.WaitGroup

	mu    sync.Mutex
	works map[string]*works   // by session
	waits map[int]chan string // permissions, by the request's id
}

// works is what an agent does in a session.
type works struct {
	busy   int           // prompts that have no answer
	latest chan struct{} // closed once the latest of them has
	ending bool          // they were cancelled
	cancel chan struct{} // closed where they are to end
}

// in is what the agent does in a session. g.mu is held.
func (g *guest) in(session string) *works {
	if g.works[session] == nil {
		g.works[session] = &works{}
	}
	return g.works[session]
}

func (l *life) guest(name string) *guest {
	g := &guest{l: l, name: name, over: make(chan struct{}), works: map[string]*works{}, waits: map[int]chan string{}}
	var in *io.PipeReader
	in, g.input = io.Pipe()
	g.out, g.say = io.Pipe()
	g.all.Go(func() { g.serve(in) })
	g.all.Go(func() { // with the daemon it ends, too
		select {
		case <-l.dead:
			g.Kill()
		case <-g.over:
		}
	})
	return g
}

func (g *guest) Read(b []byte) (int, error) { return g.out.Read(b) }

func (g *guest) Write(_ context.Context, line []byte) error {
	_, err := g.input.Write(line)
	return err
}

func (g *guest) Kill() {
	g.once.Do(func() {
		close(g.over)
		_ = g.input.Close()
		_ = g.say.Close()
		_ = g.out.CloseWithError(io.EOF)
	})
}

func (g *guest) Stop()             { g.Kill() }
func (g *guest) Stderr(int) string { return "" }

// No program is started anew here: lives end with a kill.
func (g *guest) Pause() {}

func (g *guest) Keep(context.Context) (proc.Kept, error) {
	return proc.Kept{}, errors.New("nothing is kept in a simulation")
}

func (g *guest) Wait() proc.Exit {
	<-g.over
	g.all.Wait()
	return proc.Exit{Code: 1}
}

// ask is a line that the daemon has sent.
type ask struct {
	ID     json.RawMessage
	Method string
	Params struct {
		SessionID string
		Prompt    []struct{ Text string }
	}
	Result struct {
		Outcome struct{ Outcome, OptionID string }
	}
}

func (g *guest) serve(in *io.PipeReader) {
	defer g.Kill()
	defer in.Close()
	lines := bufio.NewReaderSize(in, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var a ask
		must(g.l.w.t, json.Unmarshal(line, &a))
		switch a.Method {
		case "":
			g.answered(a)
		case "session/cancel":
			g.mu.Lock()
			does := g.in(a.Params.SessionID)
			does.ending = true
			if does.cancel != nil && !g.chance("cancel").deaf {
				close(does.cancel)
				does.cancel = nil
			}
			g.mu.Unlock()
		case "session/prompt":
			g.prompted(a)
		default:
			g.all.Go(func() { g.open(a) })
		}
	}
}

// prompted has a prompt worked on, after the one that is open.
func (g *guest) prompted(a ask) {
	g.mu.Lock()
	defer g.mu.Unlock()
	does := g.in(a.Params.SessionID)
	for id, other := range g.works {
		if id != a.Params.SessionID && other.busy > 0 {
			g.l.w.shares()
		}
	}
	if does.busy > 0 {
		g.l.w.crowds(g, does)
	} else {
		does.cancel, does.ending = make(chan struct{}), false
	}
	cancel, before, done := does.cancel, does.latest, make(chan struct{})
	does.busy, does.latest = does.busy+1, done
	g.all.Go(func() {
		defer close(done)
		if before != nil {
			<-before
		}
		select {
		case <-g.over:
		default:
			g.work(a, cancel, done)
		}
	})
}

// crowds takes in that an agent is sent a prompt while another is open. g.mu is held.
func (w *world) crowds(g *guest, does *works) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sometimes("an agent is sent a prompt while it works")
	if !w.queues(g.name) || does.ending {
		w.fail("%s is sent a prompt while another is open, cancelled: %t", g.name, does.ending)
	}
}

// follows reports that another prompt has come since.
func (g *guest) follows(session string, done chan struct{}) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.in(session).latest != done
}

// mood is what a seed says of something that an agent does.
type mood struct {
	*rand.Rand
	deaf bool
}

func (g *guest) chance(what string) mood {
	w := g.l.w
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.chanceOf("agent " + what)
	return mood{r, !w.calm && r.IntN(6) == 0}
}

// pause waits for the driver. It fails where the agent ends there.
func (g *guest) pause(what string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { // ends with ctx
		select {
		case <-g.over:
			cancel()
		case <-ctx.Done():
		}
	}()
	err := g.l.stopUntil(ctx, "agent "+what)
	if err != nil {
		g.Kill()
	}
	return err
}

func (g *guest) send(message map[string]any) {
	message["jsonrpc"] = "2.0"
	text, err := json.Marshal(message)
	must(g.l.w.t, err)
	_, _ = g.say.Write(append(text, '\n'))
}

func (g *guest) reply(a ask, result any) {
	g.send(map[string]any{"id": a.ID, "result": result})
}

func (g *guest) update(session, kind string, more map[string]any) {
	more["sessionUpdate"] = kind
	g.send(map[string]any{"method": "session/update", "params": map[string]any{"sessionId": session, "update": more}})
}

func chunk(text string) map[string]any {
	return map[string]any{"content": map[string]any{"type": "text", "text": text}}
}

// open answers what leads to an open session.
func (g *guest) open(a ask) {
	if g.pause(a.Method) != nil {
		return
	}
	w := g.l.w
	w.mu.Lock()
	k := w.known[a.Params.SessionID]
	var said []string
	if k != nil {
		said = slices.Clone(k.said)
	}
	w.mu.Unlock()
	switch a.Method {
	case "initialize":
		can := map[string]any{"loadSession": g.name == "loads"}
		if g.name == "resumes" {
			can["sessionCapabilities"] = map[string]any{"resume": map[string]any{}}
		}
		can["_meta"] = map[string]any{"sim": map[string]any{"promptQueueing": w.queues(g.name)}}
		g.reply(a, map[string]any{"protocolVersion": 1, "agentCapabilities": can})
	case "session/new":
		w.mu.Lock()
		id := fmt.Sprint("agent-", len(w.known)+1)
		w.known[id] = &known{}
		w.mu.Unlock()
		g.reply(a, map[string]any{"sessionId": id})
	case "session/load", "session/resume":
		if k == nil {
			g.send(map[string]any{"id": a.ID, "error": map[string]any{"code": -32002, "message": "no such session"}})
			return
		}
		if a.Method == "session/load" {
			for i, text := range said {
				u := chunk(text)
				u["messageId"] = fmt.Sprint("said-", i)
				g.update(a.Params.SessionID, "user_message_chunk", u)
				g.update(a.Params.SessionID, "agent_message_chunk", chunk("and so on"))
			}
			w.mu.Lock()
			for _, text := range said {
				w.taken[a.Params.SessionID+text] = true // another session of the agent's does not have it
			}
			w.mu.Unlock()
		}
		g.reply(a, map[string]any{})
	default:
		g.send(map[string]any{"id": a.ID, "error": map[string]any{"code": -32601, "message": "not offered"}})
	}
}

// work works on a prompt.
func (g *guest) work(a ask, cancel, done chan struct{}) {
	session := a.Params.SessionID
	chance := g.chance("prompt")
	late := g.name == "loads" && chance.IntN(3) == 0 // it notes what was said when it has something to say
	note := func() {
		g.l.w.mu.Lock()
		defer g.l.w.mu.Unlock()
		k := g.l.w.known[session]
		for _, p := range a.Params.Prompt {
			k.said = append(k.said, p.Text)
			g.l.w.has(p.Text) // also where its daemon has died just now
		}
	}
	g.l.w.hears(g.l, a)
	if !late {
		note()
	}
	stop := "end_turn"
	for n := range 1 + chance.IntN(4) {
		if g.pause("works in "+session) != nil {
			return
		}
		select {
		case <-cancel:
			stop = "cancelled"
		default:
		}
		if stop == "end_turn" && g.follows(session, done) && chance.IntN(2) == 0 {
			stop = []string{"cancelled", "end_turn"}[chance.IntN(2)]
			g.l.w.handsOver()
			break
		}
		if stop == "cancelled" {
			break
		}
		if late {
			note()
			late = false
		}
		switch chance.IntN(4) {
		case 0:
			g.call(session, chance.IntN(3) == 0, cancel)
		case 1:
			if !g.permission(session, cancel) {
				return
			}
		default:
			u := chunk(fmt.Sprintf("word %d ", n))
			u["messageId"] = fmt.Sprint("m", chance.IntN(2))
			g.update(session, "agent_message_chunk", u)
		}
	}
	if g.pause("answers in "+session) != nil {
		return
	}
	select {
	case <-cancel:
		stop = "cancelled"
	default:
		switch chance.IntN(12) {
		case 0:
			stop = "refusal"
		case 1:
			stop = "max_tokens"
		}
	}
	g.mu.Lock()
	g.in(session).busy--
	g.mu.Unlock()
	g.reply(a, map[string]any{"stopReason": stop})
}

func (w *world) shares() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sometimes("an agent works in several sessions at once")
}

func (w *world) handsOver() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sometimes("an agent ends a prompt for the one that came meanwhile")
}

// call makes a call without asking.
func (g *guest) call(session string, open bool, cancel chan struct{}) {
	id := g.number()
	u := map[string]any{
		"toolCallId": fmt.Sprint("act-", id), "title": fmt.Sprint("act ", id), "kind": "other", "status": "in_progress",
		"rawInput": map[string]any{"n": id},
	}
	g.update(session, "tool_call", u)
	if open || g.pause("acts in "+session) != nil {
		return // it is never heard of again
	}
	g.update(session, "tool_call_update", map[string]any{"toolCallId": u["toolCallId"], "status": "completed"})
}

// number is one that no other act has.
func (g *guest) number() int {
	w := g.l.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acts++
	return w.acts
}

// permission asks for leave, and acts where it has it. False: the agent has ended.
func (g *guest) permission(session string, cancel chan struct{}) bool {
	id := g.number()
	answer := make(chan string, 1)
	g.mu.Lock()
	g.waits[id] = answer
	g.mu.Unlock()
	call := map[string]any{
		"toolCallId": fmt.Sprint("act-", id), "title": fmt.Sprint("act ", id), "kind": "other",
		"rawInput": map[string]any{"n": id},
	}
	g.send(map[string]any{"id": id, "method": "session/request_permission", "params": map[string]any{
		"sessionId": session, "toolCall": call, "options": []map[string]any{
			{"optionId": "yes", "name": "yes", "kind": "allow_once"},
			{"optionId": "ever", "name": "for ever", "kind": "allow_always"},
			{"optionId": "no", "name": "no", "kind": "reject_once"},
		},
	}})
	select {
	case option := <-answer:
		w := g.l.w
		w.mu.Lock()
		if (option == "yes" || option == "ever") && w.leave[id] != g.l.number && !w.auto && !g.l.gone() {
			w.fail("act %d has leave, and nobody has given it", id)
		}
		w.mu.Unlock()
		status := "failed"
		if option == "yes" || option == "ever" {
			status = "completed"
		}
		if g.pause("acts in "+session) != nil {
			return false
		}
		g.update(session, "tool_call_update", map[string]any{"toolCallId": call["toolCallId"], "status": status})
		return true
	case <-g.over:
		return false
	}
}

// answered takes the daemon's answer to what the agent has asked.
func (g *guest) answered(a ask) {
	var id int
	if json.Unmarshal(a.ID, &id) != nil {
		return
	}
	g.mu.Lock()
	waits := g.waits[id]
	delete(g.waits, id)
	g.mu.Unlock()
	if waits == nil {
		g.l.w.mu.Lock()
		defer g.l.w.mu.Unlock()
		g.l.w.fail("act %d is answered, and nobody has asked", id)
		return
	}
	waits <- a.Result.Outcome.OptionID
}

// errGuest has an agent end.
var errGuest = errors.New("the agent ends")

// hears takes in what an agent was sent. A text that it has taken is not sent again.
func (w *world) hears(l *life, a ask) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l.gone() {
		return
	}
	for _, p := range a.Params.Prompt {
		if strings.HasPrefix(p.Text, saidBefore) {
			w.sometimes("an agent is told what was said before")
			w.has(p.Text)
			continue
		}
		if strings.HasPrefix(p.Text, "You were stopped") {
			w.sometimes("an agent goes on with a cut turn")
		}
		if !strings.HasPrefix(p.Text, "text ") {
			continue
		}
		if w.taken[p.Text] || w.taken[a.Params.SessionID+p.Text] {
			w.fail("%q is sent to an agent that has taken it", p.Text)
		}
		if w.had[firstLine(p.Text)] {
			w.sometimes("an agent is sent a text again")
		}
		w.has(p.Text)
	}
}

// saidBefore is how a text begins that tells an agent a conversation.
const saidBefore = "This is what was said before:"

// has notes that an agent has a text. w.mu is held.
func (w *world) has(text string) {
	said, before := strings.CutPrefix(text, saidBefore)
	if !before {
		w.had[firstLine(text)] = true
		return
	}
	for line := range strings.Lines(said) {
		w.had[strings.TrimSpace(strings.TrimPrefix(line, "> "))] = true
	}
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// noteAgent notes what is announced of a hosted session. w.mu is held.
func (w *world) noteAgent(ev protocol.Event) {
	in := ev.Where().SessionID
	if w.hosted[in] == "" {
		return
	}
	took := func() {
		for _, text := range w.handed[in] {
			w.taken[text] = true
		}
	}
	switch ev := ev.(type) {
	case protocol.MessageStart:
		switch beside, open := w.beside[in]; {
		case ev.Role != "user":
			took()
		case open:
			w.beside[in] = append(beside, ev.Text)
		default:
			w.handed[in] = append(w.handed[in], ev.Text)
		}
		delete(w.revived, in)
	case protocol.ToolStart:
		if !w.revived[in] { // else a former agent has said so
			took()
		}
	case protocol.TurnEnd:
		if ev.StopReason == protocol.StopSteered && w.queues(w.hosted[in]) { // its prompt is still open
			w.beside[in] = append([]string{}, w.beside[in]...)
			break
		}
		if ev.StopReason == protocol.StopEnd { // else they were cut before the agent had a look at them, it may be
			w.handed[in] = append(w.handed[in], w.beside[in]...)
			took()
		} else {
			for _, text := range w.beside[in] {
				w.missed[text] = true
			}
		}
		delete(w.beside, in)
	case protocol.AgentEnd:
		if ev.StopReason != protocol.StopCompleted {
			break
		}
		w.sometimes("a hosted run completes")
		for _, text := range w.handed[in] {
			if !w.had[firstLine(text)] && !w.missed[text] && strings.HasPrefix(text, "text ") {
				w.fail("run %s is done, and its agent never had %q", ev.RunID, text)
			}
		}
	case protocol.Status:
		switch ev.Code {
		case protocol.StatusRunResumed:
			w.revived[in] = true
		case protocol.StatusApprovalRequested:
			if n := act(ev.Approval); n > 0 {
				w.sometimes("an agent asks for leave")
				w.about[ev.Approval.ApprovalID] = n
			}
		case protocol.StatusApprovalResolved:
			if ev.Outcome == protocol.OutcomeAllowed {
				w.leave[w.about[ev.ApprovalID]] = w.life.number
			}
		}
	}
}

// act is the number of the act that an approval is about.
func act(a *protocol.Approval) int {
	var input struct{ N int }
	if json.Unmarshal(bytes.TrimSpace(a.Arguments), &input) != nil {
		return 0
	}
	return input.N
}
