package mcpfile

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/pelletier/go-toml/v2"

	"noused/internal/regular"
)

// maxImport is the most bytes of another program's file; some keep all they know in
// one.
const maxImport = 16 << 20

// Taken says what happens to a server of another program's file. Notes say what is
// different here; Err says why it is not taken.
type Taken struct {
	From   string // its name there
	Server Server
	Notes  []string
	Err    error
}

func (t *Taken) note(format string, args ...any) {
	t.Notes = append(t.Notes, fmt.Sprintf(format, args...))
}

// foreign is an entry as any of those programs writes it.
type foreign map[string]any

// Import reads the servers of another program's file, by name: of Claude, Cursor,
// VS Code and all others that have mcpServers or servers, of opencode, and of Codex, whose file is
// TOML. Nothing is written. Comments and trailing commas are read over.
//
// Claude's file has servers of projects, too: those of folder's are taken, or of the nearest
// above it, in place of others with their names. elsewhere are the other projects that have
// servers.
func Import(path, folder string) (all []Taken, elsewhere []string, err error) {
	text, err := regular.Read(path, maxImport)
	if err != nil {
		return nil, nil, err
	}
	doc, err := document(path, text)
	if err != nil {
		return nil, nil, err
	}
	own, entries, elsewhere := project(doc, folder)
	for from, entry := range entries {
		t := serverFrom(from, entry)
		t.note("is of the project %s there; here all folders see it", own)
		all = append(all, t)
	}
	for _, section := range sections(doc) {
		for from, entry := range section {
			if _, named := entries[from]; !named {
				all = append(all, serverFrom(from, entry))
			}
		}
	}
	if len(all) > maxServers {
		return nil, nil, fmt.Errorf("%s: more than %d servers", path, maxServers)
	}
	slices.SortFunc(all, func(a, b Taken) int { return strings.Compare(a.From, b.From) })
	return all, elsewhere, nil
}

// project are the servers of the project that folder is in, if it has any, and the other
// projects that have some.
func project(doc foreign, folder string) (own string, servers map[string]any, elsewhere []string) {
	projects, _ := doc["projects"].(map[string]any)
	for dir, v := range projects {
		fields, _ := v.(map[string]any)
		entries, _ := fields["mcpServers"].(map[string]any)
		if len(entries) == 0 {
			continue
		}
		elsewhere = append(elsewhere, dir)
		real, err := filepath.EvalSymlinks(dir)
		if err != nil {
			real = filepath.Clean(dir)
		}
		in := real == folder || strings.HasPrefix(folder, strings.TrimSuffix(real, "/")+"/")
		if in && filepath.IsAbs(dir) && len(real) > len(own) {
			own, servers = dir, entries
		}
	}
	slices.Sort(elsewhere)
	return own, servers, slices.DeleteFunc(elsewhere, func(dir string) bool { return dir == own })
}

func document(path string, text []byte) (doc foreign, err error) {
	if strings.EqualFold(filepath.Ext(path), ".toml") {
		if err := toml.Unmarshal(text, &doc); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return doc, nil
	}
	root, err := parse(path, text)
	if err != nil {
		return nil, err
	}
	root.Standardize()
	if err := json.Unmarshal(root.Pack(), &doc, jsontext.AllowDuplicateNames(true)); err != nil {
		return nil, fmt.Errorf("%s: want an object: %w", path, err)
	}
	return doc, nil
}

// sections are the objects of a file that have a server for each name.
func sections(doc foreign) (found []map[string]any) {
	for _, key := range append(slices.Clone(keys), "mcp_servers") {
		if entries, ok := doc[key].(map[string]any); ok {
			found = append(found, entries)
		}
	}
	if mcp, ok := doc["mcp"].(map[string]any); ok { // VS Code's settings, or opencode
		if entries, ok := mcp["servers"].(map[string]any); ok {
			return append(found, entries)
		}
		found = append(found, mcp)
	}
	return found
}

// serverFrom makes one of our entries of one of theirs.
func serverFrom(from string, entry any) Taken {
	t := Taken{From: from}
	fields, ok := entry.(map[string]any)
	if !ok {
		t.Err = fmt.Errorf("want an object")
		return t
	}
	t.Server.Name = from
	if CheckName(from) != nil {
		t.Server.Name = Rename(from)
	}
	if t.Server.Name == builtIn {
		t.Server.Name += "-mcp"
	}
	if t.Server.Name != from {
		t.note("is called %s here", t.Server.Name)
	}
	t.fill(fields)
	if t.Server.URL != "" && t.Server.Cwd != "" {
		t.Server.Cwd = ""
		t.note("without cwd, which does nothing here")
	}
	if field, reason := t.Server.check(); t.Err == nil && reason != "" {
		t.Err = fmt.Errorf("%s", strings.TrimPrefix(field+": "+reason, ": "))
	}
	return t
}

// fill reads the fields in an order that does not change.
func (t *Taken) fill(fields foreign) {
	var names []string
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		read := readers[name]
		switch {
		case fields[name] == nil:
		case read == nil:
			t.note("without %s, which does nothing here", name)
		case !read(t, fields[name]) && t.Err == nil:
			t.Err = fmt.Errorf("%s: cannot be understood", name)
		}
	}
}

// readers read the fields that somebody has; false: the value is of no known kind.
var readers = map[string]func(*Taken, any) bool{
	"type": (*Taken).kind, "transport": (*Taken).kind,
	"command":     (*Taken).command,
	"args":        func(t *Taken, v any) bool { return t.list(&t.Server.Args, v, true) },
	"cwd":         (*Taken).cwd,
	"env":         func(t *Taken, v any) bool { return t.pairs(&t.Server.Env, v, "%s") },
	"environment": func(t *Taken, v any) bool { return t.pairs(&t.Server.Env, v, "%s") },
	"env_vars":    (*Taken).handedOn,
	"url":         func(t *Taken, v any) bool { return t.text(&t.Server.URL, v) },
	"serverUrl":   func(t *Taken, v any) bool { return t.text(&t.Server.URL, v) },
	"headers":     func(t *Taken, v any) bool { return t.pairs(&t.Server.Headers, v, "%s") },

	"http_headers":     func(t *Taken, v any) bool { return t.pairs(&t.Server.Headers, v, "%s") },
	"env_http_headers": func(t *Taken, v any) bool { return t.pairs(&t.Server.Headers, v, "${%s}") },
	"bearer_token_env_var": func(t *Taken, v any) bool {
		return t.pairs(&t.Server.Headers, map[string]any{"Authorization": v}, "Bearer ${%s}")
	},

	"timeout": (*Taken).milliseconds, "tool_timeout_sec": (*Taken).seconds,
	"enabled":       func(t *Taken, v any) bool { on, ok := v.(bool); t.Server.Disabled = !on; return ok },
	"disabled":      func(t *Taken, v any) bool { off, ok := v.(bool); t.Server.Disabled = off; return ok },
	"enabled_tools": func(t *Taken, v any) bool { return t.list(&t.Server.Tools, v, false) },
	"tools":         func(t *Taken, v any) bool { return t.list(&t.Server.Tools, v, false) },
}

func (t *Taken) kind(v any) bool {
	kind, ok := v.(string)
	switch kind {
	case "local":
		kind = "stdio"
	case "remote":
		kind = "http"
	}
	t.Server.Type = kind
	return ok
}

// cwd is a folder, which for others is meant from the workspace's.
func (t *Taken) cwd(v any) bool {
	var dir string
	if !t.text(&dir, v) {
		return false
	}
	switch dir = filepath.Clean(dir); {
	case dir == ".":
		t.inSession("cwd")
	case filepath.IsAbs(dir) || strings.HasPrefix(dir, "${"):
		t.Server.Cwd = dir
	default:
		return false
	}
	return true
}

// inSession has a server start in the session's folder, as something of it needs.
func (t *Taken) inSession(why string) {
	if t.Server.Cwd == "" {
		t.Server.Cwd = CwdSession
		t.note("starts in the session's folder, for %s: what lies there can decide which code it runs", why)
	}
}

// command is a program, or for some a program and its arguments.
func (t *Taken) command(v any) bool {
	if _, ok := v.([]any); !ok {
		return t.text(&t.Server.Command, v)
	}
	var words []string
	if !t.list(&words, v, true) || len(words) == 0 {
		return false
	}
	t.Server.Command, t.Server.Args = words[0], append(words[1:], t.Server.Args...)
	return true
}

func (t *Taken) text(to *string, v any) bool {
	text, ok := v.(string)
	*to = t.variables(text)
	return ok
}

func (t *Taken) list(to *[]string, v any, expand bool) bool {
	values, ok := v.([]any)
	for _, v := range values {
		text, isText := v.(string)
		if expand {
			text = t.variables(text)
		}
		ok = ok && isText
		*to = append(*to, text)
	}
	return ok
}

// pairs adds the values of an object, each put into a form.
func (t *Taken) pairs(to *map[string]string, v any, form string) bool {
	values, ok := v.(map[string]any)
	if *to == nil {
		*to = map[string]string{}
	}
	for key, v := range values {
		text := fmt.Sprint(v) // some write numbers
		switch v.(type) {
		case string, bool, float64, int64:
		default:
			ok = false
		}
		(*to)[key] = t.variables(fmt.Sprintf(form, text))
	}
	return ok
}

// handedOn are variables that a server gets from the environment.
func (t *Taken) handedOn(v any) bool {
	var names []string
	if !t.list(&names, v, false) {
		return false
	}
	values := map[string]any{}
	for _, name := range names {
		values[name] = name
	}
	return t.pairs(&t.Server.Env, values, "${%s}")
}

func (t *Taken) milliseconds(v any) bool {
	n, ok := v.(float64)
	if !ok {
		return t.text(&t.Server.Timeout, v) // ours
	}
	return t.wait(n / 1000)
}

func (t *Taken) seconds(v any) bool {
	switch n := v.(type) {
	case float64:
		return t.wait(n)
	case int64:
		return t.wait(float64(n))
	}
	return false
}

func (t *Taken) wait(seconds float64) bool {
	if seconds <= 0 || seconds > 1e6 {
		return false
	}
	t.Server.Timeout = time.Duration(seconds * float64(time.Second)).String()
	return true
}

// foreignReference is a variable as VS Code, Cursor or opencode writes it.
var foreignReference = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(
		`\$\{(env|input|config|command):([^{}]*)\}|\{(env|file):([^{}]*)\}|\$\{(workspaceFolder|workspaceFolderBasename|userHome|pathSeparator|/)\}`)
})

// variables writes them as ours.
func (t *Taken) variables(text string) string {
	return foreignReference().ReplaceAllStringFunc(text, func(found string) string {
		m := foreignReference().FindStringSubmatch(found)
		kind, what := m[1]+m[3]+m[5], m[2]+m[4]
		switch kind {
		case "env":
			return "${" + what + "}"
		case "input":
			set := strings.ToUpper(strings.Trim(notInVariable().ReplaceAllString(what, "_"), "_"))
			t.note("asks for %s there: set %s in the daemon's environment", what, set)
			return "${" + set + "}"
		case "workspaceFolder":
			t.inSession(found)
			return "."
		case "userHome":
			return "${HOME}"
		case "pathSeparator", "/":
			return "/"
		}
		if t.Err == nil {
			t.Err = fmt.Errorf("%s: there is nothing like it here", found)
		}
		return found
	})
}

var notInVariable = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[^A-Za-z0-9]+`) })
