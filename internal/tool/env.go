package tool

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"noused/internal/proc"
	"noused/internal/trust"
)

// WorkdirVariable tells a program that starts in the empty folder which folder the
// session has.
const WorkdirVariable = "NOUSED_SESSION_WORKDIR"

// inherited are the variables a child gets from the daemon (tools.md §1); all
// that begin with LC_ or XDG_ come with them.
var inherited = []string{"PATH", "HOME", "LANG", "TZ", "TMPDIR", "USER", "SHELL"}

// reserved reports whether a variable is between the daemon and its service
// manager, or its children's mark: no descriptor can set it or hand it on.
func reserved(name string) bool {
	return name == "NOTIFY_SOCKET" || proc.Reserved(name) ||
		strings.HasPrefix(name, "LISTEN_") || strings.HasPrefix(name, "WATCHDOG_")
}

// secret reports whether a variable looks like a key or a password, which only
// a descriptor that names it can hand on.
func secret(name string) bool {
	for _, word := range []string{"KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIALS"} {
		if strings.HasSuffix(strings.ToUpper(name), "_"+word) {
			return true
		}
	}
	return false
}

// Environ is what of an environment a program gets that is nobody's descriptor's.
func Environ(environ []string) []string { return childEnv(environ, nil) }

// EnvironWith is Environ with more variables, whose values may name the daemon's own as
// {env.NAME}.
func EnvironWith(environ []string, extra map[string]string) []string {
	put := make(map[string]string, len(extra))
	for name, value := range extra {
		put[name] = expand(value, os.Environ())
	}
	return childEnv(environ, put)
}

// childEnv returns the allowed part of environ, overlaid with extra, sorted.
func childEnv(environ []string, extra map[string]string) []string {
	vars := make(map[string]string)
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if slices.Contains(inherited, name) ||
			(strings.HasPrefix(name, "LC_") || strings.HasPrefix(name, "XDG_")) && !secret(name) {
			vars[name] = value
		}
	}
	for name, value := range extra {
		if !reserved(name) {
			vars[name] = value
		}
	}
	env := make([]string, 0, len(vars))
	for name, value := range vars {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	return env
}

var reference = regexp.MustCompile(`\{env\.([^{}=\x00]+)\}`)

// expand replaces each {env.X} by the daemon's own X; one that is unset or
// reserved is empty. What is put in is not looked at again.
func expand(value string, environ []string) string {
	return reference.ReplaceAllStringFunc(value, func(ref string) string {
		name := ref[len("{env.") : len(ref)-1]
		if reserved(name) {
			return ""
		}
		return lookup(environ, name)
	})
}

// variable returns one of the daemon's environment that tools may be handed, and
// whether it is set.
func variable(environ []string, name string) (string, bool) {
	if reserved(name) || !slices.ContainsFunc(environ, func(kv string) bool { return strings.HasPrefix(kv, name+"=") }) {
		return "", false
	}
	return lookup(environ, name), true
}

// lookup returns the last value of a variable, as exec does.
func lookup(environ []string, name string) string {
	for _, kv := range slices.Backward(environ) {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value
		}
	}
	return ""
}

// LookPath finds a program as the module's own PATH says.
func (d *Descriptor) LookPath(name string) (string, error) {
	path := lookup(d.environ, "PATH")
	if !d.guards() || strings.ContainsRune(name, '/') {
		return lookPath(name, path)
	}
	found, err := trust.LookPath(name, path)
	if errors.Is(err, exec.ErrNotFound) {
		return lookPath(name, "")
	}
	return found, err
}

// guards reports that the module runs outside the sandbox, with the daemon's PATH: what
// tools in the sandbox can have put there is none of its programs. A PATH of its
// descriptor's the user has written so.
func (d *Descriptor) guards() bool {
	_, own := d.Env["PATH"]
	return d.Sandbox != SandboxWorkdir && !own
}

// lookPath is exec.LookPath with a PATH that is not this process's. Relative
// entries of PATH are passed over, as the child's directory is not ours.
func lookPath(name, path string) (string, error) {
	if strings.ContainsRune(name, '/') {
		if err := executable(name); err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		return name, nil
	}
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}
		if file := filepath.Join(dir, name); executable(file) == nil {
			return file, nil
		}
	}
	return "", fmt.Errorf("%s: not found in PATH", name)
}

func executable(file string) error {
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return errors.New("no such file")
	case err != nil:
		return errors.Unwrap(err)
	case info.IsDir():
		return errors.New("is a directory")
	case info.Mode()&0o111 == 0:
		return errors.New("is not executable")
	}
	return nil
}
