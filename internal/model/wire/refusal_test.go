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
	"noused/internal/model/modeltest"
)

// Every vendor says in its own way that a request is too long; only what is
// learned from it makes room.
func TestTooLong(t *testing.T) {
	type refused struct {
		modeltest.Refusal
		long bool
	}
	cases := map[string]refused{
		"a wrong field": {
			modeltest.Refusal{Status: 400, Body: `{"error":{"message":"tools.0.name: must be a string"}}`},
			false,
		},
		"passed on": {modeltest.Refusal{Status: 400, Body: `{"error":{"message":"You passed the wrong tokens"}}`}, false},
	}
	for name, r := range modeltest.TooLong {
		cases[name] = refused{r, true}
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, d dialect) {
				asked := 0
				p := d.connect(t, func(w http.ResponseWriter, r *http.Request) {
					asked++
					refuses(c.Status, "application/json", c.Body)(w, r)
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

// Words inside of words are looked for as deep as there are gateways: each level
// is a copy of all that is in it.
func TestACauseInsideOfMany(t *testing.T) {
	const levels = 1000
	raw := strings.Repeat(`{"metadata":{"raw":`, levels) + quote("the innermost") + strings.Repeat(`}}`, levels)
	each(t, func(t *testing.T, d dialect) {
		p := d.connect(t, refuses(400, "application/json", `{"error":{"message":"refused","metadata":{"raw":`+raw+`}}}`))
		if got := read(t.Context(), p, hello); got.err == nil || strings.Contains(got.err.Error(), "innermost") ||
			!strings.Contains(got.err.Error(), "refused") {
			t.Errorf("got %v", got.err)
		}
	})
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
		"429 for ever": {with("Retry-After", "50", 429, ""), 7, 300 * time.Second, 300 * time.Second},
		"529 for ever": {
			with("", "", 529, `{"error":{"type":"overloaded_error","message":"Overloaded"}}`), 0,
			150 * time.Second, 300 * time.Second,
		},
		"milliseconds":      {with("Retry-After-Ms", "30000", 429, ""), 11, 300 * time.Second, 300 * time.Second},
		"a wait of nothing": {with("Retry-After-Ms", "0.001", 429, ""), 64, 295 * time.Second, 300 * time.Second},
		"Gemini's retryDelay": {with("", "", 429,
			`[{"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details.","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"37.5s"}]}}]`), 9, 300 * time.Second, 300 * time.Second},
		"no quota left": {with("", "", 429,
			`{"error":{"code":"insufficient_quota","message":"You exceeded your current quota"}}`), 1, 0, 0},
		"a bill to pay": {
			with("", "", 429, `{"error":{"code":"billing_hard_limit_reached","message":"no"}}`), 1, 0,
			0,
		},
		"a wrong key": {with("", "", 400, `{"error":{"code":"invalid_api_key","message":"no"}}`), 1, 0, 0},
		"a call Groq refused": {with("", "", 400,
			`{"error":{"code":"tool_use_failed","message":"Failed to call a function.","failed_generation":"<x"}}`), 2, 0, 0},
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
