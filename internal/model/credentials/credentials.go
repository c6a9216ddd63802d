// Package credentials keeps the keys of model providers, and reads the user's file of
// environment variables: both in the folder of the configuration, for this user alone.
//
// Concurrency: any process and goroutine may read and write at once; a writer waits for
// another.
//
// It refuses files that others may read, and never says a key in an error.
package credentials

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/pelletier/go-toml/v2"

	"noused/internal/lock"
	"noused/internal/regular"
	"noused/internal/tomlfile"
)

// The files in the configuration's folder.
const (
	FileName        = "credentials.toml"
	EnvironmentName = "environment"
)

// Bounds, in bytes.
const (
	maxFile = 1 << 20
	maxKey  = 64 << 10
)

// header is what a file begins with that is written here.
const header = "# Keys of model providers, written by nous login. Nobody else may read this file.\n"

// Read returns the saved keys by provider. Where there is no file there are none. An error
// names the file, and what of it is left out.
func Read(configDir string) (map[string]string, error) {
	path := filepath.Join(configDir, FileName)
	keys, err := readAll(path)
	for _, provider := range slices.Sorted(maps.Keys(keys)) {
		if wrong := Check(keys[provider]); wrong != nil {
			err = errors.Join(err, fmt.Errorf("%s: %.64q: %w", path, provider, wrong))
			delete(keys, provider)
		}
	}
	return keys, err
}

// readAll is Read without a look at the keys.
func readAll(path string) (keys map[string]string, err error) {
	text, err := readPrivate(path)
	if err != nil || text == nil {
		return nil, err
	}
	if err := toml.Unmarshal(text, &keys); err != nil {
		return nil, tomlfile.Problem(path, err, `want PROVIDER = "KEY"`)
	}
	return keys, nil
}

// readPrivate reads a file that only this user may read; nil where there is none.
func readPrivate(path string) ([]byte, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("%s: others may read it: chmod 600 it", path)
	}
	return regular.ReadOwn(path, maxFile)
}

// Check says what is wrong with a key: it is sent in a header, and so one line of visible
// ASCII.
func Check(key string) error {
	switch {
	case key == "":
		return errors.New("the key is empty")
	case len(key) > maxKey:
		return fmt.Errorf("the key has more than %d KiB", maxKey>>10)
	}
	for _, r := range key {
		if r <= ' ' || r > unicode.MaxASCII || r == 0x7f {
			return errors.New(
				"the key has a space, or a character that is not ASCII: copy it again, without what stands around it")
		}
	}
	return nil
}

// patience is how long a writer waits for another.
const patience = 5 * time.Second

// Save keeps a provider's key. All others stay. It blocks while another process writes, for
// five seconds at most.
func Save(configDir, provider, key string) error {
	if err := Check(key); err != nil {
		return err
	}
	return change(configDir, func(keys map[string]string) { keys[provider] = key })
}

// TakeBack puts the key that was saved before a wrong one in its place again, "" for none. It
// leaves one alone that somebody has saved since.
func TakeBack(configDir, provider, wrong, before string) error {
	return change(configDir, func(keys map[string]string) {
		switch {
		case keys[provider] != wrong:
		case before == "":
			delete(keys, provider)
		default:
			keys[provider] = before
		}
	})
}

// Forget is Save for a key that is not to be kept any more.
func Forget(configDir, provider string) error {
	return change(configDir, func(keys map[string]string) { delete(keys, provider) })
}

func change(configDir string, change func(keys map[string]string)) error {
	if err := os.MkdirAll(configDir, 0o700); err != nil {
		return err
	}
	path := filepath.Join(configDir, FileName)
	held, err := Lock(path)
	if err != nil {
		return err
	}
	defer held.Release()
	keys, err := readAll(path)
	if err != nil {
		return err
	}
	if keys == nil {
		keys = map[string]string{}
	}
	removeLeftovers(path)
	change(keys)
	text, err := toml.Marshal(keys)
	if err != nil {
		return err
	}
	return regular.Replace(path, append([]byte(header), text...), 0o600)
}

// removeLeftovers removes what a writer left beside the file that was killed before it was
// done: it has keys. The caller has the lock, and nobody else writes.
func removeLeftovers(path string) {
	names, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "."+FileName+"[0-9]*"))
	for _, name := range names {
		if info, err := os.Lstat(name); err == nil && info.Mode().IsRegular() {
			_ = os.Remove(name)
		}
	}
}

// Lock keeps other writers from a file of the configuration until it is released. It
// blocks for five seconds at most.
func Lock(path string) (*lock.Lock, error) {
	for until := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		held, err := lock.Acquire(path + ".lock")
		if err == nil || !errors.As(err, new(*lock.HeldError)) || time.Now().After(until) {
			return held, err
		}
	}
}

// ParseEnvironment reads NAME=value lines, as systemd's EnvironmentFile= has them: empty
// lines and those that begin with # or ; say nothing, a value may stand in quotes. Errors
// name the lines that are left out.
func ParseEnvironment(text string) (values map[string]string, errs []error) {
	values = map[string]string{}
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		name, value, ok := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		if name = strings.TrimSpace(name); !ok || !isName(name) {
			errs = append(errs, fmt.Errorf("line %d: want NAME=value", n))
			continue
		}
		value, ok = unquote(strings.TrimSpace(value))
		if !ok || strings.ContainsRune(value, 0) {
			errs = append(errs, fmt.Errorf("line %d: the value of %.64s does not end in its quote, or has a NUL", n, name))
			continue
		}
		values[name] = value
	}
	return values, errs
}

func isName(name string) bool {
	for i, r := range name {
		if r != '_' && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}

// unquote takes a pair of quotes away; in double ones \ stands before a quote or a \.
func unquote(value string) (string, bool) {
	if value == "" || value[0] != '"' && value[0] != '\'' {
		return value, true
	}
	if len(value) < 2 || value[len(value)-1] != value[0] {
		return "", false
	}
	inner := value[1 : len(value)-1]
	if value[0] == '"' {
		inner = strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(inner)
	}
	return inner, true
}

// Environment is the user's file of variables, taken into this process's environment. What
// stood there before comes first, and stays.
type Environment struct {
	mu   sync.Mutex
	path string
	set  map[string]string
}

// File is the path of the file that a variable of this process is from, "" where it is from
// none.
func (e *Environment) File(name string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if was, ours := e.set[name]; ours && os.Getenv(name) == was {
		return e.path
	}
	return ""
}

// Load reads the file of that folder, anew where it was read before. Errors name the file,
// and what of it is left out; nothing changes where it cannot be read.
func (e *Environment) Load(configDir string) (errs []error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	path := filepath.Join(configDir, EnvironmentName)
	e.path = path
	text, err := regular.Settings(path, maxFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return []error{err}
	}
	values, bad := ParseEnvironment(string(text))
	for _, err := range bad {
		errs = append(errs, fmt.Errorf("%s: %w", path, err))
	}
	for name, was := range e.set {
		if _, stays := values[name]; !stays && os.Getenv(name) == was {
			_ = os.Unsetenv(name)
			delete(e.set, name)
		}
	}
	for name, value := range values {
		if _, ours := e.set[name]; !ours && os.Getenv(name) != "" {
			continue
		}
		if err := os.Setenv(name, value); err != nil {
			errs = append(errs, fmt.Errorf("%s: %.64s: %w", path, name, err))
			continue
		}
		if e.set == nil {
			e.set = map[string]string{}
		}
		e.set[name] = value
	}
	return errs
}

// Without is an environment as it was before Load.
func (e *Environment) Without(environ []string) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []string
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if was, ours := e.set[name]; !ours || was != value {
			out = append(out, kv)
		}
	}
	return out
}
