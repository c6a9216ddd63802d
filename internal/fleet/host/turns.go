package host

import "sync"

const (
	atOnce     = 8    // commands that run at a time; long ones are beside them when they have begun
	maxWaiting = 1024 // commands that wait for their turn, of all senders
	maxOfOne   = 256  // and of one
)

// turns runs commands: those of one sender one after the other, in the order in which
// they have come, and of several senders some at a time, each in its turn.
type turns struct {
	mu      sync.Mutex
	waiting map[string][]func() // by sender; the first may be running
	ready   []string            // senders whose first is not, the next one first
	count   int
	busy    int
}

// add has something run. False: too much waits already.
func (t *turns) add(sender string, run func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	queue := t.waiting[sender]
	if t.count >= maxWaiting || len(queue) >= maxOfOne {
		return false
	}
	if t.waiting == nil {
		t.waiting = map[string][]func(){}
	}
	t.waiting[sender] = append(queue, run)
	t.count++
	if len(queue) == 0 {
		t.ready = append(t.ready, sender)
	}
	if t.busy < atOnce && len(t.ready) > 0 {
		t.busy++
		go t.work() // ends when nothing is ready
	}
	return true
}

func (t *turns) work() {
	for sender, run := t.next(); run != nil; sender, run = t.next() {
		run()
		t.done(sender)
	}
}

func (t *turns) next() (sender string, run func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.ready) == 0 {
		t.busy--
		return "", nil
	}
	sender = t.ready[0]
	t.ready = t.ready[1:]
	return sender, t.waiting[sender][0]
}

func (t *turns) done(sender string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count--
	queue := t.waiting[sender]
	queue[0] = nil
	if queue = queue[1:]; len(queue) == 0 {
		delete(t.waiting, sender)
		return
	}
	t.waiting[sender] = queue
	t.ready = append(t.ready, sender)
}
