package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"noused/internal/model"
	"noused/internal/proc"
	"noused/internal/tool"
	"noused/internal/tool/tooltest"
)

// A tool's images reach anyone who keeps them; the daemon's own files do not, by no
// path, and what is not shown is reported.
func TestImagesOfAResult(t *testing.T) {
	dir, state := t.TempDir(), t.TempDir()
	for path, text := range map[string]string{"a.png": "A", "sub.png": "B"} {
		if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	secret := filepath.Join(state, "secret.png")
	if err := errors.Join(
		os.WriteFile(secret, []byte("S"), 0o600), os.Symlink(secret, filepath.Join(dir, "link.png")),
		os.Symlink("a.png", filepath.Join(dir, "fine.png")),
		syscall.Mkfifo(filepath.Join(dir, "pipe.png"), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	images := []string{
		"a.png", filepath.Join(dir, "sub.png"), secret, "link.png", "fine.png", "pipe.png", "nowhere.png",
		"refused.png",
	}
	if err := os.WriteFile(filepath.Join(dir, "refused.png"), []byte("R"), 0o600); err != nil {
		t.Fatal(err)
	}
	h := offers("op")
	h.call = func(context.Context, string, model.Invocation, func(model.ToolUpdate)) model.ToolResult {
		return model.ToolResult{OK: true, Text: "done", Images: images}
	}
	r := registry(t, Options{Workdir: dir, Hidden: proc.Hidden{Paths: []string{state}}}, map[string]*fakeHost{"m": h})
	var kept []string
	inv := tooltest.Invocation("m.op", "{}")
	inv.KeepImage = func(name string, content io.ReaderAt, size int64) error {
		text, err := io.ReadAll(io.NewSectionReader(content, 0, size))
		if string(text) == "R" {
			err = errors.New("is text")
		}
		if err == nil {
			kept = append(kept, name+" "+string(text))
		}
		return err
	}
	got := r.Call(t.Context(), inv, nil)
	if want := []string{"a.png A", "sub.png B", "fine.png A"}; !slices.Equal(kept, want) {
		t.Errorf("kept %q, want %q", kept, want)
	}
	want := fmt.Sprintf(
		"done\n[%s is not shown: it is hidden from tools]\n[link.png is not shown: it is hidden from tools]\n"+
			"[pipe.png is not shown: is not a regular file]\n[nowhere.png is not shown: no such file or "+
			"directory]\n[refused.png is not shown: is text]", secret)
	if got.Text != want || got.Images != nil {
		t.Errorf("got %q, want %q", got.Text, want)
	}

	images, kept = slices.Repeat([]string{"a.png"}, maxImages+3), nil
	if got := r.Call(t.Context(), inv, nil); len(kept) != maxImages ||
		!strings.Contains(got.Text, "[3 more images are not shown: at most 16 are]") {
		t.Errorf("kept %d, told %q", len(kept), got.Text)
	}
	inv.KeepImage = nil
	if got := r.Call(t.Context(), inv, nil); got.Text != "done" {
		t.Errorf("nobody looks, and got %q", got.Text)
	}
}

// An image that was kept for a session is shown to that session alone.
func TestAKeptImageIsItsSessionsAlone(t *testing.T) {
	state := t.TempDir()
	r := New(Options{OutputDir: filepath.Join(state, "tool-output"), Hidden: proc.Hidden{Paths: []string{state}}})
	defer r.Close(context.Background())
	f, err := r.keep.files.Create("ses-1", "asset-1.png")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for session, shown := range map[string]bool{"ses-1": true, "ses-2": false} {
		d := &tool.Descriptor{Workdir: t.TempDir(), Readable: r.keep.files.Of(session)}
		if err := r.mayShow(d, model.Invocation{}, f); (err == nil) != shown {
			t.Errorf("%s: got %v", session, err)
		}
	}
}
