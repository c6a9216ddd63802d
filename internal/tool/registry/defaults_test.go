package registry

import (
	"strings"
	"testing"

	"noused/internal/model"
	"noused/internal/policy"
	"noused/internal/tool/tooltest"
)

// What a tool fills in for the model is part of what rules look at and people are asked
// about, and no more than that runs.
func TestDefaultsArePartOfWhatIsAsked(t *testing.T) {
	const params = `{"type":"object","properties":{"path":{"type":"string","default":"/src/secret/key"},"mode":{"type":"string","default":"fast"}}}`
	bare, host := offers("read "+params), offers("list "+strings.ReplaceAll(params, "/src/secret/key", "/src/open"))
	r := registry(t, Options{Workdir: "/src", Policy: rulesOf(t, policy.Source{Rules: []policy.Rule{
		{Tool: "read", Path: []string{"secret/**"}, Decision: policy.Deny}, {Tool: "m.list", Decision: policy.Ask},
	}})}, map[string]*fakeHost{"bare": bare, "m": host})
	r.List(t.Context(), model.Scope{})
	if v := r.Judge(tooltest.Invocation("read", `{}`), "ask", nil); v.Decision != model.Deny {
		t.Errorf("a path that the tool fills in: got %+v, want it denied", v)
	}
	if got := r.Call(t.Context(), tooltest.Invocation("read", `{}`), nil); got.OK || got.Error.Code != model.Forbidden {
		t.Errorf("it is called: %+v", got)
	}
	v := r.Judge(tooltest.Invocation("m.list", `{"mode":"slow"}`), "ask", nil)
	if v.Decision != model.Ask || !strings.Contains(string(v.Arguments), `"/src/open"`) ||
		!strings.Contains(string(v.Arguments), `"slow"`) {
		t.Fatalf("got %+v with %s, want a question about all that would run", v, v.Arguments)
	}
	asked := tooltest.Invocation("m.list", string(v.Arguments))
	if v := r.Judge(asked, "ask", nil); v.Arguments != nil {
		t.Errorf("judged again: %s is filled in", v.Arguments)
	}
	asked.Allowed = true
	if got := r.Call(t.Context(), asked, nil); got.Text != "list "+string(asked.Arguments) {
		t.Errorf("ran %s, asked was about %s", got.Text, asked.Arguments)
	}
}
