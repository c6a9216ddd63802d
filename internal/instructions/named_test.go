package instructions

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNamedAgentsOfFiles(t *testing.T) {
	in, dir := library(t, map[string]string{
		"repo/sub/.noused/agents/review.md": "---\ndescription: looks for faults\n" +
			"tools: Read, Glob, mcp__github__get_issue\nmodel: sonnet\ncolor: red\n---\nLook for faults.\n",
		"repo/.claude/agents/review.md": "---\nname: review\n---\nThe other.",
		"repo/.claude/agents/file.md":   "---\nname: called-else\ntools: [Read, read, TodoWrite]\neffort: low\n---\nSay it.",
		"config/agents/none.md":         "---\ntools: []\nmodel: openai/gpt-5\nagent: codex\n---\nNo tools.",
		"config/agents/explore.md":      "---\ntools: [bash]\n---\nNot that one.",
		"config/agents/short.md":        "No front matter.",
		"config/agents/empty.md":        "---\ndescription: says nothing\n---\n",
		"config/agents/narrow.md":       "---\ntools: Bash(git log:*)\n---\nx",
		"config/agents/map.md":          "---\ntools: {a: b}\n---\nx",
		"config/agents/long.md":         "---\nname: long\n---\n" + strings.Repeat("x", maxNamed),
		"config/agents/bad.md":          "---\nname: ../x\n---\nx",
	})
	agents, problems := in.Named()
	var got []string
	for _, a := range agents {
		got = append(got, fmt.Sprintf("%s (%s) %q all=%t %q model=%s effort=%s agent=%s", a.Name, a.Description, a.Text[:5],
			a.AllTools, a.Tools, a.Model, a.Effort, a.Agent))
	}
	if diff := cmp.Diff([]string{
		`review (looks for faults) "Look " all=false ["read" "find" "github.get_issue"] model= effort= agent=`,
		`called-else () "Say i" all=false ["read" "todo"] model= effort=low agent=`,
		`none () "No to" all=false [] model=openai/gpt-5 effort= agent=codex`,
		`explore (finds out where and how something is done in the folder; it only reads) "# Exp" all=false ["read" "grep" "find" "ls" "todo"] model= effort= agent=`,
		`plan (reads what a task needs and ends with a plan for it; it changes nothing) "# Pla" all=false ["read" "grep" "find" "ls" "todo"] model= effort= agent=`,
	}, got); diff != "" {
		t.Error(diff)
	}
	var said []string
	for _, p := range problems {
		said = append(said, strings.TrimPrefix(p, dir+"/config/agents/"))
	}
	if diff := cmp.Diff([]string{
		`bad.md: has the name "../x": want letters, digits, - and _, at most 64`,
		"empty.md: has no instructions below its front matter",
		"explore.md: the agent explore is built in: give yours another name",
		"long.md: has more than 32 KiB",
		"map.md: has tools that are no list",
		`narrow.md: has the tool "Bash(git log:*)": name whole tools, and make a rule of approvals for what they may do`,
		"short.md: has no front matter: it does not begin with a line ---",
	}, said); diff != "" {
		t.Error(diff)
	}
	if a, err := in.NamedAgent("called-else"); err != nil || a.Path != dir+"/repo/.claude/agents/file.md" {
		t.Errorf("got %+v, %v", a, err)
	}
	if _, err := in.NamedAgent("file"); !errors.Is(err, ErrNoAgent) ||
		!strings.HasSuffix(err.Error(), `"file"; there are called-else, explore, none, plan, review`) {
		t.Errorf("got %v", err)
	}
	if _, err := in.NamedAgent("narrow"); err == nil || !strings.Contains(err.Error(), "narrow.md: has the tool") {
		t.Errorf("a file that is broken: got %v", err)
	}
}

func FuzzNamedAgent(f *testing.F) {
	f.Add("---\nname: a\ntools: [Read]\n---\nx")
	f.Add("---\ntools: a, b(c\n---\nx")
	f.Fuzz(func(t *testing.T, text string) {
		a, err := parseNamed("file", text)
		if err == nil && (a.Text == "" || !commandNames().MatchString(a.Name) || len(a.Tools) > maxNamedTools ||
			strings.ContainsAny(a.Description, "\n\x1b")) {
			t.Errorf("%q: %+v", text, a)
		}
	})
}
