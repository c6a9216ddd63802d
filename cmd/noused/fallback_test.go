package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"noused/internal/client"
	"noused/internal/protocol"
	"noused/internal/testenv"
)

// turnedDown is a server that answers nothing, the same way each time. It counts.
func turnedDown(t *testing.T, status int, after, body string) (url string, asked *atomic.Int32) {
	asked = new(atomic.Int32)
	s := httptest.NewServer(unlisted(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		if after != "" {
			w.Header().Set("Retry-After", after)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return s.URL, asked
}

// withFallback is a daemon whose model is at first, and whose fallback is at second.
func withFallback(t *testing.T, first, second string) *daemon {
	t.Helper()
	d := unstarted(t, "noused")
	d.write("noused/config.toml", fmt.Sprintf(`fallback = ["second/other"]
[model]
provider = "first"
name = "one"
[providers.first]
wire = "chat"
base_url = %q
[providers.second]
wire = "chat"
base_url = %q
`, first, second), 0o600)
	d.Start()
	return d
}

func fallbackWarnings(t *testing.T, events *client.Events, runID string) (told []string) {
	t.Helper()
	await(t, events, func(ev protocol.Event) bool {
		if w, ok := ev.(protocol.Warning); ok && w.Code == protocol.WarningModelFallback {
			told = append(told, w.Message)
		}
		return endOf(runID)(ev)
	})
	return told
}

// Each way to be turned down for good has the next model answer at once, and is told with the
// time after which the first is asked again.
func TestAProviderThatTurnsTheDaemonDown(t *testing.T) {
	for name, c := range map[string]struct {
		status      int
		after, body string
		want        string
	}{
		"no credit": {402, "", `{"error":{"message":"Insufficient credits"}}`, "10m0s: "},
		"no model":  {404, "", `{"error":{"message":"The model one does not exist","code":"model_not_found"}}`, "10m0s: "},
		"decommissioned": {
			400, "", `{"error":{"message":"one has been decommissioned","code":"model_decommissioned"}}`, "10m0s: ",
		},
		"no quota": {
			429, "90", `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota"}}`, "1m30s: ",
		},
		"no key": {401, "", `{"error":{"message":"wrong key"}}`, "10m0s: "},
	} {
		t.Run(name, func(t *testing.T) {
			first, asked := turnedDown(t, c.status, c.after, c.body)
			second, _ := chatStub(t)
			d := withFallback(t, first, second)
			events := d.sinceStart(d.dial())
			r, err := d.answered("hello")
			if err != nil || r.Result.Output != "I am real." {
				t.Fatalf("got %+v, %v", r.Result, err)
			}
			told := fallbackWarnings(t, events, r.Result.RunID)
			if len(told) != 1 || !strings.Contains(told[0], "first/one cannot answer, and second/other does for it") ||
				!strings.Contains(told[0], c.want) || asked.Load() != 1 {
				t.Errorf("warned %q, after %d requests", told, asked.Load())
			}
			if r, err := d.answered("again"); err != nil || r.Result.Output != "I am real." || asked.Load() != 1 {
				t.Errorf("the next prompt: %+v, %v, after %d requests", r.Result, err, asked.Load())
			}
			if m := d.now(t).Model; m.Provider != "first" {
				t.Errorf("the session's model is %+v", m)
			}
		})
	}
}

// A server that is ill is asked as long as ever before another one is.
func TestAServerThatStaysIll(t *testing.T) {
	testenv.Long(t)
	first, asked := turnedDown(t, 503, "", `{"error":{"message":"ill"}}`)
	second, _ := chatStub(t)
	d := withFallback(t, first, second)
	if r, err := d.answered("hello"); err != nil || r.Result.Output != "I am real." || asked.Load() != 5 {
		t.Errorf("got %+v, %v, after %d requests", r.Result, err, asked.Load())
	}
}

// A daemon that is killed while a fallback answers takes the run up, and it ends once.
func TestAFallbackIsKilled(t *testing.T) {
	first, asked := turnedDown(t, 402, "", `{"error":{"message":"Insufficient credits"}}`)
	second, heard := chatStub(t)
	d := withFallback(t, first, second)
	wait := false
	r, err := client.Call(context.Background(), d.dial(), protocol.Prompt, protocol.PromptParams{
		Text: "wait-for-me", Wait: &wait,
	})
	if err != nil {
		t.Fatal(err)
	}
	<-heard
	d.Kill()
	d.Start()
	await(t, d.sinceStart(d.dial()), endOf(r.Accepted.RunID))
	list, err := client.Call(context.Background(), d.dial(), protocol.GetMessages, protocol.GetMessagesParams{})
	if err != nil || len(list.Messages) != 2 ||
		!strings.Contains(string(list.Messages[1]), "I am real.") || asked.Load() != 2 {
		t.Errorf("got %+v, %v, after %d requests", list.Messages, err, asked.Load())
	}
}

// What the configuration says wrongly is told with its place.
func TestAFallbackThatIsNone(t *testing.T) {
	d := unstarted(t, "noused")
	d.write("noused/config.toml", "fallback = [\"antropic/claude\"]\n", 0o600)
	if out, status := d.doctor(); status == 0 || !strings.Contains(out,
		`config.toml:1: fallback: there is no provider "antropic"; near it are anthropic`) {
		t.Errorf("got %d %s", status, out)
	}
}
