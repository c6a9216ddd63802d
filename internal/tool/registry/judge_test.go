package registry

import (
	"context"
	"strings"
	"testing"

	"noused/internal/model"
	"noused/internal/policy"
	"noused/internal/tool"
	"noused/internal/tool/tooltest"
)

// What the rules make of calls: without any, built-in tools and the user's own
// run, and a command outside the sandbox asks.
func TestJudge(t *testing.T) {
	rules := policy.Source{Deny: []string{"m.rm"}, Rules: []policy.Rule{
		{Tool: "m.ask", Decision: policy.Ask}, {Tool: "bash", Decision: policy.Allow, Command: policy.Words{{"git"}, {"status"}}},
	}}
	bare := offers("bash", "read")
	r := registry(t, Options{Policy: rulesOf(t, rules), Workdir: "/src"}, map[string]*fakeHost{"m": offers("ls", "rm", "ask"), "bare": bare})
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
			if got := strings.TrimSpace(v.Decision + " " + v.Code); got != c.want || (v.Decision == "ask" || v.Decision == "deny") && v.Rule == "" {
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
	v := r.Judge(tooltest.Invocation("bash", `{"command":"git push origin","outside_sandbox":true,"reason":"r"}`), "ask", nil)
	if v.Offer == nil || v.Offer.Pattern != "bash: git push … in /src" || v.Reason != "r" {
		t.Fatalf("offers %+v", v.Offer)
	}
	if v := r.Judge(tooltest.Invocation("bash", `{"command":"git push x","outside_sandbox":true,"reason":"r"}`), "ask", [][]byte{v.Offer.Rule}); v.Decision != "allow" {
		t.Errorf("with the session's answer: %+v", v)
	}
	denies := []byte(`{"tool":"read","decision":"deny"}`)
	if v := r.Judge(tooltest.Invocation("m.rm", `{}`), "ask", [][]byte{[]byte(`{"tool":"m.rm","decision":"allow"}`), []byte("{"), denies}); v.Decision != "deny" {
		t.Errorf("an answer lifts a deny: %+v", v)
	}
	if bare.asked.Load() == 0 {
		t.Error("the test has never asked the module")
	}
}

// A call that needs leave reaches no tool without it, whoever makes it.
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
