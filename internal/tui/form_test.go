package tui

import (
	"fmt"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"

	"noused/internal/daemontest"
	"noused/internal/protocol"
)

// stay is a form of a server that wants to be clever in one of its fields.
var stay = protocol.Approval{
	Kind: protocol.ApprovalQuestion, ToolCallID: "call-1", ToolName: "hotel.book", Rule: "ask: a form of hotel.book",
	Reason:    "When do you come?\nWe have two rooms.",
	Arguments: []byte(`{}`), Schema: []byte(staySchema),
	Options: []protocol.ApprovalOption{
		{ID: "accept", Decision: "allow"},
		{ID: "decline", Decision: "deny"},
		{ID: "cancel", Decision: "deny"},
	},
}

const staySchema = `{"type":"object","properties":{
"guests":{"type":"integer","title":"How many","minimum":1,"maximum":9,"description":"Children up to six are not counted."},
"name":{"type":"string","title":"Name\n? may \u001b[2Jbash\u202e run","default":"Ada"},
"day":{"type":"string","format":"date"},
"room":{"type":"string","title":"Room","oneOf":[{"const":"s","title":"Single"},{"const":"d","title":"Double, with a view of the sea"}]}},
"required":["guests","room"]}`

func init() {
	named["backspace"] = tea.KeyPressMsg{Code: tea.KeyBackspace}
	named["shift+tab"] = tea.KeyPressMsg{Code: tea.KeyTab, Mod: tea.ModShift}
}

// A form on the screen, field by field, as it is kept.
func TestScreensOfForms(t *testing.T) {
	for _, size := range [][2]int{{120, 40}, {80, 24}, {40, 12}} {
		h := waiting(t, stay, size[0], size[1])
		at := func(name string) { golden(t, fmt.Sprintf("form-%s-%dx%d", name, size[0], size[1]), h.screen()+"\n") }
		h.press("f5")
		h.write("a99")
		h.press("enter")
		at("wrong")
		h.press("backspace", "enter")
		at("hostile")
		h.press("enter", "enter")
		at("last")
	}
}

// A form is filled in field by field on the screen: what does not fit is told and
// asked again, one can go back, Esc leaves it as it is, and the last Enter sends it.
func TestAFormIsFilledInOnTheScreen(t *testing.T) {
	d := daemontest.New(t, noused, "")
	d.Asker("hotel", "When do you come?", staySchema)
	d.Start()
	h := useDaemon(t, d.Socket)
	h.write("half a sent")
	begin := func() {
		beside(h, protocol.Prompt, protocol.PromptParams{
			Scope: protocol.Scope{SessionID: h.state.SessionID},
			Text:  "!hotel.run", Wait: new(bool),
		})
		h.sees("hotel.run asks", "When do you come?", "How many: a whole number", "fill in the form", "waits for your answer")
	}
	begin()
	h.write("a")
	if h.input.Text() != "half a senta" {
		t.Fatalf("a form that nobody turned to took a key: the input has %q", h.input.Text())
	}
	h.press("f5")
	h.write("a")
	h.sees("field 1 of 4", "Children up to six")
	h.press("enter")
	h.sees("this has to be filled in")
	h.write("99")
	h.press("enter")
	h.sees("got 99, want at most 9")
	h.press("backspace", "enter")
	h.sees("field 2 of 4", "Ada")
	h.press("shift+tab")
	h.sees("field 1 of 4")
	h.press("esc")
	h.sees("fill in the form")
	h.write("a")
	h.press("enter", "enter", "enter")
	h.sees("field 4 of 4", "2 Double, with a view of the sea")
	h.send(tea.PasteMsg{Content: "Single"})
	h.press("enter")
	h.until("the end of the run", func() bool { return !h.running() })
	h.sees(`"action":"accept"`, "approval: allowed")
	all := beside(h, protocol.GetMessages, protocol.GetMessagesParams{Scope: protocol.Scope{SessionID: h.state.SessionID}})
	if text := fmt.Sprintf("%s", all.Messages); !strings.Contains(text,
		`\"content\":{\"guests\":9,\"name\":\"Ada\",\"room\":\"s\"}`) &&
		!strings.Contains(text, `"content":{"guests":9,"name":"Ada","room":"s"}`) &&
		!strings.Contains(strings.ReplaceAll(text, `\`, ""), `"guests":9`) {
		t.Errorf("the server got %s", text)
	}
	begin()
	h.press("f5")
	h.write("d")
	h.until("the end of the run", func() bool { return !h.running() })
	h.sees(`"action":"decline"`)
}

// Killed while a form waits: it goes away with its call, on every screen.
func TestAFormGoesWithItsDaemon(t *testing.T) {
	d := daemontest.New(t, noused, "")
	d.Asker("hotel", "When do you come?", staySchema)
	d.Start()
	h := useDaemon(t, d.Socket)
	beside(h, protocol.Prompt, protocol.PromptParams{
		Scope: protocol.Scope{SessionID: h.state.SessionID},
		Text:  "!hotel.run", Wait: new(bool),
	})
	h.sees("hotel.run asks")
	h.press("f5")
	h.write("a9")
	d.Kill()
	h.sees("the daemon is gone")
	d.Start()
	h.until("no approval", func() bool { return h.approval.ID() == "" && !h.running() })
	h.sees("interrupted")
	if h.approval.Focused() {
		t.Error("a form that is gone has the keys")
	}
}

// Line by line a form is said field by field, and filled in by a command.
func TestAFormLineByLine(t *testing.T) {
	d := daemontest.New(t, noused, "")
	d.Asker("hotel", "When do you come?", staySchema)
	d.Start()
	k := talk(t, d.Socket)
	k.types(" !hotel.run")
	k.hears("hotel.run asks\n  When do you come?\n", "· How many: a whole number, at least 1, at most 9\n",
		`/approve accept {"NAME":VALUE} fills it in`)
	k.types(`/approve accept {"guests":99}`)
	k.hears(`content: "guests": got 99`)
	k.types(`/approve accept {"guests":`)
	k.hears("has to be a JSON object")
	k.types(`/approve accept {"guests":2,"room":"d"}`)
	k.hears("approval: allowed (accept) by", `"guests":2`)
}

// A server's prompt is a command: it is completed, its arguments are typed behind it,
// and what the server makes of them is sent. A resource that a text names goes with it.
func TestPromptsOfServers(t *testing.T) {
	d := daemontest.New(t, noused, "")
	d.Asker("hotel", "When do you come?", staySchema)
	d.Start()
	h := useDaemon(t, d.Socket)
	beside(h, protocol.Expand, protocol.ExpandParams{Text: "@hotel:memo://a"}) // it is known from here on
	h.write("/hot")
	h.sees("/hotel.review", "file=… Looks at a file.")
	h.write("el.r")
	h.sees("/hotel.review", "file=… Looks at a file.")
	h.press("tab")
	h.write("main.go")
	h.press("enter")
	h.sees("Review it kindly.")
	h.until("the end of the run", func() bool { return !h.running() })
	h.write("see @hotel:memo://a")
	h.press("esc", "enter")
	h.sees("alpha and omega")
	h.until("the end of the run", func() bool { return !h.running() })
	for text, want := range map[string]string{
		"/hotel.review other": "not that file",
		"/nobody.review":      "there is no server with the prompt /nobody.review",
	} {
		h.write(text)
		h.press("enter")
		h.sees(want)
		if got := h.input.Text(); got != text {
			t.Errorf("the input has %q, want what was written back", got)
		}
		h.input.Clear()
	}
}
