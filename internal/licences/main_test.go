package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheProgramsLicences(t *testing.T) {
	if _, err := os.Stat(filepath.Join(goroot(), "LICENSE")); err != nil {
		t.Skipf("this Go came without its licence: %v", err)
	}
	var out strings.Builder
	if err := run(&out, []string{"../../cmd/noused", "../../cmd/nous"}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\nGo go1.", "\ngithub.com/spf13/cobra v", "\ngo.uber.org/zap v",
		"Copyright 2009 The Go Authors", "\ncharm.land/bubbletea/v2 v",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the licences have no %q", want)
		}
	}
	if strings.Contains(out.String(), "pgregory.net/rapid") {
		t.Error("the licences have what only tests use")
	}
}

func TestLicences(t *testing.T) {
	module := t.TempDir()
	below := filepath.Join(module, "a", "b")
	if err := os.MkdirAll(below, 0o700); err != nil {
		t.Fatal(err)
	}
	all := texts{}
	if err := all.add("example.org/m v1", module, below); err == nil ||
		!strings.Contains(err.Error(), "example.org/m v1 has no licence text") {
		t.Errorf("a module without a licence: got error %v", err)
	}
	for name, text := range map[string]string{
		"LICENSE.md": "free\n", "a/COPYING": "also free\r\n", "a/NOTICE": "by us\n",
		"license.go": "package m", "a/LICENSES": "no licence",
	} {
		if err := os.WriteFile(filepath.Join(module, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"example.org/m v1", "example.org/k v2"} {
		if err := all.add(name, module, below); err != nil {
			t.Fatal(err)
		}
	}
	if err := all.add("example.org/l v3", module, module); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := all.print(&out); err != nil {
		t.Fatal(err)
	}
	line := strings.Repeat("=", 80) + "\n"
	want := line + "example.org/k v2\nexample.org/l v3\nexample.org/m v1\n\nfree\n\n" +
		line + "example.org/k v2\nexample.org/m v1\n\nalso free\n\n" + line +
		"example.org/k v2\nexample.org/m v1\n\nby us\n\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &out, want)
	}
}
