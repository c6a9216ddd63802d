package board

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"noused/internal/protocol"
)

// family is a session with so many children, the second of which has one of its own.
func family(children int) []protocol.SessionInfo {
	work := func(id, title, parent, tool, said string) protocol.SessionInfo {
		s := protocol.SessionInfo{
			SessionID: id, Title: title, Workdir: "/home/ada/src/site", UpdatedAt: ago(time.Minute), RunState: "running",
			Messages: 2, LastText: said, Model: protocol.ModelInfo{Provider: "ollama", Name: "qwen3:8b"},
			Working: &protocol.Working{
				RunID: "run-" + id, StartedAt: ago(time.Minute), ToolName: tool, Since: ago(9 * time.Second),
			},
		}
		if parent != "" {
			s.Parent = &protocol.Parent{SessionID: parent}
		}
		return s
	}
	list := append(sessions(), work("ses-20", "Fix the login", "", "agent", "Three of us look."))
	for i := range children {
		id := fmt.Sprintf("ses-21-%02d", i)
		list = append(list, work(id, fmt.Sprintf("Look into part %d", i+1), "ses-20", "grep", "The form has two fields."))
		if i == 1 {
			list = append(list, work("ses-22", "Run the tests", id, "bash", "ok 14 of 20"))
		}
	}
	return list
}

func familyBoard(children int) *Board {
	b := New(Look{Home: "/home/ada", Here: "/home/ada/src/site"})
	b.Load("", family(children), false)
	return b
}

func TestGoldenTrees(t *testing.T) {
	golden(t, familyBoard(3), "trees", 80, 24)
	golden(t, familyBoard(3), "trees", 40, 12)
}

// titlesOf are the titles on a board, as they are drawn.
func titlesOf(b *Board) (titles []string) {
	for _, r := range b.shown {
		titles = append(titles, strings.TrimSpace(r.tree.lines+r.title()+" "+r.tree.folded))
	}
	return titles
}

func at(b *Board, title string) {
	for i, r := range b.shown {
		if r.title() == title {
			b.move(i - b.at)
		}
	}
}

// Many children are folded, which the arrows change; one that asks is always there, and brings its tree
// to those that need somebody.
func TestManyChildrenAreFolded(t *testing.T) {
	b := familyBoard(7)
	if got := strings.Join(titlesOf(b), "\n"); !strings.Contains(got, "Fix the login ▸ 7 child sessions, 7 working") ||
		strings.Contains(got, "part") {
		t.Errorf("not folded:\n%s", got)
	}
	at(b, "Fix the login")
	press(b, "right")
	want := []string{
		"Fix the login", "├ Look into part 1", "├ Look into part 2", "│ └ Run the tests", "├ Look into part 3",
		"├ Look into part 4", "├ Look into part 5", "├ Look into part 6", "└ Look into part 7",
	}
	tree := func() []string {
		all := titlesOf(b)
		for i, title := range all {
			if strings.HasPrefix(title, "Fix the login") {
				return all[i:min(i+len(want), len(all))]
			}
		}
		return nil
	}
	if diff := cmp.Diff(want, tree()); diff != "" {
		t.Error(diff)
	}
	at(b, "Run the tests")
	press(b, "left", "left", "left") // the second folds
	if b.selected.title() != "Fix the login" {
		t.Errorf("Left goes to %q, want the root", b.selected.title())
	}
	press(b, "left")
	asks := family(7)[len(family(7))-1]
	asks.WaitingFor = protocol.WaitApproval
	b.Put("", asks)
	want = []string{"Fix the login ▸ 6 child sessions, 6 working", "└ Look into part 7"}
	if diff := cmp.Diff(want, tree()); diff != "" {
		t.Error(diff)
	}
	if s := b.selected.treePlace().state; s != NeedsYou {
		t.Errorf("the tree of a session that asks is among those that are %s", s)
	}
	if s := b.counts(); s[Working] != 3 || s[NeedsYou] != 3 {
		t.Errorf("got %v, want the roots that work, and all that need somebody", s)
	}
}

// The filter finds a child by itself, folded or not.
func TestTheFilterFindsAChild(t *testing.T) {
	b := familyBoard(7)
	press(b, "part 7")
	if diff := cmp.Diff([]string{"Look into part 7"}, titlesOf(b)); diff != "" {
		t.Error(diff)
	}
	press(b, "esc")
	press(b, "login")
	if diff := cmp.Diff([]string{"Fix the login"}, titlesOf(b)); diff != "" {
		t.Error(diff)
	}
}

// A parent is deleted with its children, and the question says so.
func TestAParentIsDeletedWithItsChildren(t *testing.T) {
	b := familyBoard(3)
	at(b, "Fix the login")
	press(b, "ctrl+d")
	if view := b.View(100, 20, noon); !strings.Contains(view, "delete Fix the login and its 4 child sessions for good?") {
		t.Error(view)
	}
	narrow := b.View(80, 20, noon) // the title is cut, and never the answer
	if !strings.Contains(narrow, "… and its 4 child sessions for good? y: yes, any other key: no") {
		t.Errorf("got\n%s", narrow)
	}
	if c := press(b, "y"); c.Action != Delete || !c.Children {
		t.Errorf("got %+v", c)
	}
	at(b, "Run the tests")
	press(b, "ctrl+d")
	if c := press(b, "y"); c.Action != Delete || c.Children {
		t.Errorf("got %+v", c)
	}
}

// The children of a session at work that are more than five are folded, as many as there are; unfolded they
// are rows like others.
func TestGoldenFiftyChildren(t *testing.T) {
	b := familyBoard(50)
	golden(t, b, "fifty", 80, 24)
	at(b, "Fix the login")
	press(b, "right")
	golden(t, b, "fifty-unfolded", 80, 24)
}

// One event of a child, and the screen after it, with 50 children that are unfolded. It is to cost what
// BenchmarkEventAndViewOf1000 does at most.
func BenchmarkEventAndViewOfFiftyChildren(b *testing.B) {
	board := familyBoard(50)
	at(board, "Fix the login")
	press(board, "right")
	ref := protocol.Ref{SessionID: "ses-21-03", RunID: "run-ses-21-03"}
	for i := 0; b.Loop(); i++ {
		board.Apply("", protocol.MessageUpdate{Ref: ref, Delta: []string{"some words ", "more\n"}[i%2]}, noon)
		board.View(120, 40, noon)
	}
}
