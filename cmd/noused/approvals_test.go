package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"noused/internal/client"
	"noused/internal/protocol"
	"noused/internal/testenv"
)

// sayCommand sends the lines of its arguments to a socket, and prints the replies.
const sayCommand = "say-to-the-daemon"

func sayToTheDaemon() {
	conn, err := net.Dial("unix", os.Args[1])
	if err != nil {
		fmt.Println(err)
		return
	}
	replies := bufio.NewReader(conn)
	for _, line := range os.Args[2:] {
		fmt.Fprintln(conn, line)
		reply, err := replies.ReadString('\n')
		fmt.Print(reply)
		if err != nil {
			fmt.Println(err)
			return
		}
	}
}

// outside is a text that has the offline model run a command outside the sandbox.
func outside(command string) string {
	args, err := json.Marshal(map[string]any{
		"command": command, "outside_sandbox": true,
		"reason": "the sandbox has refused it",
	}, json.Deterministic(true))
	if err != nil {
		panic(err)
	}
	return "!bash " + string(args)
}

// asks sends a prompt and waits until its run asks.
func (d *daemon) asks(c *client.Client, session, text string) protocol.Approval {
	d.t.Helper()
	events := d.events(protocol.SubscribeParams{})
	if _, err := client.Call(context.Background(), c, protocol.Prompt,
		protocol.PromptParams{Scope: protocol.Scope{SessionID: session}, Text: text, Wait: new(bool)}); err != nil {
		d.t.Fatal(err)
	}
	for {
		ev, err := next(events)
		if err != nil {
			d.t.Fatal(err)
		}
		switch ev := ev.(type) {
		case protocol.Status:
			if ev.Approval != nil {
				return *ev.Approval
			}
		case protocol.AgentEnd:
			d.t.Fatalf("the run ends without a question: %+v", ev)
		}
	}
}

// answers gives an answer, and waits for the result of the call and the end of the run.
func (d *daemon) answers(c *client.Client, a protocol.Approval, option string) protocol.ToolEnd {
	d.t.Helper()
	events := d.events(protocol.SubscribeParams{})
	if _, err := client.Call(context.Background(), c, protocol.Approve, protocol.ApproveParams{
		ApprovalID: a.ApprovalID,
		Option:     option,
	}); err != nil {
		d.t.Fatal(err)
	}
	end := comes[protocol.ToolEnd](d.t, events)
	await(d.t, events, endOf(end.RunID))
	return end
}

// comes waits for an event of a type.
func comes[E protocol.Event](t testing.TB, events *client.Events) E {
	t.Helper()
	for {
		ev, err := next(events)
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := ev.(E); ok {
			return e
		}
	}
}

// A command outside the sandbox runs once the user has said yes, and can do what
// the sandbox does not let it; the daemon's own children cannot say yes for it.
func TestACommandOutsideTheSandboxAsks(t *testing.T) {
	d := newDaemon(t)
	c := d.dial()
	elsewhere := t.TempDir()
	file := filepath.Join(elsewhere, "a")
	if got := d.extension(d.session(d.Dir), "bash", `{"command":"touch `+file+`"}`); got.OK {
		t.Skip("no sandbox here")
	}
	session := d.session(d.Dir)
	asked := d.asks(c, session, outside("touch "+file))
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal("it ran before the answer")
	}
	if asked.Reason != "the sandbox has refused it" || asked.Rule != "ask: bash outside the sandbox" ||
		len(asked.Options) != 2 {
		t.Errorf("asks %+v", asked)
	}
	if end := d.answers(c, asked, "once"); !end.OK {
		t.Errorf("allowed, and failed: %s", end.Result)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
	if end := d.answers(c, d.asks(c, session, outside("touch "+file+"2")), "deny"); end.OK || end.Error.Code != "denied" {
		t.Errorf("denied, and got %+v", end)
	}
	without := d.extension(session, "bash", `{"command":"true","outside_sandbox":true}`)
	if without.OK || without.Error.Code != "bad_request" {
		t.Errorf("without a reason: %+v", without)
	}

	// What runs outside is still the daemon's child.
	waiting := d.asks(c, d.session(d.Dir), outside("true"))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	say := filepath.Join(elsewhere, sayCommand)
	if err := os.Symlink(self, say); err != nil {
		t.Fatal(err)
	}
	command := fmt.Sprintf(
		`setsid -w env -i %s %s '{"id":"1","type":"approve","payload":{"approval_id":"%s","option":"once"}}' '{"id":"2","type":"set_approval_mode","payload":{"mode":"auto"}}' '{"id":"3","type":"ping"}'`, say, d.Socket, waiting.ApprovalID)
	end := d.answers(c, d.asks(c, session, outside(command)), "once")
	if strings.Count(end.Result, `"message":"forbidden: `) != 2 || !strings.Contains(end.Result, `"pong"`) {
		t.Errorf("a tool that approves gets %s", end.Result)
	}
	state, err := client.Call(context.Background(), c, protocol.GetState, protocol.GetStateParams{})
	if err != nil || len(state.PendingApprovals) != 1 || state.PendingApprovals[0].ApprovalID != waiting.ApprovalID {
		t.Errorf("open are %+v, %v; want the one that a tool has answered", state.PendingApprovals, err)
	}
	d.Stop() // a run that waits does not hold it up
	audit, err := os.ReadFile(filepath.Join(d.Dir, "state", "audit.jsonl"))
	for _, want := range []string{
		`"decision":"ask","rule":"ask: bash outside the sandbox"`,
		fmt.Sprintf(`"option":"once","pid":%d,"uid":%d`, os.Getpid(), os.Getuid()),
	} {
		if err != nil || !strings.Contains(string(audit), want) {
			t.Errorf("the audit journal has no %s: %v", want, err)
		}
	}
}

// An answer for always is a rule in a file beside the configuration: it holds for
// every session at once, and for the next daemon; one for a session stays there.
func TestAnswersThatStay(t *testing.T) {
	testenv.Long(t)
	d := newDaemon(t)
	c := d.dial()
	one, other := d.session(d.Dir), d.session(d.Dir)
	allowed := func(session, text string) bool {
		events := d.events(protocol.SubscribeParams{})
		if _, err := client.Call(context.Background(), c, protocol.Prompt,
			protocol.PromptParams{Scope: protocol.Scope{SessionID: session}, Text: text, Approvals: "deny"}); err != nil {
			t.Fatal(err)
		}
		end := comes[protocol.ToolEnd](t, events)
		return end.OK
	}
	d.answers(c, d.asks(c, one, outside("uname -a")), "session")
	for session, want := range map[string]bool{one: true, other: false} {
		if got := allowed(session, outside("uname -a")); got != want {
			t.Errorf("after an answer for one session: allowed %t, want %t", got, want)
		}
	}
	d.answers(c, d.asks(c, one, outside("echo hello there")), "always")
	path := filepath.Join(d.Dir, "noused", "rules.toml")
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatal(info, err)
	}
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), "session "+one) {
		t.Errorf("the rule does not say whence it is: %s %v", text, err)
	}
	d.Kill()
	d.Start()
	c = d.dial()
	if !allowed(other, outside("echo hello there again")) || !allowed(one, outside("uname -a")) ||
		allowed(other, outside("uname -r")) {
		t.Error("after a restart the answers are not those that were given")
	}

	// Rules are read again at a reload; what cannot be read changes nothing.
	d.write("noused/rules.toml", string(text)+"\n[[policy.rule]]\ntool = \"bash\"\ndecison = \"deny\"\n", 0o600)
	r, err := client.Call(context.Background(), c, protocol.ReloadTools, protocol.ReloadToolsParams{})
	if err != nil || len(r.Errors) != 1 || !strings.Contains(r.Errors[0], "rules.toml:") ||
		!strings.Contains(r.Errors[0], "decison") {
		t.Errorf("a reload of a broken file: %+v %v", r, err)
	}
	if !allowed(other, outside("echo hello there again")) {
		t.Error("the rules from before do not hold")
	}
	d.write("noused/rules.toml", string(text)+"\n[[policy.rule]]\ntool = \"bash\"\ndecision = \"deny\"\ncommand = "+
		"[\"rm\"]\n\n[[policy.rule]]\ntool = \"bsh\"\ndecision = \"ask\"\n", 0o600)
	if r, err := client.Call(context.Background(), c, protocol.ReloadTools, protocol.ReloadToolsParams{}); err != nil ||
		len(r.Errors) > 0 {
		t.Fatal(r, err)
	}
	for range 2 { // at a reload, and at a start
		await(t, d.events(protocol.SubscribeParams{After: new(uint64)}), func(ev protocol.Event) bool {
			w, ok := ev.(protocol.Warning)
			return ok && w.Code == protocol.WarningRuleUnused && strings.Contains(w.Message, `"bsh"`) &&
				strings.Contains(w.Message, path)
		})
		d.Kill()
		d.Start()
	}
	c = d.dial()
	if got := d.extension(other, "bash", `{"command":"true; rm -f x"}`); got.OK || got.Error.Code != "forbidden" {
		t.Errorf("what a rule denies: %+v", got)
	}
	// Nor are rules read that others can write: those from before hold.
	chmod(t, path, 0o620)
	if r, err := client.Call(context.Background(), c, protocol.ReloadTools, protocol.ReloadToolsParams{}); err != nil ||
		len(r.Errors) != 1 || !strings.Contains(r.Errors[0], path+": can be written by others: run chmod go-w") {
		t.Errorf("a reload of rules that the group can write: %+v %v", r, err)
	}
	chmod(t, path, 0o600)
	d.write("noused/rules.toml", "[[policy.rule]]\ntool = 7\n", 0o600)
	d.Stop()
	if log := d.Log.String(); !strings.Contains(log, `"bsh"`) {
		t.Error("nobody learns of a pattern that fits no tool")
	}
	if out, err := d.Command().CombinedOutput(); err == nil || !strings.Contains(string(out), "rules.toml:2") {
		t.Errorf("a start with a broken file: %v %s, want the file and its line", err, out)
	}
}

// A question about a file shows what would change in it, and the same after a
// restart, whatever has happened to the file.
func TestAQuestionShowsTheDiff(t *testing.T) {
	d := unstarted(t, "noused")
	d.write("noused/rules.toml", "[[policy.rule]]\ntool = \"edit\"\ndecision = \"ask\"\npath = [\"*.txt\"]\n", 0o600)
	d.write("work/a.txt", "old\n", 0o600)
	d.Start()
	session := d.session(filepath.Join(d.Dir, "work"))
	asked := d.asks(d.dial(), session, `!edit {"path":"a.txt","old_text":"old","new_text":"new"}`)
	if asked.Diff != "@@ -1,1 +1,1 @@\n-     1\told\n+     1\tnew" || asked.Rule != "ask: edit: *.txt" {
		t.Errorf("asks %+v", asked)
	}
	d.Kill()
	d.write("work/a.txt", "old\nand more\n", 0o600)
	d.Start()
	events := d.events(protocol.SubscribeParams{After: new(uint64)})
	again := await(t, events, func(ev protocol.Event) bool {
		s, ok := ev.(protocol.Status)
		return ok && s.Approval != nil
	}).(protocol.Status)
	if diff := cmp.Diff(asked, *again.Approval); diff != "" {
		t.Errorf("asks otherwise after a restart:\n%s", diff)
	}
	if end := d.answers(d.dial(), asked, "once"); !end.OK {
		t.Errorf("allowed, and failed: %s", end.Result)
	}
	if text, err := os.ReadFile(filepath.Join(d.Dir, "work", "a.txt")); err != nil || string(text) != "new\nand more\n" {
		t.Errorf("the file has %q, %v", text, err)
	}
}

// Killed at any moment while runs ask and two clients answer: no command runs
// without a yes, none twice, none is asked about again, and every run ends.
// NOUSED_CRASHTIME (a duration) makes it long.
func TestKilledWhileRunsAsk(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	kills, until := 3, time.Time{}
	if text := os.Getenv("NOUSED_CRASHTIME"); text != "" {
		long, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("NOUSED_CRASHTIME: %v", err)
		}
		until = time.Now().Add(long)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	d := newDaemon(t)
	calls := filepath.Join(t.TempDir(), "calls")
	var sessions []string
	for range 3 {
		sessions = append(sessions, d.session(d.Dir))
	}
	n, killed := 0, 0
	tried := func() bool { info, err := os.Stat(calls); return err == nil && info.Size() > 0 }
	for ; killed < kills || killed < 20*kills && !tried() || time.Now().Before(until); killed++ {
		d.askedAndKilled(sessions, calls, &n, 1+rng.IntN(60))
		d.Start()
	}
	d.answerAll(sessions)
	d.Stop()

	ran := map[string]int{}
	text, err := os.ReadFile(calls)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, token := range strings.Fields(string(text)) {
		ran[token]++
	}
	asked, allowed := 0, map[string]bool{}
	for _, session := range sessions {
		for call, a := range askedIn(t, filepath.Join(d.Dir, "state", "sessions", session+".jsonl")) {
			asked++
			if a.asked != 1 || a.decided != 1 {
				t.Errorf("call %s was asked about %d times and decided %d times", call, a.asked, a.decided)
			}
			allowed[a.token] = a.allowed
		}
	}
	for token, times := range ran {
		if times > 1 || !allowed[token] {
			t.Errorf("%s ran %d times, allowed: %t", token, times, allowed[token])
		}
	}
	if asked == 0 || len(ran) == 0 {
		t.Errorf("%d questions, %d commands: nothing was tried", asked, len(ran))
	}
	t.Logf("%d kills, %d questions, %d commands ran", killed, asked, len(ran))
}

// askedAndKilled has every session run a command that asks, and two clients answer,
// until so many events have come. Then it kills the daemon.
func (d *daemon) askedAndKilled(sessions []string, calls string, n *int, events int) {
	d.t.Helper()
	follow := d.events(protocol.SubscribeParams{After: new(uint64)})
	var people sync.WaitGroup
	for _, option := range []string{"once", "deny"} {
		c := d.dial()
		people.Go(func() {
			for d.answerPending(c, option) == nil {
			}
		})
	}
	prompter := d.dial()
	people.Go(func() {
		for i := 0; ; i++ {
			*n++
			_, err := client.Call(context.Background(), prompter, protocol.Prompt, protocol.PromptParams{
				Scope: protocol.Scope{SessionID: sessions[i%len(sessions)]},
				Text:  outside(fmt.Sprintf("echo token-%d >>%s", *n, calls)), StreamingBehavior: "follow_up", Wait: new(bool),
			})
			var refused *protocol.Error
			if err != nil && !errors.As(err, &refused) {
				return
			}
		}
	})
	for range events {
		if _, err := next(follow); err != nil {
			break
		}
	}
	d.Kill()
	people.Wait()
}

// answerPending gives an answer to every open question. Another client may have
// been faster.
func (d *daemon) answerPending(c *client.Client, option string) error {
	st, err := client.Call(context.Background(), c, protocol.GetState, protocol.GetStateParams{})
	if err != nil {
		return err
	}
	for _, a := range st.PendingApprovals {
		_, err := client.Call(context.Background(), c, protocol.Approve, protocol.ApproveParams{
			ApprovalID: a.ApprovalID,
			Option:     option,
		})
		var refused *protocol.Error
		if err != nil && !(errors.As(err, &refused) && refused.Reason() == protocol.ApprovalResolved) {
			return err
		}
	}
	return nil
}

// answerAll answers until every run has ended.
func (d *daemon) answerAll(sessions []string) {
	d.t.Helper()
	c := d.dial()
	for _, session := range sessions {
		for {
			if err := d.answerPending(c, "once"); err != nil {
				d.t.Fatal(err)
			}
			st, err := client.Call(context.Background(), c, protocol.GetState,
				protocol.GetStateParams{Scope: protocol.Scope{SessionID: session}})
			if err != nil {
				d.t.Fatal(err)
			}
			if st.RunState == protocol.StateIdle {
				break
			}
		}
	}
}

// question is what a journal has of the question about a call.
type question struct {
	asked, decided int
	allowed        bool
	token          string
}

func askedIn(t *testing.T, path string) map[string]*question {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tokens, calls, of := map[string]string{}, map[string]*question{}, map[string]string{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var r struct {
			Type string `json:"type"`
			Data struct {
				ApprovalID string `json:"approval_id"`
				CallID     string `json:"call_id"`
				Outcome    string `json:"outcome"`
				Message    struct {
					ToolCalls []struct {
						ID        string `json:"id"`
						Arguments struct {
							Command string `json:"command"`
						} `json:"arguments"`
					} `json:"tool_calls"`
				} `json:"message"`
			} `json:"data"`
		}
		if json.Unmarshal(lines.Bytes(), &r) != nil {
			continue // torn by a kill
		}
		switch r.Type {
		case "message":
			for _, call := range r.Data.Message.ToolCalls {
				tokens[call.ID] = strings.Fields(call.Arguments.Command)[1]
			}
		case "approval_asked":
			of[r.Data.ApprovalID] = r.Data.CallID
			if calls[r.Data.CallID] == nil {
				calls[r.Data.CallID] = &question{token: tokens[r.Data.CallID]}
			}
			calls[r.Data.CallID].asked++
		case "approval_decided":
			q := calls[of[r.Data.ApprovalID]]
			q.decided++
			q.allowed = r.Data.Outcome == "allowed"
		}
	}
	return calls
}
