// Package setup writes what a person chooses in the first minute: the daemon's model, a
// server of models or the agent of new sessions, into its config.toml, where everything else
// that stands there stays as it is.
//
// Concurrency: any process may write at once; a writer waits for another.
//
// It refuses a file that it cannot change without touching something else, and says which
// lines to write by hand.
package setup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/pelletier/go-toml/v2"

	"noused/internal/model/credentials"
	"noused/internal/regular"
	"noused/internal/xdg"
)

// maxConfig is the most bytes that the configuration file may have.
const maxConfig = 1 << 20

// ConfigDir is the folder of the daemon's configuration, as the daemon finds it by itself.
func ConfigDir(getenv func(string) string) string {
	if dir := getenv("NOUSED_CONFIG_DIR"); filepath.IsAbs(dir) {
		return dir
	}
	return filepath.Join(xdg.Config(getenv), "noused")
}

// SaveModel has config.toml of that folder choose a model, and makes the file where there
// is none. It follows a link. The file is replaced as a whole or not at all.
func SaveModel(configDir, provider, name string) error {
	return change(configDir, func(text []byte) ([]byte, error) { return ChooseModel(text, provider, name) })
}

// change replaces the text of that folder's config.toml, which is empty where there is none.
func change(configDir string, edit func(text []byte) ([]byte, error)) error {
	if err := os.MkdirAll(configDir, 0o700); err != nil {
		return err
	}
	path := filepath.Join(configDir, "config.toml")
	held, err := credentials.Lock(path)
	if err != nil {
		return err
	}
	defer held.Release()
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	mode := os.FileMode(0o600)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	text, err := regular.Settings(path, maxConfig)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if text, err = edit(text); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return regular.Replace(path, text, mode)
}

// The lines of a file that are understood here.
var (
	anyHeader   = pattern(`^\s*\[`)
	modelHeader = pattern(`^\s*\[\s*model\s*\]\s*(#.*)?$`)
	keyLine     = pattern(`^(\s*)([A-Za-z_]+)(\s*=\s*)("(?:[^"\\]|\\.)*"|'[^']*'|\{.*\}|[^#\s]+)(\s*(?:#.*)?)$`)
)

// pattern compiles an expression when it is first used: most commands use none.
func pattern(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

// ofProvider are the keys of [model] that belong to a provider's server, and ofName to one
// of its models: with another they would mean something else.
var (
	ofProvider = []string{"base_url", "wire", "api_key_env", "extra"}
	ofName     = []string{"context_window", "max_output_tokens", "effort"}
)

// ChooseModel returns the text of a config.toml with another model. Comments and all other
// settings stay; those of the model before become comments.
func ChooseModel(text []byte, provider, name string) ([]byte, error) {
	was, lines, err := parse(text)
	if err != nil {
		return nil, err
	}
	before, _ := was["model"].(map[string]any)
	start := slices.IndexFunc(lines, modelHeader().MatchString)
	if start < 0 {
		if len(lines) > 0 {
			lines = append(lines, "")
		}
		start = len(lines)
		lines = append(lines, "[model]")
	}
	end := len(lines)
	if i := slices.IndexFunc(lines[start+1:], anyHeader().MatchString); i >= 0 {
		end = start + 1 + i
	}
	want := map[string]string{"provider": provider, "name": name}
	var gone []string
	if before["provider"] != provider {
		gone = append(gone, ofProvider...)
	}
	if before["provider"] != provider || before["name"] != name {
		gone = append(gone, ofName...)
	}
	section := slices.Clone(lines[start:end])
	for i, line := range section[1:] {
		m := keyLine().FindStringSubmatch(line)
		if m == nil {
			continue
		}
		if value, ok := want[m[2]]; ok {
			section[i+1] = m[1] + m[2] + m[3] + strconv.Quote(value) + m[5]
			delete(want, m[2])
		} else if slices.Contains(gone, m[2]) {
			section[i+1] = m[1] + "# " + strings.TrimLeft(line, " \t")
		}
	}
	at := 1
	for _, key := range []string{"provider", "name"} {
		if value, ok := want[key]; ok {
			section = slices.Insert(section, at, key+" = "+strconv.Quote(value))
		}
		at++
	}
	lines = slices.Replace(lines, start, end, section...)
	out := []byte(strings.Join(lines, "\n") + "\n")
	if err := same(was, out, provider, name, gone); err != nil {
		return nil, err
	}
	return out, nil
}

// parse returns what a text says, and its lines.
func parse(text []byte) (values map[string]any, lines []string, err error) {
	if err := toml.Unmarshal(text, &values); err != nil {
		return nil, nil, fmt.Errorf("it is no TOML as it stands: %w", err)
	}
	if len(text) > 0 {
		lines = strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	}
	return values, lines, nil
}

// same sees that a text says what the one before said, but for the model.
func same(was map[string]any, text []byte, provider, name string, gone []string) error {
	var is map[string]any
	if err := toml.NewDecoder(bytes.NewReader(text)).Decode(&is); err == nil {
		model, _ := is["model"].(map[string]any)
		before, _ := was["model"].(map[string]any)
		stays := slices.ContainsFunc(gone, func(key string) bool { return model[key] != nil })
		if !stays && model["provider"] == provider && model["name"] == name &&
			equalBut(before, model, append(gone, "provider", "name")) &&
			equalBut(was, is, []string{"model"}) {
			return nil
		}
	}
	return fmt.Errorf("it cannot be changed without touching something else: write provider = %q and name = %q under "+
		"[model] yourself, without what is of the model before: %s",
		provider, name, strings.Join(slices.Concat(ofProvider, ofName), ", "))
}

func equalBut(a, b map[string]any, keys []string) bool {
	strip := func(m map[string]any) map[string]any {
		out := map[string]any{}
		for k, v := range m {
			if !slices.Contains(keys, k) {
				out[k] = v
			}
		}
		return out
	}
	return reflect.DeepEqual(strip(a), strip(b))
}
