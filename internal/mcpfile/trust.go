package mcpfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/regular"
)

// TrustName is the file, in the user's configuration folder, that says which
// projects' files of servers the user has read and trusts.
const TrustName = string(servers)

// TrustFile is a file, in the user's configuration folder, that says which projects' files of
// one kind the user has read and trusts.
type TrustFile string

// servers is for files .mcp.json, Hooks for the hooks of projects.
const (
	servers TrustFile = "mcp-trust.json"
	Hooks   TrustFile = "hook-trust.json"
)

// TrustedText is what such a file says of a folder: the hash of the text that was shown, and when.
// Guards are the points at which something in it may keep runs from doing things.
type TrustedText struct {
	Hash   string    `json:"sha256"`
	At     time.Time `json:"at"`
	Guards []string  `json:"guards,omitzero"`
}

type trustFile struct {
	Folders map[string]TrustedText `json:"folders"`
}

// Trusted reports whether the user trusts a folder's servers as they are. The folder is an
// absolute path without links. After an error nothing is trusted.
func Trusted(configDir, folder, hash string) (bool, error) {
	t, err := servers.Read(configDir)
	return err == nil && hash != "" && t[folder].Hash == hash, err
}

// Trust remembers that the user trusts a folder's servers, whose file has that hash.
func Trust(configDir, folder, hash string, at time.Time) error {
	return servers.Add(configDir, folder, TrustedText{Hash: hash, At: at})
}

// Add remembers that the user trusts a folder's text, or nothing there any more where its hash
// is empty. Folders that are gone are forgotten.
func (name TrustFile) Add(configDir, folder string, text TrustedText) error {
	unlock, err := lock(configDir)
	if err != nil {
		return err
	}
	defer unlock()
	all, err := name.Read(configDir)
	if err != nil {
		return err
	}
	for known := range all {
		if _, err := os.Stat(known); errors.Is(err, fs.ErrNotExist) {
			delete(all, known)
		}
	}
	text.At = text.At.UTC().Truncate(time.Second)
	if all[folder] = text; text.Hash == "" {
		delete(all, folder)
	}
	out, err := json.Marshal(trustFile{all}, json.Deterministic(true), jsontext.WithIndent("  "))
	if err != nil {
		return err
	}
	if len(out) >= maxFile {
		return fmt.Errorf("%s would be longer than %d bytes: too many folders are trusted", name, maxFile)
	}
	return replace(filepath.Join(configDir, string(name)), append(out, '\n'))
}

// Read reads the file; a missing one trusts nothing.
func (name TrustFile) Read(configDir string) (map[string]TrustedText, error) {
	t := trustFile{}
	path := filepath.Join(configDir, string(name))
	text, err := regular.ReadOwn(path, maxFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	default:
		if err := json.Unmarshal(text, &t); err != nil {
			return nil, fmt.Errorf("%s: %w; remove it, and trust the folders again with nous %strust", path, err,
				map[TrustFile]string{servers: "mcp "}[name])
		}
	}
	if t.Folders == nil {
		t.Folders = map[string]TrustedText{}
	}
	return t.Folders, nil
}
