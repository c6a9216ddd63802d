package openai_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"noused/internal/model"
	"noused/internal/model/modeltest"
	"noused/internal/model/openai"
	"noused/internal/model/wire"
	"noused/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.M{M: m}) }

func connect(t *testing.T, o wire.Options, h http.HandlerFunc) *openai.Model {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	o.BaseURL = server.URL + "/v1/"
	m, err := openai.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// answer reads a stream to its end.
func answer(t *testing.T, m *openai.Model, req model.Request) string {
	t.Helper()
	return modeltest.Told(m.Stream(t.Context(), req), func(u model.Usage) string {
		return fmt.Sprintf("%d/%d", u.InputTokens, u.OutputTokens)
	})
}

func delta(d string) string { return `{"choices":[{"index":0,"delta":` + d + `}]}` }

const stop = `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`

func TestRequest(t *testing.T) {
	conversation := []model.Message{
		{Role: model.User, Text: "one"},
		{Role: model.User, Text: "look", Attachments: []model.Attachment{
			{MediaType: "image/png", Data: []byte("PNG")},
			{MediaType: "audio/wav", Data: []byte("RIFF")},
		}},
		{
			Role: model.Assistant, Thinking: "hm", Maker: "messages api.anthropic.com claude",
			Blocks: []model.Block{{Kind: model.ThinkingBlock, Bytes: 2, Data: []byte(`{"signature":"s"}`)}},
			ToolCalls: []model.ToolCall{
				{ID: "call-0199", Name: "t.x", Arguments: []byte(`{"n": 1}`)},
				{ID: "call-0200", Name: "y", Arguments: []byte(`"half{"`)},
			},
		},
		{Role: model.Tool, ToolCallID: "call-0199", ToolName: "t.x", Text: "1", OK: true},
		{Role: model.Tool, ToolCallID: "call-0200", ToolName: "y", Text: "bad_request: no object"},
		{Role: model.Assistant, Text: "done\xff"},
		{Role: model.User, Text: "and?"},
	}
	for name, c := range map[string]struct {
		options wire.Options
		req     model.Request
		want    string
	}{
		"plain": {wire.Options{Model: "m"}, model.Request{Messages: conversation[:1]}, `{
			"model":"m","messages":[{"role":"user","content":"one"}],"stream":true,"stream_options":{"include_usage":true}}`},
		"all of it": {
			wire.Options{Model: "m", MaxOutputTokens: 9, APIKey: "sk-1234"},
			model.Request{System: "be brief", Messages: conversation, Tools: []model.ToolSpec{
				{Name: "t.x", Description: "does", Params: []byte(`{"type":"object","properties":{"n":{"type":"integer"}}}`)},
				{Name: "y"},
			}},
			`{
			"model":"m","messages":[
				{"role":"system","content":"be brief"},
				{"role":"user","content":[{"type":"text","text":"one\n\nlook"},{"type":"image_url","image_url":{"url":"data:image/png;base64,UE5H"}},
					{"type":"text","text":"[an attachment of type audio/wav is not shown: this provider does not take it]"}]},
				{"role":"assistant","content":null,"tool_calls":[
					{"id":"call00001","type":"function","function":{"name":"t__x","arguments":"{\"n\": 1}"}},
					{"id":"call00002","type":"function","function":{"name":"y","arguments":"{\"not_an_object\":\"half{\"}"}}]},
				{"role":"tool","content":"1","tool_call_id":"call00001","name":"t__x"},
				{"role":"tool","content":"bad_request: no object","tool_call_id":"call00002","name":"y"},
				{"role":"assistant","content":"done` + "\uFFFD" + `"},
				{"role":"user","content":"and?"}],
			"tools":[
				{"type":"function","function":{"name":"t__x","description":"does","parameters":{"type":"object","properties":{"n":{"type":"integer"}}}}},
				{"type":"function","function":{"name":"y","parameters":{"properties":{},"type":"object"}}}],
			"stream":true,"stream_options":{"include_usage":true},"max_tokens":9}`,
		},
		"extra": {
			wire.Options{Model: "m", MaxOutputTokens: 9, Extra: map[string]any{
				"max_tokens": 5, "temperature": 0.5,
				"provider": map[string]any{"order": []string{"a"}},
			}},
			model.Request{Messages: conversation[:1]},
			`{
			"max_tokens":5,"messages":[{"role":"user","content":"one"}],"model":"m","provider":{"order":["a"]},
			"stream":true,"stream_options":{"include_usage":true},"temperature":0.5}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got, authorization, path string
			m := connect(t, c.options, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				got, authorization, path = string(body), r.Header.Get("Authorization"), r.URL.Path
				_, _ = io.WriteString(w, modeltest.Events(stop, "[DONE]"))
			})
			if said := answer(t, m, c.req); said != " end 0/0" {
				t.Errorf("got %q", said)
			}
			if diff := cmp.Diff(modeltest.Tidy(t, c.want), modeltest.Tidy(t, got)); diff != "" {
				t.Errorf("the request (-want +got):\n%s", diff)
			}
			want := ""
			if c.options.APIKey != "" {
				want = "Bearer " + c.options.APIKey
			}
			if authorization != want || path != "/v1/chat/completions" {
				t.Errorf("asked %s with %q, want %q", path, authorization, want)
			}
		})
	}
}

// OpenAI itself wants the newer name of the limit.
func TestMaxCompletionTokens(t *testing.T) {
	var got string
	m, err := openai.New(wire.Options{Model: "m", MaxOutputTokens: 9, Transport: roundTrip(func(r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = r.URL.String() + string(body)
	})})
	if err != nil {
		t.Fatal(err)
	}
	answer(t, m, model.Request{})
	if !strings.HasPrefix(got, "https://api.openai.com/v1/chat/completions{") ||
		!strings.Contains(got, `"max_completion_tokens":9`) || strings.Contains(got, "max_tokens\"") {
		t.Errorf("asked %s", got)
	}
}

type roundTrip func(*http.Request)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) {
	f(r)
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{},
		Body: io.NopCloser(strings.NewReader(modeltest.Events(stop, "[DONE]"))),
	}, nil
}

// A server that refuses to be asked for usage is asked without, from then on.
func TestUsageRefused(t *testing.T) {
	var bodies []string
	m := connect(t, wire.Options{Model: "m"}, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies = append(bodies, string(body))
		if strings.Contains(string(body), "stream_options") {
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = io.WriteString(w, `{"detail":"stream_options: extra fields not permitted"}`)
			return
		}
		_, _ = io.WriteString(w, modeltest.Events(`{"choices":[{"delta":{"content":"so"}}]}`, stop, "[DONE]"))
	})
	for range 2 {
		if got := answer(t, m, model.Request{}); got != "so end 0/0" {
			t.Errorf("got %q", got)
		}
	}
	if len(bodies) != 3 {
		t.Errorf("asked %d times, want 3: %v", len(bodies), bodies)
	}
}

// What servers have been seen to send.
func TestServers(t *testing.T) {
	call := func(fragments ...string) []string {
		var events []string
		for _, f := range fragments {
			events = append(events, `{"choices":[{"index":0,"delta":{"tool_calls":[`+f+`]}}]}`)
		}
		return append(events, `{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`)
	}
	for name, c := range map[string]struct {
		events []string
		want   string
	}{
		"interleaved": {call(
			`{"index":0,"id":"a","function":{"name":"x","arguments":""}},{"index":1,"id":"b","function":{"name":"y","arguments":""}}`,
			`{"index":1,"function":{"arguments":"{\"n\":"}},{"index":0,"function":{"arguments":"{\"m\":"}}`,
			`{"index":0,"function":{"arguments":"1}"}},{"index":1,"function":{"arguments":"2}"}}`,
		), `[a x {"m":1}][b y {"n":2}] tool_calls 0/0`},
		"Ollama, all at index 0, whole": {call(
			`{"index":0,"id":"a","function":{"name":"x","arguments":"{\"n\":1}"}}`,
			`{"index":0,"id":"b","function":{"name":"x","arguments":"{\"n\":2}"}}`,
		), `[a x {"n":1}][b x {"n":2}] tool_calls 0/0`},
		"all at index 0, in pieces": {call(
			`{"index":0,"id":"a","function":{"name":"x","arguments":"{\"n\":"}}`, `{"index":0,"function":{"arguments":"1}"}}`,
			`{"index":0,"id":"b","function":{"name":"x","arguments":"{\"n\":"}}`, `{"index":0,"function":{"arguments":"2}"}}`,
		), `[a x {"n":1}][b x {"n":2}] tool_calls 0/0`},
		"the id in each piece": {call(
			`{"index":0,"id":"a","function":{"name":"x","arguments":"{\"n\":"}}`,
			`{"index":0,"id":"a","function":{"name":"x","arguments":"1}"}}`,
			`{"index":0,"id":"b","function":{"name":"x","arguments":"{}"}}`,
		), `[a x {"n":1}][b x {}] tool_calls 0/0`},
		"another id in each piece": {call(
			`{"index":0,"id":"a","function":{"name":"x","arguments":"{\"n\":"}}`,
			`{"index":0,"id":"b","function":{"arguments":"1}"}}`,
		), `[a x {"n":1}] tool_calls 0/0`},
		"the name in each piece, no id": {call(
			`{"index":0,"function":{"name":"x","arguments":"{\"n\":"}}`, `{"index":0,"function":{"name":"x","arguments":"1}"}}`,
			`{"index":0,"function":{"name":"x","arguments":"{\"n\":2}"}}`,
		), `[ x {"n":1}][ x {"n":2}] tool_calls 0/0`},
		"without an index": {call(
			`{"id":"a","function":{"name":"x","arguments":"{\"n\":"}}`, `{"function":{"arguments":"1}"}}`,
			`{"id":"b","function":{"name":"y","arguments":"{}"}}`,
		), `[a x {"n":1}][b y {}] tool_calls 0/0`},
		"whole, without index and id": {call(
			`{"function":{"name":"x","arguments":"{\"n\":1}"}},{"function":{"name":"x","arguments":"{\"n\":2}"}},{"function":{"name":"y","arguments":"{}"}}`,
		), `[ x {"n":1}][ x {"n":2}][ y {}] tool_calls 0/0`},
		"one id for all": {call(
			`{"index":0,"id":"a","function":{"name":"x","arguments":"{\"n\":1}"}}`,
			`{"index":0,"id":"a","function":{"name":"x","arguments":"{\"n\":2}"}}`,
			`{"index":1,"id":"a","function":{"name":"x","arguments":"{\"n\":3}"}}`,
		), `[a x {"n":1}][a x {"n":2}][a x {"n":3}] tool_calls 0/0`},
		"an object for arguments": {
			call(`{"index":0,"id":"a","function":{"name":"x","arguments":{"n": 1}}}`),
			`[a x {"n": 1}] tool_calls 0/0`,
		},
		"nulls": {call(`{"index":null,"id":"a","function":{"name":"x","arguments":null}}`,
			`{"id":null,"function":{"name":null,"arguments":"{}"}}`), `[a x {}] tool_calls 0/0`},
		"stop in spite of a call": {append(call(`{"index":0,"id":"a","function":{"name":"x","arguments":"{}"}}`)[:1],
			stop), `[a x {}] tool_calls 0/0`},
		"no [DONE]": {[]string{`{"choices":[{"delta":{"content":"so"}}]}`, stop}, "so end 0/0"},
		"reasoning": {[]string{
			`{"choices":[{"delta":{"reasoning":"hm","reasoning_content":"hm"}}]}`,
			`{"choices":[{"delta":{"reasoning":"!"}}]}`, stop,
		}, "<hm><!> end 0/0"},
		"a refusal": {
			[]string{`{"choices":[{"delta":{"refusal":"I must not"}}]}`, stop},
			"I must not end 0/0",
		},
		"usage in each event": {
			[]string{
				`{"choices":[{"delta":{"content":"so"}}],"usage":{"prompt_tokens":4,"completion_tokens":1}}`,
				`{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":4,"completion_tokens":2}}`,
			},
			"so end 4/2",
		},
		"a second choice": {
			[]string{`{"choices":[{"index":1,"delta":{"content":"no"}},{"index":0,"delta":{"content":"so"}}]}`, stop},
			"so end 0/0",
		},
		"a content filter": {
			[]string{`{"choices":[{"delta":{"content":"so"},"finish_reason":"content_filter"}]}`},
			"so error: HOST: the provider's content filter stopped the answer",
		},
		"OpenRouter's error": {
			[]string{
				`{"choices":[{"delta":{"content":"so"}}]}`,
				`{"error":{"code":502,"message":"Provider disconnected"},"choices":[{"delta":{},"finish_reason":"error"}]}`,
			},
			"so error: HOST: Provider disconnected",
		},
		"an error as a text": {[]string{
			`{"choices":[{"delta":{"content":"so"}}]}`,
			`{"error":"CUDA out of memory"}`,
		}, "so error: HOST: CUDA out of memory"},
		"[DONE] without a reason": {[]string{`{"choices":[{"delta":{"content":"so"}}]}`, "[DONE]"}, "so end 0/0"},
		"[DONE] in the middle of a call": {
			append(append([]string{`{"choices":[{"delta":{"content":"so"}}]}`},
				call(`{"index":0,"id":"a","function":{"name":"x","arguments":"{\"n\":"}}`)[:1]...), "[DONE]"),
			"so error: HOST: the model's answer broke off",
		},
		"[DONE] after a whole call": {append(call(`{"index":0,"id":"a","function":{"name":"x","arguments":"{}"}}`)[:1],
			"[DONE]"), "[a x {}] tool_calls 0/0"},
		"a reason of its own": {
			[]string{`{"choices":[{"delta":{"content":"so"},"finish_reason":"insufficient_system_resource"}]}`},
			`so error: HOST: the provider ended its answer with "insufficient_system_resource"`,
		},
		"numbers of other types": {
			append(call(`{"index":"0","id":"a","function":{"name":"x","arguments":""}}`,
				`{"index":0.0,"function":{"arguments":"{}"}}`),
				`{"choices":[],"usage":{"prompt_tokens":12.0,"completion_tokens":"3","prompt_tokens_details":[]}}`),
			"[a x {}] tool_calls 12/3",
		},
		"an object of reasoning": {
			[]string{`{"choices":[{"delta":{"reasoning":{"x":1},"content":"so"}}]}`, stop},
			"so end 0/0",
		},
		"no JSON, also after the reason": {[]string{
			"ping", `{"choices":[{"delta":{"content":"so"}}]}`, `{"choices":7}`, stop,
			"oops", `{"usage":{"prompt_tokens":1,"completion_tokens":1}}`,
		}, "so end 1/1"},
		"usage in the choice": {
			[]string{
				`{"choices":[{"delta":{"content":"so"},"finish_reason":"stop","usage":{"prompt_tokens":1,"completion_tokens":1}}]}`,
			}, "so end 1/1",
		},
		"Groq's usage": {
			[]string{
				`{"choices":[{"delta":{"content":"so"},"finish_reason":"stop"}],"x_groq":{"usage":{"prompt_tokens":1,"completion_tokens":1}}}`,
			}, "so end 1/1",
		},
		"typed parts": {
			[]string{
				`{"choices":[{"delta":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"so"}]}}]}`, stop,
			}, "<hm>so end 0/0",
		},
		"tags": {
			[]string{
				`{"choices":[{"delta":{"content":"\n<th"}}]}`,
				`{"choices":[{"delta":{"content":"ink>hm</"}}]}`, `{"choices":[{"delta":{"content":"b></think"}}]}`,
				`{"choices":[{"delta":{"content":">\n\n"}}]}`, `{"choices":[{"delta":{"content":"so <think>"}}]}`, stop,
			},
			"<hm><</b>>so <think> end 0/0",
		},
		"tags that never close": {
			[]string{`{"choices":[{"delta":{"content":"<think>hm</th"}}]}`, stop},
			"<hm><</th> end 0/0",
		},
		"what looks like a tag": {[]string{`{"choices":[{"delta":{"content":"<thi"}}]}`, stop}, "<thi end 0/0"},
		"an empty name": {
			call(`{"index":0,"id":"a","function":{"arguments":"{}"}}`),
			`[a  {}] tool_calls 0/0`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var host string
			m := connect(t, wire.Options{Model: "m"}, func(w http.ResponseWriter, r *http.Request) {
				host = r.Host
				_, _ = io.WriteString(w, modeltest.Events(c.events...))
			})
			got := strings.ReplaceAll(answer(t, m, model.Request{}), host, "HOST")
			if got != c.want {
				t.Errorf("got %s\nwant %s", got, c.want)
			}
		})
	}
}

// A tool is known to the model by a name that it may have, and is called by its
// own.
func TestToolNames(t *testing.T) {
	m := connect(t, wire.Options{Model: "m"}, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, modeltest.Events(
			`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"torch__light","arguments":"{}"}},`+
				`{"index":1,"id":"b","function":{"name":"never__told","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}`))
	})
	got := answer(t, m, model.Request{Tools: []model.ToolSpec{{Name: "torch.light"}}})
	if want := "[a torch.light {}][b never__told {}] tool_calls 0/0"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// What a server's model thought and signed goes back to it under the names that
// it came with, and to no other.
func TestWhatCameGoesBack(t *testing.T) {
	for name, c := range map[string]struct {
		model  string
		events []string
		want   string // the assistant message of the next request
	}{
		"DeepSeek": {
			"deepseek-v4",
			[]string{
				delta(`{"reasoning_content":"let "}`), delta(`{"reasoning_content":"me"}`), delta(`{"content":"so"}`),
				delta(`{"tool_calls":[{"index":0,"id":"call_0_a","type":"function","function":{"name":"x","arguments":"{}"}}]}`),
			},
			`{"role":"assistant","content":"so","reasoning_content":"let me","tool_calls":[{"id":"call_0_a","type":"function","function":{"name":"x","arguments":"{}"}}]}`,
		},
		"arguments with blanks": {
			"glm-5",
			[]string{
				delta(
					`{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"x","arguments":"{ \"n\":  \"\\u00e9 é\"}"}}]}`),
			},
			`{"role":"assistant","content":null,"reasoning_content":"","tool_calls":[{"id":"a","type":"function","function":{"name":"x","arguments":"{ \"n\":  \"\\u00e9 é\"}"}}]}`,
		},
		"Kimi, ids of its own": {
			"kimi-k3",
			[]string{
				delta(`{"reasoning_content":"hm"}`),
				delta(
					`{"tool_calls":[{"index":0,"id":"functions.x:0","function":{"name":"x","arguments":"{\"n\":1}"}},{"index":1,"id":"functions.x:1","function":{"name":"x","arguments":"{}"}}]}`),
			},
			`{"role":"assistant","content":null,"reasoning_content":"hm","tool_calls":[{"id":"functions.x:0","type":"function","function":{"name":"x","arguments":"{\"n\":1}"}},{"id":"functions.x:1","type":"function","function":{"name":"x","arguments":"{}"}}]}`,
		},
		"Ollama": {
			"gpt-oss",
			[]string{delta(`{"reasoning":"hm"}`), delta(`{"content":"so"}`)},
			`{"role":"assistant","content":"so","reasoning":"hm"}`,
		},
		"reasoning_text": {
			"m",
			[]string{delta(`{"reasoning_text":"hm"}`), delta(`{"content":"so"}`)},
			`{"role":"assistant","content":"so","reasoning_text":"hm"}`,
		},
		"OpenRouter": {
			"anthropic/claude",
			[]string{
				delta(`{"reasoning":"a","reasoning_details":[{"type":"reasoning.text","text":"a","format":"f","index":0}]}`),
				delta(`{"reasoning":"b","reasoning_details":[{"type":"reasoning.text","text":"b","format":"f","index":0}]}`),
				delta(`{"reasoning_details":[{"type":"reasoning.text","signature":"s\u00e9","index":0}]}`),
				delta(
					`{"reasoning_details":[{"type":"reasoning.encrypted","data":"x","id":"call_1","index":1},{"type":"reasoning.encrypted","data":"y","id":"call_1","index":1}]}`),
				delta(`{"tool_calls":[{"index":0,"id":"call_1","function":{"name":"x","arguments":"{}"}}]}`),
			},
			`{"role":"assistant","content":null,"reasoning":"ab","tool_calls":[{"id":"call_1","type":"function","function":{"name":"x","arguments":"{}"}}],` +
				`"reasoning_details":[{"type":"reasoning.text","text":"ab","format":"f","index":0,"signature":"s\u00e9"},{"type":"reasoning.encrypted","data":"x","id":"call_1","index":1},{"type":"reasoning.encrypted","data":"y","id":"call_1","index":1}]}`,
		},
		"Gemini": {
			"gemini-3",
			[]string{
				delta(`{"content":"so","extra_content":{"google":{"thought_signature":"t"}}}`),
				delta(
					`{"tool_calls":[{"index":0,"id":"function-call-1","type":"function","extra_content":{"google":{"thought_signature":"a\/b"}},"function":{"name":"x","arguments":"{}"}}]}`),
				delta(`{"tool_calls":[{"index":1,"id":"","function":{"name":"x","arguments":"{}"},"x_new":[1.0]}]}`),
			},
			`{"role":"assistant","content":"so","tool_calls":[{"id":"function-call-1","type":"function","function":{"name":"x","arguments":"{}"},"extra_content":{"google":{"thought_signature":"a\/b"}}},` +
				`{"id":"call00002","type":"function","function":{"name":"x","arguments":"{}"},"x_new":[1.0]}],"extra_content":{"google":{"thought_signature":"t"}}}`,
		},
		"Gemini, through a gateway that tells in every piece what is missing": {
			"gemini-3",
			[]string{
				delta(
					`{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":""},"extra_content":{"google":{"thought_signature":"t"}}}]}`),
				delta(`{"tool_calls":[{"index":0,"function":{"arguments":"{}"},"extra_content":null}]}`),
			},
			`{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"x","arguments":"{}"},"extra_content":{"google":{"thought_signature":"t"}}}]}`,
		},
		"tags": {
			"minimax-m3",
			[]string{delta(`{"content":"<think>\nhm</think>\n\nso"}`)},
			`{"role":"assistant","content":"<think>\nhm</think>\n\nso"}`,
		},
		"Mistral": {
			"magistral",
			[]string{
				delta(`{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}]}`),
				delta(`{"content":"so"}`),
			},
			`{"role":"assistant","content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"so"}]}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var body string
			serve := func(w http.ResponseWriter, r *http.Request) {
				sent, _ := io.ReadAll(r.Body)
				body = string(sent)
				_, _ = io.WriteString(w, modeltest.Events(append(c.events, stop)...))
			}
			server := httptest.NewServer(http.HandlerFunc(serve))
			t.Cleanup(server.Close)
			ask := func(name string, messages ...model.Message) model.Message {
				m, err := openai.New(wire.Options{BaseURL: server.URL, Model: name})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(m.Close)
				return modeltest.Collect(t, m.Stream(t.Context(), model.Request{Messages: messages}))
			}
			user := model.Message{Role: model.User, Text: "go"}
			said := ask(c.model, user)
			if ask(c.model, user, said); !strings.Contains(body, c.want) {
				t.Errorf("the next request\n%s\nwant in it\n%s", body, c.want)
			}
			ask("another-model", user, said)
			for _, foreign := range []string{"reasoning", "extra_content", "x_new", "hm", "functions.x", "call_0_a"} {
				if strings.Contains(body, foreign) {
					t.Errorf("%q went to another model: %s", foreign, body)
				}
			}
		})
	}
}

// A server that refuses its own model's call may do so behind the thinking that
// led to it; the run asks again then, as for an answer that broke off.
func TestARefusedCallBehindThinking(t *testing.T) {
	answer := modeltest.Events(`{"choices":[{"index":0,"delta":{"reasoning":"hm"}}]}`,
		`{"error":{"message":"Failed to call a function.","type":"invalid_request_error","code":"tool_use_failed"}}`)
	m := connect(t, wire.Options{Model: "m"}, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, answer)
	})
	var last error
	for _, err := range m.Stream(t.Context(), model.Request{}) {
		last = err
	}
	if !errors.Is(last, model.ErrPassing) {
		t.Errorf("got %v, want an error after which an answer is asked for again", last)
	}
}

// Text and thinking that take turns without end are refused before they fill the
// memory.
func TestTooManyBlocks(t *testing.T) {
	turns := strings.Repeat("data: "+`{"choices":[{"index":0,"delta":{"reasoning":"a","content":"b"}}]}`+"\n\n",
		wire.MaxBlocks)
	m := connect(t, wire.Options{Model: "m"}, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, turns+modeltest.Events(stop))
	})
	if got := answer(t, m, model.Request{}); !strings.Contains(got, "holds more than") {
		t.Errorf("got an answer that ends with %.100q", got[max(0, len(got)-100):])
	}
}

// DeepSeek and Kimi refuse a tool exchange without thinking in it, also one that
// another model made.
func TestForeignExchanges(t *testing.T) {
	var body string
	m := connect(t, wire.Options{Model: "deepseek-v4"}, func(w http.ResponseWriter, r *http.Request) {
		sent, _ := io.ReadAll(r.Body)
		body = string(sent)
		_, _ = io.WriteString(w, modeltest.Events(stop))
	})
	answer(t, m, model.Request{Messages: []model.Message{
		{Role: model.User, Text: "go"},
		{Role: model.Assistant, ToolCalls: []model.ToolCall{{ID: "c", Name: "x", Arguments: []byte("{}")}}},
		{Role: model.Assistant, Text: "after"},
		{Role: model.User, Text: "and?"},
		{Role: model.Assistant, Text: "plain"},
	}})
	if n := strings.Count(body, `"reasoning_content":""`); n != 2 ||
		strings.Contains(body, `"plain","reasoning_content"`) {
		t.Errorf("%d empty thoughts, want one in the call and one after it: %s", n, body)
	}
}

// A server may put anything into its answer. What would take memory or time out
// of proportion ends it.
func TestAnswersOutOfProportion(t *testing.T) {
	repeated := func(n int, item string) string { return strings.TrimSuffix(strings.Repeat(item+",", n), ",") }
	numbered := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return strings.TrimSuffix(b.String(), ",")
	}
	const tooMuch = "the message holds more than 4 MiB, 256 tool calls or 16384 blocks"
	for name, c := range map[string]struct{ stream, said string }{
		"members": {modeltest.Events(delta(`{"reasoning_details":[{` + numbered(40_000, `"m%d":1,`) + `}]}`)), tooMuch},
		"entries": {modeltest.Events(delta(`{"reasoning_details":[` + numbered(40_000, `{"index":%d},`) + `]}`)), tooMuch},
		"turns": {modeltest.Events(delta(`{"content":[` +
			repeated(40_000, `{"text":"a"},{"type":"thinking","thinking":"b"}`) + `]}`)), tooMuch},
		"names": {
			strings.Repeat(modeltest.Events(delta(`{"tool_calls":[{"id":"`+strings.Repeat("i", 1<<20)+`","function":{"name":"`+
				strings.Repeat("n", 1<<20)+`"}}]}`)), 10),
			tooMuch,
		},
		"depth": {modeltest.Events(delta(`{"content":[`+strings.Repeat(`{"thinking":[`, 1000)+`{"text":"`+
			strings.Repeat("x", 3<<20)+`"}`+strings.Repeat(`]}`, 1000)+`]}`),
			delta(`{"content":"so"}`), stop), "so end 0/0"},
	} {
		t.Run(name, func(t *testing.T) {
			m := connect(t, wire.Options{Model: "m"}, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, c.stream)
			})
			if got := answer(t, m, model.Request{}); !strings.HasSuffix(got, c.said) {
				t.Errorf("got …%s, want %s", got[max(0, len(got)-200):], c.said)
			}
		})
	}
}

// Blanks between the thinking in a content and its text are kept, and have a bound as text has.
func TestBlanksBehindThinkingAreBounded(t *testing.T) {
	for _, c := range []struct {
		pieces int
		want   string
	}{
		{60, "<x>" + strings.Repeat(" ", 60<<16) + "so end 0/0"},
		{70, "the message holds more than 4 MiB"},
	} {
		m := connect(t, wire.Options{Model: "m"}, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, modeltest.Events(delta(`{"content":"<think>x</think>"}`)))
			for range c.pieces {
				_, _ = io.WriteString(w, modeltest.Events(delta(`{"content":"`+strings.Repeat(" ", 1<<16)+`"}`)))
			}
			_, _ = io.WriteString(w, modeltest.Events(delta(`{"content":"so"}`), stop, "[DONE]"))
		})
		if got := answer(t, m, model.Request{}); !strings.Contains(got, c.want) {
			t.Errorf("%d pieces: got %.40q… of %d bytes", c.pieces, got, len(got))
		}
	}
}

// drip is a body whose parts come a second apart, then comments, for an hour or until the request is over.
type drip struct {
	parts []string
	over  context.Context
	reads int
}

func (d *drip) RoundTrip(r *http.Request) (*http.Response, error) {
	d.over = r.Context()
	header := http.Header{"Content-Type": {"text/event-stream"}}
	return &http.Response{StatusCode: http.StatusOK, Header: header, Body: d, Request: r}, nil
}

func (d *drip) Read(p []byte) (int, error) {
	select {
	case <-time.After(time.Second):
	case <-d.over.Done():
		return 0, d.over.Err()
	}
	switch d.reads++; {
	case d.reads > 3600:
		return 0, io.EOF
	case len(d.parts) == 0:
		return copy(p, ": still here\n\n"), nil
	}
	n := copy(p, d.parts[0])
	d.parts = d.parts[1:]
	return n, nil
}

func (*drip) Close() error { return nil }

// A server that leaves its stream open after the finish reason, with signs of life, is not waited for
// but a moment: for what was used, and for more of the message.
func TestAStreamThatIsLeftOpenEnds(t *testing.T) {
	so := delta(`{"content":"so"}`)
	const used = `{"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":2}}`
	for name, c := range map[string]struct {
		events []string
		want   string
		took   time.Duration
	}{
		"without usage":    {[]string{so, stop}, "so end 0/0", 7 * time.Second},
		"usage in time":    {[]string{so, stop, "", "", used}, "so end 4/2", 5 * time.Second},
		"more of the text": {[]string{stop, "", "", "", so, "", "", "", so}, "soso end 0/0", 14 * time.Second},
		"no reason yet": {
			[]string{`{"choices":[{"delta":{"content":"so"},"finish_reason":"null"}]}`, "", "", "", "", "", "", so, stop, used},
			"soso end 4/2", 10 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				body := &drip{}
				for _, e := range c.events {
					body.parts = append(body.parts, modeltest.Events(e))
				}
				m, err := openai.New(wire.Options{Model: "m", BaseURL: "http://server.test/v1", Transport: body})
				if err != nil {
					t.Fatal(err)
				}
				defer m.Close()
				begun := time.Now()
				if got := answer(t, m, model.Request{}); got != c.want || time.Since(begun) != c.took {
					t.Errorf("got %s after %v, want %s after %v", got, time.Since(begun), c.want, c.took)
				}
			})
		})
	}
}
