package main

import (
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"noused/internal/client"
	"noused/internal/client/conversation"
	"noused/internal/cmdline"
	"noused/internal/format"
	"noused/internal/protocol"
)

// shortResult is how many lines of a tool's result a transcript shows.
const shortResult = 5

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
			p := protocol.GetMessagesParams{Scope: scope, LeafID: leaf, Whole: true}
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
	for page, err := range client.Pages(p, a.messagesFrom(ctx, c)) {
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
		ctx, done := a.bounded(ctx, p)
		defer done()
		pages++
		if only, err = raw(ctx, a, c, protocol.GetMessages, p); err == nil {
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

// messagesFrom asks for messages over c.
func (a *app) messagesFrom(ctx context.Context, c *client.Client) func(protocol.GetMessagesParams) (protocol.Messages,
	error) {
	return func(p protocol.GetMessagesParams) (protocol.Messages, error) {
		return call(ctx, a, c, protocol.GetMessages, p)
	}
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
		a.printHead(conversation.Summarised(c.TokensBefore, c.TokensAfter), c.CreatedAt, c.ID)
		a.println(indent(a.fit(c.Summary), "  "))
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
	width, lines := lineWidth, shortResult
	if full {
		width, lines = 1<<20, 1<<20
	}
	who := m.Role
	if m.Role == "user" && m.TurnKind != "" && m.TurnKind != protocol.KindPrompt {
		who += " (" + wordFor(m.TurnKind) + ")"
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
		text, left = firstLines(text, lines)
	}
	if text != "" {
		a.println(indent(text, "  "))
	}
	if left > 0 {
		a.printSpans(span{"  … " + format.Count(left, "more line"), asDim})
	}
	for _, image := range m.Attachments {
		a.printSpans(span{"  [" + describeImage(image) + "]", asDim})
	}
	for _, call := range m.ToolCalls {
		a.printSpans(span{"  → " + call.Name + " " + oneLine(string(call.Arguments), width), asDim})
	}
}

// describeImage is an image in one line: "image shot.png, image/png, 120 KiB".
func describeImage(a protocol.Attachment) string {
	text := "image"
	if name := oneLine(a.Name, lineWidth); name != "" {
		text += " " + name
	}
	return text + ", " + cellText(a.MediaType) + ", " + format.Size(a.Size)
}

func (a *app) printHead(who string, at time.Time, id string) {
	when := ""
	if !at.IsZero() {
		when = "  " + at.Local().Format(time.DateTime)
	}
	a.printSpans(span{cellText(who), asBold}, span{when + "  " + cellText(id), asDim})
}
