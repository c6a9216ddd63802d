package bridge

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"noused/internal/acp"
)

// provider is the address of one that ends what it says for the reason that its
// requests name.
func provider(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/chat/completions") {
			http.NotFound(w, r)
			return
		}
		reason := r.Header.Get("X-Reason")
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"so far\"},\"finish_reason\":%q}]}\n\n",
			reason)
		fmt.Fprint(w, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":40,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n")
	}))
	t.Cleanup(s.Close)
	return s.URL + "/v1"
}

// Why a turn ended is what the prompt is answered with.
func TestStopReasons(t *testing.T) {
	url := provider(t)
	config := "[model]\nmax_steps = 1\ncontext_window = 5000\n"
	for _, reason := range []string{"stop", "length", "content_filter"} {
		config += "[providers." + reason + "]\nbase_url = \"" + url + "\"\nheaders = { X-Reason = \"" + reason +
			"\" }\nmodels = [\"m\"]\n"
	}
	d := startDaemon(t, config)
	e := newEditor(t, d.Socket)
	s := e.open(d.Dir)
	if got := e.say(s, "!ls {}"); got != acp.MaxTurnRequests {
		t.Errorf("after the last step: got %s, want max_turn_requests", got)
	}
	for reason, want := range map[string]acp.StopReason{
		"stop": acp.EndTurn, "length": acp.MaxTokens,
		"content_filter": acp.Refusal,
	} {
		e.must(acp.SetConfigOption, `{"sessionId":"`+s+`","configId":"model","value":"`+reason+`/m"}`)
		if got := e.say(s, "go"); got != want {
			t.Errorf("%s: got %s, want %s", reason, got, want)
		}
	}
}

// How full the window is is told when it is known, and what it cost.
func TestUsage(t *testing.T) {
	d := startDaemon(t,
		"[model]\nprovider = \"here\"\nname = \"m\"\ncontext_window = 5000\n[providers.here]\nbase_url = \""+provider(t)+
			"\"\nheaders = { X-Reason = \"stop\" }\n")
	e := newEditor(t, d.Socket)
	s := e.open(d.Dir)
	e.say(s, "go")
	u, _ := e.awaitUpdate(s, 0, "how full the window is", func(u update) bool {
		return u.Kind == "usage_update" && u.Used > 0
	})
	if u.Used != 42 || u.Size != 5000 {
		t.Errorf("got %d of %d tokens, want 42 of 5000", u.Used, u.Size)
	}
}

// A run that has reached a limit asks whether it goes on; it is shown as a call of
// its own, which is over when somebody has answered.
func TestARunAtItsLimitAsks(t *testing.T) {
	d := startDaemon(t, "[limits]\nrun_tokens = 3\n")
	e := newEditor(t, d.Socket)
	s := e.open(d.Dir)
	for option, want := range map[string]acp.StopReason{"continue": acp.EndTurn, "deny": acp.MaxTurnRequests} {
		from := e.mark()
		id := e.prompt(s, "one two three four\n!ls {}")
		m, _ := e.await(from, "the approval", func(m message) bool { return m.Method == acp.RequestPermission })
		p := permission(t, m)
		kinds := map[string]string{}
		for _, o := range p.Options {
			kinds[o.ID] = o.Kind
		}
		if diff := cmp.Diff(map[string]string{"continue": acp.AllowOnce, "deny": acp.RejectOnce}, kinds); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		e.answerWith(func(message) string { return option }) // each time the limit is reached
		e.answer(m.ID, option)
		if got := e.stop(id); got != want {
			t.Errorf("%s: got %s, want %s", option, got, want)
		}
		e.awaitUpdate(s, from, "that the approval is over", func(u update) bool {
			return u.ID == p.ToolCall.ID && u.Status == acp.Completed
		})
		e.answerWith(nil)
	}
}

// What a tool shows is shown, in a replay too; what is too much for an editor at once, and
// what lies on another machine, is named.
func TestImagesOfTools(t *testing.T) {
	const gif = "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
	d := startDaemon(t, "")
	dot, err := base64.StdEncoding.DecodeString(gif)
	if err != nil {
		t.Fatal(err)
	}
	d.Write("dot.gif", string(dot))
	d.Write("large.gif", string(dot)+strings.Repeat("\x00", maxImages))
	e := newEditor(t, d.Socket)
	s := e.open(d.Dir)
	e.say(s, "!read {\"path\":\"dot.gif\"}\n!read {\"path\":\"large.gif\"}")
	image, link := `"image","data":"`+gif+`","mimeType":"image/gif"`, `"resource_link"`
	shows := func(e *editor, from int, want ...string) {
		t.Helper()
		var got []string
		for _, u := range e.updates(s, from, -1) {
			if u.Status == acp.Completed {
				got = append(got, string(u.Content))
			}
		}
		if len(got) != len(want) {
			t.Fatalf("got %d results, want %d", len(got), len(want))
		}
		for i := range want {
			if !strings.Contains(got[i], want[i]) {
				t.Errorf("result %d is %.300s, want %s in it", i, got[i], want[i])
			}
		}
	}
	load := `{"sessionId":"` + s + `","cwd":"/","mcpServers":[]}`
	shows(e, 0, image, link)
	from := e.mark()
	e.must(acp.SessionLoad, load)
	shows(e, from, image, link)
	far := openEditor(t, d.Socket, func(o *Options) { o.Local = false })
	far.must(acp.Initialize, `{"protocolVersion":1}`)
	far.must(acp.SessionLoad, load)
	shows(far, 0, link, link)
}

// Calls that a cancel left unmade are over, live and in a replay.
func TestCallsThatWereNotMade(t *testing.T) {
	d := slowDaemon(t, "")
	e := newEditor(t, d.Socket)
	s := e.open(d.Dir)
	id := e.prompt(s, "!slow.run\n!ls {}")
	e.awaitUpdate(s, 0, "the tool", func(u update) bool { return u.Status == acp.InProgress })
	e.notify(acp.SessionCancel, `{"sessionId":"`+s+`"}`)
	e.stop(id)
	want := []string{"call: slow.run {} failed", "call: ls failed"}
	if diff := cmp.Diff(want, conversation(e.updates(s, 0, -1))); diff != "" {
		t.Errorf("live (-want +got):\n%s", diff)
	}
	from := e.mark()
	e.must(acp.SessionLoad, `{"sessionId":"`+s+`","cwd":"/","mcpServers":[]}`)
	if diff := cmp.Diff(append([]string{"user: !slow.run\n!ls {}"}, want...),
		conversation(e.updates(s, from, -1))); diff != "" {
		t.Errorf("a replay (-want +got):\n%s", diff)
	}
}
