package pick

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"noused/internal/protocol"
)

// family are sessions that work, one of them with so many children, of which the second has a child that
// asks.
func family(children int) []protocol.SessionInfo {
	work := func(id, title, parent string) protocol.SessionInfo {
		s := protocol.SessionInfo{
			SessionID: id, Title: title, UpdatedAt: ago(time.Minute), Messages: 2, RunState: "running", Workdir: "/src",
			LastText: "The form has two fields.",
		}
		if parent != "" {
			s.Parent = &protocol.Parent{SessionID: parent}
		}
		return s
	}
	list := []protocol.SessionInfo{work("ses-1", "Read the news", ""), work("ses-2", "Fix the login", "")}
	for i := range children {
		id := fmt.Sprintf("ses-3%d", i)
		list = append(list, work(id, fmt.Sprintf("Look into part %d", i+1), "ses-2"))
		if i == 1 {
			asks := work("ses-4", "Run the tests", id)
			asks.WaitingFor = protocol.WaitApproval
			list = append([]protocol.SessionInfo{asks}, list...)
		}
	}
	return list
}

func shownTitles(p *Picker) (all []string) {
	for _, i := range p.shown {
		e := p.entries[i]
		if len(p.terms()) > 0 {
			e.Branch = ""
		}
		all = append(all, e.Branch+e.Title)
	}
	return all
}

// Children stand below their parents, where the one that asks first would stand; many are folded, but for
// that one, and the filter finds each by itself.
func TestChildrenStandBelowTheirParents(t *testing.T) {
	few := New("Sessions", Sessions(family(3), nil, now, ""))
	want := []string{
		"Fix the login · 4 child sessions", "├ Look into part 1", "├ Look into part 2 · 1 child session",
		"│ └ Run the tests", "└ Look into part 3", "Read the news",
	}
	if diff := cmp.Diff(want, shownTitles(few)); diff != "" {
		t.Error(diff)
	}
	golden(t, few, "sessions-trees", 80, 24)
	many := New("Sessions", Sessions(family(7), nil, now, ""))
	if diff := cmp.Diff([]string{"Fix the login · 8 child sessions", "  └ Run the tests", "Read the news"},
		shownTitles(many)); diff != "" {
		t.Error(diff)
	}
	typed(t, many, "part 7")
	if diff := cmp.Diff([]string{"Look into part 7"}, shownTitles(many)); diff != "" {
		t.Error(diff)
	}
}

// A daemon that names a child as its own parent, or leaves out the parent, hides nothing.
func TestTreesThatAreNone(t *testing.T) {
	list := family(0)
	list[0].Parent, list[1].Parent = &protocol.Parent{SessionID: "ses-2"}, &protocol.Parent{SessionID: "ses-2"}
	lost := list[0]
	lost.SessionID, lost.Parent = "ses-9", &protocol.Parent{SessionID: "ses-8"}
	got := shownTitles(New("Sessions", Sessions(append(list, lost), nil, now, "")))
	if len(got) != 3 || strings.Contains(strings.Join(got, ""), "└") {
		t.Errorf("got %q", got)
	}
}
