package wire_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"noused/internal/model"
)

// Every vendor says in its own way that a request is too long; only what is
// learned from it makes room.
func TestTooLong(t *testing.T) {
	message := func(text string) string {
		return `{"error":{"message":` + `"` + text + `","type":"invalid_request_error"}}`
	}
	for name, c := range map[string]struct {
		status int
		body   string
		long   bool
	}{
		"Ollama":             {400, `{"error":"prompt too long; exceeded max context length by 12 tokens"}`, true},
		"vLLM":               {400, message("You passed 9000 input tokens and requested 100 output tokens"), true},
		"vLLM, older":        {400, message("The decoder prompt (length 9000) is longer than the maximum model length of 8192"), true},
		"Perplexity":         {400, `{"error":{"type":"too_many_prompt_tokens","message":"too long"}}`, true},
		"Kimi":               {400, message("Invalid request: Your request exceeded model token limit: 262144"), true},
		"MiniMax":            {400, message("invalid params, context window exceeds limit (2013)"), true},
		"z.ai":               {400, `{"error":{"code":"1261","message":"Prompt exceeds max length"}}`, true},
		"Qwen":               {400, message("<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]"), true},
		"Copilot":            {400, message("prompt token count of 170000 exceeds the limit of 128000"), true},
		"SGLang":             {400, message("The input (9000 tokens) is longer than the model's context length (8192 tokens)."), true},
		"Together":           {422, message("Input validation error: must have less than 8192 tokens"), true},
		"TGI":                {422, `{"error":"Input validation error: ` + "`inputs` tokens + `max_new_tokens` must be <= 4096" + `"}`, true},
		"LM Studio":          {400, `{"error":"Trying to keep the first 9000 tokens when context the overflows."}`, true},
		"Cohere":             {400, `{"message":"too many tokens: size limit exceeded"}`, true},
		"OpenAI, one string": {400, `{"error":{"code":"string_above_max_length","message":"Invalid 'input[0].content': string too long."}}`, true},
		"OpenAI, TPM":        {429, message("Request too large for gpt-5 in organization o on tokens per min (TPM): Limit 30000, Requested 45000."), true},
		"Groq, TPM":          {413, message("Request too large for model x on tokens per minute (TPM): Limit 6000, Requested 7000"), true},
		"OpenRouter":         {400, `{"error":{"code":400,"message":"Provider returned error","metadata":{"provider_name":"Z.AI","raw":"{\"error\":{\"code\":\"1261\",\"message\":\"Prompt exceeds max length\"}}"}}}`, true},
		"a wrong field":      {400, message("tools.0.name: must be a string"), false},
		"passed on":          {400, message("You passed the wrong tokens"), false},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, d dialect) {
				asked := 0
				p := d.connect(t, func(w http.ResponseWriter, r *http.Request) {
					asked++
					refuses(c.status, "application/json", c.body)(w, r)
				})
				got := read(t.Context(), p, hello)
				if long := errors.Is(got.err, model.ErrContextTooLong); long != c.long || asked != 1 {
					t.Errorf("asked %d times, ErrContextTooLong %t, want once, %t: %v", asked, long, c.long, got.err)
				}
				if rejected := errors.Is(got.err, model.ErrRejected); rejected == c.long {
					t.Errorf("ErrRejected: %t: %v", rejected, got.err)
				}
			})
		})
	}
}

// What a gateway hands on is what a person is told.
func TestTheRealCause(t *testing.T) {
	for raw, want := range map[string]string{
		`"{\"error\":{\"message\":\"schema of tool x is wrong\"}}"`: "400 Bad Request: Vendor: schema of tool x is wrong",
		`{"error":{"message":"schema of tool x is wrong"}}`:         "400 Bad Request: Vendor: schema of tool x is wrong",
		`"schema of tool x is wrong"`:                               "400 Bad Request: Vendor: schema of tool x is wrong",
		`""`:                                                        "400 Bad Request: Provider returned error",
		`7`:                                                         "400 Bad Request: Provider returned error",
	} {
		each(t, func(t *testing.T, d dialect) {
			p := d.connect(t, refuses(400, "application/json",
				`{"error":{"code":400,"message":"Provider returned error","metadata":{"provider_name":"Vendor","raw":`+raw+`}}}`))
			read(t.Context(), p, hello).want(t, "", want)
		})
	}
}

// How long a provider that has too much to do is waited for, and what nobody
// waits for.
func TestPatience(t *testing.T) {
	with := func(name, value string, status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if name != "" {
				w.Header().Set(name, value)
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	for name, c := range map[string]struct {
		answer      http.HandlerFunc
		asked       int
		least, most time.Duration
	}{
		"429 for ever":          {with("Retry-After", "50", 429, ""), 7, 300 * time.Second, 300 * time.Second},
		"529 for ever":          {with("", "", 529, `{"error":{"type":"overloaded_error","message":"Overloaded"}}`), 0, 150 * time.Second, 300 * time.Second},
		"milliseconds":          {with("Retry-After-Ms", "30000", 429, ""), 11, 300 * time.Second, 300 * time.Second},
		"Gemini's retryDelay":   {with("", "", 429, `[{"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details.","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"37.5s"}]}}]`), 9, 300 * time.Second, 300 * time.Second},
		"no quota left":         {with("", "", 429, `{"error":{"code":"insufficient_quota","message":"You exceeded your current quota"}}`), 1, 0, 0},
		"a bill to pay":         {with("", "", 429, `{"error":{"code":"billing_hard_limit_reached","message":"no"}}`), 1, 0, 0},
		"a wrong key":           {with("", "", 400, `{"error":{"code":"invalid_api_key","message":"no"}}`), 1, 0, 0},
		"a call Groq refused":   {with("", "", 400, `{"error":{"code":"tool_use_failed","message":"Failed to call a function.","failed_generation":"<x"}}`), 2, 0, 0},
		"a request nobody took": {with("", "", 400, `{"error":{"message":"no"}}`), 1, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, d dialect) {
				synctest.Test(t, func(t *testing.T) {
					asked := 0
					p, end := d.piped(t, func(w http.ResponseWriter, r *http.Request) {
						_, _ = io.Copy(io.Discard, r.Body)
						asked++
						c.answer(w, r)
					})
					defer end()
					got, took := took(p)
					if got.err == nil || strings.Contains(got.said, "so") {
						t.Errorf("got %+v, want an error", got)
					}
					if c.asked > 0 && asked != c.asked || took < c.least || took > c.most {
						t.Errorf("asked %d times in %s, want %d in %s to %s", asked, took, c.asked, c.least, c.most)
					}
				})
			})
		})
	}
}
