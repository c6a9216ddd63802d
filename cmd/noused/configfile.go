package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"noused/internal/regular"
	"noused/internal/tomlfile"
)

// maxConfig is the most bytes that the configuration file may have.
const maxConfig = 1 << 20

// fileSections are the sections of the configuration file that have keys.
type fileSections struct {
	Model     struct{}            `toml:"model"`
	Policy    struct{}            `toml:"policy"`
	Limits    struct{}            `toml:"limits"`
	Children  struct{}            `toml:"children"`
	Notify    struct{}            `toml:"notify"`
	Sandbox   struct{}            `toml:"sandbox"`
	Retention struct{}            `toml:"retention"`
	Changes   struct{}            `toml:"changes"`
	Fleet     struct{}            `toml:"fleet"`
	Providers map[string]struct{} `toml:"providers"`
	Agent     map[string]struct{} `toml:"agent"`
}

// configFile is a configuration file's values, and the lines they stand on.
type configFile struct {
	path   string
	values map[string]any
	lines  map[string]int
}

// readFile reads the file that is named, or the default one if it is there.
func (r *resolver) readFile() {
	path, from, named := r.text("config")
	if !named {
		path = filepath.Join(r.configDir(), "config.toml")
	}
	path = r.absolute(path, from)
	r.used = path
	text, err := regular.Settings(path, maxConfig)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !named:
		return
	case err != nil && named:
		r.fail(from, "%v", err)
	case err != nil:
		r.fail(origin{name: "configuration"}, "%v", err)
	default:
		if r.file, err = parseFile(path, text, &fileSections{}, isFileKey); err != nil && r.err == nil {
			r.err = err
		}
	}
}

// parseFile reads a file of TOML. sections is a struct, or a map, of its sections
// and nothing in them; may says which keys there are.
func parseFile(path string, text []byte, sections any, may func(key []string) bool) (configFile, error) {
	f := configFile{path: path, lines: map[string]int{}}
	if err := toml.Unmarshal(text, &f.values); err != nil {
		return configFile{}, tomlfile.Problem(path, err, "")
	}
	// A decoder that knows no key says where each of them is.
	keys, err := tomlfile.Keys(text, sections)
	if err != nil {
		return configFile{}, tomlfile.Problem(path, err, "want a section")
	}
	for _, at := range keys {
		key := strings.Join(at.Path, ".")
		if !may(at.Path) {
			return configFile{}, fmt.Errorf("%s:%d: %s: there is no such key", path, at.Line, key)
		}
		f.lines[key] = at.Line
	}
	return f, nil
}

// find returns the value of a key, or of a key in a section.
func (f configFile) find(key string) (any, origin) {
	from := origin{name: f.path + ": " + key, dir: filepath.Dir(f.path)}
	if line, ok := f.lines[key]; ok {
		from.name = fmt.Sprintf("%s:%d: %s", f.path, line, key)
	}
	section, name, inSection := strings.Cut(key, ".")
	if !inSection {
		return f.values[key], from
	}
	return f.in(section, name)
}

// in returns the value of a key in a section, whose name may have dots.
func (f configFile) in(path ...string) (any, origin) {
	key := strings.Join(path, ".")
	from := origin{name: f.path + ": " + key, dir: filepath.Dir(f.path)}
	if line, ok := f.lines[key]; ok {
		from.name = fmt.Sprintf("%s:%d: %s", f.path, line, key)
	}
	var v any = f.values
	for _, name := range path {
		values, _ := v.(map[string]any)
		v = values[name]
	}
	return v, from
}
