package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"noused/internal/daemontest"
	"noused/internal/protocol"
	"noused/internal/testenv"
)

// asSoak makes the test binary the program.
const asSoak = "NOUSED_TEST_AS_SOAK"

func TestMain(m *testing.M) {
	if os.Getenv(asSoak) != "" || len(os.Args) == 2 && os.Args[1] == "mcp" {
		main()
		return
	}
	goleak.VerifyTestMain(testenv.M{M: m})
}

// The instrument works: real daemons under the whole load for a few seconds, too
// short to judge what grows.
func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the daemon")
	}
	noused, err := daemontest.Build(t.TempDir(), "noused")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "-noused", noused, "-for", "3s")
	cmd.Env = append(os.Environ(), asSoak+"=1")
	said, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != exitGrown) {
		t.Fatalf("%v\n%s", err, said)
	}
	for _, want := range []string{
		`(?m)^ +steady +memory MB +[1-9]`, `(?m)^ +restarted +disk MB +[1-9]`,
		` [1-9][0-9]* journals checked;`, ` [1-9][0-9]* restarts by SIG`, `; 0 violations\n`,
	} {
		if !regexp.MustCompile(want).Match(said) {
			t.Errorf("it does not say %q:\n%s", want, said)
		}
	}
}

func TestWhatGrows(t *testing.T) {
	series := func(of func(i int) float64) (all []float64) {
		for i := range 90 {
			all = append(all, of(i))
		}
		return all
	}
	memory := figures[0]
	for name, c := range map[string]struct {
		series []float64
		want   bool
	}{
		"the same all the time": {series(func(int) float64 { return 30 }), true},
		"warms up":              {series(func(i int) float64 { return 30 + min(float64(i), 29) }), true},
		"goes up and down":      {series(func(i int) float64 { return 30 + float64(20*(i%2)) }), true},
		"one peak":              {series(func(i int) float64 { return 30 + 1000*float64(i/89) }), true},
		"a leak":                {series(func(i int) float64 { return 30 + float64(i)/3 }), false},
		"a step in the end":     {series(func(i int) float64 { return 30 + float64(10*(i/60)) }), false},
		"just allowed":          {series(func(i int) float64 { return 30 + float64(5*(i/60)) }), true},
		"shrinks":               {series(func(i int) float64 { return 90 - float64(i) }), true},
		"too few":               {[]float64{1, 1}, false},
		"none":                  {nil, false},
	} {
		if second, last, got := memory.flat(c.series); got != c.want {
			t.Errorf("%s: flat is %t, of %v and %v", name, got, second, last)
		}
	}
}

func TestWhatReadersFind(t *testing.T) {
	for name, c := range map[string]struct {
		seqs []uint64
		want bool
	}{
		"in order": {[]uint64{8, 9, 10}, true},
		"a hole":   {[]uint64{8, 10}, false},
		"twice":    {[]uint64{8, 8}, false},
		"back":     {[]uint64{8, 9, 8}, false},
	} {
		at, right := cursor{"e", 7}, true
		for _, seq := range c.seqs {
			right = at.moves(protocol.EventEnvelope{Seq: seq}, 0) && right
		}
		if right != c.want {
			t.Errorf("%s: right is %t", name, right)
		}
	}
	if at := (cursor{"e", 7}); !at.moves(protocol.EventEnvelope{Seq: 20}, 8) || at.last != 20 {
		t.Error("a hole that the daemon reports is a violation")
	}
	end := func(seq uint64, run string) protocol.EventEnvelope {
		return protocol.EventEnvelope{
			Seq: seq, Type: "agent_end",
			Payload: []byte(fmt.Sprintf(`{"run_id":%q,"session_id":"s","stop_reason":"completed","turns":1,"usage":{}}`, run)),
		}
	}
	for name, c := range map[string]struct {
		told func(s *seen)
		want int
	}{
		"one reader after the other": {func(s *seen) {
			s.addEvent("e", end(1, "r"), []byte("a"))
			s.addEvent("e", end(1, "r"), []byte("a"))
		}, 0},
		"another event": {func(s *seen) {
			s.addEvent("e", end(1, "r"), []byte("a"))
			s.addEvent("e", end(1, "r"), []byte("b"))
		}, 1},
		"ended twice": {func(s *seen) {
			s.addEvent("e", end(1, "r"), []byte("a"))
			s.addEvent("e", end(2, "r"), []byte("b"))
		}, 1},
		"another epoch": {func(s *seen) {
			s.addEvent("e", end(1, "r"), []byte("a"))
			s.addEvent("f", end(1, "q"), []byte("b"))
		}, 0},
	} {
		r := newReport()
		c.told(newSeen(r))
		if r.wrongs != c.want {
			t.Errorf("%s: %d violations %v", name, r.wrongs, r.wrong)
		}
		if status := r.print(&strings.Builder{}, time.Second, nil); (status == exitViolated) != (c.want > 0) {
			t.Errorf("%s: exit status %d", name, status)
		}
	}
}

func TestWhatAJournalAccountsFor(t *testing.T) {
	const (
		input   = `{"type":"input","data":{"input_id":"i","run_id":"r"}}` + "\n"
		begin   = `{"type":"run_started","data":{"run_id":"r"}}` + "\n"
		message = `{"type":"message","data":{"input_id":"i","run_id":"r"}}` + "\n"
		end     = `{"type":"run_ended","data":{"run_id":"r","stop_reason":"completed"}}` + "\n"
		aborted = `{"type":"abort_requested","data":{"run_id":"r"}}` + "\n"
		back    = `{"type":"input_withdrawn","data":{"input_id":"i"}}` + "\n"
	)
	for name, c := range map[string]struct{ journal, want string }{
		"all is well":       {input + begin + message + end, ""},
		"withdrawn":         {input + begin + back + end, ""},
		"handed back":       {input + begin + aborted + end, ""},
		"lost":              {begin + end, "is not in its journal"},
		"never delivered":   {input + begin + end, "delivered 0 times"},
		"delivered twice":   {input + begin + message + message + end, "delivered 2 times"},
		"ended twice":       {input + begin + message + end + end, "ended 2 times"},
		"never ended":       {input + begin + message, "ended 0 times"},
		"began twice":       {input + begin + message + begin + end, "began 2 times"},
		"ended, not begun":  {input + message + end, "never began"},
		"a torn line":       {input + begin + message + end + `{"type":`, "a line of its journal"},
		"another's message": {input + begin + message + end + `{"type":"message","data":{}}` + "\n", ""},
	} {
		err := account([]byte(c.journal), map[string]bool{"i": true})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

func TestWhatTheVendorRefuses(t *testing.T) {
	const call = `{"role":"assistant","content":null,"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}}]}`
	for name, c := range map[string]struct {
		messages string
		want     int
	}{
		"a prompt": {`{"role":"system","content":"x"},{"role":"user","content":"hi"}`, http.StatusOK},
		"a result": {`{"role":"user","content":"hi"},` + call +
			`,{"role":"tool","tool_call_id":"a","content":"y"}`, http.StatusOK},
		"nothing": {``, http.StatusBadRequest},
		"no result": {
			`{"role":"user","content":"hi"},` + call + `,{"role":"user","content":"and?"}`,
			http.StatusBadRequest,
		},
		"another's result": {`{"role":"user","content":"hi"},` + call +
			`,{"role":"tool","tool_call_id":"b","content":"y"}`, http.StatusBadRequest},
		"an empty answer": {
			`{"role":"user","content":"hi"},{"role":"assistant","content":""},{"role":"user","content":"x"}`,
			http.StatusBadRequest,
		},
		"a prompt of its own": {`{"role":"user","content":"hi"},{"role":"assistant","content":"x"}`, http.StatusBadRequest},
		"a late system": {
			`{"role":"user","content":"hi"},{"role":"system","content":"x"},{"role":"user","content":"hi"}`,
			http.StatusBadRequest,
		},
	} {
		r := newReport()
		w := httptest.NewRecorder()
		(&vendor{report: r}).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/chat/completions",
			strings.NewReader(`{"stream":true,"messages":[`+c.messages+`]}`)))
		if w.Code != c.want || (r.wrongs > 0) != (c.want != http.StatusOK) {
			t.Errorf("%s: got %d, %v", name, w.Code, r.wrong)
		}
	}
}

// A daemon's descendants are found, and so is what it leaves behind.
func TestDescendants(t *testing.T) {
	child := exec.Command("sh", "-c", "sleep 1000 & echo it runs; exec 1>&-; wait")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	_, err = out.Read(make([]byte, 1))
	below := descendants(child.Process.Pid)
	left := orphan(child.Process.Pid)
	for _, pid := range append(below, child.Process.Pid) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	_ = child.Wait()
	if err != nil || len(below) != 1 {
		t.Errorf("below the shell: %v, %v", below, err)
	}
	if !strings.Contains(left, "sleep") {
		t.Errorf("a child that lives is described as %q", left)
	}
}
