package builtin

import (
	"strings"
	"testing"

	"noused/internal/tool/tooltest"
)

// The list that a model keeps is the plan of its session; each call replaces it whole.
func TestTheListOfAModelIsItsSessionsPlan(t *testing.T) {
	r := newRegistry(t, t.TempDir())
	long := strings.Repeat("x", 501)
	for _, c := range []struct{ args, want, patch string }{
		{
			`{"items":[{"content":"read","status":"completed"},{"content":"write","status":"pending"}]}`,
			"The list has 2 items: 1 completed, 0 in progress, 1 pending.",
			`{"plan":[{"content":"read","status":"completed"},{"content":"write","status":"pending"}]}`,
		},
		{`{"items":[]}`, "The list has 0 items: 0 completed, 0 in progress, 0 pending.", `{"plan":[]}`},
		{`{}`, "bad_request: …", ""},
		{`{"items":[{"content":"a","status":"done"}]}`, "bad_request: …", ""},
		{`{"items":[{"content":"a"}]}`, "bad_request: …", ""},
		{`{"items":[{"content":" ","status":"pending"}]}`, "bad_request: items[0].content: want 1 to 500 bytes", ""},
		{`{"items":[{"content":"` + long + `","status":"pending"}]}`, "bad_request: …", ""},
		{
			`{"items":[` + strings.Repeat(`{"content":"a","status":"pending"},`, 100) + `{"content":"a","status":"pending"}]}`,
			"bad_request: …", "",
		},
	} {
		var log tooltest.Log
		res := invoke(t, r, "todo", c.args, &log)
		text := res.Text
		if !res.OK {
			text = res.Error.Code + ": " + res.Error.Message
		}
		expect(t, text, c.want)
		patch := ""
		for _, u := range log.Updates() {
			patch += string(u.Patch)
			if want := `{"patch":` + c.patch + `,"type":"state_patch"}`; string(u.Update) != want {
				t.Errorf("%s: the event is %s, want %s", c.args, u.Update, want)
			}
		}
		if patch != c.patch {
			t.Errorf("%s: the patch is %s, want %s", c.args, patch, c.patch)
		}
	}
}
