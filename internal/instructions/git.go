package instructions

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"noused/internal/regular"
	"noused/internal/trust"
)

// gitTime is how long git may look for what is not committed.
var gitTime = time.Second

const (
	gitGrace  = 100 * time.Millisecond // for its output to close once it is killed
	maxRef    = 4 << 10                // bytes of HEAD and other files of one line
	maxIndex  = 64 << 20               // bytes of an index that git is asked about
	gitMemory = 512 << 20              // bytes that git may have of its own
	gitConfig = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tfsmonitor = false\n\thooksPath = /dev/null\n"
)

// repo is a git repository as its files have it.
type repo struct {
	root    string // the working tree
	dir     string // has HEAD and the index
	common  string // has the objects and the branches
	branch  string // "" where HEAD is at a commit
	commit  string // "" where HEAD is at a branch
	rawHead string // as HEAD has it
}

// isBranch reports whether a name is one that can be told to a model: letters,
// digits and few other characters, 200 at most. A pattern for it would take 8 MB
// at every start.
func isBranch(name string) bool {
	letters := 0
	for i, r := range name {
		if !unicode.IsLetter(r) && !unicode.IsNumber(r) && (i == 0 || !strings.ContainsRune("._/+@#=-", r)) {
			return false
		}
		letters++
	}
	return letters > 0 && letters <= 200 && !strings.Contains(name, "..")
}

// isCommit reports whether a line is the name of a commit, by SHA-1 or SHA-256.
func isCommit(line string) bool {
	_, err := hex.DecodeString(line)
	return err == nil && (len(line) == 40 || len(line) == 64) && line == strings.ToLower(line)
}

var errNoRepository = errors.New("no repository that can be read")

// openRepository reads what a repository has checked out. Nothing of git's runs.
func openRepository(root string) (repo, error) {
	r := repo{root: root, dir: filepath.Join(root, ".git")}
	info, err := os.Lstat(r.dir)
	if err != nil {
		return r, errNoRepository
	}
	if info.Mode().IsRegular() { // a linked worktree
		line, err := readLine(r.dir)
		to, ok := strings.CutPrefix(line, "gitdir: ")
		if err != nil || !ok {
			return r, errNoRepository
		}
		r.dir = from(root, to)
	}
	r.common = r.dir
	if line, err := readLine(filepath.Join(r.dir, "commondir")); err == nil {
		r.common = from(r.dir, line)
	}
	line, err := readLine(filepath.Join(r.dir, "HEAD"))
	if err != nil {
		return r, errNoRepository
	}
	r.rawHead = line
	branch, isRef := strings.CutPrefix(line, "ref: refs/heads/")
	switch {
	case isRef && isBranch(branch):
		r.branch = branch
	case isCommit(line):
		r.commit = line
	default:
		return r, errNoRepository
	}
	return r, nil
}

func from(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

// readLine is the line of a file that has one.
func readLine(path string) (string, error) {
	f, err := regular.Open(path, os.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxRef))
	return strings.TrimSpace(string(text)), err
}

// changes says whether there is anything that is not committed. git is given a
// folder of its own that borrows the repository's data and none of its
// configuration, so that nothing which a repository can name is run: no monitor,
// no filter, no hook.
func (r repo) changes(ctx context.Context, scratch string, getenv func(string) string) string {
	const unknown = "not known whether anything is uncommitted"
	program, err := trust.LookPath("git", getenv("PATH"))
	if err != nil {
		return unknown
	}
	dir, err := r.borrow(scratch)
	if dir != "" {
		defer func() { _ = os.RemoveAll(dir) }()
	}
	if err != nil {
		return unknown
	}
	ctx, cancel := context.WithTimeout(ctx, gitTime)
	defer cancel()
	said, err := r.status(ctx, program, dir, getenv)
	switch {
	case said:
		return "with uncommitted changes"
	case err != nil:
		return unknown
	}
	return "nothing uncommitted"
}

// borrow makes the folder for git.
func (r repo) borrow(scratch string) (dir string, err error) {
	index := filepath.Join(r.dir, "index")
	if info, err := os.Lstat(index); err == nil && (!info.Mode().IsRegular() || info.Size() > maxIndex) {
		return "", errNoRepository
	}
	if err := os.MkdirAll(scratch, 0o700); err != nil {
		return "", err
	}
	if dir, err = os.MkdirTemp(scratch, ""); err != nil {
		return "", err
	}
	err = errors.Join(
		os.WriteFile(filepath.Join(dir, "HEAD"), []byte(r.rawHead+"\n"), 0o600),
		os.WriteFile(filepath.Join(dir, "config"), []byte(gitConfig), 0o600),
		os.Symlink(index, filepath.Join(dir, "index")),
	)
	for _, name := range []string{"objects", "refs", "packed-refs", "info", "shallow"} {
		err = errors.Join(err, os.Symlink(filepath.Join(r.common, name), filepath.Join(dir, name)))
	}
	return dir, err
}

// status asks git for what is not committed, and reports whether it named anything.
func (r repo) status(ctx context.Context, program, dir string, getenv func(string) string) (said bool, err error) {
	cmd := exec.CommandContext(ctx, program, "--no-optional-locks", "status", "--porcelain", "--untracked-files=normal",
		"--ignore-submodules=all", "--no-renames")
	cmd.Dir, cmd.WaitDelay = r.root, gitGrace
	runtime.LockOSThread() // the kernel sends Pdeathsig when this thread ends
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.Env = []string{
		"GIT_DIR=" + dir, "GIT_WORK_TREE=" + r.root, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_NO_LAZY_FETCH=1",
		"GIT_ALLOW_PROTOCOL=", "GIT_TERMINAL_PROMPT=0", "LC_ALL=C",
	}
	for _, name := range []string{"PATH", "HOME", "XDG_CONFIG_HOME"} {
		if value := getenv(name); value != "" {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	cmd.Env = trust.Environ(cmd.Env)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return false, fmt.Errorf("git: %w", err)
	}
	// What it maps of the repository's files is not counted.
	_ = unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_DATA, &unix.Rlimit{Cur: gitMemory, Max: gitMemory}, nil)
	n, _ := io.ReadFull(out, make([]byte, 1))
	if n > 0 { // that is all that was asked
		_ = cmd.Cancel()
	}
	return n > 0, cmd.Wait()
}
