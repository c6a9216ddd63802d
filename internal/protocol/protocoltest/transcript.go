package protocoltest

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/tools/txtar"
)

// Transcript is a conversation with a daemon, written by hand. Its sections
// are commands, replies (one for each command), events, and files that the
// daemon needs. Lines that start with # are comments, but for "# wait TYPE"
// among the commands (go on when an event of that type has come) and "# any
// TYPE" among the events (here come none or more of that type).
//
// Variable values are placeholders: "<run>", say, is a string that is the same
// wherever it stands in the transcript. "<ts>", "<int>", "<text>" and "<any>"
// stand for any value of that kind, and "no_active_run: <text>" for any string
// that begins so.
type Transcript struct {
	Name    string
	Steps   []Step
	Replies []string
	Events  []Step
	Files   []txtar.File
}

// Step is a line to send or to expect, or the type of events to wait for or to
// pass over.
type Step struct{ Line, Type string }

// ReadTranscripts reads the transcripts that the pattern names.
func ReadTranscripts(pattern string) ([]*Transcript, error) {
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("no transcripts %s: %w", pattern, err)
	}
	var out []*Transcript
	for _, path := range paths {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			return nil, err
		}
		t := &Transcript{Name: strings.TrimSuffix(filepath.Base(path), ".txtar")}
		for _, f := range archive.Files {
			switch f.Name {
			case "commands":
				t.Steps = steps(f.Data, "# wait ")
			case "replies":
				for _, s := range steps(f.Data, "") {
					t.Replies = append(t.Replies, s.Line)
				}
			case "events":
				t.Events = steps(f.Data, "# any ")
			default:
				t.Files = append(t.Files, f)
			}
		}
		out = append(out, t)
	}
	return out, nil
}

func steps(data []byte, directive string) (out []Step) {
	for line := range strings.Lines(string(data)) {
		line = strings.TrimRight(line, "\n")
		if typ, ok := strings.CutPrefix(line, directive); ok && directive != "" {
			out = append(out, Step{Type: typ})
		} else if line != "" && line[0] != '#' {
			out = append(out, Step{Line: line})
		}
	}
	return out
}

// Bindings are the values that placeholders stand for.
type Bindings map[string]string

// Fill replaces the placeholders of a line that are bound; one that is not is
// an error.
func (b Bindings) Fill(line string) (string, error) {
	v, err := decode(line)
	if err != nil {
		return line, nil // meant to be no JSON
	}
	missing := ""
	replace(v, func(name string) (any, bool) {
		value, ok := b[name]
		if !ok {
			missing = name
			return nil, false
		}
		line = strings.ReplaceAll(line, "<"+name+">", value)
		return nil, false
	})
	if missing != "" {
		return "", fmt.Errorf("<%s> stands for nothing yet", missing)
	}
	return line, nil
}

// Invent replaces every placeholder of a line by a value of its own.
func Invent(line string) (string, error) {
	v, err := decode(line)
	if err != nil {
		return "", err
	}
	v = replace(v, func(name string) (any, bool) {
		switch name {
		case "ts":
			return "2026-02-12T00:00:00.123456Z", true
		case "int":
			return 7, true
		case "any":
			return map[string]any{}, true
		default:
			return name + "-1", true
		}
	})
	out, err := json.Marshal(v)
	return string(out), err
}

// Match compares a line with what the transcript wants. All that want has, got
// must have; got may have more fields. Placeholders are bound on first sight.
func (b Bindings) Match(want, got string) error {
	w, err := decode(want)
	if err != nil {
		return fmt.Errorf("the transcript's line: %w", err)
	}
	g, err := decode(got)
	if err != nil {
		return err
	}
	return b.match("", w, g)
}

func (b Bindings) match(at string, want, got any) error {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return fmt.Errorf("%s: got %v, want an object", at, got)
		}
		for _, key := range slices.Sorted(maps.Keys(w)) {
			value, ok := g[key]
			if !ok {
				return fmt.Errorf("%s: is missing", at+"/"+key)
			}
			if err := b.match(at+"/"+key, w[key], value); err != nil {
				return err
			}
		}
		return nil
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return fmt.Errorf("%s: got %v, want %d elements", at, got, len(w))
		}
		for i := range w {
			if err := b.match(fmt.Sprintf("%s/%d", at, i), w[i], g[i]); err != nil {
				return err
			}
		}
		return nil
	case string:
		return b.matchString(at, w, got)
	}
	if want != got {
		return fmt.Errorf("%s: got %v, want %v", at, got, want)
	}
	return nil
}

func (b Bindings) matchString(at, want string, got any) error {
	g, isString := got.(string)
	name, isPlaceholder := placeholder(want)
	prefix, isPrefix := strings.CutSuffix(want, "<text>")
	ok := isString && g == want
	switch {
	case want == "<any>":
		ok = true
	case want == "<int>":
		n, isNumber := got.(float64)
		ok = isNumber && n == math.Trunc(n)
	case want == "<ts>":
		at, err := time.Parse(time.RFC3339Nano, g)
		ok = err == nil && at.Location() == time.UTC
	case isPrefix:
		ok = isString && strings.HasPrefix(g, prefix)
	case isPlaceholder:
		if _, bound := b[name]; !bound && isString && g != "" {
			b[name] = g
		}
		ok = isString && g != "" && b[name] == g
		want += " = " + b[name]
	}
	if !ok {
		return fmt.Errorf("%s: got %v, want %s", at, got, want)
	}
	return nil
}

func placeholder(s string) (name string, ok bool) {
	if len(s) < 3 || s[0] != '<' || s[len(s)-1] != '>' {
		return "", false
	}
	return s[1 : len(s)-1], true
}

func decode(line string) (v any, err error) {
	err = json.Unmarshal([]byte(line), &v)
	return v, err
}

// replace puts with's answers in the place of placeholders.
func replace(v any, with func(name string) (any, bool)) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			v[key] = replace(value, with)
		}
	case []any:
		for i, value := range v {
			v[i] = replace(value, with)
		}
	case string:
		if name, ok := placeholder(v); ok {
			if value, ok := with(name); ok {
				return value
			}
		}
	}
	return v
}
