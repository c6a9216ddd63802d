package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"noused/internal/client"
	"noused/internal/protocol"
)

// An image by path and one by base64 go to either provider as they are, and go
// again from the daemon's own copies when the daemon was killed and the file is
// gone.
func TestImagesOverBothWires(t *testing.T) {
	picture := "\x89PNG\r\n\x1a\n" + strings.Repeat("pixels \x00\xff", 20_000)
	photo := "\xff\xd8\xff\xe0 a photo"
	inBase64 := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	for name, c := range map[string]struct {
		want  []string // of the content of the message with images
		reply []string
	}{
		"openai/gpt-test": {
			want: []string{
				`{"text":"look","type":"text"}`,
				`{"image_url":{"url":"data:image/png;base64,` + inBase64(picture) + `"},"type":"image_url"}`,
				`{"image_url":{"url":"data:image/jpeg;base64,` + inBase64(photo) + `"},"type":"image_url"}`,
			},
			reply: []string{
				`{"choices":[{"delta":{"content":"Seen."}}]}`, `{"choices":[{"delta":{},"finish_reason":"stop"}]}`,
				"[DONE]",
			},
		},
		"anthropic/claude-test": {
			want: []string{
				`{"source":{"data":"` + inBase64(picture) + `","media_type":"image/png","type":"base64"},"type":"image"}`,
				`{"source":{"data":"` + inBase64(photo) + `","media_type":"image/jpeg","type":"base64"},"type":"image"}`,
				`{"text":"look","type":"text"}`,
			},
			reply: []string{
				`{"type":"message_start","message":{"usage":{"input_tokens":1,"output_tokens":1}}}`,
				`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"Seen."}}`,
				`{"type":"content_block_stop","index":0}`,
				`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}`,
				`{"type":"message_stop"}`,
			},
		},
	} {
		t.Run(strings.ReplaceAll(name, "/", "-"), func(t *testing.T) {
			var mu sync.Mutex
			var shown []string // contents of all messages that have images
			d, _ := provided(t, name, func(_ int, r request, w http.ResponseWriter) {
				mu.Lock()
				defer mu.Unlock()
				for _, m := range r.Messages {
					parts, _ := m.Content.([]any)
					var content []string
					for _, part := range parts {
						fields, _ := part.(map[string]any)
						delete(fields, "cache_control")
						text, err := json.Marshal(part, json.Deterministic(true))
						if err != nil {
							t.Error(err)
						}
						content = append(content, string(text))
					}
					if len(content) > 1 {
						shown = append(shown, strings.Join(content, "\n"))
					}
				}
				sse(w, c.reply...)
			})
			d.write("shots/a.png", picture, 0o600)
			r, err := client.Call(context.Background(), d.dial(), protocol.Prompt,
				protocol.PromptParams{Text: "look", Attachments: []protocol.AttachmentParams{
					{Path: "shots/a.png"}, // from the daemon's workdir
					{Data: inBase64(photo), Name: "a photo"},
				}})
			if err != nil || r.Result.Output != "Seen." {
				t.Fatalf("got %+v, %v", r.Result, err)
			}
			d.Kill()
			if err := os.Remove(filepath.Join(d.Dir, "shots", "a.png")); err != nil {
				t.Fatal(err)
			}
			d.Start()
			if r, err = client.Call(context.Background(), d.dial(), protocol.Prompt,
				protocol.PromptParams{Text: "and again"}); err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			defer mu.Unlock()
			want := strings.Join(c.want, "\n")
			if len(shown) != 2 || shown[0] != want || shown[1] != want {
				t.Errorf("the provider was shown %d times:\n%.3000s\nwant twice\n%.3000s", len(shown), strings.Join(shown, "\n\n"),
					want)
			}
		})
	}
}

// What is wrong with an attachment comes as a reply of its own on the line's
// connection, which goes on; a named pipe that nobody writes to holds up nobody.
func TestWrongAttachmentsOverTheSocket(t *testing.T) {
	d := newDaemon(t, "--max-line", "100000")
	if err := unix.Mkfifo(filepath.Join(d.Dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := d.commands()
	for i, c := range []struct{ attachments, want string }{
		{`[{"path":"/dev/zero"}]`, `invalid_payload: attachments[0].path: "/dev/zero": is a device, want a file`},
		{`[{"path":"pipe"}]`, `invalid_payload: attachments[0].path: "` + filepath.Join(d.Dir, "pipe") +
			`": is a named pipe, want a file`},
		{`[{"path":"state"}]`, `invalid_payload: attachments[0].path: "` + filepath.Join(d.Dir, "state") +
			`": is a directory, want a file`},
		{`[{"data":"!"}]`, "invalid_payload: attachments[0].data: is not base64: "},
		{`[{"data":"` + strings.Repeat("A", 100_000) + `"}]`, "invalid_command: line_too_long: "},
		{`[{}]`, "invalid_payload: attachments[0]: want a path or data, got neither"},
		{`[{"path":7}]`, "invalid_payload: attachments[0].path: got a number, want a string"},
	} {
		r := w.request(fmt.Sprintf(`{"id":"%d","type":"prompt","payload":{"text":"look","attachments":%s}}`, i, c.attachments))
		if r.ID != fmt.Sprint(i) || r.Error == nil || !strings.Contains(r.Error.Error(), c.want) {
			t.Errorf("%.80s: got %.300v, want %s", c.attachments, r.Error, c.want)
		}
	}
	if st := into[protocol.State](t, w.request(`{"id":"s","type":"get_state"}`)); st.RunState != "idle" ||
		st.Usage.InputTokens != 0 {
		t.Errorf("something was run: %+v", st)
	}
}
