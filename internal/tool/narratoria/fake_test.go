package narratoria

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"noused/internal/tool/tooltest"
)

func TestMain(m *testing.M) {
	tooltest.Main(m, map[string]func() int{"player": play})
}

// A player is a tool that does what its script says, one step a line: a step
// that begins with "!" is one of these, any other is written to stdout as it is.
//
//	!print "…"   write that to stdout, escapes and all, without a line's end
//	!long N      write a log event of N bytes
//	!xs N        write that many letters, without a line's end
//	!stderr "…"  write that to stderr
//	!noise N     write that many lines to stderr
//	!input       write a log event with all that comes from stdin
//	!env         write a log event with the environment
//	!await FILE  read a FIFO to its end
//	!term        wait for SIGTERM
//	!immortal    ignore SIGTERM
//	!closes      close stdout
//	!child       leave a child behind that holds stdout
//	!floods      write log events for ever
//	!blocks      wait to be killed
//	!exit N      exit with that status
//	!dies        die of SIGKILL
//
// It exits with status 0 at the end. It reads its input to the end first,
// unless the first step is !deaf or !input.
func play() int {
	steps := strings.Split(os.Getenv("SCRIPT"), "\n")
	if first := steps[0]; first != "!deaf" && first != "!input" {
		io.Copy(io.Discard, os.Stdin)
	}
	say := func(message string) {
		text, _ := json.Marshal(message)
		fmt.Printf(`{"version":"0","type":"log","level":"info","message":%s}`+"\n", text)
	}
	term := make(chan os.Signal, 1)
	for _, step := range steps {
		verb, arg, _ := strings.Cut(step, " ")
		switch verb {
		case "!deaf":
		case "!print":
			io.WriteString(os.Stdout, unquote(arg))
		case "!long":
			n, _ := strconv.Atoi(arg)
			frame := `{"version":"0","type":"log","level":"info","message":""}`
			say(strings.Repeat("x", n-len(frame)))
		case "!xs":
			n, _ := strconv.Atoi(arg)
			io.WriteString(os.Stdout, strings.Repeat("x", n))
		case "!stderr":
			io.WriteString(os.Stderr, unquote(arg))
		case "!noise":
			n, _ := strconv.Atoi(arg)
			io.WriteString(os.Stderr, strings.Repeat("noise\n", n))
		case "!input":
			input, _ := io.ReadAll(os.Stdin)
			say(string(input))
		case "!env":
			say(strings.Join(os.Environ(), "\n"))
		case "!await":
			os.ReadFile(arg)
		case "!term":
			signal.Notify(term, syscall.SIGTERM)
			say("ready")
			<-term
		case "!immortal":
			signal.Ignore(syscall.SIGTERM)
		case "!closes":
			os.Stdout.Close()
		case "!child":
			self, _ := os.Executable()
			child := exec.Command(self)
			child.Env = []string{tooltest.Mode + "=player", "SCRIPT=!deaf\n!blocks"}
			child.Stdout = os.Stdout
			if err := child.Start(); err != nil {
				return 99
			}
		case "!floods":
			w := bufio.NewWriter(os.Stdout)
			for {
				if _, err := fmt.Fprintln(w, hello); err != nil {
					return 0
				}
			}
		case "!blocks":
			tooltest.Block()
		case "!exit":
			code, _ := strconv.Atoi(arg)
			return code
		case "!dies":
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		default:
			fmt.Println(step)
		}
	}
	return 0
}

func unquote(s string) string {
	text, err := strconv.Unquote(s)
	if err != nil {
		panic(err)
	}
	return text
}
