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
	byCall   map[string]*kin
	begun    map[string]bool   // runs that have started
	over     map[string]bool   // runs that have ended
	endedIn  map[string]int    // the life that a child in the background has ended in, by its run
	waits    map[string]string // calls that were told, and wait for a child, by session
	asked    map[string]string // tasks, by the session that was given them
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
	return family{
		families: rand.New(rand.NewPCG(seed, sum.Sum64())).IntN(2) == 0,
		parents:  map[string]string{}, kin: map[string]*kin{}, byCall: map[string]*kin{}, begun: map[string]bool{},
		over: map[string]bool{}, endedIn: map[string]int{}, waits: map[string]string{}, asked: map[string]string{},
	}
}

// bounds are small enough to be met.
func (w *world) bounds() runloop.Bounds {
	if !w.families {
		return runloop.Bounds{}
	}
	return runloop.Bounds{Depth: 2, Parallel: 3, Total: 6}
}

// chooses is a session that a client does something in.
func (c *client) chooses() string {
	w := c.w
	if w.families && len(w.kids) > 0 && w.rng.IntN(4) == 0 {
		return w.kids[w.rng.IntN(len(w.kids))]
	}
	return w.session[w.rng.IntN(len(w.session))]
}

// delegations are lines that have the model call agent.
func (w *world) delegations(in string, depth int) (lines string) {
	for range 1 + w.rng.IntN(3-min(depth, 2)) {
		w.tasks++
		task := fmt.Sprint("task ", w.tasks)
		switch n := w.rng.IntN(6); {
		case n == 0:
			task += "\n!t.x"
		case n == 1:
			task += "\n!t.ask {\"n\":1}"
		case n < 4 && depth < 2:
			task += w.delegations("", depth+1)
		}
		args := map[string]any{"prompt": task}
		if w.rng.IntN(3) == 0 {
			args["background"] = true
		}
		own := slices.DeleteFunc(slices.Clone(w.kids), func(id string) bool { return w.parents[id] != in })
		if len(own) > 0 && w.rng.IntN(4) == 0 {
			args["session_id"] = own[w.rng.IntN(len(own))]
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
			w.kids = slices.DeleteFunc(w.kids, func(o string) bool { return o == id })
		}
		if w.parents[kid] == id {
			w.sometimes("a child is deleted with its parent")
			w.deleted(kid)
		}
	}
}

// lines of a journal that have a record of that kind.
func (w *world) records(id, kind string) (found [][]byte) {
	text, err := os.ReadFile(filepath.Join(w.dir, "state", "sessions", id+".jsonl"))
	if err != nil {
		return nil
	}
	for line := range bytes.Lines(text) {
		var r struct {
			Type string
			Data json.RawMessage
		}
		if bytes.Contains(line, []byte(`"`+kind+`"`)) && json.Unmarshal(line, &r) == nil && r.Type == kind {
			found = append(found, r.Data)
		}
	}
	return found
}

// meet learns whose child a session is, and for which call it runs. w.mu is held.
func (w *world) meet(id, run string) *kin {
	if w.parents[id] == "" {
		for _, data := range w.records(id, "created") {
			var f session.Created
			if json.Unmarshal(data, &f) == nil && f.Parent != nil {
				w.parents[id] = f.Parent.SessionID
				w.kids = append(w.kids, id)
				if f.Parent.Depth > w.bounds().Depth {
					w.fail("session %s has %d sessions above it", id, f.Parent.Depth)
				}
				if f.Parent.Depth > 1 {
					w.sometimes("a child has a child")
				}
			}
		}
	}
	if parent := w.parents[id]; parent != "" && w.kin[run] == nil {
		w.learn(parent)
	}
	return w.kin[run]
}

// learn takes in what a parent's journal says of its children, those that are not made yet included.
// w.mu is held.
func (w *world) learn(parent string) {
	for _, data := range w.records(parent, "child_started") {
		var f session.ChildStarted
		if json.Unmarshal(data, &f) == nil {
			w.relate(f, parent)
		}
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
		if w.root(other) == w.root(k) {
			all = append(all, run)
		}
	}
	if n := len(all); n > w.bounds().Total {
		slices.Sort(all)
		w.fail("run %s has %d children: %v", w.root(k), n, all)
	}
}

// root is the run at the top of a child's tree. What works in the background once the run of its
// call is over has a tree of its own.
func (w *world) root(k *kin) string {
	for w.kin[k.RunID] != nil {
		k = w.kin[k.RunID]
	}
	return k.RunID
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

// untold reports that a parent was not told yet what a child in the background has come to. w.mu is held.
func (w *world) untold() bool {
	for _, k := range w.kin {
		if k.Background && !k.told && !w.holed(k.parent) && w.exists(k.parent) {
			return true
		}
	}
	return false
}

func (w *world) exists(id string) bool {
	_, err := os.Stat(filepath.Join(w.dir, "state", "sessions", id+".jsonl"))
	return err == nil
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
	key, _, found := strings.Cut(strings.TrimPrefix(text, "["), ": the child session")
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
			w.assigned(in, ev.Text)
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
			if !told.Background {
				w.waits[in] = ev.ToolCallID
			}
		}
	case protocol.ToolEnd:
		delete(w.waits, in)
		w.callEnds(ev)
	case protocol.AgentEnd:
		w.childEnds(in, ev)
	case protocol.Status:
		if ev.Code == protocol.StatusAbortRequested {
			w.aborts(in, ev.RunID)
		}
	}
}

// assigned notes that a child was given its task. w.mu is held.
func (w *world) assigned(in, text string) {
	if !strings.HasPrefix(text, "task ") {
		return
	}
	if before := w.asked[text]; before != "" && before != in {
		w.fail("%q was given to %s and to %s", text, before, in)
	}
	w.asked[text] = in
}

func (w *world) childBegins(in, run string) {
	w.begun[run] = true
	k := w.meet(in, run)
	if k == nil {
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
		w.sometimes("a call of agent is at a bound")
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

func (w *world) aborts(in, run string) {
	if w.kin[run] != nil {
		w.sometimes("a client aborts a child") // or its parent's end does
	}
	for _, k := range w.kin {
		if k.RunID == run && !k.Background && w.running[k.ChildID] == k.ChildRunID {
			w.sometimes("an abort of a run that waits for a child")
			return
		}
	}
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
