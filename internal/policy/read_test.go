package policy

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestReadRules(t *testing.T) {
	const text = `# mine

[[policy.rule]]
tool     = "bash"
decision = "allow"
command  = ["git", ["status", "diff", "log"]]
workdir  = "/home/me/proj"
match     = ["git status", "git diff -w"]
not_match = ["git push"]

[[policy.rule]]
tool = "edit"
decision = "ask"
path = ["src/**", "*.md"]
`
	src, err := ReadRules("rules.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	want := []Rule{
		{
			Tool: "bash", Decision: Allow, Command: Words{{"git"}, {"status", "diff", "log"}}, Workdir: "/home/me/proj",
			Match: []string{"git status", "git diff -w"}, NotMatch: []string{"git push"}, Place: Place{"rules.toml", 3, 1},
		},
		{Tool: "edit", Decision: Ask, Path: []string{"src/**", "*.md"}, Place: Place{"rules.toml", 11, 2}},
	}
	if diff := cmp.Diff(want, src.Rules, cmpopts.IgnoreUnexported(Rule{})); diff != "" {
		t.Error(diff)
	}
	s, err := New(src)
	if err != nil {
		t.Fatal(err)
	}
	d := s.Decide(bashCall("git log -3", true))
	if got := d.Place.String() + " " +
		d.Rule; got != "rules.toml:3: rule 1 allow: bash: git status|diff|log … in /home/me/proj" {
		t.Errorf("got %q", got)
	}
}

func TestReadConfigLeavesOtherKeysAlone(t *testing.T) {
	src, err := ReadConfig("config.toml", []byte("model = \"offline\"\n[policy]\nallow = \"read\"\nask = "+
		"[\"w*\"]\napproval_timeout = \"1h\"\n[limits]\nrun_tokens = 1\n"))
	if err != nil || len(src.Allow) != 1 || len(src.Ask) != 1 || src.Deny != nil {
		t.Errorf("got %+v, %v", src, err)
	}
	s, err := New(src)
	if err != nil {
		t.Fatal(err)
	}
	if d := s.Decide(fileCall("write", "a")); d.Place.String() != "config.toml:4" {
		t.Errorf("got %s at %s", d.Rule, d.Place)
	}
	if src, err = ReadConfig("config.toml", nil); err != nil || src.Allow != nil {
		t.Errorf("of nothing: got %+v, %v", src, err)
	}
}

// Each mistake is an error that says where it is: file, line, rule, field.
func TestMistakesInRules(t *testing.T) {
	const head = "[[policy.rule]]\ntool = \"bash\"\ndecision = \"allow\"\n"
	for _, c := range []struct{ name, text, want string }{
		{"no TOML", "[[policy.rule]\n", "r.toml:1: expected"},
		{"cut off", head + "command = [\"git", "r.toml:4: "},
		{"garbage", "\x00\x01\x02", "r.toml:1: "},
		{"key twice", head + "tool = \"x\"\n", "r.toml:4: "},
		{"unknown section", head + "[limits]\nrun_tokens = 1\n", "r.toml:4: limits: there is no such key"},
		{"unknown key of the section", "[policy]\nallow = [\"x\"]\n", "r.toml:2: policy.allow: there is no such key"},
		{"section is none", "policy = 1\n", "r.toml:1: policy: want a section"},
		{"rule is none", "policy.rule = 1\n", "r.toml:1: policy.rule: want tables"},
		{"rules are none", "policy.rule = [1]\n", "r.toml:1: rule 1: got 1, want a table"},
		{"one table only", "[policy.rule]\ntool = \"x\"\n", "r.toml:1: policy.rule: want tables"},
		{"unknown key", head + "\ncomand = [\"git\"]\n", "r.toml:5: rule 1: comand: there is no such key"},
		{"unknown key of the second", head + "\n" + head + "x.y = 1\n", "r.toml:8: rule 2: x: there is no such key"},
		{"no tool", "[[policy.rule]]\ndecision = \"allow\"\n", `r.toml:1: rule 1: tool: "" is no pattern`},
		{
			"broken pattern", "[[policy.rule]]\ndecision = \"allow\"\ntool = \"[\"\n",
			`r.toml:3: rule 1: tool: "[" is no pattern`,
		},
		{"empty tool", "[[policy.rule]]\ntool = \"\"\n", "r.toml:2: rule 1: tool: is empty"},
		{"tool is a number", "[[policy.rule]]\ntool = 1\n", "r.toml:2: rule 1: tool: got 1, want a string"},
		{"no decision", "[[policy.rule]]\ntool = \"x\"\n", `rule 1: decision: got "", want allow, ask or deny`},
		{
			"unknown decision", "[[policy.rule]]\ntool = \"x\"\ndecision = \"Allow\"\n",
			`r.toml:3: rule 1: decision: got "Allow"`,
		},
		{"relative workdir", head + "workdir = \"proj\"\n", "r.toml:4: rule 1: workdir: "},
		{"workdir with a slash", head + "workdir = \"/proj/\"\n", "r.toml:4: rule 1: workdir: "},
		{"workdir with dots", head + "workdir = \"/a/../b\"\n", "r.toml:4: rule 1: workdir: "},
		{"no word", head + "command = []\n", "r.toml:4: rule 1: command: has no word"},
		{"no alternative", head + "command = [[]]\n", "r.toml:4: rule 1: command[0]: has no alternative"},
		{"empty word", head + "command = [\"git\", \"\"]\n", "r.toml:4: rule 1: command[1]: is empty"},
		{
			"a line for a word", head + "command = [\"git status\"]\n",
			"r.toml:4: rule 1: command[0]: \"git status\" has a blank",
		},
		{"a text for the words", head + "command = \"git\"\n", "r.toml:4: rule 1: command: got git, want an array"},
		{"a number for a word", head + "command = [\"git\", 1]\n", "r.toml:4: rule 1: command: got 1 at 1"},
		{"a number for an alternative", head + "command = [[1]]\n", "r.toml:4: rule 1: command: got [1] at 0"},
		{"wrapper", head + "command = [\"sudo\", \"ls\"]\n", "r.toml:4: rule 1: command[0]: \"sudo\" runs other commands"},
		{
			"wrapper among others", head + "command = [[\"ls\", \"/usr/bin/env\"]]\n",
			"r.toml:4: rule 1: command[0]: \"/usr/bin/env\" runs other commands",
		},
		{
			"word of the shell", head + "command = [\"export\"]\n",
			"r.toml:4: rule 1: command[0]: \"export\" runs other commands",
		},
		{"any shell", head + "command = [\"bash\"]\n", "r.toml:4: rule 1: command[0]: \"bash\" runs what its next word says"},
		{
			"command of another tool", "[[policy.rule]]\ntool = \"read\"\ndecision = \"deny\"\ncommand = [\"ls\"]\n",
			"r.toml:4: rule 1: command: only bash has commands",
		},
		{"path of another tool", head + "path = [\"src/**\"]\n", "r.toml:4: rule 1: path: only read, write"},
		{"both", head + "command = [\"ls\"]\npath = [\"x\"]\n", "r.toml:5: rule 1: path: a rule has command or path"},
		{"no glob", "[[policy.rule]]\ntool = \"*\"\ndecision = \"deny\"\npath = []\n", "r.toml:4: rule 1: path: has no glob"},
		{
			"broken glob", "[[policy.rule]]\ntool = \"*\"\ndecision = \"deny\"\npath = [\"a\", \"[\"]\n",
			"r.toml:4: rule 1: path[1]: \"[\" is no glob",
		},
		{
			"absolute glob", "[[policy.rule]]\ntool = \"*\"\ndecision = \"deny\"\npath = [\"/etc/**\"]\n",
			"r.toml:4: rule 1: path[0]: \"/etc/**\" starts somewhere else",
		},
		{
			"glob that leaves", "[[policy.rule]]\ntool = \"*\"\ndecision = \"deny\"\npath = [\"../x\"]\n",
			"r.toml:4: rule 1: path[0]: ",
		},
		{
			"glob that is never met", "[[policy.rule]]\ntool = \"*\"\ndecision = \"deny\"\npath = [\"./src/**\"]\n",
			"r.toml:4: rule 1: path[0]: ",
		},
		{
			"example that does not match", head + "command = [\"git\"]\nmatch = [\"git x\", \"go x\"]\n",
			"r.toml:5: rule 1: match[1]: the rule does not match \"go x\"",
		},
		{
			"example of a line that no rule allows", head + "command = [\"git\"]\nmatch = [\"git x > y\"]\n",
			"r.toml:5: rule 1: match[0]: the rule does not match",
		},
		{
			"example that matches", head + "command = [\"git\"]\nnot_match = [\"hg\", \"git x\"]\n",
			"r.toml:5: rule 1: not_match[1]: the rule matches \"git x\"",
		},
		{
			"example both ways", head + "command = [\"git\"]\nmatch = [\"git x\"]\nnot_match = [\"git x\"]\n",
			"r.toml:6: rule 1: not_match[0]: the rule matches",
		},
		{
			"example of a path",
			"[[policy.rule]]\ntool = \"edit\"\ndecision = \"deny\"\npath = [\"src/**\"]\nmatch = [\"doc/x\"]\n",
			"r.toml:5: rule 1: match[0]: the rule does not match \"doc/x\"",
		},
		{
			"example of a name", "[[policy.rule]]\ntool = \"gh.*\"\ndecision = \"deny\"\nmatch = [\"ghx\"]\n",
			"r.toml:4: rule 1: match[0]: the rule does not match \"ghx\"",
		},
		{"examples are a text", head + "match = \"git\"\n", "r.toml:4: rule 1: match: got git, want an array of strings"},
	} {
		src, err := ReadRules("r.toml", []byte(c.text))
		if err == nil {
			_, err = New(src)
		}
		var typed *Error
		if err == nil || !errors.As(err, &typed) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

func TestExamplesThatHold(t *testing.T) {
	rulesOf(t, `
[[policy.rule]]
tool = "bash"
decision = "deny"
command = ["git", "push"]
match = ["git push", "sh -c 'git push'", "echo $(git push)"]
not_match = ["git pull", "git $x"]

[[policy.rule]]
tool = "*"
decision = "deny"
path = ["**/*.pem"]
match = ["a/b.pem", "c.pem"]
not_match = ["c.txt"]

[[policy.rule]]
tool = "gh.*"
decision = "ask"
match = ["gh.issue", "gh__issue"]
not_match = ["ghx"]
`)
}

func TestARuleAsTOML(t *testing.T) {
	when := time.Date(2026, 11, 22, 9, 30, 0, 0, time.FixedZone("", 3600))
	r := Rule{Tool: "bash", Decision: Allow, Command: Words{{"git"}, {"push", "pull"}}, Workdir: "/home/me/proj"}
	got, err := r.TOML(when, "ses-1", "Fix the build")
	if err != nil {
		t.Fatal(err)
	}
	want := `
# 2026-11-22T08:30:00Z, session ses-1: Fix the build
[[policy.rule]]
tool = "bash"
decision = "allow"
command = ["git", ["push", "pull"]]
workdir = "/home/me/proj"
`
	if got != want {
		t.Errorf("got %s", got)
	}
	if text, err := (Rule{Tool: "["}).TOML(when, "s", ""); err == nil {
		t.Errorf("a rule that is none became %s", text)
	}
}

// Whatever is in a title, a session's name or a command: what is read again is
// that one rule, however often it was written.
func FuzzARuleAsTOML(f *testing.F) {
	f.Add("ses-1", "title", "git", "push", "/home/me")
	f.Add("s\n[[policy.rule]]\ntool=\"*\"", "t\r\ndecision = \"allow\"", "a\"b", "x\n\\\"", "/a\u2028b")
	f.Add("\x00\x1b", "\u202e\u0085", "é\u200b", "\x7f\x01", "/\U0010ffff")
	f.Fuzz(func(t *testing.T, session, title, name, word, workdir string) {
		rules := []Rule{
			{Tool: "bash", Decision: Allow, Command: Words{{name}, {word, name}}, Workdir: workdir},
			{Tool: "*", Decision: Deny, Path: []string{word}, Match: []string{}, NotMatch: []string{}},
		}
		for _, want := range rules {
			text, err := want.TOML(time.Time{}, session, title)
			if err != nil {
				continue
			}
			src, err := ReadRules("rules.toml", []byte(text+text))
			if err != nil || len(src.Rules) != 2 {
				t.Fatalf("%q: got %d rules, %v", text, len(src.Rules), err)
			}
			for _, got := range src.Rules {
				if diff := cmp.Diff(want, got, sameRule); diff != "" {
					t.Errorf("%q: %s", text, diff)
				}
			}
			if pattern := want.Pattern(); strings.ContainsAny(pattern, "\n\r\x1b\x00") {
				t.Errorf("the pattern is %q", pattern)
			}
		}
	})
}

func TestARuleAsJSON(t *testing.T) {
	want := Rule{Tool: "bash", Decision: Allow, Command: Words{{"git"}, {"push"}}, Workdir: "/home/me"}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != `{"tool":"bash","decision":"allow","command":[["git"],["push"]],"workdir":"/home/me"}` {
		t.Errorf("got %s", text)
	}
	var got Rule
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, sameRule); diff != "" {
		t.Error(diff)
	}
}
