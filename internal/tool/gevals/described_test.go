package gevals

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"noused/internal/model"
	"noused/internal/tool"
)

// described has the manifest of the player before any player runs.
func described(h *host) {
	m, err := decodeManifest([]byte(usual))
	if err != nil {
		panic(err)
	}
	h.manifest = &tool.Manifest{Operations: m.Operations}
}

// What an extension can do that is known without it is listed without a process; its
// first call starts one.
func TestADescribedExtensionStartsWithItsFirstCall(t *testing.T) {
	b := mount(t, script(t, "!get\n!ok"), described)
	list := b.List(t.Context(), model.Scope{})
	if len(list) != 1 || list[0].Name != "x.run" || !list[0].Healthy {
		t.Fatalf("got %+v, want x.run, healthy", list)
	}
	b.starts(0)
	b.succeeds("did it")
	b.starts(1)
	if diff := cmp.Diff(list, b.List(t.Context(), model.Scope{})); diff != "" {
		t.Errorf("the list has changed (-before +after):\n%s", diff)
	}
}

// One that cannot be started says so to anyone who looks at the tools, as one that is not
// described does.
func TestADescribedExtensionThatCannotStartIsTold(t *testing.T) {
	b := mount(t, script(t, "!cold\n!exit 2"), described)
	b.Try(t.Context(), model.Scope{})
	list := b.List(t.Context(), model.Scope{})
	if len(list) != 1 || list[0].Healthy || list[0].Problem == "" {
		t.Fatalf("got %+v, want what is wrong", list)
	}
	if r := b.call(); r.OK {
		t.Errorf("got %+v, want a failure", r)
	}
}

// A first call that finds no process is reported by the list, too.
func TestAFailedFirstCallIsTold(t *testing.T) {
	b := mount(t, script(t, "!cold\n!exit 2"), described)
	b.fails(b.call(), tool.Crashed, "exit status 2")
	if list := b.List(t.Context(), model.Scope{}); len(list) != 1 || list[0].Healthy {
		t.Errorf("got %+v, want what is wrong", list)
	}
}
