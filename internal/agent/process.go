package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/acp"
	"noused/internal/format"
	"noused/internal/model"
	"noused/internal/proc"
)

const (
	// startTime is how long an agent has to say what it can do, and to open a session.
	startTime = 2 * time.Minute
	// cancelTime is how long an agent has to end its turn before it is ended itself.
	cancelTime = 10 * time.Second
	// lastWords is how much is kept of what an agent has said to standard error, in bytes.
	lastWords = 4 << 10
)

// The capabilities of sessions that are used.
const canClose, canResume = "close", "resume"

// process is a running agent. Sessions of a folder share it.
type process struct {
	agents  *Agents
	spec    Spec
	key     string // of those that further sessions may join, "" for none
	p       Process
	conn    *acp.Conn
	said    acp.AgentSaid
	ctx     context.Context // ends with the process; its cause says how
	end     context.CancelCauseFunc
	started chan struct{} // closed once it has said what it can do; before, the fields above are not set
	problem error         // why it has not
	over    chan struct{} // closed once nothing is left of it
	still   chan struct{} // closed once nothing is read any more, after a pause
	making  chan struct{} // holds one while session/new is under way
	sending chan struct{} // holds one while a prompt is sent
	was     *acp.Left     // of the connection of a process that a former program has left

	mu      sync.Mutex
	links   []*link // its sessions
	kept    []*link // of those that are closed, the ones for the next program
	begins  *link   // whose session/new is under way
	reading bool    // what it says is read, or was
	paused  bool
	culprit *Session // that has had it ended

	isFinished bool
	finished   chan struct{} // closed once all its sessions are being closed for good
}

// replay is what people have said in a session that an agent tells again.
type replay struct {
	texts  [][]byte
	bytes  int
	begins bool // another text, with the next piece that is not empty
}

// What is kept of it, the newest: so many bytes, each text with what is kept beside it, and so many texts.
const (
	maxReplay = 4 << 20
	perText   = 64
	maxTexts  = 10_000
)

func (r *replay) add(begins bool, text string) {
	r.begins = r.begins || begins
	if text == "" {
		return
	}
	if r.begins || len(r.texts) == 0 {
		r.texts, r.begins = append(r.texts, nil), false
		r.bytes += perText
	}
	last := &r.texts[len(r.texts)-1]
	text = format.Cut(text, maxReplay-len(*last))
	*last = append(*last, text...)
	r.bytes += len(text)
	for (r.bytes > maxReplay || len(r.texts) > maxTexts) && len(r.texts) > 1 {
		r.bytes -= perText + len(r.texts[0])
		r.texts[0], r.texts = nil, r.texts[1:] // else it would stay in what is left of the list
	}
}

// wordy is how long a text is, in bytes, that nobody writes twice by chance.
const wordy = 40

// beyond is what was told beyond the texts that were said, which are told in their order. The error is that
// of ctx.
func (r *replay) beyond(ctx context.Context, said []string) ([]string, error) {
	var told []string
	for _, text := range r.texts {
		told = append(told, string(text))
	}
	from := 0
	for _, text := range said {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if i := indexOf(told[from:], text); i >= 0 {
			from += i
			told = slices.Delete(told, from, from+1)
		}
	}
	return told, nil
}

// maxAhead is how much is kept of texts that an agent has before the conversation, in bytes.
const maxAhead = 64 << 10

// lacks are those of the texts that the agent does not have: what it has before the
// conversation is taken out of that. What is kept of the rest is bounded.
func (p *link) lacks(fresh []model.Message) (out []model.Message) {
	for _, m := range fresh {
		if i := indexOf(p.ahead, m.Text); i >= 0 {
			p.ahead = slices.Delete(p.ahead, i, i+1)
		} else {
			out = append(out, m)
		}
	}
	size := 0
	for i := len(p.ahead) - 1; i >= 0; i-- {
		if size += 100 + len(p.ahead[i]); size > maxAhead {
			p.ahead = slices.Clone(p.ahead[i+1:])
			break
		}
	}
	return out
}

func indexOf(all []string, text string) int {
	return slices.IndexFunc(all, func(told string) bool { return sameText(told, text) })
}

// sameText reports whether a text is what an agent tells again: some tell one with more
// around it, and a short one may be a part of another.
func sameText(told, text string) bool {
	told, text = strings.TrimSpace(told), strings.TrimSpace(text)
	return told == text || len(text) >= wordy && strings.Contains(told, text)
}

// writer is the standard input of a process.
type writer struct {
	p   Process
	ctx context.Context
}

func (w writer) Write(line []byte) (int, error) {
	if err := w.p.Write(w.ctx, line); err != nil {
		return 0, err
	}
	return len(line), nil
}

// endedError says that an agent's process has ended.
type endedError struct {
	how     string
	culprit *Session // that has had it ended, nil where it ended by itself
	crowded bool     // it had several sessions
}

func (e *endedError) Error() string { return e.how }

// newProcess is not started yet.
func newProcess(a *Agents, spec Spec) *process {
	p := &process{
		agents: a, spec: spec, started: make(chan struct{}), over: make(chan struct{}), still: make(chan struct{}),
		finished: make(chan struct{}), making: make(chan struct{}, 1), sending: make(chan struct{}, 1),
	}
	p.ctx, p.end = context.WithCancelCause(context.Background())
	return p
}

// start starts the agent's program and asks what it can do.
func (p *process) start(workdir string) {
	p.problem = p.launch(workdir)
	if p.problem != nil {
		p.agents.drop(p)
		if p.conn == nil {
			close(p.over)
		} else {
			p.p.Stop()
			<-p.over
		}
	}
	close(p.started)
}

func (p *process) launch(workdir string) error {
	path, err := p.spec.Path()
	if err != nil {
		return failedf("%v", err)
	}
	child, err := p.agents.o().Start(p.ctx, p.spec, proc.Command{
		Name: p.spec.Name, Path: path, Args: p.spec.Command, Dir: workdir,
	})
	if err != nil {
		return failedf("%v", err)
	}
	p.p, p.conn = child, acp.NewConn(child, writer{child, p.ctx})
	p.mu.Lock()
	p.reading = true
	p.mu.Unlock()
	go p.serve() // ends with the process
	if err := p.greet(p.agents.o().Version); err != nil {
		return p.spec.problem(err)
	}
	return nil
}

// serve reads what an agent says until it ends, or the reading is paused.
func (p *process) serve() {
	lost := make(chan struct{})
	go func() { // ends with the process
		select {
		case <-p.conn.Lost():
			p.p.Stop()
		case <-lost:
		}
	}()
	err := p.conn.Serve(handler{p})
	if errors.Is(err, proc.ErrPaused) {
		close(lost)
		close(p.still)
		return
	}
	p.p.Stop()
	exit := p.p.Wait()
	close(lost)
	how := exit.String()
	if words := strings.TrimSpace(p.p.Stderr(lastWords)); words != "" {
		how += ": " + format.Clip(words[strings.LastIndexByte(words, '\n')+1:], 500)
	}
	p.agents.drop(p) // nobody joins it any more
	p.mu.Lock()
	links, culprit := slices.Clone(p.links), p.culprit
	p.mu.Unlock()
	p.end(&endedError{how, culprit, len(links) > 1})
	p.conn.Close()
	for _, l := range links {
		l.s.lost(l)
	}
	close(p.over)
	for _, l := range links {
		l.gone()
	}
}

// stop ends the process, and waits for that.
func (p *process) stop() {
	p.end(&endedError{how: "the daemon has ended it"}) // nobody takes in what it says
	<-p.started
	p.mu.Lock()
	unread := !p.reading || p.paused
	p.mu.Unlock()
	switch {
	case p.p == nil:
	case unread: // and nobody waits for its end
		p.p.Kill()
		p.p.Wait()
	default:
		p.p.Stop()
		<-p.over
	}
}

// kill ends the process for a session, and its other sessions go on in another.
func (p *process) kill(culprit *Session) {
	p.mu.Lock()
	p.culprit = cmp.Or(p.culprit, culprit)
	others := len(p.links) > 1
	p.mu.Unlock()
	culprit.mu.Lock()
	culprit.apart = culprit.apart || others
	culprit.mu.Unlock()
	p.p.Kill()
}

// askThen calls a method of the agent's. The error is an *acp.Error where it refuses, and an
// *endedError where it has ended. then is called as [acp.Conn.CallThen] says.
func (l *link) askThen(ctx context.Context, method string, params, result any,
	then func(jsontext.Value, *acp.Error),
) error {
	return l.answer(ctx, l.ctx, method, l.conn.Ask(method, params, then), result)
}

// answer waits for the answer to what was asked, as askThen does, and as long as life.
func (p *process) answer(ctx, life context.Context, method string, asked *acp.Question, result any) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(life, func() { cancel(context.Cause(life)) })()
	raw, err := asked.Wait(ctx)
	if err != nil && !errors.As(err, new(*acp.Error)) {
		select {
		case <-p.conn.Lost(): // before anybody has seen that the process ends
			p.p.Stop()
			select {
			case <-p.over:
			case <-p.still:
			}
		default:
		}
		if life.Err() != nil {
			return context.Cause(life)
		}
	}
	if err != nil {
		return err
	}
	return read(method, raw, result)
}

// read reads the result of a method, unless result is nil.
func read(method string, raw jsontext.Value, result any) error {
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(raw, result, jsontext.AllowDuplicateNames(true)); err != nil {
		return fmt.Errorf("its answer to %s cannot be read: %w", method, err)
	}
	return nil
}

// greet learns what the agent can do.
func (p *process) greet(version string) error {
	ctx, cancel := context.WithTimeout(p.ctx, startTime)
	defer cancel()
	err := p.answer(ctx, p.ctx, acp.Initialize, p.conn.Ask(acp.Initialize, acp.InitializeRequest{
		ProtocolVersion: acp.Version,
		Client:          acp.Implementation{Name: "noused", Title: "noused", Version: version},
	}, nil), &p.said)
	p.said = facts(p.said)
	if err == nil && p.said.ProtocolVersion != acp.Version {
		err = fmt.Errorf("it speaks version %d of the Agent Client Protocol, and noused speaks version %d: update the "+
			"older one", p.said.ProtocolVersion, acp.Version)
	}
	return err
}

// facts is what is used of an answer to initialize: that is short, whatever the agent has said beside.
func facts(said acp.AgentSaid) acp.AgentSaid {
	out := said
	out.Capabilities.Session, out.Capabilities.Meta = map[string]jsontext.Value{}, nil
	if said.Agent != nil {
		name, version := format.Clip(said.Agent.Name, maxID), format.Clip(said.Agent.Version, maxID)
		out.Agent = &acp.Implementation{Name: strings.Clone(name), Version: strings.Clone(version)}
	}
	for _, name := range []string{canClose, canResume} {
		if said.Can(name) {
			out.Capabilities.Session[name] = jsontext.Value("{}")
		}
	}
	if said.Queues() {
		out.Capabilities.Meta = jsontext.Value(`{"agent":{"promptQueueing":true}}`)
	}
	return out
}

// problem is an error of an agent's in words for people. What ctx or the process's end say
// stays as it is.
func (s Spec) problem(err error) error {
	refused := new(acp.Error)
	switch {
	case errors.As(err, new(*endedError)), errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return failedf("%s has not answered for %v", s.Name, startTime)
	case !errors.As(err, &refused):
		return failedf("%s: %v", s.Name, err)
	case refused.Code == acp.AuthRequired && s.SignIn != "":
		return failedf("%s is not signed in: %s; sign in with: %s", s.Name, words(refused), s.SignIn)
	case refused.Code == acp.AuthRequired:
		return failedf("%s is not signed in: %s", s.Name, words(refused))
	}
	return fmt.Errorf("%s: %s", s.Name, words(refused))
}

// words are what an agent says of an error, with the detail that some put beside it.
func words(e *acp.Error) string {
	text := e.Message
	var data struct {
		Message string `json:"message"`
		Details string `json:"details"`
	}
	if e.Data.Kind() == '{' && json.Unmarshal(e.Data, &data) == nil {
		for _, more := range []string{data.Message, data.Details} {
			if more != "" && !strings.Contains(text, more) {
				text += ": " + more
			}
		}
	}
	return format.Clip(text, 2000)
}
