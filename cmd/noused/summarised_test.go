package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/client"
	"noused/internal/client/conversation"
	"noused/internal/protocol"
)

// quietView is told and does nothing.
type quietView struct{}

func (quietView) Emptied()                          {}
func (quietView) Inserted(*conversation.Entry, int) {}
func (quietView) Grew(*conversation.Entry)          {}
func (quietView) Changed(*conversation.Entry)       {}
func (quietView) Dropped(int)                       {}
func (quietView) Noticed(kind, text string)         {}

// A summary is for the model: people keep the conversation, above a line that says what
// has been summarised. get_messages without whole stays as it was.
func TestACompactionLeavesTheConversation(t *testing.T) {
	d := newDaemon(t)
	c := d.dial()
	for i := range 4 {
		d.prompt(fmt.Sprintf("say number-%d %s", i, strings.Repeat("and more ", 2000)))
	}
	events := d.events(protocol.SubscribeParams{})
	reply, err := client.Call(context.Background(), c, protocol.CompactSession, protocol.CompactSessionParams{})
	if err != nil {
		t.Fatal(err)
	}
	status := comes[protocol.Status](t, events)
	for status.Code != protocol.StatusCompacted {
		status = comes[protocol.Status](t, events)
	}
	if reply.TokensAfter <= 0 || reply.TokensAfter >= reply.TokensBefore ||
		status.TokensBefore != reply.TokensBefore || status.TokensAfter != reply.TokensAfter {
		t.Errorf("the reply has %d and %d tokens, the event %d and %d", reply.TokensBefore, reply.TokensAfter,
			status.TokensBefore, status.TokensAfter)
	}
	d.prompt("say number-4")
	read := func(whole bool) string {
		t.Helper()
		all, err := client.AllMessages(protocol.GetMessagesParams{Whole: whole},
			func(p protocol.GetMessagesParams) (protocol.Messages, error) {
				one := 3
				p.Limit = &one
				return client.Call(context.Background(), c, protocol.GetMessages, p)
			})
		if err != nil {
			t.Fatal(err)
		}
		talk := conversation.New(quietView{})
		if err := talk.Load(all.Messages, all.Runs, nil); err != nil {
			t.Fatal(err)
		}
		talk.SetRunning(false)
		var told []string
		for _, e := range talk.Entries() {
			switch e.Kind {
			case conversation.User:
				told = append(told, strings.Fields(e.Text.String())[1])
			case conversation.RunEnd:
				told = append(told, "end")
			case conversation.Summary:
				told = append(told, conversation.Summarised(e.Before, e.After))
			}
		}
		return strings.Join(told, ", ")
	}
	line := conversation.Summarised(reply.TokensBefore, reply.TokensAfter)
	if !strings.Contains(line, "k → ") {
		t.Errorf("the line is %q", line)
	}
	want := "number-0, end, number-1, end, number-2, end, number-3, end, " + line + ", number-4, end"
	if got := read(true); got != want {
		t.Errorf("the conversation is\n%s, want\n%s", got, want)
	}
	if got := read(false); !strings.HasPrefix(got, line) || strings.Contains(got, "number-0") {
		t.Errorf("get_messages without whole has %s", got)
	}
	before := read(true)
	d.Kill()
	d.Start()
	c = d.dial()
	if got := read(true); got != before {
		t.Errorf("after a restart the conversation is\n%s, want\n%s", got, before)
	}
	two := 2
	last, err := client.Call(context.Background(), c, protocol.GetMessages,
		protocol.GetMessagesParams{Whole: true, Limit: &two})
	var m protocol.Message
	if err != nil || len(last.Messages) != 2 ||
		json.Unmarshal(last.Messages[0], &m, jsontext.AllowInvalidUTF8(true)) != nil || m.Text != "say number-4" {
		t.Errorf("the newest two are %s, %v", last.Messages, err)
	}
}
