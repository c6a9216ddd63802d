package registry

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"noused/internal/model"
	"noused/internal/policy"
	"noused/internal/tool"
	"noused/internal/tool/tooltest"
)

// A call of the tool agent has a child also before the tools have said what they can do, as
// when a run goes on after a restart.
func TestACallOfTheToolAgentDelegates(t *testing.T) {
	r := registry(t, Options{}, map[string]*fakeHost{"bare": offers(tool.Agent, "bash"), "m": offers(tool.Agent)})
	for _, known := range []bool{false, true} {
		if known {
			r.List(t.Context(), model.Scope{})
		}
		for name, want := range map[string]bool{tool.Agent: true, "bash": false, "m.agent": false, "m__agent": false} {
			if v := r.Judge(tooltest.Invocation(name, `{}`), "ask", nil); v.Delegates != want {
				t.Errorf("%s, tools known %t: it delegates: %t", name, known, v.Delegates)
			}
		}
	}
}

// A call of the tool agent whose arguments do not fit names the field and those that the tool has, whatever
// the rules say: the run loop makes it, and no tool.
func TestACallOfTheToolAgentNamesTheFieldThatIsWrong(t *testing.T) {
	schema := `{"type":"object","properties":{"prompt":{"type":"string"},"worktree":{"type":"boolean"}},
		"required":["prompt"],"additionalProperties":false}`
	r := registry(t, Options{}, map[string]*fakeHost{"bare": offers(tool.Agent + " " + schema)})
	r.List(t.Context(), model.Scope{})
	for args, want := range map[string]string{
		`{"prompt":"x","promt":"y"}`:      "arguments: additional properties 'promt' not allowed: there are 'prompt', 'worktree'",
		`{"prompt":"x","worktree":"yes"}`: "arguments: /worktree: got string, want boolean",
		`{}`:                              "arguments: missing property 'prompt'",
	} {
		for _, mode := range []string{"ask", "auto"} {
			v := r.Judge(tooltest.Invocation(tool.Agent, args), mode, nil)
			if v.Failure == nil || v.Failure.Text != "bad_request: "+want {
				t.Errorf("%s: got %+v, want %q", args, v.Failure, want)
			}
		}
	}
	if v := r.Judge(tooltest.Invocation(tool.Agent, `{"prompt":"x"}`), "ask", nil); v.Failure != nil {
		t.Errorf("got %+v, want no failure", v.Failure)
	}
}

// What the rules make of calls: without any, built-in tools and the user's own
// run, and a command outside the sandbox asks.
func TestJudge(t *testing.T) {
	rules := policy.Source{Deny: []string{"m.rm"}, Rules: []policy.Rule{
		{Tool: "m.ask", Decision: policy.Ask},
		{Tool: "bash", Decision: policy.Allow, Command: policy.Words{{"git"}, {"status"}}},
	}}
	tools := map[string]*fakeHost{"m": offers("ls", "rm", "ask"), "bare": offers("bash", "read")}
	r := registry(t, Options{Policy: rulesOf(t, rules), Workdir: "/src"}, tools)
	for _, c := range []struct{ name, args, mode, want string }{
		{"m.ls", `{}`, "ask", "allow"},
		{"m__ls", `{}`, "deny", "allow"},
		{"m.rm", `{}`, "auto", "deny forbidden"},
		{"m__rm", `{}`, "auto", "deny forbidden"},
		{"m.ask", `{}`, "ask", "ask"},
		{"m.ask", `{}`, "auto", "allow"},
		{"m.ask", `{}`, "deny", "deny denied"},
		{"m__ask", `{}`, "ask", "ask"},
		{"read", `{"path":"/etc/passwd"}`, "ask", "allow"},
		{"bash", `{"command":"rm -rf /"}`, "ask", "allow"},
		{"bash", `{"command":"git push","outside_sandbox":true,"reason":"r"}`, "ask", "ask"},
		{"bash", `{"command":"git status","outside_sandbox":true,"reason":"r"}`, "ask", "allow"},
		{"bash", `{"command":"git status && git push","outside_sandbox":true,"reason":"r"}`, "ask", "ask"},
		{"bash", `{"command":"x","outside_sandbox":true}`, "deny", "deny denied"},
		{"nobody.x", `{}`, "ask", ""},
	} {
		for _, asked := range []bool{false, true} { // before and after the modules have said what they can do
			if asked {
				r.List(t.Context(), model.Scope{})
			}
			v := r.Judge(tooltest.Invocation(c.name, c.args), c.mode, nil)
			if got := strings.TrimSpace(v.Decision + " " + v.Code); got != c.want ||
				(v.Decision == "ask" || v.Decision == "deny") && v.Rule == "" {
				t.Errorf("%s %s, mode %s, tools known %t: got %+v, want %q", c.name, c.args, c.mode, asked, v, c.want)
			}
		}
	}
	r.List(t.Context(), model.Scope{})
	for args, want := range map[string]string{
		`{"command":"git push","outside_sandbox":true}`:                        "reason: missing",
		`{"command":"git push","outside_sandbox":true,"reason":" "}`:           "reason: missing",
		`{"command":"git push","outside_sandbox":true,"reason":"a\nb"}`:        "one line",
		`{"command":"git push","outside_sandbox":true,"reason":"r","x":1`:      "",
		`{"command":"x","command":"y","outside_sandbox":true,"reason":"lies"}`: "",
	} {
		v := r.Judge(tooltest.Invocation("bash", args), "ask", nil)
		if v.Failure == nil || !strings.Contains(v.Failure.Text, want) {
			t.Errorf("%s: got %+v, want no question, and %q", args, v, want)
		}
	}
	// nor where nobody could answer it, and before the tool has said what it takes
	unknown := registry(t, Options{Policy: rulesOf(t, rules), Workdir: "/src"}, tools)
	for _, r := range []*Registry{r, unknown} {
		v := r.Judge(tooltest.Invocation("m__ask", `"{broken"`), "deny", nil)
		if v.Failure == nil || !strings.Contains(v.Failure.Text, "not a JSON object but a JSON string") {
			t.Errorf("arguments that are no object: got %+v", v)
		}
	}
	v := r.Judge(tooltest.Invocation("bash", `{"command":"uname -a","outside_sandbox":true,"reason":"r"}`), "ask", nil)
	if v.Offer == nil || v.Offer.Pattern != "bash: uname -a …" || v.Reason != "r" {
		t.Fatalf("offers %+v", v.Offer)
	}
	if v := r.Judge(tooltest.Invocation("bash", `{"command":"uname -a -r","outside_sandbox":true,"reason":"r"}`), "ask",
		[][]byte{v.Offer.Rule}); v.Decision != "allow" {
		t.Errorf("with the session's answer: %+v", v)
	}
	denies := []byte(`{"tool":"read","decision":"deny"}`)
	if v := r.Judge(tooltest.Invocation("m.rm", `{}`), "ask", [][]byte{
		[]byte(`{"tool":"m.rm","decision":"allow"}`),
		[]byte("{"), denies,
	}); v.Decision != "deny" {
		t.Errorf("an answer lifts a deny: %+v", v)
	}
	if tools["bare"].asked.Load() == 0 {
		t.Error("the test has never asked the module")
	}
}

// A call that needs an approval reaches no tool without it, no matter who makes it.
func TestACallThatNeedsLeaveReachesNobody(t *testing.T) {
	m := offers("op")
	reached := 0
	m.call = func(context.Context, string, model.Invocation, func(model.ToolUpdate)) model.ToolResult {
		reached++
		return model.ToolResult{OK: true}
	}
	r := registry(t, Options{Policy: rulesOf(t, policy.Source{Ask: []string{"m.op"}})}, map[string]*fakeHost{"m": m})
	if got := call(t, r, "m.op", "{}"); got.OK || got.Error.Code != tool.Forbidden || reached > 0 {
		t.Errorf("got %+v, the tool was reached %d times", got, reached)
	}
	inv := tooltest.Invocation("m.op", "{}")
	inv.Allowed = true
	if got := r.Call(t.Context(), inv, nil); !got.OK || reached != 1 {
		t.Errorf("allowed, and got %+v", got)
	}
}

// A rule with a path is about what the path leads to, too: a link inside the session's
// folder is no way past a deny or an ask, and none for an allow to leave.
func TestAPathRuleBindsWhatThePathLeadsTo(t *testing.T) {
	real := t.TempDir()
	dir := filepath.Join(t.TempDir(), "linked") // the folder itself is reached through a link
	for _, err := range []error{
		os.Symlink(real, dir), os.Mkdir(filepath.Join(real, "secret"), 0o700), os.Mkdir(filepath.Join(real, "src"), 0o700),
		os.WriteFile(filepath.Join(real, "secret", "key"), nil, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{
		"ln": "secret", "src/up": "../secret", "src/file": "../secret/key", "src/absolute": filepath.Join(real, "secret"),
		"src/twice": "../ln/key", "src/dangling": "../secret/new", "src/far": "../secret/none/new", "src/out": "/etc/passwd",
		"src/loop":    "loop",
		"secret/back": "../src", "in": "src",
	} {
		if err := os.Symlink(to, filepath.Join(real, name)); err != nil {
			t.Fatal(err)
		}
	}
	deny := policy.Source{Rules: []policy.Rule{{Tool: "*", Decision: policy.Deny, Path: []string{"secret/**"}}}}
	ask := policy.Source{Rules: []policy.Rule{{Tool: "*", Decision: policy.Ask, Path: []string{"secret/**"}}}}
	allow := policy.Source{
		Allow: []string{},
		Rules: []policy.Rule{{Tool: "*", Decision: policy.Allow, Path: []string{"src/**"}}},
	}
	for _, c := range []struct {
		tool, path        string
		deny, ask, allows string
	}{
		{"write", "secret/key", "deny", "ask", "deny"},
		{"write", "src/new", "allow", "allow", "allow"},
		{"write", "ln/x", "deny", "ask", "deny"},
		{"write", "./src/../ln/x", "deny", "ask", "deny"},
		{"edit", "src/up/key", "deny", "ask", "deny"},
		{"read", "src/file", "deny", "ask", "deny"},
		{"read", "src/absolute/key", "deny", "ask", "deny"},
		{"read", "src/twice", "deny", "ask", "deny"},
		{"write", "src/dangling", "deny", "ask", "deny"},
		{"write", "src/far", "deny", "ask", "deny"},
		{"read", "src/out", "allow", "allow", "deny"},
		{"read", "src/loop", "allow", "allow", "allow"},  // and no program can open it
		{"read", "secret/back/x", "deny", "ask", "deny"}, // as it is spelled
		{"write", "in/x", "allow", "allow", "deny"},      // spelled outside of src
		{"grep", "ln", "deny", "ask", "deny"},
		{"find", "src/up", "deny", "ask", "deny"},
		{"grep", "src", "allow", "allow", "allow"}, // links below are not followed
		{"read", real + "/secret/key", "deny", "ask", "deny"},
		{"read", dir + "/ln/key", "deny", "ask", "deny"},
	} {
		for want, src := range map[string]policy.Source{
			"deny " + c.deny: deny, "ask " + c.ask: ask,
			"allow " + c.allows: allow,
		} {
			r := registry(t, Options{Policy: rulesOf(t, src)},
				map[string]*fakeHost{"bare": offers("read", "write", "edit", "grep", "find")})
			inv := tooltest.Invocation(c.tool, `{"path":"`+c.path+`"}`)
			inv.Workdir = dir
			rule, verdict, _ := strings.Cut(want, " ")
			if v := r.Judge(inv, "ask", nil); v.Decision != verdict {
				t.Errorf("%s %s, with a rule that says %s: got %s by %q, want %s", c.tool, c.path, rule, v.Decision, v.Rule,
					verdict)
			}
		}
	}
}
