package main

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bmatcuk/doublestar/v4"
	"go.yaml.in/yaml/v3"
)

// packageList is deploy/packages/nfpm.yaml, as far as it is looked at here.
type packageList struct {
	Contents []packageContent
	Scripts  map[string]string
}

type packageContent struct{ Src, Dst, Type, Packager string }

func readPackageList(t *testing.T) (list packageList) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "packages", "nfpm.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	return list
}

// goesTo says where a file goes in a kind of package, "" for nowhere.
func (l packageList) goesTo(kind, file string) string {
	for _, c := range l.Contents {
		if c.Packager != "" && c.Packager != kind {
			continue
		}
		src := strings.ReplaceAll(c.Src, "${ARCH}", "amd64")
		switch rest, below := strings.CutPrefix(file, src+"/"); {
		case src == file:
			return c.Dst
		case c.Type == "tree" && below:
			return path.Join(c.Dst, rest)
		case doublestar.MatchUnvalidated(src, file):
			return c.Dst + path.Base(file)
		}
	}
	return ""
}

var packageKinds = []string{"deb", "rpm", "ipk"} // of an ipk scripts/dist makes the tar.gz

// Everything that the packages are to have is there, or is made by scripts/dist.
func TestPackagesHaveNothingThatIsMissing(t *testing.T) {
	root := filepath.Join("..", "..")
	list := readPackageList(t)
	var made strings.Builder
	for _, script := range []string{"dist", "share"} {
		text, err := os.ReadFile(filepath.Join(root, "scripts", script))
		if err != nil {
			t.Fatal(err)
		}
		made.Write(text)
	}
	for _, c := range list.Contents {
		if built, ok := strings.CutPrefix(c.Src, "bin/dist/"); ok {
			name := strings.TrimSuffix(strings.TrimPrefix(built, "share/"), "/*")
			name = strings.TrimRight(strings.NewReplacer("${ARCH}", "$arch", "man/", "").Replace(name), "157")
			if !strings.Contains(made.String(), path.Base(name)) {
				t.Errorf("no script makes %s", c.Src)
			}
			continue
		}
		if found, err := filepath.Glob(filepath.Join(root, c.Src)); err != nil || len(found) == 0 {
			t.Errorf("%s: %v, and found %q", c.Src, err, found)
		}
	}
	if len(list.Contents) < 20 || len(list.Scripts) > 0 {
		t.Errorf("got %d entries and scripts %v, want at least 20 and none", len(list.Contents), list.Scripts)
	}
}

// What is added to the documents, examples and units is in every package, and no
// file of theirs stands in two places.
func TestPackagesHaveAllThatThereIs(t *testing.T) {
	root := filepath.Join("..", "..")
	list := readPackageList(t)
	files := []string{"README.md", "SCOPE.md", "SECURITY.md", "bin/dist/licences.txt"}
	for _, dir := range []string{"docs", "examples"} {
		if err := fs.WalkDir(os.DirFS(root), dir, func(name string, entry fs.DirEntry, err error) error {
			if err == nil && entry.Type().IsRegular() && !strings.Contains(name, "__pycache__") {
				files = append(files, name)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range packageKinds {
		places := []string{}
		for _, file := range files {
			places = append(places, list.goesTo(kind, file))
		}
		if i := slices.Index(places, ""); i >= 0 {
			t.Errorf("%s: nothing takes %s", kind, files[i])
		}
		slices.Sort(places)
		if len(slices.Compact(places)) != len(files) {
			t.Errorf("%s: of %d files some go to one place", kind, len(files))
		}
		for file, want := range map[string]string{
			"bin/dist/units/noused.service":             "/usr/lib/systemd/user/noused.service",
			"bin/dist/share/man/man1/nous.1.gz":         "/usr/share/man/man1/nous.1.gz",
			"bin/dist/share/man/man5/noused.toml.5.gz":  "/usr/share/man/man5/noused.toml.5.gz",
			"bin/dist/share/man/man7/noused-tools.7.gz": "/usr/share/man/man7/noused-tools.7.gz",
			"bin/dist/amd64/nous":                       "/usr/bin/nous",
			"bin/dist/share/zsh/site-functions/_nous": map[string]string{
				"deb": "/usr/share/zsh/vendor-completions/_nous",
			}[kind],
		} {
			if got := list.goesTo(kind, file); want != "" && got != want {
				t.Errorf("%s: %s goes to %q, want %q", kind, file, got, want)
			}
		}
	}
}

// make install and scripts/dist put their own path into the units, by this one.
func TestUnitsNameTheProgramInOnePlace(t *testing.T) {
	units, err := filepath.Glob(filepath.Join(unitDir, "*.service"))
	if err != nil || len(units) == 0 {
		t.Fatalf("got %v and units %q", err, units)
	}
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "\nExecStart=%h/.local/bin/noused") ||
			strings.Count(string(text), "%h/.local") != strings.Count(string(text), "%h/.local/bin/noused") {
			t.Errorf("%s: want ExecStart=%%h/.local/bin/noused, and the program nowhere else", unit)
		}
	}
}
