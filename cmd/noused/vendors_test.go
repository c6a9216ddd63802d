package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/pflag"

	"noused/internal/client"
	"noused/internal/model"
	"noused/internal/protocol"
)

// vendor is a server of models over chat completions that keeps what it is asked.
type vendor struct {
	*httptest.Server
	mu     sync.Mutex
	bodies []string
	header http.Header
	lists  int
}

func newVendor(t *testing.T, list string) *vendor {
	v := &vendor{}
	v.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		v.mu.Lock()
		defer v.mu.Unlock()
		v.header = r.Header
		if r.Method == http.MethodGet {
			v.lists++
			fmt.Fprint(w, list)
			return
		}
		v.bodies = append(v.bodies, string(body))
		w.Header().Set("Content-Type", "text/event-stream")
		sse(w, `{"choices":[{"delta":{"content":"Hello."}}]}`, `{"choices":[{"delta":{},"finish_reason":"stop"}]}`,
			`{"choices":[],"usage":{"prompt_tokens":1000,"completion_tokens":100,"prompt_tokens_details":{"cached_tokens":400}}}`, "[DONE]")
	}))
	t.Cleanup(v.Close)
	return v
}

func (v *vendor) last() (body string, header http.Header, lists int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.bodies) > 0 {
		body = v.bodies[len(v.bodies)-1]
	}
	return body, v.header, v.lists
}

// configured is a daemon with the text as its config.toml, and another as its
// models.toml.
func configured(t *testing.T, text, facts string, args ...string) *daemon {
	t.Helper()
	d := unstarted(t, "noused", args...)
	d.write("noused/config.toml", text, 0o600)
	d.write("noused/models.toml", facts, 0o600)
	d.Start()
	return d
}

func (d *daemon) answered(text string) (protocol.PromptReply, error) {
	return client.Call(context.Background(), d.dial(), protocol.Prompt,
		protocol.PromptParams{Text: text, Approvals: "deny"})
}

func (d *daemon) now(t *testing.T) protocol.State {
	t.Helper()
	st, err := client.Call(context.Background(), d.dial(), protocol.GetState, protocol.GetStateParams{})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func (d *daemon) set(t *testing.T, p protocol.SetModelParams) {
	t.Helper()
	if _, err := client.Call(context.Background(), d.dial(), protocol.SetModel, p); err != nil {
		t.Fatalf("%+v: %v", p, err)
	}
}

// Two providers side by side: each is asked with its own key, headers and extra,
// and a known one needs nothing but what it is called.
func TestNamedProviders(t *testing.T) {
	mine, zai := newVendor(t, `{"data":[{"id":"m","max_model_len":32768}]}`), newVendor(t, `{"data":[]}`)
	t.Setenv("MY_KEY", "sk-mine")
	t.Setenv("ZAI_API_KEY", "sk-zai")
	d := configured(t, fmt.Sprintf(`[model]
provider = "mine"
name = "m"
[providers.mine]
base_url = %q
api_key_env = "MY_KEY"
headers = { X-Team = "sesame-street" }
models = ["m", "n"]
[providers.mine.extra]
top_k = 7
[providers.zai]
base_url = %q
`, mine.URL+"/v1", zai.URL+"/v1"), "")
	if got := d.now(t); got.Context.Window != 128_000 {
		t.Errorf("got the window %d before anybody was asked, want 128000", got.Context.Window)
	}
	for range 2 {
		if r, err := d.answered("hello"); err != nil || r.Result.Output != "Hello." {
			t.Fatalf("got %+v, %v", r.Result, err)
		}
	}
	body, header, lists := mine.last()
	if header.Get("Authorization") != "Bearer sk-mine" || header.Get("X-Team") != "sesame-street" ||
		!strings.Contains(body, `"top_k":7`) || lists != 1 {
		t.Errorf("got %v %s, asked %d times for the list", header, body, lists)
	}
	if st := d.now(t); st.Context.Window != 32_768 || st.Usage.Cost != nil {
		t.Errorf("got the window %d and the cost %v, want what the server says, and none", st.Context.Window, st.Usage.Cost)
	}
	d.set(t, protocol.SetModelParams{Model: "zai/glm-4.7", Effort: "high"})
	if _, err := d.answered("hello"); err != nil {
		t.Fatal(err)
	}
	body, header, lists = zai.last()
	if header.Get("Authorization") != "Bearer sk-zai" || header.Get("X-Team") != "" || strings.Contains(body, "top_k") ||
		lists != 0 || !strings.Contains(body, `"thinking":{"type":"enabled"}`) {
		t.Errorf("the other got %v %s, asked %d times for the list", header, body, lists)
	}
	if st := d.now(t); st.Context.Window != 204_800 || st.Model.Effort != "high" || st.Usage.Cost == nil {
		t.Errorf("got %+v, %+v, %+v, want what the catalogue knows", st.Context, st.Model, st.Usage)
	}
	_, err := client.Call(t.Context(), d.dial(), protocol.SetModel, protocol.SetModelParams{
		Model:  "zai/glm-4.7",
		Effort: "low",
	})
	if err == nil || !strings.Contains(err.Error(),
		"effort: zai/glm-4.7 has no effort low, but none, high (says the catalogue of ") {
		t.Errorf("got %v, want the efforts", err)
	}
	listed, err := client.Call(t.Context(), d.dial(), protocol.ListModels, protocol.ListModelsParams{})
	rows := ""
	for _, m := range listed.Models {
		rows += m.Model + " " + m.Source + "\n"
	}
	for _, want := range []string{"mine/m config\n", "mine/n config\n", "zai config\n"} {
		if !strings.Contains(rows, want) {
			t.Errorf("got the models %s (%v), want %s among them", rows, err, want)
		}
	}
	d.Stop()
	if strings.Contains(d.Log.String(), "sesame-street") {
		t.Error("the log has a header")
	}
}

// Neither a key nor a header goes to a server that they are not configured for.
func TestSecretsOfNamedProviders(t *testing.T) {
	env := map[string]string{"GROQ_API_KEY": "sk-groq", "MINE": "sk-mine"}
	v := vendors{
		named: map[string]ProviderConfig{"mine": {
			BaseURL: "http://localhost:1/v1", APIKeyEnv: "MINE",
			Headers: map[string]string{"X-A": "secret"},
		}},
		getenv: func(name string) string { return env[name] },
	}
	for _, c := range []struct{ provider, url, key, header string }{
		{"mine", "", "sk-mine", "secret"},
		{"mine", "http://localhost:1/v1/", "sk-mine", "secret"},
		{"mine", "http://localhost:2/v1", "", ""},
		{"groq", "", "sk-groq", ""},
		{"groq", "https://api.groq.com/openai/v1", "sk-groq", ""},
		{"groq", "http://localhost:1/v1", "", ""},
		{"ollama", "", "", ""},
	} {
		s, err := v.at(model.Choice{Provider: c.provider, Name: "x", BaseURL: c.url})
		if err != nil || s.APIKey != c.key || s.Headers["X-A"] != c.header {
			t.Errorf("%+v: got %+v, %v", c, s, err)
		}
	}
	if _, err := v.at(model.Choice{Provider: "cerebras", Name: "x"}); err == nil ||
		!strings.Contains(err.Error(), "set CEREBRAS_API_KEY") {
		t.Errorf("got %v, want the variable of a known provider's key", err)
	}
	if _, err := v.at(model.Choice{Provider: "gone", Name: "x"}); err == nil {
		t.Error("a provider that is gone from the configuration is asked")
	}
}

// What the user says of a model counts more than what the catalogue does: its
// window, its eyes, its price, which is summed up call by call and kept; a limit
// on it ends runs, and the day's is not forgotten when the daemon starts again.
func TestFactsOfOnesOwn(t *testing.T) {
	server := newVendor(t, `{"data":[]}`)
	config := fmt.Sprintf("[model]\nprovider = \"openai\"\nname = \"blind\"\nbase_url = %q\n[limits]\nday_cost = 0.003\n",
		server.URL+"/v1")
	d := configured(t, config, `["openai/blind"]
context_window = 50_000
images = false
efforts = ["low"]
price = { input = 1, output = 10.5, cached = 0.1 }
["openai/other"]
price = { input = 0.000001, output = 0 }
`)
	shot := filepath.Join(t.TempDir(), "shot.png")
	if err := os.WriteFile(shot, []byte("\x89PNG\r\n\x1a\n pixels"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := client.Call(t.Context(), d.dial(), protocol.Prompt, protocol.PromptParams{
		Text:        "what is this?",
		Attachments: []protocol.AttachmentParams{{Path: shot}},
	})
	if err != nil || r.Result.Output != "Hello." {
		t.Fatalf("got %+v, %v", r.Result, err)
	}
	body, _, lists := server.last()
	if strings.Contains(body, "image_url") || !strings.Contains(body, "this model takes no images") || lists != 0 {
		t.Errorf("a model without eyes got %s", body)
	}
	const cost = (600*1.0 + 400*0.1 + 100*10.5) / 1e6 // 0.00169
	same := func(what string, got *protocol.Cost, want float64) {
		t.Helper()
		if got == nil || got.Currency != "USD" || fmt.Sprintf("%.9f", got.Amount) != fmt.Sprintf("%.9f", want) {
			t.Errorf("%s: got the cost %+v, want %.9f", what, got, want)
		}
	}
	st := d.now(t)
	same("the session", st.Usage.Cost, cost)
	if st.Context.Window != 50_000 {
		t.Errorf("got the window %d", st.Context.Window)
	}
	if _, err := d.answered("again"); err != nil {
		t.Fatal(err)
	}
	d.Stop()
	d.Start()
	same("after a restart", d.now(t).Usage.Cost, 2*cost)
	list, err := client.Call(t.Context(), d.dial(), protocol.ListSessions, protocol.ListSessionsParams{})
	if err != nil || len(list.Sessions) != 1 {
		t.Fatalf("got %+v, %v", list, err)
	}
	same("the list", list.Sessions[0].Usage.Cost, 2*cost)
	if _, err := d.answered("and again"); err == nil ||
		!strings.Contains(err.Error(), "budget: today has cost 0.00338 USD, and day_cost in [limits] is 0.003") {
		t.Errorf("got %v, want the day's limit", err)
	}
	d.Stop()
	if err := os.WriteFile(filepath.Join(d.Dir, "state", ledgerName), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	errout := new(strings.Builder)
	args := []string{
		"--socket", d.Socket, "--state-dir", filepath.Join(d.Dir, "state"), "--workdir", d.Dir, "--config",
		filepath.Join(d.Dir, "noused/config.toml"),
	}
	execute(args, environ(map[string]string{"HOME": d.Dir}), io.Discard, errout)
	if out := errout.String(); !strings.Contains(out, ledgerName+", which [limits] day_cost needs, cannot be read") {
		t.Errorf("got %s, want the file that is wrong", out)
	}
}

// What is wrong in the configuration of providers, facts and limits is said where
// it stands, with the options that exist.
func TestErrorsOfProvidersAndFacts(t *testing.T) {
	for _, c := range []struct{ name, config, facts, want string }{
		{
			"a wire", "[providers.x]\nbase_url = \"http://x\"\nwire = \"grpc\"\n", "",
			`config.toml:3: providers.x.wire: there is no wire "grpc", only chat, responses, messages`,
		},
		{"a key", "[providers.x]\nurl = \"http://x\"\n", "", "config.toml:2: providers.x.url: there is no such key"},
		{
			"no address", "[providers.x]\nwire = \"chat\"\n", "",
			"providers.x.base_url: is missing: the catalogue does not know x, but anthropic, azure,",
		},
		{"an address", "[providers.x]\nbase_url = \"ftp://x\"\n", "", "providers.x: base_url must begin with http"},
		{
			"a header", "[providers.x]\nbase_url = \"http://x\"\nheaders = { Authorization = \"Bearer sesame\" }\n", "",
			"config.toml:3: providers.x.headers: Authorization is not for headers to set: api_key_env",
		},
		{
			"a reserved member", "[providers.x]\nbase_url = \"http://x\"\nextra = { model = \"y\" }\n", "",
			`providers.x: extra: "model" is not for extra to set`,
		},
		{"a name", "[providers.Offline]\nbase_url = \"http://x\"\n", "", "no provider can have this name"},
		{
			"an effort", "[model]\nprovider = \"openai\"\nname = \"x\"\neffort = \"much\"\n", "",
			`config.toml:4: model.effort: there is no level "much", only none, minimal`,
		},
		{
			"an effort that it lacks", "[model]\nprovider = \"zai\"\nname = \"glm-4.7\"\neffort = \"low\"\n", "",
			"config.toml:4: model.effort: zai/glm-4.7 has no effort low, but none, high",
		},
		{"a limit", "[limits]\nrun_cost = -1\n", "", "config.toml:2: limits.run_cost: -1 is out of bounds"},
		{"no limit", "[limits]\nday_cost = 0\n", "", "config.toml:2: limits.day_cost: got 0, want more than nothing"},
		{"a limit of words", "[limits]\nrun_tokens = \"many\"\n", "", "config.toml:2: limits.run_tokens: got many"},
		{"another limit", "[limits]\nhour_cost = 1\n", "", "config.toml:2: limits.hour_cost: there is no such key"},
		{
			"facts of nobody's", "", "[\"nobody/x\"]\nimages = true\n",
			`models.toml: nobody/x: there is no provider "nobody"; near it are `,
		},
		{"facts without a model", "", "[openai]\nimages = true\n", "models.toml: openai: want openai/NAME"},
		{"a fact that is none", "", "[\"openai/x\"]\ncolour = 1\n", "models.toml:2: openai/x.colour: there is no such key"},
		{
			"a price", "", "[\"openai/x\"]\nprice = { input = -2 }\n",
			"models.toml:2: openai/x.price.input: -2 is out of bounds",
		},
		{
			"a price that is none", "", "[\"openai/x\"]\nprice = { inputs = 2 }\n",
			"models.toml:2: openai/x.price: there is no inputs, only input, output, cached, cache_write",
		},
		{
			"a window", "", "[\"openai/x\"]\ncontext_window = 5\n",
			"models.toml:2: openai/x.context_window: got 5, want 1000 to",
		},
		{
			"a level", "", "[\"openai/x\"]\nefforts = [\"some\"]\n",
			`models.toml:2: openai/x.efforts: there is no level "some"`,
		},
		{"no section", "", "x = 1\n", "models.toml:1: x: want a section"},
	} {
		t.Run(c.name, func(t *testing.T) {
			home := t.TempDir()
			if err := os.MkdirAll(filepath.Join(home, ".config/noused"), 0o700); err != nil {
				t.Fatal(err)
			}
			for name, text := range map[string]string{"config.toml": c.config, "models.toml": c.facts} {
				if err := os.WriteFile(filepath.Join(home, ".config/noused", name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			fs := pflag.NewFlagSet("noused", pflag.ContinueOnError)
			registerFlags(fs)
			_, err := resolveConfig(fs, environ(map[string]string{"HOME": home}))
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "sesame") {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}
