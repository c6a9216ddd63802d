package tui

import (
	"errors"
	"path/filepath"
)

// Fleet is a fleet of daemons, as the user's file has it: [fleet].
type Fleet struct {
	URLs            []string
	Creds, NKey, CA string // absolute paths
	Subject, On     string
}

// ConfiguredFleet is the fleet of the user's file. The error says what is wrong with
// the file.
func ConfiguredFleet(getenv func(string) string) (Fleet, error) {
	c, err := loadConfig(configPath(getenv))
	return c.fleet, err
}

func severalTexts(value any) ([]string, error) {
	texts, err := several(value)
	if err == nil && len(texts) == 0 {
		err = errors.New("want a text, or a list of texts")
	}
	return texts, err
}

func wholePath(value any) (string, error) {
	path, err := word(value)
	if err == nil && !filepath.IsAbs(path) {
		err = errors.New("want an absolute path")
	}
	return path, err
}
