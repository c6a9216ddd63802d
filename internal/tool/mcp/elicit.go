package mcp

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	jsonx "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"noused/internal/jsonschema"
	"noused/internal/model"
	"noused/internal/tool"
)

// maxRounds is how many times one call may come back for what it wants to know.
const maxRounds = 10

// asksUser has the forms of a server go to the caller, and past the SDK,
// which would resolve their schemas. A panic over something that a server asks is
// an error to it.
func (l *link) asksUser(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (answer sdk.Result, err error) {
		err = l.guarded(func() (err error) {
			r, ok := req.(*sdk.ElicitRequest)
			if !ok {
				answer, err = next(ctx, method, req)
				return err
			}
			a, err := l.oldest().elicit(ctx, r.Params)
			if err == nil {
				answer = a
			}
			return err
		})
		return answer, err
	}
}

// noForms is what the SDK wants to be given to offer forms. It is never asked.
func noForms(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
	return &sdk.ElicitResult{Action: model.Decline}, nil
}

// oldest is the call that a form is taken to be of, since no server names it: of
// several the one that was made first. Nil: there is none.
func (l *link) oldest() (first *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.calls {
		if first == nil || c.number < first.number {
			first = c
		}
	}
	return first
}

// elicit puts a form to the user, and waits. Without a call nobody is asked.
func (c *call) elicit(ctx context.Context, p *sdk.ElicitParams) (*sdk.ElicitResult, error) {
	switch {
	case p == nil:
		return nil, notForm(errors.New("the request has no params"))
	case p.Mode != "" && p.Mode != "form", p.URL != "":
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "only forms are shown here, no addresses"}
	case c == nil || c.inv.Ask == nil:
		return &sdk.ElicitResult{Action: model.Decline}, nil
	}
	schema, err := formOf(p.RequestedSchema)
	if err != nil {
		return nil, notForm(err)
	}
	c.answer.taken() // a person may take their time
	c.waits(1)
	defer c.waits(-1)
	a, err := c.inv.Ask(ctx, model.Question{Message: p.Message, Schema: schema})
	if err != nil {
		return nil, notForm(err)
	}
	r := &sdk.ElicitResult{Action: a.Action}
	if len(a.Content) > 0 {
		v, err := jsonschema.Decode(a.Content)
		if err != nil {
			return nil, err
		}
		r.Content, _ = v.(map[string]any)
	}
	return r, nil
}

func notForm(err error) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "not asked: " + err.Error()}
}

// formOf is a form's schema as the server wrote it, or as near to that as the SDK
// has it.
func formOf(v any) ([]byte, error) {
	if text, ok := v.(string); ok {
		return []byte(text), nil
	}
	return jsonx.Marshal(v, jsonx.Deterministic(true))
}

// keepForm makes a text of a form's schema: the SDK would lose the order of its
// fields. What it cannot read it leaves to the SDK.
func keepForm(params []byte) []byte {
	d := jsontext.NewDecoder(bytes.NewReader(params))
	if begin, err := d.ReadToken(); err != nil || begin.Kind() != '{' {
		return params
	}
	out := []byte{'{'}
	for d.PeekKind() == '"' {
		name, err := d.ReadValue()
		if err != nil {
			return params
		}
		quoted, schema := bytes.Clone(name), string(name) == `"requestedSchema"`
		value, err := d.ReadValue()
		if err != nil {
			return params
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(out, quoted...), ':')
		if schema {
			out, _ = jsontext.AppendQuote(out, value)
		} else {
			out = append(out, value...)
		}
	}
	if _, err := d.ReadToken(); err != nil {
		return params
	}
	return append(out, '}')
}

// callTool makes the call, and again with what it wants to know for as long as it
// says that it wants to know something.
func (c *call) callTool(ctx context.Context, p *sdk.CallToolParams) (*sdk.CallToolResult, error) {
	for range maxRounds {
		r, err := c.l.session.CallTool(ctx, p)
		if err != nil || len(r.InputRequests) == 0 {
			return r, err
		}
		p.InputResponses, p.RequestState = sdk.InputResponseMap{}, r.RequestState
		for _, id := range slices.Sorted(maps.Keys(r.InputRequests)) {
			form, ok := r.InputRequests[id].(*sdk.ElicitParams)
			if !ok {
				return nil, tool.Faultf(tool.ProtocolError, "the server wants something that it was not offered: %T",
					r.InputRequests[id])
			}
			a, err := c.elicit(ctx, form)
			if err != nil {
				return nil, err
			}
			p.InputResponses[id] = a
		}
	}
	return nil, tool.Faultf(tool.ProtocolError, "the server came back %d times for something it wants to know", maxRounds)
}

// waits says that one more form of the call waits for the user, or one less.
func (c *call) waits(n int) {
	select {
	case c.asking <- n:
	case <-c.over:
	}
}

// clock is the time of a call. It stands while a form waits.
type clock struct {
	timeout     time.Duration
	idle, whole *time.Timer
	from        time.Time     // when it began to run, last
	left        time.Duration // of the whole then
	forms       int
}

func newClock(timeout, most time.Duration) *clock {
	return &clock{timeout: timeout, idle: time.NewTimer(timeout), whole: time.NewTimer(most), from: time.Now(), left: most}
}

func (k *clock) stop() {
	k.idle.Stop()
	k.whole.Stop()
}

// progress has the idle time begin anew.
func (k *clock) progress() {
	if k.forms == 0 {
		k.idle.Reset(k.timeout)
	}
}

// wait takes in that n more forms wait.
func (k *clock) wait(n int) {
	before := k.forms
	k.forms += n
	switch {
	case before == 0 && k.forms > 0:
		k.stop()
		k.left -= time.Since(k.from)
	case before > 0 && k.forms == 0:
		k.from = time.Now()
		k.idle.Reset(k.timeout)
		k.whole.Reset(max(k.left, 0))
	}
}
