package bridge

import (
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"noused/internal/acp"
	"noused/internal/client"
	"noused/internal/client/follow"
	"noused/internal/protocol"
)

// errNotSent says that nobody waits for an answer any more, and that no daemon was
// sent the approval.
var errNotSent = errors.New("not sent: it was cancelled first")

// inLine has what an editor sends to a session sent in the order in which it came, each
// when the one before was answered. ctx ends the waiting.
func inLine[R any](ctx context.Context, w *window, send func() (R, error)) func() (R, error) {
	before, mine := w.line, make(chan struct{})
	w.line = mine
	return func() (r R, err error) {
		select {
		case <-before:
			defer close(mine)
			return send()
		case <-ctx.Done():
		}
		w.calls.Go(func() {
			select {
			case <-before:
			case <-w.ctx.Done():
			}
			close(mine)
		})
		return r, errNotSent
	}
}

// answeringInLine is answering for a choice: what comes behind it is sent when its answer was
// given, so that of two choices the later one holds.
func answeringInLine[R any](w *window, r *acp.Request, do func() (R, error), then func(R, error)) {
	turn := inLine(w.ctx, w, func() (struct{}, error) {
		got, err := do()
		w.conclude(r, func() { then(got, err) })
		return struct{}{}, nil
	})
	w.calls.Go(func() {
		if _, err := turn(); err != nil { // the window has ended
			w.conclude(r, func() { r.Fail(w.b.explain(err)) })
		}
	})
}

// tries are those of one request that finds no daemon.
type tries struct {
	b     *bridge
	until time.Time
	pause time.Duration
}

func (b *bridge) tries() *tries {
	return &tries{b: b, until: time.Now().Add(b.Patience), pause: 20 * time.Millisecond}
}

// next waits for the next try, and has a daemon started where that is allowed. Its error
// says why there is none: ctx has ended, a daemon did not start, or none came back.
func (t *tries) next(ctx context.Context) error {
	conn, err := t.b.connect(ctx)
	var none *client.NoDaemonError
	switch {
	case err == nil:
		_ = conn.Close()
	case ctx.Err() != nil:
		return errNotSent
	case !errors.As(err, &none), time.Now().After(t.until):
		return err
	}
	return t.wait(ctx)
}

func (t *tries) wait(ctx context.Context) error {
	timer := time.NewTimer(t.pause)
	defer timer.Stop()
	t.pause = min(2*t.pause, 500*time.Millisecond)
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return errNotSent
	}
}

// connect connects to the daemon, and starts one where there is none and one may be
// started.
func (b *bridge) connect(ctx context.Context) (net.Conn, error) {
	conn, err := b.Daemon.Commands(ctx)
	var none *client.NoDaemonError
	if !errors.As(err, &none) || b.Start == nil {
		return conn, err
	}
	if err := b.Start(ctx, none); err != nil {
		return nil, err
	}
	return b.Daemon.Commands(ctx)
}

// comeBack has a daemon started, within Patience, where that is allowed and none has come.
func (b *bridge) comeBack(ctx context.Context) {
	for t := b.tries(); time.Now().Before(t.until); {
		conn, err := b.connect(ctx)
		if err == nil {
			_ = conn.Close()
		}
		if !errors.As(err, new(*client.NoDaemonError)) || t.wait(ctx) != nil {
			return
		}
	}
}

// persist sends a command that has a key until a daemon has answered it. Where none can
// have got it, ctx ends that, and so does a daemon that does not start.
func persist[P protocol.Params, R protocol.Reply](ctx context.Context, w *window, def protocol.Def[P, R], p P) (R,
	error,
) {
	sent := false
	for t := w.b.tries(); ; {
		r, err := follow.Do(w.ctx, w.link, def, p)
		if err == nil || !offline(err) && !again(err) {
			return r, err
		}
		wait, ctx := t.next, ctx
		if sent = sent || lost(err); sent {
			wait, ctx = t.wait, w.ctx
		}
		if err := wait(ctx); err != nil {
			return r, err
		}
	}
}

// insist asks what may be asked twice until a daemon has answered it, or ctx ends.
func insist[P protocol.Params, R protocol.Reply](ctx context.Context, w *window, def protocol.Def[P, R], p P) (R,
	error,
) {
	return whenever(ctx, w, def, p, func(err error) bool { return offline(err) || again(err) })
}

// once asks what may be asked once only, as soon as there is a daemon.
func once[P protocol.Params, R protocol.Reply](ctx context.Context, w *window, def protocol.Def[P, R], p P) (R, error) {
	return whenever(ctx, w, def, p, offline)
}

func whenever[P protocol.Params, R protocol.Reply](ctx context.Context, w *window, def protocol.Def[P, R], p P,
	again func(error) bool,
) (R, error) {
	for t := w.b.tries(); ; {
		r, err := follow.Do(ctx, w.link, def, p)
		if err == nil || !again(err) {
			return r, err
		}
		if err := t.next(ctx); err != nil {
			return r, err
		}
	}
}

// again tells whether a command that failed so may be sent once more, with its
// key, when the daemon answers again.
func again(err error) bool {
	var wire *protocol.Error
	return lost(err) || errors.As(err, &wire) && (wire.Reason() == protocol.ShuttingDown ||
		wire.Reason() == protocol.TooManyPending)
}

// lost tells whether a daemon may have done a command although it has not answered.
func lost(err error) bool {
	var silent *client.SilentError
	return errors.Is(err, client.ErrLost) || errors.Is(err, client.ErrClosed) || errors.As(err, &silent)
}

// offline tells whether a command has not been sent.
func offline(err error) bool { return errors.Is(err, follow.ErrOffline) }

// abort ends what the session does, and answers what waits for it as cancelled. It
// concerns what came before it: what comes behind it is sent when it was answered.
func (w *window) abort() {
	w.cancelAll(w.prompts)
	w.giveUp()
	w.texts, w.giveUp = context.WithCancel(w.ctx)
	w.aborting(func() (protocol.AbortAccepted, error) { return w.sendAbort() })
}

func (w *window) cancelAll(list []*prompt) {
	for _, p := range list {
		p.cancelled = true
		p.giveUp()
	}
}

// aborting sends what ends runs, in its turn, and takes in what comes of it. Where no
// daemon can be told, who cancelled is not kept waiting.
func (w *window) aborting(send func() (protocol.AbortAccepted, error)) {
	w.aborts++
	away(w, inLine(w.ctx, w, send), func(a protocol.AbortAccepted, err error) {
		w.aborts--
		for _, d := range a.Discarded {
			if !slices.ContainsFunc(w.prompts, func(p *prompt) bool { return p.input == d.InputID }) {
				w.handBack(d.InputID, d.Text)
			}
		}
		for _, p := range slices.Clone(w.prompts) {
			if p.ready || p.cancelled && err != nil {
				w.answer(p, acp.StopCancelled)
			}
		}
	})
}

// sendAbort is called in line. An abort that could not be sent to any daemon is owed: it is
// sent before anything that comes behind it.
func (w *window) sendAbort() (protocol.AbortAccepted, error) {
	w.owed.Store(true)
	return w.payAbort()
}

func (w *window) payAbort() (a protocol.AbortAccepted, err error) {
	if !w.owed.Load() {
		return a, nil
	}
	a, err = insist(w.ctx, w, protocol.Abort, protocol.AbortParams{Scope: protocol.Scope{SessionID: w.id}})
	if wire := (*protocol.Error)(nil); err == nil || errors.As(err, &wire) { // nothing runs, say
		w.owed.Store(false)
		err = nil
	}
	return a, err
}

// takeBack takes one request back: a text that waits is withdrawn, one that is
// being worked at is ended as session/cancel does.
func (w *window) takeBack(id string) {
	i := slices.IndexFunc(w.prompts, func(p *prompt) bool { return string(p.request.ID) == id })
	if i < 0 {
		return
	}
	p, before := w.prompts[i], slices.Clone(w.prompts)
	p.giveUp()
	w.aborting(func() (a protocol.AbortAccepted, err error) {
		if p.sent.InputID == "" {
			return a, nil
		}
		_, err = insist(w.ctx, w, protocol.Withdraw, protocol.WithdrawParams{
			Scope:   protocol.Scope{SessionID: w.id},
			InputID: p.sent.InputID,
		})
		if err == nil || !w.cancelOpen(p, before) {
			return a, nil
		}
		return w.sendAbort()
	})
}

// cancelOpen has prompts cancelled where one of them has no answer yet. It may be called
// from any goroutine but the window's.
func (w *window) cancelOpen(p *prompt, with []*prompt) bool {
	open := make(chan bool, 1)
	return w.post(func() {
		is := slices.Contains(w.prompts, p)
		if is {
			w.cancelAll(with)
		}
		open <- is
	}) && <-open
}
