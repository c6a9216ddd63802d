package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"noused/internal/daemontest"
	"noused/internal/testenv"
)

// The terminal is asked to say when the user looks elsewhere, and what it says
// is no input.
func TestFocusIsAskedForAndWritesNothing(t *testing.T) {
	t.Parallel()
	s := openScreen(t, startDaemon(t, ""), look{})
	if !s.Mode(1004) {
		t.Fatal("nous does not ask for the focus")
	}
	s.Type("be\x1b[Ofo\x1b[Ire\x1b[O")
	s.Wait("> before")
	s.Press("ctrl+c", "ctrl+c", "ctrl+c")
	s.Exit()
	s.asBefore()
}

// longTalk shows a conversation that is longer than the screen, at its end.
func longTalk(t *testing.T, l look) *screen {
	t.Helper()
	s := openScreen(t, startDaemon(t, ""), l)
	if l.cols >= 80 { // where the title is shown: one that stays
		s.newSession("A long talk")
	}
	var lines strings.Builder
	for i := range 60 {
		fmt.Fprintf(&lines, "line %d.\n\n", i)
	}
	s.Paste("said before " + lines.String() + "the very end")
	s.Press("enter")
	s.WaitFor("the answer, and what it took", func(screen string) bool {
		return strings.Contains(screen, "the very end") && strings.Contains(screen, "(1 model") &&
			strings.Contains(screen, "idle") && (strings.Contains(screen, "ctx 3") || strings.Contains(screen, "context 3"))
	})
	return s
}

// wheelOf is what a terminal sends for a step of the wheel: a report where nous
// has the mouse, else arrow keys, as most do on the screen that nous uses.
func (s *screen) wheelOf(keys int, key string) {
	if s.Mode(1002) && s.Mode(1006) {
		button := map[string]int{"up": 64, "down": 65}[key]
		s.Type(fmt.Sprintf("\x1b[<%d;10;5M", button))
		return
	}
	s.Type(strings.Repeat(map[string]string{"up": "\x1b[A", "down": "\x1b[B"}[key], keys))
}

// The wheel scrolls the conversation, and never writes an earlier text into the
// input, whether the mouse is nous's or the terminal makes arrow keys of it.
func TestTheWheelScrollsAndWritesNothing(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]look{"mouse": {}, "arrow keys": {env: []string{"TERM_PROGRAM=Apple_Terminal"}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := longTalk(t, l)
			if ours := s.Mode(1002); ours != (name == "mouse") {
				t.Fatalf("the mouse is nous's: %t", ours)
			}
			s.Type("draft")
			s.Wait("> draft")
			for range 3 {
				s.wheelOf(3, "up")
			}
			s.Wait("%, End goes to the end", "> draft")
			s.wheelOf(40, "down")
			for range 10 {
				s.wheelOf(3, "down")
			}
			s.WaitGone("End goes to the end")
			s.Wait("the very end", "> draft")
			s.Type("ed")
			s.Wait("> drafted")
			s.Press("up") // a key is a key
			s.WaitGone("> drafted")
		})
	}
}

// A wheel that is turned as fast as can be leaves nothing in the input.
func TestThousandsOfStepsOfTheWheelWriteNothing(t *testing.T) {
	testenv.Long(t)
	t.Parallel()
	s := longTalk(t, look{})
	s.Type(strings.Repeat("\x1b[<64;100;25M\x1b[<65;100;25M", 1500) + strings.Repeat("\x1b[<64;7;5M", 500) + "written")
	s.Wait("> written", "End goes to the end")
}

// In a list the wheel moves among the rows.
func TestTheWheelMovesInAList(t *testing.T) {
	t.Parallel()
	s := openScreen(t, startDaemon(t, ""), look{})
	s.newSession("first one")
	s.newSession("second one")
	s.Press("ctrl+r")
	s.Wait("❯ * second one")
	s.wheelOf(3, "down")
	s.Wait("❯   first one")
	s.Press("esc")
	s.WaitGone("Sessions")
	s.say("/mouse")
	s.Wait("the mouse is the terminal's")
	s.Press("ctrl+r")
	s.Wait("❯ * second one")
	s.wheelOf(3, "down")
	s.Wait("❯   first one")
}

// script writes a shell script into the daemon's folder, and returns its path.
func script(t *testing.T, d *daemontest.Daemon, name, text string) string {
	t.Helper()
	path := filepath.Join(d.Dir, name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// The input is written in an editor, pastes whole, in a file that nobody else
// can read and that is gone afterwards.
func TestTheEditorWritesTheInput(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	editor := script(t, d, "ed it", `
{ stat -c %a "$2" "${2%/*}"; echo "$1"; cat "$2"; } > seen
printf 'from the editor\nand %s' "$(head -n 1 "$2")" > "$2".new && mv "$2".new "$2"
`)
	tmp := filepath.Join(d.Dir, "tmp")
	if err := os.Mkdir(tmp, 0o700); err != nil {
		t.Fatal(err)
	}
	s := openScreen(t, d, look{env: []string{"EDITOR='" + editor + "' -flag", "VISUAL=", "TMPDIR=" + tmp}})
	s.Type("begin ")
	s.Paste(strings.Repeat("pasted\n", 20))
	s.Wait("> begin [paste 1: 20 lines]")
	s.Press("ctrl+g")
	s.Wait("> from the editor", "  and begin pasted", "● connected")
	seen, err := os.ReadFile(filepath.Join(d.Dir, "seen"))
	if want := "600\n700\n-flag\nbegin " + strings.Repeat("pasted\n", 20); err != nil || string(seen) != want {
		t.Errorf("the editor found %q, %v, want %q", seen, err, want)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
	s.Press("enter")
	s.WaitFor("the answer", func(screen string) bool {
		return strings.Count(screen, "and begin pasted") >= 2 && strings.Contains(screen, "idle")
	})
}

// Whatever happens to the editor, the screen is there again, with what was
// written, and in the end the terminal is as it was.
func TestAnEditorThatFailsGivesTheScreenBack(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	for name, tc := range map[string]struct{ script, keys, want string }{
		"fails":   {"echo lost > \"$1\"; exit 3", "", "exit status 3"},
		"killed":  {"stty raw -echo; printf '\\033[?1000h\\033[?25lin its hands'; kill -9 $$", "", "signal: killed"},
		"Ctrl+C":  {"echo in its hands; read -r line", "\x03", "signal: interrupt"},
		"missing": {"rm \"$1\"", "", "no such file"},
		"a link":  {"rm \"$1\"; ln -s /etc/hostname \"$1\"", "", "is a symbolic link"},
		"long":    {"head -c 3000000 /dev/zero | tr '\\0' x > \"$1\"", "", "it is kept in"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tmp := filepath.Join(d.Dir, name[:2])
			if err := os.Mkdir(tmp, 0o700); err != nil {
				t.Fatal(err)
			}
			editor := script(t, d, "editor"+name[:2], tc.script+"\n")
			s := openScreen(t, d, look{env: []string{"VISUAL='" + editor + "'", "TMPDIR=" + tmp}})
			s.Type("a draft")
			s.Wait("> a draft")
			s.Press("ctrl+g")
			if tc.keys != "" {
				s.Wait("in its hands")
				s.Type(tc.keys)
			}
			s.reads(tc.want)
			s.Wait("the input is as it was", "> a draft", "● connected")
			s.Type("ed")
			s.Wait("> a drafted")
			s.Press("ctrl+c")
			s.WaitGone("> a draft")
			s.Press("ctrl+d")
			if got := s.Exit(); got != 0 {
				t.Errorf("got exit status %d", got)
			}
			s.asBefore()
		})
	}
}

// Where nous is told to end while an editor has the terminal, both end.
func TestTheEndOfNousEndsItsEditor(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	d.Fifo("ended")
	editor := script(t, d, "editor",
		"trap 'echo so it does > ended; exit 1' HUP\necho in its hands\nwhile :; do read -r line < go; done\n")
	s := openScreen(t, d, look{env: []string{"VISUAL=" + editor}})
	s.Press("ctrl+g")
	s.Wait("in its hands")
	s.Signal(os.Interrupt) // for the editor alone
	s.Signal(syscall.SIGTERM)
	if got, err := os.ReadFile(filepath.Join(d.Dir, "ended")); err != nil || string(got) != "so it does\n" {
		t.Errorf("got %q, %v from the editor", got, err)
	}
	if got := s.Exit(); got != 0 {
		t.Errorf("got exit status %d", got)
	}
	s.asBefore()
}

// A long paste is one word, can be opened, and goes whole to the model.
func TestAFoldedPasteIsOpenedAndTakenOut(t *testing.T) {
	t.Parallel()
	s := openScreen(t, startDaemon(t, ""), look{})
	long := strings.Repeat("first and ", 10) + "\n" + strings.Repeat("more\n", 8) + "last"
	s.Type("see ")
	s.Paste(long)
	s.Wait("> see [paste 1: 10 lines]")
	s.Press("backspace")
	s.WaitGone("[paste")
	s.Paste(long)
	s.Wait("[paste 2: 10 lines]")
	s.Press("alt+p")
	s.Wait("> see first and first", "  more", "  last")
	s.WaitGone("[paste")
	s.Press("enter")
	s.WaitFor("the answer", func(screen string) bool {
		return strings.Count(screen, "last") >= 2 && strings.Contains(screen, "idle")
	})
}

// The image of the clipboard goes with the next text; without one, or without a
// desktop, the screen says so.
func TestTheClipboardsImageGoesWithTheNextText(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	bin := filepath.Join(d.Dir, "bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	d.Write("png", "\x89PNG\r\n\x1a\n and more")
	script(t, d, "bin/wl-paste", `
if [ "$1" = --list-types ]; then cat "$HOME/types"; exit; fi
[ "$*" = "--no-newline --type image/png" ] && cat "$HOME/png"
`)
	none := openScreen(t, d, look{})
	none.Press("ctrl+v")
	none.reads("/image PATH takes a file along")
	s := openScreen(t, d, look{env: []string{"WAYLAND_DISPLAY=w", "PATH=" + bin + ":" + os.Getenv("PATH")}})
	d.Write("types", "text/plain\n")
	s.Press("ctrl+v")
	s.Wait("the clipboard holds no image")
	d.Write("types", "text/plain\nimage/gif\nimage/png\n")
	s.Press("ctrl+v")
	s.Wait("image pasted 1", "with the next text")
	s.say("what is this")
	s.WaitFor("the answer", func(screen string) bool {
		return strings.Count(screen, "what is this") >= 2 && strings.Contains(screen, "idle")
	})
	s.Wait("attached: pasted 1, image/png")
	s.WaitGone("with the next text")
	d.Write("png", "\x89PNG\r\n\x1a\n"+strings.Repeat("x", 5<<20))
	s.Press("ctrl+v")
	s.Wait("the clipboard holds more than 5242880 bytes")
}

// reads waits for a text that may go on in the next line.
func (s *screen) reads(text string) {
	s.t.Helper()
	unwrapped := func(text string) string { return strings.Join(strings.Fields(text), "") }
	s.WaitFor(text, func(screen string) bool { return strings.Contains(unwrapped(screen), unwrapped(text)) })
}
