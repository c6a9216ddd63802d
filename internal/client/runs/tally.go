package runs

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

// Tally hands the events of a run on to its view, and remembers what is told when the run
// has ended.
type Tally struct {
	View
	Console      *Console
	Run, Session string
	Schema       bool   // the answer is JSON
	LastMessage  string // a file for the last answer, or ""

	text    string // of the last answer
	denied  bool   // a call was
	late    string // why the run was aborted, where its time was up
	editing map[string]string
	edited  []string // files, in the order of their first edit
	end     *protocol.AgentEnd
}

func (t *Tally) Event(ev protocol.Event, raw []byte) {
	t.View.Event(ev, raw)
	switch ev := ev.(type) {
	case protocol.MessageEnd:
		if ev.Role == "assistant" {
			t.text = ev.Text
		}
	case protocol.ToolStart:
		t.begun(ev)
	case protocol.ToolEnd:
		t.denied = t.denied || IsDenied(ev)
		if path := t.editing[ev.ToolCallID]; ev.OK && path != "" && !slices.Contains(t.edited, path) {
			t.edited = append(t.edited, path)
		}
		delete(t.editing, ev.ToolCallID)
	case protocol.AgentEnd:
		t.end = &ev
		switch {
		case t.Console.Result:
			t.printResult(ev)
		case !t.Console.JSON && ev.Usage.Cost != nil:
			t.Console.Notef("%s", costLine(ev.Usage))
		}
	}
}

// costLine is what a run used, and what it cost.
func costLine(u protocol.Usage) string {
	return format.Short(u.InputTokens) + " in · " + format.Short(u.OutputTokens) + " out · " + plain.Money(u.Cost)
}

// begun remembers which file a call is about to change.
func (t *Tally) begun(ev protocol.ToolStart) {
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
func (t *Tally) unseen(text string, end protocol.AgentEnd) {
	ref := protocol.Ref{RunID: t.Run, SessionID: t.Session}
	view := t.View
	if outer, ok := view.(*UnaskedView); ok {
		view = outer.View
	}
	if follows, ok := view.(*TextView); ok {
		follows.endMessage()
		if text != "" {
			t.Console.Println(text)
		}
		t.text, t.end = text, &end
		t.Console.explainEnd(end)
		return
	}
	end.Ref = ref
	t.Event(protocol.MessageEnd{Ref: ref, Role: "assistant", Text: text, StopReason: protocol.StopEnd}, nil)
	t.Event(end, nil)
}

// KeepLast writes the last answer where --last-message says.
func (t *Tally) KeepLast() error {
	path := t.LastMessage
	if path == "" || t.end == nil {
		return nil
	}
	text := t.text
	if t.Schema {
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

func (t *Tally) printResult(end protocol.AgentEnd) {
	output := t.text
	if t.Schema {
		output = format.JSONAnswer(output)
	}
	why := end.Error
	if why == nil && t.late != "" && end.StopReason == protocol.StopAborted {
		why = &protocol.RunError{Code: "timeout", Message: t.late}
	}
	t.print(runResult{Output: output, StopReason: end.StopReason, Usage: &end.Usage, Cost: end.Usage.Cost, Error: why})
}

// PrintFailed is printResult where no run has ended.
func (t *Tally) PrintFailed(err error) {
	why := &protocol.RunError{Code: "failed"}
	if err != nil {
		why.Message = err.Error()
	}
	var wire *protocol.Error
	switch {
	case errors.As(err, &wire):
		why.Code, why.Message = wire.Code, wire.Message
	case noDaemon(err), errors.Is(err, client.ErrLost):
		why.Code = "no_daemon"
	}
	t.print(runResult{Output: t.text, StopReason: protocol.StopError, Error: why})
}

// Ended reports whether the run's end was seen.
func (t *Tally) Ended() bool { return t.end != nil }

func (t *Tally) print(r runResult) {
	r.SessionID, r.RunID = t.Session, t.Run
	r.Changes.Files = []changedFile{}
	for _, path := range t.edited {
		r.Changes.Files = append(r.Changes.Files, changedFile{path})
	}
	line, err := json.Marshal(r)
	if err != nil {
		t.Console.Complain(err.Error())
		return
	}
	t.Console.JSONLine(line)
}

// SilentView shows nothing: the tally prints the result at the end.
type SilentView struct{}

func (SilentView) Event(protocol.Event, []byte) {}

// AnswerView writes an answer that fits its schema to standard output, and nothing else
// there. Where none does, the last one goes to standard error.
type AnswerView struct {
	Console *Console
	text    string
}

func (v *AnswerView) Event(ev protocol.Event, _ []byte) {
	switch ev := ev.(type) {
	case protocol.MessageEnd:
		if ev.Role == "assistant" {
			v.text = ev.Text
		}
	case protocol.Warning:
		v.Console.Notef("warning: %s", ev.Message)
	case protocol.AgentEnd:
		switch {
		case ev.StopReason == protocol.StopCompleted:
			v.Console.Println(format.JSONAnswer(v.text))
		case v.text != "":
			v.Console.Notef("%s", v.text)
		}
		v.Console.explainEnd(ev)
	}
}

// fileFailed is a file that cannot be written, which is no fault of the command line.
func fileFailed(flag, path string, err error) error {
	if wrong := (*os.PathError)(nil); errors.As(err, &wrong) {
		err = wrong.Err
	}
	return errors.New("--" + flag + " " + path + ": " + err.Error())
}

// IsDenied reports a call that was not made as a rule, a person or nobody allowed it.
func IsDenied(ev protocol.ToolEnd) bool {
	return ev.Error != nil && (ev.Error.Code == "denied" || ev.Error.Code == "forbidden")
}

func noDaemon(err error) bool {
	var gone *client.NoDaemonError
	return errors.As(err, &gone)
}
