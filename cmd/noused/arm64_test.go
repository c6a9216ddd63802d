package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"

	"noused/internal/testenv"
)

// Every package is sound on arm64, and its tests are. Types are checked from the source,
// as nothing has to be compiled for that; what go vet says is the same on both, as no file
// is for one processor alone.
func TestEveryPackageIsSoundOnARM64(t *testing.T) {
	testenv.Long(t)
	loaded, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports |
			packages.NeedDeps | packages.NeedTypes | packages.NeedTypesSizes | packages.NeedSyntax | packages.NeedModule,
		Tests: true, Dir: "../..", Env: append(os.Environ(), "GOARCH=arm64", "CGO_ENABLED=0"),
	}, "./...")
	if err != nil {
		t.Fatal(err)
	}
	if len(loaded) < 100 {
		t.Errorf("got %d packages, want all and their tests", len(loaded))
	}
	packages.Visit(loaded, nil, func(p *packages.Package) {
		for _, err := range p.Errors {
			t.Error(err)
		}
		for _, file := range p.IgnoredFiles {
			ours := p.Module != nil && p.Module.Main
			simulator := filepath.Base(filepath.Dir(file)) == "sim" // by its build tag
			if ours && !simulator && !strings.HasPrefix(filepath.Base(file), "race_on") {
				t.Errorf("%s is not for every processor: have go vet look at arm64, too", file)
			}
		}
	})
}
