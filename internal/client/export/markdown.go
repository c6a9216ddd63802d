package export

import (
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"strings"
	"time"
)

// Markdown quotes all texts, so that a heading or an open fence in one of
// them ends with it. Texts that are dangerous as Markdown become code.
func Markdown(w io.Writer, doc *Document) error {
	p, err := newPage(doc)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "# %s\n\n- Session: %s\n- Usage: %s\n", escaped(p.Title), code(p.SessionID), p.Usage)
	for _, a := range p.Assets {
		fmt.Fprintf(&out, "- Asset: %s (%s)\n", code(a.Path), escaped(a.About))
	}
	for _, t := range p.Turns {
		if t.Number > 0 {
			fmt.Fprintf(&out, "\n## Turn %d: %s\n", t.Number, escaped(t.Kind))
		}
		for _, part := range t.Parts {
			markdownPart(&out, part)
		}
	}
	_, err = w.Write(out.Bytes())
	return err
}

func markdownPart(out *bytes.Buffer, p part) {
	head := escaped(p.Who)
	if p.Tool != "" {
		head += " " + code(p.Tool)
	}
	notes := p.Notes
	if !p.At.IsZero() {
		notes = append([]string{p.At.Format(time.DateTime + " MST")}, notes...)
	}
	for _, note := range notes {
		head += " · " + escaped(note)
	}
	fmt.Fprintf(out, "\n### %s\n", head)
	if p.Thought != "" {
		fmt.Fprintf(out, "\nThinking:\n\n%s\n", quotedText(p.Thought))
	}
	switch {
	case p.Text == "":
	case p.Role == "tool":
		fmt.Fprintf(out, "\n%s\n", fenced("", p.Text))
	default:
		fmt.Fprintf(out, "\n%s\n", quotedText(p.Text))
	}
	for _, image := range p.Images {
		fmt.Fprintf(out, "\n- Image: %s (%s)\n", code(image.Path), escaped(image.About))
	}
	for _, c := range p.Calls {
		fmt.Fprintf(out, "\nCalls %s:\n\n%s\n", code(c.Name), fenced("json", c.Arguments))
	}
	if p.Outputs != "" {
		fmt.Fprintf(out, "\nOutputs:\n\n%s\n", fenced("json", p.Outputs))
	}
}

// quotedText is a text in a quote: as it is, which is Markdown, or as code where
// that would be dangerous to look at.
func quotedText(text string) string {
	if loaded(text) {
		text = fenced("", text)
	}
	return indentLines(text, "> ")
}

func indentLines(text, by string) string {
	var out strings.Builder
	for line := range strings.Lines(strings.TrimRight(text, "\n")) {
		out.WriteString(strings.TrimRight(by+line, " \n") + "\n")
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// fenced is text as a code block, whatever backticks it has.
func fenced(language, text string) string {
	fence := strings.Repeat("`", max(3, ticks(text)+1))
	return fence + language + "\n" + strings.TrimRight(text, "\n") + "\n" + fence
}

// code is text as a code span on one line.
func code(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	fence := strings.Repeat("`", ticks(text)+1)
	if strings.HasPrefix(text, "`") || strings.HasSuffix(text, "`") {
		text = " " + text + " "
	}
	return fence + text + fence
}

// ticks is the length of the longest run of backticks.
func ticks(text string) int {
	longest, run := 0, 0
	for _, c := range []byte(text) {
		if run++; c != '`' {
			run = 0
		}
		longest = max(longest, run)
	}
	return longest
}

var escapeMarkdown = strings.NewReplacer(
	`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "<", `\<`, ">", `\>`, "&", `\&`, "#", `\#`, "|",
	`\|`, "~", `\~`, "\n", " ",
)

// escaped is text on one line that means nothing in Markdown.
func escaped(text string) string { return escapeMarkdown.Replace(text) }
