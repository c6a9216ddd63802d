//go:build sim

package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"noused/internal/protocol"
	"noused/internal/runloop"
	"noused/internal/session"
	"noused/internal/session/sessiontest"
)

// In half of the worlds what clients say has the model call agent: some at once, in the
// background, with a child that there is, and children that have their own. Children are sessions
// as others are, to clients and to the other oracles.

// family is what is known of child sessions.
type family struct {
	families bool // there are any
	tasks    int  // that were given to children
	cleared  bool // a session was deleted, or not, at the end
	kids     []string
	parents  map[string]string // by child session
	kin      map[string]*kin   // by the child's run
	aborts   map[string]abort  // by run
	reports  map[string]*kin   // children in the background, by the runs that their ends have begun
	byCall   map[string]*kin
	begun    map[string]bool   // runs that have started
	over     map[string]bool   // runs that have ended
	endedIn  map[string]int    // the life that a child in the background has ended in, by its run
	waits    map[string]string // calls that were told, and wait for a child, by session
	asked    map[string]string // the sessions that were given a task, by their parents and the text
	most     runloop.Bounds
	kinds
	purse
}

// kin is a run that was begun for a call of agent.
type kin struct {
	session.ChildStarted
	parent string // session
	told   bool   // what it came to, as a message of the parent's
}

func newFamily(seed uint64) family {
	sum := fnv.New64a()
	fmt.Fprint(sum, "families")
	rng := rand.New(rand.NewPCG(seed, sum.Sum64()))
	families, kinds := rng.IntN(2) == 0, newKinds(rng)
	depth := []int{2, 2, 2, 2, 1, 3, 4, 8}[rng.IntN(8)] // 8 is what [children] has at most
	return family{
		families: families, kinds: kinds, purse: newPurse(),
		most:    runloop.Bounds{Depth: depth, Parallel: 3, Total: max(6, depth+2)},
		parents: map[string]string{}, kin: map[string]*kin{}, byCall: map[string]*kin{}, begun: map[string]bool{},
		reports: map[string]*kin{}, aborts: map[string]abort{},
		over: map[string]bool{}, endedIn: map[string]int{}, waits: map[string]string{}, asked: map[string]string{},
	}
}

// bounds are small enough to be met.
func (w *world) bounds() runloop.Bounds {
	if !w.families {
		return runloop.Bounds{}
	}
	return w.most
}

// chooses is a session that a client does something in.
func (c *client) chooses() string {
	w := c.w
	if w.families && len(w.kids) > 0 && w.rng.IntN(4) == 0 {
		return w.kids[w.rng.IntN(len(w.kids))]
	}
	return w.session[w.rng.IntN(len(w.session))]
}

// delegations are lines that have the model call agent. What is below them is one deeper than may be, at most, unless
// it is in a child.
func (w *world) delegations(in string, depth int) (lines string) {
	for range 1 + w.rng.IntN(3-min(depth, 2)) {
		w.tasks++
		name := fmt.Sprint("task ", w.tasks)
		task := name
		switch n := w.rng.IntN(6); {
		case n == 0:
			task += "\n!t.x"
		case n == 1:
			task += "\n!t.ask {\"n\":1}"
		case (n < 4 || w.most.Depth > 2) && depth < w.most.Depth:
			task += w.delegations("", depth+1)
		}
		args := map[string]any{"prompt": task}
		if w.rng.IntN(3) == 0 {
			args["background"] = true
		}
		own := slices.DeleteFunc(slices.Clone(w.kids), func(id string) bool { return w.parents[id] != in })
		if len(own) > 0 && w.rng.IntN(4) == 0 {
			args["session_id"] = own[w.rng.IntN(len(own))]
		} else {
			w.wanted(name, args)
		}
		text, err := json.Marshal(args)
		must(w.t, err)
		lines += "\n!agent " + string(text)
	}
	return lines
}

// isDoomed reports that a client has asked for a session to be deleted, or one above it.
func (w *world) isDoomed(id string) bool {
	for ; id != ""; id = w.parents[id] {
		if w.doomed[id] {
			return true
		}
	}
	return false
}

// deleted notes that a session is gone, with those below it. w.mu is held.
func (w *world) deleted(id string) {
	for _, kid := range slices.Clone(w.kids) {
		if kid == id {
			if w.exists(id) {
				w.fail("session %s is there, and one above it is deleted", id)
			}
			w.kids = slices.DeleteFunc(w.kids, func(o string) bool { return o == id })
		}
		if w.parents[kid] == id {
			w.sometimes("a child is deleted with its parent")
			if w.parents[id] != "" {
				w.sometimes("a child of a child is deleted with what is above it")
			}
			w.deleted(kid)
		}
	}
}

// removes holds the deletion of sessions, which is to be made durable now, against what parents wait for: else the next
// daemon would make a child again, and have its work done once more.
func (w *world) removes() {
	w.mu.Lock()
	defer w.mu.Unlock()
	away, _ := filepath.Glob(filepath.Join(w.dir, "state", "sessions", "*.deleted"))
	if len(away) == 0 || w.life.gone() {
		return
	}
	for _, run := range sorted(w.kin) {
		k := w.kin[run]
		if k.New && slices.ContainsFunc(away, func(path string) bool { return base(path) == k.ChildID+".deleted" }) &&
			w.exists(k.parent) && !w.holed(k.parent) && !w.hasAnswer(k) {
			w.fail("session %s is deleted, and %s waits for its run %s", k.ChildID, k.parent, run)
		}
	}
}

// hasAnswer reports that a parent's journal says what a child has come to, or that the call ended without it,
// also after a power cut. w.mu is held.
func (w *world) hasAnswer(k *kin) bool {
	text, key := w.durable(k.parent), session.ChildKey(k.ChildID, k.ChildRunID)
	for _, f := range factsOf[session.Input](text, "input") {
		if f.Key == key {
			return true
		}
	}
	for _, f := range factsOf[session.MessageAdded](text, "message") {
		if !k.Background && f.Message.ToolCallID == k.CallID {
			return true
		}
	}
	for _, f := range factsOf[session.RunEnded](text, "run_ended") {
		if !k.Background && f.RunID == k.RunID {
			return true
		}
	}
	return false
}

func (w *world) path(id string) string { return filepath.Join(w.dir, "state", "sessions", id+".jsonl") }

// journal is that of a session, as it is written; durable is what a power cut would leave of it.
func (w *world) journal(id string) []byte {
	text, _ := os.ReadFile(w.path(id))
	return text
}

func (w *world) durable(id string) []byte {
	info, err := os.Lstat(w.path(id))
	if err != nil {
		return nil
	}
	w.disk.mu.Lock()
	defer w.disk.mu.Unlock()
	if file := w.disk.files[inode(info)]; file != nil {
		return file.content
	}
	return nil
}

// factsOf are the records of a kind that a journal has.
func factsOf[F any](journal []byte, kind string) (found []F) {
	for _, r := range recordsOf[F](journal, kind) {
		found = append(found, r.Data)
	}
	return found
}

// record is a line of a journal.
type record[F any] struct {
	At   time.Time
	Type string
	Data F
}

func recordsOf[F any](journal []byte, kind string) (found []record[F]) {
	for line := range bytes.Lines(journal) {
		var r record[F]
		if bytes.Contains(line, []byte(`"`+kind+`"`)) && json.Unmarshal(line, &r) == nil && r.Type == kind {
			found = append(found, r)
		}
	}
	return found
}

// meet learns whose child a session is, and for which call it runs. w.mu is held.
func (w *world) meet(id, run string) *kin {
	if w.parents[id] == "" {
		for _, f := range factsOf[session.Created](w.journal(id), "created") {
			if f.Parent != nil {
				w.parents[id] = f.Parent.SessionID
				w.kids = append(w.kids, id)
				if f.Parent.Depth > w.bounds().Depth {
					w.fail("session %s has %d sessions above it", id, f.Parent.Depth)
				}
				if is, known := w.depth(f.Parent.SessionID); known && is+1 != f.Parent.Depth && !w.holed(id) {
					w.fail("session %s says that %d sessions are above it, and its parent has %d", id, f.Parent.Depth, is)
				}
				if f.Parent.Depth > 1 {
					w.sometimes("a child has a child")
				}
				if f.Parent.Depth > 2 {
					w.sometimes("a child of a child has a child")
				}
			}
		}
	}
	if parent := w.parents[id]; parent != "" && w.kin[run] == nil {
		w.learn(parent)
	}
	return w.kin[run]
}

// depth is how many sessions are above one, if that is known.
func (w *world) depth(id string) (n int, known bool) {
	f := w.created(id)
	if f == nil || w.holed(id) {
		return 0, false
	}
	if f.Parent != nil {
		n = f.Parent.Depth
	}
	return n, true
}

// learn takes in what a parent's journal says of its children, those that are not made yet included.
// w.mu is held.
func (w *world) learn(parent string) {
	for _, f := range factsOf[session.ChildStarted](w.journal(parent), "child_started") {
		w.relate(f, parent)
	}
}

// relate notes what a parent's journal says of a child. w.mu is held.
func (w *world) relate(f session.ChildStarted, parent string) {
	if w.kin[f.ChildRunID] != nil {
		return
	}
	k := &kin{ChildStarted: f, parent: parent}
	w.kin[f.ChildRunID], w.byCall[f.CallID] = k, k
	if !f.New {
		w.sometimes("a child goes on for another call")
	}
	var all []string
	for run, other := range w.kin {
		if w.root(other) == w.root(k) && !w.mayBeForgotten(run) {
			all = append(all, run)
		}
	}
	if n := len(all); n > w.bounds().Total && !w.unopened {
		slices.Sort(all)
		w.fail("run %s has %d children: %v", w.root(k), n, all)
	}
}

// root is the run at the top of a child's tree.
func (w *world) root(k *kin) string {
	for w.above(k.RunID) != nil {
		k = w.above(k.RunID)
	}
	return k.RunID
}

// above is the child that a run is, or whose end has begun it: one of the same tree. nil: the run is no such one.
func (w *world) above(run string) *kin {
	if k := w.kin[run]; k != nil {
		return k
	}
	return w.reports[run]
}

// mayBeForgotten reports that a run belongs to one that a child's end has begun, and that was over under a former
// daemon: that tells the rest of the tree, but waits for nobody to keep it. w.mu is held.
func (w *world) mayBeForgotten(run string) bool {
	for k := w.above(run); k != nil; run, k = k.RunID, w.above(k.RunID) {
		if _, former := w.former[run]; former && w.reports[run] != nil {
			return true
		}
	}
	return false
}

// learnReports learns of which trees the runs of a session are that children's ends have begun. w.mu is held.
func (w *world) learnReports(in string) {
	w.learn(in)
	for _, f := range factsOf[session.Input](w.journal(in), "input") {
		run := f.RunID
		_, child, _ := strings.Cut(f.Tells(), "@")
		if f.Kind != protocol.KindPrompt || child == "" || w.reports[run] != nil {
			continue
		}
		k := w.kin[child]
		switch {
		case k == nil:
			w.fail("run %s tells the end of the run %s, which is none of a child of session %s", run, child, in)
		case f.Root != w.root(k):
			w.fail("run %s is of the tree %s, and the child whose end began it of %s", run, f.Root, w.root(k))
		default:
			w.reports[run] = k
			w.sometimes("the end of a child in the background begins a run")
		}
	}
}

// working are the children of a tree that run, and do not wait for one of their own. w.mu is held.
func (w *world) working(root string) (runs []string) {
	waits := map[string]bool{}
	for run, k := range w.kin {
		if w.running[k.ChildID] == run && !k.Background {
			waits[k.RunID] = true
		}
	}
	for run, k := range w.kin {
		if w.running[k.ChildID] == run && !waits[run] && w.root(k) == root {
			runs = append(runs, run)
		}
	}
	return runs
}

// awaited reports that a call waits for a child that runs. w.mu is held.
func (w *world) awaited() bool {
	for _, call := range w.waits {
		if k := w.byCall[call]; k != nil && w.running[k.ChildID] == k.ChildRunID {
			return true
		}
	}
	return false
}

// untold reports that a parent was not told yet what a child in the background has come to. One whose journal has holes
// may never be. w.mu is held.
func (w *world) untold() bool {
	for _, k := range w.kin {
		if k.Background && !k.told && w.exists(k.parent) {
			return true
		}
	}
	return false
}

func (w *world) exists(id string) bool {
	_, err := os.Stat(w.path(id))
	return err == nil
}

// answering is a child whose run has ended, and whose parent has not taken that in; "" for none.
func (w *world) answering() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, run := range sorted(w.kin) {
		if k := w.kin[run]; w.over[run] && !k.Background && w.waits[k.parent] == k.CallID {
			return k.ChildID
		}
	}
	return ""
}

// clears has a client delete a session with its children once nothing runs, in some worlds. It
// reports whether it has.
func (w *world) clears() bool {
	if !w.families || w.cleared || len(w.kids) == 0 {
		return false
	}
	w.cleared = true
	if w.rng.IntN(3) > 0 {
		return false
	}
	parent := w.parents[w.kids[w.rng.IntN(len(w.kids))]]
	w.doomed[parent] = true
	w.clients[0].send("delete_session", map[string]any{"session_id": parent, "children": true})
	return true
}

// tells notes a message, or one that was handed back, that says what a child came to. w.mu is held.
func (w *world) tells(text string) {
	key, _, found := strings.Cut(strings.TrimPrefix(text, "["), ": the background child session")
	_, run, is := strings.Cut(key, "@")
	if !found || !is || w.kin[run] == nil {
		return
	}
	if in := w.endedIn[run]; in != 0 && in != w.life.number {
		w.sometimes("what a child in the background came to is told by the next daemon")
	}
	w.kin[run].told = true
}

// noteChildren notes what is announced of children, and of calls that wait for them. w.mu is held.
func (w *world) noteChildren(ev protocol.Event) {
	if !w.families {
		return
	}
	in := ev.Where().SessionID
	switch ev := ev.(type) {
	case protocol.AgentStart:
		w.childBegins(in, ev.RunID)
	case protocol.MessageStart:
		if ev.Role == "user" {
			w.tells(ev.Text)
			w.assigned(in, ev.RunID, ev.Text)
		} else {
			w.bounded(in, ev.RunID, ev.MessageID)
			w.goesOn(ev.RunID)
		}
	case protocol.ToolUpdate:
		var told struct {
			Type       string
			SessionID  string `json:"session_id"`
			RunID      string `json:"run_id"`
			Background bool
		}
		if json.Unmarshal(ev.Update, &told) == nil && told.Type == "child_session" {
			w.learn(in)
			w.meet(told.SessionID, told.RunID)
			w.begins(ev.RunID, told.RunID)
			if !told.Background {
				w.waits[in] = ev.ToolCallID
			}
		}
	case protocol.MessageEnd:
		w.spends(ev)
	case protocol.ToolEnd:
		delete(w.waits, in)
		w.callEnds(ev)
	case protocol.AgentEnd:
		w.childEnds(in, ev)
		if ev.Error != nil && ev.Error.Code == protocol.OverBudget && strings.Contains(ev.Error.Message, "the run has cost") {
			w.costsAll(in, ev.RunID)
		}
	case protocol.Status:
		switch ev.Code {
		case protocol.StatusAbortRequested:
			w.noteAbort(ev.RunID)
		case protocol.StatusApprovalRequested:
			if ev.Approval.Kind == protocol.ApprovalBudget {
				w.noteBudget(ev.RunID)
				w.asksForMore(in, ev.RunID, ev.Approval.ApprovalID)
			}
		}
	}
}

// assigned notes that a child was given its task. w.mu is held.
func (w *world) assigned(in, run, text string) {
	if !isTask(text) {
		return
	}
	w.meet(in, run)
	of := w.parents[in] + " " + text // a branch asks for it as well
	if w.asked[of] == "" {
		w.kindOf(in, run, text)
	}
	if before := w.asked[of]; before != "" && before != in {
		w.fail("%q was given to %s and to %s", text, before, in)
	}
	w.asked[of] = in
}

func (w *world) childBegins(in, run string) {
	w.begun[run] = true
	k := w.meet(in, run)
	if k == nil {
		if w.learnReports(in); w.reports[run] == nil {
			w.rooted[run] = w.harm()
		} else if child := w.reports[run].ChildRunID; w.endedIn[child] == w.life.number && w.before[run] == nil {
			w.before[run] = w.atEnd[child]
		}
		return
	}
	root := w.root(k)
	if n := w.working(root); len(n) > w.bounds().Parallel {
		slices.Sort(n)
		w.fail("%d children of run %s work at the same time: %v", len(n), root, n)
	} else if len(n) > 1 {
		w.sometimes("children work at the same time")
	}
}

// callEnds holds a call's end against that of its child. w.mu is held.
func (w *world) callEnds(ev protocol.ToolEnd) {
	if ev.Error != nil && ev.Error.Code == "at_limit" {
		w.atBound(ev)
	}
	k := w.byCall[ev.ToolCallID]
	if k == nil || k.Background {
		return
	}
	if w.begun[k.ChildRunID] && !w.over[k.ChildRunID] && !w.holed(k.ChildID) {
		w.fail("call %s ends before the run %s of its child", ev.ToolCallID, k.ChildRunID)
	}
	if ev.Skipped {
		w.sometimes("a steer skips a call that waits for a child")
	}
}

func (w *world) childEnds(in string, ev protocol.AgentEnd) {
	w.over[ev.RunID] = true
	for _, d := range ev.Discarded {
		w.tells(d.Text)
	}
	if k := w.kin[ev.RunID]; k != nil && k.Background {
		w.endedIn[ev.RunID] = w.life.number
		if w.countsAll() {
			w.atEnd[ev.RunID] = w.treeUse(ev.RunID)
		}
		if w.running[k.parent] != "" {
			w.sometimes("a child in the background ends while its parent runs")
		} else {
			w.sometimes("a child in the background ends while its parent is idle")
		}
	}
	if ev.StopReason == protocol.StopError { // its children are stopped, and not waited for
		return
	}
	for run, k := range w.kin {
		if k.RunID == ev.RunID && !k.Background && w.begun[run] && !w.over[run] && !w.holed(in) && !w.holed(k.ChildID) {
			w.fail("run %s ends before the run %s of its child", ev.RunID, run)
		}
	}
}

// abort is the life in which a run was aborted, what harm was done by then, and how often runs that it waits for have
// asked their models since.
type abort struct {
	life, harm int
	asks       map[string]int // by run
}

// maxLateAsks is how often a child may ask its model yet: what is under way is announced late where a disk is slow.
const maxLateAsks = 2

// goesOn holds a run that asks its model against an abort of the one that waits for it. w.mu is held.
func (w *world) goesOn(run string) {
	k := w.kin[run]
	if k == nil || k.Background {
		return
	}
	a, is := w.aborts[k.RunID]
	if !is || a.life != w.life.number || a.harm != w.harm() {
		return
	}
	if a.asks[run]++; a.asks[run] > maxLateAsks {
		w.fail("run %s asks its model, and %s, which waits for it, was aborted %d answers before", run, k.RunID, a.asks[run])
	}
}

func (w *world) noteAbort(run string) {
	if _, is := w.aborts[run]; !is {
		w.aborts[run] = abort{w.life.number, w.harm(), map[string]int{}}
	}
	if w.kin[run] != nil {
		w.sometimes("a client aborts a child") // or its parent's end does
	}
	if k := w.waitsFor(run); k != nil {
		w.sometimes("an abort of a run that waits for a child")
		if w.waitsFor(k.ChildRunID) != nil {
			w.sometimes("an abort of a run whose child waits for one")
		}
	}
}

// waitsFor is a child that works, and that a run waits for, nil where there is none. w.mu is held.
func (w *world) waitsFor(run string) *kin {
	for _, of := range sorted(w.kin) {
		if k := w.kin[of]; k.RunID == run && !k.Background && w.running[k.ChildID] == of {
			return k
		}
	}
	return nil
}

// grandparent is a session whose run waits for a child that waits for one, "" where there is none.
func (w *world) grandparent() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, in := range sorted(w.running) {
		if k := w.waitsFor(w.running[in]); k != nil && w.waitsFor(k.ChildRunID) != nil {
			return in
		}
	}
	return ""
}

// kinOf is what journals say of children. w.mu is held.
func (w *world) kinOf(stories map[string]*sessiontest.Story) {
	if !w.families {
		return
	}
	w.waits, w.begun, w.over = map[string]string{}, map[string]bool{}, map[string]bool{}
	for run, k := range w.kin { // a power cut may have taken what was written of one, and not synced
		is := func(f session.ChildStarted) bool { return f.ChildRunID == run }
		if s := stories[k.parent]; s != nil && !slices.ContainsFunc(s.Started, is) {
			delete(w.kin, run)
			delete(w.byCall, k.CallID)
		}
	}
	for _, id := range sorted(stories) {
		s := stories[id]
		for run, stop := range s.Runs {
			w.begun[run], w.over[run] = true, stop != ""
		}
		for _, f := range s.Started {
			w.relate(f, id)
		}
		if !s.Holed {
			w.learnReports(id)
		}
		if s.Above == nil {
			continue
		}
		if w.parents[id] == "" {
			w.parents[id] = s.Above.SessionID
			w.kids = append(w.kids, id)
		}
		if stories[s.Above.SessionID] == nil {
			w.fail("the parent of session %s is gone", id)
		}
	}
	for _, s := range stories {
		for key, n := range s.Keys {
			if _, run, is := strings.Cut(key, "@"); is && w.kin[run] != nil {
				w.kin[run].told = true
				if n > 1 {
					w.fail("what %s came to is told %d times", key, n)
				}
			}
		}
	}
}

// reported holds a parent's journal, in which nothing runs any more, against its children in the
// background. w.mu is held.
func (w *world) reported(s *sessiontest.Story) {
	for _, f := range s.Started {
		if key := session.ChildKey(f.ChildID, f.ChildRunID); f.Background && s.Keys[key] != 1 && !s.Holed {
			w.fail("session %s was told %d times what %s came to", s.ID, s.Keys[key], key)
		}
	}
}
