package wire_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"noused/internal/model"
)

func TestAnswers(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		whole := d.start + d.think("hm") + d.text("Grüße, 世界 🌍") + d.call(1, "a", "t__x", `{"n":`, `"ü"}`) + d.finish("calls")
		const said = `<hm>Grüße, 世界 🌍[t__x {"n":"ü"}] tool_calls 11/7/3`
		for name, c := range map[string]struct{ stream, said, problem string }{
			"a message":          {d.start + d.text("so") + d.text(" be it") + d.finish("stop"), "so be it end 11/7/3", ""},
			"nothing said":       {d.start + d.finish("stop"), " end 11/7/3", ""},
			"everything":         {whole, said, ""},
			"CR LF":              {strings.ReplaceAll(whole, "\n", "\r\n"), said, ""},
			"a byte order mark":  {"\ufeff" + whole, said, ""},
			"comments":           {": hi\n\n" + strings.ReplaceAll(whole, "\n\n", "\n\n: keep-alive\n\n"), said, ""},
			"fields of no use":   {strings.ReplaceAll(whole, "data: ", "id: 1\nretry: 5\nnonsense: x\ndata: "), said, ""},
			"no space":           {strings.ReplaceAll(whole, "data: ", "data:"), said, ""},
			"data in two lines":  {strings.ReplaceAll(whole, `data: {`, "data: {\ndata: "), said, ""},
			"no empty line last": {strings.TrimSuffix(whole, "\n"), said, ""},
			"one megabyte": {d.start + d.text(strings.Repeat("x", 1<<20)) + d.finish("stop"), strings.Repeat("x", 1<<20) +
				" end 11/7/3", ""},
			"too large an event": {
				d.start + d.text("so") + d.text(strings.Repeat("x", 4<<20)) + d.finish("stop"), "so",
				"an event of the answer is longer than 4 MiB",
			},
			"no JSON":           {d.start + d.text("so") + "data: {nonsense\n\n" + d.finish("stop"), "so end 11/7/3", ""},
			"another type":      {d.start + "data: [1]\n\n" + d.finish("stop"), " end 11/7/3", ""},
			"nothing but that":  {"data: {nonsense\n\n", "", "an event of the answer is not what it should be"},
			"bytes of no UTF-8": {d.start + d.text("a?b") + d.finish("stop"), "a?b end 11/7/3", ""},
			"half a character": {
				d.start + strings.Replace(d.text("?"), "?", `\ud83d`, 1) + d.finish("stop"),
				"\uFFFD end 11/7/3", "",
			},
			"cut at its length": {
				d.start + d.text("so") + d.call(1, "a", "x", `{"n":`) + d.finish("length"),
				`so[x {"n":] length 11/7/3`, "",
			},
			"no object": {
				d.start + d.call(1, "a", "x", `[1, oops`) + d.finish("calls"),
				`[x [1, oops] tool_calls 11/7/3`, "",
			},
			"no arguments": {d.start + d.call(1, "a", "x") + d.finish("calls"), map[string]string{
				"openai":    `[x ]`,
				"responses": `[x ]`, "anthropic": `[x {}]`,
			}[d.name] + " tool_calls 11/7/3", ""},
			"two calls": {
				d.start + d.call(1, "a", "x", `{"n":1}`) + d.call(2, "b", "x", `{"n":2}`) + d.finish("calls"),
				`[x {"n":1}][x {"n":2}] tool_calls 11/7/3`, "",
			},
			"all at index 0": {
				d.start + d.call(0, "a", "x", `{"n":1}`) + d.call(0, "b", "x", `{"n":2}`) + d.finish("calls"),
				`[x {"n":1}][x {"n":2}] tool_calls 11/7/3`, "",
			},
			"without an index": {d.start + unnumbered(d.call(7, "a", "x", `{"n":`, `1}`)+d.call(7, "b", "x", `{"n":2}`)) +
				d.finish("calls"), `[x {"n":1}][x {"n":2}] tool_calls 11/7/3`, ""},
			"too many calls": {d.start + manyCalls(d, 257) + d.finish("calls"), "", "256 tool calls"},
			"cut off":        {d.start + d.text("so"), "so", "broke off"},
			"an error": {d.start + d.text("so") + d.fail("invalid_request_error", "no "+key+" more") +
				d.finish("stop"), "so", "no [redacted] more"},
			"overloaded, late": {
				d.start + d.text("so") + d.fail("overloaded_error", "Overloaded") + d.finish("stop"), "so",
				"Overloaded",
			},
		} {
			t.Run(name, func(t *testing.T) {
				if name == "bytes of no UTF-8" {
					c.stream, c.said = strings.Replace(c.stream, "a?b", "a\xffb", 1), strings.Replace(c.said, "?", "\uFFFD", 1)
				}
				synctest.Test(t, func(t *testing.T) {
					p, end := d.piped(t, says(c.stream))
					defer end()
					got := read(t.Context(), p, hello)
					got.want(t, c.said, c.problem)
					if broken := errors.Is(got.err, model.ErrTruncated); broken != (name == "cut off" || name == "nothing but that") {
						t.Errorf("%v is ErrTruncated: %t", got.err, broken)
					}
				})
			})
		}
	})
}

func manyCalls(d dialect, n int) string {
	var all strings.Builder
	for i := range n {
		all.WriteString(d.call(0, fmt.Sprint("id", i), "x", "{}"))
	}
	return all.String()
}

// unnumbered takes the index of a call out of its events.
func unnumbered(events string) string { return strings.ReplaceAll(events, `"index":7,`, "") }

// Whatever the pieces are in which an answer comes, it says the same.
func TestByteByByte(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		stream := d.start + d.think("hm") + d.text("Grüße, 世界 🌍") + d.call(1, "a", "x", `{"n":`, `"ü"}`) + d.finish("calls")
		p := d.connect(t, func(w http.ResponseWriter, _ *http.Request) {
			for i := range len(stream) {
				write(w, stream[i:i+1])
			}
		})
		read(t.Context(), p, hello).want(t, `<hm>Grüße, 世界 🌍[x {"n":"ü"}] tool_calls 11/7/3`, "")
	})
}

// A large event that comes in single bytes takes the time that its bytes take.
func TestSlowLargeEvent(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		stream := d.start + d.text(strings.Repeat("x", 300<<10)) + d.finish("stop")
		synctest.Test(t, func(t *testing.T) {
			o := func(w http.ResponseWriter, _ *http.Request) {
				for i := 0; i < len(stream); i += 7 {
					write(w, stream[i:min(i+7, len(stream))])
				}
			}
			p, end := d.piped(t, o)
			defer end()
			read(t.Context(), p, hello).want(t, strings.Repeat("x", 300<<10)+" end 11/7/3", "")
		})
	})
}

// A connection that ends anywhere, cleanly or not, costs a retry if nothing was
// handed on yet, else the message: there is no third way, and nothing comes twice.
func TestCutAtEveryByte(t *testing.T) {
	each(t, func(t *testing.T, d dialect) {
		stream := d.start + d.text("a") + d.text("b") + d.call(1, "i", "x", `{"n":`, `1}`) + d.finish("calls")
		const whole = `ab[x {"n":1}] tool_calls 11/7/3`
		for _, clean := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				cut, asked := 0, 0
				p, end := d.piped(t, func(w http.ResponseWriter, r *http.Request) {
					if asked++; asked > 1 {
						says(stream)(w, r)
						return
					}
					conn, out, err := w.(http.Hijacker).Hijack()
					if err != nil {
						panic(err)
					}
					length := "" // without a length, the answer ends where the connection does
					if !clean {
						length = "Content-Length: 100000\r\n"
					}
					_, _ = out.WriteString("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n" + length + "\r\n" + stream[:cut])
					_ = out.Flush()
					_ = conn.Close()
				})
				defer end()
				for cut = range len(stream) + 1 {
					asked = 0
					got := read(t.Context(), p, hello)
					switch {
					case got.err == nil && (got.said == whole || strings.HasPrefix(got.said, `ab[x {"n":1}] tool_calls `) &&
						d.name == "openai"):
						// OpenAI's usage comes after the finish reason, and may be lost.
					case got.err != nil && asked == 1 && errors.Is(got.err, model.ErrTruncated) &&
						(got.said == "a" || got.said == "ab"):
					default:
						t.Fatalf("cut after %d of %d bytes (clean: %t): said %q, error %v, asked %d times", cut, len(stream), clean,
							got.said, got.err, asked)
					}
					if (len(got.notices) > 0) != (asked > 1) {
						t.Fatalf("cut after %d bytes: asked %d times with %d notices", cut, asked, len(got.notices))
					}
				}
			})
		}
	})
}
