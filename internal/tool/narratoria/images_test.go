package narratoria

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"noused/internal/model"
	"noused/internal/tool/tooltest"
)

// The images that a tool makes reach the model with its result, also with a failure.
func TestAModelSeesTheImagesThatAToolMakes(t *testing.T) {
	asset := func(n int, mediaType, path string) string {
		return fmt.Sprintf(`{"version":"0","type":"asset","assetId":"a%d","kind":"image","mediaType":%q,"path":%q}`, n,
			mediaType, path)
	}
	for _, ok := range []bool{true, false} {
		r := mount(t, script(t, asset(1, "image/png", "a.png"), asset(2, "Image/JPEG; q=1", "b.jpg"),
			asset(3, "image/svg+xml", "c.svg"), asset(4, "image/png", "gone.png"),
			fmt.Sprintf(`{"version":"0","type":"done","ok":%t,"summary":"drawn"}`, ok)))
		for _, name := range []string{"a.png", "b.jpg", "c.svg"} {
			if err := os.WriteFile(filepath.Join(r.workdir, name), []byte(name), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		inv, kept := tooltest.Invocation("t.run", "{}"), []string(nil)
		inv.KeepImage = func(name string, content io.ReaderAt, size int64) error {
			text, err := io.ReadAll(io.NewSectionReader(content, 0, size))
			kept = append(kept, name+"="+string(text))
			return err
		}
		got := r.Call(t.Context(), inv, func(model.ToolUpdate) {})
		if want := []string{"a.png=a.png", "b.jpg=b.jpg"}; got.OK != ok || !slices.Equal(kept, want) ||
			!strings.Contains(got.Text, "drawn") {
			t.Errorf("got %+v with the images %q, want %q", got, kept, want)
		}
	}
}
