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
		whole, done, err := req.Loaded(0)
		if err != nil {
			yield(model.Delta{}, err)
			return
		}
		end := model.Delta{Stop: model.StopEnd}
		end.Usage.InputTokens = int64(read(whole))
		said := respond(whole)
		whole = model.Request{}
		done()
		for d := range said {
			if err := m.pause(ctx); err != nil {
				yield(model.Delta{}, err)
				return
			}
			end.Usage.OutputTokens += int64(countWords(d.Text))
			if d.ToolCall != nil {
				end.Stop = model.StopToolCalls
			}
			if !yield(d, nil) {
				return
			}
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

// read is how many words of a request are read.
func read(req model.Request) (n int) {
	for _, msg := range asked(req) {
		n += countWords(msg.Text)
	}
	return n
}

// countWords counts them without a list of them: a text may have millions.
func countWords(text string) (n int) {
	for range strings.FieldsSeq(text) {
		n++
	}
	return n
}

// asked are the messages that are answered: all for a summary, else the results of tools
// at the end, or the user's there.
func asked(req model.Request) []model.Message {
	if req.Summary {
		return req.Messages
	}
	last := len(req.Messages)
	for last > 0 && req.Messages[last-1].Role == model.Tool {
		last--
	}
	if results := req.Messages[last:]; len(results) > 0 {
		return results
	}
	first := last
	for first > 0 && req.Messages[first-1].Role == model.User && !req.Messages[first-1].Summary {
		first--
		if req.Messages[first].Opens {
			break // what stands before it was said to a turn that came to nothing
		}
	}
	return req.Messages[first:last]
}

// respond returns what is said to a request, one delta after the other. It keeps the
// texts of the messages alone.
func respond(req model.Request) iter.Seq[model.Delta] {
	messages := asked(req)
	switch {
	case req.Summary:
		return words(summary(messages))
	case len(messages) > 0 && messages[0].Role == model.Tool:
		var parts []string
		for i, r := range messages {
			if i > 0 {
				parts = append(parts, "\n")
			}
			parts = append(parts, r.ToolName+": ", r.Text)
		}
		return words(parts)
	}
	var texts []string
	for _, msg := range messages {
		texts = append(texts, msg.Text)
	}
	return func(yield func(model.Delta) bool) {
		var w speaker
		said, calls := false, false
		for line := range lines(texts) {
			if isCall(line) {
				calls = true
				continue
			}
			if thought, ok := strings.CutPrefix(line, "?"); ok && thought != "" {
				if !w.flush(yield) || !yield(model.Delta{Thinking: thought}) {
					return
				}
				continue
			}
			if said && !w.say("\n", yield) || !w.say(line, yield) {
				return
			}
			said = true
		}
		if !w.flush(yield) || !calls {
			return
		}
		for line := range lines(texts) {
			if call, ok := parseCall(line); ok && !yield(model.Delta{ToolCall: call}) {
				return
			}
		}
	}
}

func lines(texts []string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, text := range texts {
			for line := range strings.SplitSeq(text, "\n") {
				if !yield(line) {
					return
				}
			}
		}
	}
}

// isCall reports that parseCall finds a call.
func isCall(line string) bool {
	rest, ok := strings.CutPrefix(line, "!")
	return ok && rest != "" && !strings.ContainsRune(" \t\r", rune(rest[0]))
}

// parseCall reads a line "!tool.op {json args}".
func parseCall(line string) (*model.ToolCall, bool) {
	if !isCall(line) {
		return nil, false
	}
	name, args, _ := strings.Cut(strings.TrimRight(line[1:], " \t\r"), " ")
	args = strings.TrimSpace(args)
	if args == "" {
		args = "{}"
	}
	return &model.ToolCall{Name: name, Arguments: []byte(args)}, true
}

// words is one delta for each word of texts that follow each other.
func words(texts []string) iter.Seq[model.Delta] {
	return func(yield func(model.Delta) bool) {
		var w speaker
		for _, text := range texts {
			if !w.say(text, yield) {
				return
			}
		}
		w.flush(yield)
	}
}

// speaker makes one delta of each word; the space after a word stays with it, a line's
// break with what comes before.
type speaker struct{ held string }

// mostSpace is how long a word may be, with its space, that blank lines are put to, in
// bytes: each is a copy.
const mostSpace = 256

// say takes a text in, whose last word is held until it is known what follows.
func (w *speaker) say(text string, yield func(model.Delta) bool) bool {
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
		if w.held != "" && len(w.held) < mostSpace && strings.TrimSpace(piece) == "" {
			w.held += piece
			continue
		}
		if !w.flush(yield) {
			return false
		}
		w.held = piece
	}
	return true
}

// flush says what is held.
func (w *speaker) flush(yield func(model.Delta) bool) bool {
	piece := w.held
	w.held = ""
	return piece == "" || yield(model.Delta{Text: piece})
}

// summary is the beginnings of messages, and all of older summaries, whole.
func summary(messages []model.Message) (parts []string) {
	for _, msg := range messages {
		text := strings.TrimSpace(msg.Text)
		if !msg.Summary {
			text, _, _ = strings.Cut(text, "\n")
		}
		if text == "" {
			continue
		}
		if len(parts) > 0 {
			parts = append(parts, "\n")
		}
		parts = append(parts, text)
	}
	return parts
}
