package tool

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"noused/internal/tool/tooltest"
)

func TestMain(m *testing.M) {
	tooltest.Main(m, map[string]func() int{
		"echo": func() int {
			if _, err := io.Copy(os.Stdout, os.Stdin); err != nil {
				return 1
			}
			return 0
		},
		"early": func() int { return 7 },
		"deaf": func() int {
			fmt.Println("ready")
			tooltest.Hold()
			return tooltest.Block()
		},
		"stubborn": func() int {
			signal.Ignore(syscall.SIGTERM)
			fmt.Println("ready")
			return tooltest.Block()
		},
		"flood": func() int {
			line := []byte(strings.Repeat("x", 99) + "\n")
			for {
				if _, err := os.Stdout.Write(line); err != nil {
					return 1
				}
			}
		},
		"lines": func() int {
			w := bufio.NewWriter(os.Stdout)
			defer w.Flush()
			for i := range 5000 {
				fmt.Fprintln(w, i)
			}
			return 0
		},
		"longline": func() int {
			chunk := bytes.Repeat([]byte("x"), 1<<20)
			for {
				if _, err := os.Stdout.Write(chunk); err != nil {
					return 1
				}
			}
		},
		"noisy": func() int {
			chunk := []byte(strings.Repeat("noise ", 1000) + "\n")
			for range 1000 {
				os.Stderr.Write(chunk)
			}
			fmt.Fprintln(os.Stderr, "the end")
			return 3
		},
		"suicide": func() int {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			return tooltest.Block()
		},
		"holder": func() int {
			tooltest.Hold()
			return tooltest.Block()
		},
		"parent": func() int {
			return spawnSelf("holder", &syscall.SysProcAttr{}, true)
		},
		"escape": func() int {
			return spawnSelf("flood", &syscall.SysProcAttr{Setsid: true}, true)
		},
		"abandon": func() int {
			return spawnSelf("flood", &syscall.SysProcAttr{Setsid: true}, false)
		},
		"env": func() int {
			for _, kv := range os.Environ() {
				fmt.Println(kv)
			}
			return 0
		},
	})
}

// spawnSelf leaves a grandchild behind that has all our pipes; reading, it
// stays until the input ends.
func spawnSelf(mode string, attr *syscall.SysProcAttr, read bool) int {
	self, err := os.Executable()
	if err != nil {
		return 1
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), tooltest.Mode+"="+mode)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = os.Stdin, os.Stdout, os.Stderr, attr
	if err := cmd.Start(); err != nil {
		return 1
	}
	if read {
		io.Copy(io.Discard, os.Stdin)
		fmt.Println("last words")
	}
	return 0
}
