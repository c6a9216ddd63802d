package hosts

import (
	"context"
	"maps"
	"slices"
	"time"

	"noused/internal/protocol"
)

const (
	listEvery  = 200 * time.Millisecond // at most, a host, while things happen
	listAgain  = 5 * time.Second        // a host that has not answered
	lookEvery  = 100 * time.Millisecond // between looks at who has not said for long that it is there
	looksAtAll = 100                    // in so many looks all hosts are asked again
	restFor    = 4                      // times as long as a host took to answer, it is left alone, for each that is asked
	maxList    = 16 << 20               // bytes of the sessions of one host
	pageOf     = 1000                   // sessions
	maxPages   = 10
)

// News is something that has happened on a host: it is there, it is no more, or its sessions
// may be others now.
type News struct {
	Host           string
	Here, Gone     bool
	MayHaveChanged bool
}

// View shows what a Watch knows. Its functions are called in the goroutine that follows.
type View interface {
	// Listed is told the sessions of a host, those that need somebody first, and those that
	// were listed before.
	Listed(before, now []Session)
	// Failed is told that a host does not answer, once for each reason.
	Failed(host string, err error)
	// Show comes after everything that has happened. It returns when it wants to be called
	// again although nothing happens, 0 for never, and an error to end the Watch.
	Show() (time.Duration, error)
}

// Watch knows the sessions of hosts that come and go. Make it with NewWatch.
type Watch struct {
	o      Options
	hosts  map[string]*watched
	asking int // hosts that are being asked
	listed chan listed
}

// Options say how hosts are watched.
type Options struct {
	Host   func(name string) Host // that is asked
	Only   []string               // these hosts; nil: all
	Raw    bool                   // sessions keep their Raw
	AtOnce int                    // hosts that are asked at a time
	Stays  time.Duration          // a host has left that has not said within it that it is there; 0: none does
	Every  time.Duration          // a host without news is asked again
	View   View
}

// watched is a host.
type watched struct {
	seen     time.Time
	sessions []Session // those that need somebody first
	problem  string
	dirty    bool // something has happened since it was asked
	asking   bool
	left     bool
	asked    time.Time
	rest     time.Time // it is not asked before
}

type listed struct {
	name     string
	sessions []Session
	err      error
}

// NewWatch knows no hosts yet.
func NewWatch(o Options) *Watch {
	return &Watch{o: o, hosts: map[string]*watched{}, listed: make(chan listed)}
}

// Follow watches for as long as there is news: until next, which blocks, has an error, which
// is returned, or that of the View. It may be called again, and goes on with what is known.
func (w *Watch) Follow(ctx context.Context, next func(context.Context) (News, error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	news := make(chan News)
	ended := make(chan struct{})
	defer func() { // what is being asked ends, too
		cancel(nil)
		for ; w.asking > 0; w.asking-- {
			w.hosts[(<-w.listed).name].asking = false
		}
		<-ended
	}()
	go func() { // ends with ctx
		defer close(ended)
		for {
			n, err := next(ctx)
			if err != nil {
				cancel(err)
				return
			}
			select {
			case news <- n:
			case <-ctx.Done():
				return
			}
		}
	}()
	return w.follow(ctx, news)
}

func (w *Watch) follow(ctx context.Context, news <-chan News) error {
	look, soon := time.NewTicker(lookEvery), time.NewTimer(0)
	defer look.Stop()
	defer soon.Stop()
	for _, h := range w.hosts {
		h.dirty = true
	}
	for {
		select {
		case n := <-news:
			w.apply(n)
		case l := <-w.listed:
			w.list(l)
		case <-look.C:
			w.age()
		case <-soon.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		w.askSome(ctx)
		again, err := w.o.View.Show()
		if err != nil {
			return err
		}
		soon.Reset(w.next(again))
	}
}

// next is how long it is until there is something to do that nobody tells.
func (w *Watch) next(again time.Duration) time.Duration {
	next := lookEvery
	if again > 0 {
		next = min(next, again)
	}
	for _, h := range w.hosts {
		if h.dirty && !h.asking && w.asking < w.o.AtOnce {
			next = min(next, time.Until(h.rest))
		}
	}
	return next
}

func (w *Watch) apply(n News) {
	h := w.hosts[n.Host]
	switch {
	case len(w.o.Only) > 0 && !slices.Contains(w.o.Only, n.Host):
	case n.Gone:
		w.forget(n.Host)
	case n.Here && h == nil:
		w.hosts[n.Host] = &watched{seen: time.Now(), dirty: true}
	case n.Here:
		h.seen, h.left = time.Now(), false
	case h != nil && n.MayHaveChanged:
		h.dirty = true
	}
}

// age forgets hosts that have not said for long that they are there, and has the others
// asked now and then, not all of them at a time: of some changes no event tells.
func (w *Watch) age() {
	most := 1 + len(w.hosts)/looksAtAll
	for name, h := range w.hosts {
		switch {
		case w.o.Stays > 0 && time.Since(h.seen) > w.o.Stays:
			w.forget(name)
		case h.problem != "" && time.Since(h.asked) > listAgain:
			h.dirty = true
		case most > 0 && !h.dirty && time.Since(h.asked) > w.o.Every:
			h.dirty = true
			most--
		}
	}
}

func (w *Watch) forget(name string) {
	h := w.hosts[name]
	switch {
	case h == nil:
	case h.asking:
		h.left = true // what it says is waited for
	default:
		delete(w.hosts, name)
		w.o.View.Listed(h.sessions, nil)
	}
}

// askSome asks hosts that have news, some at a time.
func (w *Watch) askSome(ctx context.Context) {
	now := time.Now()
	for name, h := range w.hosts {
		if w.asking == w.o.AtOnce {
			return
		}
		if !h.dirty || h.asking || now.Before(h.rest) {
			continue
		}
		h.dirty, h.asking, h.asked = false, true, now
		w.asking++
		go func() { // ends with ctx, or AskWithin; Follow takes what comes
			ctx, cancel := bounded(ctx)
			defer cancel()
			p := protocol.ListSessionsParams{Limit: new(pageOf)}
			sessions, err := w.o.Host(name).List(ctx, p, maxPages, NewRoom(maxList))
			if !w.o.Raw {
				for i := range sessions {
					sessions[i].Raw = nil
				}
			}
			Sort(sessions)
			w.listed <- listed{name, sessions, err}
		}()
	}
}

func (w *Watch) list(l listed) {
	h := w.hosts[l.name]
	now := time.Now()
	h.rest = now.Add(min(listEvery, now.Sub(h.asked)*restFor*time.Duration(w.asking)))
	w.asking--
	h.asking = false
	switch {
	case h.left:
		w.forget(l.name)
	case l.err != nil:
		if h.problem != l.err.Error() {
			w.o.View.Failed(l.name, l.err)
		}
		h.problem = l.err.Error()
	default:
		before := h.sessions
		h.problem, h.sessions = "", l.sessions
		w.o.View.Listed(before, l.sessions)
	}
}

// Hosts is how many hosts there are.
func (w *Watch) Hosts() int { return len(w.hosts) }

// Problems are the reasons of hosts that do not answer, by name, in the order of the names.
func (w *Watch) Problems(tell func(host, why string)) {
	for _, name := range slices.Sorted(maps.Keys(w.hosts)) {
		if why := w.hosts[name].problem; why != "" {
			tell(name, why)
		}
	}
}

// First are at most so many sessions, those that need somebody first, and how many there
// are and wait.
func (w *Watch) First(most int) (some []Session, count, waiting int) {
	var best []*Session
	for _, h := range w.hosts {
		count += len(h.sessions)
		for i := range h.sessions {
			s := &h.sessions[i]
			full := len(best) == most && (most == 0 || ByNeed(s, best[most-1]) >= 0)
			if s.Need() == protocol.NeedAnswer {
				waiting++
			} else if full {
				break
			}
			if !full {
				at, _ := slices.BinarySearchFunc(best, s, ByNeed)
				best = slices.Insert(best[:min(len(best), most-1)], at, s)
			}
		}
	}
	for _, s := range best {
		some = append(some, *s)
	}
	return some, count, waiting
}
