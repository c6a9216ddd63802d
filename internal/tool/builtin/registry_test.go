package builtin

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"noused/internal/model"
	"noused/internal/tool"
	"noused/internal/tool/gevals"
	"noused/internal/tool/registry"
	"noused/internal/tool/tooltest"
)

// patience is how long a test waits for what must come.
const patience = time.Minute

// newRegistry has the built-in tools as the daemon has them, in a sandbox where
// the kernel can make one.
func newRegistry(t *testing.T, workdir string, more ...func(*registry.Options)) *registry.Registry {
	t.Helper()
	d, err := Descriptor(tooltest.Self(t), workdir, os.Environ())
	must(t, err)
	d.SandboxRequired = false
	o := registry.Options{
		Descriptors: []*tool.Descriptor{d}, Workdir: workdir, OutputDir: t.TempDir(), Helper: tooltest.Self(t),
		Dialects: map[string]tool.Dialect{tool.Gevals: gevals.Dialect},
	}
	for _, change := range more {
		change(&o)
	}
	r := registry.New(o)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		r.Close(ctx)
		tooltest.NoChildren(t)
		// It adopts orphans, and nobody would take them away from now on.
		must(t, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0))
	})
	for _, err := range r.Errors() {
		t.Error(err)
	}
	return r
}

func invoke(t *testing.T, r *registry.Registry, name, args string, said *tooltest.Log) model.ToolResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return r.Call(ctx, tooltest.Invocation(name, args), said.Add)
}

func TestDescriptor(t *testing.T) {
	d, err := Descriptor("./noused", "/work", []string{"PATH=/bin", "HOME=/h", "OPENAI_API_KEY=x"})
	must(t, err)
	self, err := filepath.Abs("noused")
	must(t, err)
	if got, want := strings.Join(d.Transport.Command, " "), self+" extension files"; got != want {
		t.Errorf("got command %s, want %s", got, want)
	}
	switch {
	case d.Name != "files", d.Protocol != tool.Gevals, !d.Bare, d.Sandbox != tool.SandboxWorkdir, d.Workdir != "/work":
		t.Errorf("got %+v", d)
	case d.Timeout <= maxBashTime:
		t.Errorf("got timeout %v, which ends the longest command", d.Timeout)
	}
	if d, err = Descriptor("noused", "/work", nil); err != nil || d.Transport.Command[0] != "noused" {
		t.Errorf("got %+v, %v, want a name that is looked up", d, err)
	}
}

func TestThroughTheRegistry(t *testing.T) {
	dir := t.TempDir()
	r := newRegistry(t, dir)
	var names []string
	for _, info := range r.List(context.Background(), model.Scope{}) {
		if !info.Healthy || info.Module != Name {
			t.Errorf("got %+v", info)
		}
		names = append(names, info.Name)
	}
	if got := strings.Join(names, " "); got != "agent bash edit find grep job ls read todo write" {
		t.Fatalf("got tools %s", got)
	}
	for _, c := range []struct{ tool, args, want string }{
		{"write", `{"path":"src/a.go","content":"package a\n// <&> ä\n"}`, "created src/a.go, 20 bytes"},
		{"read", `{"path":"src/a.go"}`, "     1\tpackage a\n     2\t// <&> ä\n"},
		{
			"edit", `{"path":"src/a.go","old_text":"package a","new_text":"package b"}`,
			"edited src/a.go, 1 place\n@@ -1,2 +1,2 @@\n-     1\tpackage a\n+     1\tpackage b\n      2\t// <&> ä",
		},
		{"grep", `{"pattern":"^package"}`, "src/a.go:1: package b"},
		{"find", `{"pattern":"*.go"}`, "src/a.go"},
		{"ls", `{}`, "         -  src/"},
		{"bash", `{"command":"cat src/a.go | wc -l"}`, "2"},
		{"bash", `{"command":"exit 4"}`, "tool_failed: exit status 4"},
		{"read", `{"path":"src/A.go"}`, "tool_failed: src/A.go does not exist; did you mean src/a.go?"},
		{"grep", `{"pattern":"("}`, `-32602: args.pattern: missing closing ): "(" is not a regular expression in RE2 syntax`},
		{"read", `{"path":1}`, "bad_request: arguments: /path: got number, want string"},
		{"read", `{"file":"a"}`, "bad_request: arguments: …"},
	} {
		expect(t, invoke(t, r, c.tool, c.args, new(tooltest.Log)).Text, c.want)
	}
	var said tooltest.Log
	invoke(t, r, "bash", `{"command":"echo one; echo two"}`, &said)
	if got := strings.Join(said.Deltas(), "\n"); got != "one\ntwo" {
		t.Errorf("got %q told while it ran", got)
	}
}

// read gives an image of those that models see, and says of others that it does not.
func TestReadGivesImages(t *testing.T) {
	dir := files(t, map[string]string{
		"a.png": "\x89PNG\r\n\x1a\n...", "b.bmp": "BM......", "src/c.gif": "GIF89a",
		"large.png": "\x89PNG\r\n\x1a\n",
	})
	must(t, os.Truncate(filepath.Join(dir, "large.png"), maxPicture+1))
	r := newRegistry(t, dir)
	var kept []string
	for path, want := range map[string]string{
		"a.png": "a.png is an image: image/png, 11 bytes", "src/c.gif": "src/c.gif is an image: image/gif, 6 bytes",
		"b.bmp": "b.bmp is an image: image/bmp, 8 bytes; it is not shown: only image/png, image/jpeg, image/gif, " +
			"image/webp are",
		"large.png": "large.png is an image: image/png, 5242881 bytes; it is not shown: it has more than 5242880 bytes",
	} {
		inv := tooltest.Invocation("read", `{"path":"`+path+`"}`)
		inv.KeepImage = func(name string, content io.ReaderAt, size int64) error {
			kept = append(kept, fmt.Sprint(name, " ", size))
			return nil
		}
		expect(t, r.Call(t.Context(), inv, new(tooltest.Log).Add).Text, want)
	}
	slices.Sort(kept)
	if got := strings.Join(kept, ", "); got != "a.png 11, c.gif 6" {
		t.Errorf("got images %s", got)
	}
}

// The longest part of a file, and the longest output, reach a model whole.
func TestNothingIsCutTwice(t *testing.T) {
	wide := strings.Repeat(strings.Repeat("x", 99)+"\n", 3000)
	dir := files(t, map[string]string{"rows": strings.Repeat("x\n", 9000), "wide": wide})
	r := newRegistry(t, dir)
	for _, file := range []string{"rows", "wide"} {
		for _, c := range []struct{ tool, args string }{
			{"read", `{"path":"` + file + `"}`},
			{"bash", `{"command":"cat ` + file + `"}`},
			{"grep", `{"pattern":"x","path":"` + file + `"}`},
		} {
			if text := invoke(t, r, c.tool, c.args, new(tooltest.Log)).Text; strings.Contains(text, "the whole text is in") ||
				len(text) < 3000 {
				t.Errorf("%s %s: got %d bytes, …%q", c.tool, file, len(text), text[max(0, len(text)-80):])
			}
		}
	}
}

// An aborted call ends its command, whatever it does about signals and
// processes of its own, and the next call is answered.
func TestAbort(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	must(t, syscall.Mkfifo(fifo, 0o600))
	held, err := os.OpenFile(fifo, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	must(t, err)
	defer held.Close()
	r := newRegistry(t, dir)
	ctx, abort := context.WithTimeout(context.Background(), patience)
	defer abort()
	log := tooltest.Log{On: func(u model.ToolUpdate) {
		if strings.HasPrefix(u.Delta, "up") {
			abort()
		}
	}}
	result := r.Call(ctx, tooltest.Invocation("bash",
		`{"command":"trap '' TERM HUP; exec 9>fifo; sleep 1000 & setsid sleep 1000 & echo up; while :; do sleep 1000; done"}`), log.Add)
	if result.OK || result.Error.Code != tool.Aborted {
		t.Errorf("got %+v, want it aborted", result)
	}
	if _, err := io.Copy(io.Discard, held); err != nil { // until nobody has it
		t.Error(err)
	}
	expect(t, invoke(t, r, "bash", `{"command":"echo again"}`, new(tooltest.Log)).Text, "again")
}

// Calls that run side by side do not wait for each other.
func TestSideBySide(t *testing.T) {
	dir := t.TempDir()
	r := newRegistry(t, dir)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			args := fmt.Sprintf(`{"command":"touch %d; while ! test -e %d; do sleep 0.01; done; echo met"}`, i, (i+1)%4)
			expect(t, invoke(t, r, "bash", args, new(tooltest.Log)).Text, "met")
		})
	}
	all.Wait()
}

// The sandbox keeps writing in the workdir, for the tools and for what a
// command starts.
func TestSandbox(t *testing.T) {
	if abi, err := ll.LandlockGetABIVersion(); err != nil || abi < 3 {
		t.Skipf("the kernel's Landlock has version %d (%v)", abi, err)
	}
	outside := files(t, map[string]string{"f": "old\n"})
	dir := t.TempDir()
	r := newRegistry(t, dir)
	out := filepath.Join(outside, "f")
	expect(t, invoke(t, r, "read", `{"path":"`+out+`"}`, new(tooltest.Log)).Text, "     1\told\n")
	for _, c := range []struct{ tool, args string }{
		{"write", `{"path":"` + out + `","content":"new"}`},
		{"edit", `{"path":"` + out + `","old_text":"old","new_text":"new"}`},
		{"bash", `{"command":"echo new >` + out + `"}`},
		{"bash", `{"command":"rm ` + out + `"}`},
	} {
		if result := invoke(t, r, c.tool, c.args, new(tooltest.Log)); result.OK ||
			!strings.Contains(strings.ToLower(result.Text), "permission denied") {
			t.Errorf("%s: got %q, want it refused", c.tool, result.Text)
		}
	}
	if got := content(t, out); got != "old\n" {
		t.Errorf("got %q outside the workdir", got)
	}
	expect(t, invoke(t, r, "bash",
		`{"command":"test \"$TMUX_TMPDIR\" = \"$TMPDIR\" && test \"$JAVA_TOOL_OPTIONS\" = \"-Djava.io.tmpdir=$TMPDIR\" && echo same"}`, new(tooltest.Log)).Text, "same")
	expect(t, invoke(t, r, "bash", `{"command":"echo x >$TMPDIR/y && cat $TMPDIR/y >/dev/null && touch in && ls"}`,
		new(tooltest.Log)).Text, "in")
}
