package modeltest

import (
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
)

// Told returns what a stream says, in a line: text as it is, <thinking>,
// [id name arguments] of a call, the reason to stop with what usage makes of the
// counts, or the error. It blocks until the stream ends.
func Told(stream iter.Seq2[model.Delta, error], usage func(model.Usage) string) string {
	var b strings.Builder
	for d, err := range stream {
		switch {
		case err != nil:
			fmt.Fprintf(&b, " error: %v", err)
		case d.ToolCall != nil:
			fmt.Fprintf(&b, "[%s %s %s]", d.ToolCall.ID, d.ToolCall.Name, d.ToolCall.Arguments)
		case d.Thinking != "":
			fmt.Fprintf(&b, "<%s>", d.Thinking)
		case d.Stop != "":
			fmt.Fprintf(&b, " %s %s", d.Stop, usage(d.Usage))
		default:
			b.WriteString(d.Text)
		}
	}
	return b.String()
}

// Events are server-sent events with that data.
func Events(data ...string) string {
	var b strings.Builder
	for _, d := range data {
		b.WriteString("data: " + d + "\n\n")
	}
	return b.String()
}

// Tidy is JSON with one value a line, so that a difference can be read.
func Tidy(t *testing.T, text string) string {
	t.Helper()
	v := jsontext.Value(text)
	if err := v.Indent(jsontext.WithIndent("  ")); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return string(v)
}
