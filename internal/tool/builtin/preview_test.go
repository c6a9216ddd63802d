package builtin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A question about edit or write shows what would change, all of it, and nothing
// of a file outside the folder; nothing is changed by it, and nothing hangs it.
func TestPreview(t *testing.T) {
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "key")
	for path, text := range map[string]string{
		filepath.Join(dir, "a"): strings.Repeat("same\n", 3) + "old\n" + strings.Repeat("same\n", 3), outside: "secret\n",
		filepath.Join(dir, "long"): strings.Repeat("line\n", 500_000),
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ op, args, want string }{
		{
			"edit", `{"path":"a","old_text":"old","new_text":"new"}`,
			"@@ -2,5 +2,5 @@\n      2\tsame\n      3\tsame\n-     4\told\n+     4\tnew\n      5\tsame\n      6\tsame",
		},
		{
			"edit", `{"path":"` + dir + `/a","edits":[{"old_text":"old","new_text":"new"}]}`,
			"@@ -2,5 +2,5 @@\n      2\tsame\n      3\tsame\n-     4\told\n+     4\tnew\n      5\tsame\n      6\tsame",
		},
		{"write", `{"path":"b","content":"one\ntwo\n"}`, "@@ -0,0 +1,2 @@\n+     1\tone\n+     2\ttwo"},
		{
			"write", `{"path":"a","content":"same\nsame\nsame\nnew\nsame\nsame\nsame\n"}`,
			"@@ -2,5 +2,5 @@\n      2\tsame\n      3\tsame\n-     4\told\n+     4\tnew\n      5\tsame\n      6\tsame",
		},
		{"edit", `{"path":"a","old_text":"none","new_text":"new"}`, ""},
		{"write", `{"path":"link","content":"x"}`, ""},
		{"write", `{"path":"../x","content":"x"}`, ""},
		{"write", `{"path":"pipe","content":"x"}`, ""},
		{"write", `{"path":"long","content":"x"}`, ""},
		{"write", `{"path":"."}`, ""},
		{"bash", `{"command":"x"}`, ""},
	} {
		if got := Preview(dir, c.op, []byte(c.args)); got != c.want {
			t.Errorf("%s %s: got\n%s\nwant\n%s", c.op, c.args, got, c.want)
		}
	}
	long := Preview(dir, "write", []byte(`{"path":"new","content":"`+strings.Repeat(`0123456789\n`, 10_000)+`"}`))
	if len(long) > maxPreview+100 || !strings.HasSuffix(long, "[and more; the arguments have all of it]") {
		t.Errorf("a long one has %d bytes and ends with %q", len(long), long[len(long)-60:])
	}
}
