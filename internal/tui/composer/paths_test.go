package composer

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPathsAreThoseOfTheWorkdir(t *testing.T) {
	dir, home := t.TempDir(), t.TempDir()
	for _, path := range []string{"src/deep/Lantern.go", "src/main.go", "README.md", ".git/HEAD", ".hidden"} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(home, "papers"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		typed string
		want  []string
	}{
		{"", []string{"src/", "README.md"}},
		{"re", []string{"README.md"}},
		{"src/", []string{"src/deep/", "src/main.go"}},
		{"lant", []string{"src/deep/Lantern.go"}},
		{".", []string{".hidden"}},
		{"~/p", []string{"~/papers/"}},
		{dir + "/s", []string{dir + "/src/"}},
		{"nowhere", []string{}},
	} {
		got, err := findFiles(context.Background(), dir, home, tc.typed)
		if diff := cmp.Diff(tc.want, append([]string{}, got...)); err != nil || diff != "" {
			t.Errorf("%q: %v (-want +got):\n%s", tc.typed, err, diff)
		}
	}
	if _, err := findFiles(context.Background(), "", home, "re"); !errors.Is(err, errNoWorkdir) {
		t.Errorf("got %v, want errNoWorkdir where the core does not say", err)
	}
	if _, err := findFiles(context.Background(), dir, home, "gone/x"); err == nil ||
		!strings.Contains(err.Error(), "gone") {
		t.Errorf("got %v, want an error that names the folder", err)
	}
}
