package tui

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"noused/internal/protocol"
	"noused/internal/tui/tuitest"
)

// useFar opens the screen of a daemon as if it were on another machine.
func useFar(t *testing.T, socket string) *hand {
	t.Helper()
	h := use(t, socket)
	h.opts.Host, h.opts.Flags = "box", " --host box"
	h.until("the session", func() bool { return h.known })
	return h
}

// What is written while the connection to another machine is lost stays, is sent when it
// is back, and once.
func TestTextsWaitForAConnectionThatIsLost(t *testing.T) {
	d := startNoused(t, "")
	p := tuitest.NewProxy(t, d.Socket)
	h := useFar(t, p.Socket)
	h.sees("● box")
	p.Cut(true)
	h.until("word of the loss", func() bool { return h.offline != nil })
	h.sees("○ box reconnecting")
	h.write("said on the way")
	h.press("enter")
	h.write("being written")
	h.sees("unsent said on the way", "being written")
	if !h.cutOff() || h.sending || len(h.unsent) != 1 {
		t.Errorf("got %d texts on their way, %v, want one that waits", len(h.unsent), h.sending)
	}
	if got := h.farewell(); !strings.Contains(got, "not sent: said on the way\n") ||
		!strings.Contains(got, " --host box") {
		t.Errorf("got the farewell %q, want what was not sent, and the host", got)
	}
	p.Cut(false)
	h.until("the answer", func() bool {
		return h.offline == nil && len(h.unsent) == 0 && !h.running() && strings.Count(h.screen(), "said on the way") > 1
	})
	if got := h.input.Text(); got != "being written" {
		t.Errorf("got %q in the input, want what is being written", got)
	}
	if prompts := strings.Count(string(commandsOf(p)), `"said on the way"`); prompts != 1 {
		t.Errorf("the text was sent %d times", prompts)
	}
}

func commandsOf(p *tuitest.Proxy) (all []byte) {
	for _, line := range p.Commands() {
		all = append(all, line...)
	}
	return all
}

func TestTextsThatWaitAreGivenBack(t *testing.T) {
	p := tuitest.NewProxy(t, startNoused(t, "").Socket)
	h := useFar(t, p.Socket)
	p.Cut(true)
	h.until("word of the loss", func() bool { return h.offline != nil })
	h.write("not any more")
	h.press("enter")
	h.press("esc")
	if got := h.input.Text(); got != "not any more" || len(h.unsent) > 0 {
		t.Errorf("got %q in the input, %d texts on their way", got, len(h.unsent))
	}
}

// This machine's files are not those of another: none are offered for @, no branch is
// looked for, and an image is read here.
func TestFilesOfAnotherMachineAreNotLookedForHere(t *testing.T) {
	d := startNoused(t, "")
	if err := os.MkdirAll(filepath.Join(d.Dir, ".git"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.Dir, ".git", "HEAD"), []byte("ref: refs/heads/here\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h := useFar(t, d.Socket)
	h.write("@too")
	if h.input.Menu.Open() || h.input.Menu.Query != "" || h.where.branch != "" || h.where.looking {
		t.Errorf("got %+v and branch %q", h.input.Menu, h.where.branch)
	}
	h.press("ctrl+c")
	path := filepath.Join(t.TempDir(), "dot.png")
	if err := os.WriteFile(path, []byte("\x89PNG\r\n\x1a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.write("/image " + path)
	h.press("enter")
	if len(h.input.Images) != 1 || h.input.Images[0].Path != "" || h.input.Images[0].Params().Data == "" ||
		h.input.Images[0].Params().Name != "dot.png" {
		t.Errorf("got the images %+v", h.input.Images)
	}
}

// A command for a daemon that is away stays in the input; a follow-up waits as any text does, and
// what asks nobody is done.
func TestCommandsForAConnectionThatIsLost(t *testing.T) {
	p := tuitest.NewProxy(t, startNoused(t, "").Socket)
	h := useFar(t, p.Socket)
	p.Cut(true)
	h.until("word of the loss", func() bool { return h.offline != nil })
	h.write("/mode steering all")
	h.press("enter")
	h.sees("box is away: the command stays in the input", "/mode steering all")
	if got := h.input.Text(); got != "/mode steering all" || len(h.unsent)+len(h.working) > 0 {
		t.Errorf("got %q in the input, and %d commands on their way", got, len(h.working))
	}
	h.press("ctrl+c")
	h.write("/follow-up and then this")
	h.press("enter")
	h.sees("unsent and then this")
	h.write("/mode steering all")
	p.Cut(false)
	h.until("the connection", func() bool { return h.offline == nil && len(h.unsent) == 0 && !h.running() })
	h.press("enter")
	h.sees("steering: all")
}

// What is meant for a session that is left before it was sent is in the input again where the other one is shown;
// what is written once that one was asked for is sent there.
func TestATextForASessionThatIsLeftWhileAwayComesBack(t *testing.T) {
	d := startNoused(t, "")
	p := tuitest.NewProxy(t, d.Socket)
	h := useFar(t, p.Socket)
	asks := begun(t, d, "Ask for it")
	waits(t, d, asks, "touch "+filepath.Join(d.Dir, "made"))
	h.sees("1 approval elsewhere")
	p.Cut(true)
	h.until("word of the loss", func() bool { return h.offline != nil })
	h.write("meant for the first")
	h.press("enter")
	h.sees("unsent meant for the first")
	h.press("f6")
	h.write("meant for the second")
	h.press("enter")
	p.Cut(false)
	h.until("the other session", func() bool { return h.state.SessionID == asks && h.goal == nil })
	h.sees("what was meant for another session is in the input")
	h.until("the answer", func() bool { return len(h.unsent) == 0 })
	if got := h.input.Text(); got != "meant for the first" {
		t.Errorf("got %q in the input, want what was not sent", got)
	}
	said := fmt.Sprintf("%s", there(t, d, protocol.GetMessages, protocol.GetMessagesParams{
		Scope: protocol.Scope{SessionID: asks},
	}).Messages)
	if all := string(commandsOf(p)); strings.Contains(all, "meant for the first") ||
		strings.Count(all, `"meant for the second"`) != 1 {
		t.Errorf("it was said in the other session: %s; the commands are\n%s", said, all)
	}
}

// A text that may have arrived, and was taken back, is the same text as long as it is sent unchanged. A changed one is
// another.
func TestATextThatIsTakenBackKeepsItsKey(t *testing.T) {
	for name, want := range map[string]bool{"as it was": true, "changed": false} {
		p := tuitest.NewProxy(t, startNoused(t, "").Socket)
		h := useFar(t, p.Socket)
		p.Cut(true)
		h.until("word of the loss", func() bool { return h.offline != nil })
		h.write("said once")
		h.press("enter")
		key := h.unsent[0].Key
		h.press("esc")
		if got := h.input.Text(); got != "said once" || len(h.unsent) > 0 || key == "" {
			t.Fatalf("%s: got %q in the input, %d texts on their way, the key %q", name, got, len(h.unsent), key)
		}
		if !want {
			h.write(" and changed")
		}
		h.press("enter")
		if got := h.unsent[0].Key; got == "" || (got == key) != want {
			t.Errorf("%s: got the key %q after %q", name, got, key)
		}
	}
}
