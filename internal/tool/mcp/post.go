package mcp

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"

	jsonx "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"noused/internal/format"
	"noused/internal/oauth"
	"noused/internal/proc"
	"noused/internal/tool"
)

const (
	// maxRefusal is how much is read of an answer that says no, in bytes.
	maxRefusal = 16 << 10
	// maxSession is how long the name of a session may be, in bytes.
	maxSession = 1 << 10
)

// rejected is an error of one message, which leaves the SDK's connection alone: it
// knows that by the code.
type rejected struct{ error }

func (rejected) Is(target error) bool {
	const rejectedByTransport = -32005
	said, ok := target.(*jsonrpc.Error)
	return ok && said.Code == rejectedByTransport
}

func (r rejected) Unwrap() error { return r.error }

// notify sends what is no call, and waits until it is accepted.
func (r *remote) notify(ctx context.Context, msg jsonrpc.Message, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	defer context.AfterFunc(r.ctx, cancel)()
	resp, err := r.send(ctx, http.MethodPost, msg, body, nil)
	if err == nil {
		_ = resp.Body.Close()
		if resp.StatusCode/100 != 2 {
			err = r.refusal(resp, nil)
		}
	}
	if err != nil {
		return rejected{err}
	}
	return nil
}

// call makes a call and hands what comes of it to the SDK.
func (r *remote) call(ctx context.Context, req *jsonrpc.Request, body []byte) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.ctx, cancel)()
	err := r.request(ctx, req, body)
	var loss brokenOff
	if errors.As(err, &loss) && !optional(req) {
		r.lost()
	}
	if err != nil && ctx.Err() == nil {
		r.hand(ctx, &jsonrpc.Response{ID: req.ID, Error: err})
	}
}

// hand waits until the SDK takes a message.
func (r *remote) hand(ctx context.Context, msg jsonrpc.Message) {
	select {
	case r.in <- msg:
	case <-ctx.Done():
	case <-r.ctx.Done():
	}
}

// request makes a call. The error says why there is no answer to it.
func (r *remote) request(ctx context.Context, req *jsonrpc.Request, body []byte) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := r.send(ctx, http.MethodPost, req, body, nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	kind := kindOf(resp)
	switch {
	case resp.StatusCode/100 != 2:
		return r.refusal(resp, req)
	case req.Method == "initialize" && !r.begins(resp.Header.Get("Mcp-Session-Id")):
		return tool.Faultf(tool.ProtocolError, "the server gives the session a name that cannot be sent")
	case kind == "application/json":
		return r.whole(ctx, resp, req, cancel)
	case kind == "text/event-stream":
		return r.follow(ctx, resp, req, cancel)
	case resp.StatusCode == http.StatusAccepted:
		return tool.Faultf(tool.ProtocolError, "the server accepted a call of %s and gives no answer to it", req.Method)
	}
	return tool.Faultf(tool.ProtocolError,
		"the server answers with %s, and not with JSON or an event stream: is this the address of its MCP endpoint?",
		said(kind))
}

func kindOf(resp *http.Response) string {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return kind
}

// begins keeps the name of the session, "" for none.
func (r *remote) begins(session string) bool {
	visible := func(c rune) bool { return c < '!' || c > '~' }
	if len(session) > maxSession || strings.ContainsFunc(session, visible) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.session = session
	return true
}

// whole reads an answer that is one message.
func (r *remote) whole(ctx context.Context, resp *http.Response, req *jsonrpc.Request, cancel func()) error {
	held := r.s.Hold(resp.Body, r.desc.MaxOutput, cancel)
	defer held.Close()
	text, err := io.ReadAll(io.LimitReader(held, int64(r.desc.MaxOutput)+1))
	switch {
	case err != nil:
		return r.broken(ctx, err)
	case len(text) > r.desc.MaxOutput:
		return tool.Faultf(tool.ProtocolError, "the server's answer is longer than %d bytes", r.desc.MaxOutput)
	}
	answered, err := r.deliver(ctx, text, req, held)
	if err == nil && !answered {
		err = tool.Faultf(tool.ProtocolError, "the server's answer is to another question")
	}
	return err
}

// deliver hands a message on. answered says that it is the answer to req, which may be
// nil.
func (r *remote) deliver(ctx context.Context, text []byte, req *jsonrpc.Request, held *proc.Held) (answered bool,
	err error,
) {
	turn := held.Turn()
	msg, err := jsonrpc.DecodeMessage(text)
	if err != nil {
		turn()
		return false, tool.Faultf(tool.ProtocolError, "the server's answer cannot be read: %v: %s", err, said(string(text)))
	}
	a, ok := msg.(*jsonrpc.Response)
	answered = ok && req != nil && a.ID == req.ID
	if answered && req.Method == "initialize" {
		r.agree(a)
	}
	if msg, err = r.inbox.receive(msg, len(text), turn); err == nil && msg != nil {
		r.hand(ctx, msg)
	}
	return answered, err
}

// agree keeps the version that the server wants to speak.
func (r *remote) agree(a *jsonrpc.Response) {
	var result struct {
		Version string `json:"protocolVersion"`
	}
	if a.Error != nil || jsonx.Unmarshal(a.Result, &result) != nil || len(result.Version) > maxSession {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.version = result.Version
}

// send makes a request, once more with another token where the server asks for
// one. from says which stream it takes up. The error is a [tool.Fault].
func (r *remote) send(ctx context.Context, method string, msg jsonrpc.Message, body []byte,
	from *stream,
) (*http.Response, error) {
	token, err := r.ownToken(ctx)
	for first := true; err == nil; first = false {
		var resp *http.Response
		if resp, err = r.once(ctx, method, msg, body, from, token); err != nil {
			return nil, err
		}
		c, asks := oauth.ParseChallenge(resp.StatusCode, resp.Header)
		if !asks {
			if resp.StatusCode/100 == 2 {
				r.welcome()
			}
			return resp, nil
		}
		_ = resp.Body.Close()
		if r.logins == nil || !first {
			return nil, r.needsLogin(token, fmt.Sprintf("the server answers %d %s", resp.StatusCode,
				http.StatusText(resp.StatusCode)))
		}
		old := token
		if token, err = r.logins.Refused(ctx, token, c); err != nil {
			token = old
		}
	}
	var needs *oauth.NeedsLoginError
	switch {
	case errors.As(err, &needs):
		return nil, r.needsLogin(token, needs.Error())
	case ctx.Err() != nil:
		return nil, tool.Interrupted(ctx)
	}
	return nil, tool.Faultf(tool.Unreachable, "%v", err)
}

func (r *remote) ownToken(ctx context.Context) (string, error) {
	if r.logins == nil {
		return "", nil
	}
	return r.logins.Token(ctx)
}

func (r *remote) once(ctx context.Context, method string, msg jsonrpc.Message, body []byte, from *stream,
	token string,
) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, r.desc.Transport.URL, bytes.NewReader(body))
	if err != nil {
		return nil, tool.Faultf(tool.Unreachable, "the server's address cannot be used")
	}
	for name, value := range r.desc.Headers {
		req.Header.Set(name, value)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	r.head(req.Header, method, msg)
	if from != nil && from.last != "" {
		req.Header.Set("Last-Event-ID", from.last)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return nil, r.broken(ctx, err)
	}
	return resp, nil
}

// head sets the headers of the protocol.
func (r *remote) head(h http.Header, method string, msg jsonrpc.Message) {
	r.mu.Lock()
	session, version := r.session, r.version
	r.mu.Unlock()
	switch method {
	case http.MethodPost:
		h.Set("Content-Type", "application/json")
		h.Set("Accept", "application/json, text/event-stream")
	case http.MethodGet:
		h.Set("Accept", "text/event-stream")
	}
	if session != "" {
		h.Set("Mcp-Session-Id", session)
	}
	req, ok := msg.(*jsonrpc.Request)
	if ok {
		version = versionOf(req, version)
	}
	if version != "" {
		h.Set("Mcp-Protocol-Version", version)
	}
	if !ok {
		return
	}
	h.Set("Mcp-Method", req.Method) // older servers do not look
	if version >= discover {
		if name := nameOf(req); name != "" {
			h.Set("Mcp-Name", headerSafe(name))
		}
		r.link.putParams(h, req)
	}
}

// versionOf is the version that a request is of, where it says so itself.
func versionOf(req *jsonrpc.Request, agreed string) string {
	var p struct {
		Meta struct {
			Version string `json:"io.modelcontextprotocol/protocolVersion"`
		} `json:"_meta"`
	}
	if jsonx.Unmarshal(req.Params, &p) == nil && p.Meta.Version != "" {
		return p.Meta.Version
	}
	return agreed
}

// nameOf is what a request is about, which newer servers read in a header.
func nameOf(req *jsonrpc.Request) string {
	var p struct {
		Name string `json:"name"`
		URI  string `json:"uri"`
	}
	if jsonx.Unmarshal(req.Params, &p) != nil {
		return ""
	}
	switch req.Method {
	case "tools/call", "prompts/get":
		return p.Name
	case "resources/read":
		return p.URI
	}
	return ""
}

// headerSafe is a value as newer servers read it in a header.
func headerSafe(value string) string {
	wrong := func(c rune) bool { return c < ' ' || c > '~' }
	if strings.ContainsFunc(value, wrong) || strings.TrimSpace(value) != value || strings.HasPrefix(value, "=?base64?") {
		return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(value)) + "?="
	}
	return value
}

// brokenOff is a fault after which the next call makes another connection.
type brokenOff struct{ *tool.Fault }

func (b brokenOff) Unwrap() error { return b.Fault }

// broken is the fault of a request that came to nothing on its way.
func (r *remote) broken(ctx context.Context, err error) error {
	var fault *tool.Fault
	switch {
	case errors.Is(err, proc.ErrStalled):
		return tool.Faultf(tool.ProtocolError, "%v", err)
	case r.ctx.Err() != nil:
		return r.epitaph()
	case ctx.Err() != nil:
		return tool.Interrupted(ctx)
	case errors.As(err, &fault): // a redirect
		return fault
	}
	var with *url.Error
	if errors.As(err, &with) { // its text repeats the address, which may hold a secret
		err = with.Err
	}
	why := ""
	if r.direct.Load() {
		why = "; HTTP_PROXY is not used for it, as the proxy could read its headers: use https"
	}
	return brokenOff{tool.Faultf(tool.Unreachable, "the server cannot be reached: %v%s", err, why)}
}

// refusal is the fault of an answer that says no.
func (r *remote) refusal(resp *http.Response, req *jsonrpc.Request) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	status, session := resp.StatusCode, r.SessionID() != "" && !optional(req)
	switch {
	case status == http.StatusNotFound && session:
		r.mu.Lock()
		r.gone = true
		r.mu.Unlock()
		r.lost()
		return errGone
	case status == http.StatusBadRequest && session:
		r.lost() // some say so where they know no such session
	}
	var fault struct {
		Error *jsonrpc.Error `json:"error"`
	}
	if jsontext.Value(text).IsValid() && jsonx.Unmarshal(text, &fault) == nil && fault.Error != nil &&
		fault.Error.Message != "" {
		return fault.Error
	}
	code := tool.ProtocolError
	if status >= 500 || status == http.StatusTooManyRequests {
		code = tool.Unreachable
	}
	hint := ""
	if (status == http.StatusNotFound || status == http.StatusMethodNotAllowed) && req != nil &&
		req.Method == "initialize" {
		hint = ": is this the address of its MCP endpoint? One that is for the older transport with server-sent events " +
			"alone is not, it often ends in /sse where that for streamable HTTP ends in /mcp"
	}
	return tool.Faultf(code, "the server answers %d %s%s%s", status, http.StatusText(status), hint, quoted(text))
}

func quoted(text []byte) string {
	if len(bytes.TrimSpace(text)) == 0 {
		return ""
	}
	return ": " + said(string(text))
}

// said is what a server said, made harmless and short.
func said(text string) string { return fmt.Sprintf("%q", format.Clip(strings.TrimSpace(text), 200)) }
