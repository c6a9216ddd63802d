package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"noused/internal/protocol"
	"noused/internal/testenv"
	"noused/internal/tui/tuitest"
)

// bashCompletion is Debian's package; nous's file for bash needs its functions.
const bashCompletion = "/usr/share/bash-completion/bash_completion"

// A shell shows "$ ", finds nous's completions where scripts/share puts them, and tells
// its line at Ctrl-G through a pipe, without a word to the terminal.
var shells = []struct {
	name, file string // of the completions, below share
	rc, says   string // its own file, and what that says
	args       []string
}{
	{"bash", "bash-completion/completions/nous", ".bashrc", `PS1='$ '
. ` + bashCompletion + `
bind 'set show-all-if-ambiguous on' 'set bell-style none' 'set page-completions off' 'set completion-query-items 0'
bind -x '"\C-g": printf "%s\n" "$READLINE_LINE" >~/line'
`, []string{"--noprofile", "-i"}},
	{"zsh", "zsh/site-functions/_nous", ".zshrc", `PS1='$ ' LISTMAX=10000
fpath=(~/share/zsh/site-functions $fpath)
autoload -Uz compinit && compinit -u -D
unsetopt BEEP AUTO_MENU
line() { print -r -- "$BUFFER" >~/line }
zle -N line && bindkey '^G' line && bindkey '^U' kill-whole-line
`, []string{"-d", "-i"}},
	{"fish", "fish/vendor_completions.d/nous.fish", "config/fish/config.fish", `set fish_greeting
function fish_prompt; echo -n '$ '; end
bind \cg 'commandline >~/line'
bind \cu 'commandline ""'
`, []string{"-i"}},
}

// commandText is a title, or a description, that is a command wherever it is not quoted.
const commandText = "$(touch ran) `touch ran` '; touch ran; \" [a:b] * ~ \\"

// In bash, zsh and fish a Tab completes commands, flags, sessions, models and tools.
// What others have named them runs nothing. Where no daemon runs none is started, and
// the terminal is left alone.
func TestShellsComplete(t *testing.T) {
	testenv.Long(t)
	nous := program(t, "nous")
	d := newDaemon(t, "[providers.work]\nbase_url = \"http://127.0.0.1:1/v1\"\nmodels = [\"coder-large\", \"$(touch "+
		"ran)a\", \"$(touch ran)b\"]\n")
	d.Start()
	session := call1(t, d.Socket, protocol.NewSession, protocol.NewSessionParams{Title: commandText}).SessionID
	call1(t, d.Socket, protocol.NewSession, protocol.NewSessionParams{Title: "-x --help"})
	call1(t, d.Socket, protocol.Prompt, protocol.PromptParams{
		Scope: protocol.Scope{SessionID: call1(t, d.Socket, protocol.NewSession, protocol.NewSessionParams{}).SessionID},
		Text:  "$(touch ran)\ttab\x1b[2J\n; touch ran\n:1\n",
	})
	for _, sh := range shells {
		t.Run(sh.name, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(sh.name); err != nil {
				t.Skipf("%s is not installed", sh.name)
			}
			if _, err := os.Stat(bashCompletion); err != nil && sh.name == "bash" {
				t.Skip("the package bash-completion is not installed")
			}
			if version, _ := exec.Command("fish", "--version").Output(); sh.name == "fish" &&
				!strings.Contains(string(version), "version 3.") {
				t.Skipf("written for fish 3, and this is %s", version)
			}
			home := t.TempDir()
			script, err := exec.Command(nous, "completion", sh.name).Output()
			if err != nil {
				t.Fatal(err)
			}
			for name, text := range map[string]string{filepath.Join("share", sh.file): string(script), sh.rc: sh.says} {
				path := filepath.Join(home, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command(sh.name, sh.args...)
			cmd.Dir = home
			if err := os.Symlink(d.Socket, filepath.Join(home, "socket")); err != nil {
				t.Fatal(err)
			}
			cmd.Env = d.Env("NOUSED_SOCKET="+filepath.Join(home, "socket"), "HOME="+home, "ZDOTDIR="+home, "XDG_CONFIG_HOME="+
				filepath.Join(home, "config"), "XDG_DATA_HOME="+filepath.Join(home, "share"),
				"XDG_DATA_DIRS="+filepath.Join(home, "share")+":/usr/local/share:/usr/share", "PATH="+filepath.Dir(nous)+
					":/usr/bin:/bin")
			s := &shell{tuitest.Start(t, cmd, 160, 60, false), t, linesOf(t, filepath.Join(home, "line"))}
			s.Wait("$")

			for _, tc := range []struct{ typed, want string }{
				{"nous sess", "nous sessions "},
				{"nous --no-s", "nous --no-start "},
				{"nous prompt --if-running st", "nous prompt --if-running steer "},
				{"nous --session " + session[:len(session)-1], "nous --session " + session + " "},
				{"nous set-model work/c", "nous set-model work/coder-large "},
				{"nous ext sho", "nous ext shout.run "},
			} {
				s.completes(tc.typed, tc.want)
			}
			s.lists("nous show ", "$(touch ran) `touch ran`", "$(touch ran) tab", "-x --help")
			s.lists("nous set-tools ", "hold", "shout")

			if err := os.Remove(filepath.Join(home, "socket")); err != nil {
				t.Fatal(err)
			}
			for _, typed := range []string{
				"nous show ", "nous --session ", "nous set-model ", "nous ext ", "nous approve ",
				"nous deny ",
			} {
				s.completes(typed, typed)
			}
			for _, name := range []string{"ran", "socket", "socket.lock", "xdgstate"} {
				if _, err := os.Lstat(filepath.Join(home, name)); err == nil {
					t.Errorf("there is a %s", name)
				}
			}
		})
	}
}

// linesOf reads what is written to a new pipe, for as long as a loaded machine may need.
func linesOf(t *testing.T, path string) *bufio.Reader {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0) // it need not wait for a writer
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if err := f.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	return bufio.NewReader(f)
}

// shell is one in a terminal.
type shell struct {
	*tuitest.Terminal
	t     *testing.T
	lines *bufio.Reader // that it has told
}

// completes types a text and Tab and waits for the line that it becomes.
func (s *shell) completes(typed, want string) {
	s.t.Helper()
	s.Type("\x15" + typed + "\t\x07")
	if got := s.line(); got != want {
		s.t.Errorf("%q becomes %q, want %q", typed, got, want)
	}
}

// lists types a text and Tab twice and waits for what is offered.
func (s *shell) lists(typed string, want ...string) {
	s.t.Helper()
	s.Type("\x15\x0c" + typed + "\t\t")
	s.Wait(want...)
	s.Type("\x07")
	if got := s.line(); !strings.HasPrefix(got, strings.TrimSpace(typed)) {
		s.t.Errorf("%q becomes %q", typed, got)
	}
}

func (s *shell) line() string {
	s.t.Helper()
	line, err := s.lines.ReadString('\n')
	if err != nil {
		s.t.Fatalf("it tells no line: %v", err)
	}
	return strings.TrimSuffix(line, "\n")
}
