package responses_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"noused/internal/model"
	"noused/internal/model/modeltest"
	"noused/internal/model/responses"
	"noused/internal/model/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server answers with the same events and keeps the last request.
type server struct {
	*httptest.Server
	events []string
	body   string
	header http.Header
	refuse func(body string) string
}

func serve(t *testing.T, events ...string) *server {
	t.Helper()
	s := &server{events: events}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.body, s.header = string(body), r.Header
		if s.refuse != nil {
			if why := s.refuse(s.body); why != "" {
				w.WriteHeader(http.StatusBadRequest)
				_, _ = fmt.Fprintf(w, `{"error":{"message":%q,"type":"invalid_request_error"}}`, why)
				return
			}
		}
		if r.URL.Path != "/v1/responses" {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = io.WriteString(w, strings.ReplaceAll(modeltest.Events(s.events...), "data: ", "event: x\ndata: "))
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *server) model(t *testing.T, name string) *responses.Model {
	t.Helper()
	m, err := responses.New(wire.Options{BaseURL: s.URL + "/v1", Model: name, APIKey: "sk-1234"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func answer(t *testing.T, m *responses.Model, req model.Request) string {
	t.Helper()
	return modeltest.Told(m.Stream(t.Context(), req), func(u model.Usage) string {
		return fmt.Sprintf("%d/%d/%d/%d", u.InputTokens, u.OutputTokens, u.CachedTokens, u.ReasoningTokens)
	})
}

const completed = `{"type":"response.completed","response":{"status":"completed","usage":{"input_tokens":9,"output_tokens":5,"input_tokens_details":{"cached_tokens":3},"output_tokens_details":{"reasoning_tokens":2}}}}`

func added(i int, item string) string {
	return fmt.Sprintf(`{"type":"response.output_item.added","output_index":%d,"item":%s}`, i, item)
}

func done(i int, item string) string {
	return fmt.Sprintf(`{"type":"response.output_item.done","output_index":%d,"item":%s}`, i, item)
}

func delta(i int, kind, text string) string {
	return fmt.Sprintf(`{"type":"response.%s.delta","output_index":%d,"delta":%q}`, kind, i, text)
}

func TestAnswers(t *testing.T) {
	const message = `{"type":"message","role":"assistant","content":[{"type":"output_text","text":"so"}]}`
	const call = `{"type":"function_call","id":"fc_1","call_id":"call_1","name":"t__x","arguments":"{\"n\":1}","status":"completed"}`
	for name, c := range map[string]struct {
		events []string
		want   string
	}{
		"a text": {
			[]string{
				`{"type":"response.created","response":{"status":"in_progress"}}`,
				added(0, `{"type":"message","content":[]}`), delta(0, "output_text", "s"), delta(0, "output_text", "o"),
				done(0, message), completed,
			},
			"so end 9/5/3/2",
		},
		"thinking in parts": {[]string{
			added(0, `{"type":"reasoning","summary":[]}`), `{"type":"response.reasoning_summary_part.added","output_index":0}`,
			delta(0, "reasoning_summary_text", "a"),
			`{"type":"response.reasoning_summary_part.added","output_index":0}`, delta(0, "reasoning_summary_text", "b"),
			done(0, `{"type":"reasoning","summary":[]}`), done(1, message), completed,
		}, "<a><\n\nb>so end 9/5/3/2"},
		"calls": {[]string{
			added(0, `{"type":"function_call","call_id":"call_1","name":"t__x","arguments":""}`),
			delta(0, "function_call_arguments", `{"n":`), done(0, call), done(1, strings.ReplaceAll(call, "call_1", "call_2")),
			completed,
		}, `[call_1 t.x {"n":1}][call_2 t.x {"n":1}] tool_calls 9/5/3/2`},
		"whole items only": {[]string{
			done(0, `{"type":"reasoning","summary":[{"text":"hm"},{"text":"!"}]}`),
			done(1, message), completed,
		}, "<hm\n\n!>so end 9/5/3/2"},
		"all at the end": {[]string{`{"type":"response.completed","response":{"status":"completed","output":[` +
			message + `,` + call + `]}}`}, `so[call_1 t.x {"n":1}] tool_calls 0/0/0/0`},
		"no index": {[]string{`{"type":"response.output_text.delta","delta":"so"}`, completed}, "so end 9/5/3/2"},
		"a refusal": {
			[]string{added(0, `{"type":"message"}`), delta(0, "refusal", "I must not"), completed},
			"I must not end 9/5/3/2",
		},
		"cut": {[]string{
			delta(0, "output_text", "so"),
			`{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}}}`,
		}, "so length 0/0/0/0"},
		"a content filter": {[]string{
			delta(0, "output_text", "so"),
			`{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"content_filter"}}}`,
		}, "so error: HOST: the provider's content filter stopped the answer"},
		"a reason of its own": {
			[]string{
				delta(0, "output_text", "so"),
				`{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"moon"}}}`,
			},
			`so error: HOST: the provider ended its answer with "moon"`,
		},
		"failed": {[]string{
			delta(0, "output_text", "so"),
			`{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"out of order"}}}`,
		}, "so error: HOST: out of order"},
		"an error": {[]string{
			delta(0, "output_text", "so"),
			`{"type":"error","code":"server_error","message":"out of order"}`,
		}, "so error: HOST: out of order"},
		"broken off": {[]string{delta(0, "output_text", "so")}, "so error: HOST: the model's answer broke off"},
		"what will come to be": {[]string{
			`{"type":"news"}`, "no JSON",
			`{"type":"response.output_text.delta","delta":{"x":1}}`, done(0, `{"type":"web_search_call","id":"w"}`),
			done(1, message), completed,
		}, "so end 9/5/3/2"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, c.events...)
			got := strings.ReplaceAll(answer(t, s.model(t, "gpt-5"), model.Request{Tools: []model.ToolSpec{{Name: "t.x"}}}),
				s.Listener.Addr().String(), "HOST")
			if got != c.want {
				t.Errorf("got %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestRequest(t *testing.T) {
	s := serve(t, completed)
	answer(t, s.model(t, "gpt-5"), model.Request{
		SessionID: "ses-1", System: "be brief",
		Tools: []model.ToolSpec{{Name: "t.x", Description: "does", Params: []byte(`{"type":"object","properties":{}}`)}},
		Messages: []model.Message{
			{Role: model.User, Text: "one"},
			{Role: model.User, Text: "look", Attachments: []model.Attachment{
				{MediaType: "image/png", Data: []byte("PNG")},
				{MediaType: "audio/wav"},
			}},
			{
				Role: model.Assistant, Text: "so",
				ToolCalls: []model.ToolCall{{ID: "call-0199", Name: "t.x", Arguments: []byte(`{"n": 1}`)}},
			},
			{Role: model.Tool, ToolCallID: "call-0199", ToolName: "t.x", Text: "1", OK: true},
		},
	})
	want := `{"model":"gpt-5","instructions":"be brief","input":[
		{"role":"user","content":[{"type":"input_text","text":"one\n\nlook"},{"type":"input_image","image_url":"data:image/png;base64,UE5H"},
			{"type":"input_text","text":"[an attachment of type audio/wav is not shown: this provider does not take it]"}]},
		{"role":"assistant","content":"so"},
		{"type":"function_call","call_id":"call00001","name":"t__x","arguments":"{\"n\": 1}"},
		{"type":"function_call_output","call_id":"call00001","output":"1"}],
		"tools":[{"type":"function","name":"t__x","description":"does","parameters":{"type":"object","properties":{}},"strict":false}],
		"reasoning":{"summary":"auto"},"include":["reasoning.encrypted_content"],"prompt_cache_key":"ses-1","store":false,"stream":true}`
	if diff := cmp.Diff(modeltest.Tidy(t, want), modeltest.Tidy(t, s.body)); diff != "" {
		t.Errorf("the request (-want +got):\n%s", diff)
	}
	if got := s.header.Get("Authorization"); got != "Bearer sk-1234" {
		t.Errorf("asked with the authorization %q", got)
	}
}

// Every item goes back byte for byte and in order, and nothing of it to another
// model but the text and the calls.
func TestWhatCameGoesBack(t *testing.T) {
	items := []string{
		`{"type":"reasoning","id":"rs_1","encrypted_content":"gAAA\/+\u00e9","summary":[{"type":"summary_text","text":"hm"}],"n":1.0}`,
		`{"type":"message","id":"msg_1","role":"assistant","phase":"commentary","status":"completed","content":[{"type":"output_text","text":"so","annotations":[]}]}`,
		`{"type":"web_search_call","id":"ws_1","status":"completed"}`,
		`{"type":"function_call","id":"fc_1","call_id":"call_a","name":"x","arguments":"{ \"n\": 1 }","status":"completed"}`,
		`{"type":"reasoning","id":"rs_2","encrypted_content":"gBBB","summary":[]}`,
		`{"type":"function_call","id":"fc_2","call_id":"call_b","name":"x","arguments":"{}","status":"completed"}`,
	}
	var events []string
	for i, item := range items {
		events = append(events, done(i, item))
	}
	s := serve(t, append(events, completed)...)
	user := model.Message{Role: model.User, Text: "go"}
	said := modeltest.Collect(t, s.model(t, "gpt-5.1").Stream(t.Context(), model.Request{Messages: []model.Message{user}}))
	answer(t, s.model(t, "gpt-5.2"), model.Request{Messages: []model.Message{
		user, said, {Role: model.Tool, ToolCallID: "call_a", Text: "1", OK: true}, {
			Role: model.Tool, ToolCallID: "call_b",
			Text: "2", OK: true,
		},
	}})
	want := strings.Join(items, ",") +
		`,{"type":"function_call_output","call_id":"call_a","output":"1"},{"type":"function_call_output","call_id":"call_b","output":"2"}]`
	if !strings.Contains(s.body, want) {
		t.Errorf("the next request\n%s\nwant in it\n%s", s.body, want)
	}
	answer(t, s.model(t, "qwen3"), model.Request{Messages: []model.Message{user, said}})
	for _, foreign := range []string{"gAAA", "gBBB", "rs_1", "ws_1", "fc_1", "call_a", "phase", "hm"} {
		if strings.Contains(s.body, foreign) {
			t.Errorf("%q went to another model: %s", foreign, s.body)
		}
	}
}

// A result names its call, also where a server gave a call no id, or two the same.
func TestCallsWithoutIDsOfTheirOwn(t *testing.T) {
	s := serve(t, done(0, `{"type":"function_call","id":"fc_1","name":"x","arguments":"{}"}`),
		done(1, `{"type":"function_call","call_id":"a","name":"x","arguments":"{}"}`),
		done(2, `{"type":"function_call","call_id":"a","name":"x","arguments":"{}"}`), completed)
	user := model.Message{Role: model.User, Text: "go"}
	said := modeltest.Collect(t, s.model(t, "m").Stream(t.Context(), model.Request{Messages: []model.Message{user}}))
	next := []model.Message{user, said}
	for i := range said.ToolCalls {
		said.ToolCalls[i].ID = fmt.Sprint("call-", i) // as the session does
		next = append(next, model.Message{Role: model.Tool, ToolCallID: said.ToolCalls[i].ID, Text: "done", OK: true})
	}
	answer(t, s.model(t, "m"), model.Request{Messages: next})
	for _, id := range []string{"fc_1", "a", "call00003"} {
		if n := strings.Count(s.body, `"call_id":"`+id+`"`); n != 2 {
			t.Errorf("%s is there %d times, want it in a call and in its result: %s", id, n, s.body)
		}
	}
}

// Models that do not reason refuse to be asked for what reasoning leaves.
func TestModelsWithoutReasoning(t *testing.T) {
	for name, c := range map[string]struct{ refused, why string }{
		"nothing to encrypt": {"encrypted_content", "Encrypted content is not supported with this model."},
		"no such member":     {"encrypted_content", "Unknown parameter: 'include'."},
		"no summaries":       {`"summary"`, "Your organization must be verified to generate reasoning summaries."},
		"no reasoning":       {`"reasoning":{`, "Unsupported parameter: 'reasoning' is not supported with this model."},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, delta(0, "output_text", "so"), completed)
			asked := 0
			s.refuse = func(body string) string {
				if asked++; strings.Contains(body, c.refused) {
					return c.why
				}
				return ""
			}
			m := s.model(t, "gpt-4.1")
			for range 2 {
				if got := answer(t, m, model.Request{}); got != "so end 9/5/3/2" {
					t.Errorf("got %q", got)
				}
			}
			if asked != 3 {
				t.Errorf("asked %d times, want 3: the refusal is learned from", asked)
			}
		})
	}
}

// A refusal that only has the word in it costs no later request its reasoning.
func TestARefusalThatIncludesTheWord(t *testing.T) {
	s := serve(t, delta(0, "output_text", "so"), completed)
	refused := false
	s.refuse = func(string) string {
		if refused {
			return ""
		}
		refused = true
		return "The messages must include at least one text part."
	}
	m := s.model(t, "gpt-5")
	if got := answer(t, m, model.Request{}); !strings.Contains(got, "must include") {
		t.Errorf("got %q, want the refusal", got)
	}
	if answer(t, m, model.Request{}); !strings.Contains(s.body, "reasoning.encrypted_content") {
		t.Errorf("the next request asks for no reasoning: %s", s.body)
	}
}
