package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"noused/internal/protocol"

	"noused/internal/testenv"
)

// hangTime only fails a test that would hang.
const hangTime = time.Minute

// misbehaviours are tools as shell scripts. Each says on $SAY, before it does
// the worst, which processes it has; $$ is its own.
var misbehaviours = map[string]struct {
	script string
	hangs  bool   // it never ends by itself
	input  int    // bytes of its arguments
	codes  string // how it may end when nobody ends it; "ok" is well
}{
	"stdout":   {script: `echo $$ >$SAY; exec yes 0123456789 | head -c 1000000000`, codes: "protocol_error"},
	"longline": {script: `echo $$ >$SAY; head -c 200000000 /dev/zero | tr '\0' x`, codes: "protocol_error"},
	"stderr":   {script: `echo $$ >$SAY; head -c 1000000000 /dev/zero >&2; done_ok`, codes: "ok"},
	"after":    {script: `echo $$ >$SAY; done_ok; head -c 1000000000 /dev/zero`, codes: "ok protocol_error"},
	"early":    {script: `echo $$ >$SAY`, input: 1 << 20, codes: "protocol_error"},
	"unread":   {script: `echo $$ >$SAY; done_ok`, input: 1 << 20, codes: "ok"},
	"child":    {script: `sleep 1000 & echo $$ $! >$SAY; done_ok`, codes: "ok"},
	"session": {script: `mkfifo f.$$; setsid sh -c 'sleep 1000 & echo $$ $! >$0; wait' f.$$ & read pids <f.$$
		echo $$ $pids >$SAY; done_ok`, codes: "ok"},
	"fork": {
		script: `mkfifo f.$$; (setsid sh -c 'setsid sh -c "echo \$\$ >$0; exec sleep 1000" &' f.$$ &) ; read pids <f.$$
		echo $$ $pids >$SAY; done_ok`, codes: "ok",
	},
	"quiet": {
		script: `mkfifo f.$$; (setsid sh -c 'sh -c "echo \$\$ >$0; exec sleep 1000 </dev/null >/dev/null 2>&1" &' f.$$ &) ; read pids <f.$$
		echo $$ $pids >$SAY; done_ok`, codes: "ok",
	},

	"deaf":     {script: `echo $$ >$SAY; exec sleep 1000`, input: 1 << 20, hangs: true},
	"stubborn": {script: `trap '' TERM; sleep 1000 & echo $$ $! >$SAY; wait; wait`, hangs: true},
	"held":     {script: `sleep 1000 & echo $$ $! >$SAY; wait`, hangs: true},
	"gone": {script: `mkfifo f.$$; setsid sh -c 'echo $$ >$0; trap "" TERM; sleep 1000; sleep 1000' f.$$ & read pids <f.$$
		echo $$ $pids >$SAY; sleep 1000`, hangs: true},
	"naked": {script: `mkfifo f.$$; setsid env -i PATH="$PATH" sh -c 'echo $$ >$0; exec sleep 1000' f.$$ & read pids <f.$$
		echo $$ $pids >$SAY; sleep 1000`, hangs: true},
	"agent": {
		script: `mkfifo f.$$; (setsid env -i PATH="$PATH" sh -c 'setsid sh -c "echo \$\$ >$0; exec sleep 1000" &' f.$$ &); read pids <f.$$
		echo $$ $pids >$SAY; sleep 1000`, hangs: true,
	},
	"shouting": {
		script: `yes shout >&2 & echo $$ $! >$SAY; exec yes '{"version":"0","type":"log","level":"info","message":"again"}'`,
		hangs:  true,
	},
	"endless": {script: `echo $$ >$SAY; done_ok; exec sleep 1000`, hangs: true},
}

// troop is a daemon with all of them.
type troop struct {
	*daemon
	fifo  *os.File
	said  *bufio.Reader    // of fifo
	wires map[string]*wire // one for each
}

func newTroop(t *testing.T, timeout time.Duration) *troop {
	t.Helper()
	dir := t.TempDir()
	fifo := filepath.Join(dir, "say")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	said, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = said.Close() })
	for name, m := range misbehaviours {
		script := "#!/bin/sh\ndone_ok() { echo '{\"version\":\"0\",\"type\":\"done\",\"ok\":true}'; }\n" + m.script + "\n"
		limit := hangTime
		if m.hangs && name != "endless" { // it has said done, and from then on has less
			limit = timeout
		}
		descriptor := fmt.Sprintf(`{"name":%q,"kind":"tool","protocol":"narratoria","capabilities":[],"timeout":%q,
			"transport":{"type":"stdio","command":["./%[1]s.sh"]},"operations":{"run":{}},"env":{"SAY":%[3]q}}`, name, limit, fifo)
		for file, text := range map[string]string{name + ".sh": script, name + ".json": descriptor} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	d := newDaemon(t, "--tools-dir", dir, "--drain-timeout", "200ms")
	tr := &troop{d, said, bufio.NewReader(said), map[string]*wire{}}
	for name := range misbehaviours {
		tr.wires[name] = tr.commands()
		tr.wires[name].request(`{"v":"1","id":"p","type":"ping"}`)
	}
	return tr
}

// hanging are the names of those that hang, or of those that do not.
func (*troop) names(hanging bool) (names []string) {
	for name, m := range misbehaviours {
		if m.hangs == hanging {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func arguments(name string) string {
	return fmt.Sprintf(`{"text":%q}`, strings.Repeat("x", misbehaviours[name].input))
}

// call has a tool run, on its connection.
func (tr *troop) call(name string) *wire {
	tr.t.Helper()
	w := tr.wires[name]
	w.send(fmt.Sprintf(`{"v":"1","id":%q,"type":"extension_command","payload":{"name":"%[1]s.run","payload":%s}}`, name,
		arguments(name)))
	return w
}

// pids are the processes of the tool that says so next.
func (tr *troop) pids() (pids []int) {
	tr.t.Helper()
	line, err := tr.said.ReadString('\n')
	if err != nil {
		tr.t.Fatal(err)
	}
	for word := range strings.FieldsSeq(line) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			tr.t.Fatalf("a tool said %q", line)
		}
		pids = append(pids, pid)
	}
	return pids
}

// spoken are the processes of all tools that have said so by now.
func (tr *troop) spoken() (pids []int) {
	tr.t.Helper()
	if _, err := tr.fifo.WriteString("0\n"); err != nil {
		tr.t.Fatal(err)
	}
	for {
		said := tr.pids()
		if said[0] == 0 {
			return pids
		}
		pids = append(pids, said...)
	}
}

// warm has one tool run, by hand and in a run, so that everything there is has been started.
func (tr *troop) warm() footprint {
	tr.t.Helper()
	w := tr.call("unread")
	if r := into[protocol.ExtensionResult](tr.t, w.recv()); !r.OK {
		tr.t.Fatalf("got %s, %+v", r.Result, r.Error)
	}
	tr.pids()
	if r := w.request(fmt.Sprintf(`{"v":"1","id":"p","type":"prompt","payload":{"text":%q}}`,
		"!unread.run "+arguments("unread"))); !r.OK {
		tr.t.Fatalf("got %+v", r)
	}
	tr.pids()
	return tr.footprint()
}

// outcome is a call's code, or "ok".
func outcome(t *testing.T, r response) string {
	t.Helper()
	if got := into[protocol.ExtensionResult](t, r); !got.OK {
		return string(got.Error.Code)
	}
	return "ok"
}

// ended reports whether a process has ended within d.
func ended(t testing.TB, pid int, d time.Duration) bool {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return true
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	for deadline := time.Now().Add(d); ; {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}},
			int(max(0, time.Until(deadline).Milliseconds())))
		if !errors.Is(err, unix.EINTR) {
			return n > 0
		}
	}
}

// footprint is what the daemon has: open files, children, memory in KiB now
// and at most.
type footprint struct{ files, children, now, most int }

func (d *daemon) footprint() (f footprint) {
	d.t.Helper()
	proc := fmt.Sprintf("/proc/%d", d.Cmd.Process.Pid)
	// The daemon lets nobody look into its files, but anybody count them.
	files, err := os.Stat(proc + "/fd")
	if err != nil {
		d.t.Fatal(err)
	}
	f.files, f.children = int(files.Size()), len(d.children()) // before Linux 6.2 the size is 0
	status, err := os.ReadFile(proc + "/status")
	if err != nil {
		d.t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		_, _ = fmt.Sscanf(line, "VmRSS: %d", &f.now)
		_, _ = fmt.Sscanf(line, "VmHWM: %d", &f.most)
	}
	return f
}

func (d *daemon) children() (pids []int) {
	d.t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", d.Cmd.Process.Pid))
	if err != nil || len(lists) == 0 {
		d.t.Fatalf("got %v, %v, want the daemon's threads", lists, err)
	}
	for _, list := range lists {
		text, _ := os.ReadFile(list) // a thread may end
		for word := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(word); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// maxGrowth is how much more memory the daemon may have at any time, in KiB. The goal is
// 64 MiB (docs/performance.md); a collector that gets no processor lets some more stand.
const maxGrowth = 96 << 10

func (tr *troop) compare(before footprint) {
	tr.t.Helper()
	after, look, late := tr.footprint(), time.NewTicker(10*time.Millisecond), time.After(hangTime)
	defer look.Stop()
	for kept := true; kept && (after.files > before.files || after.children > before.children); after = tr.footprint() {
		select { // what is open for an instant as a child ends is not kept
		case <-look.C:
		case <-late:
			kept = false
		}
	}
	if after.files > before.files || after.children > before.children {
		tr.t.Errorf("got %d files and %d children, before it was %d and %d", after.files, after.children, before.files,
			before.children)
	}
	if grown := after.most - before.now; grown > maxGrowth {
		tr.t.Errorf("the daemon grew by %d KiB, want at most %d", grown, maxGrowth)
	}
	tr.t.Logf("the daemon had %d KiB, then at most %d KiB", before.now, after.most)
}

func TestAToolThatMisbehavesHurtsNobodyElse(t *testing.T) {
	testenv.Long(t)
	tr := newTroop(t, hangTime)
	before := tr.warm()
	for _, name := range tr.names(false) {
		w := tr.call(name)
		got := outcome(t, w.recv())
		if !slices.Contains(strings.Fields(misbehaviours[name].codes), got) {
			t.Errorf("%s: it ended with %s, want %s", name, got, misbehaviours[name].codes)
		}
		for _, pid := range tr.pids() {
			if !ended(t, pid, 0) {
				t.Errorf("%s: process %d is still there", name, pid)
			}
		}
	}
	if r := tr.wires["early"].request(`{"v":"1","id":"p","type":"ping"}`); !r.OK {
		t.Errorf("afterwards a ping gets %+v", r)
	}
	tr.compare(before)
}

func TestAToolThatHangsEndsAtItsTimeout(t *testing.T) {
	testenv.Long(t)
	tr := newTroop(t, 3*time.Second)
	before := tr.warm()
	calls := map[string]*wire{}
	for _, name := range tr.names(true) {
		calls[name] = tr.call(name)
	}
	for name, w := range calls {
		want := "timeout"
		if name == "endless" { // after its done it has less
			want = "protocol_error"
		}
		if got := outcome(t, w.recv()); got != want {
			t.Errorf("%s: it ended with %s, want %s", name, got, want)
		}
	}
	for _, pid := range tr.spoken() { // on a slow machine some are ended before they speak
		if !ended(t, pid, 0) {
			t.Errorf("process %d is still there", pid)
		}
	}
	tr.compare(before)
}

func TestAToolThatHangsEndsWhenItsRunIsAborted(t *testing.T) {
	testenv.Long(t)
	tr := newTroop(t, hangTime)
	events := tr.events(protocol.SubscribeParams{})
	w := tr.commands()
	before := tr.warm()
	runEnds := func(ev protocol.Event) bool { _, ok := ev.(protocol.AgentEnd); return ok }
	await(t, events, runEnds)
	for _, name := range tr.names(true) {
		if name == "endless" {
			continue // it has said done, so that there is nothing to wait for
		}
		prompt := fmt.Sprintf(`!%s.run {"text":"%s"}`, name, strings.Repeat("x", misbehaviours[name].input))
		if r := w.request(fmt.Sprintf(`{"v":"1","id":"a","type":"prompt","payload":{"text":%q,"wait":false}}`, prompt)); !r.OK {
			t.Fatalf("%s: %+v", name, r)
		}
		pids := tr.pids()
		if r := w.request(`{"v":"1","id":"b","type":"abort","payload":{}}`); !r.OK {
			t.Fatalf("%s: %+v", name, r)
		}
		end := await(t, events, func(ev protocol.Event) bool {
			_, ok := ev.(protocol.ToolEnd)
			return ok
		}).(protocol.ToolEnd)
		if end.Error == nil || end.Error.Code != "aborted" {
			t.Errorf("%s: it ended with %+v, want aborted", name, end)
		}
		await(t, events, runEnds)
		for _, pid := range pids {
			if !ended(t, pid, 0) {
				t.Errorf("%s: process %d is still there", name, pid)
			}
		}
	}
	tr.compare(before)
}

func TestNoToolOutlivesTheDaemon(t *testing.T) {
	testenv.Long(t)
	for _, c := range []struct {
		how  string
		end  func(*daemon)
		late time.Duration // how long after the daemon they may end
	}{
		{"told to stop", (*daemon).Stop, 0},
		{"killed", (*daemon).Kill, hangTime},
	} {
		t.Run(c.how, func(t *testing.T) {
			tr := newTroop(t, hangTime)
			var all []int
			for _, name := range tr.names(true) {
				tr.call(name)
			}
			for range tr.names(true) {
				all = append(all, tr.pids()...)
			}
			all = append(all, tr.children()...) // the guardian is one of them
			c.end(tr.daemon)
			for _, pid := range all {
				if !ended(t, pid, c.late) {
					t.Errorf("process %d is still there", pid)
				}
			}
		})
	}
}
