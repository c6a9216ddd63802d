//go:build sim

package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sort"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"

	"noused/internal/event"
	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/protocol/protocoltest"
	"noused/internal/runloop"
	"noused/internal/session"
	"noused/internal/session/sessiontest"
)

const (
	patience = 60 * time.Second // of simulated time: by then every run has ended, or waits for a person
	clients  = 3
	logSize  = 8 << 10 // bytes of events that are kept, so that slow readers miss some
)

// errProvider is the only error that the model has.
var errProvider = errors.New("the provider is out of order")

// errWorktree is the only error that a worktree has.
var errWorktree = errors.New("there is no repository")

// shortWrite is a fault of a write: so many bytes of it are written.
type shortWrite int

func (shortWrite) Error() string { return "no space left on device" }

// gate is where a goroutine of the daemon waits for the driver.
type gate struct {
	key  string
	open chan error
}

// world is one history: lives of a daemon one after the other, and its clients.
type world struct {
	t     testing.TB
	seed  uint64
	pcg   *rand.PCG
	rng   *rand.Rand
	dir   string
	disk  *disk
	texts int // that clients have sent

	mu    sync.Mutex
	trace bytes.Buffer
	began time.Time
	wrong []string
	gates []*gate
	life  *life
	lives int
	calm  bool // no more faults
	// nothing happens by itself that may end a run: the provider is well, nobody else kills
	spared    bool
	checker   *protocoltest.Checker
	stories   map[string]*sessiontest.Story
	from      map[string]int      // events of each story that former lives have announced
	heard     map[string][]string // announced by this life, by session
	vows      []vow
	open      map[string]protocol.Approval // questions, by id
	calls     map[string]int               // how often each call was made
	told      map[string]string            // the input that a text was delivered as
	inputs    map[string]string            // the input that a session's key was accepted as
	said      map[string]string            // announced of assistant messages that have not ended
	doomed    map[string]bool              // sessions that a client asked to be deleted
	sent      map[string]int               // how often a key was sent
	refused   map[string]int               // the life that has refused a text that was never sent again
	aborted   map[string]bool              // runs that somebody has aborted
	steers    map[string]map[string]bool   // steers that wait, by session
	known     map[string]*known            // what agents know of their sessions
	hosted    map[string]string            // the agents of sessions that have one
	handed    map[string][]string          // texts of a hosted session that were delivered
	beside    map[string][]string          // of these, those that came while an older prompt was open, until the turn ends
	revived   map[string]bool              // hosted sessions whose run was resumed, and in which nothing was said since
	taken     map[string]bool              // texts that an agent has answered anything to
	missed    map[string]bool              // texts that were cut before an agent had a look at them, it may be
	had       map[string]bool              // first lines of texts that an agent was sent
	about     map[string]int               // acts of agents, by the approval
	leave     map[int]int                  // the life that has allowed an act
	auto      bool                         // a session was in a mode that allows everything
	acts      int                          // of all agents
	ripe      int                          // steps that a power cut is likely in, for what was just replied
	active    string                       // the active session that a client was told last; "": nobody knows
	moving    int                          // commands under way that choose another one
	often     map[string]int               // operations that wait for nobody, by what they are
	summing   map[string]bool              // sessions whose summary is being made
	crashed   map[string]int               // how often the daemon was killed during a run
	crossed   bool                         // more than one of these was at a time
	tick      int64                        // moments, of which each thing that is noted has two
	ops       map[string][]porcupine.Operation
	trees     map[string]*tree  // of sessions
	recovered int               // rewinds
	touched   int               // how often calls have changed a file
	running   map[string]string // the run of each session that has one
	family
	day
	clients []*client
	session []string // ids that clients know
	reached map[string]int
	counts  map[string]int
}

func (w *world) say(format string, args ...any) {
	text := strings.ReplaceAll(fmt.Sprintf(format, args...), w.dir, "")
	if *live1 {
		fmt.Fprintf(os.Stderr, "%9.3fs %s\n", time.Since(w.began).Seconds(), text)
	}
	fmt.Fprintf(&w.trace, "%9.3fs %s\n", time.Since(w.began).Seconds(), text)
}

func (w *world) fail(format string, args ...any) {
	w.say("WRONG: "+format, args...)
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

// sometimes notes that a place was reached that not every history reaches. All of them
// stand in places.
func (w *world) sometimes(place string) {
	if !slices.Contains(places, place) {
		w.fail("places does not have %q", place)
	}
	w.reached[place]++
}

// life is one process of the daemon.
type life struct {
	w      *world
	number int
	dead   chan struct{} // closed when it is killed
	ended  chan struct{} // closed when nothing is left of it
	ids    int

	store  *session.Store
	hub    *runloop.Hub
	mux    *protocol.Mux
	log    *event.Log
	ctx    context.Context
	cancel context.CancelFunc
	heard  context.Context // ends when nobody is left to reply to
	hangUp context.CancelFunc
	ready  bool // takes commands
	leaves bool // was asked to stop
	failed bool // did not start
	// was killed, or a journal could not be told how it ended
	unclean bool
	// a session was not opened at first, since the disk failed
	unopened bool
	counts   bool // what a former daemon has left is known
}

// stop is where a goroutine of the daemon waits until the driver lets it go on. The
// error is what happens to it. Only writes and syncs of journals wait: the other
// operations of the disk are done under locks, and are over at once.
func (l *life) stop(key string) error {
	if what, name, _ := strings.Cut(key, " "); (what == "write" || what == "sync" || what == "open") &&
		strings.HasPrefix(name, "ses-") &&
		strings.HasSuffix(name, ".jsonl") {
		return l.stopUntil(context.Background(), key)
	}
	w := l.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if l.gone() {
		return errDead
	}
	chance, often := w.chanceOf(key), 200
	if strings.HasPrefix(key, "sync folder") && w.deletes() {
		often = 8 // between what is taken away first and what last
	}
	if !w.calm && !w.spared && chance.IntN(often) == 0 {
		w.say("%s: killed there", key)
		w.sometimes("killed at " + strings.Fields(key)[0])
		if often < 200 {
			w.sometimes("killed inside a deletion")
		}
		close(l.dead)
		return errDead
	}
	fault := w.fault(key, chance)
	if fault != nil {
		w.counts["faults"]++
		w.say("%s: %v", key, fault)
	}
	return fault
}

// rewinds reports that files of a session are being taken back.
func (w *world) rewinds() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.trees {
		if t.applying {
			return true
		}
	}
	return false
}

// deletes reports that a client waits for the deletion of a session. w.mu is held.
func (w *world) deletes() bool {
	for _, c := range w.clients {
		if slices.ContainsFunc(c.pending, func(cmd *command) bool { return cmd.typ == "delete_session" }) {
			return true
		}
	}
	return false
}

// chanceOf decides about an operation that waits for nobody, whatever else goes on beside
// it. w.mu is held.
func (w *world) chanceOf(key string) *rand.Rand {
	w.often[key]++
	sum := fnv.New64a()
	fmt.Fprint(sum, key, w.often[key])
	return rand.New(rand.NewPCG(w.seed, sum.Sum64()))
}

func (l *life) stopUntil(ctx context.Context, key string) error {
	g := &gate{key: key, open: make(chan error, 1)}
	l.w.mu.Lock()
	if l.gone() {
		l.w.mu.Unlock()
		return errDead
	}
	l.w.gates = append(l.w.gates, g)
	l.w.mu.Unlock()
	select {
	case err := <-g.open:
		return err
	case <-l.dead:
		return errDead
	case <-ctx.Done():
		l.w.mu.Lock()
		defer l.w.mu.Unlock()
		l.w.gates = slices.DeleteFunc(l.w.gates, func(o *gate) bool { return o == g })
		return context.Cause(ctx)
	}
}

// gone reports that the life was killed. w.mu is held.
func (l *life) gone() bool {
	select {
	case <-l.dead:
		return true
	default:
		return false
	}
}

// Append is the event log's, with the checks of all that is announced.
func (l *life) Append(events ...protocol.Event) [][]byte {
	w := l.w
	w.mu.Lock()
	defer w.mu.Unlock()
	lines := l.log.Append(events...)
	if l.gone() {
		return lines // nobody hears it
	}
	for _, ev := range events {
		w.announced(ev)
	}
	return lines
}

func (l *life) Run(run string) ([][]byte, bool) { return l.log.Run(run) }
func (l *life) LastSeq() uint64                 { return l.log.LastSeq() }

// boot starts the next life. It becomes ready when its store is open.
func (w *world) boot() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lives++
	l := &life{w: w, number: w.lives, dead: make(chan struct{}), ended: make(chan struct{})}
	w.life, w.gates, w.heard, w.summing = l, nil, map[string][]string{}, map[string]bool{}
	w.former = maps.Clone(w.used)
	w.before, w.latest = map[string]map[string]model.Usage{}, map[string]map[string]model.Usage{}
	w.ends, w.short = map[string]protocol.Usage{}, map[string]bool{}
	w.steers, w.running, w.revived = map[string]map[string]bool{}, map[string]string{}, map[string]bool{}
	for id, s := range w.stories {
		for _, in := range s.Pending {
			w.steerWaits(id, in.InputID, in.Kind == protocol.KindSteer)
		}
	}
	w.say("daemon %d starts", l.number)
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.heard, l.hangUp = context.WithCancel(context.Background())
	go l.run()
}

func (l *life) run() {
	defer close(l.ended)
	w := l.w
	store, err := session.OpenOn(port{w.disk, l}, filepath.Join(w.dir, "state"))
	if err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !l.gone() {
			w.say("daemon %d does not start: %v", l.number, err)
			w.sometimes("a daemon that does not start")
			l.failed = true
		}
		return
	}
	l.store = store
	if !w.activeKept(store) {
		return
	}
	l.log = event.New(fmt.Sprint("epoch-", l.number), logSize, time.Now)
	newID := func(prefix string) string {
		w.mu.Lock()
		defer w.mu.Unlock()
		l.ids++
		return fmt.Sprintf("%s%d-%d", prefix, l.number, l.ids)
	}
	tools := newTools(w.dir, l.call)
	o := runloop.Options{
		Store: store, Model: thinker{l, own.Name}, ModelInfo: own,
		Tools: tools, Policy: rules{}, Modules: nobody{}, Events: l, Now: time.Now, Workdir: w.dir,
		NewID: newID, Agents: l.guests(newID), Changes: recorder{l}, Children: w.bounds(),
		Fault: func(id string, err error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if !l.gone() {
				w.say("fault of %s: %v", id, err)
				l.unclean = true
				if strings.Contains(err.Error(), "cannot be opened") {
					l.unopened, w.unopened = true, true
				}
				if strings.Contains(err.Error(), "torn") {
					w.sometimes("a torn line is cut off")
				}
			}
		},
	}
	o.Limits.DayCost, o.Spent = w.dayLimit, w.costSoFar
	if w.families {
		o.Models, o.Instructions, o.Worktrees = models{l}, teller{}, planter{l}
		o.Limits.RunTokens = w.limit
	}
	l.hub = runloop.NewHub(o)
	l.mux = new(protocol.Mux)
	l.hub.Bind(l.mux)
	w.mu.Lock()
	l.ready = !l.gone()
	w.mu.Unlock()
	_ = l.hub.Run(l.ctx)
	l.hub.Drain(10 * time.Second)
	tools.Close(context.Background())
	l.log.Close()
	if err := store.Close(); err != nil {
		w.mu.Lock()
		if !l.gone() {
			w.say("daemon %d closes its store: %v", l.number, err)
		}
		w.mu.Unlock()
	}
}

// kill ends the life at once, with what its clients wait for.
func (w *world) kill(power bool) {
	w.mu.Lock()
	l := w.life
	if !l.gone() {
		close(l.dead)
	}
	l.ready, l.unclean, w.gates = false, true, nil
	w.counts["kills"]++
	w.moving, w.crossed = 0, false
	for _, a := range w.open {
		w.sometimes("killed while an approval waits")
		_ = a
		break
	}
	waited := w.awaited()
	if waited {
		w.sometimes("killed while a parent waits for a child")
	}
	w.mu.Unlock()
	l.cancel()
	w.cutOff()
	<-l.ended
	synctest.Wait()
	if power {
		w.counts["power cuts"]++
		if len(w.summing) > 0 {
			w.sometimes("a power cut while a summary is made")
		}
		if waited {
			w.sometimes("a power cut while a parent waits for a child")
		}
		holes := len(w.disk.holed)
		w.disk.powerCut(w.t, filepath.Join(w.dir, "state"), w.rng)
		clear(w.taken) // that is not synced
		if len(w.disk.holed) > holes {
			w.sometimes("a power cut leaves holes")
		}
	}
	w.held(power)
}

// cutOff hangs up on all clients.
func (w *world) cutOff() {
	for _, c := range w.clients {
		c.cutOff()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.life.gone() {
		close(w.life.dead) // with the process end all that it still does
	}
	w.life.hangUp()
}

// step does the next thing that the seed says.
func (w *world) step() {
	time.Sleep(1) // timers that fire at the same instant do so in any order: those of two steps are none
	synctest.Wait()
	w.mu.Lock()
	l := w.life
	gates := len(w.gates)
	ended := false
	select {
	case <-l.ended:
		ended = true
	default:
	}
	dead := l.gone()
	w.mu.Unlock()
	cut := 7
	if w.ripe > 0 {
		w.ripe--
		cut = 100
	} else if w.rewinds() {
		cut = 40
	}
	switch n := w.rng.IntN(1000); {
	case dead:
		w.kill(n < 500)
		w.boot()
	case ended:
		w.cutOff()
		if !l.failed {
			w.held(false)
		}
		time.Sleep(time.Duration(w.rng.IntN(3000)) * time.Millisecond)
		w.boot()
	case n < 4:
		w.say("kill -9")
		w.kill(false)
		w.boot()
	case n < cut:
		w.say("power cut")
		w.kill(true)
		w.boot()
	case n < cut+2 && l.ready && !l.leaves:
		w.say("stop and start")
		w.counts["restarts"]++
		l.leaves = true
		l.cancel()
	case n < 600 && gates > 0:
		w.release(w.rng.IntN(gates))
	case n < 640:
		time.Sleep(time.Duration(w.rng.IntN(2000)) * time.Millisecond)
	case l.ready:
		w.clients[w.rng.IntN(len(w.clients))].act()
	}
}

// release lets a goroutine go on, or gives it a fault.
func (w *world) release(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	sort.SliceStable(w.gates, func(i, j int) bool { return w.gates[i].key < w.gates[j].key })
	g := w.gates[n]
	w.gates = slices.Delete(w.gates, n, n+1)
	fault := w.fault(g.key, w.rng)
	if fault != nil {
		w.counts["faults"]++
		w.say("%s: %v", g.key, fault)
	} else {
		w.say("%s", g.key)
	}
	g.open <- fault
}

func (w *world) fault(key string, rng *rand.Rand) error {
	if w.calm || rng.IntN(100) > 1 {
		return nil
	}
	switch what, _, _ := strings.Cut(strings.TrimPrefix(key, "first "), " "); what {
	case "write":
		return shortWrite(rng.IntN(4096))
	case "sync", "truncate", "open":
		return syscall.EIO
	case "create", "link":
		return syscall.ENOSPC
	case "worktree":
		return errWorktree
	case "agent":
		if w.spared {
			return nil
		}
		return errGuest
	case "answer":
		if w.spared {
			return nil
		}
		return errProvider
	}
	return nil
}

// settle has everything go on without faults until every run has ended.
func (w *world) settle() {
	w.mu.Lock()
	w.calm = true
	w.say("no more faults")
	w.mu.Unlock()
	deadline := time.Now().Add(patience)
	var seen map[string]string
	for n := 0; ; n++ {
		synctest.Wait()
		w.mu.Lock()
		l, gates := w.life, len(w.gates)
		pending := 0 // commands without a reply
		for _, c := range w.clients {
			pending += len(c.pending)
		}
		open, owed, wrong := w.checker.Open(), w.checker.Done(), len(w.wrong) > 0
		var asked string
		for id := range w.open { // a steer answers one by itself
			if len(w.steers[sessionAsking(id)]) == 0 {
				asked = max(asked, id)
			}
		}
		ended := false
		select {
		case <-l.ended:
			ended = true
		default:
		}
		untold, dead := w.untold(), l.gone()
		w.mu.Unlock()
		switch {
		case wrong:
			w.kill(false)
			return
		case dead: // at the last of the steps
			w.kill(false)
			w.boot()
		case ended:
			w.cutOff()
			if !l.failed {
				w.held(false)
			}
			w.boot()
		case gates > 0:
			w.release(0)
			time.Sleep(time.Millisecond)
		case l.leaves:
			time.Sleep(100 * time.Millisecond)
		case l.ready && asked != "":
			w.clients[0].approve(asked)
			time.Sleep(10 * time.Millisecond)
		case owed == nil && len(open) == 0 && pending == 0 && l.ready && n > 10:
			early := time.Now().Before(deadline)
			if untold && early {
				time.Sleep(100 * time.Millisecond)
				continue
			}
			w.counted()
			if seen == nil && w.clears() {
				continue
			}
			before := w.views(early)
			if before == nil && early {
				time.Sleep(100 * time.Millisecond)
				continue
			}
			w.kill(false)
			switch {
			case w.refusedRun() && early:
				w.boot()
				continue
			case seen == nil: // and once more, as the next daemon has it
				seen = before
				w.boot()
				continue
			}
			w.same(seen, before)
			w.finish()
			return
		case time.Now().After(deadline):
			if *live1 {
				buf := make([]byte, 4<<20)
				os.Stderr.Write(buf[:runtime.Stack(buf, true)])
			}
			w.mu.Lock()
			w.fail("liveness: after %v without a fault: %v; runs %v; %d commands have no reply", patience, owed, open, pending)
			w.mu.Unlock()
			w.kill(false)
			return
		default:
			time.Sleep(100 * time.Millisecond)
		}
	}
}

// history is what came of a seed.
type history struct {
	trace   string
	wrong   []string
	counts  map[string]int
	reached map[string]int
	steps   []int // that were taken until something was wrong
	ops     map[string][]porcupine.Operation
}

// plan is which history to run: a seed decides every step by itself, so that a history
// with some of its steps left out is still one.
type plan struct {
	seed    uint64
	steps   []int // in order
	clients int
}

func wholePlan(seed uint64) plan {
	p := plan{seed: seed, clients: clients}
	for i := range *steps {
		p.steps = append(p.steps, i)
	}
	return p
}

// live runs the history of a plan in dir.
func live(t *testing.T, dir string, p plan) (h history) {
	w := newWorld(t, dir, p)
	w.boot()
	taken := 0
	for _, n := range p.steps {
		w.mu.Lock()
		w.pcg.Seed(w.seed, uint64(n)+1)
		w.mu.Unlock()
		w.step()
		if taken++; len(w.wrong) > 0 {
			break
		}
	}
	if len(w.wrong) == 0 {
		w.settle()
	} else {
		w.kill(false)
	}
	return history{w.trace.String(), w.wrong, w.counts, w.reached, p.steps[:taken], w.ops}
}

// newWorld is a history that has not begun.
func newWorld(t *testing.T, dir string, p plan) *world {
	must(t, os.MkdirAll(filepath.Join(dir, "shadow"), 0o700))
	day := newDay(p.seed)
	pcg := rand.NewPCG(p.seed, 0)
	w := &world{
		t: t, seed: p.seed, pcg: pcg, rng: rand.New(pcg), dir: dir, began: time.Now(), day: day,
		disk: newDisk(filepath.Join(dir, "shadow")), checker: protocoltest.NewChecker(),
		stories: map[string]*sessiontest.Story{}, from: map[string]int{}, open: map[string]protocol.Approval{},
		calls: map[string]int{}, told: map[string]string{}, reached: map[string]int{}, counts: map[string]int{},
		inputs: map[string]string{}, said: map[string]string{}, doomed: map[string]bool{},
		ops: map[string][]porcupine.Operation{}, tick: 2, often: map[string]int{}, crashed: map[string]int{},
		sent: map[string]int{}, refused: map[string]int{}, aborted: map[string]bool{},
		trees: map[string]*tree{}, running: map[string]string{}, known: map[string]*known{}, hosted: map[string]string{},
		handed: map[string][]string{}, beside: map[string][]string{}, taken: map[string]bool{},
		had: map[string]bool{}, missed: map[string]bool{}, about: map[string]int{}, leave: map[int]int{},
	}
	w.family = newFamily(p.seed)
	for i := range p.clients {
		w.clients = append(w.clients, &client{w: w, name: fmt.Sprint("client ", i+1), runs: map[string]string{}})
	}
	return w
}
