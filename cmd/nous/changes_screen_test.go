package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"noused/internal/daemontest"
	"noused/internal/protocol"
	"noused/internal/testenv"
)

const keyF7 = "\x1b[18~"

// changed is a daemon whose session has a folder of its own, in which a run has changed two files.
func changed(t *testing.T) (d *daemontest.Daemon, folder, session string) {
	t.Helper()
	d = startDaemon(t, "")
	folder = filepath.Join(d.Dir, "work")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	keep(t, folder, "list.txt", "one\ntwo\nthree\n")
	made := askDaemon(t, d.Socket, protocol.NewSession, protocol.NewSessionParams{Workdir: folder, Title: "Lists"})
	session = made.SessionID
	askDaemon(t, d.Socket, protocol.Prompt, protocol.PromptParams{
		Scope: protocol.Scope{SessionID: session},
		Text: "Translate it.\n" + `!edit {"path":"list.txt","old_text":"two","new_text":"zwei"}` + "\n" +
			`!write {"path":"new.txt","content":"a\nb\n"}`,
	})
	recorded(t, d, session)
	return d, folder, session
}

// recorded skips the test where a turn of a session could not be recorded, and returns its changes.
func recorded(t *testing.T, d *daemontest.Daemon, session string) protocol.Changes {
	t.Helper()
	all := askDaemon(t, d.Socket, protocol.GetChanges, protocol.GetChangesParams{
		Scope: protocol.Scope{SessionID: session},
	})
	if len(all.Missing) > 0 {
		testenv.Unrecorded(t, all.Missing[0].Why)
	}
	return all
}

func keep(t *testing.T, folder, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func kept(t *testing.T, folder, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		return "none"
	}
	return string(text)
}

// A run changes files; two comments on its diff are sent as one text; the files are taken back,
// and put back again.
func TestChangesAreSeenCommentedAndTakenBack(t *testing.T) {
	t.Parallel()
	d, folder, session := changed(t)
	s := openScreen(t, d, look{cols: 80, rows: 24, args: []string{"--session", session}})
	s.Wait("2 files +3 −1 · /diff")
	s.Type(keyF7)
	s.Wait("Changes", "list.txt", "new.txt", "2 files +3 −1", "@@", "two", "zwei", "+1 −1")
	s.Type("n")
	s.Press("down", "down")
	s.Type("cWhy this?\r")
	s.Wait("> Why this?")
	s.Type("n")
	s.Wait("+b")
	s.Press("down")
	s.Type("cToo short.\r")
	s.Wait("> Too short.", "2 comments")
	s.Type("q")
	s.Wait("2 comments unsent")
	s.say("/diff")
	s.Wait("2 comments")
	s.Type("s")
	s.Wait("(1 model call)")
	said := lastSaid(t, d.Socket, session)
	for _, want := range []string{"list.txt:2 (removed)\n> -two\nWhy this?", "new.txt:1\n> +a\nToo short."} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in %q", want, said)
		}
	}
	s.WaitGone("comments unsent")

	s.say("/rewind")
	s.Wait("Rewind to before which message?", "Comments on the changes", "Translate it.")
	s.Press("down", "enter")
	s.Wait("conversation", "both", "2 to change", "change", "remove", "list.txt", "new.txt")
	s.Press("down", "enter")
	s.Wait("2 files taken back · /rewind undo")
	if got := kept(t, folder, "list.txt") + kept(t, folder, "new.txt"); got != "one\ntwo\nthree\nnone" {
		t.Errorf("taken back: %q", got)
	}
	s.say("/rewind undo")
	s.Wait("the rewind is undone")
	if got := kept(t, folder, "list.txt") + kept(t, folder, "new.txt"); got != "one\nzwei\nthree\na\nb\n" {
		t.Errorf("undone: %q", got)
	}
}

// Comments that were not sent are in the history of the input once nous was left.
func TestUnsentCommentsAreInTheHistory(t *testing.T) {
	t.Parallel()
	d, _, session := changed(t)
	l := look{cols: 80, rows: 24, args: []string{"--session", session}}
	s := openScreen(t, d, l)
	s.Type(keyF7)
	s.Wait("▾ M list.txt")
	s.Type("cNot yet sent")
	s.Wait("> Not yet sent", "1 comment")
	s.Type("\x1c") // leaves in the middle of it
	s.Exit()
	s = openScreen(t, d, l)
	s.Press("up")
	s.Wait("Comments on the changes:", "list.txt", "Not yet sent")
}

// A file that is one line of nearly a megabyte is opened, scrolled past and commented on.
func TestAVeryLongLineOnTheScreen(t *testing.T) {
	t.Parallel()
	d, folder, session := changed(t)
	keep(t, folder, "min.js", strings.Repeat("let a = '漢字'; ", 25_000)+"\n")
	askDaemon(t, d.Socket, protocol.SetApprovalMode, protocol.SetApprovalModeParams{
		Scope: protocol.Scope{SessionID: session}, Mode: protocol.ApprovalsAuto,
	})
	askDaemon(t, d.Socket, protocol.Prompt, protocol.PromptParams{
		Scope: protocol.Scope{SessionID: session}, Text: `!bash {"command":"sed -i s/let/var/g min.js"}`,
	})
	recorded(t, d, session)
	s := openScreen(t, d, look{cols: 80, rows: 24, args: []string{"--session", session}})
	s.Wait("1 file +1 −1 · /diff")
	s.Type(keyF7)
	s.Wait("▾ M list.txt", "zwei", "▸ A new.txt", "▸ M min.js")
	s.Type("n")
	s.Type("n")
	s.Wait("1 -let a = '漢字'; let")
	s.Press("down", "down")
	s.Wait("❯   1 +var a = '漢字'; var")
	s.Type("cToo long.\r")
	s.Wait("> Too long.", "1 comment")
	s.Press("end")
	s.Wait("❯ ▸ A new.txt", "> Too long.")
	s.Press("home")
	s.Wait("❯ ▾ M list.txt", "1 -let a = '漢字'; let")
	s.Type("s")
	s.Wait("(1 model call)")
	if said := lastSaid(t, d.Socket, session); len(said) > 1000 || !strings.Contains(said, "Too long.") {
		t.Errorf("%d bytes are sent: %.1000s", len(said), said)
	}
}

// lastSaid is the user's last message.
func lastSaid(t *testing.T, socket, session string) string {
	t.Helper()
	scope := protocol.Scope{SessionID: session}
	all := askDaemon(t, socket, protocol.GetMessages, protocol.GetMessagesParams{Scope: scope})
	said := ""
	for _, raw := range all.Messages {
		var m protocol.Message
		if err := json.Unmarshal(raw, &m); err != nil {
			t.Fatal(err)
		}
		if m.Role == "user" {
			said = m.Text
		}
	}
	return said
}

// What the daemon itself keeps in the home of a user is no change of a session there.
func TestTheCachesOfTheSandboxAreNoChange(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	made := askDaemon(t, d.Socket, protocol.NewSession, protocol.NewSessionParams{Workdir: d.Dir})
	scope := protocol.Scope{SessionID: made.SessionID}
	askDaemon(t, d.Socket, protocol.SetApprovalMode, protocol.SetApprovalModeParams{
		Scope: scope, Mode: protocol.ApprovalsAuto,
	})
	askDaemon(t, d.Socket, protocol.Prompt, protocol.PromptParams{
		Scope: scope, Text: `!bash {"command":"echo 1 > mine"}`,
	})
	all := recorded(t, d, made.SessionID)
	for _, f := range all.Files {
		if strings.HasPrefix(f.Path, ".cache/") {
			t.Errorf("changed is %s", f.Path)
		}
	}
	if kept(t, d.Dir, "mine") != "1\n" || len(all.Files) == 0 {
		t.Errorf("got %+v", all.Files)
	}
}
