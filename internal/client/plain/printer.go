package plain

import (
	"fmt"
	"io"
	"strings"
	"sync/atomic"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/plaintext"
	"noused/internal/protocol"
)

// Printer writes what a command has to say: its results to standard output, and notes and
// complaints to standard error. What could drive a terminal is taken out of texts.
type Printer struct {
	Out, Err           io.Writer
	OutStyle, ErrStyle Style
	JSON               bool // results are JSON, one object on a line
	Raw                bool // texts are printed as they are

	open, noteOpen atomic.Bool // a line of Out, and of Err, is not ended
	complained     atomic.Pointer[string]
}

// Fit is a text as it goes to standard output.
func (p *Printer) Fit(text string) string {
	if p.Raw {
		return text
	}
	return plaintext.Text(text)
}

// Print prints a text that may be a part of a line.
func (p *Printer) Print(text string) {
	p.endNote()
	io.WriteString(p.Out, p.Fit(text))
	p.open.Store(!strings.HasSuffix(text, "\n"))
}

// EndLine ends a line that Print or PrintNote left open.
func (p *Printer) EndLine() {
	p.endNote()
	if p.open.Load() {
		p.Println("")
	}
}

// PrintNote writes a quiet text to standard error that may be a part of a line.
func (p *Printer) PrintNote(text string) {
	if !p.noteOpen.Load() {
		p.FreshLine()
	}
	fmt.Fprint(p.Err, p.ErrStyle.Paint(Dim, plaintext.Clean(text)))
	p.noteOpen.Store(true)
}

func (p *Printer) endNote() {
	if p.noteOpen.Load() {
		fmt.Fprintln(p.Err)
		p.noteOpen.Store(false)
	}
}

// FreshLine keeps what goes to standard error off the end of a line where both meet on a terminal.
func (p *Printer) FreshLine() {
	p.endNote()
	if p.open.Load() && p.OutStyle.Terminal && p.ErrStyle.Terminal {
		fmt.Fprintln(p.Err)
		p.open.Store(false)
	}
}

// Println prints a line, or several.
func (p *Printer) Println(text string) { p.Spans(Span{Text: text}) }

// Spans prints one line of pieces that have a look each.
func (p *Printer) Spans(spans ...Span) {
	var line strings.Builder
	for _, s := range spans {
		line.WriteString(p.OutStyle.Paint(s.Look, p.Fit(s.Text)))
	}
	p.endNote()
	io.WriteString(p.Out, line.String()+"\n")
	p.open.Store(false)
}

// Lines prints lines of such pieces.
func (p *Printer) Lines(lines [][]Span) {
	for _, line := range lines {
		p.Spans(line...)
	}
}

// JSONLine prints a JSON text of equal value on a line of its own.
func (p *Printer) JSONLine(value []byte) {
	p.Out.Write(plaintext.JSON(value))
	io.WriteString(p.Out, "\n")
}

// Encoded prints a value as JSON.
func (p *Printer) Encoded(v any) error {
	line, err := json.Marshal(v, jsontext.AllowInvalidUTF8(true), json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	p.JSONLine(line)
	return nil
}

// Table prints rows under a header.
func (p *Printer) Table(header []string, rows [][]string) {
	for i, line := range Table(append([][]string{header}, rows...)) {
		look := ""
		if i == 0 {
			look = Dim
		}
		p.Spans(Span{line, look})
	}
}

// Pairs prints aligned key: value lines; a value may go over several.
func (p *Printer) Pairs(pairs [][2]string) {
	keys := make([][]string, len(pairs))
	for i, pair := range pairs {
		keys[i] = []string{pair[0] + ":", "|"}
	}
	for i, line := range Table(keys) {
		p.Println(strings.TrimRight(strings.TrimSuffix(line, "|")+pairs[i][1], " "))
	}
}

// Notef writes a quiet line to standard error.
func (p *Printer) Notef(format string, args ...any) {
	p.FreshLine()
	fmt.Fprintln(p.Err, p.ErrStyle.Paint(Dim, plaintext.Clean(fmt.Sprintf(format, args...))))
}

// Complain writes the one line that an error gets.
func (p *Printer) Complain(message string) {
	p.complained.Store(&message)
	p.FreshLine()
	fmt.Fprintf(p.Err, "nous: %s\n", p.ErrStyle.Paint(Red, plaintext.Clean(message)))
}

// Complained is what Complain has written last, "" for nothing.
func (p *Printer) Complained() string {
	if last := p.complained.Load(); last != nil {
		return *last
	}
	return ""
}

// HandBack lists the texts that a run did not take.
func (p *Printer) HandBack(texts []protocol.DiscardedInput) {
	for _, d := range texts {
		p.Notef("not delivered (%s): %s", KindWord(d.Kind), d.Text)
	}
}

// Output is standard output with a memory: the first failed write is kept and ends the program
// with an error.
type Output struct {
	W   io.Writer
	err error
}

func (o *Output) Write(p []byte) (int, error) {
	if o.err != nil {
		return 0, o.err
	}
	n, err := o.W.Write(p)
	o.err = err
	return n, err
}

// Failure is that of the first write that failed, nil where none has.
func (o *Output) Failure() error {
	if o.err != nil {
		return fmt.Errorf("write output: %w", o.err)
	}
	return nil
}
