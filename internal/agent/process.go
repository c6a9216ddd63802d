package agent

import (
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

// process is a running agent.
type process struct {
	p     Process
	conn  *acp.Conn
	said  acp.AgentSaid
	ctx   context.Context // ends with the process; its cause says how
	end   context.CancelCauseFunc
	over  chan struct{} // closed once nothing is left of it
	still chan struct{} // closed once nothing is read any more, after Pause

	session string  // that is open in it, "" for none
	lost    bool    // it does not know what was said before, and was not told yet
	chosen  bool    // it has been told what people have chosen
	told    *replay // what the agent has told again, until the next prompt is made
	// of that, what the journal does not say it was sent: a power failure may have taken it
	ahead []string

	mu     sync.Mutex
	replay *replay // not nil while a session is loaded
	last   string  // kind and message of what was told again last
}

// replay is what people have said in a session that an agent tells again.
type replay struct {
	texts []string
	bytes int
}

// maxReplay is how much of it is kept, in bytes, the newest.
const maxReplay = 4 << 20

func (r *replay) add(begins bool, text string) {
	if begins || len(r.texts) == 0 {
		r.texts = append(r.texts, "")
	}
	last := &r.texts[len(r.texts)-1]
	if text = format.Cut(text, maxReplay-len(*last)); text == "" {
		return
	}
	*last += text
	for r.bytes += len(text); r.bytes > maxReplay && len(r.texts) > 1; r.texts = r.texts[1:] {
		r.bytes -= len(r.texts[0])
	}
}

// wordy is how long a text is, in bytes, that nobody writes twice by chance.
const wordy = 40

// beyond is what was told beyond the texts that were said, which are told in their order.
func (r *replay) beyond(said []string) []string {
	told, from := slices.Clone(r.texts), 0
	for _, text := range said {
		if i := indexOf(told[from:], text); i >= 0 {
			from += i
			told = slices.Delete(told, from, from+1)
		}
	}
	return told
}

// maxAhead is how much is kept of texts that an agent has before the conversation, in bytes.
const maxAhead = 64 << 10

// lacks are those of the texts that the agent does not have: what it has before the
// conversation is taken out of that. What is kept of the rest is bounded.
func (p *process) lacks(fresh []model.Message) (out []model.Message) {
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
type endedError struct{ how string }

func (e *endedError) Error() string { return e.how }

// start starts an agent's program and asks what it can do.
func (s *Session) start(ctx context.Context) (*process, error) {
	spec, err := s.agents.spec(s.name)
	if err != nil {
		return nil, failedf("%v", err)
	}
	path, err := spec.Path()
	if err != nil {
		return nil, failedf("%v", err)
	}
	child, err := s.agents.o().Start(s.ctx, spec, proc.Command{
		Name: s.name, Path: path, Args: spec.Command, Dir: s.workdir,
	})
	if err != nil {
		return nil, failedf("%v", err)
	}
	p := newProcess(child)
	p.conn = acp.NewConn(child, writer{child, p.ctx})
	s.mu.Lock()
	s.reading = true
	s.mu.Unlock()
	go s.serve(p) // ends with the process
	if err := p.greet(ctx, s.agents.o().Version); err != nil {
		p.p.Stop()
		<-p.over
		return nil, s.problem(spec, err)
	}
	return p, nil
}

// newProcess has no connection yet.
func newProcess(child Process) *process {
	p := &process{p: child, over: make(chan struct{}), still: make(chan struct{})}
	p.ctx, p.end = context.WithCancelCause(context.Background())
	return p
}

// serve reads what an agent says until it ends, or the reading is paused.
func (s *Session) serve(p *process) {
	lost := make(chan struct{})
	go func() { // ends with the process
		select {
		case <-p.conn.Lost():
			p.p.Stop()
		case <-lost:
		}
	}()
	err := p.conn.Serve(handler{s, p})
	if errors.Is(err, proc.ErrPaused) {
		close(lost)
		close(p.still)
		return
	}
	defer close(p.over)
	p.p.Stop()
	exit := p.p.Wait()
	close(lost)
	how := exit.String()
	if words := strings.TrimSpace(p.p.Stderr(lastWords)); words != "" {
		how += ": " + format.Clip(words[strings.LastIndexByte(words, '\n')+1:], 500)
	}
	p.end(&endedError{how})
	p.conn.Close()
	s.lost(p, how)
}

// ask calls a method of the agent's. The error is an *acp.Error where it refuses, and an
// *endedError where it has ended.
func (p *process) ask(ctx context.Context, method string, params, result any) error {
	return p.askThen(ctx, method, params, result, nil)
}

// askThen is ask; then is called as [acp.Conn.CallThen] says.
func (p *process) askThen(ctx context.Context, method string, params, result any,
	then func(jsontext.Value, *acp.Error),
) error {
	return p.answer(ctx, method, p.conn.Ask(method, params, then), result)
}

// answer waits for the answer to what was asked, as ask does.
func (p *process) answer(ctx context.Context, method string, asked *acp.Question, result any) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(p.ctx, func() { cancel(context.Cause(p.ctx)) })()
	raw, err := asked.Wait(ctx)
	if err != nil && !errors.As(err, new(*acp.Error)) {
		select {
		case <-p.conn.Lost(): // before anybody has seen that the process ends
			p.p.Stop()
			<-p.over
		default:
		}
		if p.ctx.Err() != nil {
			return context.Cause(p.ctx)
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
func (p *process) greet(ctx context.Context, version string) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	err := p.ask(ctx, acp.Initialize, acp.InitializeRequest{
		ProtocolVersion: acp.Version,
		Client:          acp.Implementation{Name: "noused", Title: "noused", Version: version},
	}, &p.said)
	if err == nil && p.said.ProtocolVersion != acp.Version {
		err = fmt.Errorf("it speaks version %d of the Agent Client Protocol, and noused speaks version %d: update the "+
			"older one", p.said.ProtocolVersion, acp.Version)
	}
	return err
}

// problem is an error of an agent's in words for people. What ctx or the process's end say
// stays as it is.
func (s *Session) problem(spec Spec, err error) error {
	refused := new(acp.Error)
	switch {
	case errors.As(err, new(*endedError)), errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return failedf("%s has not answered for %v", s.name, startTime)
	case !errors.As(err, &refused):
		return failedf("%s: %v", s.name, err)
	case refused.Code == acp.AuthRequired && spec.SignIn != "":
		return failedf("%s is not signed in: %s; sign in with: %s", s.name, s.words(refused), spec.SignIn)
	case refused.Code == acp.AuthRequired:
		return failedf("%s is not signed in: %s", s.name, s.words(refused))
	}
	return fmt.Errorf("%s: %s", s.name, s.words(refused))
}

// words are what an agent says of an error, with the detail that some put beside it.
func (s *Session) words(e *acp.Error) string {
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
