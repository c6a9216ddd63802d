package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
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
	return newChangingIn(t, newDaemon(t), "work", git)
}

func newChangingIn(t *testing.T, d *daemon, folder string, git bool) *changing {
	t.Helper()
	c := &changing{daemon: d}
	c.folder = filepath.Join(c.Dir, folder)
	if err := os.MkdirAll(c.folder, 0o755); err != nil {
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

// Worktrees of ours lie below a folder of the home that is hidden from tools.
func TestChangesInAHiddenFolderAreRecorded(t *testing.T) {
	for name, git := range map[string]bool{"git": true, "no git": false} {
		t.Run(name, func(t *testing.T) {
			d := unstarted(t, "noused")
			environ := d.Environ
			d.Environ, d.Here = func() []string { return append(environ(), "HOME="+d.Dir) }, true
			d.Start()
			c := newChangingIn(t, d, ".local/share/noused/worktrees/topic", git)
			c.write("a.txt", "one\n")
			c.prompt(`!bash {"command":"echo two > a.txt"}`)
			if r := c.changes(protocol.GetChangesParams{}); len(r.Files) != 1 || r.Files[0].Path != "a.txt" {
				t.Errorf("got %+v\n%s", r, c.Log.String())
			}
		})
	}
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
	if _, err := client.Call(ctx, c.dial(), protocol.UndoRewind,
		protocol.UndoRewindParams{Scope: c.scope()}); err != nil || c.file("a.txt") != "two\n" {
		t.Errorf("undo: %v, %q", err, c.file("a.txt"))
	}
	c.Kill() // its log is whole then
	said := "the rewind " + done.RewindID + ", which was interrupted, was finished"
	if !strings.Contains(c.Log.String(), said) {
		t.Error("the log does not say so")
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
			protocol.PromptParams{Scope: c.scope(), Text: `!bash {"command":"echo x > x; cat pipe"}`})
		ended <- err
	}()
	f, err := os.OpenFile(filepath.Join(c.folder, "pipe"), os.O_WRONLY, 0) // once the command reads
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.Call(ctx, c.dial(), protocol.Rewind,
		protocol.RewindParams{Scope: c.scope(), To: c.lastText(), What: protocol.RewindFiles})
	var wire *protocol.Error
	if !errors.As(err, &wire) || wire.Reason() != protocol.Busy {
		t.Errorf("in a run: %v", err)
	}
	_ = f.Close() // which ends the command
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

// A daemon is killed again and again while it rewinds, or records a turn: the folder is as before
// the rewind or as after it, never between, and the next rewind finds all that it needs.
func TestKillsLeaveNoHalfRewind(t *testing.T) {
	kills := 4
	if n, err := strconv.Atoi(os.Getenv("NOUSED_TEST_KILLS")); err == nil {
		kills = n
	}
	c := newChanging(t, true)
	c.reset()
	was := c.all()
	finished, untouched, unrecorded := 0, 0, 0
	for n := range kills {
		if n%4 == 3 { // in the middle of a turn, or while it is recorded
			c.killAt(n*7, n%8 == 3, func() { _ = c.tryPrompt(changeMany) })
			c.Start()
			if _, err := client.Call(context.Background(), c.dial(), protocol.Prompt, protocol.PromptParams{
				Scope: c.scope(), Text: "Go on.", StreamingBehavior: protocol.KindFollowUp, // the interrupted run goes on
			}); err != nil {
				t.Fatal(err)
			}
		} else if err := c.tryPrompt(changeMany); err != nil {
			t.Fatal(err)
		}
		is := c.all()
		c.killAt(n*37, n%2 == 0, func() { _, _ = c.rewindAll() })
		c.Start()
		c.changes(protocol.GetChangesParams{}) // once the rewind has been recovered
		switch now := c.all(); now {
		case was:
			finished++
			continue
		case is:
			untouched++
		default:
			t.Fatalf("round %d: the folder is neither as before nor as after:\n%s\n%s", n, onlyIn(now, is), onlyIn(now, was))
		}
		done, err := c.rewindAll()
		if err == nil && len(done.Conflicts) > 0 && done.Conflicts[0].Path == "." {
			unrecorded++ // it was killed then, or the machine is slow
			c.reset()
			if done, err = c.rewindAll("."); err == nil && len(done.Files) > 0 {
				t.Fatalf("round %d: what was not recorded is taken back: %v", n, done.Files)
			}
		}
		if now := c.all(); err != nil || len(done.Conflicts) > 0 || now != was {
			t.Fatalf("round %d: a rewind after the kill: %v, %v\n%s", n, done.Conflicts, err, onlyIn(now, was))
		}
	}
	t.Logf("%d kills: %d rewinds were finished, %d not begun; %d turns were not recorded", kills, finished, untouched,
		unrecorded)
}

// reset has the folder be as before all turns.
func (c *changing) reset() {
	c.t.Helper()
	if err := os.RemoveAll(filepath.Join(c.folder, "new")); err != nil {
		c.t.Fatal(err)
	}
	for i := range 120 {
		name := fmt.Sprint("old", i)
		_ = os.Remove(filepath.Join(c.folder, name))
		c.write(name, fmt.Sprint("text ", i, "\n"))
	}
}

const changeMany = `!bash {"command":"for i in $(seq 0 2 119); do echo more >> old$i; done; rm old1 old11 old21; mkdir new; ` +
	`for i in $(seq 60); do echo $i > new/$i; done; chmod 600 old3?"}`

func (c *changing) tryPrompt(text string) error {
	_, err := client.Call(context.Background(), c.dial(), protocol.Prompt,
		protocol.PromptParams{Scope: c.scope(), Text: text})
	return err
}

// rewindAll takes everything back since the latest beginning.
func (c *changing) rewindAll(force ...string) (protocol.Rewound, error) {
	c.t.Helper()
	tree, err := client.Call(context.Background(), c.dial(), protocol.GetTree, protocol.GetTreeParams{Scope: c.scope()})
	if err != nil {
		return protocol.Rewound{}, err
	}
	to := ""
	for _, n := range tree.Nodes {
		if n.Role == "user" && n.ParentID == "" {
			to = n.ID
		}
	}
	return client.Call(context.Background(), c.dial(), protocol.Rewind,
		protocol.RewindParams{Scope: c.scope(), To: to, What: protocol.RewindBoth, Force: force})
}

// all is what is in the folder.
func (c *changing) all() string {
	c.t.Helper()
	var out strings.Builder
	if err := filepath.WalkDir(c.folder, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.Name() == ".git" {
			return fs.SkipDir
		}
		info, err := d.Info()
		if err == nil && info.Mode().IsRegular() {
			text, _ := os.ReadFile(path)
			fmt.Fprintf(&out, "%s %v %q\n", strings.TrimPrefix(path, c.folder), info.Mode(), text)
		}
		return err
	}); err != nil {
		c.t.Fatal(err)
	}
	return out.String()
}

// onlyIn are those that one text has and another has not.
func onlyIn(text, other string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if !strings.Contains(other, line) {
			out.WriteString(line)
		}
	}
	return out.String()
}

// killAt kills the daemon once a file is not as it was, or when do has ended.
func (c *changing) killAt(n int, gone bool, do func()) {
	c.t.Helper()
	name := filepath.Join(c.folder, fmt.Sprint("old", n%120))
	if gone {
		name = filepath.Join(c.folder, "new", fmt.Sprint(1+n%60))
	}
	look := func() string {
		info, err := os.Lstat(name)
		if err != nil {
			return "none"
		}
		return fmt.Sprint(info.ModTime(), info.Mode())
	}
	before, done := look(), make(chan struct{})
	go func() { defer close(done); do() }()
	for look() == before {
		select {
		case <-done:
			before = "" // it is too late, or that file is not touched
		default:
		}
	}
	c.Kill()
	<-done
}

// A turn whose tools read, or keep the session's list, records nothing of the folder.
func TestATurnThatOnlyReadsIsNotRecorded(t *testing.T) {
	c := newChanging(t, false)
	kept := filepath.Join(c.Dir, "state", "sessions", c.session+".changes", "turn")
	c.write("a.txt", "one\n")
	for _, call := range []string{`ls {}`, `todo {"items":[{"content":"look","status":"pending"}]}`} {
		if err := os.MkdirAll(filepath.Dir(kept), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(kept, []byte("untouched"), 0o600); err != nil { // a recorded turn removes it
			t.Fatal(err)
		}
		c.prompt("!" + call)
		if text, err := os.ReadFile(kept); string(text) != "untouched" {
			t.Errorf("%s was recorded: %v", call, err)
		}
	}
}

// A daemon is replaced in the middle of a turn. The next one records exactly what the turn has changed under both; and
// where the record from before the turn is gone, it says that what has changed is not known.
func TestTheNextDaemonRecordsTheTurn(t *testing.T) {
	for name, gone := range map[string]bool{"its record is there": false, "its record is gone": true} {
		t.Run(name, func(t *testing.T) {
			c := newChanging(t, true)
			ctx := context.Background()
			if err := unix.Mkfifo(filepath.Join(c.folder, "pipe"), 0o600); err != nil {
				t.Fatal(err)
			}
			go func() { // it is cut off
				_, _ = client.Call(ctx, c.dial(), protocol.Prompt, protocol.PromptParams{
					Scope: c.scope(), Text: `!bash {"command":"echo 1 > former; cat pipe"}` + "\n" + `!bash {"command":"echo 2 > next"}`,
				})
			}()
			f, err := os.OpenFile(filepath.Join(c.folder, "pipe"), os.O_WRONLY, 0) // once the command reads
			if err != nil {
				t.Fatal(err)
			}
			c.Kill()
			_ = f.Close()
			if gone { // as after the power has failed
				if err := os.Remove(filepath.Join(c.Dir, "state", "sessions", c.session+".changes", "turn")); err != nil {
					t.Fatal(err)
				}
			}
			c.Start()
			if _, err := client.Call(ctx, c.dial(), protocol.Prompt, protocol.PromptParams{
				Scope: c.scope(), Text: "Go on.", StreamingBehavior: protocol.KindFollowUp, // the interrupted run goes on
			}); err != nil {
				t.Fatal(err)
			}
			var got []string
			all := c.changes(protocol.GetChangesParams{})
			for _, f := range all.Files {
				got = append(got, f.Path)
			}
			for _, m := range all.Missing {
				got = append(got, m.Why)
			}
			want := "former next"
			if gone {
				want = "the record from before the turn, which another daemon began, is gone"
			}
			if strings.Join(got, " ") != want {
				t.Errorf("got %q, want %q", got, want)
			}
			done, err := c.rewindAll()
			if err != nil || gone != (len(done.Conflicts) == 1 && done.Conflicts[0].Path == ".") {
				t.Errorf("a rewind: %+v, %v", done, err)
			}
		})
	}
}
