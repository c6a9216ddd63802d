package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// riddles are phrases that need a second reading, and what to write instead.
// A phrase may be broken over two lines of a comment.
var riddles = []struct{ phrase, instead string }{
	{`what there is`, "name the thing"},
	{`that there (are|is not|was not)\b`, "existing, or does not exist"},
	{`\bwhoever\b`, "the caller, anyone who, no matter who"},
	{`\b(told|tells?) of\b`, "reports, learns of, is listed"},
	{
		`of which (nobody|nothing|no event|no copy|no end|no process|it is not|there is|is measured)\b`,
		"that, whose, for which",
	},
	{`\b(becomes?|became) of\b`, "happens to, how it ends"},
	{`as it comes\b`, "as it arrives"},
	{`what is to be\b`, "name the thing"},
	{`\bof whom\b`, "whose"},
	{`(needs?|user's|nobody's) leave\b|\bno leave\b|\bleave of yours`, "approval"},
	{`may \S+ be called[?]`, "Allow this call of bash?"},
	{`effect is unknown`, "it may have done part of its work; check"},
	{`lets less be done`, "the stricter verdict"},
	{`the run that there was`, "the interrupted run"},
	{`need not be kept`, "old data"},
	{`nobody is asked here`, "nobody can approve it"},
	{`question withdrawn`, "the approval is no longer asked for"},
	{`steer:one`, "steering: one at a time"},
	{`taken back: \d`, "taken back; 2 still queued"},
	{`what was queued is back`, "your queued text is in the input again"},
	{`it is off until`, "it stays stopped until"},
	{`\bis no more of it\b|no more of it is to be had\b`, "the rest cannot be read"},
	{`is of no interest`, "is not used"},
	{`\bsays of itself\b`, "describes itself, its description"},
}

// unread are places that must hold the phrases.
var unread = []string{
	"cmd/noused/words_test.go",
	"internal/protocol/testdata/", // frozen
}

// Comments, messages, helps and pages say who does what, in plain words.
func TestWordsArePlain(t *testing.T) {
	root := filepath.Join("..", "..")
	refused := make([]*regexp.Regexp, len(riddles))
	for i, r := range riddles {
		refused[i] = regexp.MustCompile(`(?i)` + strings.ReplaceAll(r.phrase, " ", `(?: |\n[\t ]*(?://|#)? ?)`))
	}
	files := 0
	for _, top := range []string{
		"README.md", "SCOPE.md", "CONTRIBUTING.md", "SECURITY.md", "Makefile", "cmd", "internal",
		"docs", "examples", "deploy", "scripts",
	} {
		if err := filepath.WalkDir(filepath.Join(root, top), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() {
				return err
			}
			name, err := filepath.Rel(root, path)
			if err != nil || !isProse(name) || slices.ContainsFunc(unread, func(place string) bool {
				return strings.HasPrefix(name, place)
			}) {
				return err
			}
			text, err := os.ReadFile(path)
			files++
			for i, r := range refused {
				for _, at := range r.FindAllIndex(text, -1) {
					line := 1 + strings.Count(string(text[:at[0]]), "\n")
					t.Errorf("%s:%d: %q; write: %s", name, line, text[at[0]:at[1]], riddles[i].instead)
				}
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	if files < 500 {
		t.Errorf("only %d files were read", files)
	}
}

// isProse reports whether a file holds words for people.
func isProse(name string) bool {
	ext := filepath.Ext(name)
	return slices.Contains([]string{".go", ".md", ".txtar", ".conf", ".service", ".socket"}, ext) || name == "Makefile" ||
		ext == "" && strings.HasPrefix(name, "scripts/")
}
