package worktree

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-json-experiment/json"

	"noused/internal/regular"
)

// maxRecordFile bounds what is kept of a worktree, in bytes.
const maxRecordFile = 64 << 10

// record is what is known of a worktree that Add has made. It lies where no session can
// write: who could change it would say which branch a landing changes.
type record struct {
	Dir    string  `json:"dir"`
	From   string  `json:"from,omitzero"` // the branch that was checked out where it was made
	Landed *landed `json:"landed,omitzero"`
}

// landed is the last landing.
type landed struct {
	Commit string `json:"commit"` // the worktree's
	As     string `json:"as"`     // what came of it
	Into   string `json:"into"`   // the branch
}

// stateFolder is where things are kept of the worktree in a folder, which need not be there.
func stateFolder(home, dir string) string {
	sum := sha256.Sum256([]byte(resolved(dir)))
	return filepath.Join(stateHome(home), hex.EncodeToString(sum[:16]))
}

// stateHome is beside the folder that worktrees are made in.
func stateHome(home string) string { return filepath.Join(filepath.Dir(home), "worktree-state") }

func readRecord(home, dir string) (r record, err error) {
	path := filepath.Join(stateFolder(home, dir), "record.json")
	text, err := regular.ReadOwn(path, maxRecordFile)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		return r, fmt.Errorf("what is known of the worktree: %s: %w", path, err)
	}
	return r, nil
}

func (r record) save(home string) error {
	folder := stateFolder(home, r.Dir)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return regular.Replace(filepath.Join(folder, "record.json"), append(text, '\n'), 0o600)
}

// forgetRecord removes what is known of a worktree that is no more.
func forgetRecord(home, dir string) error { return os.RemoveAll(stateFolder(home, dir)) }

// currentBranch is the branch that is checked out, "" if none is.
func (p place) currentBranch(ctx context.Context) (string, error) {
	ref, err := p.git(ctx, "symbolic-ref", "--quiet", "HEAD")
	if refused(err) {
		return "", nil
	}
	name, _ := strings.CutPrefix(strings.TrimSpace(ref), "refs/heads/")
	return name, err
}
