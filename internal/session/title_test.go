package session

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"noused/internal/model"
	"noused/internal/protocol"
)

func TestTitlesAreReadable(t *testing.T) {
	for text, want := range map[string]string{
		"fix the parser\nand more":                       "fix the parser",
		`!bash {"command":"ls -l\n  cd ..","timeout":3}`: "bash ls -l cd ..",
		`!files.read {"paths":["a","b"],"x":{"y":"z"}}`:  "files.read a b z",
		`!reload {}`:                "reload",
		`!bash {"command":"ls`:      `!bash {"command":"ls`,
		`!hold.run`:                 "!hold.run",
		`!bash ls`:                  "!bash ls",
		`{"command":"ls"}`:          `{"command":"ls"}`,
		`!`:                         "!",
		strings.Repeat("long ", 30): strings.Repeat("long ", 23) + "long…",
	} {
		if got := titleOf(text); got != want {
			t.Errorf("%q is called %q, want %q", text, got, want)
		}
	}
}

// A branch is called by the first text that was said in it, until then as its parent is, and
// by what somebody calls it: no matter who reads the journal.
func TestABranchIsCalledByItsOwnWords(t *testing.T) {
	begins := []Record{
		{t0, Created{SessionID: "ses-1", ParentID: "ses-0", Title: "the parent's"}},
		{t0, MessageAdded{ID: "m1", Message: model.Message{Role: model.User, Text: "said before"}}},
	}
	own := Record{t0, Input{InputID: "in-1", Kind: protocol.KindPrompt, RunID: "run-1", Text: "its own words\nand more"}}
	second := Record{t0, Input{InputID: "in-2", Kind: protocol.KindFollowUp, RunID: "run-1", Text: "more of them"}}
	named := Record{t0, TitleSet{Title: "a name"}}
	for want, records := range map[string][]Record{
		"the parent's":  begins,
		"its own words": append(slices.Clone(begins), own, second),
		"a name":        append(slices.Clone(begins), named, own),
	} {
		store := open(t, OSDisk{}, t.TempDir())
		if err := os.WriteFile(store.path("ses-1"), lines(t, records), 0o600); err != nil {
			t.Fatal(err)
		}
		ctx := context.Background()
		search, err := NewSearch("x")
		if err != nil {
			t.Fatal(err)
		}
		state, err := store.Peek(ctx, "ses-1")
		if err != nil {
			t.Fatal(err)
		}
		summary, err := store.Summary(ctx, "ses-1")
		if err != nil {
			t.Fatal(err)
		}
		found, err := store.Title(ctx, "ses-1", search)
		if err != nil {
			t.Fatal(err)
		}
		calls, err := store.Calls(ctx, "ses-1", NewCallReader(), func(Call) {})
		if err != nil {
			t.Fatal(err)
		}
		for _, got := range []string{state.Title, summary.Title, found, calls.Title} {
			if got != want {
				t.Errorf("got %q, %q, %q and %q, want %q", state.Title, summary.Title, found, calls.Title, want)
				break
			}
		}
	}
}

func FuzzTitleOf(f *testing.F) {
	f.Add(`!bash {"command":"ls"}`)
	f.Fuzz(func(t *testing.T, text string) {
		if got := titleOf(text); len([]rune(got)) > titleLength || strings.Contains(got, "\n") {
			t.Errorf("%q is called %q", text, got)
		}
	})
}
