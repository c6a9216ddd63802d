package policy

import (
	"os"
	"regexp"
	"testing"
)

// The rules of docs/approvals.md can be read, and do what the page says.
func TestRulesOfThePage(t *testing.T) {
	text, err := os.ReadFile("../../docs/approvals.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```toml\n(.*?)```").FindSubmatch(text)
	if block == nil {
		t.Fatal("docs/approvals.md has no rules")
	}
	src, err := ReadRules("rules.toml", block[1])
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(src)
	if err != nil || len(src.Rules) != 4 {
		t.Fatalf("%d rules, %v; want 4", len(src.Rules), err)
	}
	for line, want := range map[string]Verdict{
		"df -h": Allow, "id; uname -a": Allow, "git status": Ask,
		"id; git status": Ask,
	} {
		if got := s.Decide(bashCall(line, true)).Verdict; got != want {
			t.Errorf("%s: got %v, want %v", line, got, want)
		}
	}
}
