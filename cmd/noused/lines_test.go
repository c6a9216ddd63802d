package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	longestLine     = 120 // characters
	longestFunction = 80  // lines of the body
	mostParameters  = 6
)

// A line of code fits a screen. What cannot be broken, such as a raw string, a
// struct tag or a word of a fixture, is left.
func TestLinesAreShort(t *testing.T) {
	eachGoFile(t, func(name string, text []byte) {
		lines := bytes.Split(text, []byte("\n"))
		fixed := unbreakable(text)
		for i, line := range lines {
			if n := utf8.RuneCount(line); n > longestLine && !fixed[i+1] {
				t.Errorf("%s:%d: %d characters, want at most %d", name, i+1, n, longestLine)
			}
		}
	})
}

// unbreakable returns the lines that hold a raw string or one long word.
func unbreakable(text []byte) map[int]bool {
	file := token.NewFileSet().AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, scanner.ScanComments)
	lines := make(map[int]bool)
	for {
		at, kind, literal := s.Scan()
		if kind == token.EOF {
			return lines
		}
		if kind == token.STRING && literal[0] == '`' || kind == token.COMMENT && strings.HasPrefix(literal, "// {") ||
			(kind == token.STRING || kind == token.COMMENT) && longestWord(literal) > longestLine/2 {
			for n := range 1 + strings.Count(literal, "\n") {
				lines[file.Line(at)+n] = true
			}
		}
	}
}

func longestWord(s string) int {
	longest := 0
	for word := range strings.FieldsSeq(s) {
		longest = max(longest, utf8.RuneCountInString(word))
	}
	return longest
}

// A function is read in one sitting, and a call of it without counting.
func TestFunctionsAreShort(t *testing.T) {
	eachGoFile(t, func(name string, text []byte) {
		if strings.HasSuffix(name, "_test.go") {
			return
		}
		places := token.NewFileSet()
		file, err := parser.ParseFile(places, name, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, declared := range file.Decls {
			f, ok := declared.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			if n := places.Position(f.End()).Line - places.Position(f.Pos()).Line; n > longestFunction {
				t.Errorf("%s: %s has %d lines, want at most %d", name, f.Name.Name, n, longestFunction)
			}
			if n := f.Type.Params.NumFields(); n > mostParameters {
				t.Errorf("%s: %s has %d parameters, want at most %d", name, f.Name.Name, n, mostParameters)
			}
		}
	})
}

func eachGoFile(t *testing.T, do func(name string, text []byte)) {
	t.Helper()
	root := filepath.Join("..", "..")
	for _, top := range []string{"cmd", "internal"} {
		if err := filepath.WalkDir(filepath.Join(root, top), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() || filepath.Ext(path) != ".go" {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			name, err := filepath.Rel(root, path)
			do(name, text)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}
