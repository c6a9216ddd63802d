package settings

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/go-json-experiment/json"

	"noused/internal/regular"
)

// Remembered is what the user has changed in the screen, for the next one. What
// the config says comes first.
type Remembered struct {
	Theme string `json:"theme,omitzero"`
	Mouse *bool  `json:"mouse,omitzero"`
}

const maxRemembered = 4 << 10 // bytes of the file

// LoadRemembered reads the file. Without one nothing is remembered.
func LoadRemembered(path string) (r Remembered, err error) {
	f, err := regular.Open(path, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxRemembered))
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		return Remembered{}, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// Save replaces the file.
func (r Remembered) Save(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return regular.Replace(path, text, 0o600)
}
