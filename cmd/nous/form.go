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

// isForm tells whether a question is a form to be filled in.
func isForm(q protocol.Approval) bool { return q.Kind == protocol.ApprovalQuestion }

// formText is a form as its reader is to judge it.
func formText(q protocol.Approval) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s asks: %s\n", q.ToolName, q.Reason)
	f, err := form.Parse(q.Schema)
	if err != nil {
		fmt.Fprintf(&out, "  a form that cannot be shown here: %v\n", err)
		return out.String()
	}
	for i := range f.Fields {
		out.WriteString(indent(strings.TrimSuffix(fieldText(&f.Fields[i]), "\n"), "  ") + "\n")
	}
	return out.String()
}

// fieldText says what a field is and takes, in a few lines.
func fieldText(f *form.Field) string {
	var out strings.Builder
	out.WriteString(f.Name)
	if f.Title != "" && f.Title != f.Name {
		fmt.Fprintf(&out, " (%s)", f.Title)
	}
	if takes := f.Takes(); takes != "" {
		fmt.Fprintf(&out, ": %s", takes)
	}
	if f.Default != nil {
		fmt.Fprintf(&out, "; default %s", f.Typed(f.Default))
	}
	out.WriteString("\n")
	if f.Description != "" {
		fmt.Fprintf(&out, "  %s\n", f.Description)
	}
	for i, o := range f.Options {
		fmt.Fprintf(&out, "  %d %s", i+1, o.Value)
		if o.Title != "" && o.Title != o.Value {
			fmt.Fprintf(&out, " (%s)", o.Title)
		}
		out.WriteString("\n")
	}
	return out.String()
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
	return plaintext.Clean(fieldText(&f.form.Fields[f.at]) + "> ")
}

// take takes what was typed into the field. Nothing is its default, or leaves it out.
func (f *filler) take(line string) error {
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
	a.notef("%s asks: %s", q.ToolName, q.Reason)
	in := bufio.NewScanner(a.in)
	for !f.done() {
		fmt.Fprint(a.err, f.prompt())
		if !in.Scan() {
			return nil, errors.New("the form was not filled in to its end; it still waits")
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err := f.take(in.Text()); err != nil {
			a.complain(err.Error())
		}
	}
	return f.content(), nil
}
