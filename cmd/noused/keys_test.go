package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-json-experiment/json"
)

// blabber is a provider of both wires that repeats the key it is sent wherever
// it can: in headers, in errors, among its models. A chat with it fails and is
// tried again, calls two tools, ends, breaks off, and is refused from then on.
func blabber(t *testing.T) *httptest.Server {
	var chats atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ") + r.Header.Get("X-Api-Key")
		if !strings.HasPrefix(key, "sk-do-not-tell-") {
			t.Errorf("asked for %s without a key", r.URL)
		}
		w.Header().Set("X-Your-Key", key)
		complain := func(status int) {
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"error":{"message":"not with %s","type":"%s","code":"%s"}}`, key, key, key)
		}
		switch {
		case r.URL.Path == "/v1/models" && r.Header.Get("X-Api-Key") != "":
			complain(http.StatusInternalServerError)
		case r.URL.Path == "/v1/models":
			fmt.Fprintf(w, `{"data":[{"id":%q},{"id":"gpt-6"}]}`, key)
		default:
			w.Header().Set("Content-Type", "text/event-stream")
			switch chats.Add(1) {
			case 1:
				w.Header().Set("Retry-After", "0.01")
				complain(http.StatusInternalServerError)
			case 2:
				command, _ := json.Marshal(`{"command":"env; cat /proc/self/environ /proc/$PPID/environ | tr '\\0' '\\n'"}`)
				const call = `{"choices":[{"delta":{"tool_calls":[{"index":%d,"id":"%d","type":"function","function":{"name":%q,"arguments":%s}}]}}]}`
				sse(w, fmt.Sprintf(call, 0, 0, "bash", command), fmt.Sprintf(call, 1, 1, "sh__say", `"{}"`),
					`{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}`, "[DONE]")
			case 3:
				sse(w, `{"choices":[{"delta":{"content":"Done."}}]}`, `{"choices":[{"delta":{},"finish_reason":"stop"}]}`, "[DONE]")
			case 4:
				sse(w, `{"choices":[{"delta":{"content":"Well,"}}]}`, fmt.Sprintf(`{"error":{"message":"full of %s","type":%q}}`,
					key, key))
			default:
				complain(http.StatusUnauthorized)
			}
		}
	}))
	t.Cleanup(server.Close)
	return server
}

// A key in the daemon's environment is nobody else's business: it is in no
// event, reply, log, file, process list or tool's environment, whatever goes
// wrong and no matter who repeats it.
func TestKeysStayWithTheDaemon(t *testing.T) {
	const key = "sk-do-not-tell-4711"
	for _, name := range []string{
		"OPENAI_API_KEY", "ANTHROPIC_API_KEY", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN",
		"MY_PASSWORD",
	} {
		t.Setenv(name, key)
	}
	server := blabber(t)
	t.Setenv("OPENAI_BASE_URL", server.URL+"/v1")
	t.Setenv("ANTHROPIC_BASE_URL", server.URL)
	d := newDaemon(t, "--log-level", "debug", "--model", "openai/gpt-5")
	d.Stop()
	d.write("tools/sh.json", shellTool, 0o600)
	d.write("tools/tool.sh", `#!/bin/sh
cat >/dev/null
env >&2
cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' ' ' >cmdlines
printf '{"version":"0","type":"done","ok":true,"summary":"%s"}\n' "$(env | tr '\n"\\' '   ')"
`, 0o700)
	d.Start()
	secret := func(where string, text []byte) {
		t.Helper()
		if bytes.Contains(text, []byte(key)) {
			t.Errorf("%s tells it: %.2000s", where, text)
		}
	}
	events := dialWire(t, d.Socket+".events")
	w := d.commands()
	replies := map[string]string{}
	for i, command := range []string{
		`"type":"list_models"`,
		`"type":"list_models","payload":{"probe":true}`,
		`"type":"prompt","payload":{"text":"show me","idempotency_key":"once"}`,
		`"type":"prompt","payload":{"text":"and again"}`,
		`"type":"prompt","payload":{"text":"and now?"}`,
		`"type":"compact_session"`,
		`"type":"get_state"`, `"type":"get_messages"`, `"type":"get_tree"`, `"type":"list_sessions"`, `"type":"list_tools"`,
		`"type":"reload_tools"`,
		`"type":"search_sessions","payload":{"text":"sk-"}`,
	} {
		w.send(fmt.Sprintf(`{"id":"%d",%s}`, i, command))
		line, err := w.in.Next()
		if err != nil {
			t.Fatal(err)
		}
		secret("the reply to "+command, line)
		replies[command] = string(line)
	}
	for command, want := range map[string][]string{
		`"type":"list_models","payload":{"probe":true}`: {
			`"openai/gpt-6"`,
			`500 Internal Server Error: not with [redacted]`,
		},
		`"type":"prompt","payload":{"text":"show me","idempotency_key":"once"}`: {
			`"output":"Done."`,
			`"attempt":2,"delay_ms":10`, `500 Internal Server Error: not with [redacted]`,
		},
		`"type":"prompt","payload":{"text":"and again"}`: {`provider_error`, `full of [redacted]`},
		`"type":"prompt","payload":{"text":"and now?"}`: {
			`provider_error`,
			`401 Unauthorized: not with [redacted]`,
		},
		`"type":"get_messages"`: {"PATH=", "Done."},
	} {
		for _, want := range want {
			if !strings.Contains(replies[command], want) {
				t.Errorf("got %.3000s to %s, want it to have %s", replies[command], command, want)
			}
		}
	}
	if got := strings.Count(replies[`"type":"get_messages"`], "PATH="); got < 3 {
		t.Errorf("got %d environments, want those of both tools:\n%s", got, replies[`"type":"get_messages"`])
	}
	for ends := 0; ends < 3; {
		line, err := events.in.Next()
		if err != nil {
			t.Fatal(err)
		}
		secret("an event", line)
		if bytes.Contains(line, []byte(`"type":"agent_end"`)) {
			ends++
		}
	}
	for _, flag := range []string{"--json=false", "--json"} {
		out, _ := d.doctor(flag)
		secret("doctor", []byte(out))
		wantLines(t, out, "its server answers, but does not list it; the nearest it has: gpt-6")
	}
	d.Stop()
	secret("the log", d.Log.Bytes())
	if !strings.Contains(d.Log.String(), "[redacted]") {
		t.Error("the log says nothing of the errors")
	}
	commands, err := os.ReadFile(filepath.Join(d.Dir, "cmdlines"))
	if err != nil || !bytes.Contains(commands, []byte("--model openai/gpt-5")) ||
		!bytes.Contains(commands, []byte("tool.sh")) {
		t.Errorf("got the processes %s (%v), want the daemon and its tool among them", commands, err)
	}
	if err := filepath.WalkDir(d.Dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		secret(path, text)
		return err
	}); err != nil {
		t.Fatal(err)
	}
}
