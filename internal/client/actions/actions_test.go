package actions

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/client"
	"noused/internal/protocol"
)

// sent is a daemon that keeps the last command, and answers with a reply.
type sent struct {
	command, params string
	reply           string
	err             error
}

func (s *sent) Send(_ context.Context, command string, p protocol.Params) (jsontext.Value, error) {
	params, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	s.command, s.params = command, string(params)
	return jsontext.Value(s.reply), s.err
}

// Each act is one command, with what was given to it and nothing else.
func TestWhatEachActSends(t *testing.T) {
	scope := protocol.Scope{SessionID: "ses-1"}
	for name, c := range map[string]struct {
		do              func(context.Context, client.Sender) error
		command, params string
	}{
		"approvals are denied": {func(ctx context.Context, c client.Sender) error {
			_, err := SetApprovalMode(ctx, c, scope, "deny")
			return err
		}, "set_approval_mode", `{"session_id":"ses-1","mode":"deny"}`},
		"an answer": {func(ctx context.Context, c client.Sender) error {
			_, err := Answer(ctx, c, protocol.ApproveParams{ApprovalID: "apr-1", Option: "deny", Reason: "no"})
			return err
		}, "approve", `{"approval_id":"apr-1","option":"deny","reason":"no"}`},
		"some tools": {func(ctx context.Context, c client.Sender) error {
			_, err := SetTools(ctx, c, scope, []string{"read", "grep"})
			return err
		}, "set_active_tools", `{"session_id":"ses-1","tools":["read","grep"]}`},
		"no tools, which is a list": {func(ctx context.Context, c client.Sender) error {
			_, err := SetTools(ctx, c, scope, nil)
			return err
		}, "set_active_tools", `{"session_id":"ses-1","tools":[]}`},
		"the descriptors again": {func(ctx context.Context, c client.Sender) error {
			_, err := ReloadTools(ctx, c)
			return err
		}, "reload_tools", `{}`},
		"steering texts all at once": {func(ctx context.Context, c client.Sender) error {
			_, err := SetMode(ctx, c, scope, Steering, protocol.ModeAll)
			return err
		}, "set_steering_mode", `{"session_id":"ses-1","mode":"all"}`},
		"follow-ups one at a time": {func(ctx context.Context, c client.Sender) error {
			_, err := SetMode(ctx, c, scope, FollowUp, protocol.ModeOneAtATime)
			return err
		}, "set_follow_up_mode", `{"session_id":"ses-1","mode":"one-at-a-time"}`},
		"another model": {func(ctx context.Context, c client.Sender) error {
			_, err := SetModel(ctx, c, protocol.SetModelParams{Scope: scope, Model: "openai/gpt-5"})
			return err
		}, "set_model", `{"session_id":"ses-1","model":"openai/gpt-5"}`},
		"a summary": {func(ctx context.Context, c client.Sender) error {
			_, err := Compact(ctx, c, scope, "keep names")
			return err
		}, "compact_session", `{"session_id":"ses-1","instruction":"keep names"}`},
		"another active session": {func(ctx context.Context, c client.Sender) error {
			_, err := Switch(ctx, c, "ses-2")
			return err
		}, "switch_session", `{"session_id":"ses-2"}`},
		"a branch that is not made active": {func(ctx context.Context, c client.Sender) error {
			_, err := Branch(ctx, c, "ses-1", "e1", false)
			return err
		}, "branch_session", `{"session_id":"ses-1","leaf_id":"e1","activate":false}`},
		"another title": {func(ctx context.Context, c client.Sender) error {
			_, err := Rename(ctx, c, scope, "new")
			return err
		}, "set_title", `{"session_id":"ses-1","title":"new"}`},
		"an end for good": {func(ctx context.Context, c client.Sender) error {
			_, err := Delete(ctx, c, "ses-1", false)
			return err
		}, "delete_session", `{"session_id":"ses-1"}`},
		"an earlier message": {func(ctx context.Context, c client.Sender) error {
			_, err := SetLeaf(ctx, c, scope, "e1")
			return err
		}, "set_leaf", `{"session_id":"ses-1","leaf_id":"e1"}`},
		"the tree": {func(ctx context.Context, c client.Sender) error {
			_, err := ReadTree(ctx, c, scope)
			return err
		}, "get_tree", `{"session_id":"ses-1"}`},
	} {
		to := &sent{reply: `{}`}
		if err := c.do(t.Context(), to); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if to.command != c.command || to.params != c.params {
			t.Errorf("%s: got %s %s, want %s %s", name, to.command, to.params, c.command, c.params)
		}
		to.err = &protocol.Error{Code: protocol.CommandRejected, Message: "no"}
		var wire *protocol.Error
		if err := c.do(t.Context(), to); !errors.As(err, &wire) || wire.Code != protocol.CommandRejected {
			t.Errorf("%s: the daemon refuses it, and the error is %v", name, err)
		}
	}
}

// A person calls queues and modes as the command line does, as the wire does, or short.
func TestWordsForQueuesAndModes(t *testing.T) {
	for word, want := range map[string]Queue{
		"steering": Steering, "steer": Steering, "follow-up": FollowUp, "follow_up": FollowUp, "prompt": "", "": "",
	} {
		if got, known := QueueNamed(word); got != want || known != (want != "") {
			t.Errorf("the queue %q: got %q, known %t, want %q", word, got, known, want)
		}
	}
	for word, want := range map[string]protocol.Mode{
		"one": protocol.ModeOneAtATime, "one-at-a-time": protocol.ModeOneAtATime, "all": protocol.ModeAll,
	} {
		if got, known := ModeNamed(word); got != want || !known {
			t.Errorf("the mode %q: got %q, known %t, want %q", word, got, known, want)
		}
	}
	for _, word := range []string{"", "two", "ALL"} {
		if got, known := ModeNamed(word); known {
			t.Errorf("the mode %q is known, as %q", word, got)
		}
	}
}

// The beginning of an id means all that begin so, a whole id that one alone.
func TestPendingByTheBeginningOfAnID(t *testing.T) {
	list := []protocol.Approval{{ApprovalID: "apr-1"}, {ApprovalID: "apr-12"}, {ApprovalID: "apr-2"}}
	for id, want := range map[string][]string{
		"apr-1": {"apr-1"}, "apr-12": {"apr-12"}, "apr-": {"apr-1", "apr-12", "apr-2"}, "apr-3": nil,
	} {
		var got []string
		for _, one := range PendingNamed(list, id) {
			got = append(got, one.ApprovalID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", id, got, want)
		}
	}
}

// What a session can be rewound to is what its user said on the way to the leaf.
func TestSaidOnTheWayToTheLeaf(t *testing.T) {
	tree := protocol.Tree{LeafID: "d", Nodes: []protocol.Node{
		{ID: "a", Role: "user"},
		{ID: "b", ParentID: "a", Role: "assistant"},
		{ID: "other", ParentID: "b", Role: "user"},
		{ID: "c", ParentID: "b", Role: "user"},
		{ID: "d", ParentID: "c", Role: "tool"},
	}}
	ids := func(tree protocol.Tree) (ids []string) {
		for _, n := range Said(tree) {
			ids = append(ids, n.ID)
		}
		return ids
	}
	if got := ids(tree); !slices.Equal(got, []string{"c", "a"}) {
		t.Errorf("got %v", got)
	}
	tree.LeafID = "gone"
	if got := ids(tree); len(got) > 0 {
		t.Errorf("without a leaf: got %v", got)
	}
	circle := protocol.Tree{LeafID: "a", Nodes: []protocol.Node{{ID: "a", ParentID: "a", Role: "user"}}}
	if got := ids(circle); len(got) != 1 {
		t.Errorf("a circle: got %v", got)
	}
}
