package instructions

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"noused/internal/format"

	"go.yaml.in/yaml/v3"
)

// split parts a SKILL.md into its front matter, between two lines of three
// hyphens, and what follows.
func split(text string) (front, body string, err error) {
	text = strings.ReplaceAll(strings.TrimPrefix(text, "\ufeff"), "\r\n", "\n")
	rest, ok := strings.CutPrefix(text, "---\n")
	if !ok {
		return "", "", errors.New("has no front matter: it does not begin with a line ---")
	}
	for at := 0; at < len(rest); {
		line, _, _ := strings.Cut(rest[at:], "\n")
		if strings.TrimRight(line, " \t") == "---" {
			return rest[:at], strings.TrimPrefix(rest[at+len(line):], "\n"), nil
		}
		at += len(line) + 1
	}
	return "", "", fmt.Errorf("has no end of its front matter, a line ---, in its first %d bytes", maxSkill)
}

// parse returns the two fields of a front matter that count. Those that it does
// not know may be anything but an alias, of which a few can stand for very much.
func parse(front string) (name, description string, err error) {
	fields, err := fieldsOf(front)
	if err != nil {
		return "", "", err
	}
	if name, err = fields.text("name"); err != nil {
		return "", "", err
	}
	description, err = fields.text("description")
	return name, description, err
}

// fields are what a front matter says, by name.
type fields map[string]*yaml.Node

func fieldsOf(front string) (fields, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(front), &doc); err != nil {
		return nil, fmt.Errorf("has a broken front matter: %s", oneLine(err.Error()))
	}
	if len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		return nil, errors.New("has a front matter without fields")
	}
	if aliased(&doc) {
		return nil, errors.New("has an alias in its front matter")
	}
	said, all := doc.Content[0].Content, fields{}
	for i := 0; i+1 < len(said); i += 2 {
		all[said[i].Value] = said[i+1]
	}
	return all, nil
}

// text is a field on one line, "" where there is none.
func (f fields) text(name string) (string, error) {
	n := f[name]
	switch {
	case n == nil:
		return "", nil
	case n.Kind != yaml.ScalarNode:
		return "", fmt.Errorf("has a %s that is no text", name)
	}
	return oneLine(n.Value), nil
}

// list is a field that is a list, or a text with commas. given is false where there is none.
func (f fields) list(name string) (all []string, given bool, err error) {
	n := f[name]
	switch {
	case n == nil || n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		return nil, n != nil, nil
	case n.Kind == yaml.ScalarNode:
		for _, one := range strings.Split(n.Value, ",") {
			if one = strings.TrimSpace(one); one != "" {
				all = append(all, one)
			}
		}
		return all, true, nil
	case n.Kind != yaml.SequenceNode:
		return nil, true, fmt.Errorf("has %s that are no list", name)
	}
	for _, one := range n.Content {
		if one.Kind != yaml.ScalarNode {
			return nil, true, fmt.Errorf("has %s of which one is no text", name)
		}
		all = append(all, strings.TrimSpace(one.Value))
	}
	return all, true, nil
}

func aliased(n *yaml.Node) bool {
	if n.Kind == yaml.AliasNode {
		return true
	}
	for _, child := range n.Content {
		if aliased(child) {
			return true
		}
	}
	return false
}

var skillNames = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// valid tells what is wrong with a skill in that folder.
func valid(name, folder, description string) error {
	switch {
	case name == "":
		return errors.New("has no name")
	case len(name) > 64 || !skillNames.MatchString(name):
		return fmt.Errorf(
			"has the name %.80q: a name has at most 64 small letters and digits, with single hyphens between them", name)
	case name != folder:
		return fmt.Errorf("has the name %s, but its folder has another", name)
	case description == "":
		return errors.New("has no description")
	}
	return nil
}

// oneLine is a text on one line, as long as a description may be.
func oneLine(text string) string { return format.Clip(format.Line(text), maxDescription) }
