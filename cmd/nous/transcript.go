package main

import (
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"noused/internal/client"
	"noused/internal/client/plain"
	"noused/internal/cmdline"
	"noused/internal/format"
	"noused/internal/protocol"
)

func (a *app) messagesCommand() *cobra.Command {
	var leaf string
	var full bool
	cmd := &cobra.Command{
		Use:   "messages",
		Short: "Print a session's conversation, from its root to its leaf",
		Args:  cmdline.Wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			scope, err := a.scope(cmd.Context(), needOne)
			if err != nil {
				return err
			}
			p := protocol.GetMessagesParams{Scope: scope, LeafID: leaf}
			session, err := a.printMessages(cmd.Context(), p, full)
			if session != "" {
				a.seen(cmd.Context(), session)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&leaf, "leaf", "", "end at the entry with this `id`")
	a.rawFlag(cmd)
	cmd.Flags().BoolVar(&full, "full", false, "print tool calls and results whole")
	return cmd
}

// printMessages prints a conversation page by page, and with --json as the one reply that
// all pages are together. session is whose it is, where all of it was read.
func (a *app) printMessages(ctx context.Context, p protocol.GetMessagesParams, full bool) (session string, err error) {
	c, err := a.dial(ctx)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if a.json {
		return a.printWholeMessages(ctx, c, p)
	}
	printed := false
	for page, err := range client.Pages(p, client.Messages(ctx, sender{a, c})) {
		if err != nil {
			return "", err
		}
		session = page.SessionID
		for _, entry := range page.Messages {
			if printed {
				a.println("")
			}
			printed = true
			if err := a.printEntry(entry, full); err != nil {
				return session, err
			}
		}
	}
	return session, nil
}

// printWholeMessages prints a conversation as JSON: a reply of one page as it came.
func (a *app) printWholeMessages(ctx context.Context, c *client.Client, p protocol.GetMessagesParams) (session string,
	err error,
) {
	var only []byte
	pages := 0
	all, err := client.AllMessages(p, func(p protocol.GetMessagesParams) (page protocol.Messages, err error) {
		pages++
		if only, err = client.Raw(ctx, sender{a, c}, protocol.GetMessages, p); err == nil {
			err = json.Unmarshal(only, &page)
		}
		return page, err
	})
	switch {
	case err != nil:
		return "", err
	case pages > 1:
		return all.SessionID, a.encodeLine(all)
	}
	a.printJSON(only)
	return all.SessionID, nil
}

func (a *app) printEntry(entry jsontext.Value, full bool) error {
	var kind struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(entry, &kind); err != nil {
		return fmt.Errorf("decode entry: %w", err)
	}
	if kind.Type == "compaction" {
		var c protocol.CompactionEntry
		if err := json.Unmarshal(entry, &c); err != nil {
			return fmt.Errorf("decode compaction: %w", err)
		}
		a.printHead("summary of what was before", c.CreatedAt, c.ID)
		a.println(format.Indent(a.fit(c.Summary), "  "))
		return nil
	}
	var m protocol.Message
	if err := json.Unmarshal(entry, &m); err != nil {
		return fmt.Errorf("decode message: %w", err)
	}
	a.printMessage(m, full)
	return nil
}

func (a *app) printMessage(m protocol.Message, full bool) {
	width, lines := plain.LineWidth, plain.ShortResult
	if full {
		width, lines = 1<<20, 1<<20
	}
	who := m.Role
	if m.Role == "user" && m.TurnKind != "" && m.TurnKind != protocol.KindPrompt {
		who += " (" + plain.KindWord(m.TurnKind) + ")"
	}
	if m.Role == "tool" {
		who += " " + m.ToolName
		if m.OK != nil && !*m.OK {
			who += " failed"
		}
	}
	if m.StopReason == protocol.StopAborted || m.StopReason == protocol.StopError || m.StopReason == protocol.StopLength {
		who += " (" + string(m.StopReason) + ")"
	}
	a.printHead(who, m.CreatedAt, m.ID)
	text, left := a.fit(m.Text), 0
	if m.Role == "tool" {
		text, left = plain.FirstLines(text, lines)
	}
	if text != "" {
		a.println(format.Indent(text, "  "))
	}
	if left > 0 {
		a.printSpans(plain.Span{Text: "  … " + format.Count(left, "more line"), Look: plain.Dim})
	}
	for _, image := range m.Attachments {
		a.printSpans(plain.Span{Text: "  [" + plain.Image(image) + "]", Look: plain.Dim})
	}
	for _, call := range m.ToolCalls {
		a.printSpans(plain.Span{Text: "  → " + call.Name + " " + plain.OneLine(string(call.Arguments), width), Look: plain.Dim})
	}
}

func (a *app) printHead(who string, at time.Time, id string) {
	when := ""
	if !at.IsZero() {
		when = "  " + at.Local().Format(time.DateTime)
	}
	a.printSpans(plain.Span{Text: plain.Cell(who), Look: plain.Bold}, plain.Span{Text: when + "  " + plain.Cell(id), Look: plain.Dim})
}
