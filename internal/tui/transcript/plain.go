package transcript

import (
	"strings"

	"noused/internal/client/conversation"
	"noused/internal/protocol"
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
	case b.Kind == conversation.User && b.headLen() == 0:
		who = "you: "
	case b.Kind == conversation.Assistant:
		who = "assistant: "
	}
	text := trimBreak(p.text)
	if p.as == asMarkdown {
		text = strings.Trim(text, "\n")
	}
	return wrap(chosen+who+text, width)
}

func (t *Transcript) plainHead(b *block) string {
	switch b.Kind {
	case conversation.User:
		return "you, " + kindWord(b.TurnKind) + ":"
	case conversation.Report:
		return "child session in the background: " + strings.Join(reportWords(b), ", ") + ":"
	case conversation.Thinking:
		return t.thoughtWords(b)
	case conversation.Tool:
		return t.plainTool(b)
	case conversation.Summary:
		return conversation.Summarised(b.Before, b.After) + ":"
	case conversation.RunEnd:
		return endWords(b.End)
	}
	return "an entry of a kind that this client does not know:"
}

func endWords(e *conversation.Ending) string {
	s := "end of the run"
	switch {
	case e.Err != nil:
		s = "the run failed: " + trimBreak(protocol.Coded(e.Err.Code, e.Err.Message))
	case e.Reason == protocol.StopError:
		s = "the run failed"
	case e.Reason == protocol.StopAborted:
		s = "the run was aborted"
	}
	if stats := endStats(e); stats != "" {
		s += ", " + strings.ReplaceAll(stats, " · ", ", ")
	}
	return s
}

func (t *Transcript) plainNote(b *block) string {
	if b.Kind != conversation.Aside {
		return ""
	}
	return "info: "
}
