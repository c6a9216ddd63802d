package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"noused/internal/protocol"
)

func TestTreeIndentsWhereItBranches(t *testing.T) {
	var out bytes.Buffer
	a := newApp(nil, &out, &out)
	a.printTree(protocol.Tree{LeafID: "5", Nodes: []protocol.Node{
		{ID: "1", Role: "user", Snippet: "root"},
		{ID: "2", ParentID: "1", Role: "assistant", Snippet: "says"},
		{ID: "3", ParentID: "2", Role: "user", Snippet: "one way"},
		{ID: "4", ParentID: "3", Role: "assistant", Snippet: "went"},
		{ID: "5", ParentID: "2", Role: "user", Snippet: "other way"},
		{ID: "6", ParentID: "lost", Role: "user", Snippet: "orphan"},
	}})
	want := `   1  user: root
   2  assistant: says
   3    user: one way
   4    assistant: went
*  5    user: other way
   6  user: orphan
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("tree (-want +got):\n%s", diff)
	}
}

func TestToolArguments(t *testing.T) {
	for _, tc := range []struct {
		args  []string
		stdin string
		want  string // "" means refused
	}{
		{nil, "", `{}`},
		{[]string{`{"b": 1, "a": [true]}`}, "", `{"b":1,"a":[true]}`},
		{[]string{"-"}, "{\"a\":\n1}\n", `{"a":1}`},
		{[]string{"path=a=b", "n:=5", "o:={\"x\":null}", "empty="}, "", `{"empty":"","n":5,"o":{"x":null},"path":"a=b"}`},
		{[]string{`q="quoted"`}, "", `{"q":"\"quoted\""}`},
		{[]string{"-"}, "[1]", ""},
		{[]string{"{"}, "", ""},
		{[]string{"word"}, "", ""},
		{[]string{"=x"}, "", ""},
		{[]string{"n:=five"}, "", ""},
		{[]string{"a=1", "a=2"}, "", ""},
		{[]string{"a=\xff"}, "", ""},
	} {
		a := newApp(strings.NewReader(tc.stdin), nil, nil)
		got, err := a.toolArguments(tc.args)
		if (err == nil) != (tc.want != "") || string(got) != tc.want {
			t.Errorf("%q: got %s, %v, want %s", tc.args, got, err, tc.want)
		}
	}
}
