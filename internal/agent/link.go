package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/acp"
	"noused/internal/model"
)

// Sessions that have the same agent, in the same folder and started in the same way, share a
// process. Each is linked to it by the id that the agent has given it, and gets what is said
// with that id. It gets a process of its own where it does not open in a shared one, and after
// one with others in it has ended for a reason that may be its own.

const (
	// joinTime is how long an agent that works for others has to open a session.
	joinTime = 30 * time.Second
	// roomTime is how long a session may keep the others of its agent waiting, with what is said
	// in it and nobody takes in.
	roomTime = 2 * time.Second
)

// link is a session in a process.
type link struct {
	*process
	s       *Session
	joined  bool            // the process was there before
	refused bool            // it has refused to open the session
	ctx     context.Context // ends with the process, and with the link
	end     context.CancelCauseFunc
	over    chan struct{} // closed then, once nothing is left of the process if that has ended
	gone    func()        // closes it

	chosen bool    // it is open, and has been told what people have chosen; guarded by the session
	lost   bool    // it does not know what was said before, and was not told yet
	told   *replay // what the agent has told again, until the next prompt is made
	// of that, what the journal does not say it was sent: a power failure may have taken it
	ahead []string

	// Guarded by the process.
	session string // the agent's id, "" before it has one
	rests   bool   // nothing is under way any more, for the next program
	closing bool
	replay  *replay // not nil while a session is loaded
	last    string  // kind and message of what was told again last
}

// join links a session to a process, and starts one where there is none to share.
func (a *Agents) join(s *Session, spec Spec, apart bool) *link {
	key := fmt.Sprintf("%q %q %q %q %t %q", spec.Name, s.workdir, spec.Command, spec.Env, spec.Sandbox, spec.Writable)
	a.mu.Lock()
	defer a.mu.Unlock()
	apart = apart || a.single[spec.Name]
	p := a.shared[key]
	joined := p != nil && !apart
	if !joined {
		p = newProcess(a, spec)
		if !apart {
			p.key, a.shared[key] = key, p
		}
		go p.start(s.workdir) // ends once the agent is greeted
	}
	l := p.link(s)
	if l.joined = joined; joined && p.was != nil && l.takesUp() {
		go p.serve() // ends with the process
	}
	return l
}

// link adds a session to a process.
func (p *process) link(s *Session) *link {
	l := &link{process: p, s: s, over: make(chan struct{})}
	l.ctx, l.end = context.WithCancelCause(p.ctx)
	l.gone = sync.OnceFunc(func() { close(l.over) })
	p.mu.Lock()
	defer p.mu.Unlock()
	p.links = append(p.links, l)
	return l
}

// remove takes a link out, and keeps it for the next program with keep. last reports that the
// process has no other that is still open, and kept which it has had.
func (l *link) remove(keep bool) (last bool, kept []*link) {
	a := l.agents
	a.mu.Lock()
	defer a.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.links, l)
	if i < 0 {
		return false, nil
	}
	l.links = slices.Delete(slices.Clone(l.links), i, i+1)
	if keep {
		l.kept = append(l.kept, l)
	}
	if last = len(l.links) == 0; last && l.key != "" && a.shared[l.key] == l.process {
		delete(a.shared, l.key)
	}
	return last, l.kept
}

// leave ends the session's part in the process, and the process where it was the last; it waits
// for that. A turn that is under way is cut: where others stay, the agent has to end it.
func (l *link) leave() {
	finished := l.closes()
	if t := l.cut(); t != nil {
		select {
		case <-t.over:
		case <-finished:
		}
	}
	last, kept := l.remove(false)
	l.end(&endedError{how: "the daemon has ended it"})
	switch {
	case last && len(kept) > 0:
		l.leaveBehind(kept)
	case last:
		l.stop()
	case l.isOpen() && l.process.ctx.Err() == nil:
		if l.said.Can(canClose) {
			l.conn.Ask(acp.SessionClose, acp.SessionOnly{SessionID: l.session}, nil)
		}
		l.pauseAtRest()
	}
	l.gone()
}

// closes says that the session is being closed. The channel is closed once that is so of all that
// the process has, and none is for the next program: nobody needs it any more.
func (l *link) closes() (finished <-chan struct{}) {
	a := l.agents
	a.mu.Lock()
	defer a.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closing = true
	open := func(l *link) bool { return !l.closing }
	if len(l.kept) == 0 && !slices.ContainsFunc(l.links, open) && !l.isFinished {
		l.isFinished = true
		close(l.finished)
		if l.key != "" && a.shared[l.key] == l.process {
			delete(a.shared, l.key)
		}
	}
	return l.finished
}

// cut has the agent end the session's turn, and returns it, nil for none.
func (l *link) cut() *turn {
	s := l.s
	s.mu.Lock()
	t, left := s.turn, s.left
	s.mu.Unlock()
	if t == nil || t.link != l {
		return nil
	}
	if left { // else nobody waits for its end
		s.TakeUp("", 0)
	}
	s.Cut()
	return t
}

func (l *link) isOpen() bool {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	return l.chosen
}

// oneEach has each session of an agent have a process of its own.
func (a *Agents) oneEach(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.single[name] = true
}

// drop has nobody join a process any more.
func (a *Agents) drop(p *process) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p.key != "" && a.shared[p.key] == p {
		delete(a.shared, p.key)
	}
}

// named returns the session that the agent knows by an id, nil for none.
func (p *process) named(sessionID string) *link {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.links {
		if l.session == sessionID && sessionID != "" {
			return l
		}
	}
	return nil
}

// concerned returns the session that something is said of: one that is just being made has no
// name yet.
func (p *process) concerned(sessionID string) *link {
	if l := p.named(sessionID); l != nil {
		return l
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.begins
}

// isShared reports that the process has other sessions, which are not being paused.
func (l *link) isShared() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.links) > 1 && !l.rests
}

// call names the session as the agent does. False: another has that name.
func (l *link) call(sessionID string) bool {
	if sessionID == "" || len(sessionID) > maxID {
		return true // which is told elsewhere
	}
	if other := l.named(sessionID); other != nil && other != l {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.session = sessionID
	return true
}

// uncall takes back what call has said.
func (l *link) uncall() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.session = ""
}

// calm waits until the agent has read nearly all that it was sent: prompts are long, and one is
// sent after the other. sent is to be called when the next one is.
func (l *link) calm(ctx context.Context) (sent func(), err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })()
	go func() { // ends with ctx
		select {
		case <-l.s.paused:
			cancel(model.ErrPaused)
		case <-ctx.Done():
		}
	}()
	select {
	case l.sending <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	err = l.conn.Calm(ctx)
	if err == nil {
		return func() { <-l.sending }, nil
	}
	<-l.sending
	if ctx.Err() == nil { // it reads nothing any more
		l.p.Stop()
		<-l.over
		err = context.Cause(l.ctx)
	}
	return nil, err
}

// makeNew has the agent make a session, one after the other: what it says of one before it has
// a name cannot be told apart.
func (l *link) makeNew(ctx context.Context, request acp.OpenRequest) (id string, err error) {
	select {
	case l.making <- struct{}{}:
		defer func() { <-l.making }()
	case <-l.ctx.Done():
		return "", context.Cause(l.ctx)
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	begins := func(now *link) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.begins = now
	}
	begins(l)
	defer begins(nil)
	var made acp.SessionOnly
	twice := false
	learn := l.s.learnFrom(l)
	err = l.askThen(ctx, acp.SessionNew, request, &made, func(raw jsontext.Value, refused *acp.Error) {
		var named acp.SessionOnly
		if refused == nil && json.Unmarshal(raw, &named, jsontext.AllowDuplicateNames(true)) == nil {
			twice = !l.call(named.SessionID)
		}
		learn(raw, refused)
	})
	switch {
	case err != nil:
	case made.SessionID == "":
		err = errors.New("its answer to session/new has no sessionId")
	case len(made.SessionID) > maxID:
		err = fmt.Errorf("its sessionId has %d bytes, want at most %d", len(made.SessionID), maxID)
	case twice:
		err = acp.Errorf(acp.InvalidRequest, "it has another session of the same sessionId")
	}
	return made.SessionID, err
}

// rest says that nothing is under way in the session, for the next program. Once that is so of
// all, nothing is read any more.
func (l *link) rest() {
	l.mu.Lock()
	l.rests = true
	l.mu.Unlock()
	l.pauseAtRest()
}

// pauseAtRest ends the reading where all sessions rest.
func (p *process) pauseAtRest() {
	p.mu.Lock()
	all := slices.Concat(p.links, p.kept)
	busy := func(l *link) bool { return !l.rests }
	now := p.reading && !p.paused && len(p.links) > 0 && !slices.ContainsFunc(p.links, busy)
	p.paused = p.paused || now
	p.mu.Unlock()
	if now {
		p.pause(all)
	}
}

// pause ends the reading for good. What is said in these sessions finds room until then.
func (p *process) pause(all []*link) {
	p.conn.Pause()
	p.p.Pause()
	for _, l := range all {
		l.s.mu.Lock()
		if t := l.s.turn; t != nil && t.link == l {
			t.in.widen()
		}
		l.s.mu.Unlock()
	}
}
