package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"noused/internal/daemontest"
	"noused/internal/model/modeltest"
)

// The files of the folder that the pictures are taken in.
const (
	pictureQueue = `package queue

// Take returns the oldest entry.
func (q *Queue) Take() (string, bool) {
	if len(q.entries) == 0 {
		return "", false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	first := q.entries[0]
	q.entries = q.entries[1:]
	return first, true
}
`
	pictureCheck = `#!/bin/sh
if grep -A1 'func (q' queue.go | grep -q Lock; then echo "ok   queue  20 runs"; exit 0; fi
echo "=== RUN   TestTake"
echo "--- FAIL: TestTake (0.01s)"
echo "panic: runtime error: index out of range [0] with length 0"
echo "    queue.go:10"
echo "FAIL queue  run 7 of 20"
exit 1
`
)

type pictureStep struct {
	thinking, text string
	tool, args     string
	calls          []string // arguments of more calls of the tool
	holds          string   // what has to be released before it ends
}

// pictureSteps are what the model says to the first prompt, call by call.
var pictureSteps = []pictureStep{
	{
		thinking: "It fails now and then, so something is read without its lock.",
		text:     "I run the test until it fails.", tool: "bash", args: `{"command":"./check TestTake"}`,
	},
	{text: "The panic is in `Take`.", tool: "read", args: `{"path":"queue.go"}`},
	{
		text: "The length is read before the lock is taken, so two callers can both find the last entry.", tool: "edit",
		args: `{"path":"queue.go","old_text":"\tif len(q.entries) == 0 {\n\t\treturn \"\", false\n\t}\n\tq.mu.Lock()\n\tdefer q.mu.Unlock()\n","new_text":"\tq.mu.Lock()\n\tdefer q.mu.Unlock()\n\tif len(q.entries) == 0 {\n\t\treturn \"\", false\n\t}\n"}`,
	},
	{tool: "bash", args: `{"command":"./check TestTake"}`},
	{text: "Mended. `Take` asked for the length **before** it had the lock:\n\n- now it locks first, then looks\n- 20 " +
		"runs of `TestTake` pass"},
}

// pictureModel is a server of a model that says these steps, and a word to any
// other prompt. A step that holds waits for its channel.
func pictureModel(t *testing.T, holds map[string]chan struct{}) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		step := pictureStep{text: "Nothing yet."}
		switch {
		case strings.Contains(string(body), "Publish"):
			step = pictureStep{
				text: "The tag is made. It has to go to the server.", tool: "bash",
				args: `{"command":"git push origin v0.9.0","outside_sandbox":true,"reason":"the sandbox has no keys of ssh"}`,
			}
		case strings.Contains(string(body), "now and then"):
			step = pictureSteps[min(strings.Count(string(body), `"role":"tool"`), len(pictureSteps)-1)]
		}
		if scene := pictureSceneOf(string(body)); scene != nil {
			step = *scene
		}
		events := step.events(len(body) / 4)
		if step.holds != "" {
			fmt.Fprint(w, modeltest.Events(events[0]))
			w.(http.Flusher).Flush()
			select {
			case <-holds[step.holds]:
			case <-r.Context().Done():
			}
			events = events[1:]
		}
		fmt.Fprint(w, modeltest.Events(events...))
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func (s pictureStep) events(in int) []string {
	delta := map[string]any{"content": s.text, "reasoning_content": s.thinking}
	why := "stop"
	if s.tool != "" {
		why = "tool_calls"
		var calls []any
		for i, args := range append([]string{s.args}, s.calls...) {
			calls = append(calls, map[string]any{
				"index": i, "id": fmt.Sprintf("c%d-%d", in, i), "type": "function",
				"function": map[string]any{"name": s.tool, "arguments": args},
			})
		}
		delta["tool_calls"] = calls
	}
	choice := func(delta map[string]any, why any) string {
		text, err := json.Marshal(map[string]any{
			"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": why}},
			"usage":   map[string]any{"prompt_tokens": in, "completion_tokens": 20 + len(s.text)/4},
		})
		if err != nil {
			panic(err)
		}
		return string(text)
	}
	return []string{choice(delta, nil), choice(map[string]any{}, why), "[DONE]"}
}

// The pictures of docs/ are of a real session; make pictures writes them.
func TestPictures(t *testing.T) {
	dir := os.Getenv("NOUS_PICTURES")
	if dir == "" {
		t.Skip("NOUS_PICTURES says where to write them")
	}
	t.Setenv("PICTURE_KEY", "none")
	holds := map[string]chan struct{}{"explore": make(chan struct{}), "background": make(chan struct{})}
	config := fmt.Sprintf(
		"[model]\nprovider = \"openai\"\nname = \"qwen3-coder\"\nbase_url = %q\napi_key_env = \"PICTURE_KEY\"\n",
		pictureModel(t, holds))
	d := daemontest.New(t, program(t, "noused"), config)
	for name, text := range map[string]string{
		"queue.go": pictureQueue, "check": pictureCheck, "login.go": pictureLogin,
	} {
		if err := os.WriteFile(filepath.Join(d.Dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	d.Start()
	picture := func(s picturedScreen, name string) {
		t.Helper()
		if s.light {
			name += "-light"
		}
		if err := os.WriteFile(filepath.Join(dir, name+".svg"), []byte(s.SVG()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	l := look{cols: 92, rows: 50, env: []string{"COLORTERM=truecolor"}}
	dark := picturedScreen{openScreen(t, d, l), false}
	s := dark.screen
	for _, other := range []string{"Slow start on old disks", "Weekly report"} {
		s.say("/new " + other)
		s.Wait("· " + other)
		s.say("What do we know about it?")
		s.Wait("Nothing yet.", "idle")
	}
	s.say("/new A test that fails now and then")
	s.Wait("· A test that fails now and then")
	s.say("TestTake fails now and then. Find out why, and mend it.")
	s.Wait("runs of TestTake pass", "model calls)", "idle")
	s.WaitFor("what was used", filled) // it is asked for a moment later
	s.Press("ctrl+l")                  // nothing is said by the way
	picture(dark, "tui-conversation")
	l.light = true
	light := picturedScreen{openScreen(t, d, l), true}
	light.Wait("runs of TestTake pass")
	light.WaitFor("what was used", filled)
	picture(light, "tui-conversation")
	for _, s := range []picturedScreen{dark, light} {
		s.Type(keyF7)
		s.Wait("Changes", "queue.go", "@@")
		picture(s, "tui-changes")
		s.Type("q")
		s.Wait("runs of TestTake pass")
	}

	s.say("/new Release 0.9")
	s.Wait("· Release 0.9")
	s.say("Publish the release.")
	s.Wait("Allow bash to run OUTSIDE", "git push origin")
	s.Press("ctrl+l")
	picture(dark, "tui-approval")
	light.Press("ctrl+r")
	light.Wait("Sessions", "Release 0.9")
	light.Type("Release 0.9\r")
	light.Wait("Allow bash to run OUTSIDE", "git push origin")
	light.Press("ctrl+l")
	picture(light, "tui-approval")
	for _, s := range []picturedScreen{dark, light} {
		s.Type(keyF4)
		s.Wait("Weekly report", "Slow start on old disks", "Release 0.9")
		picture(s, "tui-board")
	}
	s.Press("esc")
	s.WaitGone("Slow start")
	s.say("/abort")
	s.Wait("the run was aborted")
	picturesOfChildren(dark, holds, picture)
	fresh := daemontest.New(t, program(t, "noused"), "[model]\n# provider = none\n")
	fresh.Modelless = true
	fresh.Start()
	for _, l := range []look{{cols: 92, rows: 20, env: l.env}, {cols: 92, rows: 20, env: l.env, light: true}} {
		s := picturedScreen{openScreen(t, fresh, l), l.light}
		s.Wait("No model is chosen yet")
		picture(s, "tui-first")
	}
}

// picturedScreen is a screen of a dark or a light terminal.
type picturedScreen struct {
	*screen
	light bool
}

func filled(screen string) bool {
	return strings.Contains(screen, "context ") && !strings.Contains(screen, "context 0%")
}
