package mcp

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"noused/internal/model"
	"noused/internal/tool/tooltest"
)

// A result is what a model reads and files beside it; what is structured comes as
// the server wrote it.
func TestWhatAResultComesTo(t *testing.T) {
	b := mount(t, server(t, "rogue"))
	var log tooltest.Log
	inv := do("rich", 0)
	var shown []string
	inv.KeepImage = func(name string, content io.ReaderAt, size int64) error {
		got := make([]byte, size)
		if _, err := content.ReadAt(got, 0); err != nil || string(got) != string(pixel) {
			t.Errorf("the model is shown %q, %v", got, err)
		}
		shown = append(shown, name)
		return nil
	}
	r := b.Call(t.Context(), inv, log.Add)
	if !r.OK || string(r.Value) != `{"answer":42}` || len(shown) != 1 || !strings.HasSuffix(shown[0], ".png") {
		t.Errorf("got %+v, %q shown", r, shown)
	}
	want := []struct{ kind, mediaType, content, said string }{
		{"image", "image/png", string(pixel), "[image, image/png, 70 bytes: "},
		{"audio", "audio/wav", "RIFF", "[audio, audio/wav, 4 bytes: "},
		{"link", "text/uri-list", "file:///etc/shadow\r\n", "[link file:///etc/shadow shadow: "},
		{"resource", "text/markdown", "# Note", "[resource note://1: "},
		{"resource", "application/pdf", "%PDF", "[resource blob://1: "},
	}
	lines, updates := strings.Split(r.Text, "\n"), log.Updates()
	if len(lines) != 1+len(want) || lines[0] != "look" || len(updates) != len(want) {
		t.Fatalf("got %q, %d updates", r.Text, len(updates))
	}
	for i, w := range want {
		a := updates[i].Asset
		content, err := os.ReadFile(a.Path)
		if err != nil || a.Kind != w.kind || a.MediaType != w.mediaType || string(content) != w.content || a.Tool != "x" {
			t.Errorf("got %+v with %q, %v; want %+v", a, content, err, w)
		}
		if !strings.HasPrefix(lines[1+i], w.said) || !strings.Contains(lines[1+i], a.Path) {
			t.Errorf("the model reads %q, want %q and %s", lines[1+i], w.said, a.Path)
		}
		if info, err := os.Stat(a.Path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("got %v, %v", info, err)
		}
	}
	if r := b.call("value", 0); string(r.Value) != `{"id": 9007199254740993}` {
		t.Errorf("got %s, want the number as it came", r.Value)
	}
}

// Of too many files the oldest go.
func TestFilesAreBounded(t *testing.T) {
	k := newFiles(t.TempDir())
	k.most = 5
	var paths []string
	for range 8 {
		path, err := k.write("ses-1", "text/plain", []byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	left, _ := filepath.Glob(filepath.Join(k.kept.Of("ses-1"), "*"))
	if len(left) != 5 || !slices.Contains(left, paths[len(paths)-1]) {
		t.Errorf("%d files are left", len(left))
	}
}

// What runs at once is bounded for the whole daemon: a server that nobody calls in a
// folder ends for one in another.
func TestServersOfManyFoldersShareRoom(t *testing.T) {
	b := mount(t, server(t, "rogue"))
	b.succeeds("", "did it")
	for range 40 {
		inv := do("", 0)
		inv.Workdir = t.TempDir()
		if real, err := filepath.EvalSymlinks(inv.Workdir); err != nil || real != inv.Workdir {
			t.Skip("the temporary directory is behind a link")
		}
		if r := b.Call(t.Context(), inv, func(model.ToolUpdate) {}); !r.OK {
			t.Fatalf("got %+v", r)
		}
		if n := len(tooltest.Lines(t, filepath.Join(inv.Workdir, trace))); n == 0 {
			t.Fatal("it did not run there")
		}
	}
	if n := children(t); n > 34 { // 32 beyond one, and the guardian
		t.Errorf("%d processes live", n)
	}
	b.gone()
}

// children are the processes that this one has.
func children(t *testing.T) (n int) {
	t.Helper()
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		pids, _ := os.ReadFile(list)
		n += len(strings.Fields(string(pids)))
	}
	return n
}
