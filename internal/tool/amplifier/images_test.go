package amplifier

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
	"noused/internal/tool/tooltest"
)

// The images that a module names reach the model with its result.
func TestAModelSeesTheImagesOfAModule(t *testing.T) {
	for name, d := range map[string]tooltest.Descriptor{
		"flat": fake(t, "fake"), "wrapped": fake(t, "wrapped"),
		"jsonrpc": fake(t, "fake").Set("framing", "jsonrpc"),
	} {
		t.Run(name, func(t *testing.T) {
			b := mount(t, d)
			if err := os.WriteFile(filepath.Join(b.workdir, "a.png"), []byte("A"), 0o600); err != nil {
				t.Fatal(err)
			}
			inv, kept := tooltest.Invocation("x.text", "{}"), []string(nil)
			inv.KeepImage = func(name string, content io.ReaderAt, size int64) error {
				text, err := io.ReadAll(io.NewSectionReader(content, 0, size))
				kept = append(kept, name+"="+string(text))
				return err
			}
			if got := b.Call(t.Context(), inv, func(model.ToolUpdate) {}); !got.OK || got.Text != "hello\nworld" ||
				!slices.Equal(kept, []string{"a.png=A"}) {
				t.Errorf("got %+v with the images %q", got, kept)
			}
		})
	}
}

func TestImagesBesideAResult(t *testing.T) {
	for reply, want := range map[string]struct {
		images []string
		text   string
	}{
		`{"ok":true,"result":1}`:                               {nil, "1"},
		`{"ok":true,"result":1,"images":null}`:                 {nil, "1"},
		`{"result":{"ok":true,"result":1,"images":["a","b"]}}`: {[]string{"a", "b"}, "1"},
		`{"ok":true,"result":{"images":["a"]}}`:                {nil, `{"images":["a"]}`},
		`{"ok":true,"result":1,"images":"a"}`:                  {nil, `1` + "\n" + `[images is not an array of paths: "a"]`},
		`{"ok":true,"result":1,"images":["a",7]}`: {nil, `1` + "\n" +
			`[images is not an array of paths: ["a",7]]`},
	} {
		o, err := decode(jsontext.Value(reply))
		if err != nil {
			t.Fatal(err)
		}
		value, err := o.outcome()
		if err != nil {
			t.Fatal(err)
		}
		if got := o.shown(resultOf(value)); !slices.Equal(got.Images, want.images) || got.Text != want.text {
			t.Errorf("%s: got %q, %q", reply, got.Images, got.Text)
		}
	}
}
