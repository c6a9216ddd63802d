package runloop

import (
	"context"
	"maps"
	"slices"
	"sync"

	"noused/internal/model"
	"noused/internal/session"
)

// forest knows the trees of runs that have children: what they have used together, how many
// children there were, and which of them work. It may be used from any goroutine; all of it
// can be found again in the journals of runs that have not ended.
type forest struct {
	bounds Bounds

	mu    sync.Mutex
	trees map[string]*tree // by the run at the root
}

type tree struct {
	uses    map[string]*treeUse  // by run
	places  map[string]treePlace // of the children that work, by run
	waiting []*treeWaiter        // in their order
	given   int                  // children that there were at least, as the latest says
	wanted  map[string]int       // children that somebody looks after, by the session that does
	kept    map[string]bool      // sessions that did so as their journals failed, and are opened again
}

// treeUse is what a run has used, its children that have ended included.
type treeUse struct {
	used     model.Usage
	children int
	live     bool
	session  string // where it is live
}

// treePlace is that of a child among those that work. A run that waits for a child of its own
// does not work: its child has its place.
type treePlace struct {
	session    string // that has the call
	parent     string // run
	background bool
}

type treeWaiter struct {
	run   string
	place treePlace
	ready chan struct{} // closed once it has its place
}

// use calls do with a tree, which is made or dropped as need be.
func (f *forest) use(root string, do func(t *tree)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.trees[root]
	if t == nil {
		t = &tree{
			uses: map[string]*treeUse{}, places: map[string]treePlace{}, wanted: map[string]int{}, kept: map[string]bool{},
		}
		if f.trees == nil {
			f.trees = map[string]*tree{}
		}
		f.trees[root] = t
	}
	do(t)
	for len(t.waiting) > 0 {
		i := slices.IndexFunc(t.waiting, func(w *treeWaiter) bool { return t.enters(w.run, w.place, f.bounds.Parallel) })
		if i < 0 {
			break
		}
		close(t.waiting[i].ready)
		t.waiting = slices.Delete(t.waiting, i, i+1)
	}
	if len(t.places) == 0 && len(t.waiting) == 0 && len(t.wanted) == 0 && len(t.kept) == 0 && !t.lives() {
		delete(f.trees, root)
	}
}

// all are the roots of the trees that are so.
func (f *forest) all(is func(t *tree) bool) (roots []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for root, t := range f.trees {
		if is(t) {
			roots = append(roots, root)
		}
	}
	return roots
}

// keep keeps the trees of the children that a session looks after, until release: its journal has failed, and it
// is to be opened again.
func (f *forest) keep(session string) {
	for _, root := range f.all(func(t *tree) bool { return t.wanted[session] > 0 }) {
		f.use(root, func(t *tree) { t.kept[session] = true })
	}
}

func (f *forest) release(session string) {
	for _, root := range f.all(func(t *tree) bool { return t.kept[session] }) {
		f.use(root, func(t *tree) { delete(t.kept, session) })
	}
}

func (t *tree) lives() bool {
	for _, u := range t.uses {
		if u.live {
			return true
		}
	}
	return false
}

// working counts the children that do not wait for one of their own.
func (t *tree) working() int {
	waits := map[string]bool{}
	for _, p := range t.places {
		if _, child := t.places[p.parent]; child && !p.background {
			waits[p.parent] = true
		}
	}
	return len(t.places) - len(waits)
}

// enters gives a child its place where there is one.
func (t *tree) enters(run string, p treePlace, most int) bool {
	before := t.working()
	t.places[run] = p
	if now := t.working(); now > before && now > most {
		delete(t.places, run)
		return false
	}
	return true
}

// hold gives a child its place that works already, or may.
func (f *forest) hold(root, run string, p treePlace) {
	f.use(root, func(t *tree) { t.places[run] = p })
}

// enter blocks until a child may work, or one of the two ends it; it returns whether it may.
func (f *forest) enter(ctx context.Context, stop <-chan struct{}, root, run string, p treePlace) bool {
	w := &treeWaiter{run: run, place: p, ready: make(chan struct{})}
	f.use(root, func(t *tree) { t.waiting = append(t.waiting, w) })
	select {
	case <-w.ready:
		return true
	case <-stop:
	case <-ctx.Done():
	}
	f.use(root, func(t *tree) {
		t.waiting = slices.DeleteFunc(t.waiting, func(o *treeWaiter) bool { return o == w })
	})
	select {
	case <-w.ready: // it was given meanwhile
		f.leave(root, run)
	default:
	}
	return false
}

func (f *forest) leave(root, run string) {
	f.use(root, func(t *tree) { delete(t.places, run) })
}

// forget takes the places of children whose parent's session is deleted: nobody else does.
func (f *forest) forget(session string) {
	its := func(_ string, p treePlace) bool { return p.session == session }
	has := func(t *tree) bool {
		for run, p := range t.places {
			if its(run, p) {
				return true
			}
		}
		return false
	}
	for _, root := range f.all(has) {
		f.use(root, func(t *tree) { maps.DeleteFunc(t.places, its) })
	}
}

// want keeps a tree while a session looks after a child of it, the nth, until unwant.
func (f *forest) want(root string, by *session.State, nth int) {
	f.use(root, func(t *tree) {
		t.given, t.wanted[by.ID] = max(t.given, nth), t.wanted[by.ID]+1
		t.learn(root, by)
	})
}

// ended counts what a child's run has used that had ended before anybody looked after it. Once its parent's journal
// has that, the parent's run counts it.
func (f *forest) ended(root, run string, end childEnd) {
	f.use(root, func(t *tree) { t.ended(run, end) })
}

func (t *tree) ended(run string, end childEnd) {
	t.given = max(t.given, end.counted)
	if t.uses[run] == nil {
		t.uses[run] = &treeUse{used: end.usage.Add(end.below), children: end.children}
	}
}

func (f *forest) unwant(root, session string) {
	f.use(root, func(t *tree) {
		if t.wanted[session]--; t.wanted[session] == 0 {
			delete(t.wanted, session)
		}
	})
}

// reserve counts one more child of a run, the nth of its tree, and reports whether there may be one.
func (f *forest) reserve(root, run string) (nth int, ok bool) {
	f.use(root, func(t *tree) {
		n := 0
		for _, u := range t.uses {
			n += u.children
		}
		n = max(n, t.given)
		if ok = n < f.bounds.Total; !ok {
			return
		}
		nth, t.given = n+1, n+1
		if t.uses[run] == nil {
			t.uses[run] = &treeUse{}
		}
		t.uses[run].children++
		t.uses[run].live = true
	})
	return nth, ok
}

// others is what the other runs of a run's tree have used. Children that the run counts itself are not among them.
func (f *forest) others(root string, run *session.Run) (sum model.Usage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.trees[root]
	if t == nil {
		return sum
	}
	for id, u := range t.uses {
		if id != run.ID && !run.Counts(id) {
			sum = sum.Add(u.used)
		}
	}
	return sum
}

// treeReport names the run that the forest has from a loop.
type treeReport struct {
	root, run string
	reported  bool // the end of a child in the background began it
}

// treeNow is that of the run.
func (l *loop) treeNow() treeReport { return treeReport{l.m.root(), l.m.s.Run.ID, l.m.s.Run.Reported} }

// enterTree has the forest know which run the loop has, and what the former one came to, with the children that it
// counts since records were written.
func (l *loop) enterTree(now treeReport, records []session.Record) {
	was := l.inTree
	if l.inTree = now; was == now || was.run == "" {
		return
	}
	l.env.forest.use(was.root, func(t *tree) {
		for _, r := range records {
			if f, is := r.Fact.(session.ChildEnded); is && f.Root == "" {
				delete(t.uses, f.ChildRunID)
			}
		}
		delete(t.places, was.run)
		if u := t.uses[was.run]; u != nil {
			u.live = false
			if ended, ok := l.m.s.Ended(was.run); ok {
				end := childEndOf(ended.RunEnded, ended.Usage)
				u.used, u.children = end.usage.Add(end.below), end.children
				if was.reported {
					l.running.Go(func() {
						l.env.hub.tellLate(l.life, l.id, end.late(session.Child{
							ChildStarted: session.ChildStarted{ChildRunID: was.run, Root: was.root},
						}))
					})
				}
			}
		}
	})
}

// reserve is the forest's. The run may end before the loop accounts for it.
func (l *loop) reserve(root, run string) (nth int, ok bool) {
	l.enterTree(l.treeNow(), nil)
	return l.env.forest.reserve(root, run)
}

// account has the forest know what the loop's run, if it is one of a tree, has used by now, with records that have just
// been written.
func (l *loop) account(records []session.Record) {
	run := l.m.s.Run
	now := treeReport{}
	if run != nil && (run.Root != "" || len(run.Children) > 0) {
		now = l.treeNow()
	}
	was := l.inTree
	if l.enterTree(now, records); now.run == "" {
		return
	}
	used, children := run.Below()
	l.env.forest.use(now.root, func(t *tree) {
		t.given = max(t.given, run.Counted())
		if _, has := t.places[now.run]; !has && was != now && run.IsChild() { // its parent is not taken up yet
			t.places[now.run] = treePlace{background: true}
		}
		t.uses[now.run] = &treeUse{used: used.Add(run.Usage), children: children, live: true, session: l.id}
		if was != now {
			t.learn(now.root, l.m.s)
		}
		for _, c := range run.Children {
			if c.Ended { // it is counted here from now on
				delete(t.uses, c.ChildRunID)
			}
		}
	})
}
