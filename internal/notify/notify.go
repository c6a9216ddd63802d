// Package notify tells people who are not looking that a run has ended or waits
// for them: it runs a command of theirs, with one JSON object for its input
// (folders.md §3).
//
// Concurrency: Tell may be called from any goroutine and never waits. One
// goroutine does the rest and ends with Close, and with it the command.
//
// It refuses to queue: of what happens while the command runs, or within two
// seconds, only the last is kept, and how much there was. It never runs two at a
// time, nor one for longer than 10 seconds, and it uses no shell.
package notify

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"

	"noused/internal/alert"
	"noused/internal/format"
	"noused/internal/proc"
	"noused/internal/protocol"
	"noused/internal/trust"
)

const (
	burst    = 2 * time.Second  // what happens within it is told at once
	longest  = 10 * time.Second // a command may take
	maxQueue = 256              // events that have not been looked at
	maxText  = 500              // characters of a message
)

// Options say what to do when. Command is a program and its arguments; empty, and
// nobody learns of anything. After is for how long a run has to take to be worth
// it.
type Options struct {
	Command []string
	On      []string // some of alert.Kinds
	After   time.Duration
	Environ []string
	// Session returns what is known of a session; false: nothing. It must not wait.
	Session func(id string) (protocol.SessionInfo, bool)
	// Start starts the command, as [proc.Supervisor.Start] does.
	Start func(context.Context, proc.Command) (*proc.Process, error)
	Log   *zap.Logger
}

// Word is the command's input.
type Word struct {
	Event     string `json:"event"`
	SessionID string `json:"session_id"`
	Title     string `json:"title"`
	Workdir   string `json:"workdir"`
	RunID     string `json:"run_id"`
	Message   string `json:"message"`
	Count     int    `json:"count"`

	Approval *protocol.Approval `json:"approval,omitzero"` // the one that is asked for
}

// timedEvent is an event of a run, and when it was announced.
type timedEvent struct {
	ev protocol.Event
	at time.Time
}

// Notifier is a nil one where nobody is to be told. Make it with New.
type Notifier struct {
	o     Options
	queue chan timedEvent
	limit time.Duration // of the command
	ctx   context.Context
	stop  context.CancelFunc
	done  chan struct{}
}

// New returns a Notifier that has to be closed; nil without a command.
func New(o Options) *Notifier {
	if len(o.Command) == 0 {
		return nil
	}
	n := &Notifier{o: o, limit: longest, queue: make(chan timedEvent, maxQueue), done: make(chan struct{})}
	n.ctx, n.stop = context.WithCancel(context.Background())
	go n.serve()
	return n
}

// Tell notes an event. One that finds the queue full is forgotten: others follow
// it, and are reported.
func (n *Notifier) Tell(ev protocol.Event) {
	if n == nil || !alert.Concerns(ev) {
		return
	}
	select {
	case n.queue <- timedEvent{ev, time.Now()}:
	default:
	}
}

// Close ends the command, if it runs, and waits until nothing is left of it.
func (n *Notifier) Close() {
	if n != nil {
		n.stop()
		<-n.done
	}
}

func (n *Notifier) serve() {
	defer close(n.done)
	var watch alert.Watch
	var next *Word                  // to be told
	var due <-chan time.Time        // when
	ended := make(chan struct{}, 1) // of the command
	ready, running := false, false
	for {
		select {
		case h := <-n.queue:
			w := n.word(h, &watch)
			if w == nil {
				continue
			}
			if next != nil {
				w.Count += next.Count
			} else {
				due = time.After(burst)
			}
			next = w
		case <-due:
			due, ready = nil, true
		case <-ended:
			running = false
		case <-n.ctx.Done():
			if running {
				<-ended
			}
			return
		}
		if ready && !running {
			told := *next
			next, ready, running = nil, false, true
			go func() { // ends with the command
				n.run(told)
				ended <- struct{}{}
			}()
		}
	}
}

// word is the notification of an event, nil for none.
func (n *Notifier) word(h timedEvent, watch *alert.Watch) *Word {
	ref := h.ev.Where()
	a, ok := watch.See(ref.RunID, h.ev, h.at, alert.Wish{On: n.o.On, After: n.o.After})
	if !ok {
		return nil
	}
	about, known := n.o.Session(ref.SessionID)
	if known && about.Parent != nil && a.Kind != alert.Approval { // its parent tells what it came to
		return nil
	}
	w := &Word{Event: a.Kind, Message: a.Message, SessionID: ref.SessionID, RunID: ref.RunID, Count: 1}
	if ev, ok := h.ev.(protocol.Status); ok {
		w.Approval = ev.Approval
	}
	if a.Took > 0 {
		w.Message += fmt.Sprintf(" (%v)", a.Took.Round(time.Second))
	}
	if known {
		w.Title, w.Workdir = about.Title, about.Workdir
	}
	switch {
	case w.Approval != nil && len(w.Approval.SessionPath) > 1:
		w.Message = strings.Join(w.Approval.SessionPath, " › ") + ": " + w.Message
	case w.Title != "":
		w.Message = w.Title + ": " + w.Message
	}
	w.Message = format.Fit(format.Line(w.Message), maxText)
	return w
}

// run runs the command once. That it fails is a line in the log.
func (n *Notifier) run(w Word) {
	ctx, cancel := context.WithTimeoutCause(n.ctx, n.limit, fmt.Errorf("it took longer than %v", n.limit))
	defer cancel()
	if err := n.deliver(ctx, w); err != nil && n.ctx.Err() == nil {
		n.o.Log.Warn("the notifier failed", zap.Strings("command", n.o.Command), zap.String("event", w.Event), zap.Error(err))
	}
}

func (n *Notifier) deliver(ctx context.Context, w Word) error {
	path, err := trust.LookPath(n.o.Command[0], os.Getenv("PATH"))
	if err != nil {
		return err
	}
	line, err := json.Marshal(w, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return err
	}
	p, err := n.o.Start(ctx, proc.Command{
		Name: "the notifier", Path: path, Args: n.o.Command, Env: trust.Environ(n.o.Environ),
	})
	if err != nil {
		return err
	}
	_ = p.Send(append(line, '\n')) // the first in its queue always has room
	p.CloseInput()
	buf := make([]byte, 4<<10)
	for err == nil {
		_, err = p.Read(buf) // its output is not used
	}
	switch exit := p.Wait(); {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case !exit.OK():
		return fmt.Errorf("%v %s", exit, format.Line(p.Stderr(maxText)))
	}
	return nil
}
