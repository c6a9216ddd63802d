package agent

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/acp"
	"noused/internal/model"
)

// heard is a session whose agent says what a test has it say, and the news of it.
type heard struct {
	t    *testing.T
	s    *Session
	link *link
	told []model.AgentNews
}

func newHeard(t *testing.T) *heard {
	h := &heard{t: t}
	a := New(Options{})
	h.s = a.Open("ses-1", "a", "/", func(_ context.Context, news model.AgentNews) error {
		h.told = append(h.told, news)
		return nil
	})
	p := newProcess(a, Spec{Name: "a"})
	p.conn = acp.NewConn(strings.NewReader(""), io.Discard)
	h.link = p.link(h.s)
	h.link.call("s")
	t.Cleanup(func() {
		p.end(&endedError{how: "the test is over"})
		h.link.gone()
		p.conn.Close()
	})
	return h
}

// says has the agent say something of the session.
func (h *heard) says(update string) {
	handler{h.link.process}.Notice(acp.SessionUpdate, jsontext.Value(`{"sessionId":"s","update":`+update+`}`))
}

// prompt begins a turn.
func (h *heard) prompt() *turn {
	h.t.Helper()
	t := newTurn(h.s, h.link, "run-1")
	to := &model.AgentTurn{RunID: "run-1", Turn: 1, Texts: 1, Fresh: 1}
	if err := h.s.begin(h.t.Context(), t, to, []acp.ContentBlock{acp.TextBlock("go")}); err != nil {
		h.t.Fatal(err)
	}
	return t
}

// What an agent says of its plan, its title and its options is kept on the disk, in a turn and outside
// of one. It has a bound from one prompt to the next, and people are told once where that is reached.
func TestWhatIsSaidBesideTurnsIsBounded(t *testing.T) {
	long := strings.Repeat("x", 500_000)
	for what, c := range map[string]struct {
		update string
		line   int // what it counts for, at least
	}{
		"plan":    {`{"sessionUpdate":"plan","entries":[{"content":"%d` + long + `"}]}`, 500_000},
		"title":   {`{"sessionUpdate":"session_info_update","title":"%d","_meta":{"x":"` + long + `"}}`, 500_000},
		"options": {`{"sessionUpdate":"config_option_update","configOptions":[{"id":"m","currentValue":"%d"}]}`, 2 * maxID},
	} {
		t.Run(what, func(t *testing.T) {
			h := newHeard(t)
			h.s.beside = maxBeside - 4*c.line
			for i := range 8 {
				h.says(fmt.Sprintf(c.update, i))
			}
			if n := len(h.told); n != 4 || h.told[3].Warning == "" || h.told[2].Warning != "" {
				t.Fatalf("%d news were told, want 3 and a warning: %+.200v", n, h.told)
			}
			h.prompt()
			h.says(fmt.Sprintf(c.update, 8))
			if len(h.told) != 5 {
				t.Errorf("%d news were told, want the one after the prompt, too", len(h.told)-4)
			}
		})
	}
}

// What is kept of a call that is asked about counts, its options as the rest.
func TestOptionsOfARequestCount(t *testing.T) {
	h := newHeard(t)
	turn := h.prompt()
	long := strings.Repeat("x", 8<<20)
	for i := range 5 {
		_, err := turn.merge(t.Context(), event{
			kind: asked, line: len(long), call: &acp.ToolCall{ID: fmt.Sprint(i)}, ask: &acp.Request{},
			options: []acp.PermissionOption{{ID: "y", Name: long, Kind: acp.AllowOnce}},
		})
		if fits := i < 3; fits != (err == nil) {
			t.Fatalf("request %d: got %v", i, err)
		}
	}
	for _, c := range slices.Clone(turn.order) {
		turn.end(c)
	}
	if turn.held != 0 {
		t.Errorf("%d bytes are still held", turn.held)
	}
}

// What has many small values counts for what is made of it: a line of a call takes many times its
// length.
func TestSmallValuesCount(t *testing.T) {
	const n = 10_000
	h := newHeard(t)
	turn := h.prompt()
	h.says(`{"sessionUpdate":"tool_call","toolCallId":"c","content":[` + strings.Repeat(`{},`, n) + `{}]}`)
	e, err := turn.in.next(t.Context(), nil, 0)
	if want := n * int(unsafe.Sizeof(acp.ToolContent{})); err != nil || e.size() < want {
		t.Errorf("it counts for %d bytes, want %d at least (%v)", e.size(), want, err)
	}
}
