package worktree

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"noused/internal/trust"
)

// timeLimit is how long a git may take, which may have to check out a very large
// repository.
const timeLimit = time.Hour

// maxOutput is how much of what git says is kept, in bytes.
const maxOutput = 64 << 10

// elsewhere are the variables that would make git work on another repository than
// that of its folder; git sets them for hooks.
var elsewhere = []string{
	"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY",
	"GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE", "GIT_SHALLOW_FILE", "GIT_GRAFT_FILE", "GIT_IMPLICIT_WORK_TREE",
	"GIT_CONFIG",
}

// ErrNoGit says that there is no git program.
var ErrNoGit = errors.New("git is not installed, or not in $PATH")

// gitError is git's own refusal.
type gitError struct{ command, said string }

func (e *gitError) Error() string { return "git " + e.command + ": " + e.said }

// Command is a git to run.
type Command struct {
	Path string   // absolute
	Args []string // with the program's name
	Env  []string // beside what the user's programs have; see [Directly]
	In   []byte   // what it reads
	// Write are the folders that it has to write to, absolute, without links; there may be none.
	Write []string
	// Read are folders that it reads though they may be hidden from others, such as one of the daemon's own.
	Read []string
}

// Runner runs a git and hands what it prints to out, which takes all of it. It blocks
// until git has ended; the end of ctx ends it. Where git ran and failed, the error is an
// *[Exit].
type Runner func(ctx context.Context, c Command, out io.Writer) error

// Exit is the end of a git that failed.
type Exit struct {
	How  string // as in "exit status 1"
	Said string // on stderr, the last 64 KiB at least
}

func (e *Exit) Error() string { return e.How }

// stopTime is how long a git that was told to end has for it, and its output
// afterwards.
const stopTime = 2 * time.Second

// Directly runs git as the caller's child, which is for those who have been asked to by
// the user. It may write whatever the user may, and so what it runs itself is nothing that
// a session can have put into a folder of PATH ([trust.Environ]).
func Directly(ctx context.Context, c Command, out io.Writer) error {
	cmd := exec.CommandContext(ctx, c.Path, c.Args[1:]...)
	cmd.Stdout, cmd.Env = out, append(slices.DeleteFunc(trust.Environ(os.Environ()), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(elsewhere, name)
	}), c.Env...)
	cmd.WaitDelay = stopTime
	// A session of its own: what git runs can be ended with it, and asks nobody on the terminal.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	// git then takes back what it has made
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	if c.In != nil {
		cmd.Stdin = bytes.NewReader(c.In)
	}
	said := bounded{}
	cmd.Stderr = &said
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && ctx.Err() == nil {
		return &Exit{How: exit.String(), Said: said.String()}
	}
	return err
}

// place is a repository that git works on.
type place struct {
	run    Runner
	at     []string // git's options that say which
	config []string // more of git's options
	write  []string
	env    []string // beside what every git has
	// Of one that is inert: what it has in place of the repository's common folder, and the keys
	// of the repository's own configuration.
	common string
	own    []string
}

// in is the repository that a folder is in; nothing of it may be written.
func in(run Runner, dir string) place { return place{run: run, at: []string{"-C", dir}} }

// of is the repository with that git folder, which may be written, as may the other
// folders. Which one that is, nobody who may write to another can change.
func of(run Runner, common string, folders ...string) place {
	return place{run: run, at: []string{"-C", common, "--git-dir=" + common}, write: append([]string{common}, folders...)}
}

// git runs git and returns what it printed, cut at maxOutput bytes. It blocks until git
// has ended, for timeLimit at most. A refusal is a *gitError.
func (p place) git(ctx context.Context, args ...string) (string, error) {
	return p.gitWith(ctx, nil, args...)
}

// gitWith is git that reads in.
func (p place) gitWith(ctx context.Context, in []byte, args ...string) (string, error) {
	var out bounded
	if err := p.stream(ctx, in, &out, args...); err != nil {
		return "", err
	}
	return out.String(), nil
}

// each runs git and hands over each record that it prints, without the zero byte at its
// end. An error of take ends nothing, and is returned.
func (p place) each(ctx context.Context, in []byte, take func(record string) error, args ...string) error {
	out := records{take: take}
	if err := p.stream(ctx, in, &out, args...); err != nil {
		return err
	}
	return out.err
}

// stream runs git and hands what it prints to out, also of one that refuses.
func (p place) stream(ctx context.Context, in []byte, out io.Writer, args ...string) error {
	program, err := program()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeLimit, fmt.Errorf("it was not done within %v", timeLimit))
	defer cancel()
	fixed := slices.Concat([]string{"git", "--no-pager"}, p.at, hardening, p.config)
	c := Command{Path: program, Args: append(fixed, args...), Write: p.write, In: in}
	c.Env = slices.Concat(environment, p.env)
	if p.common != "" {
		c.Env = append(c.Env, "GIT_COMMON_DIR="+p.common)
	}
	err = p.run(ctx, c, out)
	var exit *Exit
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("git %s: %w", args[0], context.Cause(ctx))
	case errors.As(err, &exit):
		return &gitError{args[0], exit.Reason()}
	}
	return fmt.Errorf("run git: %w", err)
}

// maxRecord bounds what git says of one file, in bytes.
const maxRecord = 64 << 10

// records takes what ends in zero bytes apart.
type records struct {
	take func(string) error
	part []byte
	err  error
}

func (r *records) Write(p []byte) (int, error) {
	size := len(p)
	for r.err == nil && len(p) > 0 {
		head, rest, ended := bytes.Cut(p, []byte{0})
		if r.part, p = append(r.part, head...), rest; len(r.part) > maxRecord {
			r.err = fmt.Errorf("git says more than %d bytes of one file", maxRecord)
		} else if ended {
			r.err = r.take(string(r.part))
			r.part = r.part[:0]
		}
	}
	return size, nil
}

// hardening keeps git from running what a repository names as it is told to, environment
// from waiting for anybody.
var (
	hardening   = []string{"-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "log.showSignature=false"}
	environment = []string{"LC_ALL=C", "GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0"}
	noFetch     = []string{"GIT_NO_LAZY_FETCH=1", "GIT_ALLOW_PROTOCOL=none"}
)

// Reading is a git that changes nothing, fetches nothing and has no configuration but a
// repository's and this one's. args begin with its options. The error is of [ErrNoGit].
func Reading(args ...string) (Command, error) {
	program, err := program()
	fixed := slices.Concat([]string{"git", "--no-pager"}, hardening, []string{
		"-c", "core.excludesFile=/dev/null", "-c",
		"core.attributesFile=/dev/null",
	})
	return Command{
		Path: program, Args: append(fixed, args...),
		Env: slices.Concat(environment, []string{
			"GIT_ALLOW_PROTOCOL=none", "GIT_NO_LAZY_FETCH=1", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
			"GIT_ATTR_NOSYSTEM=1",
		}),
	}, err
}

func program() (string, error) {
	path, err := trust.LookPath("git", os.Getenv("PATH"))
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoGit, err)
	}
	return path, nil
}

// bounded keeps the beginning of what is written to it.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	b.Buffer.Write(p[:min(len(p), maxOutput-b.Len())])
	return len(p), nil
}

// Reason is the sentence with which git gave up. A line of it that ends in a
// semicolon goes on in the next, which says what to do.
func (e *Exit) Reason() string {
	last := e.How
	var why string
	for text := range strings.Lines(e.Said) {
		text = strings.TrimSpace(text)
		if why != "" {
			return why + " " + text
		}
		for _, mark := range []string{"fatal: ", "error: "} {
			if said, ok := strings.CutPrefix(text, mark); ok {
				why = said
			}
		}
		if why != "" && !strings.HasSuffix(why, ";") {
			return why
		}
		last = text
	}
	return cmp.Or(why, last)
}
