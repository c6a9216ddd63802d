package wire_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"noused/internal/model"
	"noused/internal/model/wire"
)

// canned answers every request with the same bytes.
type canned struct{ body func() io.Reader }

func (c canned) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}},
		Body: io.NopCloser(c.body()),
	}, nil
}

// Whatever a server sends: deltas that can be told, one end, and the same
// whatever the pieces in which it comes.
func fuzzAnswer(f *testing.F, d dialect) {
	f.Add(d.start + d.think("hm") + d.text("ü") + d.call(1, "a", "x", `{"n":`, `1}`) + d.finish("calls"))
	f.Add(strings.ReplaceAll(d.start+d.call(0, "a", "x", "{}")+d.call(0, "b", "y", "{}")+d.finish("length"), "\n", "\r\n"))
	f.Add(": x\n\n" + unnumbered(d.call(7, "a", "x", "{}")+d.call(7, "", "x", "{}")) + d.finish("calls"))
	f.Add(d.start + d.text("so") + d.fail("overloaded_error", "no"))
	f.Add("data: {}\n\ndata: [DONE]\r\rdata\n\n")
	f.Fuzz(func(t *testing.T, stream string) {
		var said []told
		for _, body := range []func() io.Reader{
			func() io.Reader { return strings.NewReader(stream) },
			func() io.Reader { return iotest.OneByteReader(bytes.NewReader([]byte(stream))) },
		} {
			p := d.at(t, "http://provider.test", func(o *wire.Options) { o.Transport = canned{body} })
			var got told
			kept := model.Message{Role: model.Assistant}
			ends := 0
			for delta, err := range p.Stream(t.Context(), hello) {
				if ends > 0 {
					t.Fatalf("%+v, %v after the end", delta, err)
				}
				if err != nil || delta.Stop != "" {
					ends++
				}
				if !utf8.ValidString(delta.Text) || !utf8.ValidString(delta.Thinking) {
					t.Fatalf("not UTF-8: %+v", delta)
				}
				got.add(delta, err)
				kept.Text, kept.Thinking = kept.Text+delta.Text, kept.Thinking+delta.Thinking
				if delta.ToolCall != nil {
					kept.ToolCalls = append(kept.ToolCalls, *delta.ToolCall)
				}
				if kept.Blocks = delta.Blocks; delta.Stop != "" && len(delta.Blocks) > 0 {
					if _, fits := kept.Pieces(); !fits {
						t.Fatalf("the blocks do not fit the message: %+v", kept)
					}
				}
				if delta.Notice != nil { // do not wait for the next attempt
					ends++
					break
				}
			}
			if ends != 1 {
				t.Fatalf("%d ends", ends)
			}
			if got.err != nil && (got.err.Error() == "" || strings.ContainsAny(got.err.Error(), "\n\r")) {
				t.Fatalf("not a line: %q", got.err)
			}
			said = append(said, got)
		}
		if said[0].said != said[1].said || (said[0].err == nil) != (said[1].err == nil) {
			t.Fatalf("at once %+v, byte by byte %+v", said[0], said[1])
		}
	})
}

func FuzzOpenAI(f *testing.F)    { fuzzAnswer(f, dialects[0]) }
func FuzzAnthropic(f *testing.F) { fuzzAnswer(f, dialects[1]) }
func FuzzResponses(f *testing.F) { fuzzAnswer(f, dialects[2]) }
