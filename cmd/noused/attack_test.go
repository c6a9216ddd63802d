package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"noused/internal/client"
	"noused/internal/protocol"
	"noused/internal/testenv"
)

// traceCommand attaches to processes as a debugger does, without stopping them, looks into them, sends them
// signals, and says what came of it.
const traceCommand = "trace-a-process"

func traceAProcess() {
	for _, text := range os.Args[1:] {
		pid, _ := strconv.Atoi(text)
		fmt.Println("attach:", unix.PtraceSeize(pid))
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		fmt.Println("environ:", len(text) > 0, err)
		mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
		fmt.Println("memory:", err == nil, err)
		_ = mem.Close()
		output, err := os.Open(fmt.Sprintf("/proc/%d/fd/1", pid)) // as what it reads, or as what it says
		fmt.Println("files:", err == nil, err)
		_ = output.Close()
		fmt.Println("signal:", unix.Kill(pid, 0))
	}
}

// besieged is a daemon with a question that waits, in whose session's folder
// programs run that mean it harm.
type besieged struct {
	*daemon
	c       *client.Client
	session string
	home    string
	work    string // the session's
	waiting protocol.Approval
	targets map[string]string // what they want to write to
}

func besiege(t *testing.T) *besieged {
	t.Helper()
	base := t.TempDir()
	b := &besieged{home: filepath.Join(base, "home"), work: filepath.Join(base, "home", "project")}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(os.MkdirAll(b.work, 0o700))
	t.Setenv("HOME", b.home)
	b.daemon = unstarted(t, "noused")
	b.targets = map[string]string{
		"the sockets' folder":        b.Socket + ".new",
		"the rules":                  filepath.Join(b.Dir, "noused", "rules.toml"),
		"the servers":                filepath.Join(b.Dir, "noused", "mcp.json"),
		"what is trusted":            filepath.Join(b.Dir, "noused", "mcp-trust.json"),
		"the configuration":          filepath.Join(b.Dir, "noused", "config.toml"),
		"the tools":                  filepath.Join(b.Dir, "tools", "new.json"),
		"the state folder":           filepath.Join(b.Dir, "state", "new"),
		"a unit of systemd":          filepath.Join(b.Dir, "systemd", "user", "noused.service"),
		"a shell's profile":          filepath.Join(b.home, ".bashrc"),
		"the program that is called": filepath.Join(b.home, "notify.sh"),
		"an ssh key":                 filepath.Join(b.home, ".ssh", "authorized_keys"),
	}
	for _, path := range b.targets {
		check(os.MkdirAll(filepath.Dir(path), 0o700))
	}
	b.write("noused/config.toml", "[notify]\ncommand = [\""+b.targets["the program that is called"]+"\"]\n", 0o600)
	check(os.WriteFile(b.targets["the program that is called"], []byte("#!/bin/sh\n"), 0o700))
	self, err := os.Executable()
	check(err)
	for _, name := range []string{sayCommand, traceCommand} {
		check(os.Symlink(self, filepath.Join(base, name)))
	}
	t.Setenv("PATH", base+":"+os.Getenv("PATH"))
	b.Start()
	b.c, b.session = b.dial(), b.daemon.session(b.work)
	if got := b.extension(b.session, "bash", `{"command":"touch ../outside"}`); got.OK {
		t.Skip("no sandbox here")
	}
	b.waiting = b.asks(b.c, b.daemon.session(b.Dir), outside("true"))
	return b
}

// detached has a command run by an orphan in a session of its own, without any
// environment but a path.
func detached(command string) string {
	return "mkfifo done; setsid -f env -i PATH=\"$PATH\" sh -c " + shellWord("("+command+") >said 2>&1; echo >done") +
		"; read x <done; cat said; rm done said"
}

func shellWord(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// inside runs a command in the sandbox, and returns what it has said.
func (b *besieged) inside(command string) string {
	args, err := json.Marshal(map[string]any{"command": command})
	if err != nil {
		b.t.Fatal(err)
	}
	r := b.extension(b.session, "bash", string(args))
	if r.Error != nil {
		return r.Result + r.Error.Message
	}
	return r.Result
}

// outsideOf runs a command outside the sandbox, with the user's approval.
func (b *besieged) outsideOf(command string) string {
	end := b.answers(b.c, b.asks(b.c, b.session, outside(command)), "once")
	if end.Error != nil {
		return end.Result + end.Error.Message
	}
	return end.Result
}

// says is a command that sends the daemon what could give a tool more than it has.
func (b *besieged) says() string {
	var lines []string
	for _, line := range []string{
		`{"id":"1","type":"approve","payload":{"approval_id":"` + b.waiting.ApprovalID + `","option":"once"}}`,
		`{"id":"2","type":"set_approval_mode","payload":{"session_id":"` + b.session + `","mode":"auto"}}`,
		`{"id":"3","type":"new_session","payload":{"activate":false,"mcp_servers":[{"name":"x","command":"sh"}]}}`,
		`{"id":"4","type":"prune"}`,
		`{"id":"6","type":"set_agent","payload":{"session_id":"` + b.session + `","agent":"noused"}}`,
		`{"id":"7","type":"new_session","payload":{"activate":false,"agent":"codex"}}`,
		`{"id":"5","type":"ping"}`,
	} {
		lines = append(lines, shellWord(line))
	}
	return sayCommand + " " + b.Socket + " " + strings.Join(lines, " ")
}

// stillWaits fails the test where somebody has answered, or changed who is asked.
func (b *besieged) stillWaits(what string) {
	b.t.Helper()
	state, err := client.Call(context.Background(), b.c, protocol.GetState,
		protocol.GetStateParams{Scope: protocol.Scope{SessionID: b.session}})
	if err != nil || len(state.PendingApprovals) != 1 || state.PendingApprovals[0].ApprovalID != b.waiting.ApprovalID ||
		state.ApprovalMode == protocol.ApprovalsAuto {
		b.t.Errorf("%s: open are %+v, mode %v, %v; want the one question, and mode ask", what, state.PendingApprovals,
			state.ApprovalMode, err)
	}
}

// guardian is the process that ends the tools should the daemon be killed.
func (b *besieged) guardian() string {
	b.t.Helper()
	children, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", b.Cmd.Process.Pid))
	if err != nil {
		b.t.Fatal(err)
	}
	for _, file := range children {
		text, _ := os.ReadFile(file)
		for _, pid := range strings.Fields(string(text)) {
			if line, _ := os.ReadFile("/proc/" + pid + "/cmdline"); bytes.HasPrefix(line, []byte("noused\x00guardian\x00")) {
				return pid
			}
		}
	}
	b.t.Fatal("there is no guardian")
	return ""
}

// A program in the sandbox, whatever it sheds of where it comes from, gets no
// answer from the daemon, traces neither it nor its guardian, and writes nothing
// that runs outside the sandbox later.
func TestAToolInTheSandboxGainsNothing(t *testing.T) {
	b := besiege(t)
	for way, of := range map[string]func(string) string{"itself": func(c string) string {
		return c
	}, "detached": detached} {
		said := b.inside(of(b.says()))
		if strings.Contains(said, `"id"`) || strings.Contains(said, "pong") {
			t.Errorf("%s: the daemon answers %s", way, said)
		}
		b.stillWaits(way)
		prompt := sayCommand + " " + b.Socket + " " + shellWord(`{"id":"1","type":"prompt","payload":{"text":"hello"}}`)
		if said := b.inside(of(prompt)); strings.Contains(said, `"id"`) {
			t.Errorf("%s: a prompt is answered: %s", way, said)
		}
		for who, pid := range map[string]string{"the daemon": strconv.Itoa(b.Cmd.Process.Pid), "the guardian": b.guardian()} {
			said := b.inside(of(traceCommand + " " + pid))
			if !strings.Contains(said, "attach: operation not permitted") || !strings.Contains(said, "environ: false") {
				t.Errorf("%s: tracing %s: %s", way, who, said)
			}
			if scoped() && !strings.Contains(said, "signal: operation not permitted") {
				t.Errorf("%s: %s gets a signal: %s", way, who, said)
			}
		}
		for what, path := range b.targets {
			before, _ := os.ReadFile(path)
			for _, command := range []string{"echo x >> " + path, "mv " + path + " moved", "rm " + path, "ln -s /dev/null " +
				path, "mv " + filepath.Dir(path) + " moved"} {
				if said := b.inside(of(command + " && echo wor''ked")); strings.Contains(said, "worked") {
					t.Errorf("%s: %s: %s works: %s", way, what, command, said)
				}
			}
			if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
				t.Errorf("%s: %s has changed", way, what)
			}
		}
		if said := b.inside(of("rm " + b.Socket + " " + b.Socket + ".events")); !strings.Contains(said, "cannot remove") {
			t.Errorf("%s: the sockets go: %s", way, said)
		}
	}
	b.stillWaits("in the end")
}

// traced reports whether traceCommand got anywhere but with a signal.
func traced(said string) bool {
	return !strings.Contains(said, "attach: operation not permitted") || !strings.Contains(said, "environ: false") ||
		!strings.Contains(said, "memory: false") || !strings.Contains(said, "files: false")
}

// The process of the built-in tools is in the sandbox of its commands, as their parent.
// A command does not look into it, and so neither has it start what outlives the call,
// nor changes what its next ones say. It may signal it.
func TestACommandDoesNotTraceItsTool(t *testing.T) {
	b := besiege(t)
	for way, of := range map[string]func(string) string{"itself": func(c string) string {
		return c
	}, "detached": detached} {
		if said := b.inside("echo $PPID >parent; " + of(traceCommand+" $(cat parent)")); traced(said) ||
			!strings.Contains(said, "signal: <nil>") {
			t.Errorf("%s: in the sandbox: %s", way, said)
		}
		if os.Geteuid() == 0 {
			continue // outside, root traces everybody
		}
		if said := b.outsideOf("echo $PPID >parent; " + of(traceCommand+" $(cat parent)")); traced(said) {
			t.Errorf("%s: outside: %s", way, said)
		}
	}
	// What its tool starts can be looked into, as ever.
	if said := b.inside("sleep 100 & while ! grep -q sleep /proc/$!/comm; do :; done; " + traceCommand +
		" $!"); !strings.Contains(said, "attach: <nil>") || !strings.Contains(said, "environ: true") {
		t.Errorf("a command of its own: %s", said)
	}
}

// Another daemon of the same user, which the tool does not descend from, answers it
// as little.
func TestAToolInTheSandboxCommandsNoOtherDaemon(t *testing.T) {
	b := besiege(t)
	other := newDaemon(t)
	c := other.dial()
	waiting := other.asks(c, other.session(other.Dir), outside("true"))
	approve := sayCommand + " " + other.Socket + " " + shellWord(`{"id":"1","type":"approve","payload":{"approval_id":"`+
		waiting.ApprovalID+`","option":"once"}}`)
	for way, of := range map[string]func(string) string{
		"itself": func(c string) string { return c }, "detached": detached,
		"without a limit": func(c string) string { return "prlimit --locks=unlimited:unlimited true; " + c },
		"in a namespace": func(c string) string {
			return "unshare -Ur true && echo in a name''space; unshare -Ur sh -c " +
				shellWord("prlimit --locks=unlimited:unlimited true; "+c) + "; " + c
		},
	} {
		said := b.inside(of(approve))
		if strings.Contains(said, `"id"`) || strings.Contains(said, "in a namespace") {
			t.Errorf("%s: the other daemon answers %s", way, said)
		}
	}
	state, err := client.Call(t.Context(), c, protocol.GetState,
		protocol.GetStateParams{Scope: protocol.Scope{SessionID: other.session(other.Dir)}})
	if err != nil || len(state.PendingApprovals) != 1 {
		t.Errorf("%+v, %v: want the question to wait", state.PendingApprovals, err)
	}
}

// Nothing that the daemon starts leaves its memory in a file, nor can it be made to.
func TestNothingOfTheDaemonsLeavesACore(t *testing.T) {
	b := besiege(t)
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &own); err != nil {
		t.Fatal(err)
	}
	want := strconv.FormatUint(min(own.Max, 1), 10)
	const limits, die = "grep 'core file size' /proc/self/limits",
		"rm -f core*; sh -c 'ulimit -c unlimited; kill -ABRT $$'; ls"
	of := func(pid string) string {
		text, err := os.ReadFile("/proc/" + pid + "/limits")
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for who, text := range map[string]string{
		"the daemon": of(strconv.Itoa(b.Cmd.Process.Pid)), "the guardian": of(b.guardian()),
		"a tool": b.outsideOf(limits), "a sandboxed tool": b.inside(limits),
	} {
		_, text, _ := strings.Cut(text, "Max core file size")
		if got := strings.Fields(text); len(got) < 2 || got[0] != want || got[1] != want {
			t.Errorf("%s: got %.40q, want a limit of %s byte, soft and hard", who, text, want)
		}
	}
	if said := b.inside(die); strings.Contains(said, "core") {
		t.Errorf("a sandboxed tool leaves one: %s", said)
	}
	if os.Geteuid() == 0 {
		return // root raises every limit
	}
	if said := b.outsideOf(die); strings.Contains(said, "core\n") {
		t.Errorf("a tool leaves one: %s", said)
	}
}

// What is in the session's folder is the tools' to change, hooks of git too: that
// they run when the user uses git next, docs/security.md says.
func TestWhatASessionsFolderHasCanBeChanged(t *testing.T) {
	b := besiege(t)
	said := b.inside("mkdir -p .git/hooks && echo 'touch ~/.ran' >.git/hooks/pre-commit && chmod +x " +
		".git/hooks/pre-commit && echo wor''ked")
	if !strings.Contains(said, "worked") {
		t.Errorf("a hook cannot be written: %s", said)
	}
}

// A program in the sandbox does not have another of the user's programs do what it may
// not. Where there are no namespaces, and the kernel cannot keep it from that either,
// docs/security.md says so.
func TestSocketsOfOtherProgramsAreClosed(t *testing.T) {
	b := besiege(t)
	ours, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		t.Fatal(err)
	}
	if abi, err := landlockVersion(); (err != nil || abi < 9) && strings.Contains(b.inside("readlink /proc/self/ns/mnt"),
		ours) {
		t.Skip("this system has no namespaces for tools, and the kernel's Landlock leaves sockets open")
	}
	path := filepath.Join(b.home, "agent")
	other, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan struct{})
	go func() { // ends with the listener
		defer close(answered)
		for {
			conn, err := other.Accept()
			if err != nil {
				return
			}
			fmt.Fprintln(conn, "hello")
			_ = conn.Close()
		}
	}()
	for way, of := range map[string]func(string) string{"itself": func(c string) string {
		return c
	}, "detached": detached} {
		if said := b.inside(of(sayCommand + " " + path + " x")); strings.Contains(said, "hello") {
			t.Errorf("%s: it gets %s", way, said)
		}
	}
	other.Close()
	<-answered
}

// scoped reports whether the kernel keeps a sandbox's signals in it.
func scoped() bool {
	abi, err := landlockVersion()
	return err == nil && abi >= 6
}

func landlockVersion() (int, error) {
	const createRuleset, version = 444, 1
	v, _, errno := unix.Syscall(createRuleset, 0, 0, version)
	if errno != 0 {
		return 0, errno
	}
	return int(v), nil
}

// A program that the user lets run outside the sandbox may talk to the daemon, but
// neither answers a question nor changes who is asked.
func TestAToolOutsideTheSandboxAnswersNothing(t *testing.T) {
	b := besiege(t)
	for way, of := range map[string]func(string) string{"itself": func(c string) string {
		return c
	}, "detached": detached} {
		said := b.outsideOf(of(b.says()))
		if strings.Count(said, `"message":"forbidden: `) != 6 || !strings.Contains(said, "pong") {
			t.Errorf("%s: the daemon answers %s", way, said)
		}
		b.stillWaits(way)
		if os.Geteuid() == 0 {
			continue // root traces everybody
		}
		if said := b.outsideOf(of(traceCommand + " " + strconv.Itoa(b.Cmd.Process.Pid))); !strings.Contains(said,
			"attach: operation not permitted") || !strings.Contains(said, "environ: false") {
			t.Errorf("%s: tracing the daemon: %s", way, said)
		}
	}
	// A prompt runs, and asks what any other would.
	other := b.daemon.session(b.work)
	line, err := json.Marshal(map[string]any{
		"id": "1", "type": "prompt",
		"payload": map[string]any{"text": outside("touch never"), "session_id": other, "wait": false},
	})
	if err != nil {
		t.Fatal(err)
	}
	events := b.events(protocol.SubscribeParams{Types: []string{protocol.Status{}.Type(), protocol.AgentEnd{}.Type()}})
	b.outsideOf(sayCommand + " " + b.Socket + " " + shellWord(string(line)))
	asked := await(t, events, func(ev protocol.Event) bool {
		s, ok := ev.(protocol.Status)
		return ok && s.Approval != nil && s.SessionID == other
	}).(protocol.Status)
	if _, err := client.Call(context.Background(), b.c, protocol.Approve,
		protocol.ApproveParams{ApprovalID: asked.Approval.ApprovalID, Option: "deny"}); err != nil {
		t.Error(err)
	}
	await(t, events, endOf(asked.RunID))
	// What it may write is the user's to decide: it is a program of his like others.
	if said := b.outsideOf("echo '# mine' >> " + b.targets["a shell's profile"] + " && echo written"); !strings.Contains(
		said, "written") {
		t.Errorf("it cannot write: %s", said)
	}
}

// Keys of the user's cannot be read in the sandbox, by no name, whether the home is
// a link, is the folder that is worked in, or gets the key later.
func TestKeysOfTheUserAreHiddenFromTools(t *testing.T) {
	testenv.Long(t)
	const key = "sk-of-the-user"
	base := t.TempDir()
	home, real := filepath.Join(base, "home"), filepath.Join(base, "data", "me")
	put := func(path string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(key), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(filepath.Join(real, ".ssh", "id"))
	put(filepath.Join(real, ".config", "chromium", "Default", "Cookies"))
	files := []string{
		".ssh/id", ".config/chromium/Default/Cookies", ".aws/credentials", ".npmrc",
		".config/nous/config.toml", ".newcomer/key",
	}
	for _, file := range files[3:] {
		put(filepath.Join(real, file))
	}
	if err := os.MkdirAll(filepath.Join(real, "project"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, home); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", home)
	d := newDaemon(t)
	for what, folder := range map[string]string{"a project": filepath.Join(home, "project"), "the home": home} {
		session := d.session(folder)
		if got := d.extension(session, "bash", `{"command":"touch `+base+`/x"}`); got.OK {
			t.Skip("no sandbox here")
		}
		put(filepath.Join(real, ".aws", "credentials"))
		for _, file := range files {
			text, err := json.Marshal(map[string]any{"command": strings.Join([]string{
				"cat " + home + "/" + file, "cat " + real + "/" + file, "cat ~/" + file,
				"(cd ~ && cat " + file + ")", "cat ../" + file,
				"cat /proc/self/root" + real + "/" + file, "cat /proc/self/cwd/../" + file, "ln -sf ~/" + file + " l; cat l; rm l",
				"ln ~/" + file + " h && cat h", "cp ~/" + file + " c && cat c", "mv ~/" + file + " m && cat m",
				"mv ~/.ssh s && cat s/id",
				"tar c ~ | grep -a sk-", "grep -r . ~/.ssh ~/.aws ~/.config", "setsid -w env -i cat " + real + "/" + file,
				"unshare -Urm cat " + real + "/" + file,
			}, "\n")})
			if err != nil {
				t.Fatal(err)
			}
			if got := d.extension(session, "bash", string(text)); strings.Contains(got.Result, key) {
				t.Errorf("in %s: a command about %s says %s", what, file, got.Result)
			}
			for _, call := range [][2]string{
				{"read", `{"path":"` + home + "/" + file + `"}`},
				{"grep", `{"pattern":"sk-","path":"` + home + `"}`},
			} {
				if got := d.extension(session, call[0], call[1]); strings.Contains(got.Result, key) {
					t.Errorf("in %s: %s of %s says %s", what, call[0], file, got.Result)
				}
			}
		}
		if err := os.RemoveAll(filepath.Join(real, ".aws")); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{".ssh/id", ".config/chromium/Default/Cookies"} {
		if text, err := os.ReadFile(filepath.Join(real, file)); string(text) != key {
			t.Errorf("%s has %q, %v", file, text, err)
		}
	}
	out, _ := d.doctor()
	wantLines(t, out, "tools in the sandbox cannot read, of what is there: ", real+"/.ssh", real+"/.config/chromium",
		"of what begins with a dot in "+real+", only toolchains and settings")
}
