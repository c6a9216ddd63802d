package builtin

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"noused/internal/model"
	"noused/internal/policy"
	"noused/internal/tool/registry"
	"noused/internal/tool/tooltest"
)

// A call opens what the rules were asked about. A folder that becomes a link after that,
// or a link that leads elsewhere then, is no way to what a rule denies.
func TestWhatIsOpenedIsWhatWasJudged(t *testing.T) {
	rules, err := policy.New(policy.Source{
		Rules: []policy.Rule{{Tool: "*", Decision: policy.Deny, Path: []string{"secret/**"}}},
	})
	must(t, err)
	for _, c := range []struct{ tool, args string }{
		{"read", `{"path":"PLACE/key"}`},
		{"write", `{"path":"PLACE/key","content":"mine"}`},
		{"write", `{"path":"PLACE/new/file","content":"mine"}`},
		{"edit", `{"path":"PLACE/key","old_text":"hush","new_text":"mine"}`},
		{"ls", `{"path":"PLACE"}`},
		{"find", `{"path":"PLACE","pattern":"*"}`},
		{"grep", `{"path":"PLACE","pattern":"hush"}`},
		{"read", `{"path":"PLACE/image.png"}`},
	} {
		for _, place := range []string{"pub", "ln"} { // a folder, and a link to it
			t.Run(c.tool+" "+place, func(t *testing.T) {
				dir, err := filepath.EvalSymlinks(t.TempDir())
				must(t, err)
				in := func(name string) string { return filepath.Join(dir, name) }
				must(t, errors.Join(os.Mkdir(in("secret"), 0o700), os.Mkdir(in("pub"), 0o700), os.Symlink("pub", in("ln")),
					os.WriteFile(in("secret/key"), []byte("hush"), 0o600),
					os.WriteFile(in("secret/image.png"), []byte("\x89PNG\r\n\x1a\nhush"), 0o600),
					os.WriteFile(in("pub/key"), []byte("nothing"), 0o600)))
				r := newRegistry(t, dir, func(o *registry.Options) { o.Policy = func() *policy.Set { return rules } })
				r.List(t.Context(), model.Scope{})
				inv := tooltest.Invocation(c.tool, strings.ReplaceAll(c.args, "PLACE", place))
				inv.Workdir = dir
				v := r.Judge(inv, "ask", nil)
				if want := in("pub"); v.Decision != model.Allow || !strings.HasPrefix(v.Path, want) {
					t.Fatalf("judged: got %+v, want that it is allowed and about %s", v, want)
				}
				inv.Allowed, inv.Path = true, v.Path
				must(t, errors.Join(os.Rename(in(place), in("was")), os.Symlink("secret", in(place))))
				shown := false
				inv.KeepImage = func(string, io.ReaderAt, int64) error { shown = true; return nil }
				got := r.Call(t.Context(), inv, nil)
				if got.OK && place == "pub" || strings.Contains(got.Text, "hush") || strings.Contains(got.Text, "image") &&
					got.OK || shown {
					t.Errorf("got %+v", got)
				}
				key, err := os.ReadFile(in("secret/key"))
				if _, made := os.Stat(in("secret/new")); string(key) != "hush" || err != nil || made == nil {
					t.Errorf("what is denied has changed: %q, %v", key, err)
				}
			})
		}
	}
}

// Who is asked about a file learns which one it is, whatever rule asks.
func TestAQuestionKnowsWhereThePathLeads(t *testing.T) {
	rules, err := policy.New(policy.Source{Rules: []policy.Rule{{Tool: "write", Decision: policy.Ask}}})
	must(t, err)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	must(t, errors.Join(os.Mkdir(filepath.Join(dir, "pub"), 0o700), os.Symlink("pub", filepath.Join(dir, "ln"))))
	r := newRegistry(t, dir, func(o *registry.Options) { o.Policy = func() *policy.Set { return rules } })
	r.List(t.Context(), model.Scope{})
	for place, linked := range map[string]bool{"pub": false, "./pub": false, "ln": true} {
		inv := tooltest.Invocation("write", `{"path":"`+place+`/new","content":"x"}`)
		inv.Workdir = dir
		v := r.Judge(inv, "ask", nil)
		if want := filepath.Join(dir, "pub/new"); v.Decision != model.Ask || v.Path != want || v.Linked != linked {
			t.Errorf("%s: got %+v, want that it asks about %s, linked: %v", place, v, want, linked)
		}
	}
}
