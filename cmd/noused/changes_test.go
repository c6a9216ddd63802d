package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"noused/internal/client"
	"noused/internal/protocol"
)

// changing is a daemon with a session in a folder of its own.
type changing struct {
	*daemon
	session string
	folder  string
}

func newChanging(t *testing.T, git bool) *changing {
	t.Helper()
	c := &changing{daemon: newDaemon(t)}
	c.folder = filepath.Join(c.Dir, "work")
	if err := os.Mkdir(c.folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if git {
		if out, err := exec.Command("git", "init", "-q", c.folder).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	made, err := client.Call(context.Background(), c.dial(), protocol.NewSession,
		protocol.NewSessionParams{Workdir: c.folder})
	if err != nil {
		t.Fatal(err)
	}
	c.session = made.SessionID
	return c
}

func (c *changing) scope() protocol.Scope { return protocol.Scope{SessionID: c.session} }

func (c *changing) prompt(text string) {
	c.t.Helper()
	if _, err := client.Call(context.Background(), c.dial(), protocol.Prompt,
		protocol.PromptParams{Scope: c.scope(), Text: text}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *changing) file(name string) string {
	c.t.Helper()
	text, err := os.ReadFile(filepath.Join(c.folder, name))
	if err != nil {
		return "none"
	}
	return string(text)
}

func (c *changing) write(name, text string) {
	c.t.Helper()
	if err := os.WriteFile(filepath.Join(c.folder, name), []byte(text), 0o644); err != nil {
		c.t.Fatal(err)
	}
}

func (c *changing) changes(p protocol.GetChangesParams) protocol.Changes {
	c.t.Helper()
	p.Scope = c.scope()
	r, err := client.Call(context.Background(), c.dial(), protocol.GetChanges, p)
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}

// texts are the user's messages on the path to the leaf.
func (c *changing) lastText() string {
	c.t.Helper()
	tree, err := client.Call(context.Background(), c.dial(), protocol.GetTree, protocol.GetTreeParams{Scope: c.scope()})
	if err != nil {
		c.t.Fatal(err)
	}
	id := ""
	for _, n := range tree.Nodes {
		if n.Role == "user" {
			id = n.ID
		}
	}
	return id
}

func TestAToolsEditIsShownAndTakenBack(t *testing.T) {
	for name, git := range map[string]bool{"git": true, "no git": false} {
		t.Run(name, func(t *testing.T) {
			c := newChanging(t, git)
			ctx := context.Background()
			c.write("a.txt", "one\ntwo\n")
			c.prompt(`!edit {"path":"a.txt","old_text":"two","new_text":"zwei"}` + "\n" +
				`!bash {"command":"echo made > new.txt"}`)
			if c.file("a.txt") != "one\nzwei\n" || c.file("new.txt") != "made\n" {
				t.Fatalf("the tools did not run: %q, %q", c.file("a.txt"), c.file("new.txt"))
			}
			is := c.changes(protocol.GetChangesParams{Diff: true})
			if len(is.Files) != 2 || is.Files[0].Path != "a.txt" || is.Files[0].Added != 1 || is.Files[1].Status != "added" {
				t.Fatalf("changes: %+v", is)
			}
			to := c.lastText()
			done, err := client.Call(ctx, c.dial(), protocol.Rewind,
				protocol.RewindParams{Scope: c.scope(), To: to, What: protocol.RewindBoth})
			if err != nil || len(done.Conflicts) > 0 || done.RewindID == "" || len(done.Files) != 2 {
				t.Fatalf("rewind: %+v, %v", done, err)
			}
			if done.Text == "" || done.LeafID != "" {
				t.Errorf("the text is %q and the leaf %q", done.Text, done.LeafID)
			}
			if c.file("a.txt") != "one\ntwo\n" || c.file("new.txt") != "none" {
				t.Errorf("rewound: %q, %q", c.file("a.txt"), c.file("new.txt"))
			}
			if now := c.changes(protocol.GetChangesParams{}); len(now.Files) > 0 {
				t.Errorf("what was taken back is told still: %+v", now)
			}
			back, err := client.Call(ctx, c.dial(), protocol.UndoRewind,
				protocol.UndoRewindParams{Scope: c.scope(), RewindID: done.RewindID})
			if err != nil || len(back.Files) != 2 {
				t.Fatalf("undo: %+v, %v", back, err)
			}
			if c.file("a.txt") != "one\nzwei\n" || c.file("new.txt") != "made\n" {
				t.Errorf("undone: %q, %q", c.file("a.txt"), c.file("new.txt"))
			}
			if back.LeafID == "" {
				t.Error("the leaf did not come back")
			}
		})
	}
}
