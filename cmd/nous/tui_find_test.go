package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"noused/internal/testenv"
)

// golden waits until a screen looks as a file says.
func (s *screen) golden(name string) {
	s.t.Helper()
	path := filepath.Join("testdata", "screens", name+".txt")
	if *update {
		if err := os.WriteFile(path, []byte(steady(s.Styled())), 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		s.t.Fatal(err)
	}
	s.WaitFor("look of "+path, func(string) bool { return steady(s.Styled()) == string(want) })
}

// A text is found as it is typed, one walks from match to match, and comes back
// to where one was, or stays; what was being written is there afterwards.
func TestFindInTheConversation(t *testing.T) {
	t.Parallel()
	for _, l := range []look{
		{cols: 80, rows: 24, env: []string{"COLORTERM=truecolor"}},
		{cols: 44, rows: 16, env: []string{"NO_COLOR=1"}, light: true},
	} {
		name := fmt.Sprintf("find-%dx%d", l.cols, l.rows)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := longTalk(t, l)
			s.Type("draft")
			s.Wait("> draft")
			s.Press("ctrl+f")
			s.Wait("find: ", "type a text")
			s.Type("LINE 3")
			s.Wait("not found") // capital letters matter
			s.Press("ctrl+u")
			s.Wait("type a text")
			s.Type("line 3")
			s.Wait("find: line 3", "22 of 22", "line 39.")
			if l.cols < 80 {
				s.golden(name)
			}
			s.Press("enter")
			s.Wait("21 of 22")
			s.Type("n")
			s.Wait("20 of 22")
			s.Type("N")
			s.Wait("21 of 22")
			s.Press("down", "down") // round the end
			s.Wait("1 of 22")
			s.Press("esc")
			s.WaitGone("find: ")
			s.Wait("the very end", "> draft")
			s.WaitGone("End goes to the end")
			s.Press("ctrl+f")
			s.Paste("said before")
			s.Wait("2 of 2") // the answer says it, too
			s.Press("ctrl+c")
			s.WaitGone("find: ")
			s.Wait("said before", "End goes to the end", "> draft")
		})
	}
}

// What a tool has said is found where it is folded, and while more is being said.
func TestFindInFoldsAndWhileItStreams(t *testing.T) {
	testenv.Long(t)
	t.Parallel()
	s := openScreen(t, startDaemon(t, wordSlowly), look{cols: 80, rows: 24})
	s.say(`!bash {"command":"seq -f 'row %g of it' 60"}`)
	s.Wait("(2 model calls)", "idle")
	s.Press("pgup", "pgup", "pgup", "pgup", "pgup", "pgup")
	s.Wait("more lines")
	if strings.Contains(s.Screen(), "row 23 ") {
		t.Fatalf("nothing is folded:\n%s", s.Screen())
	}
	s.Press("ctrl+p")
	s.Wait("Commands")
	s.Type("find a text in the conv")
	s.Wait("❯ find a text in the conversation")
	s.Press("enter")
	s.Type("row 23 of")
	s.Wait("2 of 2", "row 23 of it") // the answer says it, too
	s.Press("up")
	s.Wait("1 of 2", "row 23 of it")
	s.Press("esc")
	s.WaitGone("row 23 of it")
	s.Wait("more lines")
	s.say("begin " + strings.Repeat("needle and thread ", 30) + "end")
	s.WaitFor("the run", func(screen string) bool { // it may be over by now
		return strings.Contains(screen, "running") || strings.Contains(screen, "(1 model call)") ||
			strings.Contains(screen, "thread end")
	})
	s.say("/find needle")
	s.Wait("find: needle", " of 60")
	s.Press("esc")
	s.Wait("idle")
}
