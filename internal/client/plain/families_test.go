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
