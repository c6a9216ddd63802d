package ssh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"noused/internal/plaintext"
)

const (
	keptWords = 2 << 10         // bytes of what ssh and the far shell said last
	lingers   = 2 * time.Second // for ssh to end when it is asked to, and for its streams to end when it has
)

// ours are the options that nous gives to ssh. Those of the user stand before them, and
// ssh takes the first it is given.
var ours = []string{"-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=3", "-o", "ConnectTimeout=15"}

// batch has ssh ask nothing.
var batch = []string{"-o", "BatchMode=yes"}

// base is a command line that leads to the host; -T or -t, and what it does there, are missing.
func (o Options) base() ([]string, error) {
	ssh, err := exec.LookPath("ssh")
	if err != nil {
		return nil, &Error{Host: o.Host, What: "there is no ssh in PATH", Next: "install OpenSSH's client"}
	}
	to := o.SSH
	if len(to) == 0 {
		if o.Host == "" || o.Host[0] == '-' {
			return nil, &Error{Host: o.Host, What: fmt.Sprintf("%q is no name of a host", o.Host)}
		}
		to = []string{o.Host}
	}
	return append([]string{ssh}, to...), nil
}

// argv is the command line that leads to a proxy.
func (o Options) argv(ask, start bool) ([]string, error) {
	argv, err := o.base()
	if err != nil {
		return nil, err
	}
	argv = append(append(argv, "-T"), ours...)
	if ask {
		// Ctrl-C is nous's, not the connection's: ssh leaves SIGINT ignored where it was.
		argv = append([]string{"/bin/sh", "-c", `trap "" INT; exec "$@"`, "sh"}, argv...)
	} else {
		argv = append(argv, batch...)
	}
	return append(argv, "--", o.remote(start)), nil
}

// remote is the command for the far shell.
func (o Options) remote(start bool) string {
	words := append(o.farNous(), "proxy")
	if o.Socket != "" {
		words = append(words, "--socket", quotePath(o.Socket))
	}
	if start {
		words = append(words, "--start")
	}
	return strings.Join(words, " ")
}

func (o Options) farNous() []string {
	if o.Nous == "" {
		return []string{"nous"}
	}
	return []string{quotePath(o.Nous)}
}

// Command is the ssh that runs nous with these arguments on the host. With a terminal nous
// has one there, and ssh may ask on it. The exit status is the far nous's, or ssh's own 255.
func (o Options) Command(ctx context.Context, terminal bool, args ...string) (*exec.Cmd, error) {
	argv, err := o.base()
	if err != nil {
		return nil, err
	}
	if argv = append(argv, "-T"); terminal {
		argv[len(argv)-1] = "-t"
	} else {
		argv = append(argv, batch...)
	}
	words := o.farNous()
	if o.Socket != "" {
		words = append(words, "--socket", quotePath(o.Socket))
	}
	for _, arg := range args {
		words = append(words, quote(arg))
	}
	argv = slices.Concat(argv, ours, []string{"--", strings.Join(words, " ")})
	return exec.CommandContext(ctx, argv[0], argv[1:]...), nil
}

// quotePath quotes a path for any shell that knows single quotes. The home stays one.
func quotePath(path string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		return "~/" + quote(rest)
	}
	return quote(path)
}

func quote(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_@%+=:,./-", r)
	}
	if word != "" && strings.TrimFunc(word, plain) == "" {
		return word
	}
	// A backslash, too, stands outside: fish reads it inside.
	return "'" + strings.NewReplacer("'", `'\''`, `\`, `'\\'`).Replace(word) + "'"
}

// process is ssh while it runs. Err is how it ended, once exited is closed.
type process struct {
	in     *os.File
	out    *os.File
	words  *words
	cmd    *exec.Cmd
	once   sync.Once
	exited chan struct{}
	err    error
}

// run starts a program that ends with this one, whatever ends this one. One that may not ask has
// no terminal, and neither has what it starts to get there.
func run(argv []string, ask bool, show io.Writer) (*process, error) {
	in, toIn, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	fromOut, out, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, in.Close(), toIn.Close())
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	p := &process{in: toIn, out: fromOut, words: &words{show: show}, cmd: cmd, exited: make(chan struct{})}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, p.words
	cmd.WaitDelay = lingers // a master that ssh leaves behind may hold standard error
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setsid: !ask}
	if !ask {
		cmd.Env = append(os.Environ(), "SSH_ASKPASS_REQUIRE=never")
	}
	started := make(chan error)
	go func() { // ends with the process
		runtime.LockOSThread() // the kernel sends Pdeathsig when this thread ends
		err := cmd.Start()
		_, _ = in.Close(), out.Close()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			_ = p.out.SetReadDeadline(time.Now().Add(lingers))
		}
		close(p.exited)
	}()
	if err := <-started; err != nil {
		_, _ = toIn.Close(), fromOut.Close()
		return nil, err
	}
	return p, nil
}

// end ends it. It does not wait.
func (p *process) end() {
	p.once.Do(func() {
		_ = p.in.Close()
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(lingers, func() { _ = p.cmd.Process.Kill() })
		go func() { // ends with the process
			<-p.exited
			kill.Stop()
			_ = p.out.Close()
		}()
	})
}

// status is how it ended: -1 by a signal.
func (p *process) status() int { return p.cmd.ProcessState.ExitCode() }

// words keeps the end of what was said, and shows it as it is said, in whole lines.
type words struct {
	show io.Writer // nil: not, or no more

	mu   sync.Mutex
	kept []byte
	cut  bool
	line []byte // that is not shown yet
	size int    // bytes that were shown
}

// quiet ends the showing. What was shown is not kept.
func (w *words) quiet() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.show != nil {
		w.shown([]byte{'\n'})
		w.show, w.kept, w.cut = nil, nil, false
	}
}

// shown shows more of what is said.
func (w *words) shown(p []byte) {
	if w.size += len(p); w.size > maxNoise {
		return
	}
	w.line = append(w.line, p...)
	for {
		line, rest, ok := bytes.Cut(w.line, []byte{'\n'})
		if !ok {
			return
		}
		if text := strings.TrimRight(plaintext.Clean(string(line)), "\r"); text != "" {
			fmt.Fprintln(w.show, text)
		}
		w.line = rest
	}
}

func (w *words) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.show != nil {
		w.shown(p)
	}
	w.kept = append(w.kept, p[max(0, len(p)-keptWords):]...)
	if over := len(w.kept) - keptWords; over > 0 {
		w.kept, w.cut = append(w.kept[:0], w.kept[over:]...), true
	}
	return len(p), nil
}

// String is the last whole lines, in plain text.
func (w *words) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := string(w.kept)
	if _, rest, ok := strings.Cut(text, "\n"); ok && w.cut {
		text = rest
	}
	return strings.TrimSpace(plaintext.Clean(text))
}
