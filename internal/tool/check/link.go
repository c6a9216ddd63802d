package check

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	jsonx "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/protocol"
	"noused/internal/tool"
)

// link is the way to a module, whatever its transport and framing.
type link interface {
	// ask sends health, describe or invoke, and returns the reply, a JSON object.
	// inv is nil but for invoke. An error says why there is no reply; a *tool.Fault
	// with code unreachable that there cannot be one.
	request(ctx context.Context, method string, inv *invoke, limit time.Duration) (jsontext.Value, error)
	// close ends it, and says what came that was not asked for, and which
	// processes were left running.
	close() (surplus string, left []string)
}

// dial opens the way to the descriptor's module.
func (r *runner) dial(ctx context.Context, s *sheet) (link, error) {
	if r.desc.Transport.Type == "http" {
		return newWebLink(r.desc, s)
	}
	c, err := r.start(ctx)
	if err != nil {
		return nil, err
	}
	return &pipeLink{child: c, sheet: s, jsonrpc: r.desc.Framing == tool.FramingJSONRPC}, nil
}

// pipeLink is a process spoken with over stdio. After a request without a reply
// no other is answered.
type pipeLink struct {
	*child
	sheet   *sheet
	jsonrpc bool
	id      int
	broken  error
	surplus string
}

func (l *pipeLink) request(ctx context.Context, method string, inv *invoke, limit time.Duration) (jsontext.Value,
	error,
) {
	if l.broken != nil {
		return nil, l.broken
	}
	reply, err := l.exchange(ctx, method, inv, limit)
	if err != nil {
		l.broken = fmt.Errorf("no reply to %s before: %w", method, err)
		return nil, err
	}
	return reply, nil
}

func (l *pipeLink) exchange(ctx context.Context, method string, inv *invoke, limit time.Duration) (jsontext.Value,
	error,
) {
	if l.jsonrpc {
		return l.call(ctx, method, inv, limit)
	}
	request := struct {
		Op        string         `json:"op"`
		Args      jsontext.Value `json:"args,omitzero"`
		SessionID string         `json:"session_id,omitzero"`
		Method    string         `json:"method"`
	}{Op: method, Method: method}
	if inv != nil {
		request.Op, request.Args, request.SessionID = inv.Op, inv.Args, inv.SessionID
	}
	line, err := jsonx.Marshal(request)
	if err != nil {
		return nil, err
	}
	if err := l.proc.Send(append(line, '\n')); err != nil {
		return nil, err
	}
	ctx, cancel := tool.WithTimeout(ctx, limit)
	defer cancel()
	reply, err := l.next(ctx)
	if err != nil {
		return nil, l.explain(err)
	}
	if reason := replyFault(reply); reason != "" {
		l.sheet.fail(mReply, "%s: %s", method, reason)
		return nil, errors.New(reason)
	}
	l.sheet.hold(mReply)
	return reply, nil
}

func (l *pipeLink) call(ctx context.Context, method string, inv *invoke, limit time.Duration) (jsontext.Value, error) {
	l.id++
	x := &exchange{sheet: l.sheet, rules: mRPC, id: l.id, notify: func(method string, _ jsontext.Value) string {
		return "a notification nobody asked for"
	}}
	params := any(struct{}{})
	if inv != nil {
		params = inv
	}
	if err := l.send(wire{"2.0", x.id, method, params}); err != nil {
		return nil, err
	}
	switch err := l.await(ctx, x, limit); {
	case err != nil:
		return nil, l.explain(err)
	case x.result != nil:
		return x.result, nil
	case x.failure == nil:
		return nil, errors.New("the reply has neither a result nor an error")
	}
	// An error of JSON-RPC stands for one of the module's own.
	e, err := jsonx.Marshal(map[string]any{"ok": false, "error": x.failure})
	return e, err
}

// explain ends a process that did not answer and says how it ended.
func (l *pipeLink) explain(err error) error {
	if errors.Is(err, errEnded) {
		select {
		case <-l.proc.Exited():
		case <-time.After(exitTime): // it closed its output and lives on
		}
		return fmt.Errorf("%w; stderr ends: %s", err, quote(l.proc.Stderr(shownStderr)))
	}
	return err
}

func (l *pipeLink) close() (string, []string) {
	l.proc.CloseInput()
	ctx, cancel := tool.WithTimeout(context.Background(), exitTime)
	defer cancel()
	for l.broken == nil {
		line, err := l.next(ctx)
		if err != nil {
			break
		}
		if l.surplus == "" {
			l.surplus = quote(line)
		}
	}
	e := l.finish(0)
	return l.surplus, e.left
}

// replyFault says what is wrong with a reply as such.
func replyFault(reply []byte) string {
	if !utf8.Valid(reply) {
		return "the reply is not UTF-8: " + quote(reply)
	}
	if _, ok := object(reply); !ok {
		return "the reply is not a JSON object: " + quote(reply)
	}
	return ""
}

// webLink is a module over HTTP.
type webLink struct {
	client *http.Client
	base   string
	limit  int
	sheet  *sheet
}

func newWebLink(d *tool.Descriptor, s *sheet) (*webLink, error) {
	u, err := url.Parse(d.Transport.URL)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{}
	base := strings.TrimSuffix(d.Transport.URL, "/")
	if u.Scheme == "unix" {
		base = "http://module"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", u.Path)
		}
	}
	return &webLink{&http.Client{Transport: transport}, base, d.MaxOutput, s}, nil
}

func (l *webLink) request(ctx context.Context, method string, inv *invoke, limit time.Duration) (jsontext.Value,
	error,
) {
	ctx, cancel := tool.WithTimeout(ctx, limit)
	defer cancel()
	body := any(struct{}{})
	if inv != nil {
		body = inv
	}
	text, err := jsonx.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.base+"/"+method, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := l.client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, tool.Interrupted(ctx)
		}
		var op *net.OpError
		if errors.As(err, &op) && op.Op == "dial" {
			return nil, tool.Faultf(tool.Unreachable, "cannot reach the module: %v", err)
		}
		return nil, err
	}
	defer resp.Body.Close()
	reply, err := io.ReadAll(io.LimitReader(resp.Body, int64(l.limit)+1))
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, tool.Interrupted(ctx)
	case err != nil:
		return nil, err
	case len(reply) > l.limit:
		return nil, &protocol.LineTooLongError{Limit: l.limit}
	}
	reason := replyFault(reply)
	if reason == "" && inv == nil && resp.StatusCode != http.StatusOK {
		reason = "status " + resp.Status
	}
	if reason != "" {
		l.sheet.fail(mReply, "POST /%s: %s", method, reason)
		return nil, errors.New(reason)
	}
	l.sheet.hold(mReply)
	return reply, nil
}

func (l *webLink) close() (string, []string) {
	l.client.CloseIdleConnections()
	return "", nil
}
