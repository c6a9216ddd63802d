// Package offline is the embedded default model: a small deterministic one
// that needs no key and no network (offline-model.md). It says back what it is
// told and calls the tools it is told to.
//
// Concurrency: a Model has no state; any number of streams may run at once.
//
// It refuses to be clever: the same messages always give the same deltas.
package offline

import (
	"context"
	"iter"
	"strings"
	"time"
	"unicode"

	"noused/internal/model"
)

// Name is what get_state calls this model.
const Name = "script"

// Model is the offline model. Delay is the time before each delta.
type Model struct {
	Delay time.Duration
}

// Stream answers the last user messages, or the tool results after them. It
// ends with ctx's cause when that ends first.
func (m Model) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		read, deltas := respond(req)
		written := 0
		for _, d := range deltas {
			if err := m.pause(ctx); err != nil {
				yield(model.Delta{}, err)
				return
			}
			written += len(strings.Fields(d.Text))
			if !yield(d, nil) {
				return
			}
		}
		end := model.Delta{Stop: model.StopEnd, Usage: model.Usage{InputTokens: int64(read), OutputTokens: int64(written)}}
		if n := len(deltas); n > 0 && deltas[n-1].ToolCall != nil {
			end.Stop = model.StopToolCalls
		}
		yield(end, nil)
	}
}

func (m Model) pause(ctx context.Context) error {
	if m.Delay > 0 {
		timer := time.NewTimer(m.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// respond returns how many words were read and what is said to them.
func respond(req model.Request) (read int, deltas []model.Delta) {
	if req.Summary {
		return summarise(req.Messages)
	}
	last := len(req.Messages)
	for last > 0 && req.Messages[last-1].Role == model.Tool {
		last--
	}
	if results := req.Messages[last:]; len(results) > 0 {
		var lines []string
		for _, r := range results {
			lines = append(lines, r.ToolName+": "+r.Text)
			read += len(strings.Fields(r.Text))
		}
		return read, words(nil, strings.Join(lines, "\n"))
	}
	first := last
	for first > 0 && req.Messages[first-1].Role == model.User && !req.Messages[first-1].Summary {
		first--
		if req.Messages[first].Opens {
			break // what stands before it was said to a turn that came to nothing
		}
	}
	var calls []model.Delta
	said := false
	for _, msg := range req.Messages[first:last] {
		read += len(strings.Fields(msg.Text))
		for line := range strings.SplitSeq(msg.Text, "\n") {
			if call, ok := parseCall(line); ok {
				calls = append(calls, model.Delta{ToolCall: call})
				continue
			}
			if thought, ok := strings.CutPrefix(line, "?"); ok && thought != "" {
				deltas = append(deltas, model.Delta{Thinking: thought})
				continue
			}
			if said {
				deltas = words(deltas, "\n")
			}
			deltas, said = words(deltas, line), true
		}
	}
	return read, append(deltas, calls...)
}

// parseCall reads a line "!tool.op {json args}".
func parseCall(line string) (*model.ToolCall, bool) {
	rest, ok := strings.CutPrefix(line, "!")
	if !ok {
		return nil, false
	}
	name, args, _ := strings.Cut(strings.TrimRight(rest, " \t\r"), " ")
	if name == "" {
		return nil, false
	}
	args = strings.TrimSpace(args)
	if args == "" {
		args = "{}"
	}
	return &model.ToolCall{Name: name, Arguments: []byte(args)}, true
}

// words appends a text as one delta for each word; the space after a word
// stays with it, a line's break with what comes before.
func words(deltas []model.Delta, text string) []model.Delta {
	for len(text) > 0 {
		end, spaced := len(text), false
		for i, r := range text {
			if unicode.IsSpace(r) {
				spaced = true
			} else if spaced {
				end = i
				break
			}
		}
		piece := text[:end]
		text = text[end:]
		if n := len(deltas); n > 0 && deltas[n-1].Text != "" && strings.TrimSpace(piece) == "" {
			deltas[n-1].Text += piece
			continue
		}
		deltas = append(deltas, model.Delta{Text: piece})
	}
	return deltas
}

func summarise(messages []model.Message) (read int, deltas []model.Delta) {
	var lines []string
	for _, msg := range messages {
		read += len(strings.Fields(msg.Text))
		text := strings.TrimSpace(msg.Text)
		if !msg.Summary { // of an older summary nothing may be lost
			text, _, _ = strings.Cut(text, "\n")
		}
		if text != "" {
			lines = append(lines, text)
		}
	}
	return read, words(nil, strings.Join(lines, "\n"))
}
