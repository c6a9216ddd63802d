package bridge

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"noused/internal/acp"
	"noused/internal/daemontest"
	"noused/internal/protocol"
)

// What a server makes of arguments is a command of the editor's, and what it has can
// be named in a text.
func TestPromptsOfServers(t *testing.T) {
	d := daemontest.New(t, noused, "")
	d.Asker("hub", "Who?", "{}")
	d.Start()
	e := newEditor(t, d.Socket)
	s := e.open(d.Dir)
	e.say(s, "what is @hub:memo://a about") // the server is started for it, and heard
	u, _ := e.awaitUpdate(s, 0, "the command", func(u update) bool {
		return slices.ContainsFunc(u.Commands, func(c acp.Command) bool { return c.Name == "hub.review" })
	})
	for _, c := range u.Commands {
		if c.Name == "hub.review" && (c.Description != "Looks at a file." || c.Input == nil || c.Input.Hint != "[file=…]") {
			t.Errorf("got the command %+v", c)
		}
	}
	if got := e.say(s, "/hub.review file=main.go"); got != acp.EndTurn {
		t.Errorf("got %s, want end_turn", got)
	}
	e.reply(e.send(acp.Steer, textPrompt(s, "/hub.review main.go")))
	e.say(s, "/nobody.review main.go")
	var texts []string
	for _, raw := range command(t, d.Socket, protocol.GetMessages,
		protocol.GetMessagesParams{Scope: protocol.Scope{SessionID: s}}).Messages {
		if m := decodeEntry(raw); m.Role == "user" {
			texts = append(texts, m.Text)
		}
	}
	for i, want := range []string{"alpha and omega", "Review it kindly.", "Review it kindly.", "/nobody.review main.go"} {
		if len(texts) != 4 || !strings.Contains(texts[i], want) {
			t.Fatalf("the model was told %q, want %q as number %d", texts, want, i)
		}
	}
	m := e.reply(e.prompt(s, "/hub.review other.go"))
	if m.Error == nil || m.Error.Code != acp.InvalidParams || !strings.HasPrefix(m.Error.Message, "prompt: ") ||
		!strings.Contains(m.Error.Message, "not that file") {
		t.Errorf("what the server refuses: got %+v", m.Error)
	}
}

// wordServer is an MCP server that says what it was given.
const wordServer = `
while read -r line; do
	id=${line#*\"id\":}
	id=${id%%[,\}]*}
	case $line in
	*'"initialize"'*) r='{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"word","version":"1"}}' ;;
	*'"tools/list"'*) r='{"tools":[{"name":"say","inputSchema":{"type":"object"}}]}' ;;
	*'"tools/call"'*) r='{"content":[{"type":"text","text":"'"$1 $WORD"'"}]}' ;;
	*'"ping"'*) r='{}' ;;
	*) continue ;;
	esac
	printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$r"
done
`

// A server that the editor brings is there for the session that it made, after a
// restart of the daemon too, and for no other one.
func TestAServerOfTheEditor(t *testing.T) {
	d := startDaemon(t, "")
	d.Write("word.sh", wordServer)
	e := newEditor(t, d.Socket)
	e.answerWith(func(message) string { return "once" })
	var r acp.OpenResult
	e.decode(e.must(acp.SessionNew, `{"cwd":`+quote(d.Dir)+`,"mcpServers":[{"name":"mine","command":"/bin/sh","args":[`+
		quote(filepath.Join(d.Dir, "word.sh"))+`,"given"],"env":[{"name":"WORD","value":"to it"}]}]}`), &r)
	said := func(s string, from int) string {
		t.Helper()
		e.say(s, "!mine.say {}")
		return strings.Join(conversation(e.updates(s, from, -1)), "\n")
	}
	if got := said(r.SessionID, 0); !strings.Contains(got, "given to it") {
		t.Errorf("got\n%s", got)
	}
	d.Stop()
	d.Start()
	if got := said(r.SessionID, e.mark()); !strings.Contains(got, "given to it") {
		t.Errorf("after a restart: got\n%s", got)
	}
	if got := said(e.open(d.Dir), 0); strings.Contains(got, "given to it") {
		t.Errorf("another session: got\n%s", got)
	}
	m := e.reply(e.send(acp.SessionNew, `{"cwd":`+quote(d.Dir)+
		`,"mcpServers":[{"name":"a/b","command":"sh","args":[],"env":[]}]}`))
	if m.Error == nil || m.Error.Code != acp.InvalidParams || !strings.HasPrefix(m.Error.Message, "mcpServers") {
		t.Errorf("a name that is none: got %+v", m.Error)
	}
	if _, err := os.Stat(filepath.Join(d.Dir, "tools", "mine.json")); err == nil {
		t.Error("the server was written to the tools of the daemon")
	}
}
