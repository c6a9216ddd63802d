package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"

	"noused/internal/client"
	"noused/internal/protocol"
)

// eyes is a server of one wire that refuses what its vendor does of a tool's
// images, and tells the images of a request.
type eyes struct {
	name, config string
	call, answer []string // what it streams: a call of read, an answer
	images       func(body map[string]any) ([]string, error)
}

// list is a member that has to be an array of objects.
func list(o map[string]any, name string) (objects []map[string]any) {
	items, _ := o[name].([]any)
	for _, item := range items {
		object, _ := item.(map[string]any)
		objects = append(objects, object)
	}
	return objects
}

func dataURL(v any) string {
	text, _ := v.(string)
	return text[strings.IndexByte(text, ',')+1:]
}

// onChat wants texts in the messages of tools, and the images right after them.
func onChat(body map[string]any) (images []string, err error) {
	messages := list(body, "messages")
	for i, m := range messages {
		_, isText := m["content"].(string)
		switch {
		case m["role"] == "tool" && !isText:
			return nil, errors.New("messages with role tool must have a text")
		case m["role"] == "user" && !isText:
			if messages[i-1]["role"] != "tool" {
				return nil, errors.New("images without the tool that gave them")
			}
			for _, p := range list(m, "content") {
				if url, ok := p["image_url"].(map[string]any); ok {
					images = append(images, dataURL(url["url"]))
				}
			}
		}
	}
	return images, nil
}

// onMessages wants images inside of the result.
func onMessages(body map[string]any) (images []string, err error) {
	for _, m := range list(body, "messages") {
		for _, b := range list(m, "content") {
			if b["type"] == "image" {
				return nil, errors.New("an image beside the tool's result")
			}
			for _, in := range list(b, "content") {
				if source, ok := in["source"].(map[string]any); ok && in["type"] == "image" && b["type"] == "tool_result" {
					images = append(images, fmt.Sprint(source["data"]))
				}
			}
		}
	}
	return images, nil
}

// onResponses wants a list of parts for an output.
func onResponses(body map[string]any) (images []string, err error) {
	for _, item := range list(body, "input") {
		for _, p := range list(item, "output") {
			switch p["type"] {
			case "input_text":
			case "input_image":
				images = append(images, dataURL(p["image_url"]))
			default:
				return nil, fmt.Errorf("invalid value %q for an output", p["type"])
			}
		}
	}
	return images, nil
}

var allEyes = map[string]eyes{
	"chat": {
		name: "openai/gpt-test", config: `wire = "chat"`, images: onChat,
		call: []string{
			`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"read","arguments":"{\"path\":\"shot.png\"}"}}]}}]}`, `{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}`, "[DONE]",
		},
		answer: []string{
			`{"choices":[{"delta":{"content":"Seen."}}]}`, `{"choices":[{"delta":{},"finish_reason":"stop"}]}`,
			"[DONE]",
		},
	},
	"messages": {
		name: "anthropic/claude-test", images: onMessages,
		call: []string{
			`{"type":"message_start","message":{"usage":{"input_tokens":1,"output_tokens":1}}}`,
			`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"c1","name":"read","input":{}}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"path\":\"shot.png\"}"}}`, `{"type":"content_block_stop","index":0}`,
			`{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":2}}`, `{"type":"message_stop"}`,
		},
		answer: []string{
			`{"type":"message_start","message":{"usage":{"input_tokens":1,"output_tokens":1}}}`,
			`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"Seen."}}`,
			`{"type":"content_block_stop","index":0}`,
			`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}`, `{"type":"message_stop"}`,
		},
	},
	"responses": {
		name: "openai/gpt-test", config: `wire = "responses"`, images: onResponses,
		call: []string{
			`{"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","id":"fc1","call_id":"c1","name":"read","arguments":"{\"path\":\"shot.png\"}"}}`,
			`{"type":"response.completed","response":{"status":"completed"}}`,
		},
		answer: []string{
			`{"type":"response.output_text.delta","output_index":0,"delta":"Seen."}`,
			`{"type":"response.output_item.done","output_index":0,"item":{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Seen."}]}}`,
			`{"type":"response.completed","response":{"status":"completed"}}`,
		},
	},
}

// What read finds to be an image the model sees, on each wire as its vendor has
// it, and sees again when the daemon was killed and the file is gone. A branch
// has it without its parent.
func TestToolImagesOverAllWires(t *testing.T) {
	picture := "\x89PNG\r\n\x1a\n" + strings.Repeat("pixels \x00\xff", 20_000)
	for wire, e := range allEyes {
		t.Run(wire, func(t *testing.T) {
			var mu sync.Mutex
			var seen [][]string // of each request
			server := httptest.NewServer(unlisted(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				var doc map[string]any
				err := json.Unmarshal(body, &doc)
				var images []string
				if err == nil {
					images, err = e.images(doc)
				}
				if err != nil {
					t.Error(err)
					http.Error(w, fmt.Sprintf(`{"error":{"message":%q}}`, err), http.StatusBadRequest)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				if seen = append(seen, images); len(seen) == 1 {
					sse(w, e.call...)
					return
				}
				sse(w, e.answer...)
			}))
			t.Cleanup(server.Close)
			t.Setenv("TEST_KEY", "sk-never-tell")
			provider, name, _ := strings.Cut(e.name, "/")
			config := filepath.Join(t.TempDir(), "config.toml")
			if err := os.WriteFile(config,
				fmt.Appendf(nil, "[model]\nprovider = %q\nname = %q\nbase_url = %q\napi_key_env = \"TEST_KEY\"\n%s\n", provider,
					name, server.URL, e.config), 0o600); err != nil {
				t.Fatal(err)
			}
			d := newDaemon(t, "--config", config)
			ctx := context.Background()
			prompt := func(text string) {
				t.Helper()
				r, err := client.Call(ctx, d.dial(), protocol.Prompt, protocol.PromptParams{Text: text})
				if err != nil || r.Result.Output != "Seen." {
					t.Fatalf("got %+v, %v", r.Result, err)
				}
			}
			d.write("shot.png", picture, 0o600)
			prompt("what is on it?")
			d.Kill()
			if err := os.Remove(filepath.Join(d.Dir, "shot.png")); err != nil {
				t.Fatal(err)
			}
			d.Start()
			prompt("and again")

			c := d.dial()
			st, err := client.Call(ctx, c, protocol.GetState, protocol.GetStateParams{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := client.Call(ctx, c, protocol.BranchSession, protocol.BranchSessionParams{
				SessionID: st.SessionID,
				LeafID:    st.LeafID,
			}); err != nil {
				t.Fatal(err)
			}
			if _, err := client.Call(ctx, c, protocol.DeleteSession,
				protocol.DeleteSessionParams{SessionID: st.SessionID}); err != nil {
				t.Fatal(err)
			}
			prompt("in the branch")
			msgs, err := client.Call(ctx, c, protocol.GetMessages, protocol.GetMessagesParams{})
			if err != nil {
				t.Fatal(err)
			}
			shown := 0
			for _, raw := range msgs.Messages {
				var m protocol.Message
				if err := json.Unmarshal(raw, &m); err != nil {
					t.Fatal(err)
				}
				for _, a := range m.Attachments {
					data, err := os.ReadFile(a.Path)
					if shown++; m.Role != "tool" || a.Name != "shot.png" || string(data) != picture {
						t.Errorf("got %+v in a message of role %s: %d bytes, %v", a, m.Role, len(data), err)
					}
				}
			}
			if shown != 1 {
				t.Errorf("get_messages shows %d images, want one", shown)
			}
			mu.Lock()
			defer mu.Unlock()
			want := base64.StdEncoding.EncodeToString([]byte(picture))
			for i, images := range seen {
				if i > 0 && (len(images) != 1 || images[0] != want) || i == 0 && len(images) > 0 {
					t.Errorf("request %d has %d images", i, len(images))
				}
			}
			if len(seen) != 4 {
				t.Errorf("got %d requests, want 4", len(seen))
			}
		})
	}
}
