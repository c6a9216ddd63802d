package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/form"
	"noused/internal/plaintext"
	"noused/internal/protocol"
)

// formText is a form as its reader is to judge it.
func formText(q protocol.Approval) string {
	var out strings.Builder
	out.WriteString(asksText(q) + "\n")
	f, err := form.Parse(q.Schema)
	if err != nil {
		fmt.Fprintf(&out, "  a form that cannot be shown here: %s\n", plaintext.RevealLine(err.Error()))
		return out.String()
	}
	for i := range f.Fields {
		out.WriteString(indent(strings.TrimSuffix(fieldText(&f.Fields[i]), "\n"), "  ") + "\n")
	}
	return out.String()
}

// asksText is what a form asks: its first line, and others indented.
func asksText(q protocol.Approval) string {
	says, _ := plaintext.Reveal(q.Reason)
	return plaintext.RevealLine(q.ToolName) + " asks: " + strings.ReplaceAll(says, "\n", "\n    ")
}

// fieldText says what a field is and takes, in a few lines.
func fieldText(f *form.Field) string {
	line := f.Name
	if f.Title != "" && f.Title != f.Name {
		line += " (" + f.Title + ")"
	}
	if takes := f.Takes(); takes != "" {
		line += ": " + takes
	}
	if f.Default != nil {
		line += "; default " + f.Typed(f.Default)
	}
	text := plaintext.RevealLine(line) + "\n"
	if f.Description != "" {
		says, _ := plaintext.Reveal(f.Description)
		text += indent(says, "  ") + "\n"
	}
	for i, o := range f.Options {
		line := fmt.Sprintf("  %d %s", i+1, o.Value)
		if o.Title != "" && o.Title != o.Value {
			line += " (" + o.Title + ")"
		}
		text += plaintext.RevealLine(line) + "\n"
	}
	return text
}

// filler has a form filled in, field by field.
type filler struct {
	form   *form.Form
	at     int
	values map[string]jsontext.Value
}

func newFiller(schema []byte) (*filler, error) {
	f, err := form.Parse(schema)
	if err != nil {
		return nil, fmt.Errorf("the form cannot be shown here: %w", err)
	}
	return &filler{form: f, values: map[string]jsontext.Value{}}, nil
}

func (f *filler) done() bool { return f.at == len(f.form.Fields) }

func (f *filler) content() jsontext.Value { return f.form.Content(f.values) }

// prompt is what to write before the next field is typed.
func (f *filler) prompt() string {
	return fieldText(&f.form.Fields[f.at]) + "> "
}

// fillField takes what was typed into the field. Nothing is its default, or leaves it out.
func (f *filler) fillField(line string) error {
	field := &f.form.Fields[f.at]
	if line == "" {
		if field.Required && field.Default == nil {
			return errors.New("this has to be filled in")
		}
		f.at++
		return nil
	}
	v, err := field.Value(line)
	if err == nil {
		f.values[field.Name] = v
		f.at++
	}
	return err
}

// fillIn has the user fill in a form, line by line.
func (a *app) fillIn(ctx context.Context, q protocol.Approval) (jsontext.Value, error) {
	f, err := newFiller(q.Schema)
	if err != nil {
		return nil, err
	}
	a.notef("%s", asksText(q))
	in := bufio.NewScanner(a.in)
	for !f.done() {
		fmt.Fprint(a.err, f.prompt())
		if !in.Scan() {
			return nil, errors.New("the form was not filled in to its end; it still waits")
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err := f.fillField(in.Text()); err != nil {
			a.complain(err.Error())
		}
	}
	return f.content(), nil
}
