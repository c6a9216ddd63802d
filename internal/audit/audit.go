// Package audit keeps the audit journal: one Amplifier Event v1 a line
// (amplifier-protocols §3), in a file that is rotated, and hands every event to
// the hooks.
//
// Concurrency: a Log may be used by any number of goroutines. The file and each
// hook have a queue and a goroutine of their own; Record only queues.
//
// It refuses to make anybody wait: what a queue has no room for is dropped,
// counted and warned about. It keeps no arguments and no results of tools; what
// was said is the sessions' to keep.
package audit

import (
	"context"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
	"go.uber.org/zap"

	"noused/internal/model"
)

const (
	queueSize  = 1024             // events that may wait for the file, or for one hook
	warnTime   = 10 * time.Second // between two warnings about one queue
	closeGrace = 2 * time.Second  // for hooks to take what waits, when the log is closed
)

// Event is the wire and file form of an Amplifier Event v1. Ts is in seconds
// since 1970, with a fraction.
type Event struct {
	ID         string           `json:"id"`
	Ts         jsontext.Value   `json:"ts"`
	Event      string           `json:"event"`
	Component  string           `json:"component"`
	Module     string           `json:"module,omitzero"`
	Status     string           `json:"status,omitzero"`
	DurationMS *int64           `json:"duration_ms,omitzero"`
	Data       jsontext.Value   `json:"data,omitzero"`
	Error      *model.ToolError `json:"error,omitzero"`
	SessionID  string           `json:"session_id,omitzero"`
	RequestID  string           `json:"request_id,omitzero"`
}

// Log is the audit journal. Make it with Open.
type Log struct {
	log *zap.Logger

	files  *rotated
	mu     sync.Mutex
	file   *sink
	hooks  map[string]*sink
	closed bool
}

// Open starts to append to the journal at path, which need not exist. Its files grow
// until they have most bytes together; 0 is 80 MiB, and more has no effect. The Log
// must be closed.
func Open(path string, most int64, log *zap.Logger) (*Log, error) {
	f, err := openRotated(path, most)
	if err != nil {
		return nil, fmt.Errorf("audit journal: %w", err)
	}
	l := &Log{log: log, files: f, hooks: map[string]*sink{}}
	l.file = l.start("audit journal", func(_ context.Context, line []byte) error { return f.write(line) }, f.close)
	return l, nil
}

// Record queues an event for the file and every hook. It does not block.
func (l *Log) Record(ev model.AuditEvent) {
	line, err := encode(ev, time.Now())
	if err != nil {
		l.log.Error("audit event not kept", zap.String("event", ev.Event), zap.Error(err))
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.file.put(line)
	for _, h := range l.hooks {
		h.put(line)
	}
}

func encode(ev model.AuditEvent, now time.Time) ([]byte, error) {
	out := Event{
		ID: uuid.Must(uuid.NewV7()).String(), Ts: jsontext.Value(fmt.Sprintf("%d.%06d", now.Unix(), now.Nanosecond()/1000)),
		Event: ev.Event, Component: ev.Component, Module: ev.Module, Status: ev.Status,
		Data: jsontext.Value(ev.Data), Error: ev.Error, SessionID: ev.SessionID, RequestID: ev.RequestID,
	}
	if ev.Duration > 0 {
		ms := ev.Duration.Milliseconds()
		out.DurationMS = &ms
	}
	return json.Marshal(out, jsontext.AllowInvalidUTF8(true))
}

// Prune removes the oldest files that were moved aside until all have at most so many
// bytes, and reports each. With dry it only reports. It blocks for the disk.
func (l *Log) Prune(most int64, dry bool, removed func(fs.FileInfo)) error {
	return l.files.prune(most, dry, removed)
}

// AddHook hands every later event to deliver, one at a time and in order. An
// error of deliver is a line in the log. Its context ends when the hook is
// removed.
func (l *Log) AddHook(name string, deliver func(ctx context.Context, event []byte) error) {
	h := l.start("hook "+name, deliver, func() {})
	l.mu.Lock()
	old, closed := l.hooks[name], l.closed
	if !closed {
		l.hooks[name] = h
	}
	l.mu.Unlock()
	if closed {
		h.end()
	}
	if old != nil {
		old.end()
	}
}

// RemoveHook ends a hook. It does not wait for what deliver is doing beyond the
// end of its context.
func (l *Log) RemoveHook(name string) {
	l.mu.Lock()
	h := l.hooks[name]
	delete(l.hooks, name)
	l.mu.Unlock()
	if h != nil {
		h.end()
	}
}

// Close writes what waits for the file, gives the hooks a moment for what waits
// for them, and ends.
func (l *Log) Close() {
	l.mu.Lock()
	hooks := l.hooks
	l.hooks, l.closed = nil, true
	l.mu.Unlock()
	var wg sync.WaitGroup
	for _, h := range hooks {
		wg.Go(h.end)
	}
	l.file.end()
	wg.Wait()
}

// sink is a bounded queue and the goroutine that empties it.
type sink struct {
	name    string
	log     *zap.Logger
	lines   chan []byte
	deliver func(context.Context, []byte) error
	ctx     context.Context
	cancel  context.CancelFunc
	done    chan struct{}

	// Of the goroutine.
	failed int
	told   time.Time
	warned time.Time

	dropped atomic.Int64
	ended   sync.Once
}

func (l *Log) start(name string, deliver func(context.Context, []byte) error, finish func()) *sink {
	s := &sink{name: name, log: l.log, lines: make(chan []byte, queueSize), deliver: deliver, done: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	go func() { // ended by end, which waits for it
		defer close(s.done)
		defer finish()
		for line := range s.lines {
			if err := s.try(line); err != nil && s.ctx.Err() == nil {
				s.complain(err)
			}
			if time.Since(s.warned) >= warnTime {
				s.warn()
			}
		}
		s.warn()
	}()
	return s
}

// complain logs a failure, and of many in a row a few.
func (s *sink) complain(err error) {
	s.failed++
	if now := time.Now(); now.Sub(s.told) >= warnTime {
		s.log.Warn(s.name+" failed", zap.Error(err), zap.Int("times", s.failed))
		s.told, s.failed = now, 0
	}
}

// try delivers a line; a panic is an error.
func (s *sink) try(line []byte) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	if s.ctx.Err() != nil {
		return nil
	}
	return s.deliver(s.ctx, line)
}

// put queues a line, or counts it as dropped: anyone who records waits for nothing,
// the program's own log included.
func (s *sink) put(line []byte) {
	select {
	case s.lines <- line:
	default:
		s.dropped.Add(1)
	}
}

// warn logs how many lines were dropped, if any were.
func (s *sink) warn() {
	if n := s.dropped.Swap(0); n > 0 {
		s.log.Warn(s.name+" is too slow: events dropped", zap.Int64("dropped", n))
		s.warned = time.Now()
	}
}

// end closes the queue, which must be out of the Log's hands, and waits until it
// is empty, or until the grace is over and the delivery under way has ended.
func (s *sink) end() {
	s.ended.Do(func() {
		close(s.lines)
		grace := time.AfterFunc(closeGrace, s.cancel)
		<-s.done
		grace.Stop()
		s.cancel()
	})
}
