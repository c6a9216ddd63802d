package mcp

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	jsonx "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"noused/internal/model"
	"noused/internal/tool/tooltest"
)

const howMany = `{"type":"object","properties":{"z":{"type":"integer"},"a":{"type":"string","default":"x"}},"required":["z"]}`

// serveForm is a server of the SDK's whose tool asks how many.
func serveForm() int {
	s := sdk.NewServer(&sdk.Implementation{Name: "form", Version: "1"}, nil)
	sdk.AddTool(s, &sdk.Tool{Name: "run"}, func(ctx context.Context, r *sdk.CallToolRequest,
		_ struct{},
	) (*sdk.CallToolResult, any, error) {
		a, err := r.Session.Elicit(ctx, &sdk.ElicitParams{Message: "How many?", RequestedSchema: jsontext.Value(howMany)})
		if err != nil {
			return nil, nil, err
		}
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: fmt.Sprint(a.Action, " ", a.Content["z"])}}},
			nil, nil
	})
	if err := s.Run(context.Background(), &sdk.StdioTransport{}); err != nil {
		return 1
	}
	return 0
}

// serveAsking is a server by hand: its tool sends what its arguments have as
// requests, waits for as many answers, and returns them. It has asked before.
func serveAsking() int {
	f := newFake()
	var got []string
	early := 1
	for f.get() {
		switch {
		case strings.HasPrefix(string(f.id), `"q`):
			got = append(got, f.in.Text())
		case f.method == "tools/list": // nobody calls yet
			fmt.Println(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"m","requestedSchema":` +
				howMany + `}}`)
			f.answer()
		case f.method == "tools/call":
			f.asks(got, early)
			got, early = nil, 0
		default:
			f.answer()
		}
	}
	return 0
}

// asks answers a call with what was answered before, early of it, and is answered
// now.
func (f *fake) asks(got []string, early int) {
	call := f.id
	var p struct {
		Arguments struct {
			Send []jsontext.Value `json:"send"`
		} `json:"arguments"`
	}
	if err := jsonx.Unmarshal(f.params, &p); err != nil {
		panic(err)
	}
	for i, params := range p.Arguments.Send {
		fmt.Printf(`{"jsonrpc":"2.0","id":"q%d","method":"elicitation/create","params":%s}`+"\n", i, params)
	}
	for len(got) < early+len(p.Arguments.Send) && f.get() {
		got = append(got, f.in.Text())
	}
	text, _ := jsonx.Marshal(strings.Join(got, "\n"))
	f.id = call
	f.result(`{"content":[{"type":"text","text":` + string(text) + `}]}`)
}

// asker answers forms, and keeps them.
type asker struct {
	asked []model.Question
	reply func(q model.Question) (model.Answer, error)
}

func (a *asker) answer(_ context.Context, q model.Question) (model.Answer, error) {
	a.asked = append(a.asked, q)
	return a.reply(q)
}

func accepting(content string) *asker {
	return &asker{reply: func(model.Question) (model.Answer, error) {
		return model.Answer{Action: model.Accept, Content: []byte(content)}, nil
	}}
}

// A server of the SDK's asks in both ways, and gets what was filled
// in; without anybody to ask it is declined.
func TestAServerAsks(t *testing.T) {
	b := mount(t, server(t, "form"))
	a := accepting(`{"z":12345678901234567890,"a":"x"}`)
	inv := tooltest.Invocation("x.run", `{}`)
	inv.Ask = a.answer
	r := b.Call(t.Context(), inv, nil)
	if !r.OK || !strings.HasPrefix(r.Text, "accept 1.2345") || len(a.asked) != 1 || a.asked[0].Message != "How many?" {
		t.Fatalf("got %+v, asked %+v", r, a.asked)
	}
	if got := string(a.asked[0].Schema); got != howMany {
		t.Errorf("the form is %s, want it as the server wrote it", got)
	}
	inv.Ask = nil
	if r := b.Call(t.Context(), inv, nil); r.Text != "decline <nil>" {
		t.Errorf("without anybody to ask: %+v", r)
	}
	b.gone()
}

// The newer way to ask is a result that wants something, and the call made again.
func TestAServerComesBackForWhatItWantsToKnow(t *testing.T) {
	b := mount(t, server(t, "rounds"))
	for kind, want := range map[string]string{
		"form": `"requestState":"kept"`, "roots": "protocol_error: the server wants something", "ever": "came back 10 times",
	} {
		a := accepting(`{"z":7}`)
		inv := tooltest.Invocation("x.run", `{"kind":"`+kind+`"}`)
		inv.Ask = a.answer
		r := b.Call(t.Context(), inv, nil)
		if !strings.Contains(r.Text, want) || kind == "form" &&
			(len(a.asked) != 2 || !strings.Contains(r.Text, `"b":{"action":"accept","content":{"z":7}}`)) {
			t.Errorf("%s: got %+v, asked %d times; want %s", kind, r, len(a.asked), want)
		}
	}
	b.gone()
}

// serveRounds is a server by hand that asks by its results.
func serveRounds() int {
	f := newFake()
	for f.get() {
		form := `{"method":"elicitation/create","params":{"message":"m","requestedSchema":` + howMany + `}}`
		switch {
		case f.method != "tools/call":
			f.answer()
		case strings.Contains(string(f.params), `"roots"`):
			f.result(`{"content":[],"resultType":"input_required","inputRequests":{"a":{"method":"roots/list","params":{}}}}`)
		case strings.Contains(string(f.params), `"ever"`), !strings.Contains(string(f.params), "inputResponses"):
			f.result(`{"content":[],"resultType":"input_required","requestState":"kept","inputRequests":{"b":` + form + `,"a":` +
				form + `}}`)
		default:
			text, _ := jsonx.Marshal(string(f.params))
			f.result(`{"content":[{"type":"text","text":` + string(text) + `}]}`)
		}
	}
	return 0
}

// What is no form, or more than one asks, is an error for the server alone; the SDK
// sees none of it.
func TestWhatServersAskAndMayNot(t *testing.T) {
	b := mount(t, server(t, "asking"))
	inv := tooltest.Invocation("x.run", `{"send":[]}`)
	if r := b.Call(t.Context(), inv, nil); !strings.Contains(r.Text, `"id":"q","result":{"action":"decline"}`) {
		t.Errorf("a form of no call: %+v", r)
	}
	for send, want := range map[string]string{
		`{"message":"m","mode":"url","url":"https://x/","elicitationId":"1"}`: "only forms",
		`{"message":"m","mode":"form","requestedSchema":{"$ref":"#"}}`:        "refused by us",
		`{"message":"m","requestedSchema":{"properties":{"a":{"$ref":"#"}}}}`: "refused by us",
		`{"message":"m"}`: "refused by us",
		`{"message":1,"requestedSchema":` + howMany + `}`: `"error"`,
	} {
		a := &asker{reply: func(q model.Question) (model.Answer, error) {
			return model.Answer{}, fmt.Errorf("refused by us, %d bytes", len(q.Schema))
		}}
		inv := tooltest.Invocation("x.run", `{"send":[`+send+`]}`)
		inv.Ask = a.answer
		if r := b.Call(t.Context(), inv, nil); !r.OK || !strings.Contains(r.Text, want) ||
			!strings.Contains(r.Text, `"error"`) {
			t.Errorf("%.80s: the server gets %+v, want an error that says %s", send, r, want)
		}
	}
	b.gone()
}

// While a form waits the time of its call stands still, of all forms of it together.
func TestTheClockOfACallStandsWhileItAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newClock(time.Second, 10*time.Second)
		defer k.stop()
		expired := func(c <-chan time.Time, after time.Duration) bool {
			time.Sleep(after)
			synctest.Wait()
			select {
			case <-c:
				return true
			default:
				return false
			}
		}
		time.Sleep(900 * time.Millisecond)
		k.wait(1)
		k.wait(1)
		k.progress()
		if expired(k.idle.C, time.Hour) || expired(k.whole.C, time.Hour) {
			t.Fatal("time goes on while a form waits")
		}
		k.wait(-1)
		if expired(k.idle.C, time.Hour) {
			t.Fatal("time goes on while another form waits")
		}
		k.wait(-1)
		if expired(k.idle.C, 900*time.Millisecond) || !expired(k.idle.C, 200*time.Millisecond) {
			t.Error("the idle time does not begin anew")
		}
		if expired(k.whole.C, 7900*time.Millisecond) || !expired(k.whole.C, 200*time.Millisecond) {
			t.Error("the whole time is not what was left of it")
		}
	})
}

func TestKeepForm(t *testing.T) {
	for in, want := range map[string]string{
		`{"message":"m", "requestedSchema" : {"b":1, "a":2},"_meta":{}}`: `{"message":"m","requestedSchema":"{\"b\":1, \"a\":2}","_meta":{}}`,
		`{}`: `{}`, `[]`: `[]`, ``: ``, `{"a"`: `{"a"`, `{"a":1,"a":2}`: `{"a":1,"a":2}`,
	} {
		if got := string(keepForm([]byte(in))); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}
