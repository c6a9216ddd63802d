package client_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/client"
	"noused/internal/protocol"
)

func TestPagesOfAConversation(t *testing.T) {
	page := func(more bool, runs string, ids ...string) protocol.Messages {
		p := protocol.Messages{SessionID: "s", LeafID: "d", More: more}
		for _, id := range ids {
			p.Messages = append(p.Messages, jsontext.Value(`{"id":"`+id+`"}`))
		}
		for _, run := range strings.Fields(runs) {
			p.Runs = append(p.Runs, protocol.EndedRun{RunID: run})
		}
		return p
	}
	for name, c := range map[string]struct {
		replies    []protocol.Messages
		asked, got string
		fails      bool
	}{
		"one":  {[]protocol.Messages{page(false, "r1", "a", "b")}, `""`, "a b | r1", false},
		"none": {[]protocol.Messages{page(false, "")}, `""`, " | ", false},
		"three": {
			[]protocol.Messages{page(true, "r1", "a"), page(true, "r1 r2", "b"), page(false, "r2", "c", "d")},
			`"" a d b d`, "a b c d | r1 r2", false,
		},
		"more of nothing": {[]protocol.Messages{page(true, "")}, `""`, "", true},
		"the same again":  {[]protocol.Messages{page(true, "", "a"), page(true, "", "a")}, `"" a d`, "", true},
	} {
		var asked []string
		replies := c.replies
		all, err := client.AllMessages(protocol.GetMessagesParams{}, func(p protocol.GetMessagesParams) (protocol.Messages,
			error,
		) {
			if len(asked) == 0 {
				asked = append(asked, fmt.Sprintf("%q", *p.After))
			} else {
				asked = append(asked, *p.After, p.LeafID)
			}
			next := replies[0]
			replies = replies[1:]
			return next, nil
		})
		if got := strings.Join(asked, " "); got != c.asked || (err != nil) != c.fails {
			t.Errorf("%s: asked for %s, %v", name, got, err)
		}
		if c.fails {
			continue
		}
		var ids, runs []string
		for _, m := range all.Messages {
			ids = append(ids, strings.Split(string(m), `"`)[3])
		}
		for _, r := range all.Runs {
			runs = append(runs, r.RunID)
		}
		if got := strings.Join(ids, " ") + " | " + strings.Join(runs, " "); got != c.got || all.More {
			t.Errorf("%s: got %s, more: %v, want %s", name, got, all.More, c.got)
		}
	}
}
