package agent_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"noused/internal/agent"
	"noused/internal/model"
	"noused/internal/policy"
	"noused/internal/proc"
)

// teller is an agent that tells a session again when it loads it, and keeps what it is sent.
type teller struct {
	io.Reader
	in   *io.PipeWriter
	out  *io.PipeWriter
	over chan struct{}
	told []string // that it tells again
	sent []string // texts of the first prompt
	says []string // in the turn, in one message
}

func newTeller(told ...string) *teller {
	in, hears := io.Pipe()
	said, out := io.Pipe()
	a := &teller{Reader: said, in: hears, out: out, over: make(chan struct{}), told: told}
	go a.serve(in)
	return a
}

func (a *teller) serve(in io.Reader) {
	defer close(a.over)
	defer a.out.Close()
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var ask struct {
			ID     json.RawMessage
			Method string
			Params struct{ Prompt []struct{ Text string } }
		}
		if json.Unmarshal(lines.Bytes(), &ask) != nil {
			return
		}
		result := `{}`
		switch ask.Method {
		case "initialize":
			result = `{"protocolVersion":1,"agentCapabilities":{"loadSession":true}}`
		case "session/load":
			for i, text := range a.told {
				fmt.Fprintf(a.out, `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":`+
					`{"sessionUpdate":"user_message_chunk","messageId":"m%d","content":{"type":"text","text":%q}}}}`+"\n", i, text)
			}
		case "session/prompt":
			for _, block := range ask.Params.Prompt {
				a.sent = append(a.sent, block.Text)
			}
			for _, text := range a.says {
				fmt.Fprintf(a.out, `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":`+
					`{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":%q}}}}`+"\n", text)
			}
			result = `{"stopReason":"end_turn"}`
		}
		fmt.Fprintf(a.out, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", ask.ID, result)
	}
}

func (a *teller) Write(_ context.Context, line []byte) error {
	_, err := a.in.Write(line)
	return err
}
func (a *teller) Stop()             { _ = a.in.Close() }
func (a *teller) Kill()             { a.Stop() }
func (a *teller) Stderr(int) string { return "" }
func (a *teller) Pause()            {}
func (a *teller) Keep(context.Context) (proc.Kept, error) {
	return proc.Kept{}, errors.New("it is not kept")
}
func (a *teller) Wait() proc.Exit { <-a.over; return proc.Exit{} }

// agents are those of a daemon that has no other.
func (a *teller) agents(t *testing.T) *agent.Agents {
	t.Helper()
	none, err := policy.New()
	if err != nil {
		t.Fatal(err)
	}
	return agent.New(agent.Options{
		Specs: []agent.Spec{{Name: "a", Command: []string{"/bin/sh"}}}, Rules: func() *policy.Set { return none },
		Start: func(context.Context, agent.Spec, proc.Command) (agent.Process, error) { return a, nil },
	})
}

// What an agent tells again it has, whatever the daemon's journal has lost of that: it is
// not sent again. A text that was said before in the same words is another one.
func TestATextThatIsToldAgainIsNotSentAgain(t *testing.T) {
	const goOn = "You were stopped in the middle of this, and have been started again. Go on where you were."
	for _, c := range []struct {
		name        string
		said, told  []string
		fresh, took int
		sent        []string
	}{
		{"told", []string{"one", "two"}, []string{"one", "two"}, 1, 2, []string{goOn}},
		{"not told", []string{"one", "two"}, []string{"one"}, 1, 2, []string{"two"}},
		{"the first of two", []string{"one", "two", "three"}, []string{"one", "two"}, 2, 3, []string{"three"}},
		{"the same words before", []string{"go on", "go on"}, []string{"go on"}, 1, 2, []string{"go on"}},
		{"the same words twice", []string{"go on", "go on"}, []string{"go on", "go on"}, 1, 2, []string{goOn}},
		{"after words of the daemon's own", []string{"one", "two"}, []string{"one", "two", goOn}, 1, 2, []string{goOn}},
	} {
		t.Run(c.name, func(t *testing.T) {
			it := newTeller(c.told...)
			took := 0
			s := it.agents(t).Open("ses-1", "a", "/", func(_ context.Context, news model.AgentNews) error {
				took = max(took, news.Took)
				return nil
			})
			var messages []model.Message
			for _, text := range c.said {
				messages = append(messages, model.Message{Role: model.User, Text: text})
			}
			req := model.Request{
				Agent: &model.AgentTurn{RunID: "run-1", Turn: 1, Texts: len(c.said), Fresh: c.fresh, Session: "s"},
				Load:  func(int) ([]model.Message, func(), error) { return messages, func() {}, nil },
			}
			for _, err := range s.Stream(t.Context(), req) {
				if err != nil {
					t.Fatal(err)
				}
			}
			s.Close()
			if !slices.Equal(it.sent, c.sent) || took != c.took {
				t.Errorf("was sent %q and has taken %d, want %q and %d", it.sent, took, c.sent, c.took)
			}
		})
	}
}

// A message of an agent's may be as long as one of a provider's.
func TestAMessageOfAnAgentIsBounded(t *testing.T) {
	piece := strings.Repeat("x", model.MaxContent/8)
	for n, want := range map[int]string{8: "", 9: "a: the message holds more than 4 MiB"} {
		it := newTeller()
		it.says = slices.Repeat([]string{piece}, n)
		s := it.agents(t).Open("ses-1", "a", "/", func(context.Context, model.AgentNews) error { return nil })
		req := model.Request{
			Agent: &model.AgentTurn{RunID: "run-1", Turn: 1, Texts: 1, Fresh: 1, Session: "s"},
			Load: func(int) ([]model.Message, func(), error) {
				return []model.Message{{Role: model.User, Text: "go"}}, func() {}, nil
			},
		}
		said, got := 0, ""
		for d, err := range s.Stream(t.Context(), req) {
			if said += len(d.Text); err != nil {
				got = err.Error()
			}
		}
		s.Close()
		if got != want || said != model.MaxContent {
			t.Errorf("of %d bytes %d were told, error %q, want %q", n*len(piece), said, got, want)
		}
	}
}
