package mcp

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"noused/internal/model"
	"noused/internal/tool/tooltest"
)

// referenceVersion is that of both reference servers.
const referenceVersion = "2026.8.31"

// reference mounts one of the protocol's reference servers, which are fetched with
// npm once. With NOUSED_REFERENCE unset it is not: that takes a minute.
func reference(t *testing.T, name string, args ...string) *bench {
	t.Helper()
	if os.Getenv("NOUSED_REFERENCE") == "" {
		t.Skip("the reference servers are fetched and called with NOUSED_REFERENCE=1 only")
	}
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("the reference servers need %s, which is not installed", program)
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skip(err)
	}
	dir := filepath.Join(cache, "noused-test", "mcp-"+referenceVersion, name)
	program := filepath.Join(dir, "node_modules", "@modelcontextprotocol", name, "dist", "index.js")
	if _, err := os.Stat(program); err != nil {
		fetch(t, dir, name)
	}
	return mount(t, server(t, "").Set("transport",
		map[string]any{"type": "stdio", "command": append([]string{"node", program}, args...)}))
}

// fetch installs a reference server; the first to rename what is complete
// wins.
func fetch(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	fresh, err := os.MkdirTemp(filepath.Dir(dir), "fetching-")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(fresh) }()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", fresh,
		"@modelcontextprotocol/"+name+"@"+referenceVersion)
	if out, err := npm.CombinedOutput(); err != nil {
		t.Skipf("%s cannot be fetched: %v\n%s", name, err, out)
	}
	if err := os.Rename(fresh, dir); err != nil && !os.IsExist(err) {
		t.Fatal(err)
	}
}

// step is a call of a tool, and what its result has in it.
type step struct{ tool, args, want string }

// plays makes all calls, and sees that each tool is called and listed.
func (b *bench) plays(steps []step) {
	b.t.Helper()
	if missing := b.Ready(b.t.Context(), model.Scope{}); missing != nil {
		b.t.Fatalf("%q are missing", missing)
	}
	left := map[string]bool{}
	for _, name := range b.names() {
		left[strings.TrimPrefix(name, "x.")] = true
	}
	for _, s := range steps {
		inv := tooltest.Invocation("x."+s.tool, s.args)
		inv.Ask = func(context.Context, model.Question) (model.Answer, error) {
			return model.Answer{Action: model.Accept, Content: []byte(`{"name":"Ada"}`)}, nil
		}
		inv.KeepImage = func(string, io.ReaderAt, int64) error { return nil }
		var log tooltest.Log
		r := b.Call(b.t.Context(), inv, log.Add)
		if got := r.Text + strings.Join(log.Deltas(), "\n"); !strings.Contains(got, s.want) {
			b.t.Errorf("%s %s: got %+v, %q; want %q", s.tool, s.args, r, log.Deltas(), s.want)
		}
		delete(left, s.tool)
	}
	for name := range left {
		b.t.Errorf("%s was not called", name)
	}
	b.gone()
}

func TestTheReferenceServerEverything(t *testing.T) {
	b := reference(t, "server-everything", "stdio")
	data := "data:text/plain;base64," + base64.StdEncoding.EncodeToString([]byte("hello"))
	b.plays([]step{
		{"echo", `{"message":"hello"}`, "Echo: hello"},
		{"get-sum", `{"a":40,"b":2}`, "42"},
		{"get-env", `{}`, `"PATH"`},
		{"get-annotated-message", `{"messageType":"error","includeImage":true}`, "[image, image/png"},
		{"get-tiny-image", `{}`, "[image, image/png"},
		{"get-resource-links", `{"count":2}`, "[link demo://resource/"},
		{"get-resource-reference", `{"resourceType":"Text","resourceId":1}`, "[resource demo://resource/"},
		{"get-resource-reference", `{"resourceType":"Blob","resourceId":2}`, "[resource demo://resource/"},
		{"get-structured-content", `{"location":"Chicago"}`, "temperature"},
		{"gzip-file-as-resource", fmt.Sprintf(`{"name":"a.gz","data":%q,"outputType":"resource"}`, data), "[resource "},
		{"trigger-long-running-operation", `{"duration":1,"steps":4}`, "3 of 4"},
		{"trigger-elicitation-request", `{}`, "Ada"},
		{"simulate-research-query", `{"topic":"tea"}`, "there is no tool"}, // it needs a task
		{"toggle-simulated-logging", `{}`, "logging"},
		{"toggle-simulated-logging", `{}`, "logging"},
		{"toggle-subscriber-updates", `{}`, "updates"},
		{"toggle-subscriber-updates", `{}`, "updates"},
	})
}

func TestTheReferenceServerFilesystem(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "p.png"), pixel, 0o600); err != nil {
		t.Fatal(err)
	}
	b := reference(t, "server-filesystem", dir)
	in := func(format string) string { return strings.ReplaceAll(format, "$D", dir) }
	b.plays([]step{
		{"list_allowed_directories", `{}`, dir},
		{"create_directory", in(`{"path":"$D/sub"}`), "sub"},
		{"write_file", in(`{"path":"$D/sub/a.txt","content":"one\ntwo\n"}`), "a.txt"},
		{"read_file", in(`{"path":"$D/sub/a.txt","head":1}`), "one"},
		{"read_text_file", in(`{"path":"$D/sub/a.txt"}`), "two"},
		{"read_multiple_files", in(`{"paths":["$D/sub/a.txt"]}`), "two"},
		{"read_media_file", in(`{"path":"$D/p.png"}`), "[image, image/png"},
		{"edit_file", in(`{"path":"$D/sub/a.txt","edits":[{"oldText":"two","newText":"three"}]}`), "+three"},
		{"list_directory", in(`{"path":"$D"}`), "[DIR] sub"},
		{"list_directory_with_sizes", in(`{"path":"$D"}`), "p.png"},
		{"directory_tree", in(`{"path":"$D"}`), "a.txt"},
		{"search_files", in(`{"path":"$D","pattern":"**/*.txt"}`), "a.txt"},
		{"get_file_info", in(`{"path":"$D/p.png"}`), "70"},
		{"move_file", in(`{"source":"$D/sub/a.txt","destination":"$D/b.txt"}`), "b.txt"},
		{"read_text_file", `{"path":"/etc/hostname"}`, "tool_failed"},
	})
}
