package wire

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"noused/internal/model"
)

const (
	maxRefusal = 64 << 10 // what is read of the body of an error
	maxMessage = 1000     // what is told of it
)

// Error is what a provider said in place of an answer, or what went wrong on
// the way to it. It wraps model.ErrTruncated or model.ErrContextTooLong where
// it is one of these.
type Error struct {
	Status  int    // of the response; 0 where there was none, and inside a stream
	Code    string // the provider's own word for it, "overloaded_error" for one
	Message string

	host     string
	attempts int           // how many were made, where that is more than one
	passing  bool          // the same request may go well later
	after    time.Duration // when, where the provider says so
	is       error
}

func (e *Error) Error() string {
	text := e.Message
	if e.Status != 0 {
		status := strings.TrimSpace(fmt.Sprintf("%d %s", e.Status, http.StatusText(e.Status)))
		text = strings.TrimSuffix(status+": "+text, ": ")
	}
	if e.host != "" {
		text = e.host + ": " + text
	}
	if e.attempts > 1 {
		text += fmt.Sprintf(" (tried %d times)", e.attempts)
	}
	return text
}

// Unwrap returns the condition that the error is, nil for most.
func (e *Error) Unwrap() error { return e.is }

// Truncated is the error of an answer that ended without a reason to stop. why
// may be empty.
func Truncated(why string) *Error {
	e := &Error{Message: model.ErrTruncated.Error(), passing: true, is: model.ErrTruncated}
	if why != "" {
		e.Message += ": " + why
	}
	return e
}

// TooMuch is the error of an answer that holds more than it may.
func TooMuch() *Error {
	return &Error{Message: fmt.Sprintf("the message holds more than %d MiB or %d tool calls", MaxContent>>20, MaxCalls)}
}

// Failure is the error that a provider told of in the middle of an answer: an
// object with a message and perhaps a type and a code, or a string.
func Failure(v jsontext.Value) *Error {
	e := &Error{}
	e.Code, e.Message = said(v)
	e.classify()
	return e
}

// refusal is the error that a response is which is not an answer.
func refusal(resp *http.Response, in io.Reader, now time.Time) *Error {
	body, _ := io.ReadAll(io.LimitReader(in, maxRefusal)) // what came of it has to do
	e := &Error{Status: resp.StatusCode, after: retryAfter(resp.Header.Get("Retry-After"), now)}
	e.Code, e.Message = said(body)
	if e.Code == "" && e.Message == "" {
		e.Message = page(resp.Header.Get("Content-Type"), body)
	}
	switch {
	case e.Status >= 300 && e.Status < 400:
		e.Message = "redirects are not followed; base_url must be where the provider is"
		if to, err := resp.Location(); err == nil {
			e.Message += ": it points to " + to.Scheme + "://" + to.Host + to.Path
		}
	case e.Status < 300 && e.Message == "":
		e.Message = "an answer that is no event stream"
	case e.Status < 300:
		e.Message = "an answer that is no event stream: " + e.Message
	}
	e.classify()
	return e
}

// classify finds out what a caller may do about the error.
func (e *Error) classify() {
	status := e.Status
	if n, err := strconv.Atoi(e.Code); err == nil && n >= 400 && n < 600 && status < 400 {
		status = n // some gateways tell of an HTTP status inside a stream
	}
	switch {
	case status != http.StatusTooManyRequests && tooLong(e.Code+" "+e.Message):
		e.is = model.ErrContextTooLong
	case status == http.StatusRequestTimeout, status == http.StatusTooManyRequests, status >= 500:
		e.passing = true
	case status >= 400: // Ollama calls a model that it does not have an "api_error"
		e.passing = strings.Contains(e.Code, "overloaded")
	default:
		e.passing = slices.ContainsFunc(passing, func(s string) bool { return strings.Contains(e.Code, s) })
	}
}

// passing are parts of the codes of errors that pass.
var passing = []string{"overloaded", "rate_limit", "server_error", "api_error", "timeout", "unavailable"}

// longContext are the ways of saying that a request is too long for the model:
// Anthropic, Bedrock, OpenAI (its code and its text), vLLM and OpenRouter,
// Gemini, xAI, Groq, llama.cpp (its code and its text), LM Studio.
var longContext = []string{
	"prompt is too long", "exceed context limit", "request_too_large", "input is too long for",
	"context_length_exceeded", "exceeds the context window", "maximum context length",
	"exceeds the maximum number of tokens", "maximum prompt length", "reduce the length of the messages",
	"exceed_context_size", "exceeds the available context size", "greater than the context length",
	"model_context_window_exceeded",
}

func tooLong(text string) bool {
	text = strings.ToLower(text)
	return slices.ContainsFunc(longContext, func(s string) bool { return strings.Contains(text, s) })
}

// said finds the code and the message in what servers send as an error:
// {"error":{"message","type","code"}}, the same without the outer object or in
// an array, {"error":"…"}, {"message":"…"}, {"detail":…}.
func said(body []byte) (code, message string) {
	v := jsontext.Value(body)
	for range 3 {
		switch v.Kind() {
		case jsontext.KindBeginArray:
			var list []jsontext.Value
			if json.Unmarshal(v, &list, lenient) != nil || len(list) == 0 {
				return "", ""
			}
			v = list[0]
			continue
		case jsontext.KindString:
			_ = json.Unmarshal(v, &message, lenient)
			return "", message
		case jsontext.KindBeginObject:
		default:
			return "", ""
		}
		var o struct {
			Error   jsontext.Value `json:"error"`
			Message jsontext.Value `json:"message"`
			Detail  jsontext.Value `json:"detail"`
			Type    jsontext.Value `json:"type"`
			Code    jsontext.Value `json:"code"`
			Status  jsontext.Value `json:"status"`
		}
		if json.Unmarshal(v, &o, lenient) != nil {
			return "", ""
		}
		if kind := o.Error.Kind(); kind == jsontext.KindBeginObject || kind == jsontext.KindString {
			v = o.Error
			continue
		}
		codes := slices.DeleteFunc([]string{Text(o.Code), Text(o.Type), Text(o.Status)}, func(s string) bool { return s == "" })
		message = Text(o.Message)
		if message == "" {
			message = Text(o.Detail)
		}
		// A number is a status and stands alone; words are looked through.
		if len(codes) > 0 {
			code = codes[0]
			if _, err := strconv.Atoi(code); err != nil {
				code = strings.Join(slices.Compact(codes), " ")
			}
		}
		return code, message
	}
	return "", ""
}

var (
	title  = regexp.MustCompile(`(?is)<title[^>]*>([^<]{0,300})`)
	tagged = regexp.MustCompile(`(?i)^\s*(<!--|<!doctype|<html|<head|<body)`)
)

// page is what a body says that is no JSON: the title of a web page, or a
// text's beginning.
func page(contentType string, body []byte) string {
	kind, _, _ := mime.ParseMediaType(contentType)
	if kind != "text/html" && !tagged.Match(body) {
		return string(body)
	}
	if m := title.FindSubmatch(body); m != nil && strings.TrimSpace(string(m[1])) != "" {
		return fmt.Sprintf("a web page, %q", strings.Join(strings.Fields(string(m[1])), " "))
	}
	return "a web page"
}

// retryAfter is how long the header wants us to wait, 0 if it does not say:
// seconds, or a date.
func retryAfter(header string, now time.Time) time.Duration {
	wait := time.Duration(0)
	if seconds, err := strconv.ParseFloat(header, 64); err == nil && seconds > 0 {
		wait = time.Duration(min(seconds, maxRetryAfter.Seconds()) * float64(time.Second))
	} else if at, err := http.ParseTime(header); err == nil {
		wait = at.Sub(now)
	}
	return max(0, min(wait, maxRetryAfter))
}

// unreachable is the error of a request that got no response.
func unreachable(err error) *Error {
	var outer *url.Error
	if errors.As(err, &outer) { // its text has the whole address
		err = outer.Err
	}
	return &Error{Message: "no answer: " + err.Error(), passing: true}
}

// redactor takes the key, and what is secret in the address, out of texts, also
// as they stand in an address or in JSON.
func redactor(key string, u *url.URL) *strings.Replacer {
	secrets := []string{key}
	if password, ok := u.User.Password(); ok {
		secrets = append(secrets, password)
	}
	for name, values := range u.Query() {
		if strings.Contains(strings.ToLower(name), "key") || strings.Contains(strings.ToLower(name), "token") {
			secrets = append(secrets, values...)
		}
	}
	var pairs []string
	for _, s := range secrets {
		if len(s) < 4 { // a stand-in such as "x", which would tear up every text
			continue
		}
		pairs = append(pairs, s, "[redacted]")
		for _, escaped := range []string{url.QueryEscape(s), strings.ReplaceAll(s, "/", `\/`)} {
			if escaped != s {
				pairs = append(pairs, escaped, "[redacted]")
			}
		}
	}
	return strings.NewReplacer(pairs...)
}

// tell makes of any error of a stream what may be told: no key in it, one line,
// not too long, and the provider's host before it.
func (c *Client) tell(err error, attempts int) *Error {
	told := Error{Message: err.Error()}
	var e *Error
	if errors.As(err, &e) {
		told = *e
	}
	told.Code = line(c.secrets.Replace(told.Code))
	told.Message = line(c.secrets.Replace(told.Message))
	if told.Message == "" {
		told.Message = told.Code
	}
	told.host, told.attempts = c.url.Host, attempts
	return &told
}

// line is a text as one line of bounded length, without control characters.
func line(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	return clip(strings.Join(strings.Fields(text), " "), maxMessage)
}

// clip cuts a text to about that many bytes, between characters.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
