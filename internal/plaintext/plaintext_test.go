package plaintext

import (
	"reflect"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

func TestClean(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"plain", "a line\n\tand one more", "a line\n\tand one more"},
		{"colours", "\x1b[31;1mred\x1b[0m", "red"},
		{"8-bit colours", "\u009b31mred\u009b0m", "red"},
		{"title", "a\x1b]0;owned\x07b", "ab"},
		{"link", "\x1b]8;;http://example.org\x1b\\here\x1b]8;;\x1b\\", "here"},
		{"title without end", "a\x1b]0;owned\nthe next line", "a\nthe next line"},
		{"device control", "a\x1bPq#0\x1b\\b", "ab"},
		{"charset", "a\x1b(0b", "ab"},
		{"full reset", "a\x1bcb", "ab"},
		{"escape at the end", "a\x1b", "a"},
		{"cursor without end", "a\x1b[1;2", "a"},
		{"bell, backspace, nul, delete", "a\x07b\x08c\x00d\x7fe", "abcde"},
		{"C1", "a\u0085b\u0080c\u009fd", "abc"},
		{"progress", "10 %\r50 %\r100 %\ndone", "100 %\ndone"},
		{"line ends of Windows", "a\r\nb\r\n", "a\nb\n"},
		{"reordering", "user\u202etxt.exe\u2066 \u200e\u200f\u061c\u2069", "usertxt.exe "},
		{"separators", "a\u2028b\u2029c", "a\nb\nc"},
		{"tag characters, byte order mark", "\ufeffa\U000e0041\U000e0042b", "ab"},
		{"invalid UTF-8", "a\xff\xfeb", "a\ufffdb"},
		{"C1 as a byte", "a\x9b31mb", "a\ufffd31mb"},
		{"wide", "日本語 ok", "日本語 ok"},
		{"joined emoji", "👩‍👩‍👧 ok", "👩‍👩‍👧 ok"},
	} {
		if got := Clean(c.text); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// drives tells whether a character may never be in what is printed.
func drives(r rune) bool {
	return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r))
}

func FuzzClean(f *testing.F) {
	for _, text := range []string{
		"", "plain\ttext\n", "\x1b[31mred\x1b[0m", "\x1b]0;t\x07", "\xc2\x9b1m\xc2", "a\rb\r\n",
		"\xff\u202e\U000e0041",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := Clean(text)
		if !utf8.ValidString(got) {
			t.Fatalf("%q: got invalid UTF-8: %q", text, got)
		}
		if i := strings.IndexFunc(got, drives); i >= 0 {
			t.Fatalf("%q: %U is left in %q", text, []rune(got[i:])[0], got)
		}
		if again := Clean(got); again != got {
			t.Fatalf("a second time makes %q of %q", again, got)
		}
	})
}

func TestJSONEscapesAndStaysEqual(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":"plain ä 日本"}`:             `{"a":"plain ä 日本"}`,
		"{\"a\":\"\u009b2J\u007f\"}":     `{"a":"\u009b2J\u007f"}`,
		"{\"\u202ea\":\"\u2066\u200f\"}": `{"\u202ea":"\u2066\u200f"}`,
		"[\"\U000e0041\ufeff\u2028\"]":   `["\udb40\udc41\ufeff\u2028"]`,
		"{\"a\":\r\n\t1}":                "{\"a\": \n\t1}",
		"[\"\xff\ufffd\"]":               "[\"\ufffd\ufffd\"]",
	} {
		if got := string(JSON([]byte(text))); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func FuzzJSON(f *testing.F) {
	for _, text := range []string{
		`{"a":[1,"\u001b"]}`, "[\"\u009b\u202e\U000e0041\"]", "{\"\u2028\":\"\\\\\u0085\"}",
		"\r1\r",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := JSON([]byte(text))
		if i := strings.IndexFunc(string(got), drives); i >= 0 && jsontext.Value(text).IsValid() {
			t.Fatalf("%q: a control character is left in %q", text, got)
		}
		var before, after any
		if json.Unmarshal([]byte(text), &before) != nil {
			return
		}
		if err := json.Unmarshal(got, &after); err != nil || !reflect.DeepEqual(before, after) {
			t.Fatalf("%q became %q: %v", text, got, err)
		}
	})
}

// Of a text that is read nothing goes that can be read.
func TestTextKeepsWhatACarriageReturnWouldWriteOver(t *testing.T) {
	for text, want := range map[string]string{
		"old Mac\rlines\rof text": "old Mac\nlines\nof text",
		"of\r\nWindows\r\n":       "of\nWindows\n",
		"half of CR LF\r":         "half of CR LF",
		"\x1b[31mred\x1b[0m\rnot": "red\nnot",
		"none":                    "none",
	} {
		if got := Text(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
