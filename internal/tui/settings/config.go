// Package settings is what the user has written for nous in its configuration, and what
// the screen remembers of what was changed in it.
//
// It reads and writes the two files, and draws nothing. A value belongs to the caller that has
// loaded it.
package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"noused/internal/alert"
	"noused/internal/regular"
	"noused/internal/tomlfile"
	"noused/internal/tui/keymap"
	"noused/internal/xdg"
)

// maxConfig bounds the file, in bytes.
const maxConfig = 64 << 10

// Config is what the user has written in $XDG_CONFIG_HOME/nous/config.toml, or
// what holds where nothing is written.
type Config struct {
	Keys   map[string][]string // of actions, by name
	Theme  string              // one of themes; "" where nothing is written
	Mouse  *bool               // nil where nothing is written
	start  bool                // nous starts a daemon where none runs
	Notify Notify
	hosts  map[string]Host // by name
	fleet  Fleet
}

// Notify says when and how the terminal tells that the user is needed.
type Notify struct {
	Bell, OSC bool          // by BEL, by OSC 9
	After     time.Duration // of runs that took longer
	On        []string      // of events
}

// Themes are the names of the looks; auto is dark or light, as the terminal is.
var Themes = []string{"auto", "dark", "light", "none"}

func defaults() Config {
	n := Notify{Bell: true, OSC: true, After: 10 * time.Second, On: slices.Clone(alert.Kinds)}
	return Config{start: true, Notify: n}
}

// Path is where the file is.
func Path(getenv func(string) string) string {
	return filepath.Join(xdg.Config(getenv), "nous", "config.toml")
}

// Autostart tells whether the user's file lets nous start a daemon, as it does where
// nothing is written. The error says what is wrong with the file.
func Autostart(getenv func(string) string) (bool, error) {
	c, err := Load(Path(getenv))
	return c.start, err
}

// Load reads the file, which must be a regular one of this user's, no link,
// and not everybody's to write. Without one, and with one that is wrong anywhere, the
// config is the default; the error names the file, the line and the key.
func Load(path string) (Config, error) {
	text, err := regular.ReadOwn(path, maxConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return defaults(), nil
	}
	if err != nil {
		return defaults(), err
	}
	c, err := parseConfig(path, text)
	if err != nil {
		return defaults(), err
	}
	return c, nil
}

func parseConfig(path string, text []byte) (Config, error) {
	c := defaults()
	var values map[string]any
	if err := toml.Unmarshal(text, &values); err != nil {
		return c, tomlfile.Problem(path, err, "")
	}
	// A decoder that knows the sections alone says where each key is.
	var sections struct {
		Keys   struct{} `toml:"keys"`
		Notify struct{} `toml:"notify"`

		Hosts map[string]struct{} `toml:"hosts"`
		Fleet struct{}            `toml:"fleet"`
	}
	keys, err := tomlfile.Keys(text, &sections)
	if err != nil {
		return c, tomlfile.Problem(path, err, "")
	}
	for _, at := range keys {
		if err := c.set(at.Path, valueOf(values, at.Path)); err != nil {
			return c, fmt.Errorf("%s:%d: %s: %w", path, at.Line, strings.Join(at.Path, "."), err)
		}
	}
	return c, nil
}

// valueOf finds a key's value among those of the file.
func valueOf(values map[string]any, key []string) any {
	for _, name := range key[:len(key)-1] {
		values, _ = values[name].(map[string]any)
	}
	return values[key[len(key)-1]]
}

// set takes one key of the file in.
func (c *Config) set(key []string, value any) error {
	if k := keyOf(key); k != nil {
		return k.set(c, key, value)
	}
	return errNoKey
}

var errNoKey = errors.New("there is no such key")

func (c *Config) setKey(name string, value any) error {
	if name == "next-question" { // as it was called
		name = "next-approval"
	}
	if keymap.ActionNamed(name) == nil {
		return errors.New("there is no such action; docs/tui.md lists them")
	}
	keys, err := several(value)
	if err != nil {
		return err
	}
	for i, key := range keys {
		if keys[i], err = keymap.KeyNamed(key); err != nil {
			return err
		}
		for other, taken := range c.Keys {
			if slices.Contains(taken, keys[i]) {
				return fmt.Errorf("%s is a key of %s already", keys[i], other)
			}
		}
	}
	if c.Keys == nil {
		c.Keys = map[string][]string{}
	}
	c.Keys[name] = keys
	return nil
}

func boolean(value any) (bool, error) {
	on, ok := value.(bool)
	if !ok {
		return false, errors.New("want true or false")
	}
	return on, nil
}

func duration(value any) (time.Duration, error) {
	text, _ := value.(string)
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, errors.New(`want a duration such as "10s"`)
	}
	return d, nil
}

func oneOf(value any, names []string) (string, error) {
	text, ok := value.(string)
	if !ok || !slices.Contains(names, text) {
		return "", fmt.Errorf("want one of %s", strings.Join(names, ", "))
	}
	return text, nil
}

// someOf are some of the names, in a list or one by itself.
func someOf(value any, names []string) ([]string, error) {
	texts, err := several(value)
	for _, text := range texts {
		if _, err := oneOf(text, names); err != nil {
			return nil, err
		}
	}
	return texts, err
}

// several takes a text for a list of one.
func several(value any) ([]string, error) {
	if text, ok := value.(string); ok {
		return []string{text}, nil
	}
	list, ok := value.([]any)
	texts := make([]string, len(list))
	for i, v := range list {
		text, isText := v.(string)
		texts[i], ok = text, ok && isText
	}
	if !ok {
		return nil, errors.New("want a text, or a list of texts")
	}
	return texts, nil
}
