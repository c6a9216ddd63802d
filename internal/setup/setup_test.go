package setup

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pelletier/go-toml/v2"
)

// What a person wrote stays; the settings of the model before become comments.
func TestChooseModel(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"nothing": {"", "[model]\nprovider = \"groq\"\nname = \"m\"\n"},
		"no section": {
			"# mine\nlog_level = \"debug\"",
			"# mine\nlog_level = \"debug\"\n\n[model]\nprovider = \"groq\"\nname = \"m\"\n",
		},
		"another one": {
			"[model] # here\nprovider = \"openai\" # work\nname=\"gpt\"\n\n[limits]\nrun_cost = \"1\"\n",
			"[model] # here\nprovider = \"groq\" # work\nname=\"m\"\n\n[limits]\nrun_cost = \"1\"\n",
		},
		"its server": {
			"[model]\nprovider = \"openai\"\nbase_url = \"http://x\"\ncontext_window = 9000\ndelay = \"1s\"\n",
			"[model]\nname = \"m\"\nprovider = \"groq\"\n# base_url = \"http://x\"\n# context_window = 9000\ndelay = \"1s\"\n",
		},
		"the same": {
			"[model]\nprovider = \"groq\"\nname = \"m\"\ncontext_window = 9000\n",
			"[model]\nprovider = \"groq\"\nname = \"m\"\ncontext_window = 9000\n",
		},
		"inline": {
			"[model]\nprovider = \"openai\"\nname = \"x\"\nextra = {a = 1, b = 2} # of it\n",
			"[model]\nprovider = \"groq\"\nname = \"m\"\n# extra = {a = 1, b = 2} # of it\n",
		},
		"another name": {
			"[model]\nprovider = \"groq\"\nbase_url = \"http://x\"\nname = \"n\"\n",
			"[model]\nprovider = \"groq\"\nbase_url = \"http://x\"\nname = \"m\"\n",
		},
	} {
		got, err := ChooseModel([]byte(c.text), "groq", "m")
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if name == "its server" { // the order of what is new says nothing
			var values struct{ Model map[string]any }
			if err := toml.Unmarshal(got, &values); err != nil || len(values.Model) != 3 ||
				!strings.Contains(string(got), "# base_url = ") {
				t.Errorf("%s: %v\n%s", name, err, got)
			}
			continue
		}
		if diff := cmp.Diff(c.want, string(got)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

// A file that says it in another way is not touched, and the person learns what to write.
func TestWhatCannotBeChangedIsRefused(t *testing.T) {
	for name, text := range map[string]string{
		"a dotted key":        "model.provider = \"openai\"\n",
		"an inline table":     "model = {provider = \"openai\"}\n",
		"a text of the file":  "note = \"\"\"\n[model]\nprovider = \"x\"\n\"\"\"\n",
		"a value over lines":  "[model]\nprovider = \"\"\"\nx\"\"\"\n",
		"no TOML":             "[model\n",
		"a quoted key":        "[model]\nprovider = \"openai\"\n\"base_url\" = \"http://old\"\n",
		"a section of extra":  "[model]\nprovider = \"openai\"\n[model.extra]\na = 1\n",
		"the section is last": "[model.extra]\na = 1\n[[model]]\n",
	} {
		if got, err := ChooseModel([]byte(text), "groq", "m"); err == nil {
			t.Errorf("%s became\n%s", name, got)
		}
	}
}

func FuzzChooseModel(f *testing.F) {
	f.Add("[model]\nprovider = 'a'\n[x]\ny = 1\n")
	f.Add("x = '''\n[model]\n'''\n")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ChooseModel([]byte(text), "groq", "m/n-1")
		if err != nil {
			return
		}
		var values struct {
			Model struct{ Provider, Name string }
		}
		if err := toml.Unmarshal(got, &values); err != nil || values.Model.Provider != "groq" ||
			values.Model.Name != "m/n-1" {
			t.Errorf("%q became %q: %v", text, got, err)
		}
		if again, err := ChooseModel(got, "groq", "m/n-1"); err != nil || string(again) != string(got) {
			t.Errorf("the same again makes %q of %q: %v", again, got, err)
		}
	})
}

// The file that a link leads to is changed, and keeps its mode.
func TestSaveModelFollowsALink(t *testing.T) {
	dir, dots := t.TempDir(), t.TempDir()
	path := filepath.Join(dots, "noused.toml")
	if err := os.WriteFile(path, []byte("# dots\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path, filepath.Join(dir, "config.toml")); err != nil {
		t.Fatal(err)
	}
	if err := SaveModel(dir, "groq", "m"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	info, _ := os.Stat(path)
	if err != nil || string(text) != "# dots\n\n[model]\nprovider = \"groq\"\nname = \"m\"\n" ||
		info.Mode().Perm() != 0o640 {
		t.Errorf("got %v %v\n%s", err, info.Mode(), text)
	}
}

// The agent of new sessions stands above the first section, and nothing else changes.
func TestChooseAgent(t *testing.T) {
	for name, c := range map[string]struct{ text, agent, want string }{
		"nothing": {"", "codex", "default_agent = \"codex\"\n"},
		"no sections": {
			"# mine\nlog_level = \"debug\"\n", "codex", "# mine\nlog_level = \"debug\"\ndefault_agent = \"codex\"\n",
		},
		"sections": {"[model]\nname = \"m\"\n", "codex", "default_agent = \"codex\"\n\n[model]\nname = \"m\"\n"},
		"another": {
			"default_agent = 'goose' # at work\n[model]\nname = \"m\"\n", "codex",
			"default_agent = \"codex\" # at work\n[model]\nname = \"m\"\n",
		},
		"no more":   {"default_agent = \"codex\"\nx = 1\n", "", "# default_agent = \"codex\"\nx = 1\n"},
		"none then": {"x = 1\n", "", "x = 1\n"},
	} {
		got, err := ChooseAgent([]byte(c.text), c.agent)
		if diff := cmp.Diff(c.want, string(got)); err != nil || diff != "" {
			t.Errorf("%s: %v, -want +got:\n%s", name, err, diff)
		}
	}
	for name, text := range map[string]string{
		"a quoted key":       "\"default_agent\" = \"goose\"\n",
		"a text of the file": "x = '''\n[model]\n'''\ndefault_agent = \"goose\"\n",
	} {
		if got, err := ChooseAgent([]byte(text), "codex"); err == nil {
			t.Errorf("%s became\n%s", name, got)
		}
	}
}

// A server is called as its host, once, and can be taken out again.
func TestAddServer(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "config.toml")
	before := "[providers.box-8000]\nbase_url = \"http://box:8000/v2\"\n"
	if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	catalogued := func(name string) bool { return name == "groq" }
	add := func(address, want string) func() error {
		t.Helper()
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		got, undo, err := AddServer(dir, ServerName(u), address, catalogued)
		if err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", address, got, err, want)
		}
		return undo
	}
	add("http://box:8000/v2", "box-8000")
	undo := add("http://box:8000/v1", "box-8000-2")
	if err := undo(); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(path); string(text) != before {
		t.Errorf("after undo:\n%s", text)
	}
	add("https://LLM.example.org/v1", "llm.example.org")
	add("http://groq/v1", "groq-2")
	add("http://[::1]:80/v1", "1-80")
	text, err := os.ReadFile(path)
	if want := before + "\n[providers.\"llm.example.org\"]\nbase_url = \"https://LLM.example.org/v1\"\n" +
		"\n[providers.groq-2]\nbase_url = \"http://groq/v1\"\n" +
		"\n[providers.1-80]\nbase_url = \"http://[::1]:80/v1\"\n"; err != nil || string(text) != want {
		t.Errorf("%v\n%s", err, text)
	}
}
