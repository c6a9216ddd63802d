package worktree

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// maxOutput is how much of what git says is kept, in bytes.
const maxOutput = 64 << 10

// elsewhere are the variables that would make git work on another repository than
// that of its folder; git sets them for hooks.
var elsewhere = []string{
	"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY",
	"GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE", "GIT_SHALLOW_FILE", "GIT_GRAFT_FILE", "GIT_IMPLICIT_WORK_TREE",
}

// ErrNoGit says that there is no git program.
var ErrNoGit = errors.New("git is not installed, or not in $PATH")

// gitError is git's own refusal.
type gitError struct{ command, said string }

func (e *gitError) Error() string { return "git " + e.command + ": " + e.said }

// git runs git in a folder and returns what it printed, cut at maxOutput bytes.
// It blocks until git has ended. A refusal is a *gitError.
func git(ctx context.Context, dir string, args ...string) (string, error) {
	program, err := exec.LookPath("git")
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoGit, err)
	}
	fixed := []string{"--no-pager", "-C", dir, "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"}
	cmd := exec.CommandContext(ctx, program, append(fixed, args...)...)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(elsewhere, name)
	}), "LC_ALL=C", "GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0")
	var out, said bounded
	cmd.Stdout, cmd.Stderr = &out, &said
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return "", &gitError{args[0], said.reason(exit)}
	case err != nil:
		return "", fmt.Errorf("run git: %w", err)
	}
	return out.String(), nil
}

// bounded keeps the beginning of what is written to it.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	b.Buffer.Write(p[:min(len(p), maxOutput-b.Len())])
	return len(p), nil
}

// reason is the sentence with which git gave up. A line of it that ends in a
// semicolon goes on in the next, which says what to do.
func (b *bounded) reason(exit *exec.ExitError) string {
	last := exit.String()
	var why string
	for text := range strings.Lines(b.String()) {
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
