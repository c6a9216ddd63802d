package registry

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"noused/internal/model"
	"noused/internal/tool/tooltest"
)

func TestOneBadFileDoesNotKeepTheOthersOut(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("bad.json", `{"name":"bad","kind":"spoon"}`)
	write("readme.txt", `not a descriptor`)
	write(".hidden.json", `{`)
	tooltest.New(t, "good", "narratoria", "early").Write(t, dir)
	twin := tooltest.New(t, "good", "narratoria", "early")
	twin.Write(t, dir+"/")
	if err := os.Rename(filepath.Join(dir, "good.json"), filepath.Join(dir, "z.json")); err != nil {
		t.Fatal(err)
	}
	twin.Write(t, dir)

	r := New(Options{Dirs: []string{dir, filepath.Join(dir, "missing")}, Environ: []string{}})
	defer r.Close(t.Context())
	var got []string
	for _, err := range r.Errors() {
		got = append(got, err.Error())
	}
	if len(got) != 2 || !strings.Contains(got[0], "bad.json: kind: ") || !strings.Contains(got[1], "z.json: name: ") {
		t.Errorf("got errors %q, want one for bad.json and one for the second good", got)
	}
	if list := r.List(t.Context(), model.Scope{}); len(list) != 1 || list[0].Module != "good" {
		t.Errorf("got %+v, want the good one", list)
	}
}
