package instructions

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"noused/internal/regular"
	"noused/internal/trust"
)

// Environment describes where a conversation begins: the day, the system, the
// folder, and what git says of it. It may differ with every call, so ask once and
// keep the answer. It waits for git for a second at most, or until ctx ends.
func (in *Instructions) Environment(ctx context.Context) string {
	return fmt.Sprintf(`# Environment

As it was when this conversation began, or was summarised last:

- date: %s
- system: %s
- shell of bash: %s
- working directory: %s; relative paths start there
- git: %s`,
		time.Now().Format("2006-01-02, Monday, MST"), in.system(), in.shell(), oneLine(in.Workdir), in.git(ctx))
}

// system is the kernel and the distribution.
func (in *Instructions) system() string {
	name := runtime.GOOS
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		name = unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
	}
	if pretty, _ := in.release.get("", "/etc/os-release", distribution); pretty != "" {
		name += ", " + pretty
	}
	return name + ", " + runtime.GOARCH
}

// distribution is what an os-release file calls it.
func distribution(_, path string) string {
	text, _ := regular.Read(path, 64<<10)
	for line := range strings.Lines(string(text)) {
		if pretty, ok := strings.CutPrefix(line, "PRETTY_NAME="); ok {
			return oneLine(strings.Trim(strings.TrimSpace(pretty), `"'`))
		}
	}
	return ""
}

// shell is what bash runs commands with. While bash is where it was found, no
// other folder is looked into.
func (in *Instructions) shell() string {
	if at := in.bash.Load(); at != nil {
		if _, err := exec.LookPath(*at); err == nil {
			return "bash"
		}
	}
	for _, name := range []string{"bash", "sh"} {
		if path, err := exec.LookPath(name); err == nil {
			if name == "bash" {
				in.bash.Store(&path)
			}
			return name
		}
	}
	return "none"
}

// git is the branch, and whether there is anything that is not committed.
func (in *Instructions) git(ctx context.Context) string {
	trust.Writable(in.Workdir)
	root := repository(in.Workdir)[0]
	r, err := openRepository(root)
	if err != nil {
		return "not a repository"
	}
	if root != in.Workdir {
		return r.head() + ", " + r.changes(ctx, in.Scratch, in.Getenv) + "; the repository's root is " + oneLine(root)
	}
	return r.head() + ", " + r.changes(ctx, in.Scratch, in.Getenv)
}

// head is what is checked out, in words.
func (r repo) head() string {
	if r.branch != "" {
		return "branch " + r.branch
	}
	return "no branch, at " + cmp.Or(r.commit[:min(len(r.commit), 12)], "no commit")
}
