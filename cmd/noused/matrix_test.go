package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"noused/internal/testenv"
)

// release builds the daemon of a former version, from its tag or commit.
func release(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	build := exec.Command("sh", "-c", `cd ../.. && git archive "$1" | tar xf - -C "$2" && cd "$2" && `+
		`CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags='-s -w' -o "$2/built" ./cmd/noused`, "sh", version, dir)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", version, err, out)
	}
	return filepath.Join(dir, "built")
}

// A live run goes from every released version to this one, and back: a text that waits is
// delivered once, an approval that is open is still open, and what was said can be read. A
// version that does not know what a newer one wrote says so, and changes nothing.
func TestUpgradeMatrix(t *testing.T) {
	versions := strings.Fields(os.Getenv("NOUSED_TEST_RELEASES"))
	if len(versions) == 0 {
		t.Skip("make upgrade-matrix")
	}
	today := plainDaemon(t)
	for _, version := range versions {
		former := release(t, version)
		for _, how := range []string{"kill", "stop", "restart"} {
			t.Run(version+" to today by "+how, func(t *testing.T) { newMove(t, former, today).make(how) })
			t.Run("today to "+version+" by "+how, func(t *testing.T) { newMove(t, today, former).make(how) })
		}
	}
}

// move takes live sessions from one program to another.
type move struct {
	*daemon
	from, to    string
	w           *wire
	talk, asked string
	input       string // that waits
	approval    string // that is open; "": the version has none
	texts       []string
}

func newMove(t *testing.T, from, to string) *move {
	d := unstarted(t, "", "--drain-timeout", "1s")
	d.Program = filepath.Join(d.Dir, "program")
	d.write("noused/rules.toml", "[[policy.rule]]\ntool = \"a.run\"\ndecision = \"ask\"\n", 0o600)
	if err := os.Mkdir(filepath.Join(d.Dir, "tools"), 0o700); err != nil {
		t.Fatal(err)
	}
	d.Fifo("go")
	const done = `echo '{"version":"0","type":"done","ok":true,"summary":"done"}'` + "\n"
	d.Tool("t", "cat >/dev/null; echo >held; cat go; "+done)
	d.Tool("a", "cat >/dev/null; "+done)
	m := &move{daemon: d, from: from, to: to}
	m.install(from)
	m.start()
	return m
}

// install puts a program in the place of the one that is there.
func (m *move) install(program string) {
	m.t.Helper()
	text, err := os.ReadFile(program)
	if err == nil {
		err = os.WriteFile(m.Program+".new", text, 0o700)
	}
	if err == nil {
		err = os.Rename(m.Program+".new", m.Program)
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *move) start() {
	m.t.Helper()
	m.Start()
	m.w = m.commands()
}

// say sends a command about a session.
func (m *move) say(typ, session, more string) response {
	m.t.Helper()
	return m.w.request(fmt.Sprintf(`{"v":"1","id":"1","type":%q,"payload":{"session_id":%q%s}}`, typ, session, more))
}

// begin has a run that a call holds up, with a text behind it, and one that asks.
func (m *move) begin() {
	m.t.Helper()
	session := func() string {
		r := m.w.request(`{"v":"1","id":"1","type":"new_session","payload":{}}`)
		return into[struct {
			ID string `json:"session_id"`
		}](m.t, r).ID
	}
	m.talk, m.asked = session(), session()
	into[struct{}](m.t, m.say("prompt", m.talk, `,"text":"!t.run {}","wait":false`))
	testenv.Until(m.t, "the call runs", func() bool {
		_, err := os.Stat(filepath.Join(m.Dir, "held"))
		return err == nil
	})
	m.texts = []string{"!t.run {}", "behind it"}
	m.input = m.behind()
	into[struct{}](m.t, m.say("prompt", m.asked, `,"text":"!a.run {}","wait":false`))
	testenv.Until(m.t, "the run asks, or is done", func() bool {
		s := m.state(m.asked)
		if len(s.Approvals) > 0 {
			m.approval = s.Approvals[0].ID
		}
		return m.approval != "" || s.Run == "idle"
	})
}

// behind sends the text that waits, and returns its id.
func (m *move) behind() string {
	m.t.Helper()
	r := m.say("follow_up", m.talk, `,"text":"behind it","idempotency_key":"k"`)
	return into[struct {
		ID string `json:"input_id"`
	}](m.t, r).ID
}

type moveState struct {
	Run       string         `json:"run_state"`
	Approvals []openApproval `json:"pending_approvals"` // nil: the version has none
}

type openApproval struct {
	ID      string `json:"approval_id"`
	Session string `json:"session_id"`
}

func (m *move) state(session string) moveState {
	m.t.Helper()
	s := into[moveState](m.t, m.say("get_state", session, ""))
	s.Approvals = slices.DeleteFunc(s.Approvals, func(a openApproval) bool {
		return a.Session != "" && a.Session != session
	})
	return s
}

// goTo has the other program take over.
func (m *move) goTo(program, how string) {
	m.t.Helper()
	m.install(program)
	switch how {
	case "restart":
		r := m.w.request(`{"v":"1","id":"1","type":"shutdown","payload":{"restart":true}}`)
		if r.OK {
			for { // until the old one has hung up; who connects then waits for the next
				if _, err := m.w.in.Next(); err != nil {
					break
				}
			}
			m.w = m.commands()
			return
		}
		m.t.Logf("it cannot restart itself: %v", r.Error)
		m.Stop()
	case "stop":
		m.Stop()
	default:
		m.Kill()
	}
	m.start()
}

// refused reports that the program does not know what a newer one has written, and has left
// that as it was.
func (m *move) refused(session string) bool {
	m.t.Helper()
	path := filepath.Join(m.Dir, "state", "sessions", session+".jsonl")
	before, _ := os.ReadFile(path)
	r := m.say("set_steering_mode", session, `,"mode":"one-at-a-time"`)
	if r.OK {
		return false
	}
	read := m.say("get_messages", session, "")
	after, err := os.ReadFile(path)
	if string(r.Error.Code) != "session_error" || err != nil || !bytes.Equal(before, after) {
		m.t.Errorf("it is refused: %v; the journal is the same: %t", r.Error, bytes.Equal(before, after))
	}
	m.t.Logf("it is not written to, and can be read: %t: %v", read.OK, r.Error)
	return true
}

// ends has what is under way come to its end, and reads it.
func (m *move) ends() {
	m.t.Helper()
	switch s := m.state(m.asked); {
	case m.approval == "":
	case s.Approvals == nil:
		m.t.Log("it knows no approvals, and asks nobody")
	case len(s.Approvals) != 1 || s.Approvals[0].ID != m.approval:
		m.t.Fatalf("open are %+v, want %s", s.Approvals, m.approval)
	default:
		into[struct{}](m.t, m.w.request(`{"v":"1","id":"1","type":"approve","payload":{"approval_id":"`+m.approval+
			`","option":"deny"}}`))
	}
	m.approval = ""
	for _, id := range []string{m.talk, m.asked} {
		testenv.Until(m.t, "its run has ended", func() bool { return m.state(id).Run == "idle" })
	}
	m.read()
	if r := m.say("follow_up", m.talk, `,"text":"behind it","idempotency_key":"k"`); r.OK {
		if again := into[struct {
			ID string `json:"input_id"`
		}](m.t, r).ID; again != m.input {
			m.t.Errorf("the text that was sent again is %s, and was %s", again, m.input)
		}
	} else {
		m.t.Errorf("the text is sent again: %v", r.Error)
	}
}

// goesOn prompts both sessions.
func (m *move) goesOn(text string) {
	m.t.Helper()
	for _, id := range []string{m.talk, m.asked} {
		into[struct{}](m.t, m.say("prompt", id, fmt.Sprintf(`,"text":%q`, text)))
	}
	m.texts = append(m.texts, text)
	m.read()
}

// read holds what people said against what is shown.
func (m *move) read() {
	m.t.Helper()
	r := into[struct {
		Messages []struct {
			Role string `json:"role"`
			Text string `json:"text"`
		} `json:"messages"`
	}](m.t, m.say("get_messages", m.talk, ""))
	var said []string
	for _, msg := range r.Messages {
		if msg.Role == "user" {
			said = append(said, msg.Text)
		}
	}
	if !slices.Equal(said, m.texts) {
		m.t.Errorf("said was %q, want %q", said, m.texts)
	}
}

// make moves the sessions there and back.
func (m *move) make(how string) {
	m.begin()
	m.goTo(m.to, how)
	refused := m.refused(m.talk)
	if again := m.refused(m.asked); refused && again || refused != again {
		m.t.Logf("its sessions are refused: %t, %t", refused, again)
		m.goTo(m.from, how) // nothing is lost
		m.ends()
		m.goesOn("and back")
		return
	}
	m.ends()
	m.goesOn("and there")
	m.goTo(m.from, how)
	if refused, again := m.refused(m.talk), m.refused(m.asked); refused || again {
		m.t.Logf("taken up, and refused on the way back: %t, %t", refused, again)
	} else {
		m.t.Log("taken up, and gone on with on the way back")
		m.goesOn("and back")
	}
	m.goTo(m.to, how)
	m.goesOn("and there again")
}
