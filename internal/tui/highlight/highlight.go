// Package highlight finds out what the pieces of source code are: comments,
// strings, keywords and so on, as far as a reader needs to see them apart. It has
// no colours; those are of package theme.
//
// The languages are one table of words and delimiters, read by one scanner. It is
// no parser: where a language cannot be told without one, the piece is Text. A
// table of constants costs nothing when a program starts, as libraries of lexers do.
//
// Every function is pure and may be called from any goroutine. A scan visits each
// byte of a text a bounded number of times, whatever the text is. The package
// refuses to guess a language from a text, to change a text, and to sanitise one.
package highlight

import (
	"path"
	"strings"
)

// Kind is what a piece of code is.
type Kind uint8

// The kinds. Text is whatever has no other.
const (
	Text Kind = iota
	Comment
	Keyword
	Type
	Function // where it is declared or called
	String
	Number // and constants
	Name   // of a variable with a mark, of a key, of an attribute; a heading
	Tag    // of HTML and XML, a selector, a section
	Meta   // a decorator, a directive of a preprocessor, a prompt
	Added
	Removed
)

// Token is a piece of code of one kind. It may be longer than a line.
type Token struct {
	Kind Kind
	Text string
}

// maxText is how many bytes are scanned. A longer text is one Token.
const maxText = 1 << 20

// Scan divides code in a language into tokens, of which the texts put together are
// the code. The language is a name as it is written behind a fence, or the name of a file.
// Code of an unknown language is one token, no code is none.
func Scan(code, lang string) []Token {
	l := find(lang)
	switch {
	case code == "":
		return nil
	case l == nil || len(code) > maxText:
		return []Token{{Text, code}}
	}
	s := scanner{text: code, language: l, fresh: true}
	switch l.mode {
	case markup:
		s.markup()
	case lines:
		s.lines()
	case console:
		s.console()
	default:
		s.code(0, 0)
	}
	return s.tokens
}

// Lines are the tokens of Scan line by line; none goes over the end of one.
func Lines(code, lang string) [][]Token {
	lines := [][]Token{nil}
	for _, token := range Scan(code, lang) {
		for i, text := range strings.Split(token.Text, "\n") {
			if i > 0 {
				lines = append(lines, nil)
			}
			if text != "" {
				last := &lines[len(lines)-1]
				*last = append(*last, Token{token.Kind, text})
			}
		}
	}
	return lines
}

// Known tells whether a language has a scanner.
func Known(lang string) bool { return find(lang) != nil }

// OfFile is the name of the language of a file, "" if that is not known.
func OfFile(name string) string {
	if l := ofFile(name); l != nil {
		own, _, _ := strings.Cut(l.names, " ")
		return own
	}
	return ""
}

// find is the language that is meant by what stands behind a fence: "go", "Rust,ignore",
// "{.python}", "main.go", "ts:src/a.ts".
func find(lang string) *language {
	if len(lang) > 200 {
		return nil
	}
	lang = strings.TrimLeft(strings.ToLower(lang), "{.")
	if i := strings.IndexAny(lang, ",:{}"); i >= 0 {
		lang = lang[:i]
	}
	for i := range languages {
		if has(languages[i].names, lang) {
			return &languages[i]
		}
	}
	return ofFile(lang)
}

func ofFile(name string) *language {
	name = strings.ToLower(path.Base(strings.ReplaceAll(name, `\`, "/")))
	stem, _, _ := strings.Cut(name, ".")
	var named *language
	for i := range languages {
		for file := range strings.SplitSeq(languages[i].files, " ") {
			switch {
			case strings.HasPrefix(file, ".") && strings.HasSuffix(name, file), file == name:
				return &languages[i]
			case file == stem && stem != "":
				named = &languages[i] // Dockerfile.dev
			}
		}
	}
	return named
}

// has tells whether a word is in a list of words with spaces between.
func has(list, word string) bool {
	if word == "" || strings.IndexByte(word, ' ') >= 0 {
		return false
	}
	for from := 0; ; {
		i := strings.Index(list[from:], word)
		if i < 0 {
			return false
		}
		at, end := from+i, from+i+len(word)
		if (at == 0 || list[at-1] == ' ') && (end == len(list) || list[end] == ' ') {
			return true
		}
		from = end
	}
}
