package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"noused/internal/client"
	"noused/internal/client/ssh"
	"noused/internal/daemontest"
	"noused/internal/protocol"
)

// proxied is a running nous proxy.
type proxied struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   io.ReadCloser
	lines *bufio.Reader
}

func startProxy(t *testing.T, d *daemontest.Daemon, args ...string) *proxied {
	t.Helper()
	p := &proxied{t: t, cmd: exec.Command("nous", append([]string{"proxy"}, args...)...)}
	p.cmd.Env = d.Env()
	var err, wrong error
	if p.in, err = p.cmd.StdinPipe(); err == nil {
		p.out, wrong = p.cmd.StdoutPipe()
	}
	if err != nil || wrong != nil {
		t.Fatal(err, wrong)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	})
	p.lines = bufio.NewReader(p.out)
	return p
}

func (p *proxied) say(lines ...string) {
	p.t.Helper()
	if _, err := io.WriteString(p.in, strings.Join(lines, "\n")+"\n"); err != nil {
		p.t.Fatal(err)
	}
}

// line is the next line, which is JSON.
func (p *proxied) line() (line struct {
	Proxy   int
	Epoch   string
	Version string
	Socket  string
	Mux     int
	ID      string `json:"id"`
	Type    string `json:"type"`
	OK      *bool  `json:"ok"`
	Seq     uint64 `json:"seq"`
	Error   *protocol.Error
	text    string
},
) {
	p.t.Helper()
	text, err := p.lines.ReadString('\n')
	if err == nil {
		err = json.Unmarshal([]byte(text), &line, json.MatchCaseInsensitiveNames(true))
	}
	if err != nil {
		p.t.Fatalf("%v: %.300q", err, text)
	}
	line.text = text
	return line
}

// rest is what comes until the end, and the exit status.
func (p *proxied) rest() (string, int) {
	p.t.Helper()
	text, err := io.ReadAll(p.lines)
	if err != nil {
		p.t.Fatal(err)
	}
	_ = p.cmd.Wait()
	return string(text), p.cmd.ProcessState.ExitCode()
}

// The hello comes first. subscribe goes to the event socket, every other line to the command
// socket, and all that was asked is answered after the end of the input.
func TestProxyJoinsBothSockets(t *testing.T) {
	d := daemontest.Start(t, program(t, "noused"), "")
	p := startProxy(t, d)
	hello := p.line()
	if hello.Proxy != 1 || hello.Epoch == "" || hello.Version == "" || hello.Socket != d.Socket || hello.Mux != 1 {
		t.Fatalf("got %+v", hello)
	}
	p.say(`{"id":"a","type":"ping"}`, `no JSON`, `{"id":"b","type":"subscribe","payload":{"after":0}}`,
		`{"id":"c","type":"prompt","payload":{"text":"hi"}}`)
	if err := p.in.Close(); err != nil {
		t.Fatal(err)
	}
	text, status := p.rest()
	for _, want := range []string{
		`"id":"a","type":"pong"`, `invalid_json`, `"id":"b","type":"subscribed","payload":{"epoch":"` + hello.Epoch + `"`,
		`"id":"c","type":"result"`,
	} {
		if strings.Count(text, want) != 1 {
			t.Errorf("got %.5000s, want %s", text, want)
		}
	}
	if status != exitOK {
		t.Errorf("got status %d", status)
	}
}

// To ask for the hello makes no session.
func TestProxyMakesNoSession(t *testing.T) {
	d := daemontest.Start(t, program(t, "noused"), "")
	p := startProxy(t, d)
	p.line()
	p.say(`{"id":"a","type":"list_sessions"}`)
	if l := p.line(); !strings.Contains(l.text, `"sessions":[]`) {
		t.Errorf("got %s", l.text)
	}
}

func TestProxyWithoutADaemon(t *testing.T) {
	d := daemontest.New(t, program(t, "noused"), "")
	p := startProxy(t, d)
	if l := p.line(); l.OK == nil || *l.OK || l.Error == nil || l.Error.Code != ssh.CodeNoDaemon || l.Socket != d.Socket ||
		l.Type != "" {
		t.Errorf("got %s", l.text)
	}
	if text, status := p.rest(); text != "" || status != exitNoDaemon {
		t.Errorf("got %q and status %d", text, status)
	}
}

func TestProxyTellsThatTheDaemonIsGone(t *testing.T) {
	for name, end := range map[string]func(*daemontest.Daemon){
		"stopped": (*daemontest.Daemon).Stop,
		"killed":  (*daemontest.Daemon).Kill,
	} {
		t.Run(name, func(t *testing.T) {
			d := daemontest.Start(t, program(t, "noused"), "")
			p := startProxy(t, d)
			p.line()
			end(d)
			if l := p.line(); l.OK == nil || *l.OK || l.Error == nil || l.Error.Code != "daemon_gone" {
				t.Errorf("got %s", l.text)
			}
			if text, status := p.rest(); text != "" || status != exitNoDaemon {
				t.Errorf("got %q and status %d", text, status)
			}
		})
	}
}

// Without a reader it ends, though its input goes on and a command is not answered.
func TestProxyEndsWithItsReader(t *testing.T) {
	d := daemontest.New(t, program(t, "noused"), "")
	d.Fifo("began")
	d.Fifo("never")
	d.Tool("hold", `read -r request; echo >'`+d.Dir+`/began'; read -r line <'`+d.Dir+`/never'`)
	d.Start()
	p := startProxy(t, d)
	p.line()
	p.say(`{"id":"a","type":"extension_command","payload":{"name":"hold.run"}}`)
	if _, err := exec.Command("cat", d.Dir+"/began").Output(); err != nil {
		t.Fatal(err)
	}
	if err := p.out.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); err == nil {
		t.Error("it ended as if all were well")
	}
}

// Long lines in both directions stay whole while events come between them. One over the
// daemon's limit is refused by the daemon, and the next is read.
func TestProxyPassesLongLinesOn(t *testing.T) {
	d := daemontest.New(t, program(t, "noused"), "", "--max-line", fmt.Sprint(2<<20))
	d.Start()
	p := startProxy(t, d)
	p.line()
	p.say(`{"id":"s","type":"subscribe"}`)
	if l := p.line(); l.Type != "subscribed" { // what follows, another socket takes
		t.Fatalf("got %s", l.text)
	}
	long := strings.Repeat("0123456789abcdef", 60<<10) // 960 KiB
	go func() {
		var lines bytes.Buffer
		for i := range 5 {
			fmt.Fprintf(&lines, `{"id":"p%d","type":"prompt","payload":{"text":"%s"}}`+"\n", i, long[:len(long)/5])
			fmt.Fprintf(&lines, `{"id":"e%d","type":"ping","payload":{"x":"%s"}}`+"\n", i, long)
		}
		fmt.Fprintf(&lines, `{"id":"huge","type":"ping","payload":{"x":"%s"}}`+"\n", strings.Repeat(long, 3))
		lines.WriteString(`{"id":"last","type":"ping"}` + "\n")
		_, _ = p.in.Write(lines.Bytes())
	}()
	answers, events := map[string]bool{}, uint64(0)
	for len(answers) < 12 {
		switch l := p.line(); {
		case l.OK == nil && l.Seq != events+1:
			t.Fatalf("event %d came behind %d", l.Seq, events)
		case l.OK == nil:
			events = l.Seq
		case *l.OK || strings.HasPrefix(l.ID, "p"): // all but the first may find a run
			answers[l.ID] = true
		case !strings.Contains(l.text, "line_too_long"):
			t.Errorf("got %.300s", l.text)
		default:
			answers["huge"] = true
		}
	}
	if !answers["last"] || !answers["huge"] || events == 0 {
		t.Errorf("got %v and %d events", answers, events)
	}
}

// A client that asks for a session and sends no frames, or too many streams, is told, in the place
// of a frame, and the proxy ends.
func TestProxyEndsAHostileSession(t *testing.T) {
	d := daemontest.Start(t, program(t, "noused"), "")
	var streams []byte
	for i := range uint32(300) {
		streams = binary.BigEndian.AppendUint32(append(streams, 0, 1, 0, 1), 2*i+1)
		streams = append(streams, 0, 0, 0, 0)
	}
	for name, said := range map[string]string{"no frames": "{}\n", "a ping": "\x00\x02\x00\x01" + strings.Repeat("\x00",
		8), "a huge frame": "\x00\x00\x00\x00\x00\x00\x00\x01\x7f\xff\xff\xff", "too many streams": string(streams)} {
		t.Run(name, func(t *testing.T) {
			p := startProxy(t, d)
			p.line()
			p.say(`{"mux":1}`)
			if text, err := p.lines.ReadString('\n'); err != nil || text != `{"mux":1}`+"\n" {
				t.Fatalf("got %q, %v", text, err)
			}
			_, _ = io.WriteString(p.in, said)
			text, status := p.rest()
			if !strings.Contains(text, `{"ok":false,"error":{"code":"unreachable"`) || !strings.HasSuffix(text, "\n") ||
				status != exitNoDaemon {
				t.Errorf("got %.300q and status %d", text, status)
			}
		})
	}
}

// A session ends with its client's input, without a word.
func TestProxyEndsASessionWithItsClient(t *testing.T) {
	d := daemontest.Start(t, program(t, "noused"), "")
	p := startProxy(t, d)
	p.line()
	p.say(`{"mux":1}`)
	if err := p.in.Close(); err != nil {
		t.Fatal(err)
	}
	if text, status := p.rest(); text != `{"mux":1}`+"\n" || status != exitOK {
		t.Errorf("got %q and status %d", text, status)
	}
}

// flood is how many requests there are: NOUSED_TEST_FLOOD.
func flood() int {
	if n, err := strconv.Atoi(os.Getenv("NOUSED_TEST_FLOOD")); err == nil {
		return n
	}
	return 500
}

// Requests that come faster than they are answered are all answered, each
// once, in little memory. A client beside is answered meanwhile.
func TestProxyAnswersAFlood(t *testing.T) {
	d := daemontest.Start(t, program(t, "noused"), "")
	beside, err := client.Dial(t.Context(), d.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer beside.Close()
	ping := func() time.Duration {
		began := time.Now()
		if _, err := client.Call(t.Context(), beside, protocol.Ping, protocol.PingParams{}); err != nil {
			t.Error(err)
		}
		return time.Since(began)
	}
	var quiet, busy []time.Duration
	for range 100 {
		quiet = append(quiet, ping())
	}
	p := startProxy(t, d)
	p.line()
	before := heldMost(t, p.cmd.Process.Pid)
	go func() {
		var lines bytes.Buffer
		for i := range flood() {
			if i%5 > 0 {
				fmt.Fprintf(&lines, `{"id":"f%d","type":"ping","payload":{}}`+"\n", i)
			} else {
				fmt.Fprintf(&lines, `{"id":"f%d","type":"list_sessions","payload":{}}`+"\n", i)
			}
		}
		_, _ = p.in.Write(lines.Bytes())
	}()
	answered := map[string]bool{}
	for len(answered) < flood() {
		l := p.line()
		if l.OK == nil || !*l.OK || answered[l.ID] {
			t.Fatalf("got %.300s", l.text)
		}
		if answered[l.ID] = true; len(answered)%5 == 0 {
			busy = append(busy, ping())
		}
	}
	slices.Sort(quiet)
	slices.Sort(busy)
	most := heldMost(t, p.cmd.Process.Pid)
	t.Logf("%d requests; a ping beside takes %s, without them %s; the proxy held %d KiB at most", flood(),
		busy[len(busy)/2], quiet[len(quiet)/2], most)
	if most-before > 64<<10 {
		t.Errorf("the proxy held %d KiB, and %d before", most, before)
	}
}

// heldMost is the most memory that a process had, in KiB.
func heldMost(t *testing.T, pid int) (kib int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatal(err)
	}
	return kib
}
