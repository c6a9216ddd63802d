package wire_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"noused/internal/model"
	"noused/internal/model/wire"
)

// took is how long a stream takes, in the test's own time.
func took(p provider) (told, time.Duration) {
	begin := time.Now()
	return read(context.Background(), p, hello), time.Since(begin)
}

func TestRetries(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		good := says(d.start + d.text("so") + d.finish("stop"))
		after := func(value string, status int) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", value)
				w.WriteHeader(status)
			}
		}
		for name, c := range map[string]struct {
			answers       []http.HandlerFunc // the last one for ever
			said, problem string
			asked         int
			least, most   time.Duration
		}{
			"429, Retry-After": {
				[]http.HandlerFunc{after("7", 429), good},
				"so end 11/7/3", "", 2, 7 * time.Second,
				7 * time.Second,
			},
			"a fraction": {
				[]http.HandlerFunc{after("1.5", 503), good},
				"so end 11/7/3", "", 2, 1500 * time.Millisecond,
				1500 * time.Millisecond,
			},
			"minutes": {
				[]http.HandlerFunc{after("150", 429), good},
				"so end 11/7/3", "", 2, 150 * time.Second,
				150 * time.Second,
			},
			"a date": {[]http.HandlerFunc{func(w http.ResponseWriter, r *http.Request) {
				after(time.Now().Add(20*time.Second).UTC().Format(http.TimeFormat), 503)(w, r)
			}, good}, "so end 11/7/3", "", 2, 19 * time.Second, 20 * time.Second},
			"no date": {
				[]http.HandlerFunc{after("soon", 503), good},
				"so end 11/7/3", "", 2, 500 * time.Millisecond,
				1500 * time.Millisecond,
			},
			"408, 500, 503, 529": {
				[]http.HandlerFunc{refuses(408, "", ""), refuses(500, "", ""), refuses(503, "", ""), refuses(529, "", ""), good},
				"so end 11/7/3", "", 5, 7500 * time.Millisecond, 22500 * time.Millisecond,
			},
			"for ever": {
				[]http.HandlerFunc{refuses(500, "text/plain", "out of order, "+key)},
				"",
				"500 Internal Server Error: out of order, [redacted] (tried 5 times)", 5, 7500 * time.Millisecond,
				22500 * time.Millisecond,
			},
			"overloaded, in the stream": {
				[]http.HandlerFunc{says(d.start + d.fail("overloaded_error", "Overloaded")), good},
				"so end 11/7/3", "", 2, 500 * time.Millisecond, 1500 * time.Millisecond,
			},
			"overloaded, as a 400": {
				[]http.HandlerFunc{
					refuses(400, "application/json", `{"error":{"type":"overloaded_error","message":"later"}}`),
					good,
				},
				"so end 11/7/3", "", 2, 500 * time.Millisecond, 1500 * time.Millisecond,
			},
			"no such model, as Ollama says it": {
				[]http.HandlerFunc{refuses(404, "application/json",
					`{"error":{"type":"api_error","message":"model \"x\" not found"}}`)},
				"", "404 Not Found: model \"x\" not found", 1, 0, 0,
			},
			"broken off, nothing said": {
				[]http.HandlerFunc{says(d.start), good},
				"so end 11/7/3", "", 2, 500 * time.Millisecond,
				1500 * time.Millisecond,
			},
			"an empty answer": {
				[]http.HandlerFunc{says(""), good},
				"so end 11/7/3", "", 2, 500 * time.Millisecond,
				1500 * time.Millisecond,
			},
			"half a call": {
				[]http.HandlerFunc{says(d.start + d.call(1, "a", "x", `{"n":`)), good},
				"so end 11/7/3",
				"", 2, 500 * time.Millisecond, 1500 * time.Millisecond,
			},
			"broken off, thinking": {[]http.HandlerFunc{says(d.start + d.think("hm")), good}, "<hm>", "broke off", 1, 0, 0},
			"no headers": {[]http.HandlerFunc{func(w http.ResponseWriter, _ *http.Request) {
				conn, _, _ := w.(http.Hijacker).Hijack()
				_ = conn.Close()
			}, good}, "so end 11/7/3", "", 2, 500 * time.Millisecond, 1500 * time.Millisecond},
			"400": {[]http.HandlerFunc{refuses(400, "", "")}, "", "400 Bad Request", 1, 0, 0},
			"overloaded, after a word": {[]http.HandlerFunc{says(d.start + d.text("so") +
				d.fail("overloaded_error", "Overloaded"))}, "so", "Overloaded", 1, 0, 0},
		} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					asked := 0
					var bodies []string
					p, end := d.piped(t, func(w http.ResponseWriter, r *http.Request) {
						body, _ := io.ReadAll(r.Body)
						bodies = append(bodies, string(body))
						asked++
						c.answers[min(asked, len(c.answers))-1](w, r)
					})
					defer end()
					got, took := took(p)
					got.want(t, c.said, c.problem)
					if asked != c.asked || len(got.notices) != c.asked-1 {
						t.Errorf("asked %d times with %d notices, want %d", asked, len(got.notices), c.asked)
					}
					if took < c.least || took > c.most {
						t.Errorf("took %s, want %s to %s", took, c.least, c.most)
					}
					var waited time.Duration
					for i, n := range got.notices {
						waited += n.Delay
						if n.Code != model.NoticeRetry || n.Attempt != i+2 || !strings.Contains(n.Message, "provider.test") ||
							strings.Contains(n.Message, "sk-test") {
							t.Errorf("notice %d: %+v", i, n)
						}
					}
					if waited != took {
						t.Errorf("the notices spoke of %s, it took %s", waited, took)
					}
					for _, b := range bodies {
						if b != bodies[0] {
							t.Errorf("sent %s, then %s", bodies[0], b)
						}
					}
				})
			})
		}
	})
}

func TestNobodyThere(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		synctest.Test(t, func(t *testing.T) {
			p, end := d.piped(t, nil)
			end() // before it is asked
			got, _ := took(p)
			got.want(t, "", "provider.test: no answer: connection refused (tried 5 times)")
		})
	})
}

func TestSilence(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		until := func(r *http.Request) { <-r.Context().Done() }
		for name, c := range map[string]struct {
			answer        http.HandlerFunc
			said, problem string
			took          time.Duration
		}{
			"no headers": {func(_ http.ResponseWriter, r *http.Request) {
				until(r)
			}, "", "nothing came for 1m0s", time.Minute},
			"headers only": {func(w http.ResponseWriter, r *http.Request) {
				write(w, "")
				until(r)
			}, "", "nothing came for 1m0s", time.Minute},
			"after a word": {func(w http.ResponseWriter, r *http.Request) {
				write(w, d.start+d.text("so"))
				until(r)
			}, "so", "nothing came for 1m0s", time.Minute},
			"in the middle of an event": {func(w http.ResponseWriter, r *http.Request) {
				write(w, d.start+d.text("so")+`data: {"cho`)
				until(r)
			}, "so", "nothing came for 1m0s", time.Minute},
			"in an error page": {func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(400)
				write(w, "because")
				until(r)
			}, "", "400 Bad Request: because", 10 * time.Second},
			"an error page in a slow drip": {func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(400)
				for range 1000 {
					write(w, "x")
					time.Sleep(9 * time.Second)
				}
			}, "", "400 Bad Request: xx", 10 * time.Second},
			"a slow drip": {func(w http.ResponseWriter, r *http.Request) {
				stream := d.start + d.text("so")
				for i := 0; i < len(stream); i += 50 {
					time.Sleep(59 * time.Second)
					write(w, stream[i:min(i+50, len(stream))])
				}
				write(w, d.finish("stop"))
			}, "so end 11/7/3", "", -1},
			"signs of life": {func(w http.ResponseWriter, r *http.Request) {
				for range 10 {
					write(w, ": wait\n\n")
					time.Sleep(59 * time.Second)
				}
				write(w, d.start+d.text("so")+d.finish("stop"))
			}, "so end 11/7/3", "", 590 * time.Second},
		} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p, end := d.piped(t, c.answer, limit(time.Minute))
					defer end()
					got, took := took(p)
					got.want(t, c.said, c.problem)
					if c.took >= 0 && took != c.took {
						t.Errorf("took %s, want %s", took, c.took)
					}
				})
			})
		}
	})
}

// What a consumer takes its time with is not the provider's silence.
func TestSlowConsumer(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		synctest.Test(t, func(t *testing.T) {
			p, end := d.piped(t, says(d.start+d.text("a")+d.text("b")+d.finish("stop")), limit(time.Minute))
			defer end()
			var got told
			for delta, err := range p.Stream(t.Context(), hello) {
				got.add(delta, err)
				time.Sleep(time.Hour)
			}
			got.want(t, "ab end 11/7/3", "")
		})
	})
}

var errStop = errors.New("the user said stop")

// An abort ends a stream at once, with its cause, wherever the stream is.
func TestAbort(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		for name, answer := range map[string]http.HandlerFunc{
			"while it is silent": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			"in the middle": func(w http.ResponseWriter, r *http.Request) {
				write(w, d.start+d.text("so"))
				<-r.Context().Done()
			},
			"in the middle of an event": func(w http.ResponseWriter, r *http.Request) {
				write(w, d.start+`data: {"cho`)
				<-r.Context().Done()
			},
			"while it waits": func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "60")
				w.WriteHeader(429)
			},
		} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p, end := d.piped(t, answer)
					defer end()
					ctx, cancel := context.WithCancelCause(t.Context())
					time.AfterFunc(10*time.Second, func() { cancel(errStop) })
					begin := time.Now()
					got := read(ctx, p, hello)
					if !errors.Is(got.err, errStop) || time.Since(begin) != 10*time.Second {
						t.Errorf("got %v after %s", got.err, time.Since(begin))
					}
				})
			})
		}
	})
}

// The server of a stream that is given up sees its connection closed, over TCP.
func TestClosesConnection(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		for _, breaks := range []bool{false, true} {
			gone := make(chan struct{})
			p := d.connect(t, func(w http.ResponseWriter, r *http.Request) {
				write(w, d.start+d.text("so"))
				<-r.Context().Done()
				close(gone)
			})
			ctx, cancel := context.WithCancelCause(t.Context())
			for _, err := range p.Stream(ctx, hello) {
				if breaks {
					break
				}
				if err != nil && !errors.Is(err, errStop) {
					t.Error(err)
				}
				cancel(errStop)
			}
			select {
			case <-gone:
			case <-time.After(20 * time.Second):
				t.Error("the connection stayed open")
			}
			cancel(nil)
		}
	})
}

// A consumer that breaks at a notice is not asked again, nor is the provider.
func TestBreakAtNotice(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		synctest.Test(t, func(t *testing.T) {
			var asked atomic.Int32
			p, end := d.piped(t, func(w http.ResponseWriter, _ *http.Request) {
				asked.Add(1)
				w.WriteHeader(500)
			})
			defer end()
			for range p.Stream(t.Context(), hello) {
				break
			}
			if n := asked.Load(); n != 1 {
				t.Errorf("asked %d times", n)
			}
		})
	})
}

func TestRefusals(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		for name, c := range map[string]struct {
			answer  http.HandlerFunc
			problem string
			long    bool
		}{
			"OpenAI's": {
				refuses(401, "application/json", `{"error":{"message":"Incorrect API key provided: `+key+
					`. See …","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}`),
				"401 Unauthorized: Incorrect API key provided: [redacted]. See …", false,
			},
			"Anthropic's": {refuses(400, "application/json",
				`{"type":"error","error":{"type":"invalid_request_error","message":"messages: at least one message is required"},"request_id":"req_1"}`), "400 Bad Request: messages: at least one message is required", false},
			"Gemini's": {
				refuses(400, "application/json",
					`[{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT"}}]`), "API key not valid.",
				false,
			},
			"Ollama's": {
				refuses(404, "application/json", `{"error":"model \"m\" not found, try pulling it first"}`),
				`model "m" not found, try pulling it first`, false,
			},
			"FastAPI's": {
				refuses(422, "application/json", `{"detail":[{"loc":["body"],"msg":"field required"}]}`),
				"field required", false,
			},
			"a message": {
				refuses(403, "application/json", `{"message":"not for you"}`), "403 Forbidden: not for you",
				false,
			},
			"a text": {
				refuses(400, "text/plain", "you\r\nsaid\x1b[2J  what?"),
				"400 Bad Request: you said [2J what?", false,
			},
			"nothing":             {refuses(418, "", ""), "418 I'm a teapot", false},
			"a status of its own": {refuses(499, "", ""), "499", false},
			"half a JSON": {
				refuses(400, "application/json", `{"error":{"mess`), `400 Bad Request: {"error":{"mess`,
				false,
			},
			"a long text": {refuses(400, "text/plain", strings.Repeat("é", 1<<20)), strings.Repeat("é", 499), false},
			"HTML": {refuses(403, "text/html; charset=utf-8",
				"<!DOCTYPE html><html><head><style>x</style><title>Attention\n  Required!</title></head><body>"+
					strings.Repeat("<p>blah</p>", 9999)), `403 Forbidden: a web page, "Attention Required!"`, false},
			"HTML, unlabeled": {refuses(404, "text/plain", "\n<html><body>no title"), "404 Not Found: a web page", false},
			"HTML as a 200": {
				refuses(200, "text/html", "<html><title>Log in</title>"),
				`an answer that is no event stream: a web page, "Log in"`, false,
			},
			"JSON as a 200": {
				refuses(200, "application/json", `{"error":{"message":"no credits"}}`),
				"an answer that is no event stream: no credits", false,
			},
			"the key, escaped": {
				refuses(400, "text/plain", "GET /?key=sk-test-do%2Fnot%2Btell"), "GET /?key=[redacted]",
				false,
			},
			"the key, in JSON": {refuses(400, "text/plain", `{"key":"sk-test-do\/not+tell`), `{"key":"[redacted]`, false},
			"a redirect": {func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "http://elsewhere.test/v1/x?key="+key, http.StatusTemporaryRedirect)
			}, "307 Temporary Redirect: redirects are not followed; base_url must be where the provider is: it points to " +
				"http://elsewhere.test/v1/x", false},
			"too long: OpenAI": {
				refuses(400, "application/json",
					`{"error":{"message":"This model's maximum context length is 128000 tokens.","code":"context_length_exceeded"}}`),
				"maximum context length", true,
			},
			"too long: Anthropic": {refuses(400, "application/json",
				`{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}`), "prompt is too long", true},
			"too long: the body": {
				refuses(413, "application/json",
					`{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}`),
				"exceeds the maximum size", true,
			},
			"too long: llama.cpp": {refuses(400, "application/json",
				`{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error"}}`), "available context size", true},
			"too long: Gemini": {refuses(400, "application/json",
				`[{"error":{"code":400,"message":"The input token count (2000000) exceeds the maximum number of tokens allowed (1048576)."}}]`), "input token count", true},
			"too long, as a 500": {refuses(500, "application/json",
				`{"error":{"message":"the request exceeds the available context size"}}`), "available context size", true},
			"too long, in a stream": {says(d.start + d.fail("context_length_exceeded", "Your input exceeds the context window "+
				"of this model")), "exceeds the context window", true},
		} {
			t.Run(name, func(t *testing.T) {
				asked := 0
				p := d.connect(t, func(w http.ResponseWriter, r *http.Request) {
					asked++
					c.answer(w, r)
				})
				got := read(t.Context(), p, hello)
				got.want(t, "", c.problem)
				if long := errors.Is(got.err, model.ErrContextTooLong); long != c.long {
					t.Errorf("ErrContextTooLong: %t, want %t", long, c.long)
				}
				if asked != 1 {
					t.Errorf("asked %d times", asked)
				}
				if text := got.err.Error(); len(text) > 1200 || strings.ContainsAny(text, "\n\r\x1b") {
					t.Errorf("not a short line: %q", text)
				}
				var e *wire.Error
				if !errors.As(got.err, &e) {
					t.Errorf("%T is no *wire.Error", got.err)
				}
			})
		}
	})
}
