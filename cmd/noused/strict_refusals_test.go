package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"noused/internal/client"
	"noused/internal/model/modeltest"
	"noused/internal/protocol"
	"noused/internal/testenv"
)

// wireReaders are the wires, and how a server reads their requests.
var wireReaders = map[string]func([]byte) (heardRequest, error){
	"chat": readOpenAI, "messages": readAnthropic,
	"responses": readItems,
}

// reader has the model read the book forty times in one turn.
type reader struct {
	*strictServer
	together bool // all at once

	mu    sync.Mutex
	read  int
	wrong []string // what was asked for that is more than the window, or no conversation
}

// asksSummary tells whether a request is for a summary. That it has no tools is no
// sign: a daemon whose tools take long to start asks without them.
func asksSummary(body []byte) bool {
	return bytes.Contains(body, []byte("Summarise the conversation."))
}

func (s *reader) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	got, err := s.strictServer.read(body)
	if err == nil {
		err = inOrder(got.messages)
	}
	if len(body)/4 > longWindow {
		err = fmt.Errorf("%d tokens", len(body)/4)
	}
	s.requests++
	switch {
	case err != nil:
		s.wrong = append(s.wrong, err.Error())
		s.refuse(w, "invalid_request", err.Error())
	case asksSummary(body):
		s.summaries++
		s.say(w, len(body)/4, "The book was read so far.")
	case s.read == 40:
		s.say(w, len(body)/4, "All of it was read.")
	case s.together:
		s.read = 40
		s.call(w, len(body)/4, slices.Repeat([]string{`{"path":"book.txt"}`}, 40))
	default:
		s.read++
		s.call(w, len(body)/4, []string{`{"path":"book.txt"}`})
	}
}

// One prompt with forty large results in a small window: no request is more than
// the window, and the run completes.
func TestFortyLargeResults(t *testing.T) {
	testenv.Long(t)
	t.Setenv("TEST_KEY", "none")
	for wire, read := range wireReaders {
		for _, together := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/together=%t", wire, together), func(t *testing.T) {
				t.Parallel()
				s := &reader{strictServer: &strictServer{wire: wire, read: read}, together: together}
				server := httptest.NewServer(unlisted(s.ServeHTTP))
				t.Cleanup(server.Close)
				v := strictVendor{wire: wire}
				d := newDaemon(t, "--config", modelConfig(t, v.provider(), server.URL, testKey, v.wireLine(),
					fmt.Sprintf("context_window = %d", longWindow)))
				d.write("book.txt", strings.Repeat("what the book says\n", 1500), 0o600)
				r, err := client.Call(context.Background(), d.dial(), protocol.Prompt,
					protocol.PromptParams{Text: "read the book forty times"})
				s.mu.Lock()
				defer s.mu.Unlock()
				if err != nil || r.Result.Output != "All of it was read." || s.wrong != nil {
					t.Errorf("got %+v, %v; refused %q", r.Result, err, s.wrong)
				}
				t.Logf("%d requests, %d summaries", s.requests, s.summaries)
				if !together && s.summaries == 0 {
					t.Error("nothing was summarised")
				}
			})
		}
	}
}

// Every vendor's way to say that a request is too long makes the session
// shorter, and the run goes on.
func TestTooLongForEachVendor(t *testing.T) {
	testenv.Long(t)
	t.Setenv("TEST_KEY", "none")
	for wire, read := range wireReaders {
		t.Run(wire, func(t *testing.T) {
			t.Parallel()
			s := &strictServer{wire: wire, read: read}
			refused := map[string]int{} // by vendor
			server := httptest.NewServer(unlisted(func(w http.ResponseWriter, r *http.Request) {
				s.mu.Lock()
				defer s.mu.Unlock()
				body, _ := io.ReadAll(r.Body)
				got, err := s.read(body)
				if err == nil {
					err = inOrder(got.messages)
				}
				vendor := strings.Split(r.URL.Path, "/")[1]
				switch {
				case err != nil:
					s.refuse(w, "invalid_request", err.Error())
				case asksSummary(body):
					s.say(w, 10, "Much was said.")
				case strings.Count(string(body), "a long text") > 2500:
					refused[vendor]++
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(modeltest.TooLong[vendor].Status)
					_, _ = io.WriteString(w, modeltest.TooLong[vendor].Body)
				default:
					s.say(w, 10, "So it is.")
				}
			}))
			t.Cleanup(server.Close)
			v := strictVendor{wire: wire}
			for vendor := range modeltest.TooLong {
				t.Run(vendor, func(t *testing.T) {
					d := newDaemon(t, "--config", modelConfig(t, v.provider(), server.URL+"/"+strings.ReplaceAll(vendor, " ", "%20")+
						"/v1", testKey, v.wireLine()))
					c := d.dial()
					for n := range 3 {
						r, err := client.Call(context.Background(), c, protocol.Prompt,
							protocol.PromptParams{Text: strings.Repeat("a long text ", 1000)})
						if err != nil || r.Result.Output != "So it is." {
							t.Fatalf("prompt %d: got %+v, %v", n, r.Result, err)
						}
					}
					s.mu.Lock()
					defer s.mu.Unlock()
					if refused[vendor] != 1 {
						t.Errorf("%d requests were refused, want one", refused[vendor])
					}
				})
			}
		})
	}
}

// firstAnswers is an answer with thinking that is signed and a call of read, on each
// wire.
var firstAnswers = map[string]string{
	"chat": data(
		`{"choices":[{"delta":{"reasoning":"hm","reasoning_details":[{"type":"reasoning.text","text":"hm","signature":"SECRET"}]}}]}`,
		`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"read","arguments":"{\"path\":\"page.txt\"}"}}]},"finish_reason":"tool_calls"}]}`, "[DONE]"),
	"messages": data(`{"type":"message_start","message":{"usage":{"input_tokens":1,"output_tokens":1}}}`,
		`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"hm","signature":"SECRET"}}`,
		`{"type":"content_block_stop","index":0}`,
		`{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"c1","name":"read","input":{"path":"page.txt"}}}`, `{"type":"content_block_stop","index":1}`,
		`{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":2}}`, `{"type":"message_stop"}`),
	"responses": data(
		`{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","id":"rs_1","encrypted_content":"SECRET","summary":[]}}`,
		`{"type":"response.output_item.done","output_index":1,"item":{"type":"function_call","id":"fc_1","call_id":"c1","name":"read","arguments":"{\"path\":\"page.txt\"}"}}`,
		`{"type":"response.completed","response":{"status":"completed"}}`),
}

// has says what of a request a vendor may refuse: image, schema, opaque, calls.
func has(body string) (all string) {
	for _, part := range []struct{ name, mark string }{
		{"image", base64.StdEncoding.EncodeToString([]byte("\x89PNG\r\n\x1a\npixels"))},
		{"schema", `"exclusiveMinimum"`},
		{"opaque", "SECRET"},
		{"calls", `"c1"`},
		{"calls", `"call00001"`},
	} {
		if strings.Contains(body, part.mark) {
			all += part.name + " "
		}
	}
	return all
}

// A server that refuses what it does not like is asked in other ways until it
// takes one, which is known from then on. If it takes none, the next prompt
// begins anew.
func TestEveryRungOverHTTP(t *testing.T) {
	testenv.Long(t)
	t.Setenv("TEST_KEY", "none")
	rungs := []string{"image schema opaque calls ", "schema opaque calls ", "opaque calls ", "calls ", ""}
	for wire := range wireReaders {
		for accepted := range len(rungs) + 1 {
			t.Run(fmt.Sprintf("%s/%d", wire, accepted), func(t *testing.T) {
				t.Parallel()
				s := &strictServer{wire: wire}
				var asked []string
				refuses := false
				server := httptest.NewServer(unlisted(func(w http.ResponseWriter, r *http.Request) {
					s.mu.Lock()
					defer s.mu.Unlock()
					body, _ := io.ReadAll(r.Body)
					asked = append(asked, has(string(body)))
					switch {
					case len(asked) == 1:
						w.Header().Set("Content-Type", "text/event-stream")
						_, _ = io.WriteString(w, firstAnswers[wire])
						refuses = true
					case refuses && len(asked)-2 < accepted:
						s.refuse(w, "invalid_value", fmt.Sprintf("word %d", len(asked)-1))
					default:
						s.say(w, 10, "So.")
					}
				}))
				t.Cleanup(server.Close)
				v := strictVendor{wire: wire}
				d := newDaemon(t, "--config", modelConfig(t, v.provider(), server.URL, testKey, v.wireLine()))
				d.write("page.txt", "what the page says\n", 0o600)
				d.write("tools/limits.json",
					`{"name":"limits","kind":"tool","protocol":"narratoria","description":"Sets limits","transport":{"type":"stdio","command":["cat"]},"capabilities":["set"],
					"version":"1.0.0","operations":{"set":{"description":"Set one","params":{"type":"object","properties":{"n":{"type":"integer","exclusiveMinimum":0}}}}}}`, 0o600)
				c := d.dial()
				if _, err := client.Call(context.Background(), c, protocol.ReloadTools, protocol.ReloadToolsParams{}); err != nil {
					t.Fatal(err)
				}
				image := protocol.AttachmentParams{Data: base64.StdEncoding.EncodeToString([]byte("\x89PNG\r\n\x1a\npixels"))}
				r, err := client.Call(context.Background(), c, protocol.Prompt,
					protocol.PromptParams{Text: "look", Attachments: []protocol.AttachmentParams{image}})
				want := append([]string{"image schema "}, rungs[:min(accepted+1, len(rungs))]...)
				if accepted == len(rungs) {
					if err == nil || !strings.Contains(err.Error(), "word 1") {
						t.Errorf("got %v, want the first refusal", err)
					}
					want = append(want, rungs[0])
				} else {
					if err != nil || r.Result.Output != "So." || strings.Count(fmt.Sprintf("%s", r.Result.Events),
						`"code":"request_repaired"`) != accepted {
						t.Errorf("got %+v, %v", r.Result, err)
					}
					want = append(want, rungs[accepted])
				}
				if r, err := client.Call(context.Background(), c, protocol.Prompt, protocol.PromptParams{Text: "and now?"}); err !=
					nil || r.Result.Output != "So." {
					t.Errorf("the next prompt got %+v, %v", r.Result, err)
				}
				s.mu.Lock()
				defer s.mu.Unlock()
				if !slices.Equal(asked, want) {
					t.Errorf("asked with %q, want %q", asked, want)
				}
			})
		}
	}
}
