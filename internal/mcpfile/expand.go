package mcpfile

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

var (
	reference = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`\$\{([^{}]*)\}|\{env\.([^{}=\x00]+)\}`)
	})
	variable = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*)(:-(.*))?$`) })
)

// Expand is the entry with the values of variables in the place of ${VAR} and
// {env.VAR}; ${VAR:-TEXT} is TEXT where VAR is not set. What is put in is not looked
// at again. A variable that is not set is an [*Error] that names it.
func (s Server) Expand(lookup func(string) (string, bool)) (Server, error) {
	e := expander{server: s, lookup: lookup}
	s.Command = e.text("command", s.Command)
	s.URL = e.text("url", s.URL)
	s.Cwd = e.text("cwd", s.Cwd)
	s.Args = e.list("args", s.Args)
	s.SandboxWrite = e.list("sandbox_write", s.SandboxWrite)
	s.Env = e.values("env", s.Env)
	s.Headers = e.values("headers", s.Headers)
	if e.err != nil {
		return s, e.err
	}
	return s, nil
}

// expander keeps what is wrong first.
type expander struct {
	server Server
	lookup func(string) (string, bool)
	err    *Error
}

func (e *expander) list(field string, values []string) []string {
	values = slices.Clone(values)
	for i, v := range values {
		values[i] = e.text(fmt.Sprint(field, "/", i), v)
	}
	return values
}

func (e *expander) values(field string, values map[string]string) map[string]string {
	values = maps.Clone(values)
	for _, key := range slices.Sorted(maps.Keys(values)) {
		values[key] = e.text(field+string(jsontext.Pointer("").AppendToken(key)), values[key])
	}
	return values
}

func (e *expander) text(field, text string) string {
	return reference().ReplaceAllStringFunc(text, func(found string) string {
		value, err := e.value(reference().FindStringSubmatch(found))
		if err != nil && e.err == nil {
			at := e.server.Place
			at.Pointer += "/" + field
			e.err = &Error{Place: at, Server: e.server.Name, Reason: err.Error()}
		}
		return value
	})
}

func (e *expander) value(found []string) (string, error) {
	name, or := found[2], []string(nil)
	if name == "" {
		if or = variable().FindStringSubmatch(found[1]); or == nil {
			return "", fmt.Errorf("%.80s is no variable of the environment: write ${NAME}, and set NAME for the daemon",
				found[0])
		}
		name = or[1]
	}
	if value, ok := e.lookup(name); ok {
		return value, nil
	}
	if or != nil && or[2] != "" {
		return or[3], nil
	}
	return "", fmt.Errorf("the variable %s is not set in the daemon's environment", name)
}
