package policy

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"noused/internal/tomlfile"
)

// Source is what one file says.
type Source struct {
	File string
	// Allow, Ask and Deny are patterns of tool names. What none of the allows, asks
	// and rules names is denied where Allow is not nil, even if it is empty.
	Allow, Ask, Deny []string
	Rules            []Rule
	lines            map[string]int // of the lists, by name
}

type list struct {
	name     string
	verdict  Verdict
	patterns []string
}

func (s Source) lists() []list {
	return []list{{"deny", Deny, s.Deny}, {"ask", Ask, s.Ask}, {"allow", Allow, s.Allow}}
}

// ReadConfig reads the section [policy] of a configuration file: the lists
// allow, ask and deny, and the tables [[policy.rule]]. Other keys are for others
// to read. The error is an *Error. New checks the rules.
func ReadConfig(file string, text []byte) (Source, error) { return read(file, text, false) }

// ReadRules reads a rules file, which has tables [[policy.rule]] and nothing
// else. The error is an *Error. New checks the rules.
func ReadRules(file string, text []byte) (Source, error) { return read(file, text, true) }

func read(file string, text []byte, only bool) (Source, error) {
	src := Source{File: file}
	var doc map[string]any
	if err := toml.Unmarshal(text, &doc); err != nil {
		return Source{}, syntaxError(file, err)
	}
	at := linesOf(text)
	src.lines = at.keys
	for _, key := range slices.Sorted(maps.Keys(doc)) {
		if only && key != "policy" {
			return Source{}, src.wrong(at.keys["."+key], key, "there is no such key; rules.toml has [[policy.rule]] only")
		}
	}
	policy, ok := doc["policy"].(map[string]any)
	if !ok && doc["policy"] != nil {
		return Source{}, src.wrong(at.keys[".policy"], "policy", "want a section")
	}
	for _, key := range slices.Sorted(maps.Keys(policy)) {
		if err := src.readKey(key, policy[key], at, only); err != nil {
			return Source{}, err
		}
	}
	return src, nil
}

func (s *Source) readKey(key string, v any, at places, only bool) (err error) {
	into, isList := map[string]*[]string{"allow": &s.Allow, "ask": &s.Ask, "deny": &s.Deny}[key]
	switch {
	case key == "rule":
		return s.takeRules(v, at)
	case only:
		return s.wrong(at.keys[key], "policy."+key, "there is no such key; rules.toml has [[policy.rule]] only")
	case isList:
		if text, ok := v.(string); ok {
			v = []any{text}
		}
		if *into, err = texts(v); err != nil {
			return s.wrong(at.keys[key], "policy."+key, err.Error())
		}
	}
	return nil
}

func (s *Source) wrong(line int, field, problem string) error {
	return &Error{Place{File: s.File, Line: line}, field, problem}
}

func syntaxError(file string, err error) error {
	line, field := tomlfile.Place(err)
	return &Error{Place{File: file, Line: line}, field, tomlfile.Message(err)}
}

func (s *Source) takeRules(v any, at places) error {
	tables, ok := v.([]any)
	if !ok {
		return s.wrong(at.keys["rule"], "policy.rule", "want tables [[policy.rule]]")
	}
	for i, table := range tables {
		fields, ok := table.(map[string]any)
		r := Rule{Place: Place{s.File, at.keys["rule"], i + 1}}
		if i < len(at.rules) {
			r.Place.Line, r.lines = at.rules[i][""], at.rules[i]
		}
		if !ok {
			return r.wrong("", "got %v, want a table", table)
		}
		if err := r.readFields(fields); err != nil {
			return err
		}
		s.Rules = append(s.Rules, r)
	}
	return nil
}

// readFields reads a rule's table. What is not there stays empty, and is for Check.
func (r *Rule) readFields(fields map[string]any) error {
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		v, err := fields[field], error(nil)
		switch field {
		case "tool":
			r.Tool, err = text(v)
		case "decision":
			var d string
			d, err = text(v)
			r.Decision = Verdict(d)
		case "workdir":
			r.Workdir, err = text(v)
		case "path":
			r.Path, err = texts(v)
		case "match":
			r.Match, err = texts(v)
		case "not_match":
			r.NotMatch, err = texts(v)
		case "command":
			r.Command, err = words(v)
		default:
			err = errors.New("there is no such key; a rule has tool, decision, command, path, workdir, match and not_match")
		}
		if err != nil {
			return r.wrong(field, "%v", err)
		}
	}
	return nil
}

func text(v any) (string, error) {
	text, ok := v.(string)
	switch {
	case !ok:
		return "", fmt.Errorf("got %v, want a string", v)
	case text == "":
		return "", errors.New("is empty")
	}
	return text, nil
}

func texts(v any) ([]string, error) {
	elements, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("got %v, want an array of strings", v)
	}
	texts := make([]string, 0, len(elements))
	for i, element := range elements {
		text, ok := element.(string)
		if !ok {
			return nil, fmt.Errorf("got %v at %d, want a string", element, i)
		}
		texts = append(texts, text)
	}
	return texts, nil
}

func words(v any) (Words, error) {
	elements, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("got %v, want an array of words", v)
	}
	ws := make(Words, 0, len(elements))
	for i, element := range elements {
		if text, ok := element.(string); ok {
			ws = append(ws, Word{text})
			continue
		}
		alternatives, err := texts(element)
		if err != nil {
			return nil, fmt.Errorf("got %v at %d, want a string or an array of strings", element, i)
		}
		ws = append(ws, alternatives)
	}
	return ws, nil
}

// places are the lines of a file's keys, counted from 1: of the section policy's
// by their name, of the others with a dot before it, and of each rule's table,
// which itself is "".
type places struct {
	keys  map[string]int
	rules []map[string]int
}

// linesOf finds the lines in a text that is known to be TOML.
func linesOf(text []byte) places {
	at := places{keys: map[string]int{}}
	var p unstable.Parser
	p.Reset(text)
	var section []string
	var rule map[string]int
	for p.NextExpression() {
		e := p.Expression()
		key, line := keyOf(&p, e)
		if e.Kind != unstable.KeyValue {
			section, rule = key, nil
			if e.Kind == unstable.ArrayTable && len(key) == 2 && key[0] == "policy" && key[1] == "rule" {
				rule = map[string]int{"": line}
				at.rules = append(at.rules, rule)
			}
			key = nil
		}
		at.note(append(section[:len(section):len(section)], key...), line, rule)
	}
	return at
}

func (at *places) note(path []string, line int, rule map[string]int) {
	name := ""
	switch {
	case len(path) == 0:
		return
	case path[0] != "policy":
		name = "." + path[0]
	case len(path) == 1:
		name = ".policy"
	default:
		name = path[1]
	}
	if _, known := at.keys[name]; !known {
		at.keys[name] = line
	}
	if rule != nil && len(path) > 2 {
		rule[path[2]] = line
	}
}

func keyOf(p *unstable.Parser, e *unstable.Node) (key []string, line int) {
	if e.Kind != unstable.KeyValue && e.Kind != unstable.Table && e.Kind != unstable.ArrayTable {
		return nil, 0
	}
	for it := e.Key(); it.Next(); {
		n := it.Node()
		key = append(key, string(n.Data))
		if line == 0 {
			line = p.Shape(n.Raw).Start.Line
		}
	}
	return key, line
}
