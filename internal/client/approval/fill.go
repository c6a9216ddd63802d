package approval

import (
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/form"
)

// Filler has a form filled in, field by field.
type Filler struct {
	form   *form.Form
	at     int
	values map[string]jsontext.Value
}

func NewFiller(schema []byte) (*Filler, error) {
	f, err := form.Parse(schema)
	if err != nil {
		return nil, fmt.Errorf("the form cannot be shown here: %w", err)
	}
	return &Filler{form: f, values: map[string]jsontext.Value{}}, nil
}

func (f *Filler) Done() bool { return f.at == len(f.form.Fields) }

func (f *Filler) Content() jsontext.Value { return f.form.Content(f.values) }

// Prompt is what to write before the next field is typed.
func (f *Filler) Prompt() string {
	return fieldText(&f.form.Fields[f.at]) + "> "
}

// Fill takes what was typed into the field. Nothing is its default, or leaves it out.
func (f *Filler) Fill(line string) error {
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
