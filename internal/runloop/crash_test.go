package runloop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"noused/internal/model"
	"noused/internal/model/offline"
	"noused/internal/protocol"
	"noused/internal/session"
	"noused/internal/session/sessiontest"
)

var errDead = errors.New("the machine is off")

// end is how a disk dies in the middle of an operation.
type end string

const (
	before end = "before it"  // nothing of it is done
	within end = "within it"  // a write is done by half
	after  end = "after it"   // it is done, and nobody is told
	power  end = "with power" // and nothing is left that was not synced
)

// mortal is a disk that dies at one of its operations: that one and all that
// follow fail, as if there were nobody any more to wait for them.
type mortal struct {
	session.OSDisk
	last int // the operation to die at, from 1; 0: none
	how  end
	dead chan struct{} // closed when it is

	mu     sync.Mutex
	ops    int
	name   string           // of the operation it died at
	synced map[string]int64 // what is durable of each file
	links  []string         // names that are not durable yet
}

func newMortal(last int, how end) *mortal {
	return &mortal{last: last, how: how, dead: make(chan struct{}), synced: map[string]int64{}}
}

// op does one operation, unless the disk is dead or dies of it.
func (d *mortal) op(name string, half, whole func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ops++; d.last == 0 || d.ops < d.last {
		return whole()
	}
	if d.ops > d.last {
		return errDead
	}
	defer close(d.dead)
	d.name = name
	switch d.how {
	case within, power:
		_ = half()
	case after:
		_ = whole()
	}
	return errDead
}

func (d *mortal) Create(path string) (f *os.File, err error) {
	create := func() error {
		if f, err = d.OSDisk.Create(path); err == nil {
			d.links = append(d.links, path)
		}
		return err
	}
	if err := d.op("create "+filepath.Base(path), create, create); err != nil {
		return nil, err
	}
	return f, nil
}

func (d *mortal) Write(f *os.File, text []byte) (n int, err error) {
	err = d.op("write "+filepath.Base(f.Name()),
		func() error { n, err = f.Write(text[:len(text)/2]); return err },
		func() error { n, err = f.Write(text); return err })
	return n, err
}

func nothing() error { return nil }

func (d *mortal) Sync(f *os.File) error {
	return d.op("sync "+filepath.Base(f.Name()), nothing, func() error {
		info, err := f.Stat()
		if err == nil {
			// Syncing for the drive's sake costs time and tells a test nothing.
			d.synced[strings.TrimSuffix(f.Name(), ".new")] = info.Size()
		}
		return err
	})
}

func (d *mortal) Truncate(f *os.File, size int64) error {
	return d.op("truncate", nothing, func() error { return f.Truncate(size) })
}

func (d *mortal) Link(from, to string) error {
	return d.op("link", nothing, func() error {
		d.links = append(d.links, to)
		d.synced[to] = d.synced[strings.TrimSuffix(from, ".new")]
		return os.Link(from, to)
	})
}

func (d *mortal) SyncDir(dir string) error {
	return d.op("sync of the directory", nothing, func() error {
		d.links = slices.DeleteFunc(d.links, func(path string) bool { return filepath.Dir(path) == dir })
		return nil
	})
}

// fail takes away what a loss of power would have taken.
func (d *mortal) fail(t *testing.T, dir string) {
	t.Helper()
	if d.how != power {
		return
	}
	for _, path := range d.links {
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) { // it may have been refused
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "sessions", "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	images, err := filepath.Glob(filepath.Join(dir, "sessions", "*.files", "*.png"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(append(files, images...), filepath.Join(dir, "active.jsonl")) {
		if err := os.Truncate(path, d.synced[path]); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
}

// promise is what somebody was told, and has to find in the journals.
type promise struct {
	what string
	kept func(map[string]*sessiontest.Story) bool
}

// scripted is a life in which everything happens once that a session can be
// told, until its disk dies.
type scripted struct {
	*fixture
	disk *mortal
	in   string // the session

	mu       sync.Mutex
	promises []promise
	heard    map[string][]string // by session
	calls    []string
}

func (l *scripted) promised(what string, kept func(map[string]*sessiontest.Story) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.promises = append(l.promises, promise{what, kept})
}

// hear notes what is announced. It is called with the recorder locked.
func (l *scripted) hear(ev protocol.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id, e := ev.Where().SessionID, sessiontest.Essence(ev)
	if e == "" {
		return
	}
	l.heard[id] = append(l.heard[id], e)
	if _, ended := ev.(protocol.AgentEnd); ended { // durable before it is announced
		l.promises = append(l.promises, promise{"announced: " + e, func(all map[string]*sessiontest.Story) bool {
			return all[id] != nil && slices.Contains(all[id].Events, e)
		}})
	}
}

func (l *scripted) accepted(text, key string, a protocol.PromptAccepted) {
	l.promised("accepted: "+text, func(all map[string]*sessiontest.Story) bool {
		s := all[a.SessionID]
		if s == nil {
			return false
		}
		in, ok := s.Inputs[a.InputID]
		return ok && in.Text == text && in.RunID == a.RunID && in.Key == key
	})
}

// say prompts and waits for the run's end; false: the disk is dead.
func (l *scripted) say(id, leaf, text, key string, images ...protocol.AttachmentParams) bool {
	a, err := l.prompt(context.Background(), protocol.PromptParams{
		Scope: protocol.Scope{SessionID: id}, Text: text, LeafID: leaf, IdempotencyKey: key, Wait: no, Attachments: images,
	})
	if err != nil {
		return false
	}
	got := *a.Reply.Accepted
	l.accepted(text, key, got)
	l.events.mu.Lock()
	ended := l.events.endLocked(got.RunID)
	l.events.mu.Unlock()
	select {
	case <-ended:
		return true
	case <-l.disk.dead:
		return false
	}
}

func (l *scripted) wait(ctx context.Context, kind protocol.Kind, text, key string) {
	a, err := answered(l.queue(ctx, kind, protocol.SteerParams{
		Scope: protocol.Scope{SessionID: l.in}, Text: text,
		IdempotencyKey: key,
	}))
	if err == nil {
		l.accepted(text, key, protocol.PromptAccepted(a))
	}
}

// takeBack queues a text and takes it back.
func (l *scripted) takeBack(ctx context.Context) {
	scope := protocol.Scope{SessionID: l.in}
	a, err := answered(l.queue(ctx, protocol.KindSteer, protocol.SteerParams{
		Scope: scope, Text: "no",
		IdempotencyKey: "taken back",
	}))
	if err != nil {
		return
	}
	l.accepted("no", "taken back", protocol.PromptAccepted(a))
	if _, err := requestAs[protocol.Withdrawn](ctx, l.Hub, l.in, func(t ticket) input {
		return withdrawIn{t, a.InputID}
	}); err != nil {
		return
	}
	l.promised("withdrawn", func(all map[string]*sessiontest.Story) bool {
		return all[l.in].Withdrawn[a.InputID] && all[l.in].Delivered[a.InputID] == 0
	})
	again, err := answered(l.queue(ctx, protocol.KindSteer, protocol.SteerParams{
		Scope: scope, Text: "no",
		IdempotencyKey: "taken back",
	}))
	if err == nil && again != a {
		l.t.Errorf("the same key is answered %+v, at first it was %+v", again, a)
	}
}

// tool is what goes on during the tool calls.
func (l *scripted) tool(ctx context.Context, inv model.Invocation, progress func(model.ToolUpdate)) model.ToolResult {
	l.mu.Lock()
	l.calls = append(l.calls, inv.ID)
	n := len(l.calls)
	l.mu.Unlock()
	l.promised("ran "+inv.ID, func(all map[string]*sessiontest.Story) bool { return all[inv.SessionID].Calls[inv.ID] })
	progress(model.ToolUpdate{Delta: "working", Patch: []byte(`{"n":1}`)})
	switch n {
	case 1:
		l.wait(ctx, protocol.KindFollowUp, "later", "")
		l.takeBack(ctx)
		l.wait(ctx, protocol.KindSteer, "look", "steered")
	case 2:
		l.wait(ctx, protocol.KindFollowUp, "never", "")
		a, err := requestAs[protocol.AbortAccepted](ctx, l.Hub, l.in, func(t ticket) input { return abortIn{t, ""} })
		if err != nil {
			break
		}
		l.promised("aborted", func(all map[string]*sessiontest.Story) bool {
			ids, ok := all[l.in].Aborts[a.RunID]
			return ok && len(ids) == len(a.Discarded) && (len(ids) == 0 || ids[0] == a.Discarded[0].InputID)
		})
		<-ctx.Done()
	}
	return model.ToolResult{OK: true, Text: "done"}
}

// play goes as far as the disk lives.
func (l *scripted) play() {
	ctx := context.Background()
	s, err := l.newSession(ctx, protocol.NewSessionParams{})
	if err != nil {
		return
	}
	l.in = s.SessionID
	scope := protocol.Scope{SessionID: l.in}
	l.promised("made", func(all map[string]*sessiontest.Story) bool {
		return all[s.SessionID] != nil && all[s.SessionID].Workdir == l.env.Workdir
	})
	if !l.say(l.in, "", "first\n!t.x\n!t.x", "") || !l.say(l.in, "", "second\n!t.x\n!t.x", "key",
		protocol.AttachmentParams{Data: inBase64(png + "second")}) {
		return
	}
	for kind, set := range map[protocol.Kind]string{
		protocol.KindSteer:    protocol.SetSteeringMode.Name(),
		protocol.KindFollowUp: protocol.SetFollowUpMode.Name(),
	} {
		if _, err := l.setMode(set, kind)(ctx, protocol.SetModeParams{Scope: scope, Mode: "all"}); err != nil {
			return
		}
		l.promised(set, func(all map[string]*sessiontest.Story) bool { return all[l.in].Modes[string(kind)] == "all" })
	}
	if _, err := l.setActiveTools(ctx, protocol.SetActiveToolsParams{Scope: scope, Tools: []string{"t.x"}}); err != nil {
		return
	}
	l.promised("tools", func(all map[string]*sessiontest.Story) bool {
		return slices.Equal(all[l.in].Tools, []string{"t.x"})
	})
	if _, err := requestAs[protocol.TitleAccepted](ctx, l.Hub, l.in, func(t ticket) input {
		return titleIn{t, "A life"}
	}); err != nil {
		return
	}
	l.promised("called", func(all map[string]*sessiontest.Story) bool { return all[l.in].Title == "A life" })
	if _, err := requestAs[protocol.MarkedRead](ctx, l.Hub, l.in, func(t ticket) input { return readIn{t} }); err != nil {
		return
	}
	l.promised("read", func(all map[string]*sessiontest.Story) bool { return all[l.in].Reads == 1 })
	if c, err := l.compactSession(ctx, protocol.CompactSessionParams{Scope: scope}); err != nil {
		return
	} else if r, err := c.Later(ctx); err != nil {
		return
	} else {
		l.promised("compacted", func(all map[string]*sessiontest.Story) bool { return all[l.in].Summaries[r.Summary] })
	}
	b, err := l.branchSession(ctx, protocol.BranchSessionParams{SessionID: l.in})
	if err != nil {
		return
	}
	l.promised("branched", func(all map[string]*sessiontest.Story) bool {
		return all[b.SessionID] != nil && all[b.SessionID].Parent == l.in
	})
	tree, err := l.getTree(ctx, protocol.GetTreeParams{Scope: scope})
	if err != nil {
		return
	}
	leaf := tree.Nodes[1].ID
	if _, err := requestAs[protocol.Leaf](ctx, l.Hub, l.in, func(t ticket) input { return leafIn{t, leaf} }); err != nil {
		return
	}
	l.promised("leaf", func(all map[string]*sessiontest.Story) bool { return all[l.in].Leaves[leaf] })
	if !l.say(l.in, tree.Nodes[2].ID, "third", "") || !l.say(b.SessionID, "", "fourth\n!t.x", "") ||
		!l.say(l.in, "", "!t.x", "") {
		return
	}
	if _, err := l.switchSession(ctx, protocol.SwitchSessionParams{SessionID: l.in}); err != nil {
		return
	}
	l.promised("switched", func(map[string]*sessiontest.Story) bool {
		id, err := l.peekActive()
		return err == nil && id == l.in
	})
	aside, err := l.newSession(ctx, protocol.NewSessionParams{Activate: no})
	if err != nil {
		return
	}
	l.promised("made aside", func(all map[string]*sessiontest.Story) bool { return all[aside.SessionID] != nil })
}

func (l *scripted) peekActive() (string, error) {
	store, err := session.Open(l.dir)
	if err != nil {
		return "", err
	}
	id, err := store.Active()
	return id, errors.Join(err, store.Close())
}

func readStories(t *testing.T, dir string, all map[string]*sessiontest.Story) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "sessions", "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		id := strings.TrimSuffix(filepath.Base(path), ".jsonl")
		if all[id] == nil {
			all[id] = sessiontest.New(id)
		}
		if err := all[id].Take(path); err != nil {
			t.Error(err)
		}
		for _, wrong := range all[id].Wrong {
			t.Errorf("session %s: %s", id, wrong)
		}
		// What a record names is on the disk before the record is.
		if in, err := session.Inspect(path); err != nil || len(in.Missing) > 0 {
			t.Errorf("session %s names images that are not there: %v, %v", id, in.Missing, err)
		}
	}
}

// readable looks whether every session that is listed is one.
func readable(t *testing.T, dir string) {
	t.Helper()
	store, err := session.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := store.IDs()
	for _, id := range ids {
		if _, e := store.Peek(t.Context(), id); e != nil {
			err = errors.Join(err, e)
		}
	}
	if err := errors.Join(err, store.Close()); err != nil {
		t.Errorf("the sessions that are listed: %v", err)
	}
}

// prefix compares what was announced with what the journal has.
func prefix(t *testing.T, id string, heard, told []string) {
	t.Helper()
	for i, e := range heard {
		if i >= len(told) || told[i] != e {
			t.Errorf("session %s: announced was\n%s\nthe journal has\n%s", id, strings.Join(heard[:i+1], "\n"),
				strings.Join(told[:min(i+1, len(told))], "\n"))
			return
		}
	}
}

// die lives a life until the disk dies, and then another one on what it left.
// It returns how many operations there were.
func die(t *testing.T, last int, how end) int {
	dir, disk := t.TempDir(), newMortal(last, how)
	l := &scripted{disk: disk, heard: map[string][]string{}}
	events := newRecorder()
	events.onEvent = l.hear
	l.fixture = newFixtureOn(t, disk, dir, offline.Model{}, l.tool, events)
	l.play()
	l.stop()
	disk.fail(t, dir)
	all := map[string]*sessiontest.Story{}
	readStories(t, dir, all)
	for _, p := range l.promises {
		// An empty session lasts from its first text on.
		if !p.kept(all) && !(how == power && strings.HasPrefix(p.what, "made")) {
			t.Errorf("somebody was told, and it is not on the disk: %s", p.what)
		}
	}
	from := map[string]int{}
	for id, s := range all {
		if from[id] = len(s.Events); how != power {
			prefix(t, id, l.heard[id], s.Events)
		}
	}

	// The next daemon takes up what is left, and ends it.
	next := &scripted{heard: map[string][]string{}, calls: []string{"", ""}}
	events = newRecorder()
	events.onEvent = next.hear
	next.fixture = newFixture(t, dir, offline.Model{}, next.tool, events)
	for _, s := range all {
		for run := range s.Owed() {
			events.wait(run)
		}
	}
	next.stop()
	readStories(t, dir, all)
	readable(t, dir)
	for id, s := range all {
		if err := s.Done(); err != nil {
			t.Errorf("session %s: %v", id, err)
		}
		prefix(t, id, next.heard[id], s.Events[from[id]:])
	}
	for _, call := range next.calls {
		if call != "" && slices.Contains(l.calls, call) {
			t.Errorf("tool call %s was run again", call)
		}
	}
	if t.Failed() {
		t.Logf("it died at operation %d, %s, %s", last, disk.name, how)
	}
	if next.faults.Load() > 0 && how != within && how != power {
		t.Errorf("%d faults after the restart", next.faults.Load())
	}
	return disk.ops
}

// A machine that dies at any write and any sync has told nobody anything that
// the next start does not find, and what was under way goes on (wire-v1 §7).
func TestDyingAtEveryWriteAndSync(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	ops := die(t, 0, "")
	if ops < 60 {
		t.Fatalf("%d operations: the script has become too short", ops)
	}
	for _, how := range []end{before, within, after, power} {
		t.Run(fmt.Sprint(how), func(t *testing.T) {
			for last := 2; last <= ops && !t.Failed(); last++ { // with the first the state directory is opened
				die(t, last, how)
			}
		})
	}
	t.Logf("%d operations", ops)
}
