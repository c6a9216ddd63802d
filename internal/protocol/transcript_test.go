package protocol_test

import (
	"context"
	"flag"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	. "noused/internal/protocol"
	"noused/internal/protocol/protocoltest"
)

var update = flag.Bool("update", false, "refused: the transcripts of v1 are frozen")

// transcripts reads the frozen transcripts. They are written by hand and stay
// as they are: a change that they do not survive breaks somebody's client.
func transcripts(t *testing.T) []*protocoltest.Transcript {
	t.Helper()
	if *update {
		t.Fatal("testdata/v1 is frozen: -update does not touch it")
	}
	ts, err := protocoltest.ReadTranscripts("testdata/v1/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	return ts
}

// willing is a Mux that does every command with its zero reply.
func willing(t *testing.T) *Mux {
	m := &Mux{}
	agree(m, Ping)
	agree(m, Prompt)
	agree(m, Steer)
	agree(m, FollowUp)
	agree(m, Abort)
	agree(m, SetActiveTools)
	agree(m, SetSteeringMode)
	agree(m, SetFollowUpMode)
	agree(m, GetState)
	agree(m, GetMessages)
	agree(m, NewSession)
	agree(m, SwitchSession)
	agree(m, BranchSession)
	agree(m, ExtensionCommand)
	agree(m, CompactSession)
	agree(m, SetLeaf)
	agree(m, GetTree)
	agree(m, ListSessions)
	agree(m, DeleteSession)
	agree(m, Prune)
	agree(m, GetChanges)
	agree(m, Rewind)
	agree(m, UndoRewind)
	agree(m, SearchSessions)
	agree(m, ListTools)
	agree(m, SetModel)
	agree(m, SetAgent)
	agree(m, SetAgentOption)
	agree(m, ReloadTools)
	agree(m, ListModels)
	agree(m, GetSystem)
	agree(m, ListSkills)
	agree(m, ListAgents)
	agree(m, CallTool)
	agree(m, Withdraw)
	agree(m, SetTitle)
	agree(m, MarkRead)
	agree(m, Expand)
	agree(m, GetUsage)
	agree(m, Approve)
	agree(m, SetApprovalMode)
	agree(m, Shutdown)
	if missing := m.Missing(); len(missing) > 0 {
		t.Fatalf("commands without a handler: %v", missing)
	}
	return m
}

func agree[P Params, R Reply](m *Mux, d Def[P, R]) {
	HandleFunc(m, d, func(context.Context, P) (r R, err error) { return r, nil })
}

// answer is what a daemon says to a line before it looks at its sessions.
func answer(m *Mux, line string) (cmd Command, reply string, err error) {
	cmd, bad := DecodeCommand([]byte(line))
	if bad != nil {
		return cmd, string(AppendError(nil, cmd.ID, bad)), bad
	}
	o := m.Run(context.Background(), cmd)
	return cmd, string(o.Append(nil, cmd.ID)), o.Err()
}

type replyLine struct {
	ID      string         `json:"id"`
	Type    string         `json:"type"`
	Payload jsontext.Value `json:"payload"`
	OK      bool           `json:"ok"`
	Error   *Error         `json:"error"`
}

func TestTranscriptCommands(t *testing.T) {
	mux := willing(t)
	seen := map[string]bool{}
	for _, tr := range transcripts(t) {
		replies := tr.Replies
		for _, step := range tr.Steps {
			if step.Type != "" {
				continue
			}
			if len(replies) == 0 {
				t.Fatalf("%s: no reply to %s", tr.Name, step.Line)
			}
			want := replies[0]
			replies = replies[1:]
			line := step.Line
			if strings.Contains(line, "<") {
				var err error
				if line, err = protocoltest.Invent(line); err != nil {
					t.Fatalf("%s: %s: %v", tr.Name, step.Line, err)
				}
			}
			cmd, got, err := answer(mux, line)
			var reply replyLine
			if err := json.Unmarshal([]byte(want), &reply); err != nil {
				t.Fatalf("%s: %s: %v", tr.Name, want, err)
			}
			seen[fmt.Sprintf("%s ok=%t", cmd.Type, reply.OK)] = true
			if cmd.ID != reply.ID {
				t.Errorf("%s: %s: got id %q, want %q", tr.Name, line, cmd.ID, reply.ID)
			}
			if reply.Error != nil && (reply.Error.Code == InvalidCommand || reply.Error.Code == InvalidPayload) {
				if err := (protocoltest.Bindings{}).Match(want, got); err != nil {
					t.Errorf("%s: %s\ngot reply %swant %s\n%v", tr.Name, line, got, want, err)
				}
			} else if err != nil {
				t.Errorf("%s: %s: got %v, want it accepted", tr.Name, line, err)
			}
		}
		if len(replies) > 0 {
			t.Errorf("%s: %d replies too many", tr.Name, len(replies))
		}
	}
	for _, row := range Table() {
		for _, want := range []string{row.Name + " ok=true", row.Name + " ok=false"} {
			if row.Since != Added && !seen[want] && want != "ping ok=false" && want != "new_session ok=false" {
				t.Errorf("no transcript has %s", want)
			}
		}
	}
}

// document is what the tests below need of the published document.
type document struct {
	Response map[string][]string `json:"x-response-payload-requirements"`
	Commands map[string]struct {
		Responses []struct {
			Type    string            `json:"type"`
			Payload map[string]string `json:"payload"`
		} `json:"responses"`
	} `json:"x-commands"`
	Components struct {
		Schemas map[string]struct {
			Required []string `json:"required"`
		} `json:"schemas"`
	} `json:"components"`
}

func readDocument(t *testing.T) (d document) {
	t.Helper()
	text, err := Document()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// typeOf finds the Go type of a command's reply through the document.
func (d document) typeOf(t *testing.T, command, replyType string) reflect.Type {
	t.Helper()
	for _, row := range Table() {
		for i, r := range d.Commands[command].Responses {
			if row.Name == command && r.Type == replyType {
				return reflect.TypeOf(row.Replies[i])
			}
		}
	}
	t.Fatalf("%s is never answered by %q", command, replyType)
	return nil
}

// again is a payload decoded into a type and encoded from it.
func again(t *testing.T, typ reflect.Type, payload []byte) any {
	t.Helper()
	v := reflect.New(typ)
	if err := json.Unmarshal(payload, v.Interface()); err != nil {
		t.Fatalf("%s: %s: %v", typ, payload, err)
	}
	return v.Elem().Interface()
}

func hasFields(t *testing.T, payload jsontext.Value, names []string, line string) {
	t.Helper()
	var fields map[string]jsontext.Value
	if err := json.Unmarshal(payload, &fields); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if _, ok := fields[name]; !ok {
			t.Errorf("the transcript says nothing of the required %s in %s", name, line)
		}
	}
}

func TestTranscriptReplies(t *testing.T) {
	doc := readDocument(t)
	for _, tr := range transcripts(t) {
		var commands []string
		for _, step := range tr.Steps {
			if step.Type == "" {
				commands = append(commands, step.Line)
			}
		}
		for i, want := range tr.Replies {
			line, err := protocoltest.Invent(want)
			if err != nil {
				t.Fatalf("%s: %s: %v", tr.Name, want, err)
			}
			var reply replyLine
			if err := json.Unmarshal([]byte(line), &reply); err != nil {
				t.Fatalf("%s: %s: %v", tr.Name, want, err)
			}
			var got []byte
			if reply.OK {
				cmd, bad := DecodeCommand([]byte(commands[i]))
				if bad != nil {
					t.Fatalf("%s: %s: %v", tr.Name, commands[i], bad)
				}
				key := reply.Type
				if key == "accepted" {
					key += ":" + cmd.Type
				}
				hasFields(t, reply.Payload, doc.Response[key], want)
				payload := again(t, doc.typeOf(t, cmd.Type, reply.Type), reply.Payload)
				if messages, ok := payload.(Messages); ok {
					checkEntries(t, messages)
				}
				if got, err = AppendResponse(nil, reply.ID, reply.Type, payload); err != nil {
					t.Fatal(err)
				}
			} else {
				got = AppendError(nil, reply.ID, reply.Error)
			}
			if err := (protocoltest.Bindings{}).Match(want, string(got)); err != nil {
				t.Errorf("%s: reply comes back as %swant %s\n%v", tr.Name, got, want, err)
			}
		}
	}
}

// checkEntries sees that the entries of a messages reply are what the daemon
// makes them from.
func checkEntries(t *testing.T, m Messages) {
	t.Helper()
	for _, entry := range m.Messages {
		typ := reflect.TypeFor[Message]()
		var probe struct {
			Type string `json:"type"`
		}
		if err := json.Unmarshal(entry, &probe); err != nil {
			t.Fatal(err)
		}
		if probe.Type == "compaction" {
			typ = reflect.TypeFor[CompactionEntry]()
		}
		got, err := json.Marshal(again(t, typ, entry))
		if err != nil {
			t.Fatal(err)
		}
		if err := (protocoltest.Bindings{}).Match(string(entry), string(got)); err != nil {
			t.Errorf("entry comes back as %s, want %s\n%v", got, entry, err)
		}
	}
}

func TestTranscriptEvents(t *testing.T) {
	doc := readDocument(t)
	types := map[string]reflect.Type{}
	for _, ev := range EventTypes() {
		types[ev.Type()] = reflect.TypeOf(ev)
	}
	seen := map[string]bool{}
	known := func(name, typ string) {
		t.Helper()
		if types[typ] == nil {
			t.Fatalf("%s: %q is no event of v1", name, typ)
		}
	}
	for _, tr := range transcripts(t) {
		for _, step := range slices.Concat(tr.Steps, tr.Events) {
			if step.Type != "" {
				known(tr.Name, step.Type)
			}
		}
		for _, want := range tr.Events {
			if want.Type != "" {
				continue
			}
			line, err := protocoltest.Invent(want.Line)
			if err != nil {
				t.Fatalf("%s: %s: %v", tr.Name, want.Line, err)
			}
			var env EventEnvelope
			if err := json.Unmarshal([]byte(line), &env); err != nil {
				t.Fatalf("%s: %s: %v", tr.Name, want.Line, err)
			}
			known(tr.Name, env.Type)
			seen[env.Type] = true
			typ := types[env.Type]
			hasFields(t, env.Payload, doc.Components.Schemas[typ.Name()].Required, want.Line)
			payload, err := EncodePayload(again(t, typ, env.Payload).(Event))
			if err != nil {
				t.Fatal(err)
			}
			got := AppendEvent(nil, env.Type, payload, time.Now(), 17)
			if err := (protocoltest.Bindings{}).Match(want.Line, string(got)); err != nil {
				t.Errorf("%s: event comes back as %swant %s\n%v", tr.Name, got, want.Line, err)
			}
		}
	}
	for name := range types {
		if !seen[name] {
			t.Errorf("no transcript has the event %s", name)
		}
	}
}
