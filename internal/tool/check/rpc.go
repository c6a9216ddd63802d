package check

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	jsonx "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/protocol"
	"noused/internal/tool"
)

// rpcClauses are the clauses of JSON-RPC 2.0 as JSON lines, in the words of the
// protocol that is built on it.
type rpcClauses struct {
	json, utf8, long, version, id, either, fault *clause
}

// exchange reads what comes from a request on until its reply, in JSON-RPC. It
// runs nothing. Notifications go to notify, which says whether it knows the
// method.
type exchange struct {
	*sheet
	rules  rpcClauses
	id     int
	notify func(method string, params jsontext.Value) string
	mayAsk bool // requests to the caller are allowed

	answered bool
	result   jsontext.Value // nil for an error
	code     string         // of an error, its number
	failure  map[string]jsontext.Value
}

// line reads one line; further ones are read once the reply is there, too.
func (x *exchange) line(line []byte) {
	if !x.test(x.rules.utf8, ifNot(utf8.Valid(line), quote(line))) {
		return
	}
	m, ok := object(line)
	if !x.test(x.rules.json, ifNot(ok, quote(line))) {
		return
	}
	version, _ := tool.Text(m["jsonrpc"])
	x.test(x.rules.version, ifNot(version == "2.0", quote(line)))
	if v, ok := m["method"]; ok {
		x.notification(v, m, line)
		return
	}
	if !given(m["result"]) && !given(m["error"]) {
		x.fail(x.rules.either, "%s", quote(line))
	}
	switch reason := x.mine(m["id"]); {
	case x.answered:
		x.fail(x.rules.id, "one more reply than requests: %s", quote(line))
		return
	case reason != "":
		x.fail(x.rules.id, "%s: %s", reason, quote(line))
		if k := m["id"].Kind(); k == '0' || k == 'n' { // another request's, or nobody's
			return
		}
	default:
		x.hold(x.rules.id)
	}
	x.reply(m, line)
}

// notification reads a message that has a method.
func (x *exchange) notification(v jsontext.Value, m map[string]jsontext.Value, line []byte) {
	method, ok := tool.Text(v)
	switch {
	case !ok:
		x.fail(x.rules.json, "method is no string: %s", quote(line))
	case given(m["id"]) && x.mayAsk:
	case given(m["id"]):
		x.fail(x.rules.json, "a request to the caller, which answers none: %s", quote(line))
	default:
		if reason := x.notify(method, m["params"]); reason != "" {
			x.fail(x.rules.json, "%s: %s", reason, quote(line))
		}
	}
}

func (x *exchange) reply(m map[string]jsontext.Value, line []byte) {
	x.answered = true
	_, hasResult := m["result"]
	_, hasError := m["error"]
	x.test(x.rules.either, ifNot(hasResult != hasError, quote(line)))
	if !given(m["error"]) {
		x.result = m["result"]
		return
	}
	e, ok := object(m["error"])
	x.failure = e
	var code int64
	reason := needText(e, "message")
	if reason == "" && (e["code"].Kind() != '0' || jsonx.Unmarshal(e["code"], &code) != nil) {
		reason = "code is " + quote(tool.Shorten(e["code"])) + ", want a whole number"
	}
	if x.test(x.rules.fault, first(ifNot(ok, "error is "+quote(tool.Shorten(m["error"]))), reason)) {
		x.code = strconv.FormatInt(code, 10)
	}
}

// mine says why an id is not the request's, "" if it is.
func (x *exchange) mine(id jsontext.Value) string {
	n, err := strconv.ParseFloat(string(id), 64)
	if id.Kind() != '0' || err != nil || n != float64(x.id) {
		return fmt.Sprintf("id is %s, want %d", quote(tool.Shorten(id)), x.id)
	}
	return ""
}

// wire is a request or notification.
type wire struct {
	Version string `json:"jsonrpc"`
	ID      int    `json:"id,omitzero"`
	Method  string `json:"method"`
	Params  any    `json:"params"`
}

// send writes a message.
func (c *child) send(w wire) error {
	line, err := jsonx.Marshal(w, jsonx.Deterministic(true))
	if err != nil {
		return err
	}
	return c.proc.Send(append(line, '\n'))
}

// await reads lines until the request is answered. An error says why it is not.
func (c *child) await(ctx context.Context, x *exchange, limit time.Duration) error {
	ctx, cancel := tool.WithTimeout(ctx, limit)
	defer cancel()
	for !x.answered {
		line, err := c.next(ctx)
		var long *protocol.LineTooLongError
		switch {
		case errors.As(err, &long):
			x.fail(x.rules.long, "%v: %s", err, quote(long.Prefix))
			return err
		case err != nil:
			return err
		}
		x.hold(x.rules.long)
		x.line(line)
	}
	return nil
}
