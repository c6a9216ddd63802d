// Command licences prints the licence texts of everything that is linked into
// programs, on any of the platforms that are packaged: of Go itself and of each
// module. A text that several have is printed once, below all their names.
//
//	licences ./cmd/noused ./cmd/nous
//
// It refuses to print anything where one of them has no text.
package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "licences:", err)
		os.Exit(1)
	}
}

func run(w io.Writer, programs []string) error {
	all := texts{}
	if err := all.add("Go "+runtime.Version(), goroot(), goroot()); err != nil {
		return err
	}
	for _, arch := range []string{"amd64", "arm64"} {
		packages, err := linked(arch, programs)
		if err != nil {
			return err
		}
		for _, p := range packages {
			if p.Module == nil || p.Module.Main { // the standard library, and our own
				continue
			}
			if err := all.add(p.Module.Path+" "+p.Module.Version, p.Module.Dir, p.Dir); err != nil {
				return err
			}
		}
	}
	return all.print(w)
}

// goPackage is what go list says of a package.
type goPackage struct {
	Dir    string
	Module *struct {
		Path, Version, Dir string
		Main               bool
	}
}

// linked are the packages that programs are made of.
func linked(arch string, programs []string) (packages []goPackage, err error) {
	cmd := exec.Command("go", append([]string{"list", "-deps", "-json=Dir,Module"}, programs...)...)
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+arch, "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	for dec := jsontext.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		err := json.UnmarshalDecode(dec, &p)
		if errors.Is(err, io.EOF) {
			return packages, nil
		}
		if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		packages = append(packages, p)
	}
}

func goroot() string {
	out, _ := exec.Command("go", "env", "GOROOT").Output()
	return strings.TrimSpace(string(out))
}

// texts are licence texts, and whose they are.
type texts map[string]map[string]bool

var licence = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents|unlicense)([._-].*)?$`)

// add takes the texts that count for a package: those in its folder and in all
// above it, up to its module's.
func (t texts) add(name, module, dir string) error {
	found := false
	for {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			if !licence.MatchString(entry.Name()) || !entry.Type().IsRegular() || strings.HasSuffix(entry.Name(), ".go") {
				continue
			}
			text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
			if err != nil {
				return err
			}
			t.put(name, string(text))
			found = true
		}
		if dir == module {
			break
		}
		dir = filepath.Dir(dir)
	}
	if !found {
		return fmt.Errorf("%s has no licence text in %s", name, module)
	}
	return nil
}

func (t texts) put(name, text string) {
	text = strings.Trim(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	if t[text] == nil {
		t[text] = map[string]bool{}
	}
	t[text][name] = true
}

func (t texts) print(w io.Writer) error {
	byNames := slices.SortedFunc(maps.Keys(t), func(a, b string) int {
		return cmp.Or(slices.Compare(names(t[a]), names(t[b])), strings.Compare(a, b))
	})
	for _, text := range byNames {
		if _, err := fmt.Fprintf(w, "%s\n%s\n\n%s\n\n", strings.Repeat("=", 80), strings.Join(names(t[text]), "\n"),
			text); err != nil {
			return err
		}
	}
	return nil
}

func names(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }
