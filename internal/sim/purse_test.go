//go:build sim

package sim

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
	"noused/internal/session/sessiontest"
)

// What a tree has used, and how many children it has had, is added up here from what is announced and from the
// journals, and held against what the daemon lets it do, what it reports, and what a parent learns from its child.

// purse is what is known of it.
type purse struct {
	used   map[string]model.Usage            // by run
	spent  map[string]model.Usage            // by session: what models have answered, whether or not it is on a disk
	former map[string]model.Usage            // by run, when this life began
	before map[string]map[string]model.Usage // that of a tree when the model of a run began to answer last but one
	latest map[string]map[string]model.Usage // and last
	atEnd  map[string]map[string]model.Usage // that of the tree of a child in the background when it had ended
	ends   map[string]protocol.Usage         // what runs have used, as this life has told at their ends
	rooted map[string]int                    // what harm was done when a run began that is no child's
	may    map[string]int64                  // what runs may cost with their trees, 0: anything
	// a session was not opened in some life, since the disk failed: nobody counted its children then
	unopened bool
	short    map[string]bool // trees that have had as many children as they may, as this life says
}

func newPurse() purse {
	return purse{
		used: map[string]model.Usage{}, spent: map[string]model.Usage{}, rooted: map[string]int{}, may: map[string]int64{},
		atEnd: map[string]map[string]model.Usage{},
	}
}

// harm counts what may take a child from a journal that was given a number.
func (w *world) harm() int { return w.counts["kills"] + w.counts["faults"] }

// top is the session at the root of a child session.
func (w *world) top(id string) string {
	for w.parents[id] != "" {
		id = w.parents[id]
	}
	return id
}

// rootOf is the run at the top of a run's tree. w.mu is held.
func (w *world) rootOf(run string) string {
	if k := w.above(run); k != nil {
		return w.root(k)
	}
	return run
}

// treeUse is what the runs of a run's tree have used, as far as its daemon has to know. w.mu is held.
func (w *world) treeUse(run string) map[string]model.Usage {
	root := w.rootOf(run)
	all := map[string]model.Usage{root: w.used[root]}
	for _, runs := range []map[string]*kin{w.kin, w.reports} {
		for run, k := range runs {
			if w.root(k) == root && !w.mayBeForgotten(run) {
				all[run] = w.used[run]
			}
		}
	}
	return all
}

// spends notes what a message took. w.mu is held.
func (w *world) spends(ev protocol.MessageEnd) {
	if u := ev.Usage; u != nil {
		w.used[ev.RunID] = w.used[ev.RunID].Add(model.Usage{
			InputTokens: u.InputTokens, OutputTokens: u.OutputTokens, Cost: nano(u.Cost),
		})
	}
}

// nano is a cost in billionths of a dollar.
func nano(c *protocol.Cost) int64 {
	if c == nil {
		return 0
	}
	return int64(c.Amount*1e9 + 0.5)
}

// bounded holds a run whose model begins to answer against what its tree has used: what the run is sure to know by
// itself, and what had been announced, or was in the journals of a former daemon, two answers before.
// w.mu is held.
func (w *world) bounded(in, run, message string) {
	if w.hosted[in] != "" || w.holed(in) {
		return
	}
	if most := w.mayCost(in, run); w.limit > 0 || most > 0 {
		known := map[string]model.Usage{}
		w.knows(in, run, message, known)
		for of, was := range w.before[run] {
			if tokens(was) > tokens(known[of]) {
				known[of] = was
			}
		}
		var used model.Usage
		for _, u := range known {
			used = used.Add(u)
		}
		if w.limit > 0 && tokens(used)-w.granted(in, run) >= w.limit {
			w.fail("run %s asks its model: its tree has used %d tokens, %d were granted, and %d is the limit: %v",
				run, tokens(used), w.granted(in, run), w.limit, known)
		}
		if most > 0 && used.Cost >= most {
			w.fail("run %s asks its model: its tree has cost %d, and may cost %d: %v", run, used.Cost, most, known)
		}
	}
	if w.countsAll() { // the next answer may have been asked for before this one is announced, but not the one after it
		if was := w.latest[run]; was != nil {
			w.before[run] = was
		}
		w.latest[run] = w.treeUse(run)
	}
}

// countsAll reports that the daemon has counted all runs that a former one has left: it says that it knows all that
// waits for a person. w.mu is held.
func (w *world) countsAll() bool {
	l := w.life
	if !l.counts {
		out := l.mux.Run(context.Background(), protocol.Command{Type: "get_state", Payload: []byte(`{"daemon":true}`)})
		var r struct {
			Payload struct {
				Incomplete bool `json:"approvals_incomplete"`
			} `json:"payload"`
		}
		must(w.t, json.Unmarshal(out.Append(nil, "counts"), &r))
		l.counts = !r.Payload.Incomplete
	}
	return l.counts && !l.unopened
}

// begins notes what a run's tree had used under former daemons before a child of it begins. w.mu is held.
func (w *world) begins(run, child string) {
	switch {
	case w.begun[child]:
		return
	case !w.countsAll():
		if w.before[child] == nil {
			w.before[child] = w.before[run]
		}
		return
	}
	known := map[string]model.Usage{}
	for of := range w.treeUse(run) {
		known[of] = w.former[of]
	}
	for of, was := range w.before[run] {
		if tokens(was) > tokens(known[of]) {
			known[of] = was
		}
	}
	w.before[child] = known
}

// mayCost is what a run may cost with its tree, as its journal says, 0: anything. A child may as much as the run at the
// root. w.mu is held.
func (w *world) mayCost(in, run string) int64 {
	if most, known := w.may[run]; known {
		return most
	}
	for _, f := range factsOf[session.Input](w.journal(in), "input") {
		if f.RunID == run && f.Kind == protocol.KindPrompt {
			w.may[run] = f.Terms.MaxCost
			if above, known := w.may[w.rootOf(run)]; known && above != f.Terms.MaxCost {
				w.fail("run %s may cost %d, and the run at the root of its tree %d", run, f.Terms.MaxCost, above)
			}
		}
	}
	return w.may[run]
}

// costsAll holds a run that ends for what its tree has cost against that: nothing counts twice. w.mu is held.
func (w *world) costsAll(in, run string) {
	if most := w.mayCost(in, run); most == 0 {
		w.fail("run %s ends for what it has cost, and may cost anything", run)
	} else if sum := w.inAll(in, run); sum.Cost < most {
		w.fail("run %s ends, as its tree has cost %d, and it has cost %d", run, most, sum.Cost)
	}
	if w.kin[run] != nil {
		w.sometimes("a child ends for what its tree has cost")
	}
}

func tokens(u model.Usage) int64 { return u.InputTokens + u.OutputTokens }

// knows adds what a run, but for a message that begins, and those of its children that have answered have used.
func (w *world) knows(in, run, message string, all map[string]model.Usage) {
	text, results := w.journal(in), map[string]bool{}
	var used model.Usage
	for _, f := range factsOf[session.MessageAdded](text, "message") {
		if f.RunID != run || f.ID == message {
			continue
		}
		if f.Usage != nil {
			used = used.Add(*f.Usage)
		}
		results[f.Message.ToolCallID] = true
	}
	all[run] = used
	for _, f := range factsOf[session.ChildStarted](text, "child_started") {
		if f.RunID == run && results[f.CallID] && !f.Background {
			w.knows(f.ChildID, f.ChildRunID, "", all)
		}
	}
}

// granted is what a run's tree had used when somebody let the run go on last.
func (w *world) granted(in, run string) (tokens int64) {
	text, asked := w.journal(in), map[string]int64{}
	for _, f := range factsOf[session.ApprovalAsked](text, "approval_asked") {
		if f.RunID == run && f.Kind == protocol.ApprovalBudget {
			asked[f.ApprovalID] = f.Used.Tokens
		}
	}
	for _, f := range factsOf[session.ApprovalDecided](text, "approval_decided") {
		if f.Outcome == protocol.OutcomeAllowed {
			tokens = max(tokens, asked[f.ApprovalID])
		}
	}
	return tokens
}

// inAll is what a tree may have used: all that models have answered in its sessions, but for what other runs there have
// used. w.mu is held.
func (w *world) inAll(in, run string) (sum model.Usage) {
	root := w.rootOf(run)
	at := map[string]string{} // sessions, by run
	for {
		at[run] = in
		k := w.above(run)
		if k == nil {
			break
		}
		run, in = k.RunID, k.parent
	}
	for run, k := range w.kin {
		if w.root(k) == root {
			at[run] = k.ChildID
		}
	}
	for run, k := range w.reports {
		if w.root(k) == root {
			at[run] = k.parent
		}
	}
	seen := map[string]bool{}
	for _, in := range at {
		if seen[in] {
			continue
		}
		seen[in] = true
		sum = sum.Add(w.spent[in])
		s := sessiontest.New(in)
		_ = s.Take(w.path(in)) // as far as it is there
		for run, used := range s.Used {
			if _, is := at[run]; !is {
				sum.InputTokens -= used.InputTokens
				sum.OutputTokens -= used.OutputTokens
				sum.Cost -= used.Cost
			}
		}
	}
	return sum
}

// asksForMore holds a question whether a run goes on that has reached a limit against what its tree has used: nothing
// counts twice. w.mu is held.
func (w *world) asksForMore(in, run, id string) {
	for _, f := range factsOf[session.ApprovalAsked](w.journal(in), "approval_asked") {
		if f.ApprovalID != id {
			continue
		}
		if sum := w.inAll(in, run); f.Used.Tokens > tokens(sum) {
			w.fail("run %s asks, as its tree has used %d tokens, and it has used %d", run, f.Used.Tokens, tokens(sum))
		}
	}
}

// addUp takes what runs have used from the journals, and holds it against what was told at their ends. w.mu is held.
func (w *world) addUp() {
	clear(w.used)
	for _, id := range sorted(w.stories) {
		s := w.stories[id]
		maps.Copy(w.used, s.Used)
		if s.Holed {
			continue
		}
		for run := range s.Ends {
			told, is := w.ends[run]
			has := s.Used[run]
			if is && (told.InputTokens != has.InputTokens ||
				told.OutputTokens != has.OutputTokens || nano(told.Cost) != has.Cost) {
				w.fail("run %s ends with %+v, and has used %+v", run, told, has)
			}
		}
	}
}

// handedUp holds what a parent knows of its children's use, and of their number, against their journals. w.mu is held.
func (w *world) handedUp(s *sessiontest.Story) {
	if s.Holed {
		return
	}
	spent, ended := map[string]model.Usage{}, map[string]session.ChildEnded{}
	for _, f := range s.Ended {
		ended[f.ChildRunID] = f
	}
	for _, f := range s.Started {
		is, known := ended[f.ChildRunID]
		if !known || is.Spent == nil {
			continue
		}
		if !f.Background {
			spent[f.RunID] = spent[f.RunID].Add(*is.Spent)
		}
		below := w.stories[f.ChildID]
		if below == nil || below.Holed || !w.begun[f.ChildRunID] {
			continue
		}
		want := below.Used[f.ChildRunID]
		if more := below.Ends[f.ChildRunID].Spent; more != nil {
			want = want.Add(*more)
		}
		if *is.Spent != want {
			w.fail("session %s knows that the run %s of its child has used %+v, and it has used %+v", s.ID, f.ChildRunID,
				*is.Spent, want)
		}
	}
	for run, end := range s.Ends {
		if end.Spent != nil && tokens(*end.Spent) < tokens(spent[run]) {
			w.fail("run %s ends as if its children had used %+v, and they have used %+v", run, *end.Spent, spent[run])
		}
	}
}

// atBound holds a call of agent that is refused against the bound that it is refused for. w.mu is held.
func (w *world) atBound(ev protocol.ToolEnd) {
	w.sometimes("a call of agent is at a bound")
	text := ev.Error.Message
	switch {
	case strings.Contains(text, "depth in [children]"):
		w.sometimes("a call of agent is as deep as may be")
		if n, known := w.depth(ev.SessionID); known && n < w.bounds().Depth {
			w.fail("call %s is refused for its depth, and %d sessions are above its own", ev.ToolCallID, n)
		}
	case strings.Contains(text, "total in [children]"):
		root := w.rootOf(ev.RunID)
		w.short[root] = true
		if at, known := w.rooted[root]; known && at != w.harm() {
			w.sometimes("a call of agent is at total after a kill or a fault")
		}
	}
}

// counted holds trees that may have no more children against those that they have had, now that all is at rest: none
// counts twice.
func (w *world) counted() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, root := range sorted(w.short) {
		if at, known := w.rooted[root]; !known || at != w.harm() || len(w.doomed) > 0 {
			continue // a number may have been given to a child that came to nothing
		}
		for _, id := range slices.Concat(w.session, w.kids) {
			w.learn(id)
		}
		n := 0
		for _, k := range w.kin {
			if w.root(k) == root {
				n++
			}
		}
		if n < w.bounds().Total {
			w.fail("run %s may have no more children, and has had %d", root, n)
		}
	}
}
