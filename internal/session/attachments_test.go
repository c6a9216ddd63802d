package session

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"noused/internal/model"
)

func open(t *testing.T, disk Disk, dir string) *Store {
	t.Helper()
	store, err := OpenOn(disk, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

func create(t *testing.T, store *Store, id string, facts ...Fact) {
	t.Helper()
	records := []Record{{t0, Created{SessionID: id, ParentID: "ses-1"}}}
	for _, f := range facts {
		records = append(records, Record{t0, f})
	}
	_, j, err := store.Create(id, records)
	if err == nil {
		err = j.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func image(text string) Image {
	return Image{MediaType: "image/png", Name: text + ".png", Size: int64(len(text)), Content: strings.NewReader(text)}
}

func under(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

const (
	sumOfOne = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed" // of "one"
	sumOfTwo = "3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3" // of "two"
)

// picture reads a kept image.
func picture(s *Store, id string, a model.Attachment) ([]byte, error) {
	a.Open = func() (io.ReadCloser, error) { return s.Picture(id, a) }
	return a.Content()
}

func TestImagesAreKeptByTheirContent(t *testing.T) {
	store := open(t, OSDisk{}, t.TempDir())
	create(t, store, "ses-1")
	second := image("one")
	second.Name = "again"
	kept, err := store.KeepImages("ses-1", []Image{image("one"), image("two"), second})
	if err != nil {
		t.Fatal(err)
	}
	want := []model.Attachment{
		{MediaType: "image/png", Name: "one.png", Size: 3, File: sumOfOne + ".png"},
		{MediaType: "image/png", Name: "two.png", Size: 3, File: sumOfTwo + ".png"},
		{MediaType: "image/png", Name: "again", Size: 3, File: sumOfOne + ".png"},
	}
	if !slices.EqualFunc(kept, want, func(a, b model.Attachment) bool {
		return a.MediaType == b.MediaType && a.Name == b.Name && a.Size == b.Size && a.File == b.File && a.Data == nil
	}) {
		t.Fatalf("got %+v, want %+v", kept, want)
	}
	dir := store.FilesDir("ses-1")
	if got := under(t, dir); !slices.Equal(got, []string{sumOfTwo + ".png", sumOfOne + ".png"}) {
		t.Errorf("the folder has %v, want each image once", got)
	}
	for path, mode := range map[string]os.FileMode{dir: os.ModeDir | 0o700, filepath.Join(dir, kept[0].File): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode() != mode {
			t.Errorf("%s: got %v, %v; want %v", path, info.Mode(), err, mode)
		}
	}
	for i, text := range []string{"one", "two", "one"} {
		if got, err := picture(store, "ses-1", kept[i]); string(got) != text || err != nil {
			t.Errorf("%d: got %q, %v; want %s", i, got, err, text)
		}
	}
	if _, err := store.KeepImages("ses-2", []Image{image("one")}); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v, want that there is no such session", err)
	}
	if got := under(t, store.FilesDir("ses-2")); got != nil {
		t.Errorf("a session that is not there has %v", got)
	}
}

// The lines are the disk format: what they say today is read for ever.
func TestRecordsThatNameImages(t *testing.T) {
	a := []model.Attachment{{MediaType: "image/png", Name: "one.png", Size: 3, File: sumOfOne + ".png"}}
	in := Input{InputID: "in-1", Kind: "prompt", Command: "prompt", Text: "look", RunID: "run-1", Attachments: a}
	said := user("m1", "", "in-1", "look")
	said.Message.Attachments = a
	const list = `"attachments":[{"media_type":"image/png","name":"one.png","size":3,"file":"` + sumOfOne + `.png"}]`
	want :=
		`{"v":1,"at":"2026-01-02T03:04:05.000006Z","type":"input","data":{"input_id":"in-1","kind":"prompt","command":"prompt","text":"look","run_id":"run-1",` + list + `}}
{"v":1,"at":"2026-01-02T03:04:05.000006Z","type":"message","data":{"id":"m1","run_id":"run-1","turn_kind":"prompt","input_id":"in-1","message":{"role":"user","text":"look",` + list + `}}}
`
	got := lines(t, []Record{{t0, in}, {t0, said}})
	if string(got) != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	s := NewState()
	for line := range strings.Lines(string(got)) {
		r, err := decodeRecord([]byte(strings.TrimSuffix(line, "\n")))
		if err == nil {
			err = s.Apply(r)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if h := historyOf(s); len(h) != 1 || len(h[0].Attachments) != 1 || h[0].Attachments[0].File != a[0].File {
		t.Errorf("the history is %+v", h)
	}
}

func TestImagesThatAreNotKept(t *testing.T) {
	store := open(t, OSDisk{}, t.TempDir())
	create(t, store, "ses-1")
	short, long, other, broken, large := image("one"), image("one"), image("one"), image("one"), image("one")
	short.Size, long.Size, other.MediaType, large.Size = 4, 2, "image/svg+xml", MaxImage+1
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	_ = r.Close()
	broken.Content = r
	for want, image := range map[string]Image{
		"changed while it was read": short, "was changed": long, `no image of type "image/svg+xml"`: other,
		"file already closed":       broken,
		"no image of 5242881 bytes": large,
	} {
		if _, err := store.KeepImages("ses-1", []Image{image}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if left := under(t, filepath.Dir(store.FilesDir("ses-1"))); !slices.Equal(left, []string{"ses-1.jsonl"}) {
		t.Errorf("left: %v, want the journal alone", left)
	}
}

// A crash leaves at worst an image that nobody names, which stays, and a part of
// one, which the next daemon removes before it writes any.
func TestPartsOfImagesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	store := open(t, OSDisk{}, dir)
	create(t, store, "ses-1")
	if _, err := store.KeepImages("ses-1", []Image{image("one")}); err != nil {
		t.Fatal(err)
	}
	folder := store.FilesDir("ses-1")
	part := filepath.Join(filepath.Dir(folder), "ses-1.123"+draftExt)
	if err := errors.Join(store.Close(), os.WriteFile(part, []byte("o"), 0o600)); err != nil {
		t.Fatal(err)
	}
	store = open(t, OSDisk{}, dir)
	if _, err := store.KeepImages("ses-1", []Image{image("two")}); err != nil {
		t.Fatal(err)
	}
	if left := under(t, folder); len(left) != 2 {
		t.Errorf("the folder has %v, want two whole images", left)
	}
	if left := under(t, filepath.Dir(folder)); !slices.Equal(left, []string{"ses-1.files", "ses-1.jsonl"}) {
		t.Errorf("left: %v, want the session alone", left)
	}
}

// full is a disk on which kept images have as many names as there can be.
type full struct{ OSDisk }

func (d full) Link(from, to string) error {
	if strings.HasSuffix(filepath.Dir(from), filesExt) {
		return unix.EMLINK
	}
	return d.OSDisk.Link(from, to)
}

// A branch has the images that it shows, whatever happens to its parent.
func TestBranchesHaveTheirOwnImages(t *testing.T) {
	for name, disk := range map[string]Disk{"linked": OSDisk{}, "copied": full{}} {
		t.Run(name, func(t *testing.T) {
			store := open(t, disk, t.TempDir())
			create(t, store, "ses-1")
			kept, err := store.KeepImages("ses-1", []Image{image("one"), image("two"), image("lost")})
			if err == nil {
				err = os.Remove(filepath.Join(store.FilesDir("ses-1"), kept[2].File))
			}
			if err != nil {
				t.Fatal(err)
			}
			said, never := user("m1", "", "", "look"), model.Attachment{MediaType: "image/png", Size: 1, File: "../ses-1.jsonl"}
			said.Message.Attachments = []model.Attachment{kept[0], kept[2], never}
			create(t, store, "ses-2", said)
			if err := store.Delete("ses-1", t0); err != nil {
				t.Fatal(err)
			}
			if left := under(t, store.FilesDir("ses-2")); !slices.Equal(left, []string{kept[0].File}) {
				t.Errorf("the branch has %v, want the one image it shows and its parent had", left)
			}
			if got, err := picture(store, "ses-2", kept[0]); string(got) != "one" || err != nil {
				t.Errorf("got %q, %v; want the image", got, err)
			}
			in, err := Inspect(store.path("ses-2"))
			if err != nil || len(in.Missing) != 2 || !strings.HasSuffix(in.Missing[0], kept[2].File) &&
				!strings.HasSuffix(in.Missing[1], kept[2].File) {
				t.Errorf("missing: %v, %v; want the one that was lost and the one that never was", in.Missing, err)
			}
			_, _, err = store.Create("ses-3", []Record{{t0, Created{SessionID: "ses-3", ParentID: "ses-1"}}, {t0, said}})
			if !errors.Is(err, ErrNotFound) {
				t.Errorf("got %v, want that the parent is gone", err)
			}
			if left := under(t, filepath.Dir(store.FilesDir("ses-2"))); !slices.Equal(left,
				[]string{"ses-2.files", "ses-2.jsonl"}) {
				t.Errorf("left: %v, want the branch alone", left)
			}
		})
	}
}

func TestTokensOfImagesAndThinking(t *testing.T) {
	for _, c := range []struct {
		m    model.Message
		want int64
	}{
		{model.Message{Role: model.User, Text: "12345678"}, 2},
		{model.Message{Role: model.User, Text: "12345678", Attachments: make([]model.Attachment, 2)}, 3202},
		{model.Message{Role: model.Assistant, Thinking: "it is sent to nobody"}, 0},
		{model.Message{Role: model.Assistant, Thinking: "abcd", Blocks: []model.Block{
			{Kind: model.ThinkingBlock, Bytes: 4},
			{Kind: model.OpaqueBlock, Data: []byte(`{"hidden":1}`)},
		}}, 2},
		{model.Message{
			Role: model.Assistant, Text: "abcd",
			Blocks: []model.Block{{Kind: model.OpaqueBlock, Data: []byte(`"` + strings.Repeat("x", 8002) + `"`)}},
		}, 1001},
	} {
		if got := Tokens([]model.Message{c.m}) - messageTokens; got != c.want {
			t.Errorf("%+v: got %d, want %d", c.m, got, c.want)
		}
	}
}
