package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/acp"
	"noused/internal/format"
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
	p    *proc.Process
	conn *acp.Conn
	said acp.AgentSaid
	ctx  context.Context // ends with the process; its cause says how
	end  context.CancelCauseFunc
	over chan struct{} // closed once nothing is left of it

	session string // that is open in it, "" for none
	lost    bool   // it does not know what was said before, and was not told yet
	chosen  bool   // it has been told what people have chosen

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

// has reports whether these texts are the last that were said.
func (r *replay) has(texts []string) bool {
	if len(texts) > len(r.texts) {
		return false
	}
	for i, text := range texts {
		told, text := strings.TrimSpace(r.texts[len(r.texts)-len(texts)+i]), strings.TrimSpace(text)
		// Some agents tell a text with more around it; a short one may be a part of another.
		if told != text && (len(text) < wordy || !strings.Contains(told, text)) {
			return false
		}
	}
	return true
}

// writer is the standard input of a process.
type writer struct {
	p   *proc.Process
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
	p := &process{p: child, over: make(chan struct{})}
	p.ctx, p.end = context.WithCancelCause(context.Background())
	p.conn = acp.NewConn(child, writer{child, p.ctx})
	go s.serve(p) // ends with the process
	if err := p.greet(ctx, s.agents.o().Version); err != nil {
		p.p.Stop()
		<-p.over
		return nil, s.problem(spec, err)
	}
	return p, nil
}

// serve reads what an agent says until it ends.
func (s *Session) serve(p *process) {
	defer close(p.over)
	lost := make(chan struct{})
	go func() { // ends with the process
		select {
		case <-p.conn.Lost():
			p.p.Stop()
		case <-lost:
		}
	}()
	_ = p.conn.Serve(handler{s, p})
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
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(p.ctx, func() { cancel(context.Cause(p.ctx)) })()
	raw, err := p.conn.CallThen(ctx, method, params, then)
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
