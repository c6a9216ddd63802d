package approvals

import (
	"errors"
	"fmt"

	tea "charm.land/bubbletea/v2"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/form"
	"noused/internal/plaintext"
	"noused/internal/protocol"
	"noused/internal/tui/cell"
	"noused/internal/tui/pick"
)

// filling is a form that is filled in, one field after the other. What was typed
// stays while one goes back and forth.
type filling struct {
	form    *form.Form
	typed   []pick.Typed
	at      int
	problem string // with what was typed last
	on      bool   // the keys are the form's
}

// fill turns to the form. One without fields is accepted as it is.
func (p *Panel) fill() Answer {
	if p.filling == nil {
		f, err := form.Parse(p.asked.Schema)
		if err != nil {
			p.problem, p.laid = "the form cannot be filled in here: "+err.Error(), layout{}
			return Answer{}
		}
		p.filling = &filling{form: f, typed: make([]pick.Typed, len(f.Fields))}
		for i := range f.Fields {
			p.filling.typed[i] = pick.NewText(pick.MaxText)
			p.filling.typed[i].Set(f.Fields[i].Typed(f.Fields[i].Default))
		}
	}
	if len(p.filling.form.Fields) == 0 {
		return p.answer(protocol.OptionAccept, "")
	}
	p.filling.on, p.offset = true, 0
	return Answer{}
}

// write takes a key or a paste for the form.
func (f *filling) write(msg tea.Msg, key string) (done bool) {
	switch key {
	case "esc", "ctrl+c":
		f.on = false
	case "enter", "tab", "down":
		return f.next(key == "enter")
	case "shift+tab", "up":
		f.at, f.problem = max(f.at-1, 0), ""
	default:
		if f.typed[f.at].Update(msg) {
			f.problem = f.typed[f.at].Refusal()
		}
	}
	return false
}

// next goes to the next field, if what was typed fits. send: from the last one the
// form is done.
func (f *filling) next(send bool) (done bool) {
	f.problem = ""
	if _, _, err := f.value(f.at); err != nil {
		f.problem = err.Error()
		return false
	}
	if f.at < len(f.form.Fields)-1 {
		f.at++
		return false
	}
	return send && f.complete()
}

// complete tells whether every field fits, and goes to the first that does not.
func (f *filling) complete() bool {
	for i := range f.form.Fields {
		if _, _, err := f.value(i); err != nil {
			f.at, f.problem = i, err.Error()
			return false
		}
	}
	return true
}

// value is what is typed in a field. Nothing leaves it out, or takes its default.
func (f *filling) value(i int) (v jsontext.Value, given bool, err error) {
	field, typed := &f.form.Fields[i], f.typed[i].Text()
	if typed == "" {
		if field.Required && field.Default == nil {
			err = errors.New("this has to be filled in")
		}
		return nil, false, err
	}
	v, err = field.Value(typed)
	return v, true, err
}

func (f *filling) content() jsontext.Value {
	values := map[string]jsontext.Value{}
	for i := range f.form.Fields {
		if v, given, err := f.value(i); given && err == nil {
			values[f.form.Fields[i].Name] = v
		}
	}
	return f.form.Content(values)
}

// form are the lines of what a form asks.
func formLines(a protocol.Approval) []text {
	all := revealed(prose, a.Reason)
	if a.Shortened {
		return append(all, text{quiet, "too long to be shown here: its session shows it in full"})
	}
	f, err := form.Parse(a.Schema)
	if err != nil {
		return append(all, text{warning, "a form that cannot be shown here: " + err.Error()})
	}
	for i := range f.Fields {
		field := &f.Fields[i]
		line := "· " + field.Label()
		if takes := field.Takes(); takes != "" {
			line += ": " + takes
		}
		if field.Default != nil {
			line += "; default " + field.Typed(field.Default)
		}
		all = append(all, oneLine(plain, line)...)
	}
	return all
}

// fieldLines are those of the field that is filled in.
func (f *filling) fieldLines() []text {
	field := &f.form.Fields[f.at]
	all := oneLine(plain, field.Label())
	if field.Title != "" && field.Title != field.Name {
		all = append(all, oneLine(quiet, "named "+field.Name)...)
	}
	if takes := field.Takes(); takes != "" {
		all = append(all, oneLine(quiet, takes)...)
	}
	if field.Description != "" {
		all = append(all, revealed(prose, field.Description)...)
	}
	for i, o := range field.Options {
		line := fmt.Sprintf("%d %s", i+1, o.Label())
		if o.Title != "" && o.Title != o.Value {
			line += " (" + o.Value + ")"
		}
		all = append(all, oneLine(plain, line)...)
	}
	return all
}

// formParts are the lines to scroll in and those below them while a form is filled
// in.
func (p *Panel) formParts(width, height int) (body, below []string) {
	f := p.filling
	body = p.lines(f.fieldLines(), width)
	if f.problem != "" && height > 1 {
		below = append(below, p.theme.Warn.Render(cell.Truncate("  "+cell.Line(plaintext.RevealLine(f.problem), 4*width),
			width)))
	}
	label := plaintext.RevealLine(f.form.Fields[f.at].Label())
	label = cell.Truncate(cell.Line(label, width), width/3) + ": "
	hint := "  Enter: next"
	if f.at == len(f.form.Fields)-1 {
		hint = "  Enter: send"
	}
	if cell.Width(label)+cell.Width(hint) > width*2/3 {
		hint = ""
	}
	typed, column := f.typed[f.at].View(max(width-cell.Width(label)-cell.Width(hint), 1))
	p.cursor.x, p.cursor.on = cell.Width(label)+column, true
	return body, append(below, p.theme.Accent.Render(label)+typed+p.theme.Dim.Render(hint))
}
