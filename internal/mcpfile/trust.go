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
// projects' files the user has read and trusts.
const TrustName = "mcp-trust.json"

// trusted is what the file says of a folder: the hash of the .mcp.json that was
// shown, and when.
type trusted struct {
	Hash string    `json:"sha256"`
	At   time.Time `json:"at"`
}

type trustFile struct {
	Folders map[string]trusted `json:"folders"`
}

// Trusted reports whether the user trusts a folder's file as it is. The folder is an
// absolute path without links. After an error nothing is trusted.
func Trusted(configDir, folder, hash string) (bool, error) {
	t, err := readTrust(configDir)
	return err == nil && hash != "" && t.Folders[folder].Hash == hash, err
}

// Trust remembers that the user trusts a folder's file of that hash. Folders that
// are gone are forgotten.
func Trust(configDir, folder, hash string, at time.Time) error {
	unlock, err := lock(configDir)
	if err != nil {
		return err
	}
	defer unlock()
	t, err := readTrust(configDir)
	if err != nil {
		return err
	}
	for known := range t.Folders {
		if _, err := os.Stat(known); errors.Is(err, fs.ErrNotExist) {
			delete(t.Folders, known)
		}
	}
	t.Folders[folder] = trusted{hash, at.UTC().Truncate(time.Second)}
	text, err := json.Marshal(t, json.Deterministic(true), jsontext.WithIndent("  "))
	if err != nil {
		return err
	}
	if len(text) >= maxFile {
		return fmt.Errorf("%s would be longer than %d bytes: too many folders are trusted", TrustName, maxFile)
	}
	return replace(filepath.Join(configDir, TrustName), append(text, '\n'))
}

// readTrust reads the file; a missing one trusts nothing.
func readTrust(configDir string) (trustFile, error) {
	t := trustFile{}
	path := filepath.Join(configDir, TrustName)
	text, err := regular.ReadOwn(path, maxFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return t, err
	default:
		if err := json.Unmarshal(text, &t); err != nil {
			return trustFile{}, fmt.Errorf("%s: %w; remove it, and trust the folders again with nous mcp trust", path, err)
		}
	}
	if t.Folders == nil {
		t.Folders = map[string]trusted{}
	}
	return t, nil
}
