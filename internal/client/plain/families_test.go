package plain

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"noused/internal/protocol"
)

func TestFamilies(t *testing.T) {
	session := func(id, parent string, waits bool) protocol.SessionInfo {
		s := protocol.SessionInfo{SessionID: id, Title: "of " + id}
		if parent != "" {
			s.Parent = &protocol.Parent{SessionID: parent}
		}
		if waits {
			s.WaitingFor = "approval"
		}
		return s
	}
	list := []protocol.SessionInfo{
		session("c2", "c1", true), session("root", "", false), session("c1", "root", false), session("c3", "root", false),
		session("alone", "", false), session("lost", "elsewhere", false),
	}
	titles := func(tree bool) (all []string) {
		for _, s := range Families(list, tree) {
			all = append(all, fmt.Sprintf("%s: %s", s.SessionID, s.Title))
		}
		return all
	}
	if diff := cmp.Diff([]string{
		"root: of root · 3 child sessions", "c2: └── of c2", "alone: of alone", "lost: of lost",
	}, titles(false)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{
		"root: of root", "c1: └─ of c1", "c2: └── of c2", "c3: └─ of c3", "alone: of alone", "lost: of lost",
	}, titles(true)); diff != "" {
		t.Error(diff)
	}
	if list[1].Title != "of root" {
		t.Error("the list that was given is another now")
	}
}

// A child session with a worktree of its own is counted and drawn with its parent, whose folder is listed (found by a
// trial).
func TestFamiliesOverFolders(t *testing.T) {
	session := func(id, parent, folder string) protocol.SessionInfo {
		s := protocol.SessionInfo{SessionID: id, Title: id, Workdir: folder}
		if parent != "" {
			s.Parent = &protocol.Parent{SessionID: parent}
		}
		return s
	}
	everywhere := []protocol.SessionInfo{
		session("grandchild", "child", "/tree"), session("child", "root", "/tree"), session("other", "", "/other"),
		session("root", "", "/here"), session("a child", "other", "/here"),
	}
	list := WithChildren(everywhere[3:], everywhere)
	got := map[bool]string{}
	for _, tree := range []bool{false, true} {
		for _, s := range Families(list, tree) {
			got[tree] += s.Workdir + " " + s.Title + "; "
		}
	}
	want := map[bool]string{
		false: "/here root · 2 child sessions; /here a child; ",
		true:  "/here root; /here └─ child; /here └── grandchild; /here a child; ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
