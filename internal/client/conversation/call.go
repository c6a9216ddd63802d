package conversation

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/format"
	"noused/internal/protocol"
)

// Bounds of what is kept of a call.
const (
	maxOutput = 64 << 10 // bytes of what it writes while it runs: the last
	maxResult = 1 << 20  // bytes of a result: the first half and the last
	maxNotes  = 200
	maxNote   = 4 << 10 // bytes
)

// Call is a call of a tool and its result.
type Call struct {
	Name      string
	Arguments jsontext.Value
	Child     string // the child session that works for it, once that is known
	State     CallState
	Output    []byte // the end of what it has written
	Cut       bool   // it wrote more
	Notes     []string
	Result    string
	Outputs   map[string]string
	Err       *protocol.ToolError
}

// CallState is how far a call is.
type CallState uint8

// States of calls.
const (
	Waiting CallState = iota
	Running
	Succeeded
	Failed
	Skipped
	Lost // it has no result and gets none
)

// Over reports that no result comes any more.
func (s CallState) Over() bool { return s >= Succeeded }

func (s CallState) String() string {
	return [...]string{"waiting", "running", "done", "failed", "skipped", "no result"}[s]
}

func (c *Call) inherit(was *Call) {
	if was.State.Over() { // else its events are told again
		c.Output, c.Cut, c.Notes = was.Output, was.Cut, was.Notes
	}
	if c.Err == nil {
		c.Err = was.Err
	}
	if was.State == Skipped && c.State == Failed || !c.State.Over() && was.State == Running {
		c.State = was.State
	}
	if len(c.Arguments) == 0 {
		c.Arguments = was.Arguments
	}
	c.Child = cmp.Or(c.Child, was.Child)
}

// AgentTool is the tool by which a session has child sessions.
const AgentTool = "agent"

// ended takes in a result.
func (c *Call) ended(result string, outputs map[string]string) {
	c.Result, c.Outputs = Bounded(result), outputs
	if c.Name == AgentTool {
		c.Child = cmp.Or(outputs["session_id"], c.Child)
	}
}

// Bounded is a text of at most 1 MiB, its beginning and its end, with a line on what
// is missing between them.
func Bounded(text string) string {
	if len(text) <= maxResult {
		return text
	}
	left := len(text) - maxResult
	return format.Cut(text, maxResult/2) +
		fmt.Sprintf("\n[%d bytes are not shown here; `nous messages --full` prints them]\n", left) +
		format.CutStart(text, maxResult/2)
}

// note keeps a text that is shown beside the result.
func (c *Call) note(text string) {
	if len(c.Notes) < maxNotes {
		c.Notes = append(c.Notes, format.Cut(text, maxNote))
	}
}

// update takes in what a running tool says: the text, and the tool's own event,
// which is one of Narratoria's (§4) or a log of gevals.
func (c *Call) update(delta string, raw jsontext.Value) {
	var ev struct {
		Type      string         `json:"type"`
		AssetID   string         `json:"assetId"`
		Kind      string         `json:"kind"`
		MediaType string         `json:"mediaType"`
		Path      string         `json:"path"`
		Event     string         `json:"event"`
		Payload   jsontext.Value `json:"payload"`
		SessionID string         `json:"session_id"`
		ErrorCode string         `json:"errorCode"`
		Message   string         `json:"errorMessage"`
	}
	if len(raw) > 0 && json.Unmarshal(raw, &ev) != nil {
		ev.Type = ""
	}
	switch ev.Type {
	case "asset":
		c.note(strings.TrimSpace(fmt.Sprintf("asset %s: %s, %s, %s", ev.AssetID, ev.Kind, ev.MediaType, ev.Path)))
	case "ui_event":
		c.note(strings.TrimSpace("ui event " + ev.Event + " " + string(ev.Payload)))
	case "child_session":
		c.Child = cmp.Or(ev.SessionID, c.Child)
	case "error":
		c.note("error " + protocol.Coded(ev.ErrorCode, ev.Message))
	case "state_patch":
		if delta != "" {
			c.note(delta)
		}
	default:
		c.write(delta)
	}
}

// write keeps the end of a tool's output. A delta is whole lines.
func (c *Call) write(text string) {
	if text == "" {
		return
	}
	if len(text) > maxOutput {
		text, c.Cut = text[len(text)-maxOutput:], true
	}
	if len(c.Output)+len(text) > 2*maxOutput { // seldom, so that it costs little each time
		c.Output, c.Cut = append(c.Output[:0], c.Output[len(c.Output)-maxOutput/2:]...), true
	}
	c.Output = append(c.Output, text...)
	if !strings.HasSuffix(text, "\n") {
		c.Output = append(c.Output, '\n')
	}
}
