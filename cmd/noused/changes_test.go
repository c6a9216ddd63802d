package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

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

// What only a person may do is refused to what the daemon has started.
func TestATurnCannotTakeBackWhatASessionChanged(t *testing.T) {
	c := newChanging(t, false)
	for _, command := range []string{
		`{"id":"1","type":"get_changes"}`, `{"id":"2","type":"rewind","payload":{"to":"msg-1","what":"files"}}`,
		`{"id":"3","type":"undo_rewind"}`,
	} {
		out := c.fromATool(command)
		if !strings.Contains(out, "command_rejected") || !strings.Contains(out, "forbidden: ") {
			t.Errorf("%s: %s", command, out)
		}
	}
}

// fromATool sends a command from a process that the daemon has started, and returns the reply.
func (c *changing) fromATool(line string) string {
	c.t.Helper()
	self, err := os.Executable()
	if err != nil {
		c.t.Fatal(err)
	}
	say := filepath.Join(c.Dir, sayCommand)
	if err := os.Symlink(self, say); err != nil && !os.IsExist(err) {
		c.t.Fatal(err)
	}
	args := fmt.Sprintf(`{"command":%q,"outside_sandbox":true,"reason":"to try it"}`, say+" "+c.Socket+" '"+line+"'")
	return c.extension(c.session, "bash", args).Result
}

// A daemon that is killed in the middle of a rewind has it finished by the next, which says so.
func TestTheNextDaemonFinishesARewind(t *testing.T) {
	c := newChanging(t, true)
	ctx := context.Background()
	c.write("a.txt", "one\n")
	c.prompt(`!bash {"command":"echo two > a.txt; echo made > new.txt"}`)
	done, err := client.Call(ctx, c.dial(), protocol.Rewind,
		protocol.RewindParams{Scope: c.scope(), To: c.lastText(), What: protocol.RewindBoth})
	if err != nil {
		t.Fatal(err)
	}
	c.Kill()
	journal := filepath.Join(c.Dir, "state", "sessions", c.session+".jsonl")
	text, err := os.ReadFile(journal)
	if err != nil {
		t.Fatal(err)
	}
	// As if it had been killed before it was done: the end is not written, and one file not either.
	end := strings.Index(string(text), `"type":"rewind_ended"`)
	begin := strings.LastIndex(string(text[:end]), "\n") + 1
	if err := os.WriteFile(journal, text[:begin], 0o600); err != nil {
		t.Fatal(err)
	}
	c.write("a.txt", "two\n")
	c.Start()
	st, err := client.Call(ctx, c.dial(), protocol.GetState, protocol.GetStateParams{Scope: c.scope()})
	if err != nil {
		t.Fatal(err)
	}
	if c.file("a.txt") != "one\n" || c.file("new.txt") != "none" || st.LeafID != "" {
		t.Errorf("recovered: %q, %q, leaf %q", c.file("a.txt"), c.file("new.txt"), st.LeafID)
	}
	said := "the rewind " + done.RewindID + ", which was interrupted, was finished"
	if !strings.Contains(c.Log.String(), said) {
		t.Error("the log does not say so")
	}
	if _, err := client.Call(ctx, c.dial(), protocol.UndoRewind,
		protocol.UndoRewindParams{Scope: c.scope()}); err != nil || c.file("a.txt") != "two\n" {
		t.Errorf("undo: %v, %q", err, c.file("a.txt"))
	}
}

// A rewind waits for nothing: while a run goes on it is refused. A deleted session leaves
// nothing of its changes.
func TestARewindInARunIsRefused(t *testing.T) {
	c := newChanging(t, false)
	ctx := context.Background()
	if err := unix.Mkfifo(filepath.Join(c.folder, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := client.Call(ctx, c.dial(), protocol.Prompt,
			protocol.PromptParams{Scope: c.scope(), Text: `!bash {"command":"echo x > x; echo > pipe; cat pipe"}`})
		ended <- err
	}()
	f, err := os.OpenFile(filepath.Join(c.folder, "pipe"), os.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	_, err = client.Call(ctx, c.dial(), protocol.Rewind,
		protocol.RewindParams{Scope: c.scope(), To: c.lastText(), What: protocol.RewindFiles})
	var wire *protocol.Error
	if !errors.As(err, &wire) || wire.Reason() != protocol.Busy {
		t.Errorf("in a run: %v", err)
	}
	if f, err = os.OpenFile(filepath.Join(c.folder, "pipe"), os.O_WRONLY, 0); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(c.Dir, "state", "sessions", c.session+".changes")
	if _, err := os.Stat(kept); err != nil {
		t.Error(err)
	}
	if _, err := client.Call(ctx, c.dial(), protocol.DeleteSession,
		protocol.DeleteSessionParams{SessionID: c.session}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(kept); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after the session was deleted: %v", err)
	}
}
