package main

import (
	"errors"
	"os"
	"slices"

	"github.com/go-json-experiment/json"

	"noused/internal/client"
	"noused/internal/client/plain"
	"noused/internal/format"
	"noused/internal/protocol"
	"noused/internal/regular"
)

// tally hands the events of a run on to its view, and remembers what is told when the run
// has ended.
type tally struct {
	runView
	a            *app
	script       scriptFlags
	run, session string

	text    string // of the last answer
	denied  bool   // a call was
	late    string // why the run was aborted, where its time was up
	editing map[string]string
	edited  []string // files, in the order of their first edit
	end     *protocol.AgentEnd
}

func (t *tally) event(ev protocol.Event, raw []byte) {
	t.runView.event(ev, raw)
	switch ev := ev.(type) {
	case protocol.MessageEnd:
		if ev.Role == "assistant" {
			t.text = ev.Text
		}
	case protocol.ToolStart:
		t.begun(ev)
	case protocol.ToolEnd:
		t.denied = t.denied || isDenied(ev)
		if path := t.editing[ev.ToolCallID]; ev.OK && path != "" && !slices.Contains(t.edited, path) {
			t.edited = append(t.edited, path)
		}
		delete(t.editing, ev.ToolCallID)
	case protocol.AgentEnd:
		t.end = &ev
		switch {
		case t.a.result:
			t.printResult(ev)
		case !t.a.json && ev.Usage.Cost != nil:
			t.a.notef("%s", costLine(ev.Usage))
		}
	}
}

// costLine is what a run used, and what it cost.
func costLine(u protocol.Usage) string {
	return format.Short(u.InputTokens) + " in · " + format.Short(u.OutputTokens) + " out · " + plain.Money(u.Cost)
}

// begun remembers which file a call is about to change.
func (t *tally) begun(ev protocol.ToolStart) {
	if ev.ToolName != "write" && ev.ToolName != "edit" {
		return
	}
	var arguments struct {
		Path string `json:"path"`
	}
	if json.Unmarshal(ev.Arguments, &arguments) == nil && arguments.Path != "" {
		if t.editing == nil {
			t.editing = map[string]string{}
		}
		t.editing[ev.ToolCallID] = arguments.Path
	}
}

// unseen stands for the events of a run whose end was missed.
func (t *tally) unseen(text string, end protocol.AgentEnd) {
	ref := protocol.Ref{RunID: t.run, SessionID: t.session}
	view := t.runView
	if outer, ok := view.(*unaskedView); ok {
		view = outer.runView
	}
	if follows, ok := view.(*textView); ok {
		follows.endMessage()
		t.a.println(text)
		t.text, t.end = text, &end
		return
	}
	end.Ref = ref
	t.event(protocol.MessageEnd{Ref: ref, Role: "assistant", Text: text, StopReason: protocol.StopEnd}, nil)
	t.event(end, nil)
}

// keepLast writes the last answer where --last-message says.
func (t *tally) keepLast() error {
	path := t.script.lastMessage
	if path == "" || t.end == nil {
		return nil
	}
	text := t.text
	if t.script.schemaFile != "" {
		text = format.JSONAnswer(text)
	}
	if err := regular.Replace(path, []byte(text+"\n"), 0o600); err != nil {
		return fileFailed("last-message", path, err)
	}
	return nil
}

// runResult is what --json=result prints.
type runResult struct {
	Output     string              `json:"output"`
	StopReason protocol.StopReason `json:"stop_reason"`
	SessionID  string              `json:"session_id"`
	RunID      string              `json:"run_id"`
	Usage      *protocol.Usage     `json:"usage"`
	Cost       *protocol.Cost      `json:"cost"`
	Changes    changes             `json:"changes"`
	Error      *protocol.RunError  `json:"error"`
}

// changes are the files that calls of write and edit have changed. What commands have
// changed is not known.
type changes struct {
	Files []changedFile `json:"files"`
}

type changedFile struct {
	Path string `json:"path"`
}

func (t *tally) printResult(end protocol.AgentEnd) {
	output := t.text
	if t.script.schemaFile != "" {
		output = format.JSONAnswer(output)
	}
	why := end.Error
	if why == nil && t.late != "" && end.StopReason == protocol.StopAborted {
		why = &protocol.RunError{Code: "timeout", Message: t.late}
	}
	t.print(runResult{Output: output, StopReason: end.StopReason, Usage: &end.Usage, Cost: end.Usage.Cost, Error: why})
}

// printFailed is printResult where no run has ended.
func (t *tally) printFailed(err error) {
	why := &protocol.RunError{Code: "failed"}
	if err != nil {
		why.Message = err.Error()
	}
	var wire *protocol.Error
	switch {
	case errors.As(err, &wire):
		why.Code, why.Message = wire.Code, wire.Message
	case isNoDaemon(err), errors.Is(err, client.ErrLost):
		why.Code = "no_daemon"
	}
	t.print(runResult{Output: t.text, StopReason: protocol.StopError, Error: why})
}

func (t *tally) print(r runResult) {
	r.SessionID, r.RunID = t.session, t.run
	r.Changes.Files = []changedFile{}
	for _, path := range t.edited {
		r.Changes.Files = append(r.Changes.Files, changedFile{path})
	}
	line, err := json.Marshal(r)
	if err != nil {
		t.a.complain(err.Error())
		return
	}
	t.a.printJSON(line)
}

// silentView shows nothing: the tally prints the result at the end.
type silentView struct{}

func (silentView) event(protocol.Event, []byte) {}

// answerView writes an answer that fits its schema to standard output, and nothing else
// there. Where none does, the last one goes to standard error.
type answerView struct {
	a    *app
	text string
}

func (v *answerView) event(ev protocol.Event, _ []byte) {
	switch ev := ev.(type) {
	case protocol.MessageEnd:
		if ev.Role == "assistant" {
			v.text = ev.Text
		}
	case protocol.Warning:
		v.a.notef("warning: %s", ev.Message)
	case protocol.AgentEnd:
		switch {
		case ev.StopReason == protocol.StopCompleted:
			v.a.println(format.JSONAnswer(v.text))
		case v.text != "":
			v.a.notef("%s", v.text)
		}
		v.a.explainEnd(ev)
	}
}

// fileFailed is a file that cannot be written, which is no fault of the command line.
func fileFailed(flag, path string, err error) error {
	if wrong := (*os.PathError)(nil); errors.As(err, &wrong) {
		err = wrong.Err
	}
	return errors.New("--" + flag + " " + path + ": " + err.Error())
}
