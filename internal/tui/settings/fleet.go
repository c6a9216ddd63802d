package settings

import (
	"errors"
	"path/filepath"

	"noused/internal/regular"
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
	path := Path(getenv)
	c, err := Load(path)
	for _, file := range []*string{&c.fleet.Creds, &c.fleet.NKey, &c.fleet.CA} {
		if *file != "" {
			*file = regular.Named(*file, getenv("HOME"), filepath.Dir(path))
		}
	}
	return c.fleet, err
}

func severalTexts(value any) ([]string, error) {
	texts, err := several(value)
	if err == nil && len(texts) == 0 {
		err = errors.New("want a text, or a list of texts")
	}
	return texts, err
}
