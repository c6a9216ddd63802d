package transcript

import (
	"strings"

	"noused/internal/protocol"
	"noused/internal/tui/cell"
)

// Plain: words in the place of symbols, nothing but text.
func (t *Transcript) renderPlain(b *block, p *piece, width int) []string {
	chosen := ""
	if b == t.focus && (p.first || p.as == asHead) {
		chosen = "selected, "
	}
	switch p.as {
	case asHead:
		return wrap(chosen+t.plainHead(b), width)
	case asHint:
		if p.text == "" {
			return nil
		}
		return wrap(strings.TrimPrefix(p.text, "… "), width)
	case asCut:
		return cutLines(p.text, width)
	case asDiff:
		return t.diffLines(p.text, p.lang, width)
	case asNote, asFailure:
		return wrap(chosen+t.plainNote(b)+trimBreak(p.text), width)
	}
	who := ""
	switch {
	case !p.first:
	case b.kind == user && b.headLen() == 0:
		who = "you: "
	case b.kind == assistant:
		who = "assistant: "
	}
	text := trimBreak(p.text)
	if p.as == asMarkdown {
		text = strings.Trim(text, "\n")
	}
	return wrap(chosen+who+text, width)
}

func (t *Transcript) plainHead(b *block) string {
	switch b.kind {
	case user:
		return "you, " + kindWord(protocol.Kind(b.label)) + ":"
	case thinking:
		return t.thoughtWords(b)
	case tool:
		return t.plainTool(b)
	case compaction:
		return "summary of what was before:"
	case runEnd:
		return b.end.words()
	}
	return "an entry of a kind that this client does not know:"
}

func (e *ending) words() string {
	s := "end of the run"
	switch {
	case e.err != nil:
		s = "the run failed: " + trimBreak(coded(e.err.Code, e.err.Message))
	case e.reason == protocol.StopError:
		s = "the run failed"
	case e.reason == protocol.StopAborted:
		s = "the run was aborted"
	}
	if stats := e.stats(); stats != "" {
		s += ", " + strings.ReplaceAll(stats, " · ", ", ")
	}
	return s
}

func (t *Transcript) plainNote(b *block) string {
	if b.kind != notice {
		return ""
	}
	return cell.Line(b.label, 20) + ": "
}
