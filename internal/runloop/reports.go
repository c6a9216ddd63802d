package runloop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/budget"
	"noused/internal/model"
	"noused/internal/protocol"
	"noused/internal/session"
)

// What the loop's own work reports. Reports of another generation are stale.
type (
	deltaIn struct {
		gen   int
		delta model.Delta
	}
	modelDoneIn struct {
		gen int
		err error
	}
	// answerDoneIn is modelDoneIn with what the answer has of the daemon's memory, until
	// it is in the journal.
	answerDoneIn struct {
		modelDoneIn
		part *budget.Part
	}
	// noticeIn warns of something that the model call got over.
	noticeIn struct {
		gen     int
		code    protocol.Code
		message string
	}
	toolUpdateIn struct {
		gen    int
		update model.ToolUpdate
	}
	// outsideUpdateIn is told to who called the tool, too.
	outsideUpdateIn struct {
		toolUpdateIn
		outputID string
	}
	toolDoneIn struct {
		gen    int
		result model.ToolResult
	}
	// sideUpdateIn is what a tool says that runs outside any run. Its text is told only to
	// a client that named an outputID for it.
	sideUpdateIn struct {
		ticket   ticket
		update   model.ToolUpdate
		outputID string
	}
)

// weight is how many bytes an input brings that a model or a tool made, as far
// as maxReports counts them.
func weight(in input) int64 {
	n := 0
	switch in := in.(type) {
	case deltaIn:
		n = len(in.delta.Text) + len(in.delta.Thinking)
		if in.delta.ToolCall != nil {
			n += len(in.delta.ToolCall.Arguments)
		}
	case answerDoneIn: // it is made into records and events as a whole
		n = in.part.Size()
	case toolUpdateIn:
		n = weightOf(in.update)
	case outsideUpdateIn:
		n = weightOf(in.update)
	case sideUpdateIn:
		n = weightOf(in.update)
	case askIn:
		n = len(in.question.Message) + len(in.question.Schema)
	case agentIn:
		n = len(in.news.Patch) + len(in.news.Title) + len(in.news.Prompted) + len(in.news.Warning)
	case callIn:
		n = len(in.call.Arguments)
	case toolDoneIn:
		n = len(in.result.Text) + len(in.result.Value)
	case childDoneIn:
		n = len(in.result.Text) + len(in.result.Value)
	case childReportIn:
		n = len(in.text)
	case childRunIn:
		if in.start != nil {
			n = len(in.start.text)
		}
	}
	return int64(min(n, maxReports))
}

// jobEndedIn is a command in the background that has ended, perhaps before it was told to
// have started.
type jobEndedIn struct{ job model.Job }

func (in jobEndedIn) step(m *machine) {
	m.record(session.JobStarted{Job: in.job})
	m.publish(protocol.Status{Ref: protocol.Ref{SessionID: m.s.ID}, Code: protocol.StatusJobEnded, Message: in.job.ID +
		" has ended"})
}

// hasEnded reports that a job is known to have.
func (m *machine) hasEnded(job string) bool {
	return slices.ContainsFunc(m.s.Jobs, func(j model.Job) bool { return j.ID == job && j.Status != "" })
}

// JobEnded keeps how a session's job has ended. It blocks while the session is opened. A
// session that cannot be opened now forgets it.
func (h *Hub) JobEnded(sessionID string, job model.Job) {
	ctx, cancel := context.WithTimeout(context.Background(), jobPatience)
	defer cancel()
	l, release, err := h.acquire(ctx, sessionID)
	if err != nil {
		return
	}
	defer release()
	_ = l.post(ctx, jobEndedIn{job})
}

// jobPatience is how long the end of a job may wait for its session.
const jobPatience = 10 * time.Second

func weightOf(u model.ToolUpdate) int {
	n := len(u.Delta) + len(u.Update) + len(u.Patch)
	if u.Asset != nil {
		n += len(u.Asset.Metadata)
	}
	return n
}

func (in deltaIn) step(m *machine) {
	if in.gen != m.gen {
		return
	}
	d := in.delta
	switch m.phase {
	case compacting:
		if m.compact.size += sizeOf(d); m.compact.size > maxAnswer {
			m.cancel()
			m.endCompaction(errTooMuch)
			return
		}
		m.compact.text.WriteString(d.Text)
		if d.Notice != nil {
			m.notice(d.Notice)
		}
		if d.Stop != "" {
			m.compact.stop = d.Stop
		}
		if d.Usage != (model.Usage{}) {
			m.compact.usage = m.compact.usage.Add(d.Usage.Believed()) // with that of attempts that failed
		}
	case streaming:
		if m.msg.size += sizeOf(d); m.msg.size > maxAnswer {
			m.cancel()
			m.failed(errTooMuch)
			return
		}
		if d.ToolCall != nil && len(m.msg.calls) == session.MaxCalls {
			m.cancel()
			m.failed(errTooManyCalls)
			return
		}
		m.stream(d)
	}
}

// maxAnswer bounds a model's answer as JSON, in bytes: with what a record says
// beside it, it fits into a line of the journal (session's maxRecord).
const maxAnswer = 60 << 20

var errTooMuch = fmt.Errorf("the model's answer would take more than %d MiB in the session's journal", maxAnswer>>20)

var errTooManyCalls = fmt.Errorf("the model's answer has more than %d tool calls", session.MaxCalls)

// sizeOf is how much a delta takes as JSON, in bytes, or a little more. Text is
// six times as long where every character has to be escaped.
func sizeOf(d model.Delta) int {
	n := protocol.QuotedSize(d.Text) + protocol.QuotedSize(d.Thinking)
	if c := d.ToolCall; c != nil {
		n += len(rawObject(c.Arguments)) + len(c.ID) + protocol.QuotedSize(c.Name)
	}
	for _, b := range d.Blocks {
		n += len(b.Data) + protocol.QuotedSize(b.ID) + blockSize
	}
	return n
}

// blockSize is how much a block takes as JSON beside its id and its data, in
// bytes, or a little more.
const blockSize = 80

func (m *machine) stream(d model.Delta) {
	switch {
	case d.Text != "":
		m.startMessage()
		m.msg.text.WriteString(d.Text)
		m.out.said = append(m.out.said, session.Piece{Text: d.Text})
		m.publish(protocol.MessageUpdate{Ref: m.turnRef(), MessageID: m.msg.id, Delta: d.Text})
	case d.Thinking != "":
		m.startMessage()
		m.msg.thinking.WriteString(d.Thinking)
		m.out.said = append(m.out.said, session.Piece{Thinking: d.Thinking})
		m.publish(protocol.MessageUpdate{Ref: m.turnRef(), MessageID: m.msg.id, ThinkingDelta: d.Thinking})
	case d.Notice != nil:
		m.notice(d.Notice)
	case d.ToolCall != nil:
		m.startMessage()
		call := *d.ToolCall
		if !m.hosted() { // a provider's own need not be unique
			call.ID = m.newID("call-")
		}
		if len(call.Arguments) == 0 {
			call.Arguments = []byte("{}")
		}
		call.Arguments = []byte(rawObject(call.Arguments))
		m.msg.calls = append(m.msg.calls, call)
	}
	if d.Stop != "" {
		m.msg.stop, m.msg.maker, m.msg.blocks, m.msg.more = d.Stop, d.Maker, d.Blocks, d.More
	}
	switch used := d.Usage.Believed(); {
	case used == (model.Usage{}):
	case d.Stop == "": // of an attempt that failed: nothing of it is in the conversation
		m.record(session.Spent(m.s.Run.ID, used))
	default:
		m.msg.usage = used
	}
}

func (m *machine) notice(n *model.Notice) {
	m.publish(protocol.Warning{
		Ref: m.ref(), Code: protocol.Code(n.Code), Message: n.Message, Attempt: n.Attempt, Attempts: n.Most,
		DelayMS: n.Delay.Milliseconds(),
	})
}

func (in noticeIn) step(m *machine) {
	if in.gen == m.gen && m.phase == streaming {
		m.publish(protocol.Warning{Ref: m.turnRef(), Code: in.code, Message: in.message})
	}
}

func (in modelDoneIn) step(m *machine) {
	switch {
	case in.gen != m.gen:
		return
	case m.phase == compacting:
		m.endCompaction(in.err)
		return
	case m.phase != streaming:
		return
	case m.hosted():
		m.agentDone(in.err)
		return
	}
	err := in.err
	if err == nil && m.msg.stop == "" {
		err = fmt.Errorf("the model's stream broke off without a stop reason")
	}
	switch {
	case err != nil:
		m.failed(err)
	case m.saidNothing() && !m.trouble.empty:
		m.trouble.empty = true
		m.startMessage() // for its usage
		m.endMessage(model.StopError)
		m.callModel()
	default:
		m.startMessage()
		m.endMessage(m.msg.stop)
		m.afterMessage()
	}
}

func providerError(err error) *protocol.Error {
	code := protocol.ProviderError
	switch {
	case errors.Is(err, model.ErrRefused):
		code = protocol.Refused
	case errors.Is(err, model.ErrKey):
		code = protocol.KeyRefused
	case errors.As(err, new(*unreadError)):
		code = protocol.SessionError
	}
	if failed := new(model.AgentError); errors.As(err, &failed) {
		code = protocol.Code(failed.Code)
	}
	return &protocol.Error{Code: code, Message: err.Error()}
}

// afterMessage goes on from a whole assistant message.
func (m *machine) afterMessage() {
	m.accepted()
	if len(m.s.Run.Calls) > 0 {
		m.nextCall()
		return
	}
	if m.saidNothing() {
		m.publish(protocol.Warning{
			Ref: m.turnRef(), Code: protocol.WarningEmptyAnswer,
			Message: "the model gave an empty answer twice",
		})
	}
	m.endAnswered()
}

func (in toolUpdateIn) step(m *machine) {
	if in.gen != m.gen || m.phase != calling {
		return
	}
	u := in.update
	if m.warned(m.turnRef(), m.call.ID, u) {
		return
	}
	m.said = m.said || u.Delta != ""
	m.publish(protocol.ToolUpdate{
		Ref: m.turnRef(), ToolCallID: m.call.ID, ToolName: m.call.Name, Delta: u.Delta,
		Update: rawValue(u.Update),
	})
}

func (in outsideUpdateIn) step(m *machine) {
	in.toolUpdateIn.step(m)
	if in.gen == m.gen && m.phase == calling {
		m.tellOutput(m.turnRef(), in.outputID, in.update)
	}
}

func (in sideUpdateIn) step(m *machine) {
	at := protocol.Ref{SessionID: m.s.ID}
	m.warned(at, "", in.update)
	m.tellOutput(at, in.outputID, in.update)
	m.reply(in.ticket, nil)
}

// tellOutput tells what a tool says to the client that has named an output_id for it.
func (m *machine) tellOutput(at protocol.Ref, outputID string, u model.ToolUpdate) {
	if outputID != "" && u.Delta != "" && u.Warning == "" {
		m.publish(protocol.Status{Ref: at, Code: protocol.StatusOperationOutput, Message: u.Delta, OutputID: outputID})
	}
}

// warned keeps what an update changes in the session, and tells in a warning what
// of it is refused.
func (m *machine) warned(at protocol.Ref, callID string, u model.ToolUpdate) bool {
	code, why := m.keepUpdate(u)
	if u.Warning != "" {
		m.publish(protocol.Warning{Ref: at, Code: protocol.Code(u.Warning), Message: u.Delta, ToolCallID: callID})
	}
	if code != "" {
		m.publish(protocol.Warning{Ref: at, Code: code, Message: why, ToolCallID: callID})
	}
	return u.Warning != "" || code != ""
}

// keepUpdate records what an update changes, or returns why it does not: the
// session would hold too much. What makes a state smaller is always kept.
func (m *machine) keepUpdate(u model.ToolUpdate) (code protocol.Code, why string) {
	if patch := rawValue(u.Patch); patch.Kind() == jsontext.KindBeginObject {
		size, err := m.s.AfterPatch(patch)
		switch {
		case err != nil:
			return protocol.WarningStatePatchInvalid, fmt.Sprintf("the patch of the session's state is not kept: %v", err)
		case size > max(maxState, m.s.PatchedSize()):
			return protocol.WarningStateTooLarge,
				fmt.Sprintf(
					"the patch of the session's state is not kept: the state would have %d bytes, at most %d (%d MiB) are allowed",
					size, maxState, maxState>>20)
		}
		m.record(session.Patched{Patch: patch})
	}
	if u.Job != nil && !m.hasEnded(u.Job.ID) {
		m.record(session.JobStarted{Job: model.Job{ID: u.Job.ID, Command: u.Job.Command, OutputPath: u.Job.OutputPath}})
	}
	if u.Asset != nil {
		asset := *u.Asset
		asset.Metadata = []byte(rawValue(asset.Metadata))
		if size := m.s.AssetsSize() + session.AssetSize(asset); size > maxAssets {
			return protocol.WarningAssetsTooLarge, fmt.Sprintf("the asset %.80q is not kept: what is known of the session's "+
				"assets, their metadata included, would have %d bytes, at most %d (%d MiB) are allowed", asset.ID, size, maxAssets,
				maxAssets>>20)
		}
		m.record(session.AssetAdded{Asset: asset})
	}
	return "", ""
}

func (in toolDoneIn) step(m *machine) {
	if in.gen != m.gen || m.phase != calling {
		return
	}
	if in.result.Paused && m.draining {
		m.parkCall()
		return
	}
	m.withdraw(protocol.ByCall)
	m.endCall(m.call, in.result, false, m.now.Sub(m.since))
	m.call = model.ToolCall{} // its arguments may be long
	if m.s.Run.Aborting {
		m.finishAbort()
		return
	}
	m.afterCall()
}

// maxDepth bounds the nesting of JSON that a model or a tool made: it is kept
// and told inside other JSON, which has a limit of its own.
const maxDepth = 1000

// sound reports that v can be put into a record and an event.
func sound(v jsontext.Value) bool {
	dec := jsontext.NewDecoder(bytes.NewReader(v))
	for {
		switch _, err := dec.ReadToken(); {
		case err != nil:
			return false
		case dec.StackDepth() > maxDepth:
			return false
		case dec.StackDepth() == 0:
			_, err := dec.ReadToken()
			return errors.Is(err, io.EOF)
		}
	}
}

// rawObject is a tool call's arguments as the journal keeps them, so that they
// are the same after a restart; what is not sound JSON goes as a string, so that
// people can read what the model wrote.
func rawObject(arguments []byte) jsontext.Value {
	if v := jsontext.Value(arguments); !spaced(v) && sound(v) {
		return v
	}
	if v := jsontext.Value(arguments).Clone(); sound(v) && v.Compact() == nil {
		return v
	}
	quoted, _ := jsontext.AppendQuote(nil, strings.ToValidUTF8(string(arguments), "\uFFFD"))
	return quoted
}

// spaced reports whether there are blanks between the values of a JSON text.
func spaced(v []byte) bool {
	for i := 0; i < len(v); i++ {
		switch v[i] {
		case ' ', '\t', '\r', '\n':
			return true
		case '"':
			for i++; i < len(v) && v[i] != '"'; i++ {
				if v[i] == '\\' {
					i++
				}
			}
		}
	}
	return false
}

// soundBlocks are the blocks of a message, none where a maker attached what
// cannot be put into a record: the message is then its text and its calls.
func soundBlocks(blocks []model.Block) []model.Block {
	for _, b := range blocks {
		if b.Data != nil && !sound(jsontext.Value(b.Data)) {
			return nil
		}
	}
	return blocks
}

// rawValue is a tool's own JSON, left out when it is not sound.
func rawValue(v []byte) jsontext.Value {
	if !sound(v) {
		return nil
	}
	return v
}
