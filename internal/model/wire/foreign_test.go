package wire_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"noused/internal/model"
)

// What foreign servers were heard to send (models-today.md §3, §4).

// A number beside it does not hide what an error is.
func TestANumberDoesNotHideTheTypeOfAnError(t *testing.T) {
	const tooLong = `{"message":"no","type":"too_many_prompt_tokens","code":400}`
	each(t, func(t *testing.T, d dialect) {
		for _, answer := range []http.HandlerFunc{
			refuses(400, "application/json", `{"error":`+tooLong+`}`),
			says(d.start + `data: {"type":"error","error":` + tooLong + "}\n\n"),
		} {
			if got := read(t.Context(), d.connect(t, answer), hello); !errors.Is(got.err, model.ErrContextTooLong) {
				t.Errorf("got %v, which is not about the length", got.err)
			}
		}
		synctest.Test(t, func(t *testing.T) {
			p, end := d.piped(t, refuses(429, "application/json",
				`{"error":{"message":"no","type":"insufficient_quota","code":429}}`))
			defer end()
			if got := read(context.Background(), p, hello); len(got.notices) != 0 {
				t.Errorf("asked %d times for what only a person can help", 1+len(got.notices))
			}
		})
	})
}

// The last line of a body that came whole needs no end; one that was cut does.
func TestALastEventWithoutALineEnd(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		stream := strings.TrimSuffix(d.start+d.text("so")+d.call(1, "a", "x", `{"n":1}`)+d.finish("calls"),
			"data: [DONE]\n\n")
		stream = strings.TrimRight(stream, "\n")
		const whole = `so[x {"n":1}] tool_calls 11/7/3`
		for name, answer := range map[string]http.HandlerFunc{
			"Content-Length": says(stream),
			"chunked":        func(w http.ResponseWriter, _ *http.Request) { write(w, stream) },
		} {
			t.Run(name, func(t *testing.T) { read(t.Context(), d.connect(t, answer), hello).want(t, whole, "") })
		}
		t.Run("a body without an end of its own", func(t *testing.T) {
			p := d.connect(t, func(w http.ResponseWriter, _ *http.Request) {
				conn, out, _ := w.(http.Hijacker).Hijack()
				_, _ = out.WriteString("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + stream)
				_ = out.Flush()
				_ = conn.Close()
			})
			if d.name == "openai" { // the finish reason has come: the usage is done without
				read(t.Context(), p, hello).want(t, `so[x {"n":1}] tool_calls 0/0/0`, "")
				return
			}
			read(t.Context(), p, hello).want(t, "so", "broke off")
		})
		t.Run("cut at every byte", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cut, asked := 0, 0
				p, end := d.piped(t, func(w http.ResponseWriter, r *http.Request) {
					if asked++; asked > 1 {
						says(stream)(w, r)
						return
					}
					says(stream[:cut])(w, r)
				})
				defer end()
				for cut = range len(stream) + 1 {
					asked = 0
					got := read(context.Background(), p, hello)
					if ok := got.err == nil && strings.HasPrefix(got.said, `so[x {"n":1}] tool_calls `); !ok &&
						(!errors.Is(got.err, model.ErrTruncated) || got.said != "so") {
						t.Fatalf("cut after %d of %d bytes: said %q, error %v, asked %d times", cut, len(stream), got.said, got.err,
							asked)
					}
				}
			})
		})
	})
}

// A gateway that begins the answer anew in the middle of its stream does not have
// the calls of both made.
func TestAMessageThatBeginsTwiceIsAskedForAgain(t *testing.T) {
	for _, d := range dialects[1:] { // chat completions have no beginning
		t.Run(d.name, func(t *testing.T) {
			call := d.call(1, "a", "x", `{"n":1}`)
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				p, end := d.piped(t, func(w http.ResponseWriter, r *http.Request) {
					if asked++; asked > 1 {
						says(d.start+call+d.finish("calls"))(w, r)
						return
					}
					says(d.start+call+d.start+d.call(1, "b", "x", `{"n":1}`)+d.finish("calls"))(w, r)
				})
				defer end()
				if read(context.Background(), p, hello).want(t, `[x {"n":1}] tool_calls 11/7/3`, ""); asked != 2 {
					t.Errorf("asked %d times, want 2", asked)
				}
			})
			got := read(t.Context(), d.connect(t, says(d.start+d.text("so")+call+d.start+call+d.finish("calls"))), hello)
			if got.want(t, "so", "begins a second time"); !errors.Is(got.err, model.ErrTruncated) {
				t.Errorf("%v is not asked for again", got.err)
			}
			read(t.Context(), d.connect(t, says(d.start+d.start+call+d.finish("calls"))), hello).want(t,
				`[x {"n":1}] tool_calls 11/7/3`, "")
		})
	}
}

// An item that is reported twice is one.
func TestACallThatIsDoneTwiceIsMadeOnce(t *testing.T) {
	d := dialects[2]
	events := strings.SplitAfter(strings.TrimSuffix(d.call(1, "a", "x", `{"n":1}`), "\n\n"), "\n\n")
	done := events[len(events)-1] + "\n\n"
	stream := d.start + d.call(1, "a", "x", `{"n":1}`) + done + done + d.finish("calls")
	read(t.Context(), d.connect(t, says(stream)), hello).want(t, `[x {"n":1}] tool_calls 11/7/3`, "")
}

// What an answer has cost is known though it ended badly.
func TestUsageOfAnAnswerThatFailed(t *testing.T) {
	chat := func(finish, more string) string {
		return dialects[0].start + dialects[0].text("so") + `data: {"choices":[{"index":0,"delta":{},"finish_reason":"` +
			finish + "\"}]}\n\n" +
			more +
			`data: {"choices":[],"usage":{"prompt_tokens":11,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":3}}}` + "\n\ndata: [DONE]\n\n"
	}
	messages := dialects[1].start + dialects[1].text("so")
	answer := dialects[2].start + dialects[2].text("so") +
		`data: {"type":"response.%s","response":{"status":%q,%s"usage":{"input_tokens":11,"output_tokens":7,"input_tokens_details":{"cached_tokens":3}}}}` + "\n\n"
	for name, c := range map[string]struct {
		d       dialect
		stream  string
		problem string
	}{
		"chat, refused":                   {dialects[0], chat("content_filter", ""), "content filter"},
		"chat, gave up":                   {dialects[0], chat("error", ""), "gave up"},
		"chat, unknown reason":            {dialects[0], chat("network_error", ""), "network_error"},
		"chat, an error after the reason": {dialects[0], chat("stop", dialects[0].fail("server_error", "late")), ""},
		"messages, refused":               {dialects[1], messages + dialects[1].finish("refusal"), "the model refused"},
		"messages, an error": {
			dialects[1], messages + strings.ReplaceAll(dialects[1].finish("stop"),
				"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n", dialects[1].fail("invalid_request_error", "no more")),
			"no more",
		},
		"responses, filtered": {dialects[2], fmt.Sprintf(answer, "incomplete", "incomplete",
			`"incomplete_details":{"reason":"content_filter"},`), "content filter"},
		"responses, failed": {
			dialects[2],
			fmt.Sprintf(answer, "failed", "failed", `"error":{"code":"invalid_prompt","message":"no more"},`), "no more",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.stream = strings.ReplaceAll(c.stream, `"stop_reason":""`, `"stop_reason":"refusal"`)
			got := told{}
			used := model.Usage{}
			for d, err := range c.d.connect(t, says(c.stream)).Stream(t.Context(), hello) {
				got.add(d, err)
				used = used.Add(d.Usage)
			}
			if want := (model.Usage{InputTokens: 11, OutputTokens: 7, CachedTokens: 3}); used != want {
				t.Errorf("used %+v, want %+v", used, want)
			}
			if c.problem == "" && got.err != nil || c.problem != "" &&
				(got.err == nil || !strings.Contains(got.err.Error(), c.problem)) {
				t.Errorf("got the error %v, want one with %q", got.err, c.problem)
			}
		})
	}
}

// llama-server reported an error on a line of its own kind.
func TestALineOfAnError(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		for line, want := range map[string]string{
			`error: {"code":500,"message":"the GPU is out of memory","type":"server_error"}`: "the GPU is out of memory",
			"error: the GPU is out of memory":                                                "the GPU is out of memory",
		} {
			for _, end := range []string{"\n\n", "\n", ""} {
				read(t.Context(), d.connect(t, says(d.start+d.text("so")+line+end)), hello).want(t, "so", want)
			}
		}
	})
}

// An event that cannot be read costs the answer only where it was the one that ends
// it, and that is asked for again.
func TestAnEndThatCannotBeReadIsAskedForAgain(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		finish := d.finish("calls")
		broken := strings.ReplaceAll(strings.ReplaceAll(finish, "}\n", "\n"), "[DONE]", "[DONE")
		synctest.Test(t, func(t *testing.T) {
			asked := 0
			p, end := d.piped(t, func(w http.ResponseWriter, r *http.Request) {
				if asked++; asked == 1 {
					says(d.start+d.call(1, "a", "x", `{"n":1}`)+broken)(w, r)
					return
				}
				says(d.start+d.call(1, "a", "x", `{"n":1}`)+finish)(w, r)
			})
			defer end()
			if read(context.Background(), p, hello).want(t, `[x {"n":1}] tool_calls 11/7/3`, ""); asked != 2 {
				t.Errorf("asked %d times, want 2", asked)
			}
		})
		got := read(t.Context(), d.connect(t, says(d.start+d.text("so")+broken)), hello)
		if got.want(t, "so", "broke off"); !errors.Is(got.err, model.ErrTruncated) {
			t.Errorf("%v is not asked for again", got.err)
		}
	})
}

// A server says when to come back. Up to the whole patience that is waited for, and
// reported; of a longer time the person is told at once.
func TestWaitsAreAsLongAsTheServerSays(t *testing.T) {
	after := func(value string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", value)
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}
	each(t, func(t *testing.T, d dialect) {
		good := says(d.start + d.text("so") + d.finish("stop"))
		for name, c := range map[string]struct {
			answers       []http.HandlerFunc
			said, problem string
			took          time.Duration
		}{
			"four minutes": {[]http.HandlerFunc{after("240"), good}, "so end 11/7/3", "", 4 * time.Minute},
			"a day":        {[]http.HandlerFunc{after("86400")}, "", "wants to be asked again in 24h0m0s", 0},
			"more in all": {
				[]http.HandlerFunc{after("200"), after("101")},
				"", "wants to be asked again in 1m41s",
				200 * time.Second,
			},
			"without end":   {[]http.HandlerFunc{after("1e300")}, "", "wants to be asked again in", 0},
			"in the year 9": {[]http.HandlerFunc{after("Fri, 31 Dec 9999 23:59:59 GMT")}, "", "wants to be asked again in", 0},
		} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					asked := 0
					p, end := d.piped(t, func(w http.ResponseWriter, r *http.Request) {
						asked++
						c.answers[min(asked, len(c.answers))-1](w, r)
					})
					defer end()
					got, took := took(p)
					got.want(t, c.said, c.problem)
					if took != c.took || asked != len(c.answers) {
						t.Errorf("asked %d times in %s, want %d in %s", asked, took, len(c.answers), c.took)
					}
				})
			})
		}
		t.Run("abort", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, end := d.piped(t, after("240"))
				defer end()
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				var got told
				for delta, err := range p.Stream(ctx, hello) {
					got.add(delta, err)
					cancel() // as the wait begins
				}
				if !errors.Is(got.err, context.Canceled) || len(got.notices) != 1 || got.notices[0].Delay != 4*time.Minute {
					t.Errorf("got %+v", got)
				}
			})
		})
	})
}

// What an attempt has kept is given back before the next one.
func TestAnAttemptGivesBackWhatItHeld(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		const size = 300 << 10
		half := d.call(1, "a", "x", `{"n":"`, strings.Repeat("y", size))
		synctest.Test(t, func(t *testing.T) {
			asked, held, most := 0, 0, 0
			p, end := d.piped(t, func(w http.ResponseWriter, r *http.Request) {
				if asked++; asked < 4 {
					says(d.start+half)(w, r)
					return
				}
				says(d.start+d.call(1, "a", "x", "{}")+d.finish("calls"))(w, r)
			})
			defer end()
			req := hello
			req.Room.Hold = func(bytes int) error {
				held += bytes
				most = max(most, held)
				return nil
			}
			got := read(context.Background(), p, req)
			if got.want(t, "[x {}] tool_calls 11/7/3", ""); asked != 4 || held < 0 || held > 4<<10 || most < size {
				t.Errorf("asked %d times; %d bytes are held in the end, were %d at most", asked, held, most)
			}
		})
	})
}

// A picture that has gone since the request was made does not come back: one
// request, and the error says what is wrong.
func TestAPictureThatIsGoneIsNotTriedAgain(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		opened := 0
		gone := model.Attachment{MediaType: "image/png", Name: "cat.png", Size: 4, Open: func() (io.ReadCloser, error) {
			opened++
			return nil, errors.New("it is gone")
		}}
		p := d.connect(t, says(d.start+d.finish("stop")))
		got := read(t.Context(), p, model.Request{Messages: []model.Message{{
			Role: model.User, Text: "look",
			Attachments: []model.Attachment{gone},
		}}})
		if got.want(t, "", "image cat.png: it is gone"); opened != 1 || len(got.notices) != 0 ||
			errors.Is(got.err, model.ErrPassing) {
			t.Errorf("opened %d times, told %+v, error %v", opened, got.notices, got.err)
		}
	})
}
