package anthropic_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"noused/internal/model"
	"noused/internal/model/anthropic"
	"noused/internal/model/modeltest"
	"noused/internal/model/wire"
	"noused/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.M{M: m}) }

// asked is a provider that keeps the request and answers with the same events.
type asked struct {
	events []string
	*http.Request
	body string
}

func (a *asked) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	a.Request, a.body = r, string(body)
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{},
		Body: io.NopCloser(strings.NewReader(modeltest.Events(a.events...))),
	}, err
}

func answer(t *testing.T, o wire.Options, req model.Request) string {
	t.Helper()
	m, err := anthropic.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return modeltest.Told(m.Stream(t.Context(), req), func(u model.Usage) string {
		return fmt.Sprintf("%d/%d/%d", u.InputTokens, u.OutputTokens, u.CachedTokens)
	})
}

const stop = `{"type":"message_stop"}`

func TestRequest(t *testing.T) {
	const ephemeral = `"cache_control":{"type":"ephemeral"}`
	calls := []model.Message{
		{Role: model.User, Text: "one"},
		{Role: model.User, Text: "look", Attachments: []model.Attachment{
			{MediaType: "image/png", Data: []byte("PNG")},
			{MediaType: "application/pdf", Data: []byte("PDF")},
			{MediaType: "audio/wav", Data: []byte("RIFF")},
		}},
		{
			Role: model.Assistant, Text: "so", Thinking: "hm", Maker: "messages api.anthropic.com m", Blocks: []model.Block{
				{Kind: model.ThinkingBlock, Bytes: 2, Data: []byte(`{"signature":"sig"}`)},
				{Kind: model.ThinkingBlock, Data: []byte(`{"signature":""}`)},
				{Kind: model.ThinkingBlock},
				{Kind: model.OpaqueBlock, Data: []byte(`{"type":"redacted_thinking","data":"hidden"}`)},
				{Kind: model.TextBlock, Bytes: 1},
				{Kind: model.CallBlock, ID: "toolu_1"},
				{Kind: model.TextBlock, Bytes: 1},
				{Kind: model.CallBlock},
			},
			ToolCalls: []model.ToolCall{
				{ID: "call-0199", Name: "t.x", Arguments: []byte(`{"n": 1}`)},
				{ID: "call-0200", Name: "y", Arguments: []byte(`"half{"`)},
			},
		},
		{Role: model.Tool, ToolCallID: "call-0199", ToolName: "t.x", OK: true},
		{Role: model.Tool, ToolCallID: "call-0200", ToolName: "y", Text: "bad_request: no object"},
		{Role: model.User, Text: "wait"},
	}
	asIs := `{"role":"user","content":[
			{"type":"image","source":{"type":"base64","media_type":"image/png","data":"UE5H"}},
			{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"UERG"}},
			{"type":"text","text":"[an attachment of type audio/wav is not shown: this provider does not take it]"},
			{"type":"text","text":"one\n\nlook",` + ephemeral + `}]},
		{"role":"assistant","content":[
			{"type":"thinking","thinking":"hm","signature":"sig"},{"type":"thinking","thinking":"","signature":""},{"type":"thinking","thinking":""},
			{"type":"redacted_thinking","data":"hidden"},
			{"type":"text","text":"s"},{"type":"tool_use","id":"toolu_1","name":"t__x","input":{"n":1}},
			{"type":"text","text":"o"},{"type":"tool_use","id":"call00002","name":"y","input":{"not_an_object":"half{"}}]},
		{"role":"user","content":[
			{"type":"tool_result","tool_use_id":"toolu_1"},
			{"type":"tool_result","tool_use_id":"call00002","content":"bad_request: no object","is_error":true},
			{"type":"text","text":"wait",` + ephemeral + `}]}`
	for name, c := range map[string]struct {
		options wire.Options
		req     model.Request
		want    string
	}{
		"plain": {wire.Options{}, model.Request{Messages: calls[:1]}, `{
			"model":"m","max_tokens":32000,"messages":[{"role":"user","content":[{"type":"text","text":"one",` + ephemeral + `}]}],"stream":true}`},
		"all of it": {
			wire.Options{MaxOutputTokens: 9, APIKey: "sk-1234"},
			model.Request{System: "be brief", Messages: calls, Tools: []model.ToolSpec{
				{Name: "t.x", Description: "does", Params: []byte(`{"type":"object","properties":{"n":{"type":"integer"}}}`)},
				{Name: "y"},
			}},
			`{
			"model":"m","max_tokens":9,"system":[{"type":"text","text":"be brief",` + ephemeral + `}],"messages":[` + asIs + `],
			"tools":[{"name":"t__x","description":"does","input_schema":{"type":"object","properties":{"n":{"type":"integer"}}}},
				{"name":"y","input_schema":{"properties":{},"type":"object"},` + ephemeral + `}],
			"stream":true}`,
		},
		"no tools any more": {
			wire.Options{MaxOutputTokens: 9}, model.Request{Messages: calls}, `{
			"model":"m","max_tokens":9,"messages":[` + asIs + `],
			"tools":[{"name":"t__x","description":"Not available any more.","input_schema":{"properties":{},"type":"object"}},
				{"name":"y","description":"Not available any more.","input_schema":{"properties":{},"type":"object"},` + ephemeral +
				`}],
			"tool_choice":{"type":"none"},"stream":true}`,
		},
		"blank texts": {
			wire.Options{MaxOutputTokens: 9},
			model.Request{Messages: []model.Message{{Role: model.User, Text: " "}, {Role: model.Assistant, Text: "\n"}}},
			`{
			"model":"m","max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":"(nothing)",` + ephemeral + `}]}],"stream":true}`,
		},
		"extra": {
			wire.Options{Extra: map[string]any{"thinking": map[string]any{"type": "enabled", "budget_tokens": 1024}}},
			model.Request{Messages: calls[:1]},
			`{
			"max_tokens":32000,"messages":[{"role":"user","content":[{"type":"text","text":"one",` + ephemeral +
				`}]}],"model":"m","stream":true,
			"thinking":{"budget_tokens":1024,"type":"enabled"}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := &asked{events: []string{stop}}
			c.options.Model, c.options.Transport = "m", a
			if said := answer(t, c.options, c.req); said != " end 0/0/0" {
				t.Errorf("got %q", said)
			}
			if diff := cmp.Diff(modeltest.Tidy(t, c.want), modeltest.Tidy(t, a.body)); diff != "" {
				t.Errorf("the request (-want +got):\n%s", diff)
			}
			if h := a.Header; h.Get("X-Api-Key") != c.options.APIKey || h.Get("Anthropic-Version") != "2023-06-01" {
				t.Errorf("asked with %v", h)
			}
		})
	}
}

func TestBaseURL(t *testing.T) {
	for base, want := range map[string]string{
		"":                            "https://api.anthropic.com/v1/messages",
		"http://localhost:1":          "http://localhost:1/v1/messages",
		"http://localhost:1/v1/":      "http://localhost:1/v1/messages",
		"http://localhost:1/a/v1?b=c": "http://localhost:1/a/v1/messages?b=c",
	} {
		a := &asked{events: []string{stop}}
		answer(t, wire.Options{BaseURL: base, Model: "m", Transport: a}, model.Request{})
		if got := a.URL.String(); got != want {
			t.Errorf("%q asks %s, want %s", base, got, want)
		}
	}
}

func TestAnswers(t *testing.T) {
	start := func(index int, block string) string {
		return fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":%s}`, index, block)
	}
	delta := func(index int, d string) string {
		return fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":%s}`, index, d)
	}
	ends := func(reason string) string {
		return fmt.Sprintf(
			`{"type":"message_delta","delta":{"stop_reason":%q,"stop_sequence":null},"usage":{"output_tokens":5}}`, reason)
	}
	const begin = `{"type":"message_start","message":{"content":[],"usage":{"input_tokens":1,"cache_creation_input_tokens":20,"cache_read_input_tokens":300,"output_tokens":2}}}`
	for name, c := range map[string]struct {
		events []string
		want   string
	}{
		"thinking that goes back": {[]string{
			begin, start(0, `{"type":"thinking","thinking":"","signature":""}`),
			delta(0, `{"type":"thinking_delta","thinking":"h"}`), delta(0, `{"type":"thinking_delta","thinking":"m"}`),
			delta(0, `{"type":"signature_delta","signature":"sig"}`), `{"type":"content_block_stop","index":0}`,
			start(1, `{"type":"redacted_thinking","data":"hidden"}`),
			start(2, `{"type":"text","text":""}`), delta(2, `{"type":"text_delta","text":"so"}`), ends("end_turn"), stop,
		}, "<h><m>so end 321/5/300"},
		"thinking without a signature": {[]string{start(0, `{"type":"thinking","thinking":"hm"}`), stop}, "<hm> end 0/0/0"},
		"interleaved calls": {[]string{
			begin, start(0, `{"type":"tool_use","id":"a","name":"t__x","input":{}}`),
			start(1, `{"type":"tool_use","id":"b","name":"y","input":{}}`),
			delta(1, `{"type":"input_json_delta","partial_json":"{\"n\":"}`),
			delta(0, `{"type":"input_json_delta","partial_json":""}`),
			delta(0, `{"type":"input_json_delta","partial_json":"{}"}`),
			delta(1, `{"type":"input_json_delta","partial_json":"2}"}`), ends("tool_use"), stop,
		}, `[a t.x {}][b y {"n":2}] tool_calls 321/5/300`},
		"calls sent whole": {[]string{
			start(0, `{"type":"tool_use","id":"a","name":"y","input":{"n": 1}}`),
			start(0, `{"type":"tool_use","id":"b","name":"y","input":{"n":2}}`), ends("tool_use"), stop,
		}, `[a y {"n": 1}][b y {"n":2}] tool_calls 0/5/0`},
		"a text sent whole": {
			[]string{start(0, `{"type":"text","text":"so"}`), ends("stop_sequence"), stop},
			"so end 0/5/0",
		},
		"the context is full": {[]string{
			start(0, `{"type":"text","text":"so"}`), ends("model_context_window_exceeded"),
			stop,
		}, "so length 0/5/0"},
		"a refusal": {
			[]string{start(0, `{"type":"text","text":"so"}`), ends("refusal"), stop},
			"so error: p.test: the model refused to go on",
		},
		"no message_stop": {
			[]string{start(0, `{"type":"text","text":"so"}`), ends("end_turn")},
			"so error: p.test: the model's answer broke off",
		},
		"what will come to be": {[]string{
			begin, `{"type":"news","x":1}`,
			start(0, `{"type":"server_tool_use","id":"s","name":"web"}`), delta(0, `{"type":"citations_delta","citation":{}}`),
			ends("pause_turn"), stop,
		}, " end 321/5/300"},
		"arguments of no call": {
			[]string{delta(3, `{"type":"input_json_delta","partial_json":"{}"}`), stop},
			" error: p.test: an event of the answer is not what it should be: arguments of no tool call",
		},
		"input told at the end": {[]string{
			begin,
			`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":9,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":3}}`, stop,
		}, " end 9/3/0"},
	} {
		t.Run(name, func(t *testing.T) {
			req := model.Request{Tools: []model.ToolSpec{{Name: "t.x"}, {Name: "y"}}}
			got := answer(t, wire.Options{BaseURL: "http://p.test", Model: "m", Transport: &asked{events: c.events}}, req)
			if got != c.want {
				t.Errorf("got %s\nwant %s", got, c.want)
			}
		})
	}
}

// What Claude said goes back as it came, with a signature that is empty or not
// there, and nothing of it to another model.
func TestWhatCameGoesBack(t *testing.T) {
	blocks := []string{
		`{"type":"thinking","thinking":"let me see","signature":"c2ln\/+"}`,
		`{"type":"redacted_thinking","data":"hidden"}`,
		`{"type":"text","text":"First","citations":[{"type":"page","n":1.0}]}`,
		`{"type":"thinking","thinking":"and then","signature":""}`,
		`{"type":"tool_use","id":"toolu_01","name":"y","input":{"n":1,"s":"\u00e9"},"caller":{"type":"direct"}}`,
		`{"type":"thinking","thinking":"unsigned"}`,
		`{"type":"server_tool_use","id":"s","name":"web","input":{"q":"x"}}`,
		`{"type":"tool_use","id":"toolu_02","name":"t__x","input":{}}`,
	}
	a := &asked{}
	for i, b := range blocks {
		a.events = append(a.events, fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":%s}`, i, b))
	}
	a.events = append(a.events, `{"type":"message_delta","delta":{"stop_reason":"tool_use"}}`, stop)
	options := wire.Options{Model: "claude-opus", Transport: a}
	tools := []model.ToolSpec{{Name: "t.x"}, {Name: "y"}}
	m, err := anthropic.New(options)
	if err != nil {
		t.Fatal(err)
	}
	said := modeltest.Collect(t, m.Stream(t.Context(), model.Request{Tools: tools}))
	again := func(name string) string {
		options.Model = name
		answer(t, options, model.Request{Tools: tools, Messages: []model.Message{{Role: model.User, Text: "go"}, said}})
		return modeltest.Tidy(t, a.body)
	}
	for _, want := range blocks {
		if got := again("claude-haiku"); !strings.Contains(compact(t, got), compact(t, want)) {
			t.Errorf("%s is not in the next request:\n%s", want, got)
		}
	}
	if got, want := compact(t, again("claude-opus")), strings.Join(blocks, ","); !strings.Contains(got,
		compact(t, "["+want+"]")) {
		t.Errorf("the blocks are not in order:\n%s", got)
	}
	other := again("kimi-k3")
	for _, foreign := range []string{"let me see", "hidden", "citations", "toolu_01", "caller", "server_tool_use"} {
		if strings.Contains(other, foreign) {
			t.Errorf("%q went to another model:\n%s", foreign, other)
		}
	}
}

// A block that has no type, or that was cut before it was signed, cannot go back:
// the message is its text then.
func TestBlocksThatAreNotWhole(t *testing.T) {
	for name, events := range map[string][]string{
		"no type": {`{"type":"content_block_start","index":1}`},
		"cut": {
			`{"type":"content_block_start","index":1,"content_block":{"type":"thinking","thinking":"h"}}`,
			`{"type":"message_delta","delta":{"stop_reason":"max_tokens"}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			text := `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"so"}}`
			a := &asked{events: append(append([]string{text}, events...), stop)}
			m, err := anthropic.New(wire.Options{Model: "m", Transport: a})
			if err != nil {
				t.Fatal(err)
			}
			said := modeltest.Collect(t, m.Stream(t.Context(), model.Request{}))
			modeltest.Collect(t, m.Stream(t.Context(),
				model.Request{Messages: []model.Message{{Role: model.User, Text: "go"}, said}}))
			if want := `{"role":"assistant","content":[{"type":"text","text":"so"}]}`; !strings.Contains(a.body, want) {
				t.Errorf("the next request\n%s\nwant in it\n%s", a.body, want)
			}
		})
	}
}

func compact(t *testing.T, text string) string {
	t.Helper()
	v := jsontext.Value(text)
	if err := v.Compact(jsontext.PreserveRawStrings(true)); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return string(v)
}
