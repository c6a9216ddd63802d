package main

import (
	"strings"
	"testing"

	"noused/internal/client/clienttest"
)

// A conversation that the daemon does not give in one reply is printed whole.
func TestALongConversationIsPrintedWhole(t *testing.T) {
	for args, want := range map[string]string{
		"messages": "  m1  r\n  one\n\nuser  ",
		"messages --json": `{"session_id":"s","messages":[` + saidEntry("m1", "one") + `,` + saidEntry("m2", "two") +
			`],"leaf_id":"m2"}` + "\n",
		"export --format json": `"m1"`,
		"export":               "> two\n",
	} {
		got := nous(t, strings.Fields(args), func(d *clienttest.Daemon) {
			commands := d.Commands()
			defer commands.Close()
			for _, page := range []struct{ want, give string }{
				{`"after":""`, `[` + saidEntry("m1", "one") + `],"leaf_id":"m2","more":true`},
				{`"session_id":"s","leaf_id":"m2","after":"m1"`, `[` + saidEntry("m2", "two") + `],"leaf_id":"m2"`},
			} {
				id, params := commands.Want("get_messages")
				if !strings.Contains(string(params), page.want) {
					t.Errorf("nous %s asks for %s, want %s in it", args, params, page.want)
				}
				commands.Reply(id, "messages", `{"session_id":"s","messages":`+page.give+`}`)
			}
			if strings.HasPrefix(args, "export") {
				id, _ := commands.Want("get_state")
				commands.Reply(id, "state", `{"run_state":"idle","run_id":"","session_id":"s","daemon":{"epoch":"e1"}}`)
			}
		})
		if got.status != exitOK || !strings.Contains(got.out, want) {
			t.Errorf("nous %s: got %+v, want %s", args, got, want)
		}
	}
}

func saidEntry(id, text string) string {
	return `{"type":"message","id":"` + id + `","role":"user","text":"` + text +
		`","run_id":"r","turn_kind":"prompt","created_at":"2026-01-02T03:04:05Z"}`
}
