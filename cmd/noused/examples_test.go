package main

import (
	"bufio"
	"cmp"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"noused/internal/model"
	"noused/internal/proc"
	"noused/internal/testenv"
	"noused/internal/tool"
	"noused/internal/tool/amplifier"
	"noused/internal/tool/check"
	"noused/internal/tool/gevals"
	"noused/internal/tool/narratoria"
	"noused/internal/tool/registry"
)

// example is a call of a program below examples. What is said in return has all
// of want in it.
type example struct {
	needs string // the program that runs it
	op    string
	args  string
	want  []string
}

// exampleTools are called through the registry, exampleModules as the daemon
// does with their kinds.
var (
	exampleTools = map[string]example{
		"tools/torch.json": {"python3", "light", `{"where":"cellar"}`, []string{"The torch in the cellar is lit."}},
		"tools/notes.json": {"python3", "add", `{"text":"buy milk"}`, []string{"Noted."}},
		"tools/tally.json": {"sh", "files", `{"suffix":".txt"}`, []string{"1 files end in '.txt'"}},
		"tools/words.json": {
			"go", "count", `{"file":"poem.txt","top":2}`,
			[]string{"2 lines, 7 words; most frequent: a, rose"},
		},
		"tools/slug.json": {
			"node", "make", `{"title":"Ein Fall für Zwei!","ext":".md"}`,
			[]string{"ein-fall-fu-r-zwei.md"},
		},
		"tools/units.json": {"python3", "length", `{"value":3,"unit":"km","to":"m"}`, []string{`"value":3000`}},
		"modules/scout.json": {
			"python3", "run", `{"goal":"find the rose","inputs":{"files":"*.txt"}}`,
			[]string{`"poem.txt"`, `"rose"`},
		},
		"modules/clock.json": {"python3", "now", `{"utc":true}`, []string{"+00:00"}},
	}
	exampleModules = map[string]example{
		"modules/parrot.json": {
			"python3", "generate", `{"messages":[{"role":"user","text":"hello"}],"tools":[],"system":""}`,
			[]string{`"text":"hello"`, `"end"`},
		},
		"modules/forget.json": {
			"python3", "transform", `{"messages":[{"role":"tool","text":"` + strings.Repeat("x", 200) +
				`"},{"role":"tool","text":"2"},{"role":"tool","text":"3"}]}`,
			[]string{"[120 characters forgotten]", `"text":"2"`, `"text":"3"`},
		},
		"modules/guard.json": {
			"python3", "before_turn", `{"input":"The password is Swordfish.","state":{}}`,
			[]string{`"reject"`},
		},
		"modules/diary.json": {
			"python3", "on_event",
			`{"id":"1","ts":1760000000,"event":"session:start","component":"session"}`,
			[]string{"null"},
		},
	}
)

// exampleDir is the folder that examples work in.
func exampleDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "poem.txt"), []byte("a rose is a rose\nof course\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// loadExample reads a descriptor, and starts the server of one that has one.
func loadExample(t *testing.T, file, workdir, needs string) *tool.Descriptor {
	t.Helper()
	if _, err := exec.LookPath(needs); err != nil {
		t.Skipf("%s needs %s, which is not installed", file, needs)
	}
	file = filepath.Join("..", "..", "examples", file)
	d, err := tool.LoadDescriptor(file, workdir, os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	if d.Transport.Type == "http" {
		d.Transport.URL = "unix://" + serveExample(t, strings.TrimSuffix(file, ".json")+".py")
	}
	return d
}

// serveExample starts the program on a socket and returns its path, once the
// program says that it listens.
func serveExample(t *testing.T, program string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "n") // short, to be bound
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	cmd := exec.Command("python3", program, socket)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.HasPrefix(line, "listening") {
		t.Fatalf("%s says %q, %v", program, line, err)
	}
	return socket
}

// keepsProtocol checks a tool, calls included.
func keepsProtocol(t *testing.T, d *tool.Descriptor, o check.Options) {
	t.Helper()
	s := proc.NewSupervisor("", zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel)))
	defer s.Close()
	findings, err := check.Run(t.Context(), d, s, o)
	if err != nil {
		t.Fatal(err)
	}
	called := false
	for _, f := range findings {
		if called = called || f.Operation != "" && f.Status == check.OK; f.Status == check.Fail {
			t.Errorf("%s: %s %s\nseen: %s\nfix:  %s", f.Clause, f.Operation, f.What, f.Seen, f.Fix)
		}
	}
	if !called {
		t.Error("no operation was called")
	}
}

func TestExamplesKeepTheirProtocol(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	all := maps.Clone(exampleTools)
	maps.Copy(all, exampleModules)
	for file, e := range all {
		t.Run(file, func(t *testing.T) {
			d := loadExample(t, file, exampleDir(t), e.needs)
			keepsProtocol(t, d, check.Options{Operation: e.op, Args: jsontext.Value(e.args)})
		})
	}
	files, err := filepath.Glob("../../examples/*/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name, _ := filepath.Rel("../../examples", file)
		if _, ok := all[name]; !ok {
			t.Errorf("examples/%s is not tried by any test", name)
		}
	}
}

// call runs an operation through a registry that has just this tool.
func call(t *testing.T, d *tool.Descriptor, op, args string) model.ToolResult {
	t.Helper()
	r := registry.New(registry.Options{
		Descriptors: []*tool.Descriptor{d}, Workdir: d.Workdir, OutputDir: t.TempDir(),
		Logger: zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel)),
		Dialects: map[string]tool.Dialect{
			tool.Narratoria: narratoria.Dialect, tool.Gevals: gevals.Dialect, tool.Amplifier: amplifier.Dialect,
		},
	})
	defer r.Close(t.Context())
	name := d.Name + "." + op
	if list := r.List(t.Context(), model.Scope{}); !slices.ContainsFunc(list, func(i model.ToolInfo) bool {
		return i.Name == name && i.Healthy
	}) {
		t.Fatalf("%s is not offered: %+v", name, list)
	}
	return r.Call(t.Context(), model.Invocation{ToolCall: model.ToolCall{ID: "1", Name: name, Arguments: []byte(args)}},
		nil)
}

func TestExampleToolsWorkInTheDaemon(t *testing.T) {
	testenv.Long(t)
	for file, e := range exampleTools {
		t.Run(file, func(t *testing.T) {
			r := call(t, loadExample(t, file, exampleDir(t), e.needs), e.op, e.args)
			if !r.OK {
				t.Fatalf("got %s", r.Text)
			}
			for _, want := range e.want {
				if !strings.Contains(r.Text, want) {
					t.Errorf("got %q, want %q in it", r.Text, want)
				}
			}
		})
	}
}

func TestExampleModulesAnswerTheDaemon(t *testing.T) {
	testenv.Long(t)
	for file, e := range exampleModules {
		t.Run(file, func(t *testing.T) {
			d := loadExample(t, file, exampleDir(t), e.needs)
			s := proc.NewSupervisor("", zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel)))
			defer s.Close()
			host := amplifier.Dialect(d, s, zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel)))
			defer host.Close(t.Context())
			result, err := host.(tool.Invoker).Invoke(t.Context(), e.op, jsontext.Value(e.args), "s-1")
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range e.want {
				if text := strings.ReplaceAll(string(result), `": `, `":`); !strings.Contains(text, want) {
					t.Errorf("got %s, want %s in it", text, want)
				}
			}
			if d.Kind != tool.KindHook {
				return
			}
			if text, err := os.ReadFile(filepath.Join(d.Workdir, "diary.txt")); err != nil ||
				!strings.Contains(string(text), "session:start") {
				t.Errorf("the diary says %q, %v", text, err)
			}
		})
	}
}

// The programs that docs/tools.md prints are what their authors will copy.
func TestToolsOfTheDocumentationWork(t *testing.T) {
	testenv.Long(t)
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("the tools of docs/tools.md need python3, which is not installed")
	}
	text, err := os.ReadFile("../../docs/tools.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, block := range regexp.MustCompile("(?s)```python\n(#!.*?\n# ([a-z]+\\.py)\n.*?)```").FindAllSubmatch(text, -1) {
		if lines := strings.Count(string(block[1]), "\n"); lines > 20 {
			t.Errorf("%s has %d lines, too many to be read in passing", block[2], lines)
		}
		if err := os.WriteFile(filepath.Join(dir, string(block[2])), block[1], 0o700); err != nil {
			t.Fatal(err)
		}
	}
	descriptors := regexp.MustCompile("(?s)```json\n(\\{\"name\": \"([a-z]+)\".*?)```").FindAllSubmatch(text, -1)
	calls := map[string]struct{ op, args, want string }{
		"greet": {"hello", `{"name":"Ada"}`, "Hello, Ada!"},
		"sums":  {"add", `{"a":1,"b":2.5}`, "3.5"},
		"shout": {"loud", `{"text":"hey"}`, "HEY"},
	}
	if len(descriptors) != len(calls) {
		t.Fatalf("docs/tools.md has %d descriptors, want %d", len(descriptors), len(calls))
	}
	for _, block := range descriptors {
		name := string(block[2])
		t.Run(name, func(t *testing.T) {
			d, err := tool.ParseDescriptor(block[1], dir, exampleDir(t), os.Environ())
			if err != nil {
				t.Fatal(err)
			}
			keepsProtocol(t, d, check.Options{All: true})
			c := calls[name]
			if r := call(t, d, c.op, c.args); !r.OK || !strings.Contains(r.Text, c.want) {
				t.Errorf("got %s, want %s", cmp.Or(r.Text, "nothing"), c.want)
			}
		})
	}
}
