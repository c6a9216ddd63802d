package runloop

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"noused/internal/model"
	"noused/internal/session"
	"noused/internal/testenv"
)

// Whatever the shape of a tree is, no more children work at a time than may, and it comes to
// its end.
func TestPlacesOfATree(t *testing.T) {
	for seed := range testenv.Tries(50) {
		rng := rand.New(rand.NewPCG(uint64(seed), 3))
		f := &forest{bounds: Bounds{Depth: 2, Parallel: 1 + rng.IntN(3), Total: 50}}
		check := func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			if n := f.trees["root"].working(); n > f.bounds.Parallel {
				t.Errorf("seed %d: %d children work, at most %d may", seed, n, f.bounds.Parallel)
			}
		}
		fan := 1 + rng.IntN(3)
		var run func(id string, depth int)
		run = func(id string, depth int) {
			var children sync.WaitGroup
			for n := range fan * min(depth, 1) {
				child := fmt.Sprint(id, ".", n)
				children.Go(func() {
					if !f.enter(context.Background(), nil, "root", child, treePlace{parent: id}) {
						t.Errorf("%s gets no place", child)
						return
					}
					check()
					run(child, depth-1)
					f.leave("root", child)
				})
			}
			children.Wait()
		}
		run("root", 3)
		if len(f.trees) > 0 {
			t.Errorf("seed %d: %d trees are left", seed, len(f.trees))
		}
	}
}

// The children of a tree are counted together, and no more are given than may be.
func TestChildrenOfATreeAreCounted(t *testing.T) {
	f := &forest{bounds: Bounds{Total: 3}}
	for n, want := range []bool{true, true, true, false} {
		if _, got := f.reserve("root", []string{"root", "run-1"}[n%2]); got != want {
			t.Errorf("child %d: got %t", n, got)
		}
	}
	if _, ok := f.reserve("other", "other"); !ok {
		t.Error("another tree has its own count")
	}
}

// One who waits for a place and is stopped gets none, and keeps none.
func TestAPlaceThatNobodyWaitsForAnyMore(t *testing.T) {
	f := &forest{bounds: Bounds{Parallel: 1}}
	ctx := context.Background()
	if !f.enter(ctx, nil, "root", "a", treePlace{parent: "root"}) {
		t.Fatal("the first gets its place")
	}
	stop := make(chan struct{})
	close(stop)
	if f.enter(ctx, stop, "root", "b", treePlace{parent: "root"}) {
		t.Error("the second has a place beside the first")
	}
	f.leave("root", "a")
	if !f.enter(ctx, nil, "root", "c", treePlace{parent: "root"}) {
		t.Error("the place was not given back")
	}
}

// A child in the background keeps the count of its tree, also when nothing else of it is left, and over a restart:
// it had as many children again (found by the simulator).
func TestACountOutlivesItsTree(t *testing.T) {
	f := &forest{bounds: Bounds{Total: 3}}
	f.want("root", &session.State{ID: "ses-1"}, 3)
	f.use("root", func(t *tree) { clear(t.uses) })
	if nth, ok := f.reserve("root", "run-1"); ok {
		t.Errorf("it has a child more, the %d.", nth)
	}
	f.unwant("root", "ses-1")
	if len(f.trees) > 0 {
		t.Errorf("trees %v are left", f.trees)
	}
}

// A run below another knows of more children than are its own: after a restart the tree had only those counted that
// are left, where the run above had ended (found by the simulator).
func TestWhatARunKnowsOfItsTreeIsCounted(t *testing.T) {
	f := &forest{bounds: Bounds{Total: 6}}
	l := &loop{env: &env{forest: f}, m: &machine{s: &session.State{Run: &session.Run{
		ID: "run-1", Root: "root",
		Children: []session.Child{{ChildStarted: session.ChildStarted{ChildRunID: "run-2", Nth: 4}, Children: 1}},
	}}}}
	l.account(nil)
	if nth, ok := f.reserve("root", "run-1"); nth != 6 || !ok {
		t.Errorf("the next child is the %d. of its tree, %t, want the sixth", nth, ok)
	}
	if _, ok := f.reserve("root", "run-1"); ok {
		t.Error("there is a seventh child")
	}
}

// A run that had ended under a former daemon counts with its children before its parent knows of it, and once after
// that: the tree had a child more (found by the simulator).
func TestAChildThatHadEndedIsCounted(t *testing.T) {
	f := &forest{bounds: Bounds{Total: 4}}
	s := &session.State{Run: &session.Run{ID: "root", Children: []session.Child{
		{ChildStarted: session.ChildStarted{ChildRunID: "run-2", Nth: 1}},
	}}}
	l := &loop{env: &env{forest: f}, m: &machine{s: s}}
	l.account(nil)
	end := childEnd{usage: model.Usage{OutputTokens: 3}, below: model.Usage{OutputTokens: 4}, children: 2}
	f.ended("root", "run-2", end)
	if used := f.others("root", s.Run); used.OutputTokens != 7 {
		t.Errorf("the other runs have used %d tokens, want 7", used.OutputTokens)
	}
	s.Run.Children[0].Ended, s.Run.Children[0].Children = true, 2
	l.account(nil)
	if nth, ok := f.reserve("root", "root"); nth != 4 || !ok {
		t.Errorf("the next child is the %d. of its tree, %t, want the fourth", nth, ok)
	}
	if _, ok := f.reserve("root", "root"); ok {
		t.Error("there is a fifth child")
	}
}

// A child that has just ended counts once, also before the forest knows that its parent counts it: a tree asked before
// it had reached its limit (found by the simulator).
func TestAChildThatHasJustEndedCountsOnce(t *testing.T) {
	f, spent := &forest{}, model.Usage{OutputTokens: 7, Cost: 9}
	s := &session.State{Run: &session.Run{ID: "root", Children: []session.Child{
		{ChildStarted: session.ChildStarted{ChildRunID: "run-2"}},
	}}}
	l := &loop{env: &env{forest: f}, m: &machine{s: s, beside: f.others}}
	l.account(nil)
	f.ended("root", "run-2", childEnd{usage: spent})
	s.Run.Children[0].Ended, s.Run.Children[0].Spent = true, spent
	if used := l.m.treeUsage(); used != spent {
		t.Errorf("the tree has used %+v, want %+v", used, spent)
	}
}

// A child that ends with the write that ends the run above it counts once, in that: a tree asked before it had reached
// its limit (found by the simulator).
func TestAChildThatEndsWithTheRunAboveCountsOnce(t *testing.T) {
	f := &forest{}
	loopOf := func(run session.Run) *loop {
		l := &loop{env: &env{forest: f}, m: &machine{s: &session.State{Run: &run}}}
		l.account(nil)
		return l
	}
	root := loopOf(session.Run{ID: "root", Children: []session.Child{
		{ChildStarted: session.ChildStarted{ChildRunID: "run-1"}},
	}})
	above := loopOf(session.Run{ID: "run-1", Root: "root", Usage: model.Usage{OutputTokens: 13}, Children: []session.Child{
		{ChildStarted: session.ChildStarted{ChildRunID: "run-2"}},
	}})
	child := loopOf(session.Run{ID: "run-2", Root: "root", Usage: model.Usage{OutputTokens: 11}})
	child.m.s.Run = nil
	child.account(nil)
	above.m.s.Run = nil
	above.account([]session.Record{{Fact: session.ChildEnded{ChildRunID: "run-2"}}})
	if used := f.others("root", root.m.s.Run); used.OutputTokens != 13 {
		t.Errorf("run-2 counts beside run-1, which counts it: %d tokens, want the 13 of run-1 here", used.OutputTokens)
	}
}

// A power cut may leave that a child in the background has ended, and not the text that says what it came to. It is
// looked after again, and counts once: in the run of its call (found by the simulator).
func TestAChildWhoseTextIsLostCountsOnce(t *testing.T) {
	child := session.ChildStarted{CallID: "call-1", ChildRunID: "run-2", Background: true}
	m := &machine{ownModel: func() model.Choice { return model.Choice{} }, s: &session.State{
		Run:        &session.Run{ID: "root", Children: []session.Child{{ChildStarted: child, Ended: true}}},
		Background: []session.Child{{ChildStarted: child}},
	}}
	m.resumeChildren()
	if list := m.out.children; len(list) != 1 || !list[0].child.Ended {
		t.Errorf("looked after: %+v, want run-2, which is counted", list)
	}
}

// A child that works has its place before its parent is taken up, which may take as long as a disk is slow: more
// worked than may at a time (found by the simulator).
func TestAChildHasItsPlaceBeforeItsParentIsThere(t *testing.T) {
	f := &forest{bounds: Bounds{Parallel: 1}}
	s := &session.State{Run: &session.Run{ID: "run-1", Root: "root"}}
	l := &loop{env: &env{forest: f}, m: &machine{s: s}}
	l.account(nil)
	f.use("root", func(tree *tree) {
		if tree.enters("run-2", treePlace{parent: "root"}, 1) {
			t.Error("a second child has a place beside it")
		}
		if !tree.enters("run-3", treePlace{parent: "run-1"}, 1) {
			t.Error("a child that waits for its own does not lend its place")
		}
	})
	f.leave("root", "run-3")
	s.Run = nil
	l.account(nil)
	if len(f.trees) > 0 {
		t.Errorf("trees %v are left", f.trees)
	}
}

// A child that works has its place at once, also where it is to stop: it counted as one that was never begun, and
// worked on (found by the simulator).
func TestAChildThatWorksHasItsPlace(t *testing.T) {
	f := &forest{bounds: Bounds{Parallel: 1}}
	f.hold("root", "a", treePlace{parent: "root"})
	f.hold("root", "b", treePlace{parent: "root"})
	if n := f.trees["root"].working(); n != 2 {
		t.Errorf("%d children work, want 2", n)
	}
	stop := make(chan struct{})
	close(stop)
	if f.enter(t.Context(), stop, "root", "c", treePlace{parent: "root"}) {
		t.Error("a third has a place beside them")
	}
}
