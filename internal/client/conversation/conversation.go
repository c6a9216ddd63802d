// Package conversation folds a session's entries and its events into the
// conversation that a client shows: what was said, the calls of tools with their
// results, and how each run ended. The entries of get_messages and the live events
// of the same moments make the same conversation.
//
// Concurrency: a Conversation belongs to one goroutine.
//
// It refuses to talk to the daemon, and to know how anything looks.
package conversation

import (
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/protocol"
)

// A View learns what changes. Its methods may read the conversation, and not change it.
type View interface {
	// Emptied is told before a Load, and by Clear.
	Emptied()
	// Inserted reports a new entry, and where it stands.
	Inserted(e *Entry, at int)
	// Grew tells that an entry's text is longer and nothing else is another.
	Grew(e *Entry)
	// Changed reports any other change of an entry.
	Changed(e *Entry)
	// Dropped tells that the first n entries are one now, which says so.
	Dropped(n int)
	// Noticed tells what the daemon says by the way. Kind is "error", "warning" or "status".
	Noticed(kind, text string)
}

// Conversation is of one session. Make it with [New].
type Conversation struct {
	view    View
	entries []*Entry
	known   map[string]*Entry  // by key
	said    map[string]bool    // messages that are over
	open    []*Entry           // calls without a result
	run     runTotals          // of the run that is shown last
	ended   map[string]*Ending // while it is loaded: how the runs ended of which the daemon said it
	asides  int                // to tell them apart
	loading bool               // changes are told when it is over
}

// New returns an empty conversation.
func New(view View) *Conversation {
	c := &Conversation{view: view}
	c.Clear()
	return c
}

// Clear forgets everything: the next Load is of another session, which may have
// the same runs and calls and another end of them.
func (c *Conversation) Clear() {
	c.entries, c.open, c.run = nil, nil, runTotals{}
	c.known, c.said = map[string]*Entry{}, map[string]bool{}
	c.view.Emptied()
}

// Entries are the conversation's own: only to be read, until the next change.
func (c *Conversation) Entries() []*Entry { return c.entries }

// message is an entry of get_messages, of whichever type.
type message struct {
	protocol.Message
	Summary      string `json:"summary"`
	TokensBefore int64  `json:"tokens_before"`
	TokensAfter  int64  `json:"tokens_after"`
}

// runTotals is what is known of the run that is shown last.
type runTotals struct {
	id     string
	kind   protocol.Kind // of its turn
	calls  int           // of the model
	usage  protocol.Usage
	begun  bool // something of it was shown
	closed bool // its end was
}

// Load replaces everything by what get_messages told, and the message that was
// being streamed then. An entry of an unknown type is shown as such. What live
// events said of the same entries and get_messages does not have (what a tool wrote
// while it ran; of an older daemon, how a run ended) stays. An entry that cannot be
// read is shown as it is; the error is that of the first.
func (c *Conversation) Load(messages []jsontext.Value, ended []protocol.EndedRun, partial *protocol.Partial) error {
	old := c.known
	c.Clear()
	c.loading = true
	c.ended = make(map[string]*Ending, len(ended))
	for _, run := range ended {
		c.ended[run.RunID] = endingOf(run)
	}
	c.entries = make([]*Entry, 0, len(messages)+16)
	var first error
	for i, raw := range messages {
		var m message
		if err := json.Unmarshal(raw, &m); err != nil {
			if first == nil {
				first = fmt.Errorf("entry %d of get_messages: %w", i, err)
			}
			m = message{}
		}
		c.load(i, m, raw, old)
	}
	if partial != nil && partial.MessageID != "" && !c.said[partial.MessageID] {
		e := c.messageEntry(Assistant, partial.MessageID)
		e.Live = true
		e.Text.Add(partial.Text)
	}
	if old["r:"+c.run.id] != nil || c.ended[c.run.id] != nil {
		c.leaveRun(old)
	}
	c.ended = nil // of the runs that end from now on, events tell
	for key, e := range c.known {
		if was := old[key]; was != nil {
			e.inherit(was)
		}
	}
	c.loading = false
	for _, e := range c.entries {
		c.view.Changed(e)
	}
	return first
}

// SetRunning says of a session that was just loaded whether it has an active
// run: then the first of its tool calls without a result is running, else none
// of them gets one and the last run is over.
func (c *Conversation) SetRunning(active bool) {
	switch {
	case !active:
		c.loseCalls()
		c.leaveRun(nil)
	case len(c.open) > 0 && c.open[0].Call.State == Waiting:
		c.open[0].Call.State = Running
		c.changed(c.open[0])
	}
}

// SetLastRun tells how the latest run of a session that was just loaded ended,
// which no entry does.
func (c *Conversation) SetLastRun(last protocol.LastRun) {
	if e := c.known["r:"+last.RunID]; e != nil && e.End.Err == nil {
		e.End.Reason, e.End.Err = last.StopReason, last.Error
		c.changed(e)
	}
}

// Aside adds a text of the client's own, and returns its key. It is there until the next Load.
func (c *Conversation) Aside(text string) (key string) {
	c.asides++
	e := &Entry{Kind: Aside, Key: fmt.Sprint("n:", c.asides)}
	e.Text.Add(text)
	c.insert(e, nil)
	return e.Key
}

// Amend gives an Aside another text, and tells whether it is still there.
func (c *Conversation) Amend(key, text string) (there bool) {
	e := c.known[key]
	if e == nil || e.Kind != Aside {
		return false
	}
	e.Text.set(text)
	c.changed(e)
	return true
}

func (c *Conversation) load(i int, m message, raw jsontext.Value, old map[string]*Entry) {
	if m.RunID != "" && m.RunID != c.run.id {
		c.leaveRun(old)
	}
	switch {
	case m.Type == "compaction":
		if m.RunID == "" { // of no run: the one before is over
			c.leaveRun(old)
		}
		e := c.add(Summary, "c:"+keyOr(m.ID, i))
		e.Before, e.After = m.TokensBefore, m.TokensAfter
		e.Text.Add(m.Summary)
	case m.Type != "message" && (m.Type != "" || m.Role == ""):
		c.addUnknown(i, raw)
	case m.Role == "user":
		if m.RunID == "" { // of no run: the one before is over
			c.leaveRun(old)
		}
		c.enterRun(m.RunID)
		c.loseCalls()
		c.userSaid(keyOr(m.ID, i), m.Text, m.TurnKind, m.Child).Attachments = m.Attachments
		c.said[m.ID] = true
	case m.Role == "assistant":
		c.enterRun(m.RunID)
		c.loseCalls()
		id := keyOr(m.ID, i)
		if m.Thinking != "" {
			c.messageEntry(Thinking, id).Text.Add(m.Thinking)
		}
		c.endAssistant(id, m.Text, m.StopReason, m.ToolCalls)
		c.run.calls++
		c.count(m.Usage)
	case m.Role == "tool":
		c.enterRun(m.RunID)
		e := c.call(m.ToolCallID, m.ToolName, nil)
		e.Call.ended(m.Text, m.Outputs)
		e.lasted(m.DurationMS)
		switch {
		case m.OK == nil || *m.OK:
			e.Call.State = Succeeded
		case m.NotRun == protocol.NotRunSteered:
			e.Call.State = Skipped
		case m.NotRun == protocol.NotRunAborted: // no event had a result
			e.Call.State, e.Call.Result = Lost, ""
		default:
			e.Call.State = Failed
		}
		c.closeCall(e)
	default:
		c.addUnknown(i, raw)
	}
}

func keyOr(id string, i int) string {
	if id == "" {
		return fmt.Sprint("entry ", i)
	}
	return id
}

func (c *Conversation) addUnknown(i int, raw jsontext.Value) {
	c.add(Unknown, fmt.Sprint("x:", i)).Text.Add(Bounded(string(raw)))
}

// add appends an empty entry, or returns the one that has the key.
func (c *Conversation) add(kind Kind, key string) *Entry {
	if e := c.known[key]; e != nil {
		return e
	}
	e := &Entry{Kind: kind, Key: key}
	c.insert(e, nil)
	return e
}

// messageEntry is a message's entry of one kind: what was thought stands before what
// was said.
func (c *Conversation) messageEntry(kind Kind, id string) *Entry {
	if kind != Thinking {
		return c.add(kind, "m:"+id)
	}
	if e := c.known["t:"+id]; e != nil {
		return e
	}
	e := &Entry{Kind: Thinking, Key: "t:" + id}
	c.insert(e, c.known["m:"+id])
	return e
}

// insert puts an entry before another one, or with nil at the end.
func (c *Conversation) insert(e, before *Entry) {
	c.known[e.Key] = e
	i := len(c.entries)
	for before != nil && c.entries[i-1] != before { // it is near the end
		i--
	}
	if before != nil {
		i--
	}
	c.entries = slices.Insert(c.entries, i, e)
	c.view.Inserted(e, i)
	if len(c.entries) > MaxEntries {
		c.drop(MaxEntries / 10)
	}
}

// drop lets the oldest entries go.
func (c *Conversation) drop(n int) {
	for _, e := range c.entries[:n] {
		delete(c.known, e.Key)
	}
	older := &Entry{Kind: Aside, Key: "older"}
	older.Text.Add("Older messages are not shown here; `nous messages` prints them all.")
	c.known[older.Key] = older
	c.entries = append([]*Entry{older}, c.entries[n:]...)
	c.view.Dropped(n)
}

// call is a call's entry.
func (c *Conversation) call(id, name string, args jsontext.Value) *Entry {
	e := c.known["k:"+id]
	if e == nil {
		e = &Entry{Kind: Tool, Key: "k:" + id, Call: &Call{}}
		c.insert(e, nil)
		c.open = append(c.open, e)
	}
	e.Call.Name = name
	if len(args) > 0 {
		e.Call.Arguments = args
	}
	return e
}

func (c *Conversation) changed(e *Entry) {
	if !c.loading {
		c.view.Changed(e)
	}
}

// closeCall notes that a call has its result.
func (c *Conversation) closeCall(e *Entry) {
	c.changed(e)
	if i := slices.Index(c.open, e); i >= 0 {
		c.open = slices.Delete(c.open, i, i+1)
	}
}

// loseCalls says of calls without a result that there will be none: something
// else came after them.
func (c *Conversation) loseCalls() {
	for _, e := range c.open {
		e.Call.State = Lost
		c.changed(e)
	}
	c.open = nil
}

// enterRun notes which run is shown.
func (c *Conversation) enterRun(id string) {
	if id == "" {
		return
	}
	if id != c.run.id {
		c.leaveRun(nil)
		c.run = runTotals{id: id, kind: protocol.KindPrompt}
	}
	c.run.begun = true
}

// leaveRun ends a run whose end was not seen, or seen before the last Load.
func (c *Conversation) leaveRun(old map[string]*Entry) {
	if !c.run.begun || c.run.closed {
		return
	}
	end := &Ending{Usage: c.run.usage}
	switch key := "r:" + c.run.id; {
	case c.ended[c.run.id] != nil:
		end = c.ended[c.run.id]
	case old[key] != nil:
		end = old[key].End
	}
	c.endRun(c.run.id, end)
}

// endRun ends a run that is not shown to have ended.
func (c *Conversation) endRun(id string, end *Ending) {
	c.run.closed = true
	if end.Calls == 0 {
		end.Calls = c.run.calls
	}
	if key := "r:" + id; c.known[key] == nil {
		c.insert(&Entry{Kind: RunEnd, Key: key, End: end}, nil)
	}
}

func (c *Conversation) count(u *protocol.Usage) {
	if u == nil {
		return
	}
	c.run.usage.InputTokens += u.InputTokens
	c.run.usage.OutputTokens += u.OutputTokens
	c.run.usage.CachedTokens += u.CachedTokens
	if u.Cost != nil {
		sum := *u.Cost
		if was := c.run.usage.Cost; was != nil {
			sum.Amount += was.Amount
		}
		c.run.usage.Cost = &sum
	}
}

// endAssistant completes an assistant's message.
func (c *Conversation) endAssistant(id, text string, stop protocol.StopReason, calls []protocol.ToolCall) {
	e := c.known["m:"+id]
	if e == nil && (text != "" || cutShort(stop)) {
		e = c.messageEntry(Assistant, id)
	}
	if e != nil {
		e.Text.set(text)
		e.StopReason, e.Live = stop, false
		c.changed(e)
	}
	c.endThought(id)
	c.said[id] = true
	for _, call := range calls {
		c.call(call.ID, call.Name, call.Arguments)
	}
}

func (c *Conversation) endThought(id string) {
	if e := c.known["t:"+id]; e != nil && e.Live {
		e.Live = false
		c.changed(e)
	}
}
