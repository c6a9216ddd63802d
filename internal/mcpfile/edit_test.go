package mcpfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
)

// Whatever is added or removed, the rest of the file stays as it was.
func TestEdit(t *testing.T) {
	git := Server{Name: "git", Command: "uvx", Args: []string{"mcp-server-git", "<&>"}}
	for name, c := range map[string]struct{ before, after string }{
		"no file": {"", "{\n  \"mcpServers\": {\n    \"git\": {\n      \"command\": \"uvx\",\n      \"args\": [\n     " +
			"   \"mcp-server-git\",\n        \"<&>\"\n      ]\n    }\n  }\n}\n"},
		"empty object": {"{}", "{\n  \"mcpServers\": {\n    \"git\": GIT\n  }\n}"},
		"comments": {
			"// all\n{\n\t\"x\": 1, // one\n\t\"servers\": {\n\t\t\"a\": {\"command\": \"b\"} // a\n\t\t// the end\n\t}\n}",
			"// all\n{\n\t\"x\": 1, // one\n\t\"servers\": {\n\t\t\"a\": {\"command\": \"b\"}, // a\n\t\t// the " +
				"end\n\t\t\"git\": GIT\n\t}\n}",
		},
		"trailing comma": {
			"{\"mcpServers\": {\n  \"a\": {\"command\": \"b\"},\n}}",
			"{\"mcpServers\": {\n  \"a\": {\"command\": \"b\"},\n  \"git\": GIT,\n}}",
		},
	} {
		path := filepath.Join(t.TempDir(), "noused", Name)
		if c.before != "" {
			if err := errors.Join(os.Mkdir(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(c.before), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		if err := Add(path, git); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if text := compact(string(got)); c.before != "" && text != c.after || c.before == "" && string(got) != c.after {
			t.Errorf("%s: it became\n%s\nwant\n%s", name, text, c.after)
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: mode %v, %v", name, info.Mode(), err)
		}
		f, err := Read(path)
		if s, ok := f.Server("git"); err != nil || !ok || !reflect.DeepEqual(s.Args, git.Args) {
			t.Errorf("%s: read as %+v, %v", name, s, err)
		}
		if err := Add(path, git); !errors.Is(err, ErrTaken) {
			t.Errorf("%s: added twice: %v", name, err)
		}
		if err := Remove(path, "git"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := Read(path); err != nil {
			t.Errorf("%s: after it was removed: %v", name, err)
		}
		if err := Remove(path, "git"); !errors.Is(err, ErrUnknown) {
			t.Errorf("%s: removed twice: %v", name, err)
		}
	}
}

func compact(text string) string {
	return strings.ReplaceAll(text,
		"{\n      \"command\": \"uvx\",\n      \"args\": [\n        \"mcp-server-git\",\n        \"<&>\"\n      ]\n    }",
		"GIT")
}

// A file that cannot be understood is not written over, and a link stays one.
func TestEditRefuses(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, Name)
	for _, text := range []string{"{", "[]", `{"mcpServers":[]}`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Add(path, Server{Name: "a", Command: "b"}); err == nil {
			t.Errorf("%s was written over", text)
		}
		if got, err := os.ReadFile(path); string(got) != text {
			t.Errorf("%s became %s, %v", text, got, err)
		}
	}
	for _, s := range []Server{
		{Name: "a b", Command: "c"},
		{Name: "files", Command: "c"},
		{Name: "a"},
		{Name: "a", Command: "b", URL: "https://h"},
	} {
		if err := Add(filepath.Join(dir, "other.json"), s); err == nil {
			t.Errorf("%+v was added", s)
		}
	}
	real := filepath.Join(dir, "real.json")
	if err := errors.Join(os.WriteFile(real, []byte("{}"), 0o600), os.Remove(path), os.Symlink("real.json", path),
		Add(path, Server{Name: "a", Command: "b"})); err != nil {
		t.Fatal(err)
	}
	if to, err := os.Readlink(path); to != "real.json" || err != nil {
		t.Errorf("the link is %q, %v", to, err)
	}
	if f, err := Read(real); err != nil || len(f.Servers) != 1 {
		t.Errorf("got %v, %v", f, err)
	}
}

func FuzzEdit(f *testing.F) {
	f.Add("{\"mcpServers\": {\"a\": {\"command\": \"b\"}, // x\n}}", "a")
	f.Add("{\"servers\":{},/*y*/}", "z")
	f.Fuzz(func(t *testing.T, text, remove string) {
		path := filepath.Join(t.TempDir(), Name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		before, err := Read(path)
		if err != nil {
			return
		}
		if err := Add(path, Server{Name: "new", Command: "c"}); err == nil {
			after, err := Read(path)
			if err != nil || len(after.Servers) != len(before.Servers)+1 {
				t.Fatalf("%q became %v, %v", text, after, err)
			}
			before = after
		}
		_, there := before.Server(remove)
		err = Remove(path, remove)
		if there && err != nil {
			t.Fatalf("remove %q: %v", remove, err)
		}
		if after, err := Read(path); err != nil || there && len(after.Servers) < len(before.Servers)-1 {
			t.Fatalf("%q without %q became %v, %v", text, remove, after, err)
		}
	})
}

// Of servers that are added at once none is lost.
func TestAddAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), Name)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			if err := Add(path, Server{Name: fmt.Sprint("s", i), Command: "true"}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if f, err := Read(path); err != nil || len(f.Servers) != 16 {
		t.Errorf("got %+v, %v", f, err)
	}
}
