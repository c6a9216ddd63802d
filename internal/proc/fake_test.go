package proc

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"

	"noused/internal/tool/tooltest"
)

func TestMain(m *testing.M) {
	fakes := map[string]func() int{
		tooltest.Daemon: func() int {
			status, ok := Helper(os.Args)
			if !ok {
				return 2
			}
			return status
		},
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
			fmt.Println(os.Getpid())
			tooltest.Hold()
			return tooltest.Block()
		},
		"forker": func() int { // twice, each time into a session of its own
			return spawnSelf("forker2", &syscall.SysProcAttr{Setsid: true}, true)
		},
		"forker2": func() int {
			return spawnSelf("holder", &syscall.SysProcAttr{Setsid: true}, false)
		},
		"denier": func() int { // the same, without the mark
			os.Unsetenv(markName)
			return spawnSelf("forker2", &syscall.SysProcAttr{Setsid: true}, true)
		},
		"keeper": func() int { // without the mark, its parent alive
			os.Unsetenv(markName)
			return spawnSelf("holder", &syscall.SysProcAttr{Setsid: true}, true)
		},
		"agent": func() int { // without the mark, and nobody can look into it
			os.Unsetenv(markName)
			return spawnSelf("agent2", &syscall.SysProcAttr{Setsid: true}, true)
		},
		"agent2": func() int {
			return spawnSelf("secretive", &syscall.SysProcAttr{Setsid: true}, false)
		},
		"secretive": func() int {
			if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
				return 1
			}
			fmt.Println(os.Getpid())
			tooltest.Hold()
			return tooltest.Block()
		},
		"lifter": func() int { // with limits of its own
			own := unix.Rlimit{Cur: 1000, Max: 1000}
			if err := unix.Setrlimit(unix.RLIMIT_LOCKS, &own); err != nil {
				return 1
			}
			return spawnSelf("forker2", &syscall.SysProcAttr{Setsid: true}, true)
		},
		"traitor": func() int { // with neither mark
			own := unix.Rlimit{Cur: 1000, Max: 1000}
			if err := unix.Setrlimit(unix.RLIMIT_LOCKS, &own); err != nil {
				return 1
			}
			os.Unsetenv(markName)
			return spawnSelf("forker2", &syscall.SysProcAttr{Setsid: true}, true)
		},
		"betrayer": func() int { // the same, its parent alive
			own := unix.Rlimit{Cur: 1000, Max: 1000}
			if err := unix.Setrlimit(unix.RLIMIT_LOCKS, &own); err != nil {
				return 1
			}
			os.Unsetenv(markName)
			return spawnSelf("keeper", &syscall.SysProcAttr{Setsid: true}, true)
		},
		"forger": func() int { // with the mark of another daemon's child
			return forge("forker2")
		},
		"counterfeiter": func() int { // the same, its parent alive
			return forge("keeper")
		},
		"terminal": func() int {
			if f, err := os.OpenFile("/dev/tty", os.O_RDWR, 0); err == nil {
				f.Close()
				fmt.Println("a terminal")
				return 0
			}
			fmt.Println("no terminal")
			return 0
		},
		"groupie": func() int { // without the mark, in the tool's group
			os.Unsetenv(markName)
			return spawnSelf("holder", &syscall.SysProcAttr{}, true)
		},
		"whoami": func() int {
			dir, _ := os.Getwd()
			fmt.Println(os.Args[0], dir, os.Getenv("COLOUR"), syscall.Getpgrp() == os.Getpid())
			return 0
		},
		"crippler":         cripple,
		"crippling orphan": func() int { return spawnSelf("crippler", &syscall.SysProcAttr{Setsid: true}, true) },
		"lurker":           lurk,
		"queuer":           queue,
		"daemon":           daemonMain,
		"nester":           nesterMain,
		"parent": func() int {
			return spawnSelf("holder", &syscall.SysProcAttr{}, true)
		},
		"escape": func() int {
			return spawnSelf("flood", &syscall.SysProcAttr{Setsid: true}, true)
		},
		"abandon": func() int {
			status := spawnSelf("flood", &syscall.SysProcAttr{Setsid: true}, false)
			tooltest.Hold() // until the grandchild has been heard
			return status
		},
		"env": func() int {
			for _, kv := range os.Environ() {
				fmt.Println(kv)
			}
			return 0
		},
	}
	maps.Copy(fakes, reached())
	tooltest.Main(m, fakes)
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

// forge leaves a grandchild that has the mark of a child which nobody has.
func forge(mode string) int {
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_LOCKS, &own); err != nil {
		return 1
	}
	own.Cur = uint64(newMark(5, 1)) // a daemon's own number is random
	if err := unix.Setrlimit(unix.RLIMIT_LOCKS, &own); err != nil {
		return 1
	}
	return spawnSelf(mode, &syscall.SysProcAttr{Setsid: true}, true)
}

// stray is a shell's command that leaves a process in a session of its own, which
// holds the FIFO.
const stray = `(setsid sh -c 'exec 9>"$` + tooltest.FIFO + `"; : >"$` + tooltest.FIFO + `.up"; exec sleep 1000' &)
while ! test -e "$` + tooltest.FIFO + `.up"; do sleep 0.01; done; rm "$` + tooltest.FIFO + `.up"; echo up; `

// nesterMain starts scripts itself: one that ends and leaves a process, and, when it
// is told to, one that does not end.
func nesterMain() int {
	in := bufio.NewReader(os.Stdin)
	s := NewNested("/proc/self/exe", zap.NewNop())
	for _, script := range []string{stray, stray + "exec sleep 1000"} {
		p, err := s.Start(context.Background(), Command{
			Name: "script", Path: "/bin/sh", Args: []string{"sh", "-c", script}, Dir: "/", Env: os.Environ(), MaxLine: 1 << 10,
			Script: true,
		})
		if err != nil {
			return 1
		}
		line, err := p.Next()
		fmt.Println(string(line), err)
		p.Wait()
		fmt.Println("waited")
		_, _ = in.ReadString('\n')
	}
	return 0
}

// runVar names the fakes that a fake daemon runs, with spaces between.
const runVar = "NOUSED_TEST_RUN"

// jailed are tools in a sandbox.
var jailed = map[string]string{
	"jail":  "echo $TMPDIR; touch $TMPDIR/x; exec sleep 1000",
	"signs": `grep "Max file locks" /proc/self/limits`,
}

// daemonMain is a daemon with nothing but tools, until its input ends. It writes
// its log to stdout, and what its tools say.
func daemonMain() int {
	core := zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.Lock(os.Stdout),
		zap.DebugLevel)
	s := NewSupervisor("/proc/self/exe", zap.New(core))
	for mode := range strings.FieldsSeq(os.Getenv(runVar)) {
		self, dir := "/proc/self/exe", os.TempDir()
		c := Command{
			Name: mode, Path: self, Args: []string{"tool"}, Dir: dir,
			Env: append(os.Environ(), tooltest.Mode+"="+mode), MaxLine: 1 << 16,
		}
		if script := jailed[mode]; script != "" {
			c.Path, c.Args = "/bin/sh", []string{"sh", "-c", script}
			var err error
			if s, err = s.Sandboxed(Sandbox{Workdir: dir, Write: []string{dir}, Weak: true}); err != nil {
				panic(err)
			}
		}
		p, err := s.Start(context.Background(), c)
		if err != nil {
			fmt.Println(err)
			s.Close()
			return 1
		}
		if line, err := p.Next(); err == nil {
			fmt.Println(string(line))
		}
	}
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin) // so that it ends with its test
	return 0
}
